//! The answer "always": it accepts a tool into the lock file, as `portcullis lock accept` does.

use std::path::PathBuf;
use std::sync::Arc;

use crate::digest::Digest;
use crate::item::Item;
use crate::lockfile::{Acceptance, LockError, Lockfile};

/// The word for this answer in messages, answers and the ledger.
pub(in crate::gate) const ALWAYS: &str = "always";

/// A tool that a question is about, and that need not be asked about any more once the lock file has it.
#[derive(Debug, Clone)]
pub(in crate::gate) struct AcceptableTool {
    /// The tool, as it was listed.
    pub(in crate::gate) item: Arc<Item>,
    /// The digest of what its source is.
    pub(in crate::gate) identity: Digest,
    /// The data folder, in which the lock file is.
    pub(in crate::gate) folder: PathBuf,
}

impl AcceptableTool {
    /// Reports whether a person has accepted the tool meanwhile.
    pub(in crate::gate) fn is_accepted(&self) -> bool {
        Lockfile::load(&self.folder).is_ok_and(|lock| lock.of(&self.item, self.identity) == Acceptance::Accepted)
    }

    /// Accepts the tool into the lock file.
    pub(super) async fn accept(self) -> Result<(), LockError> {
        let folder = self.folder.clone();
        let written = tokio::task::spawn_blocking(move || {
            Lockfile::change(&self.folder, |lock| lock.accept(&self.item, self.identity))
        });
        written.await.unwrap_or_else(|error| Err(LockError::Io { path: folder, error: std::io::Error::other(error) }))
    }
}
