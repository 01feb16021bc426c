//! Gathers the items of the next transaction: everything that is waiting, and a little of what is about to come.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::{MAX_BATCH, WriteUnit, WriterMessage};

/// The time for which records that nobody waits for are held back for one that somebody waits for: one `fsync` then
/// serves both. A crash loses at most this much of them, and a call without its outcome reads `unknown`.
const NOTE_WAIT: Duration = Duration::from_millis(2);

/// The time for which records that callers wait for are held back for more, if the last transaction answered several:
/// their callers are about to return. A single caller never waits for others. Sharing a transaction halves the cost of
/// a record, and this wait is shorter than a write to the disk.
const BATCH_WAIT: Duration = Duration::from_micros(100);

/// Takes the items of the next transaction, and the reply channel of a stop request if one ends it.
pub(super) fn gather(
    first: WriterMessage,
    queue: &mut mpsc::UnboundedReceiver<WriterMessage>,
    batching: bool,
    clock: &tokio::runtime::Runtime,
) -> (Vec<WriteUnit>, Option<oneshot::Sender<()>>) {
    let mut items = Vec::new();
    let (mut waited_for, mut has_batched, mut notes_until) = (false, false, None);
    let mut next = Some(first);
    while let Some(work) = next {
        match work {
            WriterMessage::Item(item) => {
                waited_for |= item.reply.is_some();
                items.push(item);
            }
            WriterMessage::Stop(reply) => return (items, Some(reply)),
        }
        if items.len() >= MAX_BATCH {
            break;
        }
        next = queue.try_recv().ok();
        if next.is_none() && !waited_for {
            let until = *notes_until.get_or_insert_with(|| tokio::time::Instant::now() + NOTE_WAIT);
            next = clock.block_on(async { tokio::time::timeout_at(until, queue.recv()).await }).ok().flatten();
        } else if next.is_none() && batching && !std::mem::replace(&mut has_batched, true) {
            // The thread sleeps rather than waits for messages, so that senders need not wake it one after the other.
            std::thread::sleep(BATCH_WAIT);
            next = queue.try_recv().ok();
        }
    }
    (items, None)
}
