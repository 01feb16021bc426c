//! Secrets: values that sources are given, and that appear in no configuration, no log and no message.
//!
//! They are kept in one file in the data folder, readable only by its owner. A value leaves this module only as a
//! [`SecretString`], whose `Debug` does not show it and which has no `Display`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretString};

use crate::digest::Digest;
use crate::escape::shell_word;
use crate::private::{self, NotPrivate};

/// The name of the file in the data folder.
const FILE: &str = "secrets.json";

/// The name of a lock file that is held while the file is replaced, so that concurrent commands do not lose each
/// other's changes.
const LOCK: &str = "secrets.lock";

/// The longest name of a secret, in bytes: a source name, a `-` and the name of a variable fit.
pub const MAX_NAME_BYTES: usize = 128;

/// The longest value, in bytes: keys and certificates are shorter, and Linux does not accept a longer variable.
pub const MAX_VALUE_BYTES: usize = 64 * 1024;

/// The most secrets of one data folder, which limits the size of the file.
pub const MAX_SECRETS: usize = 256;

/// The largest possible file, in bytes: every byte of every value escaped as `\u00XX`.
const MAX_FILE_BYTES: u64 = (MAX_SECRETS * 6 * (MAX_VALUE_BYTES + MAX_NAME_BYTES)) as u64;

/// A value that is written in the configuration, or a reference to a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigValue {
    /// The value itself.
    Plain(String),
    /// The name of a secret that `portcullis secret` keeps.
    Secret(String),
}

/// Writes the name of a secret, or the digest of a value: a value that is written in the configuration may be a secret
/// too.
impl serde::Serialize for ConfigValue {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Plain(text) => {
                let digest = Digest::of(text.as_bytes());
                serializer.serialize_newtype_variant("ConfigValue", 0, "plain", &digest)
            }
            Self::Secret(name) => serializer.serialize_newtype_variant("ConfigValue", 1, "secret", name),
        }
    }
}

/// An error that says why a secret cannot be stored or returned. Contains no value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The name is empty, longer than 128 bytes, starts with `-`, or has other characters than ASCII letters,
    /// digits, `-`, `_` and `.`.
    #[error("secret name {0:?} is not 1 to {MAX_NAME_BYTES} ASCII letters, digits, `-`, `_` and `.`")]
    Name(String),
    /// The value is empty, longer than [`MAX_VALUE_BYTES`], or contains a NUL character.
    #[error("the value of secret {0:?} is empty, longer than {MAX_VALUE_BYTES} bytes, or has a NUL character in it")]
    Value(String),
    /// There are [`MAX_SECRETS`] secrets already.
    #[error("there are {MAX_SECRETS} secrets already: remove one with `portcullis secret remove NAME`")]
    TooMany,
    /// There is no secret of this name.
    #[error("secret {0:?} is not set: run `portcullis secret set {0}`")]
    Unset(String),
    /// Other users may read the folder or file.
    #[error(
        "{path} is open to other users (mode {mode:o}): run `chmod {wanted:o} {word}`, and replace what they may have read",
        word = shell_word(.path)
    )]
    Open {
        /// The folder or file.
        path: String,
        /// The mode that it has.
        mode: u32,
        /// The mode that it should have.
        wanted: u32,
    },
    /// The folder or file belongs to another user.
    #[error("{0} belongs to another user: run `portcullis` as that user, or choose another `data-dir`")]
    Owner(String),
    /// The file was not written by this version.
    #[error("{0} is damaged: restore it, or remove it and set the secrets anew")]
    Damaged(String),
    /// A stored login was not written by this version, or its key is missing.
    #[error("{0} is damaged: run `portcullis logout {1}`, then `portcullis login {1}`")]
    Login(String, String),
    /// The system returned an error.
    #[error("{path}: {error}")]
    Io {
        /// The folder or file.
        path: String,
        /// The error of the system.
        error: std::io::Error,
    },
}

/// Checks whether a secret may have this name.
///
/// # Errors
/// [`SecretError::Name`]
pub fn check_name(name: &str) -> Result<(), SecretError> {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(good) && !name.starts_with('-') {
        return Ok(());
    }
    Err(SecretError::Name(name.chars().take(MAX_NAME_BYTES).collect()))
}

/// The secrets of one data folder. The file is read again each time, so that a running broker sees new secrets.
#[derive(Debug, Clone)]
pub struct SecretStore {
    folder: PathBuf,
}

impl SecretStore {
    /// Opens the secrets of a data folder, which need not exist yet. Creates nothing.
    ///
    /// # Errors
    /// If the folder or the file is open to other users, or belongs to another user.
    pub fn open(data_dir: &Path) -> Result<Self, SecretError> {
        let secrets = Self { folder: data_dir.to_owned() };
        secrets.check_folder()?;
        secrets.open_file()?;
        Ok(secrets)
    }

    /// Returns the path of the file with the secrets of a data folder. It is replaced as a whole at each change.
    #[must_use]
    pub fn file(data_dir: &Path) -> PathBuf {
        data_dir.join(FILE)
    }

    /// Returns one secret.
    ///
    /// # Errors
    /// [`SecretError::Unset`] if there is none of this name, or another error if the file cannot be used.
    pub fn get(&self, name: &str) -> Result<SecretString, SecretError> {
        check_name(name)?;
        self.read()?.remove(name).ok_or_else(|| SecretError::Unset(name.to_owned()))
    }

    /// Returns the value that a configured value refers to.
    ///
    /// # Errors
    /// The errors of [`SecretStore::get`]; none for a plain value.
    pub fn resolve(&self, value: &ConfigValue) -> Result<SecretString, SecretError> {
        match value {
            ConfigValue::Plain(text) => Ok(text.as_str().into()),
            ConfigValue::Secret(name) => self.get(name),
        }
    }

    /// Returns the names, sorted.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub fn list(&self) -> Result<Vec<String>, SecretError> {
        Ok(self.read()?.into_keys().collect())
    }

    /// Stores a value, and replaces an older one of this name. Creates folder and file if they are missing.
    ///
    /// # Errors
    /// If the name or value is not valid, there are too many secrets, or the file cannot be used.
    pub fn set(&self, name: &str, value: &SecretString) -> Result<(), SecretError> {
        check_name(name)?;
        let text = value.expose_secret();
        if text.is_empty() || text.len() > MAX_VALUE_BYTES || text.contains('\0') {
            return Err(SecretError::Value(name.to_owned()));
        }
        let create = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        create.map_err(|error| io(&self.folder, error))?;
        self.check_folder()?;
        let _lock = self.lock()?;
        let mut secrets = self.read()?;
        if secrets.len() >= MAX_SECRETS && !secrets.contains_key(name) {
            return Err(SecretError::TooMany);
        }
        secrets.insert(name.to_owned(), value.clone());
        self.replace(&secrets)
    }

    /// Removes a secret.
    ///
    /// # Errors
    /// [`SecretError::Unset`] if there is none of this name, or another error if the file cannot be used.
    pub fn remove(&self, name: &str) -> Result<(), SecretError> {
        check_name(name)?;
        if !self.folder.exists() {
            return Err(SecretError::Unset(name.to_owned()));
        }
        let _lock = self.lock()?;
        let mut secrets = self.read()?;
        secrets.remove(name).ok_or_else(|| SecretError::Unset(name.to_owned()))?;
        self.replace(&secrets)
    }

    fn check_folder(&self) -> Result<(), SecretError> {
        match std::fs::metadata(&self.folder) {
            Ok(metadata) => Ok(private::check(&self.folder, &metadata, private::FOLDER_MODE)?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(io(&self.folder, error)),
        }
    }

    fn open_file(&self) -> Result<Option<File>, SecretError> {
        open_private(&self.folder.join(FILE))
    }

    fn read(&self) -> Result<BTreeMap<String, SecretString>, SecretError> {
        let Some(file) = self.open_file()? else { return Ok(BTreeMap::new()) };
        let path = self.folder.join(FILE);
        let mut bytes = Zeroizing::new(Vec::new());
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(|error| io(&path, error))?;
        // The parser's message is dropped, as it may quote a value.
        serde_json::from_slice(&bytes).map_err(|_| SecretError::Damaged(path.display().to_string()))
    }

    fn replace(&self, secrets: &BTreeMap<String, SecretString>) -> Result<(), SecretError> {
        let path = self.folder.join(FILE);
        let exposed: BTreeMap<&str, &str> =
            secrets.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect();
        let json = serde_json::to_vec(&exposed).map_err(|error| io(&path, error.into()))?;
        Ok(private::replace(&path, &Zeroizing::new(json))?)
    }

    /// Locks the file, and waits for another command that holds the lock, which takes milliseconds.
    fn lock(&self) -> Result<File, SecretError> {
        Ok(private::lock(&self.folder.join(LOCK))?)
    }
}

/// Opens a file of the data folder and checks that it is private; `None` if there is none.
pub fn open_private(path: &Path) -> Result<Option<File>, SecretError> {
    Ok(private::open(path)?)
}

impl From<NotPrivate> for SecretError {
    fn from(error: NotPrivate) -> Self {
        match error {
            NotPrivate::Open { path, mode, wanted } => Self::Open { path, mode, wanted },
            NotPrivate::Owner { path, .. } => Self::Owner(path),
            NotPrivate::Io { path, error } => Self::Io { path, error },
            NotPrivate::Link(ref path) | NotPrivate::Kind(ref path, _) | NotPrivate::Shared { ref path, .. } => {
                Self::Io { path: path.clone(), error: std::io::Error::other(error.to_string()) }
            }
        }
    }
}

/// Returns the error of a file of secrets that could not be read or written.
pub fn io(path: &Path, error: std::io::Error) -> SecretError {
    SecretError::Io { path: path.display().to_string(), error }
}

#[cfg(test)]
mod tests;
