//! Finds the folders of configurations, data and state on this machine. This is the only module of the library that
//! reads environment variables.
#![expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the environment, and only for the user's folders"
)]

use std::path::{Path, PathBuf};

use portcullis_core::trust::CONFIG_FILE;

/// Returns where a configuration is looked for if none is named, best place first.
pub(super) fn candidates() -> Vec<PathBuf> {
    let user = user_config_dir().map(|folder| folder.join(CONFIG_FILE));
    std::iter::once(Path::new(CONFIG_FILE).to_owned()).chain(user).collect()
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

/// Returns a folder of the user. A relative path in these variables is ignored (XDG Base Directory Specification).
fn user_folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(below_home)));
    base.map(|base| base.join("portcullis"))
}
