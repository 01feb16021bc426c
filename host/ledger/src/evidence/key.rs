//! The key that signs checkpoints. It lies in the user's state folder and never in a data folder: who can write the
//! ledger alone cannot sign.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use portcullis_core::private;

use super::note::{NoteSigner, PublicKey};
use crate::LedgerError;
use crate::key::secret_file;

/// The file of the key, in the user's state folder: 32 random bytes, the private key of RFC 8032.
const FILE: &str = "checkpoint.key";

/// The file of the public keys that were replaced, one in each line.
const EARLIER: &str = "checkpoint.earlier";

/// The key that signs checkpoints.
pub struct CheckpointKey {
    signer: NoteSigner,
}

impl CheckpointKey {
    /// Reads the key from the user's state folder, or creates it (0600).
    ///
    /// # Errors
    /// [`LedgerError::File`] if the folder or the file is open to other users, or cannot be read or written.
    pub fn open(state_dir: &Path) -> Result<Self, LedgerError> {
        private::folder(state_dir).map_err(|error| LedgerError::file("use", state_dir, error))?;
        let seed = secret_file(state_dir, FILE, "sign with another key from now on")?;
        let refused = || LedgerError::file("use", &state_dir.join(FILE), "it is not a key");
        Ok(Self { signer: NoteSigner::of(&seed).ok_or_else(refused)? })
    }

    /// Replaces the key with a new one, and keeps the public part of the old one among those that are trusted. Brokers
    /// that run keep signing with the old key until they end.
    ///
    /// # Errors
    /// As for [`CheckpointKey::open`].
    pub fn rotate(state_dir: &Path) -> Result<Self, LedgerError> {
        let old = Self::open(state_dir)?;
        let path = state_dir.join(EARLIER);
        let failed = |error: std::io::Error| LedgerError::file("write", &path, error);
        let mut earlier =
            OpenOptions::new().append(true).create(true).mode(private::FILE_MODE).open(&path).map_err(failed)?;
        writeln!(earlier, "{}", old.public()).and_then(|()| earlier.sync_all()).map_err(failed)?;
        let path = state_dir.join(FILE);
        fs::remove_file(&path).map_err(|error| LedgerError::file("remove", &path, error))?;
        Self::open(state_dir)
    }

    /// Returns the public key.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        self.signer.public()
    }

    /// Returns the public keys of the user: the present one, and those that it replaced, oldest last; none if there never
    /// was one.
    ///
    /// # Errors
    /// As for [`CheckpointKey::open`], and if a line of the file of earlier keys is not a key.
    pub fn trusted(state_dir: &Path) -> Result<Vec<PublicKey>, LedgerError> {
        let mut keys = Vec::new();
        if state_dir.join(FILE).exists() {
            keys.push(Self::open(state_dir)?.public().clone());
        }
        keys.extend(earlier(&state_dir.join(EARLIER))?.into_iter().rev());
        Ok(keys)
    }

    pub(super) fn sign(&self, text: &str) -> String {
        self.signer.sign(text)
    }
}

fn earlier(path: &Path) -> Result<Vec<PublicKey>, LedgerError> {
    let file = private::open(path).map_err(|error| LedgerError::file("use", path, error))?;
    let Some(file) = file else { return Ok(Vec::new()) };
    let text = std::io::read_to_string(file).map_err(|error| LedgerError::file("read", path, error))?;
    let key = |(at, line): (usize, &str)| {
        line.parse().map_err(|error| LedgerError::file("use", path, format!("line {}: {error}", at + 1)))
    };
    text.lines().enumerate().map(key).collect()
}

impl fmt::Debug for CheckpointKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CheckpointKey").field(self.public()).finish()
    }
}
