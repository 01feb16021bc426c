//! Secrets: values that sources are given and that stand in no configuration, no log and no message.
//!
//! They are kept in one file, readable by its owner alone, in the data folder. A value leaves this module only as a
//! [`SecretString`], which neither `Debug` nor `Display` shows.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretString};

use crate::private::{self, NotPrivate};

/// The file in the data folder.
const FILE: &str = "secrets.json";

/// Held while the file is replaced, so that two commands lose no secret of each other.
const LOCK: &str = "secrets.lock";

/// The longest name of a secret, in bytes: a source name, a `-` and the name of a variable fit in.
pub const MAX_NAME_BYTES: usize = 128;

/// The longest value, in bytes: keys and certificates are shorter, and Linux takes no longer variable.
pub const MAX_VALUE_BYTES: usize = 64 * 1024;

/// How many secrets there can be, which bounds the file.
pub const MAX_SECRETS: usize = 256;

/// What the file can come to: every byte of every value escaped as `\u00XX`.
const MAX_FILE_BYTES: u64 = (MAX_SECRETS * 6 * (MAX_VALUE_BYTES + MAX_NAME_BYTES)) as u64;

/// A value that is written down, or kept by `portcullis secret`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// As written.
    Plain(String),
    /// The name of a secret.
    Secret(String),
}

/// Why a secret cannot be kept or given. Holds no value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// Empty, over [`MAX_NAME_BYTES`], or not of ASCII letters, digits, `-`, `_` and `.`.
    #[error("secret name {0:?} is not 1 to {MAX_NAME_BYTES} ASCII letters, digits, `-`, `_` and `.`")]
    Name(String),
    /// Empty, over [`MAX_VALUE_BYTES`], or with a NUL.
    #[error("the value of secret {0:?} is empty, longer than {MAX_VALUE_BYTES} bytes, or has a NUL character in it")]
    Value(String),
    /// [`MAX_SECRETS`] are kept already.
    #[error("there are {MAX_SECRETS} secrets already: remove one with `portcullis secret remove NAME`")]
    TooMany,
    /// None of this name.
    #[error("secret {0:?} is not set: run `portcullis secret set {0}`")]
    Unset(String),
    /// Others may read it.
    #[error(
        "{path} is open to other users (mode {mode:o}): run `chmod {wanted:o} '{path}'`, and replace what they may have read"
    )]
    Open {
        /// The folder or file.
        path: String,
        /// What it has.
        mode: u32,
        /// What it should have.
        wanted: u32,
    },
    /// Belongs to somebody else.
    #[error("{0} belongs to another user: run `portcullis` as that user, or choose another `data-dir`")]
    Owner(String),
    /// Not what this version wrote.
    #[error("{0} is damaged: restore it, or remove it and set the secrets anew")]
    Damaged(String),
    /// A login that this version did not write, or whose key is gone.
    #[error("{0} is damaged: run `portcullis logout {1}`, then `portcullis login {1}`")]
    Login(String, String),
    /// The system said no.
    #[error("{path}: {error}")]
    Io {
        /// The folder or file.
        path: String,
        /// What it said.
        error: std::io::Error,
    },
}

/// Whether a secret may have this name.
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

/// The secrets of one data folder. Reads the file anew each time, so that a running broker sees what was set since.
#[derive(Debug, Clone)]
pub struct Secrets {
    folder: PathBuf,
}

impl Secrets {
    /// The secrets in this data folder, which need not exist yet. Nothing is created.
    ///
    /// # Errors
    /// If the folder or the file is open to other users, or belongs to one of them.
    pub fn open(data_dir: &Path) -> Result<Self, SecretError> {
        let secrets = Self { folder: data_dir.to_owned() };
        secrets.check_folder()?;
        secrets.open_file()?;
        Ok(secrets)
    }

    /// One secret.
    ///
    /// # Errors
    /// [`SecretError::Unset`] if there is none of this name, or a file that cannot be used.
    pub fn get(&self, name: &str) -> Result<SecretString, SecretError> {
        check_name(name)?;
        self.read()?.remove(name).ok_or_else(|| SecretError::Unset(name.to_owned()))
    }

    /// What a configured value stands for.
    ///
    /// # Errors
    /// As [`Secrets::get`]; none for a plain value.
    pub fn resolve(&self, value: &Value) -> Result<SecretString, SecretError> {
        match value {
            Value::Plain(text) => Ok(text.as_str().into()),
            Value::Secret(name) => self.get(name),
        }
    }

    /// The names, sorted.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub fn list(&self) -> Result<Vec<String>, SecretError> {
        Ok(self.read()?.into_keys().collect())
    }

    /// Keeps a value, in place of an older one of this name. Creates folder and file where they are missing.
    ///
    /// # Errors
    /// A name or value that is not possible, or a file that cannot be used.
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

    /// Forgets a secret.
    ///
    /// # Errors
    /// [`SecretError::Unset`] if there is none of this name, or a file that cannot be used.
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
        // What the parser says may quote a value.
        serde_json::from_slice(&bytes).map_err(|_| SecretError::Damaged(path.display().to_string()))
    }

    fn replace(&self, secrets: &BTreeMap<String, SecretString>) -> Result<(), SecretError> {
        let path = self.folder.join(FILE);
        let exposed: BTreeMap<&str, &str> =
            secrets.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect();
        let json = serde_json::to_vec(&exposed).map_err(|error| io(&path, error.into()))?;
        Ok(private::replace(&path, &Zeroizing::new(json))?)
    }

    /// Waits for another command that holds it, which is a matter of milliseconds.
    fn lock(&self) -> Result<File, SecretError> {
        Ok(private::lock(&self.folder.join(LOCK))?)
    }
}

/// A file of the data folder, opened and found private; None if there is none.
pub(crate) fn open_private(path: &Path) -> Result<Option<File>, SecretError> {
    Ok(private::open(path)?)
}

impl From<NotPrivate> for SecretError {
    fn from(error: NotPrivate) -> Self {
        match error {
            NotPrivate::Open { path, mode, wanted } => Self::Open { path, mode, wanted },
            NotPrivate::Owner { path, .. } => Self::Owner(path),
            NotPrivate::Io { path, error } => Self::Io { path, error },
            NotPrivate::Link(ref path) | NotPrivate::Kind(ref path, _) => {
                Self::Io { path: path.clone(), error: std::io::Error::other(error.to_string()) }
            }
        }
    }
}

pub(crate) fn io(path: &Path, error: std::io::Error) -> SecretError {
    SecretError::Io { path: path.display().to_string(), error }
}

#[cfg(test)]
mod tests;
