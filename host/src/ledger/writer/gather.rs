//! What goes into the next transaction: everything that waits, and a little of what is about to come.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::{Item, MAX_BATCH, Work};

/// How long records that nobody waits for may wait themselves, for one that somebody does: then one `fsync` serves both. A
/// crash loses at most this much of them, and a call without its outcome reads `unknown`.
const LINGER: Duration = Duration::from_millis(2);

/// How long records that somebody waits for wait for more, where the last transaction answered several: their callers are
/// about to come back. A caller alone never waits for others. Sharing a transaction halves what a record costs, and this is
/// less than the disk takes.
const COMPANY: Duration = Duration::from_micros(100);

/// Takes what goes into the next transaction, and whether it is the last one.
pub(super) fn gather(
    first: Work,
    queue: &mut mpsc::UnboundedReceiver<Work>,
    in_company: bool,
    clock: &tokio::runtime::Runtime,
) -> (Vec<Item>, Option<oneshot::Sender<()>>) {
    let mut items = Vec::new();
    let (mut waited_for, mut rested, mut patience) = (false, false, None);
    let mut next = Some(first);
    while let Some(work) = next {
        match work {
            Work::Item(item) => {
                waited_for |= item.reply.is_some();
                items.push(item);
            }
            Work::Stop(reply) => return (items, Some(reply)),
        }
        if items.len() >= MAX_BATCH {
            break;
        }
        next = queue.try_recv().ok();
        if next.is_none() && !waited_for {
            let until = *patience.get_or_insert_with(|| tokio::time::Instant::now() + LINGER);
            next = clock.block_on(async { tokio::time::timeout_at(until, queue.recv()).await }).ok().flatten();
        } else if next.is_none() && in_company && !std::mem::replace(&mut rested, true) {
            // Asleep, so that those who come need not wake this thread one after the other.
            std::thread::sleep(COMPANY);
            next = queue.try_recv().ok();
        }
    }
    (items, None)
}
