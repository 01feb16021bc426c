//! The work of the writer's thread: the requests to write, and how it is woken.
//!
//! A record that somebody waits for wakes the thread. One that nobody waits for does not, while the thread is about to
//! look again anyway: so the outcome of a call is written together with the next intent, and costs no wake-up.

use std::mem;
use std::sync::{Arc, Condvar, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use portcullis_core::sync::Mutex;
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};

use super::LedgerError;
use super::record::UnchainedRecord;

/// The largest number of appends, and of notes, that may wait for the writer. At this depth the disk is minutes behind.
pub(super) const QUEUE: usize = 4096;

/// The largest number of items that are written together.
pub(super) const MAX_BATCH: usize = 512;

/// The time for which records that nobody waits for are held back for one that somebody waits for: one wait for the
/// disk then serves both. A crash loses at most this much of them, and a call without its outcome reads `unknown`.
const NOTE_WAIT: Duration = Duration::from_millis(5);

/// The time for which records that callers wait for are held back for more, if the last batch answered several: their
/// callers are about to return. A single caller never waits for others. Sharing a write halves the cost of a record,
/// and this wait is shorter than a write to the disk.
const BATCH_WAIT: Duration = Duration::from_micros(100);

/// A unit of work for the writer.
pub(super) struct WriteUnit {
    /// The record, or `None` if the caller only waits for earlier items.
    pub(super) draft: Option<UnchainedRecord>,
    /// The channel to which the result is sent, or `None` if nobody waits for it.
    pub(super) reply: Option<oneshot::Sender<Result<u64, LedgerError>>>,
    /// True if the record is kept until it can be written: the outcome of a call, or the intent of one that did not
    /// wait for it.
    pub(super) is_kept: bool,
    /// The item's place in the queue, released when the item is written or lost.
    pub(super) _room: Option<OwnedSemaphorePermit>,
}

/// The items that wait for the writer's thread.
pub(super) struct WorkQueue {
    state: Mutex<State>,
    arrived: Condvar,
    /// True when the writer has released the chain.
    released: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    items: Vec<WriteUnit>,
    /// The number of items that somebody waits for.
    awaited: usize,
    /// True if the last batch answered several callers, which are about to return.
    is_batching: bool,
    sleep: Sleep,
    /// True if the thread must check again what is due, although there is nothing to write.
    is_nudged: bool,
    ending: Option<WriterEnd>,
}

/// The sleep state of the writer's thread.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Sleep {
    /// It does not, or was woken.
    #[default]
    Awake,
    /// It sleeps for a short time.
    Short,
    /// It sleeps until it is woken.
    Long,
}

/// The reason why the writer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriterEnd {
    /// The ledger was closed: the chain gets its end.
    Closed,
    /// The ledger was dropped: the chain stays without an end, as after a crash.
    Dropped,
}

/// The next action of the writer.
pub(super) enum WriterStep {
    /// It writes these items; none of them if it is time to try again what could not be written.
    Write(Vec<WriteUnit>),
    /// It ends, after these items.
    End(Vec<WriteUnit>, WriterEnd),
}

impl WorkQueue {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), arrived: Condvar::new(), released: watch::Sender::new(false) })
    }

    /// Queues an item.
    ///
    /// # Errors
    /// [`LedgerError::Closed`] if the writer ends or has ended.
    pub(super) fn push(&self, item: WriteUnit) -> Result<(), LedgerError> {
        let mut state = self.state.lock();
        if state.ending.is_some() {
            return Err(LedgerError::Closed);
        }
        let is_awaited = item.reply.is_some();
        state.awaited += usize::from(is_awaited);
        state.items.push(item);
        let wakes = match state.sleep {
            Sleep::Awake => false,
            Sleep::Short => is_awaited,
            Sleep::Long => true,
        };
        if wakes {
            self.wake(state);
        }
        Ok(())
    }

    /// Ends the work, and waits until the writer has released the chain.
    pub(super) async fn stop(&self) {
        self.end(WriterEnd::Closed);
        // The sender lives as long as this.
        let _ = self.released.subscribe().wait_for(|released| *released).await;
    }

    /// Ends the work without an end of the chain.
    pub(super) fn abandon(&self) {
        self.end(WriterEnd::Dropped);
    }

    /// Reports whether the end of the work was asked for.
    pub(super) fn is_ending(&self) -> bool {
        self.state.lock().ending.is_some()
    }

    /// Reports that the writer has released the chain. The callers of remaining items get the error that the ledger is
    /// closed.
    pub(super) fn release(&self) {
        let mut state = self.state.lock();
        // It is set already, unless the writer panicked.
        state.ending.get_or_insert(WriterEnd::Dropped);
        let items = mem::take(&mut state.items);
        drop(state);
        drop(items);
        self.released.send_replace(true);
    }

    /// Waits for work. With `pause`, waits no longer than that.
    pub(super) fn wait(&self, pause: Option<Duration>) {
        let begun = Instant::now();
        let mut state = self.state.lock();
        // Notes are expected at first: calls are ending whose intents were just written.
        let mut notes_until = Some(begun + NOTE_WAIT);
        while state.awaited == 0 && state.ending.is_none() && !state.is_nudged {
            let now = Instant::now();
            match (notes_until, pause) {
                (Some(until), _) if until <= now && !state.items.is_empty() => break,
                (Some(until), _) if until <= now => notes_until = None,
                (Some(until), _) => state = self.sleep(state, Sleep::Short, Some(until - now)),
                (None, _) if !state.items.is_empty() => notes_until = Some(now + NOTE_WAIT),
                (None, Some(pause)) if now - begun >= pause => break,
                (None, Some(pause)) => state = self.sleep(state, Sleep::Long, Some(pause - (now - begun))),
                (None, None) => state = self.sleep(state, Sleep::Long, None),
            }
        }
        state.is_nudged = false;
        if state.is_batching && state.awaited > 0 && state.items.len() < MAX_BATCH && state.ending.is_none() {
            drop(state);
            // The thread sleeps rather than waits for items, so that callers need not wake it.
            std::thread::sleep(BATCH_WAIT);
        }
    }

    /// Takes the queued items. The caller holds the writer, so that items are written in the order of the queue.
    pub(super) fn take(&self) -> WriterStep {
        let mut state = self.state.lock();
        let count = state.items.len().min(MAX_BATCH);
        let items: Vec<_> = state.items.drain(..count).collect();
        let answered = items.iter().filter(|item| item.reply.is_some()).count();
        state.awaited -= answered;
        state.is_batching = answered > 1;
        match state.ending {
            Some(ending) if state.items.is_empty() => WriterStep::End(items, ending),
            _ => WriterStep::Write(items),
        }
    }

    /// Takes the queued items, unless somebody waits for some of them, or is about to. The caller holds the writer.
    pub(super) fn take_if_quiet(&self) -> Option<Vec<WriteUnit>> {
        let mut state = self.state.lock();
        let is_quiet = state.awaited == 0 && !state.is_batching && state.ending.is_none();
        (is_quiet && state.items.len() < MAX_BATCH).then(|| mem::take(&mut state.items))
    }

    /// Makes the thread check again what is due.
    pub(super) fn nudge(&self) {
        let mut state = self.state.lock();
        state.is_nudged = true;
        self.wake(state);
    }

    fn end(&self, ending: WriterEnd) {
        let mut state = self.state.lock();
        state.ending.get_or_insert(ending);
        self.wake(state);
    }

    fn wake(&self, mut state: MutexGuard<'_, State>) {
        state.sleep = Sleep::Awake;
        drop(state);
        self.arrived.notify_one();
    }

    fn sleep<'a>(&self, mut state: MutexGuard<'a, State>, how: Sleep, most: Option<Duration>) -> MutexGuard<'a, State> {
        state.sleep = how;
        let mut state = match most {
            Some(most) => self.arrived.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0,
            None => self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
        state.sleep = Sleep::Awake;
        state
    }
}
