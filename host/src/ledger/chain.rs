//! Which chains are being written, and how far: a lock file for each, held while its broker lives.
//!
//! The files stay when their brokers are gone. Each says how far its chain had come, so that it is the witness of records
//! that somebody removed.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest as _, Sha256};

use super::LedgerError;
use super::record::Hash;
use crate::digest::hex;

/// The folder of lock files, in the data folder.
pub(super) const FOLDER: &str = "chains";

/// How old a lock file without its name must be for its broker to have died: a start takes milliseconds.
const HALF_MADE: Duration = Duration::from_secs(60);

/// The last record of a chain. Number 0 with a hash of zeros where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct End {
    pub(super) seq: u64,
    pub(super) hash: Hash,
}

/// A chain of ours. Dropping it lets go.
#[derive(Debug)]
pub(super) struct Lock {
    chain: String,
    path: PathBuf,
    held: File,
}

impl Lock {
    /// Begins a chain.
    pub(super) fn create(data_dir: &Path) -> Result<Self, LedgerError> {
        let chain = ulid::Ulid::generate().to_string();
        let path = path(data_dir, &chain);
        let fresh = path.with_extension("new");
        let failed = |error: &dyn std::fmt::Display| LedgerError::file("lock", &path, error);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh);
        let file = file.map_err(|error| failed(&error))?;
        // Locked before it gets its name, so that nobody ever sees it unlocked while we live.
        let named = flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(io::Error::from);
        let lock = Self { chain, path: path.clone(), held: file };
        // Told already here, so that it has its bytes on the disk before that is full.
        let named = named.and_then(|()| lock.tell(End::default())).and_then(|()| fs::rename(&fresh, &path));
        if let Err(error) = named {
            // If this fails too, the next broker removes it.
            let _ = fs::remove_file(&fresh);
            return Err(failed(&error));
        }
        Ok(lock)
    }

    /// Says how far the chain has come: in place, so that it needs no further room on the disk, and not synced, as only the
    /// end of the machine could lose it.
    pub(super) fn tell(&self, end: End) -> io::Result<()> {
        self.held.write_all_at(line(end).as_bytes(), 0)
    }

    pub(super) fn chain(&self) -> &str {
        &self.chain
    }

    /// Lets go of a chain that never got a record.
    pub(super) fn abandon(self) {
        // If this fails, the chain reads as incomplete, which it is.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether a broker holds this chain at the moment.
pub(crate) fn is_live(data_dir: &Path, chain: &str) -> bool {
    match File::open(path(data_dir, chain)) {
        Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK),
        Err(_) => false,
    }
}

/// Whether no broker holds this chain any more. False where that cannot be told.
pub(super) fn is_dead(data_dir: &Path, chain: &str) -> bool {
    File::open(path(data_dir, chain)).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_ok())
}

/// How far a chain had come when its broker last said so. `None` where the file does not say it.
pub(super) fn witness(data_dir: &Path, chain: &str) -> Option<End> {
    let text = fs::read_to_string(path(data_dir, chain)).ok()?;
    let mut words = text.split_ascii_whitespace();
    let end = End { seq: words.next()?.parse().ok()?, hash: hash_of(words.next()?)? };
    // Also not where it is read while it is written.
    (line(end) == text).then_some(end)
}

/// The hash that 64 hexadecimal digits stand for.
pub(super) fn hash_of(digits: &str) -> Option<Hash> {
    let mut hash = Hash::default();
    if digits.len() != 2 * hash.len() {
        return None;
    }
    for (byte, digits) in hash.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(hash)
}

/// The last record of a chain in the database.
pub(super) fn end(conn: &Connection, chain: &str) -> rusqlite::Result<End> {
    let sql = "SELECT seq, hash FROM events WHERE chain = ?1 ORDER BY seq DESC LIMIT 1";
    let last = conn
        .prepare_cached(sql)?
        .query_row([chain], |row| Ok(End { seq: row.get::<_, i64>(0)?.cast_unsigned(), hash: row.get(1)? }))
        .optional()?;
    Ok(last.unwrap_or_default())
}

/// Removes lock files that a broker began to make and died.
pub(super) fn remove_half_made(data_dir: &Path) {
    for entry in fs::read_dir(data_dir.join(FOLDER)).into_iter().flatten().flatten() {
        let age = || entry.metadata().and_then(|found| found.modified()).ok()?.elapsed().ok();
        if entry.path().extension().is_some_and(|kind| kind == "new") && age().is_some_and(|age| age > HALF_MADE) {
            // Whoever removed it first did the same.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// All chains that left a lock file.
pub(super) fn all(data_dir: &Path) -> Result<BTreeSet<String>, LedgerError> {
    let folder = data_dir.join(FOLDER);
    let failed = |error: io::Error| LedgerError::file("read", &folder, error);
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries.map_err(failed)?,
    };
    let mut chains = BTreeSet::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        if let Some(chain) = name.to_str().and_then(|name| name.strip_suffix(".lock")) {
            chains.insert(chain.to_owned());
        }
    }
    Ok(chains)
}

fn path(data_dir: &Path, chain: &str) -> PathBuf {
    data_dir.join(FOLDER).join(format!("{chain}.lock"))
}

/// The text of a lock file: always of the same length, with a sum that a half-written one does not have.
fn line(End { seq, hash }: End) -> String {
    let text = format!("{seq:020} {}", hex(&hash));
    let sum = hex(&Sha256::digest(text.as_bytes()));
    format!("{text} {}\n", sum.get(..16).unwrap_or_default())
}
