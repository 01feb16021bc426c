//! The answer "always": it accepts a tool into the lock file, as `portcullis lock accept` does.

use std::sync::Arc;

use crate::digest::Digest;
use crate::item::Item;
use crate::lock_reader::LockReader;
use crate::lockfile::{Acceptance, LockError};

/// A tool that a question is about, and that need not be asked about any more once the lock file has it.
#[derive(Debug, Clone)]
pub(in crate::gate) struct AcceptableTool {
    /// The tool, as it was listed.
    pub(in crate::gate) item: Arc<Item>,
    /// The digest of what its source is.
    pub(in crate::gate) identity: Digest,
    /// The lock file.
    pub(in crate::gate) lock: Arc<LockReader>,
}

impl AcceptableTool {
    /// Reports whether a person has accepted the tool meanwhile.
    pub(in crate::gate) async fn is_accepted(&self) -> bool {
        let lock = self.lock.current().await;
        lock.is_ok_and(|lock| lock.of(&self.item, self.identity) == Acceptance::Accepted)
    }

    /// Accepts the tool into the lock file.
    pub(super) async fn accept(self) -> Result<(), LockError> {
        let Self { item, identity, lock } = self;
        lock.change(move |lock| lock.accept(&item, identity)).await
    }
}
