//! The SQLite file: where it is, who may read it, how it is opened.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use super::{LedgerError, chain};

/// The schema's version, in `user_version`.
const FORMAT: i64 = 1;

/// Tables, indices and views.
pub(super) const SCHEMA: &str = include_str!("schema.sql");

/// How long to wait for another broker's transaction. Those take milliseconds; beyond this something is stuck, and callers
/// had better hear so.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long until what could not be written is tried again, if nothing else comes. Whoever watches hears soon enough.
const RETRY: Duration = Duration::from_secs(1);

/// A write-ahead log that grew in a burst is cut back to this many bytes.
pub(super) const WAL_KEEP: u64 = 16 * 1024 * 1024;

/// Pages of the write-ahead log until they are copied to the database. The same few pages are written in every transaction, and
/// copied once: 16 MiB, as much as the log keeps.
const CHECKPOINT_PAGES: u32 = 4096;

/// What tests make smaller.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// How long to wait for somebody else's lock.
    pub(super) busy: Duration,
    /// The largest database, in pages of 4096 bytes; None is as large as the disk.
    pub(super) pages: Option<u32>,
    /// How long until what could not be written is tried again.
    pub(super) retry: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { busy: BUSY_TIMEOUT, pages: None, retry: RETRY }
    }
}

/// The database in a data folder.
pub(super) fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("ledger.sqlite")
}

/// Makes the data folder and the files that must be private from their first byte; gives the folder's real path.
pub(super) fn prepare(data_dir: &Path) -> Result<PathBuf, LedgerError> {
    let failed = |path: &Path, error: std::io::Error| LedgerError::file("create", path, error);
    let mut folders = DirBuilder::new();
    folders.recursive(true).mode(0o700);
    folders.create(data_dir).map_err(|e| failed(data_dir, e))?;
    let data_dir = data_dir.canonicalize().map_err(|e| failed(data_dir, e))?;
    let mode = fs::metadata(&data_dir).map_err(|e| failed(&data_dir, e))?.mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(LedgerError::OpenFolder { path: data_dir, mode });
    }
    let chains = data_dir.join(chain::FOLDER);
    folders.create(&chains).map_err(|e| failed(&chains, e))?;
    let database = path(&data_dir);
    // SQLite gives its side files the mode of the database.
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&database);
    let file = file.map_err(|e| failed(&database, e))?;
    file.set_permissions(Permissions::from_mode(0o600)).map_err(|e| failed(&database, e))?;
    Ok(data_dir)
}

/// Opens the database for writing, with the schema in it.
pub(super) fn open(data_dir: &Path, limits: Limits) -> Result<Connection, LedgerError> {
    let path = path(data_dir);
    let failed = |e: rusqlite::Error| error(data_dir, &e);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(&path, flags).map_err(failed)?;
    harden(&conn, limits).map_err(failed)?;
    // Before anything is changed in a file that is perhaps not ours.
    check_format(&conn.unchecked_transaction().map_err(failed)?, data_dir)?;
    retry_busy(limits.busy, || conn.pragma_update(None, "journal_mode", "WAL")).map_err(failed)?;
    conn.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
    // Without it a statement that was prepared is compiled anew each time a value is bound, as the value might change the plan.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(failed)?;
    conn.pragma_update(None, "journal_size_limit", WAL_KEEP.cast_signed()).map_err(failed)?;
    conn.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES).map_err(failed)?;
    if let Some(pages) = limits.pages {
        conn.pragma_update(None, "max_page_count", pages).map_err(failed)?;
    }
    let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    if check_format(&transaction, data_dir)? == 0 {
        transaction.execute_batch(SCHEMA).map_err(failed)?;
        transaction.pragma_update(None, "user_version", FORMAT).map_err(failed)?;
    }
    transaction.commit().map_err(failed)?;
    Ok(conn)
}

/// Opens the database for reading. It needs no broker.
pub(super) fn open_reader(data_dir: &Path, limits: Limits) -> Result<Connection, LedgerError> {
    let path = path(data_dir);
    let failed = |e: rusqlite::Error| error(data_dir, &e);
    if !path.exists() {
        return Err(LedgerError::Missing(path));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(&path, flags).map_err(failed)?;
    harden(&conn, limits).map_err(failed)?;
    let format = check_format(&conn.unchecked_transaction().map_err(failed)?, data_dir)?;
    match format {
        0 => Err(LedgerError::Missing(path)),
        _ => Ok(conn),
    }
}

/// The file may have been written by anybody: its schema is not trusted, and its pages are checked as they are read.
fn harden(conn: &Connection, limits: Limits) -> rusqlite::Result<()> {
    conn.busy_timeout(limits.busy)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    conn.pragma_update(None, "cell_size_check", true)
}

/// The format: 0 for a file without anything in it. In one transaction, because another broker may be making the ledger
/// right now: between two looks an empty file could turn into what looks like somebody else's.
fn check_format(conn: &Transaction<'_>, data_dir: &Path) -> Result<i64, LedgerError> {
    let number = |sql: &str| conn.query_row(sql, [], |row| row.get(0)).map_err(|e| error(data_dir, &e));
    let found: i64 = number("PRAGMA user_version")?;
    match found {
        0 if number("SELECT count(*) FROM sqlite_schema")? == 0 => Ok(0),
        FORMAT => Ok(FORMAT),
        newer if newer > FORMAT => Err(LedgerError::Newer { path: path(data_dir), found, known: FORMAT }),
        _ => Err(LedgerError::Foreign(path(data_dir))),
    }
}

/// Changing the journal mode does not wait for others by itself.
fn retry_busy<T>(limit: Duration, mut work: impl FnMut() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let begun = Instant::now();
    loop {
        match work() {
            Err(error) if is_busy(&error) && begun.elapsed() < limit => {
                std::thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Our error for one of SQLite's.
pub(super) fn error(data_dir: &Path, error: &rusqlite::Error) -> LedgerError {
    let path = path(data_dir);
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => LedgerError::Full(path),
        _ if is_busy(error) => LedgerError::Busy(path),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            LedgerError::Damaged { path, cause: error.to_string() }
        }
        _ => LedgerError::Store { path, cause: error.to_string() },
    }
}
