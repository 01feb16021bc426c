//! Where configurations, data and state stand on this machine: the only reader of environment variables in the library.
#![expect(
    clippy::disallowed_methods,
    reason = "the one place that asks the environment, and only for the user's folders"
)]

use crate::trust::CONFIG_FILE;
use std::path::{Path, PathBuf};

/// Where a configuration is looked for when none is named, best first.
pub(super) fn candidates() -> Vec<PathBuf> {
    let user = user_config_dir().map(|folder| folder.join(CONFIG_FILE));
    std::iter::once(Path::new(CONFIG_FILE).to_owned()).chain(user).collect()
}

/// The folder of the user's own configuration: `$XDG_CONFIG_HOME/portcullis`, usually `~/.config/portcullis`. None for a user
/// without a home.
#[must_use]
pub fn user_config_dir() -> Option<PathBuf> {
    user_folder("XDG_CONFIG_HOME", ".config")
}

/// The data folder of brokers that have no configuration file: `$XDG_DATA_HOME/portcullis`, usually
/// `~/.local/share/portcullis`. None for a user without a home.
#[must_use]
pub fn user_data_dir() -> Option<PathBuf> {
    user_folder("XDG_DATA_HOME", ".local/share")
}

/// The state folder of the user, with compiled code and the configurations that the user trusts:
/// `$XDG_STATE_HOME/portcullis`, usually `~/.local/state/portcullis`. None for a user without a home.
#[must_use]
pub fn user_state_dir() -> Option<PathBuf> {
    user_folder("XDG_STATE_HOME", ".local/state")
}

/// A relative path in these variables is to be ignored (XDG Base Directory Specification).
fn user_folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(below_home)));
    base.map(|base| base.join("portcullis"))
}
