//! The ledger: the durable, hash-chained record of everything that the broker does.
//!
//! One SQLite file holds the records of every broker that shares a data folder. Each process writes its own chain, from
//! `broker.started` to `broker.stopped`, and the hash of a record covers the hash of the record before it. [`verify`]
//! therefore detects edited, deleted, inserted and reordered records. A bare chain cannot show that somebody with write
//! access recomputed all of it, or removed a whole chain together with its lock file: the ledger is *tamper-evident*,
//! not immutable. Signed checkpoints that are kept elsewhere close that gap.
//!
//! Invariants:
//! - A record that [`Ledger::append`] or [`PendingIntent::durable`] confirmed is on disk.
//! - The outcome of a call has a place in the writer's queue from the moment its intent is queued ([`OutcomeSlot`]),
//!   and is kept until it is written. Notes never take that place.
//! - A failed write never forks a chain and never skips a number. Lost records are counted, and the next transaction
//!   that succeeds begins with a `ledger.gap`. So no intent becomes durable behind an unreported gap.
//! - Payloads enter only as a [`shape`] or a [`Ledger::fingerprint`]; the ledger has no interface for their content.

mod calls;
mod chain;
mod feed;
mod files;
mod grant;
mod health;
mod key;
mod queue;
mod read;
mod record;
pub mod repeats;
mod seal;
mod shape;
mod store;
mod verify;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use portcullis_core::digest::Digest;
use portcullis_core::metrics::{DECISION, Histogram};
use portcullis_core::sync::Mutex;
use rusqlite::Connection;
use tokio::sync::watch;

pub use calls::{CallEntry, CallRange, RecordedOutcome};
pub use chain::is_live;
pub use grant::{ApprovalGrant, Binding, GrantScope, GrantUse};
pub use health::Trouble;
pub use queue::{OutcomeSlot, PendingIntent};
pub use read::{CallOrRun, CallRow, CallState, LedgerReader, PositionedRecord, RecordFilter, RunRow, RunState, Tail};
pub use record::{Event, EventKind, MAX_RECORD_BYTES, Record};
pub use shape::shape;
pub use verify::{ChainReport, ChainStatus, Verification, verify};

use files::Files;
use health::LedgerHealth;
use queue::{QUEUE, Queue};
use store::StoreLimits;
use writer::LinkedChange;

/// A callback that records the events of a source or a cell in the ledger. It must not call back into its caller.
pub type EventCallback = Arc<dyn Fn(Event) + Send + Sync>;

/// The chain that this process writes in the ledger of a data folder. Clones are cheap. Dropping the last clone without
/// [`Ledger::close`] leaves the chain without an end, as a crash would.
#[derive(Clone)]
pub struct Ledger {
    inner: Arc<Inner>,
    /// The digest of the configuration that the records of this clone name, as text.
    config: Arc<str>,
}

struct Inner {
    data_dir: PathBuf,
    chain: Arc<str>,
    queue: Queue,
    /// The connection for queries, separate from the writer's; `None` once the ledger is closed.
    reader: Mutex<Option<Connection>>,
    key: key::Key,
    health: Arc<LedgerHealth>,
    files: Arc<Files>,
    tip: watch::Receiver<u64>,
    /// The times that callers waited for their records to become durable, or to fail.
    appended: Histogram,
}

/// The facts that the first record of a chain states about its broker.
#[derive(Debug, Clone)]
pub struct ChainStart {
    /// The broker's version.
    pub version: String,
    /// The digest of its configuration.
    pub config: Digest,
}

impl Ledger {
    /// Opens the ledger of a data folder and starts a chain. Creates the folder (0700), the file (0600) and the key if
    /// they are missing, deletes expired grants, and seals the chains of brokers that died. `broker.started` is durable
    /// when this returns.
    ///
    /// Cancellation: a chain that was being started ends without `broker.stopped`, and the next broker seals it.
    ///
    /// # Errors
    /// [`LedgerError`]. A new chain is left behind only if its first record may be on disk; the next broker then seals
    /// it.
    pub async fn open(data_dir: &Path, started: ChainStart) -> Result<Self, LedgerError> {
        Self::open_with(data_dir, started, StoreLimits::default()).await
    }

    async fn open_with(data_dir: &Path, started: ChainStart, limits: StoreLimits) -> Result<Self, LedgerError> {
        let data_dir = data_dir.to_owned();
        let config = started.config.to_string().into();
        blocking(move || {
            let data_dir = store::prepare(&data_dir)?;
            let key = key::Key::open(&data_dir)?;
            let database = files::WatchedFile::database(&data_dir)?;
            let conn = store::open(&data_dir, limits)?;
            let reader = store::open_reader(&data_dir, limits)?;
            let files = Arc::new(Files::of(database)?);
            grant::delete_expired(&conn).map_err(|e| store::error(&data_dir, &e))?;
            let seals = seal::due(&conn, &data_dir)?;
            chain::remove_unfinished(&data_dir);
            let lock = chain::ChainLock::create(&data_dir)?;
            let chain: Arc<str> = lock.chain().into();
            let health = Arc::new(LedgerHealth::default());
            let (queue, work) = Queue::new(Arc::clone(&health));
            let tip = writer::start(
                writer::Start {
                    conn,
                    lock,
                    data_dir: data_dir.clone(),
                    limits,
                    files: Arc::clone(&files),
                    health: Arc::clone(&health),
                    seals,
                },
                &started,
                work,
            )?;
            let (reader, appended) = (Mutex::new(Some(reader)), Histogram::new(DECISION));
            let inner = Inner { data_dir, chain, queue, reader, key, health, files, tip, appended };
            Ok(Self { inner: Arc::new(inner), config })
        })
        .await
    }

    /// Returns a handle of the same ledger whose records name this configuration. What was begun with another handle,
    /// such as a call, keeps naming that one's.
    #[must_use]
    pub fn under(&self, config: Digest) -> Self {
        Self { inner: Arc::clone(&self.inner), config: config.to_string().into() }
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
        self.write(Some(event), LinkedChange::None).await
    }

    /// Records an event, in order with all others, without waiting. An event for which the queue has no place, or that
    /// cannot be written, is lost and counted in a `ledger.gap`. Needs no runtime, so it can be called from `Drop`.
    pub fn note(&self, event: Event) {
        self.inner.queue.note(event, &self.config);
    }

    /// Queues the intent of a call and, in the same transaction, takes one use of a grant. The returned
    /// [`PendingIntent`] waits for the disk, and the [`OutcomeSlot`] reserves the place for the outcome of the call.
    ///
    /// Cancellation: nothing is queued.
    ///
    /// # Errors
    /// [`LedgerError`]: nothing is queued.
    pub async fn intent(
        &self,
        event: Event,
        consume: Option<GrantUse>,
    ) -> Result<(PendingIntent, OutcomeSlot), LedgerError> {
        let asked = Instant::now();
        let effect = consume.map_or(LinkedChange::None, LinkedChange::GrantUse);
        let answer = self.inner.queue.append(Some(event.draft(Some(&self.config))?), effect).await?;
        Ok(PendingIntent::new(self.clone(), asked, answer))
    }

    /// Stores a grant, together with the record that says who gave it.
    ///
    /// # Errors
    /// As for [`Ledger::append`]; the grant is then not stored either.
    pub async fn add_grant(&self, grant: ApprovalGrant, event: Event) -> Result<(), LedgerError> {
        self.write(Some(event), LinkedChange::Add(Box::new(grant))).await.map(drop)
    }

    /// Returns the live grants that cover a call, oldest first. Another call may spend a returned grant before an
    /// intent takes it.
    ///
    /// # Errors
    /// [`LedgerError`] if the file cannot be read.
    pub async fn grants(&self, binding: &Binding) -> Result<Vec<ApprovalGrant>, LedgerError> {
        let binding = binding.clone();
        self.read(move |conn| grant::matching(conn, &binding)).await
    }

    /// Returns the keyed hash of a payload: `hmac-sha256:` and 64 hexadecimal digits. Equal payloads have equal
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
    /// `None` while calls are allowed. Looks at the files' metadata and reads no content.
    #[must_use]
    pub fn trouble(&self) -> Option<Trouble> {
        let gone = || Some(Trouble { error: self.inner.files.check().err()?, lost: 0 });
        self.inner.health.trouble().or_else(gone)
    }

    /// Waits until everything that was recorded so far, including notes, is on disk.
    ///
    /// # Errors
    /// As for [`Ledger::append`].
    pub async fn flush(&self) -> Result<(), LedgerError> {
        self.write(None, LinkedChange::None).await.map(drop)
    }

    /// Writes what is queued, then `broker.stopped`, and releases the chain. Idempotent. A failure is logged at ERROR,
    /// and the chain then reads as incomplete.
    pub async fn close(&self) {
        self.inner.reader.lock().take();
        self.inner.queue.stop().await;
    }

    async fn write(&self, event: Option<Event>, effect: LinkedChange) -> Result<u64, LedgerError> {
        let asked = Instant::now();
        let draft = event.map(|event| event.draft(Some(&self.config))).transpose()?;
        let answer = self.inner.queue.append(draft, effect).await?;
        let answer = answer.await.unwrap_or(Err(LedgerError::Closed));
        self.inner.appended.record(asked.elapsed());
        answer
    }

    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let inner = Arc::clone(&self.inner);
        blocking(move || {
            let reader = inner.reader.lock();
            let conn = reader.as_ref().ok_or(LedgerError::Closed)?;
            query(conn).map_err(|error| store::error(&inner.data_dir, &error))
        })
        .await
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("data_dir", &self.inner.data_dir).field("chain", &self.inner.chain).finish()
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LedgerError> + Send + 'static,
) -> Result<T, LedgerError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(LedgerError::Closed))
}

/// An error of the ledger: why something could not be recorded or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// A file or folder beside the database cannot be used.
    #[error("cannot {act} {path:?}: {cause}")]
    File {
        /// The action that was attempted, such as `create`, `read` or `lock`.
        act: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        cause: String,
    },
    /// Other users may write to the data folder, so they could replace the ledger.
    #[error("data folder {path:?} can be written by others (mode {mode:o}): run `chmod 700` on it or name another")]
    OpenFolder {
        /// The folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// There is no ledger to read.
    #[error("no ledger at {0:?}: no broker has run on this data folder yet")]
    Missing(PathBuf),
    /// The ledger was written by a later version.
    #[error(
        "ledger {path:?} has format {found} and this version knows {known}: use a newer portcullis or another data folder"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The format of the file.
        found: i64,
        /// The format that this version knows.
        known: i64,
    },
    /// The file is the database of another program.
    #[error("{0:?} is a database, but not a ledger: move it away or use another data folder")]
    Foreign(PathBuf),
    /// The disk is full.
    #[error("no space left for ledger {0:?}: calls stop until there is some")]
    Full(PathBuf),
    /// The file that the broker writes is no longer in its place.
    #[error(
        "ledger {0:?} is not the file that this broker writes: it was moved, deleted or replaced, and calls stop; put it back, \
         or end this broker and start it again (`portcullis audit verify` then names what is missing)"
    )]
    Moved(PathBuf),
    /// The file is shorter than it was.
    #[error(
        "ledger {path:?} was cut while this broker wrote it ({cause}), and calls stop: end this broker, restore the file from a \
         copy or move it away, and start the broker again (`portcullis audit verify` names what is missing)"
    )]
    Cut {
        /// The file.
        path: PathBuf,
        /// The part that is missing.
        cause: String,
    },
    /// Another program has locked the database.
    #[error("ledger {0:?} is locked by another program: end whatever has it open")]
    Busy(PathBuf),
    /// The file is not a database, or contradicts itself.
    #[error("ledger {path:?} is damaged ({cause}): run `portcullis audit verify`")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage, and its place.
        cause: String,
    },
    /// Any other failure of the database.
    #[error("ledger {path:?} failed: {cause}")]
    Store {
        /// The file.
        path: PathBuf,
        /// The database's error.
        cause: String,
    },
    /// The record is larger than [`MAX_RECORD_BYTES`].
    #[error("record of {size} bytes is larger than the limit of {MAX_RECORD_BYTES} bytes")]
    TooLarge {
        /// The size of the record, in bytes.
        size: usize,
    },
    /// The body of the record has no canonical form.
    #[error("record cannot be written: {0}")]
    Body(String),
    /// The grant is used up, expired, or was given for something else.
    #[error("grant {0:?} is spent, has expired, or was given for something else: ask again")]
    GrantSpent(String),
    /// More records are waiting than the queue holds.
    #[error("more than {QUEUE} records wait for the disk")]
    Overloaded,
    /// The ledger was closed with [`Ledger::close`].
    #[error("the ledger is closed")]
    Closed,
}

impl LedgerError {
    /// Returns a general description of the error, for agents and others who may not know where the ledger is.
    #[must_use]
    pub fn in_general(&self) -> &'static str {
        match self {
            Self::Full(_) => "there is no space left for the ledger",
            Self::Busy(_) => "the ledger is locked by another program",
            Self::Moved(_) => "the ledger was moved, deleted or replaced",
            Self::Cut { .. } | Self::Damaged { .. } | Self::Foreign(_) => "the ledger is damaged",
            _ => "the ledger cannot be written",
        }
    }

    fn file(act: &'static str, path: &Path, cause: impl fmt::Display) -> Self {
        Self::File { act, path: path.to_owned(), cause: cause.to_string() }
    }
}

#[cfg(test)]
mod tests;
