//! The single thread that writes: everything that is waiting goes into one transaction, and one `fsync` covers all of
//! it.

mod gather;
mod message;
mod outstanding;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, TransactionBehavior, params};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};

use super::chain::{self, ChainLock, ChainTip};
use super::files::{Files, Sizes};
use super::grant;
use super::health::LedgerHealth;
use super::record::{Event, EventKind, UnchainedRecord, hash};
use super::seal::{self, ChainSeal};
use super::store::{StoreLimits, WAL_KEEP};
use super::{ChainStart, LedgerError, feed, store};
use gather::gather;
pub(super) use message::{LinkedChange, WriteUnit, WriterMessage};
use outstanding::OutstandingOutcomes;

/// The largest number of items that one transaction takes. It bounds how long other brokers with the same data folder
/// wait for their turn.
const MAX_BATCH: usize = 512;

/// The parameters of the writer.
pub(super) struct Start {
    pub(super) conn: Connection,
    pub(super) lock: ChainLock,
    pub(super) data_dir: PathBuf,
    pub(super) limits: StoreLimits,
    pub(super) files: Arc<Files>,
    pub(super) health: Arc<LedgerHealth>,
    /// The chains of dead brokers that this one seals.
    pub(super) seals: Vec<ChainSeal>,
}

/// Writes the first records and starts the writer's thread.
pub(super) fn start(
    Start { conn, lock, data_dir, limits, files, health, seals }: Start,
    started: &ChainStart,
    work: mpsc::UnboundedReceiver<WriterMessage>,
) -> Result<watch::Receiver<u64>, LedgerError> {
    let (published, tip) = watch::channel(0);
    let mut writer = Writer {
        conn,
        lock,
        data_dir,
        limits,
        files,
        sizes: Sizes::default(),
        tip: ChainTip::default(),
        attempted: None,
        health,
        cause: None,
        outstanding: OutstandingOutcomes::default(),
        published,
    };
    if let Err(error) = writer.begin(started, seals) {
        // If the first record may be on disk after all, the chain stays and the next broker seals it.
        if writer.tip == ChainTip::default() && writer.attempted.is_none_or(|end| end == ChainTip::default()) {
            writer.lock.abandon();
        }
        return Err(error);
    }
    let path = store::path(&writer.data_dir);
    let clock = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let clock = clock.map_err(|error| LedgerError::file("start a clock for", &path, error))?;
    std::thread::Builder::new()
        .name("ledger".into())
        .spawn(move || writer.run(work, &clock))
        .map_err(|error| LedgerError::file("start a thread for", &path, error))?;
    Ok(tip)
}

struct Writer {
    conn: Connection,
    lock: ChainLock,
    data_dir: PathBuf,
    limits: StoreLimits,
    files: Arc<Files>,
    /// The sizes of the files at the last check.
    sizes: Sizes,
    /// The last record that is known to be durable.
    tip: ChainTip,
    /// The end that the chain has if a transaction that failed was written after all. Until the file has been queried,
    /// either end may be true.
    attempted: Option<ChainTip>,
    health: Arc<LedgerHealth>,
    /// The reason why the last records could not be written; `None` while writing succeeds.
    cause: Option<LedgerError>,
    /// Outcomes that could not be written yet.
    outstanding: OutstandingOutcomes,
    published: watch::Sender<u64>,
}

impl Writer {
    /// Writes the first record of the chain, and seals the chains of dead brokers.
    fn begin(&mut self, started: &ChainStart, seals: Vec<ChainSeal>) -> Result<(), LedgerError> {
        let body = json!({"version": started.version, "pid": std::process::id(), "config": started.config});
        let config = started.config.to_string().into();
        let mut items = vec![WriteUnit::of(Event::new(EventKind::BrokerStarted, body).draft(Some(&config))?, None)];
        for seal in seals {
            tracing::warn!(chain = seal.chain, "a broker died without ending its chain in the ledger; sealing it");
            items.push(WriteUnit {
                effect: LinkedChange::Seal(seal.chain.clone()),
                ..WriteUnit::of(seal.event().draft(None)?, None)
            });
        }
        for batch in items.chunks(MAX_BATCH) {
            self.commit(batch)?.into_iter().try_for_each(|outcome| outcome.map(drop))?;
        }
        Ok(())
    }

    fn run(mut self, mut work: mpsc::UnboundedReceiver<WriterMessage>, clock: &Runtime) {
        let mut stop = None;
        let mut batching = false;
        while let Some(first) = self.next(&mut work, clock) {
            let items;
            (items, stop) = gather(first, &mut work, batching, clock);
            batching = items.iter().filter(|item| item.reply.is_some()).count() > 1;
            self.settle(items);
            if stop.is_some() {
                break;
            }
        }
        if stop.is_some() {
            let ended = self.write_outstanding().and_then(|()| {
                let draft = Event::new(EventKind::BrokerStopped, json!({})).draft(None)?;
                self.commit(&[WriteUnit::of(draft, None)])
            });
            if let Err(error) = ended {
                tracing::error!(%error, "this broker's chain of the ledger has no end, until the next broker seals it");
            }
        }
        drop(self);
        // This comes last: `close` takes the end of the queue as the sign that the file is released.
        drop(work);
        if let Some(reply) = stop {
            let _ = reply.send(());
        }
    }

    /// Waits for the next work. While the ledger cannot be written, it retries the outstanding outcomes at intervals,
    /// so that recovery is noticed without new records.
    fn next(&mut self, work: &mut mpsc::UnboundedReceiver<WriterMessage>, clock: &Runtime) -> Option<WriterMessage> {
        while self.cause.is_some() {
            let wait = async { tokio::time::timeout(self.limits.retry, work.recv()).await };
            match clock.block_on(wait) {
                Ok(next) => return next,
                Err(_) => self.settle(Vec::new()),
            }
        }
        work.blocking_recv()
    }

    /// Writes the outstanding outcomes and then these items, and answers each item.
    fn settle(&mut self, items: Vec<WriteUnit>) {
        if items.is_empty() && self.cause.is_none() {
            return;
        }
        let ready = self.write_outstanding().and_then(|()| self.find_tip());
        let tried = ready.is_ok();
        let written = ready.and_then(|()| self.commit(&items));
        let mut failed = written.as_ref().err().cloned();
        let (mut replies, mut outcomes, mut lost) = (Vec::new(), Vec::new(), 0);
        for (i, item) in items.into_iter().enumerate() {
            let outcome = match &written {
                Ok(outcomes) => outcomes.get(i).cloned().unwrap_or(Err(LedgerError::Closed)),
                Err(error) => Err(error.clone()),
            };
            let error = outcome.as_ref().err().filter(|error| !matches!(error, LedgerError::GrantSpent(_)));
            if let (Some(error), Some(_)) = (error, &item.draft) {
                failed = Some(error.clone());
                if item.outcome {
                    outcomes.push(item);
                    continue;
                }
                lost += 1;
            }
            replies.extend(item.reply.map(|reply| (reply, outcome)));
        }
        match failed {
            None => {
                self.health.recovered();
                self.cause = None;
            }
            Some(error) => {
                lost += self.outstanding.add(outcomes, tried && self.attempted.is_some());
                self.health.failed(&error, lost);
                self.cause = Some(error);
            }
        }
        for (reply, outcome) in replies {
            // The caller may no longer be waiting.
            let _ = reply.send(outcome);
        }
    }

    /// Writes the outcomes that could not be written before.
    fn write_outstanding(&mut self) -> Result<(), LedgerError> {
        while !self.outstanding.is_empty() {
            self.find_tip()?;
            let batch = self.outstanding.take(MAX_BATCH);
            let written = self.commit(&batch);
            let failed = match &written {
                Ok(outcomes) => outcomes.iter().find_map(|outcome| outcome.as_ref().err()),
                Err(error) => Some(error),
            };
            if let Some(error) = failed.cloned() {
                self.outstanding.put_back(batch, &written, self.attempted.is_some());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Runs one transaction. An outer error means that nothing was committed; each inner result belongs to one item.
    fn commit(&mut self, items: &[WriteUnit]) -> Result<Vec<Result<u64, LedgerError>>, LedgerError> {
        self.find_tip()?;
        self.find_files()?;
        let lost = self.health.lost();
        let mut tip = self.tip;
        // From here on the file may differ from `self.tip`, until the commit is confirmed.
        self.attempted = Some(tip);
        let mut outcomes = Vec::with_capacity(items.len());
        let (data_dir, chain) = (&self.data_dir, self.lock.chain());
        let failed = |error: rusqlite::Error| store::error(data_dir, &error);

        let mut transaction = self.conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        check_tip(&transaction, chain, tip, data_dir)?;
        if lost > 0 {
            let cause = self.cause.as_ref().map(LedgerError::to_string);
            let gap = Event::new(EventKind::LedgerGap, json!({"lost": lost, "cause": cause})).draft(None)?;
            tip = insert(&transaction, chain, tip, &gap).map_err(failed)?;
        }
        for item in items {
            let (outcome, ended) = if matches!(item.effect, LinkedChange::None) {
                // A single statement is atomic by itself.
                (apply(&transaction, chain, tip, item, data_dir), Ok(()))
            } else {
                let savepoint = transaction.savepoint().map_err(failed)?;
                let outcome = apply(&savepoint, chain, tip, item, data_dir);
                let ended = if outcome.is_ok() { savepoint.commit() } else { savepoint.finish() };
                (outcome, ended)
            };
            match outcome {
                // SQLite rolled back the whole transaction, as it may when the disk is full.
                Err(error) if transaction.is_autocommit() => return Err(error),
                outcome => {
                    ended.map_err(failed)?;
                    tip = outcome.as_ref().map_or(tip, |next| *next);
                    outcomes.push(outcome.map(|next| next.seq));
                }
            }
        }
        self.attempted = Some(tip);
        transaction.commit().map_err(failed)?;
        self.attempted = None;
        self.health.gap_written(lost);
        self.advance(tip);
        Ok(outcomes)
    }

    /// Sets the end of the chain, which is now known.
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

    /// After a failed transaction, asks the file where the chain ends, so that it is neither forked nor skipped.
    fn find_tip(&mut self) -> Result<(), LedgerError> {
        let Some(attempted) = self.attempted else { return Ok(()) };
        let failed = |error: rusqlite::Error| store::error(&self.data_dir, &error);
        if !self.conn.is_autocommit() {
            self.conn.execute_batch("ROLLBACK").map_err(failed)?;
        }
        let last = chain::tip(&self.conn, self.lock.chain()).map_err(failed)?;
        if last != self.tip && last != attempted {
            let cause =
                format!("chain {} ends at record {} that this broker did not write there", self.lock.chain(), last.seq);
            return Err(LedgerError::Damaged { path: store::path(&self.data_dir), cause });
        }
        self.outstanding.resolve(last != self.tip);
        self.attempted = None;
        self.advance(last);
        Ok(())
    }

    /// Checks that the files in the data folder are those that the connection writes to, and that they were not
    /// truncated.
    fn find_files(&mut self) -> Result<(), LedgerError> {
        let sizes = self.files.check()?;
        // Only SQLite itself truncates the log, and to no less than `WAL_KEEP`.
        if sizes.database < self.sizes.database || sizes.log < self.sizes.log.min(WAL_KEEP) {
            let cut = |cause: String| LedgerError::Cut { path: store::path(&self.data_dir), cause };
            // A separate connection has nothing cached in memory.
            let fresh = store::open_reader(&self.data_dir, self.limits).map_err(|error| cut(error.to_string()))?;
            if sizes.database < self.sizes.database {
                let whole: rusqlite::Result<String> = fresh.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
                let whole = whole.map_err(|error| cut(error.to_string()))?;
                if whole != "ok" {
                    return Err(cut(whole));
                }
            }
            check_tip(&fresh, self.lock.chain(), self.tip, &self.data_dir).map_err(|error| cut(error.to_string()))?;
        }
        self.sizes = sizes;
        Ok(())
    }
}

/// Checks that the last record of the chain is still the one that was written: somebody with a SQLite shell may have
/// removed it.
fn check_tip(conn: &Connection, chain: &str, tip: ChainTip, data_dir: &Path) -> Result<(), LedgerError> {
    let failed = |error: rusqlite::Error| store::error(data_dir, &error);
    if tip.seq > 0 && chain::tip(conn, chain).map_err(failed)? != tip {
        let cause = format!("record {} of chain {chain}, which is the last one, is not there any more", tip.seq);
        return Err(LedgerError::Damaged { path: store::path(data_dir), cause });
    }
    Ok(())
}

fn apply(
    conn: &Connection,
    chain: &str,
    tip: ChainTip,
    item: &WriteUnit,
    data_dir: &Path,
) -> Result<ChainTip, LedgerError> {
    let failed = |error: rusqlite::Error| store::error(data_dir, &error);
    match &item.effect {
        LinkedChange::None => {}
        LinkedChange::GrantUse(consume) => {
            if !grant::consume(conn, consume).map_err(failed)? {
                return Err(LedgerError::GrantSpent(consume.grant.clone()));
            }
        }
        LinkedChange::Add(grant) => grant::add(conn, grant).map_err(failed)?,
        LinkedChange::Seal(sealed) => {
            if seal::is_sealed(conn, sealed).map_err(failed)? {
                return Ok(tip);
            }
        }
        LinkedChange::Advance { sink, seq } => feed::advance(conn, sink, chain, *seq).map_err(failed)?,
    }
    match &item.draft {
        Some(draft) => insert(conn, chain, tip, draft).map_err(failed),
        None => Ok(tip),
    }
}

fn insert(conn: &Connection, chain: &str, tip: ChainTip, draft: &UnchainedRecord) -> rusqlite::Result<ChainTip> {
    let seq = tip.seq + 1;
    let text = draft.text(chain, seq);
    let hash = hash(&tip.hash, text.as_bytes());
    conn.prepare_cached("INSERT INTO events (chain, seq, record, hash) VALUES (?1, ?2, ?3, ?4)")?.execute(params![
        chain,
        seq.cast_signed(),
        text,
        hash
    ])?;
    Ok(ChainTip { seq, hash })
}
