//! The queue to the writer's thread, and its limits.
//!
//! Appends wait for a place. Notes that find no place are lost and counted. Outcomes always have a place: each belongs
//! to an intent that was queued, so there are never more of them than calls.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::health::LedgerHealth;
use super::record::{Event, UnchainedRecord};
use super::work::{WorkQueue, WriteUnit};
use super::{Ledger, LedgerError};

/// The largest number of appends, and of notes, that may wait for the writer. At this depth the disk is minutes behind.
pub(super) const QUEUE: usize = 4096;

/// The result that a waiting appender receives.
type Reply = Result<u64, LedgerError>;

/// The sending side of the queue. Dropping it ends the writer, and leaves the chain without an end.
pub(super) struct QueueSender {
    work: Arc<WorkQueue>,
    appends: Arc<Semaphore>,
    notes: Arc<Semaphore>,
    health: Arc<LedgerHealth>,
}

impl QueueSender {
    pub(super) fn new(work: Arc<WorkQueue>, health: Arc<LedgerHealth>) -> Self {
        let room = || Arc::new(Semaphore::new(QUEUE));
        Self { work, appends: room(), notes: room(), health }
    }

    /// Queues a record whose caller waits for it, as soon as there is a place for it. Without a record, the answer comes
    /// when everything before it is on disk.
    pub(super) async fn append(&self, draft: Option<UnchainedRecord>) -> Result<oneshot::Receiver<Reply>, LedgerError> {
        let room = Arc::clone(&self.appends).acquire_owned().await.map_err(|_| LedgerError::Closed)?;
        let (reply, answer) = oneshot::channel();
        self.work.push(WriteUnit { draft, reply: Some(reply), outcome: false, _room: Some(room) })?;
        Ok(answer)
    }

    /// Queues a record that nobody waits for, if there is a place for it. A record that is lost is counted.
    pub(super) fn note(&self, event: Event, config: &Arc<str>) {
        let kind = event.kind.as_str();
        let queued = event.draft(Some(config)).and_then(|draft| {
            let room = Arc::clone(&self.notes).try_acquire_owned().map_err(|_| LedgerError::Overloaded)?;
            self.work.push(WriteUnit::of(draft, Some(room)))
        });
        if let Err(error) = queued {
            self.health.count_lost(kind, &error);
        }
    }

    /// Queues the outcome of an intent that was queued before.
    fn outcome(&self, event: Event, config: &Arc<str>) {
        let kind = event.kind.as_str();
        let queued = event
            .draft(Some(config))
            .and_then(|draft| self.work.push(WriteUnit { outcome: true, ..WriteUnit::of(draft, None) }));
        if let Err(error) = queued {
            self.health.count_lost(kind, &error);
        }
    }

    /// Asks the writer to stop, and waits until it has released the chain.
    pub(super) async fn stop(&self) {
        self.work.stop().await;
    }
}

impl Drop for QueueSender {
    fn drop(&mut self) {
        self.work.abandon();
    }
}

/// An intent that is queued and not yet known to be durable.
#[derive(Debug)]
#[must_use = "a source may see a call only when its intent is durable"]
pub struct PendingIntent {
    ledger: Ledger,
    asked: Instant,
    answer: oneshot::Receiver<Reply>,
}

impl PendingIntent {
    pub(super) fn new(ledger: Ledger, asked: Instant, answer: oneshot::Receiver<Reply>) -> (Self, OutcomeSlot) {
        let slot = OutcomeSlot(ledger.clone());
        (Self { ledger, asked, answer }, slot)
    }

    /// Waits until the intent is on disk and returns its number. Only then may the source see any byte of the call.
    ///
    /// Cancellation: the intent may be durable. The caller that drops this future must record an outcome.
    ///
    /// # Errors
    /// As for [`Ledger::append`].
    pub async fn durable(self) -> Result<u64, LedgerError> {
        let answer = self.answer.await.unwrap_or(Err(LedgerError::Closed));
        self.ledger.inner.appended.record(self.asked.elapsed());
        answer
    }
}

/// The reserved place in the writer's queue for the one outcome of an intent.
pub struct OutcomeSlot(Ledger);

impl OutcomeSlot {
    /// Records how the call ended, in order with all other records, without waiting. It is never refused for lack of
    /// space, and is kept until it can be written. Needs no runtime, so it can be called from `Drop`.
    pub fn record(self, event: Event) {
        self.0.inner.queue.outcome(event, &self.0.config);
    }
}

impl fmt::Debug for OutcomeSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OutcomeSlot")
    }
}

impl WriteUnit {
    /// Creates the item for a record that nobody waits for.
    pub(super) fn of(draft: UnchainedRecord, room: Option<OwnedSemaphorePermit>) -> Self {
        Self { draft: Some(draft), reply: None, outcome: false, _room: room }
    }
}
