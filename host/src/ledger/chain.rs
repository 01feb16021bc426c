//! Which chains are being written: a lock file for each, held while its broker lives.
//!
//! The files stay, empty, when their brokers are gone. They are the witnesses of chains whose rows somebody removed.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::LedgerError;

/// The folder of lock files, in the data folder.
pub(super) const FOLDER: &str = "chains";

/// A chain of ours. Dropping it lets go.
#[derive(Debug)]
pub(super) struct Lock {
    chain: String,
    path: PathBuf,
    _held: File,
}

impl Lock {
    /// Begins a chain.
    pub(super) fn create(data_dir: &Path) -> Result<Self, LedgerError> {
        let chain = ulid::Ulid::generate().to_string();
        let path = path(data_dir, &chain);
        let fresh = path.with_extension("new");
        let failed = |error: &dyn std::fmt::Display| LedgerError::file("lock", &path, error);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh);
        let file = file.map_err(|error| failed(&error))?;
        // Locked before it gets its name, so that nobody ever sees it unlocked while we live.
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| failed(&error))?;
        fs::rename(&fresh, &path).map_err(|error| failed(&error))?;
        Ok(Self { chain, path, _held: file })
    }

    pub(super) fn chain(&self) -> &str {
        &self.chain
    }

    /// Lets go of a chain that never got a record.
    pub(super) fn abandon(self) {
        // If this fails, the chain reads as incomplete, which it is.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether a broker holds this chain at the moment.
pub(crate) fn is_live(data_dir: &Path, chain: &str) -> bool {
    match File::open(path(data_dir, chain)) {
        Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK),
        Err(_) => false,
    }
}

/// All chains that left a lock file.
pub(super) fn all(data_dir: &Path) -> Result<BTreeSet<String>, LedgerError> {
    let folder = data_dir.join(FOLDER);
    let failed = |error: io::Error| LedgerError::file("read", &folder, error);
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries.map_err(failed)?,
    };
    let mut chains = BTreeSet::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        if let Some(chain) = name.to_str().and_then(|name| name.strip_suffix(".lock")) {
            chains.insert(chain.to_owned());
        }
    }
    Ok(chains)
}

fn path(data_dir: &Path, chain: &str) -> PathBuf {
    data_dir.join(FOLDER).join(format!("{chain}.lock"))
}
