//! The ledger: the durable, hash-chained record of everything that the broker does.
//!
//! Each broker writes its own chain, from `broker.started` to `broker.stopped`, into files that no other process
//! writes; several brokers may share a data folder. The hash of a record covers the hash of the record before it, so
//! [`verify`] detects edited, deleted, inserted and reordered records. A bare chain cannot show that somebody with
//! write access recomputed all of it, or removed a whole chain together with its lock file: the ledger is
//! *tamper-evident*, not immutable. Signed checkpoints that are kept elsewhere close that gap.
//!
//! Invariants:
//! - A record that [`Ledger::append`] or [`PendingIntent::durable`] confirmed is on disk.
//! - The outcome of a call has a place in the writer's queue from the moment its intent is queued ([`OutcomeSlot`]),
//!   and is kept until it is written. Notes never take that place.
//! - A failed write never forks a chain and never skips a number. Lost records are counted, and the next append that
//!   succeeds begins with a `ledger.gap`. So no intent becomes durable behind an unreported gap.
//! - The use of a grant is durable before the intent that it allows. Grants and cursors are state, in an SQLite file;
//!   an index for searches, in another one, is derived from the records and can be deleted at any time.
//! - A sealed body can be read only by the holders of an identity, and by nobody once its data key is deleted. Whether
//!   payloads enter as a [`shape`], sealed or in full is decided by the callers that record them.

mod body;
mod calls;
mod chain;
mod copy;
mod definitions;
mod error;
mod evidence;
mod feed;
mod files;
mod grant;
mod health;
mod index;
mod intent;
mod key;
mod legacy;
mod queue;
mod read;
mod record;
mod removed;
pub mod repeats;
mod retention;
mod run_numbers;
mod seal;
mod sealed_body;
mod search;
mod segment;
mod shape;
mod state;
mod storage;
mod text;
mod verify;
mod work;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis_core::age::Recipient;
use portcullis_core::digest::Digest;
use portcullis_core::metrics::{DECISION, Histogram};
use portcullis_core::sync::Mutex;
use rusqlite::Connection;
use tokio::sync::watch;

pub use body::{EventBody, Fact};
pub use calls::{CallEntry, CallRange, RecordedOutcome};
pub use chain::{ChainStart, has_live_chain, is_live};
pub use copy::LedgerFiles;
pub use error::LedgerError;
pub use evidence::{
    CheckpointError, CheckpointKey, NotAPublicKey, ProofError, PublicKey, RecordProof, SignedCheckpoint, checkpoints,
    prove, read_checkpoints,
};
pub use grant::{ApprovalGrant, GrantBinding, GrantScope, GrantUse};
pub use health::LedgerTrouble;
pub use intent::IntentDurability;
pub use queue::{OutcomeSlot, PendingIntent};
pub use read::{CallOrRun, CallRow, CallState, LedgerReader, PositionedRecord, RecordFilter, RunRow, RunState, Tail};
pub use record::{Event, EventKind, MAX_RECORD_BYTES, Record};
pub use retention::RemovalResult;
pub use sealed_body::{BodyOpener, new_identity};
pub use search::CallFilter;
pub use shape::shape;
pub use text::TextQuery;
pub use verify::{ChainReport, ChainStatus, Verification, VerifiedSegments, verify, verify_after, verify_against};

use definitions::RecordedDefinitions;
use evidence::CheckpointWriter;
use feed::SinkPositions;
use health::LedgerHealth;
use queue::QueueSender;
use sealed_body::BodySealer;
use segment::Segments;
use state::State;
use storage::{Storage, StorageLimits, StorageProbe};
use work::WorkQueue;

/// The pause before a failed write is retried if no new record arrives: soon enough for monitoring.
const RETRY: Duration = Duration::from_secs(1);

/// The longest write after which a lone call writes on its own thread: others may need to wait for the thread.
const QUICK: Duration = Duration::from_millis(1);

/// The time for which a ledger that was found in its place counts as being there, for calls that do not wait for it.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// A callback that records the events of a source or a cell in the ledger. It must not call back into its caller.
pub type EventCallback = Arc<dyn Fn(Event) + Send + Sync>;

/// The chain that this process writes in the ledger of a data folder. Clones are cheap. Dropping the last clone without
/// [`Ledger::close`] leaves the chain without an end, as a crash would.
#[derive(Clone)]
pub struct Ledger {
    inner: Arc<Inner>,
    /// The digest of the configuration that the records of this clone name, as text.
    config: Arc<str>,
    /// The recipients for whom this clone seals bodies.
    recipients: Arc<[Recipient]>,
}

struct Inner {
    data_dir: PathBuf,
    chain: Arc<str>,
    queue: QueueSender,
    storage: Arc<dyn Storage>,
    /// Grants and cursors; `None` once the ledger is closed.
    state: Mutex<Option<State>>,
    places: Mutex<SinkPositions>,
    key: key::FingerprintKey,
    definitions: RecordedDefinitions,
    sealer: BodySealer,
    health: Arc<LedgerHealth>,
    probe: StorageProbe,
    /// The time at which the probe last found the file in its place. `None` if it did not.
    looked: Mutex<Option<Instant>>,
    tip: watch::Receiver<u64>,
    signed: watch::Receiver<Option<SignedCheckpoint>>,
    /// The times that callers waited for their records to become durable, or to fail.
    appended: Histogram,
}

/// The settings that tests override: timeouts and the storage of chains.
#[derive(Debug, Clone)]
struct LedgerSetup {
    /// The longest wait for another program's lock on the state.
    busy: Duration,
    /// The pause before a failed write is retried if no new record arrives.
    retry: Duration,
    /// The longest write after which a lone call writes on its own thread.
    quick: Duration,
    /// Another storage than segments in the data folder.
    storage: Option<Arc<dyn Storage>>,
}

impl Ledger {
    /// Opens the ledger of a data folder and starts a chain. Creates the folder (0700), the file (0600) and the key if
    /// they are missing, deletes expired grants, and seals the chains of brokers that are gone. `broker.started` is
    /// durable when this returns.
    ///
    /// Cancellation: a chain that was being started ends without `broker.stopped`, and the next broker seals it.
    ///
    /// # Errors
    /// [`LedgerError`]. A new chain is left behind only if its first record may be on disk; the next broker then seals
    /// it.
    pub async fn open(data_dir: &Path, started: ChainStart) -> Result<Self, LedgerError> {
        let setup = LedgerSetup { busy: state::BUSY_TIMEOUT, retry: RETRY, quick: QUICK, storage: None };
        Self::open_with(data_dir, started, setup).await.map_err(|error| error.at_open(data_dir))
    }

    async fn open_with(data_dir: &Path, started: ChainStart, setup: LedgerSetup) -> Result<Self, LedgerError> {
        let data_dir = data_dir.to_owned();
        let config = started.config.to_string().into();
        blocking(move || {
            let data_dir = state::prepare(&data_dir)?;
            let key = key::FingerprintKey::open(&data_dir)?;
            let state = State::open(&data_dir, setup.busy)?;
            let storage = setup.storage.unwrap_or_else(|| Arc::new(Segments::new(&data_dir, StorageLimits::default())));
            state.run(grant::delete_expired)?;
            let seals = seal::seals_due(&state, &*storage, &data_dir)?;
            chain::remove_unfinished(&data_dir);
            let lock = chain::ChainLock::create(&data_dir)?;
            let chain: Arc<str> = lock.chain().into();
            let health = Arc::new(LedgerHealth::default());
            let checkpoints = CheckpointWriter::new(&data_dir, &chain, started.key.clone());
            let signed = checkpoints.signed();
            let (writer, work) = (storage.create(&chain), WorkQueue::new());
            let probe = writer.probe();
            let (shared, tip) = writer::start(
                writer::WriterStart {
                    storage: writer,
                    lock,
                    checkpoints,
                    health: Arc::clone(&health),
                    work: Arc::clone(&work),
                    retry: setup.retry,
                    quick: setup.quick,
                    seals,
                },
                &started,
            )?;
            let queue = QueueSender::new(work, shared, Arc::clone(&health));
            let (state, places, looked) = (Mutex::new(Some(state)), Mutex::default(), Mutex::default());
            let (sealer, appended) = (BodySealer::new(&data_dir, &chain), Histogram::new(DECISION));
            let inner = Inner {
                data_dir,
                chain,
                queue,
                storage,
                state,
                places,
                key,
                definitions: RecordedDefinitions::default(),
                sealer,
                health,
                probe,
                looked,
                tip,
                signed,
                appended,
            };
            Ok(Self { inner: Arc::new(inner), config, recipients: [].into() })
        })
        .await
    }

    /// Returns a handle of the same ledger whose records name this configuration. A call or other work that was begun
    /// with another handle keeps naming that one's.
    #[must_use]
    pub fn under(&self, config: Digest) -> Self {
        Self { config: config.to_string().into(), ..self.clone() }
    }

    /// Returns the identifier (a ULID) of the chain that this process writes.
    #[must_use]
    pub fn chain(&self) -> &str {
        &self.inner.chain
    }

    /// Records an event and returns its number in the chain. The record is durable when this returns.
    ///
    /// Cancellation: the record may or may not be written.
    ///
    /// # Errors
    /// [`LedgerError`]: the record is not known to be durable. The chain stays intact, and later appends are attempted
    /// again.
    pub async fn append(&self, event: Event) -> Result<u64, LedgerError> {
        self.write(Some(event)).await
    }

    /// Records an event, in order with all others, without waiting. An event for which the queue has no place, or that
    /// cannot be written, is lost and counted in a `ledger.gap`. Needs no runtime, so it can be called from `Drop`.
    pub fn record(&self, event: Event) {
        self.inner.queue.note(event, &self.config);
    }

    /// Takes one use of a grant, if the call needs one, and queues the intent of the call. The returned
    /// [`PendingIntent`] waits for the disk, and the [`OutcomeSlot`] reserves the place for the outcome of the call.
    ///
    /// Without a [`PendingIntent`] there is nothing to wait for: `durability` is [`IntentDurability::Queued`], the call
    /// uses up no grant, and the ledger can be written as far as is known. The record then says so.
    ///
    /// Cancellation, and any other error than [`LedgerError::GrantSpent`]: the use of the grant may be taken.
    ///
    /// # Errors
    /// [`LedgerError::GrantSpent`] if the grant no longer covers this call. After every error nothing is queued.
    pub async fn intent(
        &self,
        event: Event,
        consume: Option<GrantUse>,
        durability: IntentDurability,
    ) -> Result<(Option<PendingIntent>, OutcomeSlot), LedgerError> {
        let asked = Instant::now();
        let is_queued = durability == IntentDurability::Queued && consume.is_none() && self.seems_writable();
        let event = if is_queued { intent::marked(event) } else { event };
        let draft = event.draft(Some(&self.config))?;
        if let Some(consume) = consume {
            let grant = consume.grant.clone();
            if !self.state(move |conn| grant::consume(conn, &consume)).await? {
                return Err(LedgerError::GrantSpent(grant));
            }
        }
        let slot = OutcomeSlot::new(self.clone());
        if is_queued {
            self.inner.queue.intent(draft).await?;
            return Ok((None, slot));
        }
        let answer = self.inner.queue.awaited_intent(draft).await?;
        Ok((Some(PendingIntent::new(self.clone(), asked, answer)), slot))
    }

    /// Returns the live grants that cover a call, oldest first. Another call may spend a returned grant before an
    /// intent takes it.
    ///
    /// # Errors
    /// [`LedgerError`] if the file cannot be read.
    pub async fn grants(&self, binding: &GrantBinding) -> Result<Vec<ApprovalGrant>, LedgerError> {
        let binding = binding.clone();
        self.state(move |conn| grant::matching(conn, &binding)).await
    }

    /// Returns the keyed BLAKE3 hash of a payload: `blake3:` and 64 hexadecimal digits. Equal payloads have equal
    /// fingerprints, and guesses cannot be tested without the key in the data folder.
    #[must_use]
    pub fn fingerprint(&self, bytes: &[u8]) -> String {
        self.inner.key.fingerprint(bytes)
    }

    /// Returns a receiver that holds the number of the last durable record and can wait for the next.
    #[must_use]
    pub fn tip(&self) -> watch::Receiver<u64> {
        self.inner.tip.clone()
    }

    /// Returns the histogram of how long appended records took to become durable, or to fail.
    pub fn appended(&self) -> &Histogram {
        &self.inner.appended
    }

    /// Returns why calls are refused at the moment: records cannot be written, or the file is no longer in its place.
    /// `None` while calls are allowed. Looks at the file's metadata and reads no content.
    #[must_use]
    pub fn trouble(&self) -> Option<LedgerTrouble> {
        let gone = || Some(LedgerTrouble { error: (self.inner.probe)().err()?, lost: 0 });
        self.inner.health.trouble().or_else(gone)
    }

    /// Reports whether records can be written, as of the last millisecond: checking the file for each call is costly.
    fn seems_writable(&self) -> bool {
        let inner = &self.inner;
        if inner.health.trouble().is_some() {
            return false;
        }
        let looked = *inner.looked.lock();
        if looked.is_some_and(|looked| looked.elapsed() < LOOK_INTERVAL) {
            return true;
        }
        // Not under the lock: callers would wait for each other's check of the disk.
        let is_there = (inner.probe)().is_ok();
        *inner.looked.lock() = is_there.then(Instant::now);
        is_there
    }

    /// Waits until everything that was recorded so far, including notes, is on disk.
    ///
    /// # Errors
    /// As for [`Ledger::append`].
    pub async fn flush(&self) -> Result<(), LedgerError> {
        self.write(None).await.map(drop)
    }

    /// Writes what is queued, then `broker.stopped`, and releases the chain. Idempotent. A failure is logged at ERROR,
    /// and the chain then reads as incomplete.
    pub async fn close(&self) {
        self.inner.state.lock().take();
        self.inner.queue.stop().await;
    }

    async fn write(&self, event: Option<Event>) -> Result<u64, LedgerError> {
        let asked = Instant::now();
        let draft = event.map(|event| event.draft(Some(&self.config))).transpose()?;
        let answer = self.inner.queue.append(draft).await?;
        let answer = answer.await.unwrap_or(Err(LedgerError::Closed));
        self.inner.appended.record(asked.elapsed());
        answer
    }

    /// Runs a query or a change of the state.
    async fn state<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let inner = Arc::clone(&self.inner);
        blocking(move || inner.state.lock().as_ref().ok_or(LedgerError::Closed)?.run(work)).await
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("chain", &self.inner.chain).finish_non_exhaustive()
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LedgerError> + Send + 'static,
) -> Result<T, LedgerError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(LedgerError::Closed))
}

#[cfg(test)]
mod tests;
