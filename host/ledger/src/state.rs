//! The state of a ledger, which changes and is not chained: grants, and the cursors of sinks. It is an SQLite file.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use portcullis_core::private;
use portcullis_core::trust::keep_out_of_git;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use super::files::{WatchedFile, check_database};
use super::{LedgerError, chain, sealed_body, segment};

/// The version of the schema, stored in `user_version`. Files of version 1 also hold records, which stay where they
/// are. Grants of versions 1 and 2 do not say which questions they answered, and are dropped.
const FORMAT: i64 = 3;

/// The SQL that creates the tables.
pub(super) const SCHEMA: &str = include_str!("schema.sql");

/// The SQL that created the tables in versions 1 and 2.
pub(super) const SCHEMA_2: &str = include_str!("schema_2.sql");

/// The longest wait for another broker's transaction. Transactions take milliseconds; after this time something is
/// stuck, and callers should get an error.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The state of the ledger in a data folder.
pub(super) struct State {
    conn: Connection,
    file: WatchedFile,
    data_dir: PathBuf,
}

impl State {
    /// Opens the state for reading and writing, and creates its tables if the file is empty.
    pub(super) fn open(data_dir: &Path, busy: Duration) -> Result<Self, LedgerError> {
        let path = path(data_dir);
        let file = WatchedFile::of(path.clone()).map_err(|error| LedgerError::file("find", &path, error))?;
        let state = Self { conn: open(data_dir, busy)?, file, data_dir: data_dir.to_owned() };
        // A file that is there before and after is the one that was opened.
        state.file.size()?;
        Ok(state)
    }

    /// Runs a query or a change, which is durable afterwards.
    ///
    /// # Errors
    /// [`LedgerError::Moved`] if the file is no longer in its place; otherwise the [`LedgerError`] that occurred.
    pub(super) fn run<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, LedgerError> {
        self.file.size()?;
        work(&self.conn).map_err(|failed| error(&self.data_dir, &failed))
    }
}

/// Returns the path of the database in a data folder.
pub(super) fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("ledger.sqlite")
}

/// Creates the data folder and the files that must be private from their first byte; returns the folder's real path.
pub(super) fn prepare(data_dir: &Path) -> Result<PathBuf, LedgerError> {
    let failed = |path: &Path, error: std::io::Error| LedgerError::file("create", path, error);
    let mut folders = DirBuilder::new();
    folders.recursive(true).mode(0o700);
    folders.create(data_dir).map_err(|e| failed(data_dir, e))?;
    // Only before the first ledger: a user who deletes it later does not want it.
    if !path(data_dir).exists() {
        keep_out_of_git(data_dir).map_err(|e| failed(data_dir, e))?;
    }
    let data_dir = data_dir.canonicalize().map_err(|e| failed(data_dir, e))?;
    let mode = fs::metadata(&data_dir).map_err(|e| failed(&data_dir, e))?.mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(LedgerError::OpenFolder { path: data_dir, mode });
    }
    for folder in [data_dir.join(chain::FOLDER), segment::folder(&data_dir), sealed_body::folder(&data_dir)] {
        let checked = private::refuse_link(&folder);
        checked.map_err(|error| LedgerError::file("use", &folder, io::Error::from(error)))?;
        folders.create(&folder).map_err(|e| failed(&folder, e))?;
    }
    // The names of these folders are on disk before anything in them counts.
    File::open(&data_dir).and_then(|folder| folder.sync_all()).map_err(|e| failed(&data_dir, e))?;
    let database = path(&data_dir);
    check_database(&database)?;
    // SQLite gives the database's mode to its side files.
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&database);
    let file = file.map_err(|e| failed(&database, e))?;
    file.set_permissions(Permissions::from_mode(0o600)).map_err(|e| failed(&database, e))?;
    Ok(data_dir)
}

fn open(data_dir: &Path, busy: Duration) -> Result<Connection, LedgerError> {
    let path = path(data_dir);
    let failed = |e: rusqlite::Error| error(data_dir, &e);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(&path, flags).map_err(failed)?;
    harden(&conn, busy).map_err(failed)?;
    // This comes before any change, since the file may belong to another program.
    check_format(&conn.unchecked_transaction().map_err(failed)?, data_dir)?;
    retry_busy(busy, || conn.pragma_update(None, "journal_mode", "WAL")).map_err(failed)?;
    conn.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
    let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let found = check_format(&transaction, data_dir)?;
    if found < FORMAT {
        transaction.execute_batch("DROP TABLE IF EXISTS grants").map_err(failed)?;
        transaction.execute_batch(SCHEMA).map_err(failed)?;
        transaction.pragma_update(None, "user_version", FORMAT).map_err(failed)?;
    }
    transaction.commit().map_err(failed)?;
    Ok(conn)
}

/// Opens the database for reading, which needs no broker.
pub(super) fn open_reader(data_dir: &Path) -> Result<Connection, LedgerError> {
    let path = path(data_dir);
    let failed = |e: rusqlite::Error| error(data_dir, &e);
    if !path.exists() {
        return Err(LedgerError::Missing(path));
    }
    check_database(&path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(&path, flags).map_err(failed)?;
    harden(&conn, BUSY_TIMEOUT).map_err(failed)?;
    let format = check_format(&conn.unchecked_transaction().map_err(failed)?, data_dir)?;
    match format {
        0 => Err(LedgerError::Missing(path)),
        _ => Ok(conn),
    }
}

/// Reports whether the records can be read without the state, after this error: it is missing, or no ledger can read
/// it. The latter is a finding of a verification.
pub(super) fn is_dispensable(error: &LedgerError) -> bool {
    let is_bad = matches!(error, LedgerError::Damaged { .. } | LedgerError::Foreign(_) | LedgerError::Store { .. });
    if is_bad {
        tracing::warn!(%error, "records are read without those that an earlier version may have written there");
    }
    is_bad || matches!(error, LedgerError::Missing(_))
}

/// Hardens a connection. Anyone may have written the file, so its schema is not trusted, and its pages are checked when
/// read.
pub(super) fn harden(conn: &Connection, busy: Duration) -> rusqlite::Result<()> {
    conn.busy_timeout(busy)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    conn.pragma_update(None, "cell_size_check", true)
}

/// Returns the format, or 0 for an empty file. Both queries run in one transaction, because another broker may be
/// creating the ledger: between two separate queries, an empty file could come to look like another program's database.
fn check_format(conn: &Transaction<'_>, data_dir: &Path) -> Result<i64, LedgerError> {
    let number = |sql: &str| conn.query_row(sql, [], |row| row.get(0)).map_err(|e| error(data_dir, &e));
    let found: i64 = number("PRAGMA user_version")?;
    match found {
        0 if number("SELECT count(*) FROM sqlite_schema")? == 0 => Ok(0),
        1..=FORMAT => Ok(found),
        newer if newer > FORMAT => Err(LedgerError::Newer { path: path(data_dir), found, known: FORMAT }),
        _ => Err(LedgerError::Foreign(path(data_dir))),
    }
}

/// Retries while the database is busy: SQLite does not wait for other connections when the journal mode changes.
pub(super) fn retry_busy<T>(limit: Duration, mut work: impl FnMut() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
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

pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Converts an error of SQLite.
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

/// Returns the SQL that created the tables of an opened file.
pub(super) fn schema_for(conn: &Connection) -> rusqlite::Result<&'static str> {
    let format: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    Ok(if format < FORMAT { SCHEMA_2 } else { SCHEMA })
}

/// Returns the SQL of everything in a database, by name.
pub(super) fn schema_of(conn: &Connection) -> rusqlite::Result<BTreeMap<String, String>> {
    // Statistics belong to SQLite and may come and go.
    let mut query = conn.prepare(
        "SELECT name, coalesce(sql, '') FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_stat%' ESCAPE '\\'",
    )?;
    query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}
