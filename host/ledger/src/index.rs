//! The index for searches, derived from the records. Readers create and update it; writers do not know about it.

mod add;
mod blocks;
mod calls;
mod check;
mod compare;
mod damage;
mod facts;
mod forget;
mod key;
mod slices;
mod vocabulary;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

use self::add::ChainState;
pub(super) use self::calls::{IndexedRecord, WalkedCalls};
pub(super) use self::check::{IndexCheck, IndexComparison, IndexPlaces};
use self::damage::ChainDamage;
pub(super) use self::facts::RecordNames;
use self::forget::FileVersion;
pub(super) use self::key::{call_of, first_key_at, key_of, keys_beginning};
pub(super) use self::slices::TextSearch;
pub(super) use self::vocabulary::{CallClass, UNLISTED};
use super::files::check_database;
use super::storage::{ChainPosition, Storage};
use super::{LedgerError, legacy, state};

/// The SQL that creates the tables, indices and views.
const SCHEMA: &str = include_str!("index/schema.sql");

/// The size of a page of a new index. The data that a search reads lies together in the index, so that a search from a
/// cold disk waits for a quarter of the pages that it would read with the default size.
const PAGE_BYTES: u32 = 16 * 1024;

/// The longest wait for another reader that brings the index up to date.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);

/// The number of added records after which they are committed.
const COMMIT_AFTER: usize = 50_000;

/// The segment that represents the table of format 1.
pub(super) const LEGACY: u32 = 0;

/// The index of one data folder.
pub(super) struct RecordIndex {
    conn: Connection,
    data_dir: PathBuf,
    storage: Arc<dyn Storage>,
    /// The state, if format 1 began it: its records are in there.
    legacy: Option<Connection>,
    /// The files about removed records that were read, by chain.
    forgotten: RefCell<HashMap<String, FileVersion>>,
    /// The damage that was met, by chain.
    damaged: RefCell<HashMap<String, ChainDamage>>,
}

/// A record of format 1.
struct LegacyRecord {
    row: i64,
    chain: String,
    seq: i64,
    text: String,
}

impl RecordIndex {
    /// Opens the index, and makes it if it is not there, is not ours or is damaged. Where it cannot be written, this
    /// reader makes a temporary one.
    ///
    /// # Errors
    /// [`LedgerError::Missing`] if there is no ledger; otherwise the [`LedgerError`] that occurred.
    pub(super) fn open(data_dir: &Path, storage: Arc<dyn Storage>) -> Result<Self, LedgerError> {
        let state = match state::open_reader(data_dir) {
            Ok(conn) => Some(conn),
            Err(error) if state::is_dispensable(&error) && !storage.chains()?.is_empty() => None,
            Err(error) => return Err(error),
        };
        let legacy = state.filter(|conn| legacy::is_present(conn).unwrap_or(false));
        let conn = shared_or_temporary(data_dir, connect).map_err(|error| failed(data_dir, &error))?;
        let (forgotten, damaged) = (RefCell::default(), RefCell::default());
        Ok(Self { conn, data_dir: data_dir.to_owned(), storage, legacy, forgotten, damaged })
    }

    /// Returns the index if it exists.
    ///
    /// # Errors
    /// As for [`RecordIndex::open`].
    pub(super) fn open_existing(data_dir: &Path, storage: Arc<dyn Storage>) -> Result<Option<Self>, LedgerError> {
        if path(data_dir).exists() { Self::open(data_dir, storage).map(Some) } else { Ok(None) }
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.conn
    }

    /// Adds the records that were written since the index was last brought up to date, in the order of their times.
    ///
    /// # Errors
    /// [`LedgerError`] if records cannot be read or added.
    pub(super) fn refresh(&self) -> Result<(), LedgerError> {
        self.forget_removed()?;
        let known = self.known()?;
        let (mut open, mut damages) = (BTreeMap::new(), Vec::new());
        let mut is_new = !self.legacy_records(1)?.is_empty();
        for chain in self.storage.chains()? {
            let (place, is_complete) = known.get(&chain).copied().unwrap_or_default();
            if !is_complete {
                let state = ChainState::of(&self.data_dir, &chain);
                if state.is_ended {
                    let damage = ChainDamage::of(&self.data_dir, &chain, place, state.written);
                    if self.damaged.borrow().get(&chain) == Some(&damage) {
                        continue;
                    }
                    damages.push((chain.clone(), damage));
                }
                let next = self.storage.read(&chain, place).and_then(|mut reader| reader.skip());
                match next {
                    Ok(next) => {
                        is_new |= state.is_ended || next.is_some_and(|next| next.tip.seq <= state.last);
                        open.insert(chain, state);
                    }
                    Err(error) => {
                        tracing::warn!(chain, %error, "a chain of the ledger cannot be read, and is left out")
                    }
                }
            }
        }
        if is_new {
            self.add(&open)?;
            let known = self.known()?;
            let is_damaged = |chain: &String| known.get(chain).is_some_and(|(_, is_complete)| !is_complete);
            self.damaged.borrow_mut().extend(damages.into_iter().filter(|(chain, _)| is_damaged(chain)));
        }
        Ok(())
    }

    /// Returns the text of a record of format 1, by its place in the table.
    pub(super) fn legacy_text(&self, row: u64) -> Result<Option<String>, LedgerError> {
        let Some(legacy) = &self.legacy else { return Ok(None) };
        let text = legacy
            .prepare_cached("SELECT record FROM events WHERE row = ?1")
            .and_then(|mut query| query.query_row([row.cast_signed()], |row| row.get(0)));
        match text {
            Err(rusqlite::Error::QueryReturnedNoRows) => Ok(None),
            text => text.map(Some).map_err(|error| state::error(&self.data_dir, &error)),
        }
    }

    /// Returns the next records of format 1 that the index does not have yet.
    fn legacy_records(&self, most: usize) -> Result<Vec<LegacyRecord>, LedgerError> {
        self.legacy_after(self.last_legacy()?, most)
    }

    /// Returns the place of the last record of format 1 that the index has.
    fn last_legacy(&self) -> Result<i64, LedgerError> {
        let last = self.conn.query_row("SELECT row FROM legacy", [], |row| row.get(0));
        last.map_err(|error| self.failed(&error))
    }

    fn legacy_after(&self, after: i64, most: usize) -> Result<Vec<LegacyRecord>, LedgerError> {
        let Some(legacy) = &self.legacy else { return Ok(Vec::new()) };
        let sql = "SELECT row, chain, seq, record FROM events WHERE row > ?1 ORDER BY row LIMIT ?2";
        let found = legacy.prepare_cached(sql).and_then(|mut query| {
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            let rows = query.query_map([after, most], |row| {
                Ok(LegacyRecord { row: row.get(0)?, chain: row.get(1)?, seq: row.get(2)?, text: row.get(3)? })
            })?;
            rows.collect()
        });
        found.map_err(|error| state::error(&self.data_dir, &error))
    }

    /// Returns the number of the last record of a chain that is here, or 0.
    fn last(&self, chain: i64) -> Result<u64, LedgerError> {
        let sql = "SELECT coalesce(max(seq), 0) FROM events WHERE chain = ?1";
        let last = self.conn.prepare_cached(sql).and_then(|mut query| query.query_row([chain], |row| row.get(0)));
        last.map(i64::cast_unsigned).map_err(|error| self.failed(&error))
    }

    /// Returns how far each known chain has come, and whether all of it is here.
    fn known(&self) -> Result<HashMap<String, (ChainPosition, bool)>, LedgerError> {
        let known =
            self.conn.prepare_cached("SELECT chain, segment, offset, complete FROM chains").and_then(|mut query| {
                let rows = query.query_map([], |row| {
                    let place = ChainPosition { segment: row.get(1)?, offset: row.get::<_, i64>(2)?.cast_unsigned() };
                    Ok((row.get(0)?, (place, row.get(3)?)))
                })?;
                rows.collect()
            });
        known.map_err(|error| self.failed(&error))
    }

    fn chain_id(&self, chain: &str) -> Result<i64, LedgerError> {
        let insert = "INSERT OR IGNORE INTO chains (chain, segment, offset, complete) VALUES (?1, 0, 0, 0)";
        let id = self.conn.prepare_cached(insert).and_then(|mut insert| {
            insert.execute([chain])?;
            self.conn.prepare_cached("SELECT id FROM chains WHERE chain = ?1")?.query_row([chain], |row| row.get(0))
        });
        id.map_err(|error| self.failed(&error))
    }

    fn begin(&self) -> Result<Transaction<'_>, LedgerError> {
        let transaction = Transaction::new_unchecked(&self.conn, TransactionBehavior::Immediate);
        transaction.map_err(|error| self.failed(&error))
    }

    pub(super) fn failed(&self, error: &rusqlite::Error) -> LedgerError {
        failed(&self.data_dir, error)
    }
}

/// Removes the index, so that the next reader rebuilds it.
pub(super) fn remove(data_dir: &Path) {
    for suffix in ["", "-journal", "-shm", "-wal"] {
        let mut file = path(data_dir).into_os_string();
        file.push(suffix);
        // A file that cannot be removed is not used either: it is checked when it is opened.
        let _ = fs::remove_file(file);
    }
}

/// Returns the path of the index in a data folder.
pub(super) fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("index.sqlite")
}

/// Opens the shared index. One that is damaged or of another format is removed and made again. Where it cannot be used for
/// another reason, such as a limit of open files, it stays as it is for others, and this reader makes a temporary one.
pub(super) fn shared_or_temporary(
    data_dir: &Path,
    connect: impl Fn(&Path) -> rusqlite::Result<Connection>,
) -> rusqlite::Result<Connection> {
    let path = path(data_dir);
    let error = match connect(&path) {
        // Somebody uses it: it is waited for.
        Err(error) if !state::is_busy(&error) => error,
        opened => return opened,
    };
    tracing::debug!(%error, ?path, "the index of the ledger cannot be used");
    if is_useless(&error) {
        remove(data_dir);
        if let Ok(conn) = connect(&path) {
            return Ok(conn);
        }
    }
    prepare(Connection::open("")?)
}

/// Reports whether an error says that an index is damaged, no database, of another format, or no regular file.
fn is_useless(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::InvalidPath(_) | rusqlite::Error::InvalidColumnName(_) => true,
        // SQLite has no code of its own for a file of a later format.
        error => matches!(
            error.sqlite_error_code(),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown)
        ),
    }
}

/// Opens the index at a path, which must have our schema or none.
fn connect(path: &Path) -> rusqlite::Result<Connection> {
    // A link or a pipe is removed like another program's file.
    check_database(path).map_err(|error| rusqlite::Error::InvalidPath(error.to_string().into()))?;
    // SQLite gives the database's mode to its side files. If this fails, so does what follows.
    let _ = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    let conn = Connection::open(path)?;
    state::harden(&conn, BUSY_TIMEOUT)?;
    conn.pragma_update(None, "page_size", PAGE_BYTES)?;
    // Of readers that make the index together, one changes its mode, and SQLite does not let the others wait for it.
    state::retry_busy(BUSY_TIMEOUT, || conn.pragma_update(None, "journal_mode", "WAL"))?;
    // Otherwise SQLite replans some queries for each value, which takes longer than the query.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // The index is derived: entries lost in a crash of the machine are added again.
    conn.pragma_update(None, "synchronous", "NORMAL")?;
    let conn = prepare(conn)?;
    let ours = Connection::open_in_memory()?;
    ours.execute_batch(SCHEMA)?;
    if state::schema_of(&ours)? == state::schema_of(&conn)? {
        return Ok(conn);
    }
    Err(rusqlite::Error::InvalidColumnName("the schema is another one".into()))
}

/// Creates the tables if there are none.
fn prepare(conn: Connection) -> rusqlite::Result<Connection> {
    let is_empty = |conn: &Connection| conn.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0));
    // Most openers find the tables made, and then need not wait for a writer.
    if is_empty(&conn)? {
        let transaction = Transaction::new_unchecked(&conn, TransactionBehavior::Immediate)?;
        if is_empty(&transaction)? {
            transaction.execute_batch(SCHEMA)?;
        }
        transaction.commit()?;
    }
    Ok(conn)
}

fn failed(data_dir: &Path, error: &rusqlite::Error) -> LedgerError {
    let path = path(data_dir);
    LedgerError::Index { path, cause: error.to_string() }
}
