//! The stores of component sources: keys and values that outlive a call, in a file for each source and profile.
//!
//! The files are SQLite databases in the data folder: each write is atomic, even if the broker is killed or the machine
//! loses power, and several brokers may share a folder.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use portcullis_core::name::{ProfileName, SourceName};
use portcullis_core::sync::Mutex;
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, params};
use rustix::fs::{FlockOperation, flock};

/// The largest key in bytes: room for a few names joined together.
const KEY_BYTES: usize = 512;

/// The largest value in bytes: room for a long text.
const VALUE_BYTES: usize = 256 << 10;

/// The most changes in one write, which locks the file for as long as it takes.
const CHANGES: usize = 1000;

/// The largest store in bytes, including SQLite's own overhead: room for years of a profile's notes.
const STORE_BYTES: i64 = 64 << 20;

/// The most bytes and entries that one scan returns.
const SCAN_BYTES: usize = 1 << 20;
const SCAN_ENTRIES: u32 = 10_000;

/// The longest time that a write waits while another broker holds the file.
const BUSY: Duration = Duration::from_secs(5);

const PAGE_BYTES: i64 = 4096;

/// A key and its new value, or `None` to remove the key.
pub type KeyValueChange = (String, Option<Vec<u8>>);

/// The stores of one source. Creating it opens nothing.
pub struct KeyValue {
    folder: PathBuf,
    open: Mutex<HashMap<ProfileName, KeyValueStore>>,
}

/// The store of one source and profile. Cheap to clone.
#[derive(Clone)]
pub struct KeyValueStore {
    file: Arc<PathBuf>,
    /// Opened at the first use. A task that waits for it holds no thread.
    connection: Arc<tokio::sync::Mutex<Option<Connection>>>,
}

impl KeyValue {
    /// Returns the stores of a source in the data folder.
    pub fn new(data_dir: &Path, source: &SourceName) -> Self {
        Self { folder: data_dir.join("key-value").join(source.as_str()), open: Mutex::default() }
    }

    /// Returns the store of a profile.
    pub fn of(&self, profile: &ProfileName) -> KeyValueStore {
        let mut open = self.open.lock();
        let fresh = || {
            let file = self.folder.join(format!("{profile}.sqlite"));
            KeyValueStore { file: Arc::new(file), connection: Arc::default() }
        };
        open.entry(profile.clone()).or_insert_with(fresh).clone()
    }
}

impl std::fmt::Debug for KeyValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyValue").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl KeyValueStore {
    /// Returns the value of a key. Cancellation safe, like all methods of the store: work that has begun is completed,
    /// and work that waits for its turn is not done.
    ///
    /// # Errors
    /// A text for the component that asked.
    pub async fn get(&self, key: String) -> Result<Option<Vec<u8>>, String> {
        check_key(&key)?;
        self.run(move |connection| {
            let mut query = connection.prepare_cached("SELECT value FROM entries WHERE key = ?")?;
            query.query_row([&key], |row| row.get(0)).optional()
        })
        .await
    }

    /// Returns the keys that begin with `prefix` and follow `after`, with their values.
    ///
    /// # Errors
    /// A text for the component that asked.
    pub(crate) async fn scan(
        &self,
        prefix: String,
        after: String,
        limit: u32,
    ) -> Result<Vec<(String, Vec<u8>)>, String> {
        self.run(move |connection| {
            let mut query = connection
                .prepare_cached("SELECT key, value FROM entries WHERE key >= ?1 AND key > ?2 ORDER BY key LIMIT ?3")?;
            let mut rows = query.query(params![prefix, after, limit.min(SCAN_ENTRIES)])?;
            let (mut found, mut bytes) = (Vec::new(), 0);
            while let Some(row) = rows.next()? {
                let entry: (String, Vec<u8>) = (row.get(0)?, row.get(1)?);
                bytes += entry.0.len() + entry.1.len();
                if !entry.0.starts_with(&prefix) || (bytes > SCAN_BYTES && !found.is_empty()) {
                    break;
                }
                found.push(entry);
            }
            Ok(found)
        })
        .await
    }

    /// Makes all changes or none. They are on disk when it returns.
    ///
    /// # Errors
    /// A text for the component that asked.
    pub async fn write(&self, changes: Vec<KeyValueChange>) -> Result<(), String> {
        if changes.len() > CHANGES {
            return Err(format!("{} changes at once; at most {CHANGES} are allowed", changes.len()));
        }
        for (key, value) in &changes {
            check_key(key)?;
            if let Some(value) = value.as_ref().filter(|value| value.len() > VALUE_BYTES) {
                return Err(format!("a value of {} bytes; at most {VALUE_BYTES} are allowed", value.len()));
            }
        }
        self.run(move |connection| {
            let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
            for (key, value) in &changes {
                match value {
                    Some(value) => transaction
                        .prepare_cached("INSERT OR REPLACE INTO entries (key, value) VALUES (?, ?)")?
                        .execute(params![key, value])?,
                    None => transaction.prepare_cached("DELETE FROM entries WHERE key = ?")?.execute([key])?,
                };
            }
            transaction.commit()
        })
        .await
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, String> {
        let (file, mut place) = (Arc::clone(&self.file), Arc::clone(&self.connection).lock_owned().await);
        let done = tokio::task::spawn_blocking(move || {
            let connection = match &mut *place {
                Some(connection) => connection,
                none => none.insert(open(&file)?),
            };
            work(connection).map_err(|error| message_for_guest(&error))
        });
        done.await.unwrap_or_else(|error| Err(format!("the store was cut off: {error}")))
    }
}

fn check_key(key: &str) -> Result<(), String> {
    match key.len() {
        1..=KEY_BYTES => Ok(()),
        bytes => Err(format!("a key of {bytes} bytes; a key has 1 to {KEY_BYTES}")),
    }
}

fn open(file: &Path) -> Result<Connection, String> {
    let failed = |error: &dyn std::fmt::Display| {
        tracing::warn!(file = %file.display(), %error, "the store of a source cannot be opened");
        "the store cannot be opened; the broker's log says why".to_owned()
    };
    let folder = file.parent().unwrap_or(file);
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| failed(&error))?;
    // Databases are created one at a time: SQLite does not wait for another process that creates the same one.
    let turn = File::open(folder).map_err(|error| failed(&error))?;
    flock(&turn, FlockOperation::LockExclusive).map_err(|error| failed(&error))?;
    // Created here, so that it is private from its first byte. A file that exists is not opened: closing it would
    // release the locks that SQLite holds on it in this process.
    match OpenOptions::new().create_new(true).append(true).mode(0o600).open(file) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(&error)),
        _ => {}
    }
    prepared(file).map_err(|error| failed(&error))
}

fn prepared(file: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(file)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "max_page_count", STORE_BYTES / PAGE_BYTES)?;
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID",
    )?;
    Ok(connection)
}

/// Returns the text of an error for the component: without paths of this machine.
fn message_for_guest(error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            format!("the store is full: each profile may store {} MiB", STORE_BYTES >> 20)
        }
        Some(ErrorCode::DatabaseBusy) => format!("another broker held the store for {} s", BUSY.as_secs()),
        _ => {
            tracing::warn!(%error, "the store of a source failed");
            "the store failed; the broker's log says why".to_owned()
        }
    }
}

#[cfg(test)]
mod tests;
