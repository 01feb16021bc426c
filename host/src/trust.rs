//! Which configurations the user trusts.
//!
//! A configuration starts programs. One that merely lies in a folder counts if the user has looked at it: its path and the digest
//! of its bytes are kept in the user's state folder, which no source is given, with what it did then, so that a change can be shown
//! as a difference.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::private;
pub use crate::private::NotPrivate;
use crate::secret::{SecretError, lock_private, replace_private};

/// The file in the state folder.
const FILE: &str = "trusted.json";

/// Held while the file is replaced, so that two commands lose nothing of each other.
const LOCK: &str = "trusted.lock";

/// Bytes of the file: a thousand configurations of some hundred lines.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Why it cannot be said or kept what is trusted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrustError {
    /// The state folder or the file in it is not this user's alone.
    #[error(transparent)]
    Private(#[from] NotPrivate),
    /// Not what this version wrote.
    #[error("{0} is damaged: remove it with `rm '{0}'`, and trust again what you use")]
    Damaged(String),
    /// It would be longer than is read.
    #[error("{0} is full: run `portcullis trust --list`, and `portcullis trust --revoke FILE` for what you do not use")]
    Full(String),
    /// The system refuses it.
    #[error(transparent)]
    System(#[from] SecretError),
}

/// A configuration as the user trusted it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trusted {
    /// The file, for people: what is no UTF-8 in its name is replaced.
    pub path: String,
    /// Digest of its bytes.
    pub digest: Digest,
    /// When that was: RFC 3339.
    pub at: String,
    /// What it started, reached, read and wrote then: [`Config::effects`](crate::config::Config::effects).
    pub effects: Vec<String>,
}

/// The configurations by the digest of their path, which may be no text.
type All = BTreeMap<String, Trusted>;

/// What one user trusts.
#[derive(Debug, Clone)]
pub struct Trust {
    state_dir: PathBuf,
}

impl Trust {
    /// What is kept in a state folder, which need not exist yet. Opens nothing.
    #[must_use]
    pub fn new(state_dir: &Path) -> Self {
        Self { state_dir: state_dir.to_owned() }
    }

    /// What the user has trusted of a file. `file` is absolute, with the real name of its folder.
    ///
    /// # Errors
    /// If the state folder cannot be used.
    pub fn of(&self, file: &Path) -> Result<Option<Trusted>, TrustError> {
        Ok(self.read()?.remove(&key(file)))
    }

    /// All that the user has trusted, by path.
    ///
    /// # Errors
    /// If the state folder cannot be used.
    pub fn list(&self) -> Result<Vec<Trusted>, TrustError> {
        let mut all: Vec<_> = self.read()?.into_values().collect();
        all.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(all)
    }

    /// Trusts a file with these bytes from now on, and no longer with others.
    ///
    /// # Errors
    /// If the state folder cannot be used.
    pub fn keep(&self, file: &Path, digest: Digest, effects: Vec<String>) -> Result<(), TrustError> {
        let at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let trusted = Trusted { path: file.to_string_lossy().into_owned(), digest, at, effects };
        self.change(|all| all.insert(key(file), trusted)).map(drop)
    }

    /// Trusts a file no longer. Says whether it was trusted.
    ///
    /// # Errors
    /// If the state folder cannot be used.
    pub fn revoke(&self, file: &Path) -> Result<bool, TrustError> {
        Ok(self.change(|all| all.remove(&key(file)))?.is_some())
    }

    fn change<T>(&self, change: impl FnOnce(&mut All) -> T) -> Result<T, TrustError> {
        private::folder(&self.state_dir)?;
        let _lock = lock_private(&self.state_dir.join(LOCK))?;
        let mut all = self.read()?;
        let changed = change(&mut all);
        let path = self.path();
        let bytes = serde_json::to_vec(&all).map_err(|_| TrustError::Damaged(shown(&path)))?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(TrustError::Full(shown(&path)));
        }
        replace_private(&path, &bytes)?;
        Ok(changed)
    }

    fn read(&self) -> Result<All, TrustError> {
        if !private::check_folder(&self.state_dir)? {
            return Ok(All::new());
        }
        let path = self.path();
        let Some(file) = private::open(&path)? else { return Ok(All::new()) };
        let mut bytes = Vec::new();
        let read = file.take(MAX_FILE_BYTES).read_to_end(&mut bytes);
        read.map_err(|error| NotPrivate::Io { path: shown(&path), error })?;
        serde_json::from_slice(&bytes).map_err(|_| TrustError::Damaged(shown(&path)))
    }

    fn path(&self) -> PathBuf {
        self.state_dir.join(FILE)
    }
}

fn key(file: &Path) -> String {
    Digest::of(file.as_os_str().as_bytes()).to_string()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_is_trusted_is_a_path_with_its_bytes_until_it_is_revoked() {
        let dir = tempfile::tempdir().unwrap();
        let trust = Trust::new(&dir.path().join("state"));
        let (file, one, other) = (Path::new("/p/portcullis.toml"), Digest::of(b"one"), Digest::of(b"other"));
        assert!(trust.of(file).unwrap().is_none() && !dir.path().join("state").exists(), "looking makes nothing");
        trust.keep(file, one, vec!["source a: starts b".to_owned()]).unwrap();
        assert_eq!(trust.of(file).unwrap().unwrap().digest, one);
        assert!(trust.of(Path::new("/q/portcullis.toml")).unwrap().is_none(), "another file with the same bytes");
        trust.keep(file, other, Vec::new()).unwrap();
        let [kept] = trust.list().unwrap().try_into().unwrap();
        assert_eq!((kept.digest, kept.path.as_str()), (other, "/p/portcullis.toml"));
        assert!(trust.revoke(file).unwrap() && !trust.revoke(file).unwrap());
        assert!(trust.list().unwrap().is_empty());
    }

    #[test]
    fn a_state_folder_that_others_could_write_says_nothing_of_trust() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let trust = Trust::new(&state);
        trust.keep(Path::new("/p/portcullis.toml"), Digest::of(b""), Vec::new()).unwrap();
        fs::set_permissions(&state, Permissions::from_mode(0o770)).unwrap();
        let error = trust.list().unwrap_err().to_string();
        assert!(error.contains(&format!("chmod 700 '{}'", state.display())), "{error}");
        fs::set_permissions(&state, Permissions::from_mode(0o700)).unwrap();
        fs::write(state.join(FILE), "{").unwrap();
        let error = trust.list().unwrap_err().to_string();
        assert!(error.contains("is damaged") && error.contains("rm "), "{error}");
    }
}
