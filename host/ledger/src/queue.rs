//! The queue to the writer's thread, and its limits.
//!
//! Appends wait for a place. Notes that find no place are lost and counted. Outcomes always have a place: each belongs
//! to an intent that was queued, so there are never more of them than calls.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::health::LedgerHealth;
use super::record::{Event, UnchainedRecord};
use super::work::{QUEUE, WorkQueue, WriteUnit};
use super::writer::SharedWriter;
use super::{Ledger, LedgerError};

/// The result that a waiting appender receives.
type Reply = Result<u64, LedgerError>;

/// The sending side of the queue. Dropping it ends the writer, and leaves the chain without an end.
pub(super) struct QueueSender {
    work: Arc<WorkQueue>,
    writer: Arc<SharedWriter>,
    appends: Arc<Semaphore>,
    notes: Arc<Semaphore>,
    /// The number of calls that have no outcome yet.
    open_calls: AtomicUsize,
    health: Arc<LedgerHealth>,
}

impl QueueSender {
    pub(super) fn new(work: Arc<WorkQueue>, writer: Arc<SharedWriter>, health: Arc<LedgerHealth>) -> Self {
        let room = || Arc::new(Semaphore::new(QUEUE));
        Self { work, writer, appends: room(), notes: room(), open_calls: AtomicUsize::new(0), health }
    }

    /// Queues a record whose caller waits for it, as soon as there is a place for it. Without a record, the answer
    /// comes when everything before it is on disk.
    pub(super) async fn append(&self, draft: Option<UnchainedRecord>) -> Result<oneshot::Receiver<Reply>, LedgerError> {
        let (item, answer) = self.awaited(draft).await?;
        self.work.push(item)?;
        Ok(answer)
    }

    /// Queues the intent of a call that waits for it. If it is the only open call, its thread writes what is queued and
    /// the intent: to wake another one, and to be woken by it, would cost as much as the write.
    pub(super) async fn awaited_intent(&self, draft: UnchainedRecord) -> Result<oneshot::Receiver<Reply>, LedgerError> {
        let (item, answer) = self.awaited(Some(draft)).await?;
        let is_alone = self.open_calls.load(Ordering::Relaxed) <= 1 && may_block();
        match is_alone.then(|| self.writer.hold()).flatten() {
            Some(writer) => writer.write(item),
            None => self.work.push(item)?,
        }
        Ok(answer)
    }

    /// Waits for a place, and returns the item of a record whose caller waits for it, with its answer.
    async fn awaited(
        &self,
        draft: Option<UnchainedRecord>,
    ) -> Result<(WriteUnit, oneshot::Receiver<Reply>), LedgerError> {
        let room = Arc::clone(&self.appends).acquire_owned().await.map_err(|_| LedgerError::Closed)?;
        let (reply, answer) = oneshot::channel();
        Ok((WriteUnit { draft, reply: Some(reply), is_kept: false, _room: Some(room) }, answer))
    }

    /// Queues the intent of a call that does not wait for it, as soon as there is a place for it. It is kept until it
    /// can be written.
    pub(super) async fn intent(&self, draft: UnchainedRecord) -> Result<(), LedgerError> {
        let room = Arc::clone(&self.appends).acquire_owned().await.map_err(|_| LedgerError::Closed)?;
        self.work.push(WriteUnit { is_kept: true, ..WriteUnit::of(draft, Some(room)) })
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
            .and_then(|draft| self.work.push(WriteUnit { is_kept: true, ..WriteUnit::of(draft, None) }));
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
    pub(super) fn new(ledger: Ledger, asked: Instant, answer: oneshot::Receiver<Reply>) -> Self {
        Self { ledger, asked, answer }
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

impl Drop for OutcomeSlot {
    fn drop(&mut self) {
        self.0.inner.queue.open_calls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OutcomeSlot {
    pub(super) fn new(ledger: Ledger) -> Self {
        ledger.inner.queue.open_calls.fetch_add(1, Ordering::Relaxed);
        Self(ledger)
    }

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
        Self { draft: Some(draft), reply: None, is_kept: false, _room: room }
    }
}

/// Reports whether this thread may wait for the disk while others of its runtime continue.
fn may_block() -> bool {
    let has_others =
        |runtime: Handle| runtime.runtime_flavor() == RuntimeFlavor::MultiThread && runtime.metrics().num_workers() > 1;
    Handle::try_current().is_ok_and(has_others)
}
