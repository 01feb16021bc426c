//! The one thread that writes: everything that waits goes into one transaction, and one `fsync` answers for all of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use serde_json::json;
use tokio::sync::{mpsc, oneshot, watch};

use super::chain::Lock;
use super::grant::{self, Consume, Grant};
use super::record::{Draft, Event, Hash, Kind, hash};
use super::{LedgerError, Started, feed, store};

/// How many items one transaction takes: bounds how long other brokers on the folder wait for their turn.
const MAX_BATCH: usize = 512;

/// How long records that nobody waits for may wait themselves, for one that somebody does: then one `fsync` serves both. A
/// crash loses at most this much of them, and a call without its outcome reads `unknown`.
const LINGER: Duration = Duration::from_millis(2);

/// How long records that somebody waits for wait for more, where the last transaction answered several: their callers are
/// about to come back. A caller alone never waits for others. Sharing a transaction halves what a record costs, and this is
/// less than the disk takes.
const COMPANY: Duration = Duration::from_micros(100);

/// What the writer is sent.
#[expect(clippy::large_enum_variant, reason = "all but the last are items, and a box for each would cost more")]
pub(super) enum Work {
    /// Something to write.
    Item(Item),
    /// The end; answered when the chain is let go.
    Stop(oneshot::Sender<()>),
}

/// What belongs together: all of it is written, or nothing.
pub(super) struct Item {
    pub(super) draft: Option<Draft>,
    pub(super) side: Side,
    /// None for a note.
    pub(super) reply: Option<oneshot::Sender<Result<u64, LedgerError>>>,
}

/// What is written beside a record.
pub(super) enum Side {
    None,
    Consume(Consume),
    Add(Box<Grant>),
    Advance { sink: String, seq: u64 },
}

/// The end of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Tip {
    seq: u64,
    hash: Hash,
}

/// Writes the first record and starts the thread.
pub(super) fn start(
    conn: Connection,
    lock: Lock,
    data_dir: PathBuf,
    started: &Started,
    lost: Arc<AtomicU64>,
    work: mpsc::Receiver<Work>,
) -> Result<watch::Receiver<u64>, LedgerError> {
    let (published, tip) = watch::channel(0);
    let chain = lock.chain().to_owned();
    let mut writer =
        Writer { conn, chain, data_dir, tip: Tip::default(), attempted: None, lost, cause: None, published };
    let body = json!({"version": started.version, "pid": std::process::id(), "config": started.config});
    let first = Event::new(Kind::BrokerStarted, body).draft().and_then(|draft| writer.write_alone(draft));
    if let Err(error) = first {
        lock.abandon();
        return Err(error);
    }
    let path = store::path(&writer.data_dir);
    let clock = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let clock = clock.map_err(|error| LedgerError::file("start a clock for", &path, error))?;
    std::thread::Builder::new()
        .name("ledger".into())
        .spawn(move || writer.run(lock, work, &clock))
        .map_err(|error| LedgerError::file("start a thread for", &path, error))?;
    Ok(tip)
}

struct Writer {
    conn: Connection,
    chain: String,
    data_dir: PathBuf,
    /// The last record that is known to be durable.
    tip: Tip,
    /// Where a transaction that failed would have ended. Until the file was asked, either end may be true.
    attempted: Option<Tip>,
    /// Records that could not be written since the last one that could.
    lost: Arc<AtomicU64>,
    /// Why the last of them could not.
    cause: Option<LedgerError>,
    published: watch::Sender<u64>,
}

impl Writer {
    fn run(mut self, lock: Lock, mut work: mpsc::Receiver<Work>, clock: &tokio::runtime::Runtime) {
        let mut stop = None;
        let mut in_company = false;
        while let Some(first) = work.blocking_recv() {
            let items;
            (items, stop) = gather(first, &mut work, in_company, clock);
            in_company = items.iter().filter(|item| item.reply.is_some()).count() > 1;
            self.settle(items);
            if stop.is_some() {
                break;
            }
        }
        if stop.is_some() {
            let ended = Event::new(Kind::BrokerStopped, json!({})).draft().and_then(|draft| self.write_alone(draft));
            if let Err(error) = ended {
                tracing::error!(%error, "the ledger has no end for this broker's chain");
            }
        }
        drop(self);
        drop(lock);
        // Only now: `close` waits for the queue's end to know that the file is let go.
        drop(work);
        if let Some(reply) = stop {
            let _ = reply.send(());
        }
    }

    /// Writes these items and answers each.
    fn settle(&mut self, items: Vec<Item>) {
        if items.is_empty() {
            return;
        }
        let outcome = self.commit(&items);
        for (i, item) in items.into_iter().enumerate() {
            let outcome = match &outcome {
                Ok(outcomes) => outcomes.get(i).cloned().unwrap_or(Err(LedgerError::Closed)),
                Err(error) => Err(error.clone()),
            };
            if let (Some(draft), Err(error)) = (&item.draft, &outcome)
                && !matches!(error, LedgerError::GrantSpent(_))
            {
                tracing::error!(kind = draft.kind().as_str(), %error, "a record is lost");
                self.lost.fetch_add(1, Ordering::Relaxed);
                self.cause = Some(error.clone());
            }
            if let Some(reply) = item.reply {
                // The caller may have gone.
                let _ = reply.send(outcome);
            }
        }
    }

    fn write_alone(&mut self, draft: Draft) -> Result<u64, LedgerError> {
        let item = Item { draft: Some(draft), side: Side::None, reply: None };
        let outcomes = self.commit(&[item])?;
        outcomes.into_iter().next().unwrap_or(Err(LedgerError::Closed))
    }

    /// One transaction. An outer error means that nothing of it counts; the inner ones are each item's own.
    fn commit(&mut self, items: &[Item]) -> Result<Vec<Result<u64, LedgerError>>, LedgerError> {
        self.find_tip()?;
        let lost = self.lost.load(Ordering::Relaxed);
        let mut tip = self.tip;
        // From here on the file may say something else than `self.tip`, until the commit is known.
        self.attempted = Some(tip);
        let mut outcomes = Vec::with_capacity(items.len());
        let data_dir = &self.data_dir;
        let failed = |error: rusqlite::Error| store::error(data_dir, &error);

        let mut transaction = self.conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        if lost > 0 {
            let cause = self.cause.as_ref().map(LedgerError::to_string);
            let gap = Event::new(Kind::LedgerGap, json!({"lost": lost, "cause": cause})).draft()?;
            tip = insert(&transaction, &self.chain, tip, &gap).map_err(failed)?;
        }
        for item in items {
            let (outcome, ended) = if matches!(item.side, Side::None) {
                // One statement is whole or nothing by itself.
                (apply(&transaction, &self.chain, tip, item, data_dir), Ok(()))
            } else {
                let savepoint = transaction.savepoint().map_err(failed)?;
                let outcome = apply(&savepoint, &self.chain, tip, item, data_dir);
                let ended = if outcome.is_ok() { savepoint.commit() } else { savepoint.finish() };
                (outcome, ended)
            };
            match outcome {
                // SQLite gave up the whole transaction, as it may when the disk is full.
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
        self.tip = tip;
        if lost > 0 {
            self.lost.fetch_sub(lost, Ordering::Relaxed);
            self.cause = None;
        }
        self.published.send_if_modified(|seq| std::mem::replace(seq, tip.seq) != tip.seq);
        Ok(outcomes)
    }

    /// After a failed transaction: asks the file where the chain ends, so that it is neither forked nor skipped.
    fn find_tip(&mut self) -> Result<(), LedgerError> {
        let Some(attempted) = self.attempted else { return Ok(()) };
        let failed = |error: rusqlite::Error| store::error(&self.data_dir, &error);
        if !self.conn.is_autocommit() {
            self.conn.execute_batch("ROLLBACK").map_err(failed)?;
        }
        let last = self
            .conn
            .query_row(
                "SELECT seq, hash FROM events WHERE chain = ?1 ORDER BY seq DESC LIMIT 1",
                [&self.chain],
                |row| Ok(Tip { seq: row.get::<_, i64>(0)?.cast_unsigned(), hash: row.get(1)? }),
            )
            .optional()
            .map_err(failed)?
            .unwrap_or_default();
        if last != self.tip && last != attempted {
            let cause =
                format!("chain {} ends at record {} that this broker did not write there", self.chain, last.seq);
            return Err(LedgerError::Damaged { path: store::path(&self.data_dir), cause });
        }
        self.tip = last;
        self.attempted = None;
        Ok(())
    }
}

/// Takes what goes into the next transaction, and whether it is the last one.
fn gather(
    first: Work,
    queue: &mut mpsc::Receiver<Work>,
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

fn apply(
    conn: &Connection,
    chain: &str,
    tip: Tip,
    item: &Item,
    data_dir: &std::path::Path,
) -> Result<Tip, LedgerError> {
    let failed = |error: rusqlite::Error| store::error(data_dir, &error);
    match &item.side {
        Side::None => {}
        Side::Consume(consume) => {
            if !grant::consume(conn, consume).map_err(failed)? {
                return Err(LedgerError::GrantSpent(consume.grant.clone()));
            }
        }
        Side::Add(grant) => grant::add(conn, grant).map_err(failed)?,
        Side::Advance { sink, seq } => feed::advance(conn, sink, chain, *seq).map_err(failed)?,
    }
    match &item.draft {
        Some(draft) => insert(conn, chain, tip, draft).map_err(failed),
        None => Ok(tip),
    }
}

fn insert(conn: &Connection, chain: &str, tip: Tip, draft: &Draft) -> rusqlite::Result<Tip> {
    let seq = tip.seq + 1;
    let text = draft.text(chain, seq);
    let hash = hash(&tip.hash, text.as_bytes());
    conn.prepare_cached("INSERT INTO events (chain, seq, record, hash) VALUES (?1, ?2, ?3, ?4)")?.execute(params![
        chain,
        seq.cast_signed(),
        text,
        hash
    ])?;
    Ok(Tip { seq, hash })
}
