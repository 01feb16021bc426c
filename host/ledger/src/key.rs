//! Keys in files: the one for fingerprints of payloads, and those of others.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use portcullis_core::private;

use super::LedgerError;
use super::files::create;

/// The length of a key in bytes.
const KEY_BYTES: usize = 32;

/// The largest part of the file that is read, in bytes: enough for the error about a wrong file to name its size.
const MAX_BYTES: u64 = 1 << 20;

/// The key from `<data-dir>/ledger.key`.
pub(super) struct FingerprintKey([u8; KEY_BYTES]);

impl FingerprintKey {
    /// Reads the key, or creates one. Brokers that start at the same time get the same key.
    pub(super) fn open(data_dir: &Path) -> Result<Self, LedgerError> {
        Ok(Self(secret_file(data_dir, "ledger.key", "lose the link between old and new fingerprints")?))
    }

    pub(super) fn fingerprint(&self, bytes: &[u8]) -> String {
        format!("blake3:{}", blake3::keyed_hash(&self.0, bytes).to_hex())
    }
}

/// Reads the 32 random bytes of a private file, or creates it. Programs that do so at the same time get the same bytes.
/// `loss` describes the cost of removing the file.
pub(super) fn secret_file(folder: &Path, name: &str, loss: &str) -> Result<[u8; KEY_BYTES], LedgerError> {
    let path = folder.join(name);
    if fs::symlink_metadata(&path).is_err() {
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| LedgerError::file("create", &path, error))?;
        create(&path, &bytes)?;
    }
    let file = private::open(&path).map_err(|error| LedgerError::file("use", &path, error))?;
    let file = file.ok_or_else(|| LedgerError::file("read", &path, "it was removed just now"))?;
    let mut bytes = Vec::with_capacity(KEY_BYTES);
    let read = file.take(MAX_BYTES).read_to_end(&mut bytes);
    read.map_err(|error| LedgerError::file("read", &path, error))?;
    <[u8; KEY_BYTES]>::try_from(bytes).map_err(|bytes| {
        let cause =
            format!("it holds {} bytes instead of {KEY_BYTES}; restore it, or remove it and {loss}", bytes.len());
        LedgerError::file("use", &path, cause)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_of_the_ledger_that_others_may_read_or_that_is_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger.key");
        let refused = || FingerprintKey::open(dir.path()).map(drop).unwrap_err().to_string();
        FingerprintKey::open(dir.path()).map(drop).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(refused().contains("chmod 600"), "{}", refused());
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(4242), None).unwrap();
            assert!(refused().contains("another user (uid 4242)"), "{}", refused());
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        }
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert!(refused().contains("symbolic link"), "{}", refused());
    }
}
