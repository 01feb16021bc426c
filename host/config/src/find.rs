//! Finds the configuration file, and decides whether it may be used.
//!
//! A file that a person named, or that is in the user's own configuration folder, may be used. A file that was only
//! found in the folder where a command is run, or in one above it, may be used only if the user has trusted its present
//! content.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use portcullis_core::digest::Digest;
use portcullis_core::escape::{escape_hidden, shell_word};
use portcullis_core::trust::{CONFIG_FILE, DATA_FOLDER, DataFolder, TrustRecord, TrustStore};

use super::error::ConfigError;
use super::other_configs::{self, PossibleWriter};
use super::{Config, MAX_FILE_BYTES, owner, search, unreadable};

/// A configuration that was read, before it is known whether it may be used.
#[derive(Debug, Clone)]
pub struct ConfigCandidate {
    config: Config,
    /// The file, under the real name of its folder.
    file: PathBuf,
    digest: Digest,
    /// The data folder that existed when the file was read.
    data: Option<DataFolder>,
    /// True if the file was neither named nor is in the user's own configuration folder.
    was_found: bool,
}

/// The trust status of a configuration: whether it may be used. It "counts" if it may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustStatus {
    /// The file was named, is the user's own, or is as the user trusted it.
    Usable,
    /// The user has never trusted this file.
    Unknown,
    /// The file or its data folder is not the one that the user trusted.
    Changed(TrustRecord),
}

impl ConfigCandidate {
    /// Reads the named file, or else `portcullis.toml` in the working directory or the nearest folder above it, or else
    /// `portcullis/portcullis.toml` in `$XDG_CONFIG_HOME` or `~/.config`.
    ///
    /// # Errors
    /// No file; a file that cannot be read, that another user owns or may write, or that is larger than
    /// [`MAX_FILE_BYTES`](super::MAX_FILE_BYTES); or anything that [`Config::parse`] refuses.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let named = |path: &Path| Ok((path.to_owned(), false));
        let (written, was_found) = path.map_or_else(search_for_one, named)?;
        let text = read(&written)?;
        let mut config = Config::parse(&text, &written)?;
        config.state_dir = search::user_state_dir();
        let file = real_file(config.file.as_deref().unwrap_or(&written));
        let data = DataFolder::at(&config.data_dir);
        Ok(Self { config, file, digest: Digest::of(text.as_bytes()), data, was_found })
    }

    /// Returns whether the configuration may be used.
    ///
    /// # Errors
    /// If that cannot be determined: no home folder is known, or other users may write the state folder.
    pub fn trust_status(&self) -> Result<TrustStatus, ConfigError> {
        if !self.was_found {
            return Ok(TrustStatus::Usable);
        }
        let trusted = self.trust()?.get(&self.file).map_err(unusable)?;
        Ok(match trusted {
            None => TrustStatus::Unknown,
            Some(trusted) if self.matches(&trusted) => TrustStatus::Usable,
            Some(trusted) => TrustStatus::Changed(trusted),
        })
    }

    /// Returns the user's record of trust in this file, whatever the file contains now.
    ///
    /// # Errors
    /// As for [`ConfigCandidate::trust_status`].
    pub fn trusted(&self) -> Result<Option<TrustRecord>, ConfigError> {
        self.trust()?.get(&self.file).map_err(unusable)
    }

    /// Reports whether the file is as the user trusted it, and its data folder is the same one as then or does not
    /// exist.
    #[must_use]
    pub fn matches(&self, trusted: &TrustRecord) -> bool {
        trusted.digest == self.digest && !self.has_unknown_data_folder(Some(trusted))
    }

    /// Reports whether a data folder exists that is not the one that the user trusted with this configuration.
    #[must_use]
    pub fn has_unknown_data_folder(&self, trusted: Option<&TrustRecord>) -> bool {
        self.data.is_some() && self.data.as_ref() != trusted.and_then(|trusted| trusted.data.as_ref())
    }

    /// Returns the configuration if it may be used. The data folder of a found file is created if there is none.
    ///
    /// # Errors
    /// A [`ConfigError`] that tells how to review the file and trust it.
    pub fn into_usable(self) -> Result<Config, ConfigError> {
        let shown = escape_hidden(&self.file.to_string_lossy()).into_owned();
        let data = escape_hidden(&self.config.data_dir.to_string_lossy()).into_owned();
        let strange = || {
            format!(
                "{shown} was found in or above this folder, and {data} is not the data folder that you trusted with it"
            )
        };
        let mut message = match self.trust_status()? {
            TrustStatus::Usable if !self.was_found || self.data.is_some() => return Ok(self.config),
            TrustStatus::Usable
                if self.trust()?.ensure_data_folder(&self.file, &self.config.data_dir).map_err(unusable)? =>
            {
                return Ok(self.config);
            }
            TrustStatus::Usable => strange(),
            TrustStatus::Changed(trusted) if trusted.digest == self.digest => strange(),
            TrustStatus::Changed(trusted) if !trusted.unseen => {
                format!("{shown} was found in or above this folder and is not what you trusted, so it is not used")
            }
            TrustStatus::Changed(_) | TrustStatus::Unknown => {
                format!("{shown} was found in or above this folder and is not trusted yet, so it is not used")
            }
        };
        if let Some(writer) = self.writers()?.first() {
            message.push_str(&format!("; {writer}"));
        }
        let help = format!(
            "`portcullis trust {word}` shows what it starts, reaches, reads and writes, and asks; \
             `portcullis --config {word} …` names the file instead",
            word = shell_word(&shown)
        );
        Err(ConfigError::without_place(message, help))
    }

    /// Records that the user trusts the file as read, together with the data folder that existed then, and returns the
    /// configuration. A data folder that did not exist is created.
    ///
    /// # Errors
    /// If the record cannot be written, or somebody has created the data folder in the meantime.
    pub fn accept(self) -> Result<Config, ConfigError> {
        let Self { config, file, digest, data, .. } = &self;
        let data = data.clone().map_or_else(|| DataFolder::make(&config.data_dir), Ok);
        let data = data.map_err(|error| {
            let message = format!("the data folder cannot be made: {error}");
            ConfigError::without_place(message, "look at what is there, and run the command again")
        })?;
        self.trust()?.record(file, *digest, config.effects(), data).map_err(unusable)?;
        Ok(self.config)
    }

    /// Returns the sources of other configurations that may have written this file.
    ///
    /// # Errors
    /// As for [`ConfigCandidate::trust_status`].
    pub fn writers(&self) -> Result<Vec<PossibleWriter>, ConfigError> {
        let all = self.trust()?.list().map_err(unusable)?;
        Ok(other_configs::writers(&self.file, &all))
    }

    /// Returns the configuration, whether it may be used or not: to be shown, not to be used.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the path of the file under the real name of its folder, as recorded.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the digest of the bytes that were read.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    fn trust(&self) -> Result<TrustStore, ConfigError> {
        trust(self.config.state_dir.as_deref())
    }
}

/// Returns the configuration file that a command would use, and its text, without judging the text: an editing command
/// may be meant to fix it.
///
/// # Errors
/// No file; a file that cannot be read, that another user owns or may write, or that is too long or not UTF-8.
pub fn find_text(path: Option<&Path>) -> Result<(PathBuf, String), ConfigError> {
    let named = |path: &Path| Ok((path.to_owned(), false));
    let (written, _) = path.map_or_else(search_for_one, named)?;
    let text = read(&written)?;
    Ok((real_file(&written), text))
}

/// Returns the data folder of a configuration that cannot be used, because of an error in it or because it has changed
/// since the user trusted it: for commands that read the data of a broker there. `None` if it is not known to be the
/// user's. For a file that was only found, it is the folder that the user trusted with it; for another, the one next to
/// it.
#[must_use]
pub fn known_data_dir(path: Option<&Path>) -> Option<PathBuf> {
    let named = |path: &Path| Ok((path.to_owned(), false));
    let (written, was_found) = path.map_or_else(search_for_one, named).ok()?;
    let file = real_file(&written);
    if was_found {
        let trusted = user_trust().ok()?.get(&file).ok()??;
        return trusted.data.filter(DataFolder::is_in_place).map(|data| data.path.into());
    }
    file.parent().map(|folder| folder.join(DATA_FOLDER)).filter(|folder| file.is_file() && folder.is_dir())
}

/// Returns the trust records of the user who runs this program.
///
/// # Errors
/// If no home folder is known.
pub fn user_trust() -> Result<TrustStore, ConfigError> {
    trust(search::user_state_dir().as_deref())
}

fn trust(state_dir: Option<&Path>) -> Result<TrustStore, ConfigError> {
    let without = || {
        let message = format!("{}, so it is not known which configurations you trust", search::no_home());
        ConfigError::without_place(message, "set HOME or XDG_STATE_HOME, or name the file with `--config FILE`")
    };
    Ok(TrustStore::new(state_dir.ok_or_else(without)?))
}

fn unusable(error: portcullis_core::trust::TrustError) -> ConfigError {
    ConfigError::without_place(error.to_string(), "or name the file with `--config FILE`")
}

/// Returns the first file that exists where configurations are looked for, and whether it is another than the user's
/// own.
fn search_for_one() -> Result<(PathBuf, bool), ConfigError> {
    let candidates = search::candidates();
    let Some(file) = candidates.iter().find(|path| path.is_file()) else {
        let own = search::user_config().map(|own| format!(", and for {}", own.display())).unwrap_or_default();
        return Err(ConfigError::missing(
            format!("there is no configuration: looked for {CONFIG_FILE} in this folder and in those above it{own}"),
            "run `portcullis init` to write one, name one with `--config FILE` or PORTCULLIS_CONFIG, or run `portcullis wrap -- COMMAND`, which needs none",
        ));
    };
    let own = search::user_config_dir().map(|folder| real_file(&folder.join(CONFIG_FILE)));
    let was_found = own.is_none_or(|own| own != real_file(file));
    Ok((file.clone(), was_found))
}

/// Returns the absolute path of a file, with the real name of its folder, so that a file has one name however it is
/// reached.
#[must_use]
pub fn real_file(file: &Path) -> PathBuf {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let folder = file.parent().and_then(|folder| folder.canonicalize().ok());
    folder.zip(file.file_name()).map_or_else(|| file.clone(), |(folder, name)| folder.join(name))
}

/// Reads the text of a configuration, and refuses one that another user could have written.
pub(super) fn read(file: &Path) -> Result<String, ConfigError> {
    let mut bytes = Vec::new();
    let opened = File::open(file).map_err(|error| unreadable(file, &error))?;
    owner::check(file, &opened)?;
    opened.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| unreadable(file, &error))?;
    let shown = || escape_hidden(&file.to_string_lossy()).into_owned();
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let message = format!("{} is longer than {MAX_FILE_BYTES} bytes", shown());
        return Err(ConfigError::without_place(message, "a configuration is a short text: is this the right file?"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        ConfigError::without_place(format!("{} is not UTF-8 at byte {place}", shown()), "save it as UTF-8")
    })
}
