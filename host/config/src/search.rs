//! Finds the folders of configurations, data and state on this machine. This is the only module of the library that
//! reads environment variables.
#![expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the environment, and only for the user's folders"
)]

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use portcullis_core::trust::CONFIG_FILE;

/// The mode bit that lets everybody write.
const OTHERS_WRITE: u32 = 0o002;

/// Returns the configuration that the variable `PORTCULLIS_CONFIG` names, if it is set and not empty.
#[must_use]
pub fn named_by_environment() -> Option<PathBuf> {
    std::env::var_os("PORTCULLIS_CONFIG").filter(|named| !named.is_empty()).map(PathBuf::from)
}

/// Returns a variable of this process's environment, for a value that a client's file takes from there.
#[must_use]
pub fn environment_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns where a configuration is looked for if none is named, best place first: the working directory, the folders
/// above it, and the user's own.
pub(super) fn candidates() -> Vec<PathBuf> {
    let here = Path::new(CONFIG_FILE).to_owned();
    let above = std::env::current_dir().map(|here| above(&here)).unwrap_or_default();
    std::iter::once(here).chain(above).chain(user_config()).collect()
}

/// Returns the user's own configuration, whether it exists or not.
pub(super) fn user_config() -> Option<PathBuf> {
    user_config_dir().map(|folder| folder.join(CONFIG_FILE))
}

/// Returns the configurations in the folders above this one, the nearest first. It ends below a folder that another
/// user owns or everybody may write, such as `/home` or `/tmp`: files there do not belong to this user's project.
fn above(folder: &Path) -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let own =
        |folder: &&Path| folder.metadata().is_ok_and(|about| about.uid() == user && about.mode() & OTHERS_WRITE == 0);
    folder.ancestors().skip(1).take_while(own).map(|folder| folder.join(CONFIG_FILE)).collect()
}

/// Returns the folder of the user's own configuration: `$XDG_CONFIG_HOME/portcullis`, usually `~/.config/portcullis`.
/// `None` for a user without a home folder.
#[must_use]
pub fn user_config_dir() -> Option<PathBuf> {
    user_folder("XDG_CONFIG_HOME", ".config")
}

/// Returns the data folder of brokers that have no configuration file: `$XDG_DATA_HOME/portcullis`, usually
/// `~/.local/share/portcullis`. `None` for a user without a home folder.
#[must_use]
pub fn user_data_dir() -> Option<PathBuf> {
    user_folder("XDG_DATA_HOME", ".local/share")
}

/// Returns the user's state folder, with compiled code and the records of trusted configurations:
/// `$XDG_STATE_HOME/portcullis`, usually `~/.local/state/portcullis`. `None` for a user without a home folder.
#[must_use]
pub fn user_state_dir() -> Option<PathBuf> {
    user_folder("XDG_STATE_HOME", ".local/state")
}

/// Returns why the user's own folders are not known, for a message.
#[must_use]
pub fn no_home() -> &'static str {
    match std::env::var_os("HOME").is_some_and(|home| !home.is_empty()) {
        true => "HOME is not an absolute path",
        false => "there is no home folder",
    }
}

/// Returns a folder of the user. A relative path in these variables is ignored (XDG Base Directory Specification).
fn user_folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(below_home)));
    base.map(|base| base.join("portcullis"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_search_ends_below_a_folder_that_everybody_may_write() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let folder = dir.join("shared/project/src/deep");
        fs::create_dir_all(&folder).unwrap();
        let found = |folder: &Path| above(folder).into_iter().filter(|file| file.starts_with(&dir)).count();
        assert_eq!(found(&folder), 4);
        assert_eq!(above(&folder).first(), Some(&dir.join("shared/project/src/portcullis.toml")));
        fs::set_permissions(dir.join("shared"), Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(found(&folder), 2);
    }
}
