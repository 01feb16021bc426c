//! The user's other configurations, and what their sources may have done to a file that is not yet trusted.

use std::path::{Path, PathBuf};

use portcullis_core::digest::Digest;
use portcullis_core::escape::escape_hidden;
use portcullis_core::name::SourceName;
use portcullis_core::trust::{CONFIG_FILE, TrustRecord};

use super::find::read;
use super::{Config, Endpoint, real_file, search};

impl Config {
    /// Returns the files and folders of the broker and of its user that no source may be granted.
    #[doc(hidden)]
    pub fn own_files(&self) -> Vec<PathBuf> {
        let here = [Some(self.data_dir.clone()), self.file.clone(), self.state_dir.clone()];
        let user = [search::user_data_dir(), search::user_state_dir(), search::user_config_dir()];
        here.into_iter().chain(user).chain([user_configured_data_dir()]).flatten().collect()
    }
}

/// A source that may have written a configuration file, because the file is in a folder that the source may write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PossibleWriter {
    /// The name of the source.
    pub source: SourceName,
    /// The configuration that grants the folder to the source.
    pub configuration: PathBuf,
    /// The granted folder.
    pub folder: PathBuf,
}

impl std::fmt::Display for PossibleWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |path: &Path| escape_hidden(&path.to_string_lossy()).into_owned();
        let Self { source, configuration, folder } = self;
        let (configuration, folder) = (shown(configuration), shown(folder));
        write!(f, "source `{source}` of {configuration} may write {folder}, and so may have written this file")
    }
}

/// Returns the sources that may have written `file`. The sources of every other configuration that may be used without
/// being named are examined: those that are as the user trusted them, and the user's own. `file` has the real name of
/// its folder.
pub(super) fn writers(file: &Path, trusted: &[TrustRecord]) -> Vec<PossibleWriter> {
    let trusted = trusted.iter().filter_map(|trusted| {
        let path = Path::new(&trusted.path);
        let text = read(path).ok().filter(|text| Digest::of(text.as_bytes()) == trusted.digest)?;
        Config::parse(&text, path).ok()
    });
    let mut found = Vec::new();
    for config in trusted.chain(users_own()) {
        let Some(configuration) = config.file.as_deref().map(real_file).filter(|other| other != file) else { continue };
        for source in config.sources.values().filter(|source| !matches!(source.endpoint, Endpoint::Url { .. })) {
            let holds = |folder: &&PathBuf| folder.canonicalize().is_ok_and(|folder| file.starts_with(folder));
            found.extend(source.cell.write.iter().filter(holds).map(|folder| PossibleWriter {
                source: source.name.clone(),
                configuration: configuration.clone(),
                folder: folder.clone(),
            }));
        }
    }
    found
}

/// Returns the data folder of the user's own configuration, whichever configuration is in use. `None` if there is no
/// such configuration or it cannot be read.
pub(super) fn user_configured_data_dir() -> Option<PathBuf> {
    users_own().map(|config| config.data_dir)
}

fn users_own() -> Option<Config> {
    let file = search::user_config_dir()?.join(CONFIG_FILE);
    Config::parse(&read(&file).ok()?, &file).ok()
}
