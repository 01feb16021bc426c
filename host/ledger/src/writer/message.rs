//! The messages to the writer, and the units that it is asked to write.

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::LedgerError;
use crate::grant::{ApprovalGrant, GrantUse};
use crate::record::UnchainedRecord;

/// A message to the writer.
#[expect(clippy::large_enum_variant, reason = "all but the last are items, and a box for each would cost more")]
pub(crate) enum WriterMessage {
    /// Something to write.
    Item(WriteUnit),
    /// A request to stop, answered when the chain is released.
    Stop(oneshot::Sender<()>),
}

/// A unit of work: all of it is written, or none of it.
pub(crate) struct WriteUnit {
    pub(crate) draft: Option<UnchainedRecord>,
    pub(crate) effect: LinkedChange,
    /// The channel to which the result is sent, or `None` if nobody waits for it.
    pub(crate) reply: Option<oneshot::Sender<Result<u64, LedgerError>>>,
    /// True if the record is the outcome of a call, which is kept until it can be written.
    pub(crate) outcome: bool,
    /// The item's place in the queue, released when the item is written or lost.
    pub(crate) _room: Option<OwnedSemaphorePermit>,
}

/// A change that is written together with a record.
pub(crate) enum LinkedChange {
    None,
    GrantUse(GrantUse),
    Add(Box<ApprovalGrant>),
    Advance {
        sink: String,
        seq: u64,
    },
    /// Writes the record only if this chain is not sealed yet.
    Seal(String),
}
