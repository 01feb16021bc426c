//! The key that signs checkpoints. It lies in the user's state folder and never in a data folder: write access to the
//! ledger is not enough to sign.

use std::fmt;
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
        let failed = |error: private::NotPrivate| LedgerError::file("replace the key in", state_dir, error);
        private::folder(state_dir).map_err(failed)?;
        let _lock = private::lock(&state_dir.join("checkpoint.lock")).map_err(failed)?;
        let old = Self::open(state_dir)?;
        let path = state_dir.join(EARLIER);
        let keys = earlier(&path)?.into_iter().chain([old.public().clone()]);
        let text: String = keys.map(|key| format!("{key}\n")).collect();
        private::replace(&path, text.as_bytes()).map_err(failed)?;
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| LedgerError::file("replace the key in", state_dir, error))?;
        private::replace(&state_dir.join(FILE), &seed).map_err(failed)?;
        Self::open(state_dir)
    }

    /// Returns the public key.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        self.signer.public()
    }

    /// Returns the public keys of the user: the present one, and those that it replaced, oldest last; none if there
    /// never was one.
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
