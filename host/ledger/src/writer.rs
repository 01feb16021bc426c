//! The writer: everything that is waiting is appended at once, with one wait for the disk. A separate thread writes for
//! all callers together; a lone call writes on the thread that it runs on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use portcullis_core::call::SessionId;
use serde_json::json;
use tokio::sync::watch;

use super::chain::{ChainLock, ChainTip};
use super::evidence::CheckpointWriter;
use super::health::LedgerHealth;
use super::record::{ChainedRecord, Event, EventKind, UnchainedRecord, hash};
use super::run_numbers::RunNumbers;
use super::seal::ChainSeal;
use super::storage::ChainWriter;
use super::work::{MAX_BATCH, QUEUE, WorkQueue, WriteUnit, WriterEnd, WriterStep};
use super::{ChainStart, LedgerError};

/// The parameters of the writer.
pub(super) struct WriterStart {
    pub(super) storage: Box<dyn ChainWriter>,
    pub(super) lock: ChainLock,
    pub(super) checkpoints: CheckpointWriter,
    pub(super) health: Arc<LedgerHealth>,
    pub(super) work: Arc<WorkQueue>,
    /// The pause before a failed write is retried if no new record arrives.
    pub(super) retry: Duration,
    /// The longest write that is quick.
    pub(super) quick: Duration,
    /// The chains of brokers that are gone, which this one seals.
    pub(super) seals: Vec<ChainSeal>,
}

/// Writes the first records and starts the writer's thread. Returns the writer and a receiver of the last durable
/// record's number.
pub(super) fn start(
    WriterStart { storage, lock, checkpoints, health, work, retry, quick, seals }: WriterStart,
    started: &ChainStart,
) -> Result<(Arc<SharedWriter>, watch::Receiver<u64>), LedgerError> {
    let (published, tip) = watch::channel(0);
    let path = lock.path().to_owned();
    let mut writer = Writer {
        storage,
        lock,
        checkpoints,
        retry,
        quick,
        tip: ChainTip::default(),
        is_quick: false,
        health,
        cause: None,
        outstanding: Vec::new(),
        published,
        runs: RunNumbers::default(),
    };
    if let Err(error) = writer.begin(started, seals) {
        if writer.tip == ChainTip::default() {
            writer.storage.abandon();
            writer.lock.abandon();
        }
        return Err(error);
    }
    let shared = Arc::new(SharedWriter { writer: Mutex::new(Some(writer)), work });
    let thread = Arc::clone(&shared);
    std::thread::Builder::new()
        .name("ledger".into())
        .spawn(move || thread.run())
        .map_err(|error| LedgerError::file("start a thread for", &path, error))?;
    Ok((shared, tip))
}

/// The writer, and the work that it is given.
pub(super) struct SharedWriter {
    /// `None` once the chain has its end. A writer that panicked is never used again.
    writer: Mutex<Option<Writer>>,
    work: Arc<WorkQueue>,
}

struct Writer {
    storage: Box<dyn ChainWriter>,
    lock: ChainLock,
    checkpoints: CheckpointWriter,
    retry: Duration,
    quick: Duration,
    /// The last record that is durable.
    tip: ChainTip,
    /// True if the last write was quick.
    is_quick: bool,
    health: Arc<LedgerHealth>,
    /// The reason why the last records could not be written; `None` while writing succeeds.
    cause: Option<LedgerError>,
    /// Outcomes, and intents that nobody waited for, which could not be written yet, in their order. While the ledger
    /// cannot be written, the gate lets no call through, so these belong to calls that were in flight, or whose callers
    /// went away while their intents were being written.
    outstanding: Vec<WriteUnit>,
    published: watch::Sender<u64>,
    runs: RunNumbers,
}

/// Drops the writer, which releases its chain, and wakes those waiting for that, also when the thread panics. A ledger
/// whose writer panicked cannot be written any more, and says so.
struct Release<'a>(&'a SharedWriter);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        let writer = self.0.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer.filter(|_| !self.0.work.is_ending()) {
            writer.health.failed(&LedgerError::Closed, 0);
        }
        self.0.work.release();
    }
}

impl SharedWriter {
    /// Writes queued items until the ledger ends: the body of the writer's thread.
    fn run(&self) {
        let _release = Release(self);
        let mut pause = None;
        let ending = loop {
            self.work.wait(pause);
            let Ok(mut writer) = self.writer.lock() else { return };
            let Some(writer) = writer.as_mut() else { return };
            let (items, ending) = match self.work.take() {
                WriterStep::Write(items) => (items, None),
                WriterStep::End(items, ending) => (items, Some(ending)),
            };
            writer.commit_and_answer(items);
            writer.checkpoints.sign_if_due();
            if let Some(ending) = ending {
                break ending;
            }
            pause = writer.pause();
        };
        if ending == WriterEnd::Closed
            && let Some(writer) = self.writer.lock().ok().and_then(|mut writer| writer.take())
        {
            writer.end();
        }
    }

    /// Returns the writer, for a caller that writes on its own thread; `None` if its record must be queued: somebody
    /// else writes or waits, or writing is slow or fails at present.
    pub(super) fn hold(&self) -> Option<HeldWriter<'_>> {
        let writer = self.writer.try_lock().ok()?;
        let is_ready = writer.as_ref().is_some_and(|writer| writer.is_quick && writer.cause.is_none());
        is_ready.then_some(())?;
        let items = self.work.take_if_quiet()?;
        Some(HeldWriter { writer, items, work: &self.work })
    }
}

/// The writer, held by a caller, and the items queued before.
pub(super) struct HeldWriter<'a> {
    writer: MutexGuard<'a, Option<Writer>>,
    items: Vec<WriteUnit>,
    work: &'a WorkQueue,
}

impl HeldWriter<'_> {
    /// Writes the queued items, and then another item, and answers all. Blocks for about as long as the last write
    /// took.
    pub(super) fn write(mut self, item: WriteUnit) {
        let Some(writer) = self.writer.as_mut() else { return };
        self.items.push(item);
        let had_pause = writer.pause().is_some();
        writer.commit_and_answer(self.items);
        // The thread sees to what is due later.
        if writer.pause().is_some_and(|pause| !had_pause || pause.is_zero()) {
            self.work.nudge();
        }
    }
}

impl Writer {
    /// Writes the first record of the chain, and seals the chains of brokers that are gone.
    fn begin(&mut self, started: &ChainStart, seals: Vec<ChainSeal>) -> Result<(), LedgerError> {
        let key = started.key.as_ref().map(|key| key.public().to_string());
        let body = json!({
            "version": started.version,
            "pid": std::process::id(),
            "config": started.config,
            "checkpoint_key": key,
        });
        let config = started.config.to_string().into();
        let mut items = vec![WriteUnit::of(Event::new(EventKind::BrokerStarted, body).draft(Some(&config))?, None)];
        for seal in &seals {
            if seal.is_dead {
                tracing::warn!(chain = seal.chain, "a broker died without ending its chain in the ledger; sealing it");
            }
            items.push(WriteUnit::of(seal.event().draft(None)?, None));
        }
        for batch in items.chunks(MAX_BATCH) {
            self.commit(batch)?;
        }
        seals.into_iter().for_each(ChainSeal::done);
        Ok(())
    }

    /// Returns the time after which there is something to do, if nothing is queued.
    fn pause(&self) -> Option<Duration> {
        let retry = self.cause.is_some().then_some(self.retry);
        retry.into_iter().chain(self.checkpoints.due_in()).min()
    }

    /// Writes the end of the chain.
    fn end(mut self) {
        let ended = Event::new(EventKind::BrokerStopped, json!({}))
            .draft(None)
            .and_then(|draft| self.commit(&[WriteUnit::of(draft, None)]));
        if let Err(error) = self.storage.finish() {
            tracing::debug!(%error, "space that was reserved for the ledger is not given back");
        }
        match ended {
            Ok(_) => {
                self.checkpoints.sign();
                self.lock.mark_ended();
            }
            Err(error) => {
                tracing::error!(%error, "this broker's chain of the ledger has no end, until the next broker seals it");
            }
        }
    }

    /// Writes these items, after the outstanding ones, and answers each.
    fn commit_and_answer(&mut self, items: Vec<WriteUnit>) {
        if items.is_empty() && self.cause.is_none() {
            return;
        }
        match self.commit(&items) {
            Ok(numbers) => {
                self.health.recovered();
                self.cause = None;
                for (item, seq) in items.into_iter().zip(numbers) {
                    answer(item, Ok(seq));
                }
            }
            Err(error) => {
                let room = QUEUE.saturating_sub(self.outstanding.len());
                let (mut kept, mut refused): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| item.is_kept);
                refused.extend(kept.drain(room.min(kept.len())..));
                self.outstanding.append(&mut kept);
                self.health.failed(&error, refused.iter().filter(|item| item.draft.is_some()).count() as u64);
                // The callers learn of it only now, when `trouble` reports it, too.
                refused.into_iter().for_each(|item| answer(item, Err(error.clone())));
                self.cause = Some(error);
            }
        }
    }

    /// Appends the outstanding items and these, all of them or none. Returns the number of each item; one without a
    /// record has that of the record before it.
    fn commit(&mut self, items: &[WriteUnit]) -> Result<Vec<u64>, LedgerError> {
        let lost = self.health.lost();
        let mut chained = Chained {
            chain: self.lock.chain(),
            tip: self.tip,
            records: Vec::with_capacity(items.len()),
            durable: &self.runs,
            runs: HashMap::new(),
        };
        if lost > 0 {
            let cause = self.cause.as_ref().map(LedgerError::to_string);
            chained.push(&Event::new(EventKind::LedgerGap, json!({"lost": lost, "cause": cause})).draft(None)?);
        }
        self.outstanding.iter().filter_map(|item| item.draft.as_ref()).for_each(|draft| chained.push(draft));
        let mut numbers = Vec::with_capacity(items.len());
        for item in items {
            item.draft.iter().for_each(|draft| chained.push(draft));
            numbers.push(chained.tip.seq);
        }
        let Chained { tip, records, runs, .. } = chained;
        let begun = Instant::now();
        self.storage.append(&records)?;
        self.is_quick = begun.elapsed() < self.quick;
        self.runs.advance(runs);
        self.checkpoints.add(&records);
        self.outstanding.clear();
        self.health.gap_written(lost);
        self.advance(tip);
        Ok(numbers)
    }

    /// Sets the end of the chain, which is durable now.
    fn advance(&mut self, tip: ChainTip) {
        if self.tip == tip {
            return;
        }
        self.tip = tip;
        if let Err(error) = self.lock.write_position(tip) {
            // From here on the file's content is old, but not wrong.
            tracing::debug!(%error, "the lock file of this broker's chain cannot be written");
        }
        self.published.send_replace(tip.seq);
    }
}

/// Records that get their places in the chain.
struct Chained<'a> {
    chain: &'a str,
    tip: ChainTip,
    records: Vec<ChainedRecord>,
    /// The numbers of the runs' last records before these, and with these.
    durable: &'a RunNumbers,
    runs: HashMap<SessionId, u64>,
}

impl Chained<'_> {
    fn push(&mut self, draft: &UnchainedRecord) {
        let seq = self.tip.seq + 1;
        let run_seq = draft.run().map_or(0, |run| {
            let last = self.runs.entry(run.clone()).or_insert_with(|| self.durable.last(run));
            *last += 1;
            *last
        });
        let text = draft.text(self.chain, seq, run_seq);
        let hash = hash(&self.tip.hash, text.as_bytes());
        self.tip = ChainTip { seq, hash };
        self.records.push(ChainedRecord { seq, text, hash });
    }
}

fn answer(item: WriteUnit, result: Result<u64, LedgerError>) {
    if let Some(reply) = item.reply {
        // The caller may no longer be waiting.
        let _ = reply.send(result);
    }
}
