//! Chains that are being written, and how far each has come: one lock file per chain, held while its broker lives.
//!
//! These files stay when their brokers are gone: under another name once the chain has its end, and under a third one
//! once another chain has sealed it. Each says how far its chain had come, and so bears witness to records that
//! somebody removed later.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use portcullis_core::digest::{Digest, hex};
use portcullis_core::private::regular_file::{self, Symlinks};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest as _, Sha256};

use super::LedgerError;
use super::evidence::CheckpointKey;
use super::files::{names_in, sync_folder};
use super::record::RecordHash;

/// The folder of the chains' lock files, in the data folder.
pub(super) const FOLDER: &str = "chains";

/// The extensions of a lock file's name: before the chain has its end, afterwards, and when another chain recorded it.
const LOCKED: &str = "lock";
const ENDED: &str = "ended";
const SEALED: &str = "sealed";

/// More bytes than the line of a lock file has: a number and a hash.
const MAX_LINE_BYTES: u64 = 256;

/// The number of attempts to read a lock file that is being written, which takes microseconds.
const READ_TRIES: usize = 10;

/// The age at which a lock file that was not yet renamed belongs to a broker that died: a start takes milliseconds.
const UNFINISHED_AGE: Duration = Duration::from_secs(60);

/// The facts that the first record of a chain states about its broker.
#[derive(Debug, Clone)]
pub struct ChainStart {
    /// The broker's version.
    pub version: String,
    /// The digest of its configuration.
    pub config: Digest,
    /// The key that signs checkpoints of the chain; without one there are none.
    pub key: Option<Arc<CheckpointKey>>,
}

/// The last record of a chain. An empty chain has number 0 and a hash of zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ChainTip {
    pub(super) seq: u64,
    pub(super) hash: RecordHash,
}

/// The lock on the chain that this broker writes. Dropping it releases the chain.
#[derive(Debug)]
pub(super) struct ChainLock {
    chain: String,
    path: PathBuf,
    held: File,
}

impl ChainLock {
    /// Begins a new chain and locks it.
    pub(super) fn create(data_dir: &Path) -> Result<Self, LedgerError> {
        Self::named(data_dir, ulid::Ulid::generate().to_string())
    }

    pub(super) fn named(data_dir: &Path, chain: String) -> Result<Self, LedgerError> {
        let path = path(data_dir, &chain);
        let fresh = path.with_extension("new");
        let failed = |error: &dyn std::fmt::Display| LedgerError::file("lock", &path, error);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh);
        let file = file.map_err(|error| failed(&error))?;
        // It is locked before it gets its name, so it is never visible unlocked while this broker lives.
        let named = flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(io::Error::from);
        let lock = Self { chain, path: path.clone(), held: file };
        // The first position is written now, so that the file has its space before the disk can be full.
        let named = named
            .and_then(|()| lock.write_position(ChainTip::default()))
            .and_then(|()| lock.held.sync_all())
            .and_then(|()| fs::rename(&fresh, &path));
        if let Err(error) = named {
            // If this fails too, the next broker removes it.
            let _ = fs::remove_file(&fresh);
            return Err(failed(&error));
        }
        // It is on disk before the chain has a record: without it nobody would seal the chain.
        if let Err(error) = sync_folder(&data_dir.join(FOLDER)) {
            lock.abandon();
            return Err(error);
        }
        Ok(lock)
    }

    /// Writes how far the chain has come. It writes in place, so that it needs no more space on the disk, and does not
    /// sync, since only a crash of the machine could lose the write.
    pub(super) fn write_position(&self, end: ChainTip) -> io::Result<()> {
        self.held.write_all_at(line(end).as_bytes(), 0)
    }

    pub(super) fn chain(&self) -> &str {
        &self.chain
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Says that the chain has its end, and releases it.
    pub(super) fn mark_ended(self) {
        rename(&self.path, ENDED);
    }

    /// Removes the lock file of a chain that never got a record.
    pub(super) fn abandon(self) {
        // If this fails, the chain reads as incomplete, which it is.
        let _ = fs::remove_file(&self.path);
    }
}

/// Reports whether a broker holds this chain at the moment.
pub fn is_live(data_dir: &Path, chain: &str) -> bool {
    open(&path(data_dir, chain))
        .is_some_and(|file| flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK))
}

/// Reports whether a broker writes to the ledger of this data folder at the moment.
///
/// # Errors
/// If the folder of the chains cannot be read.
pub fn has_live_chain(data_dir: &Path) -> Result<bool, LedgerError> {
    Ok(list(data_dir, &[LOCKED])?.iter().any(|chain| is_live(data_dir, chain)))
}

/// The lock on a chain whose broker is gone, so that only one other broker seals it. Dropping it releases the chain.
#[derive(Debug)]
pub(super) struct UnsealedChainLock {
    path: PathBuf,
    _held: File,
}

impl UnsealedChainLock {
    /// Locks a chain that is not sealed, or returns `None` if its broker lives, another broker seals it, or that cannot
    /// be determined.
    pub(super) fn take(data_dir: &Path, chain: &str) -> Option<Self> {
        let path = path(data_dir, chain);
        let ended = path.with_extension(ENDED);
        let path = if ended.exists() { ended } else { path };
        let held = open(&path)?;
        flock(&held, FlockOperation::NonBlockingLockExclusive).ok()?;
        // Another broker may have sealed the chain before this one got the lock.
        path.exists().then_some(Self { path, _held: held })
    }

    /// Locks a chain whose lock file was lost, and gives it another; `None` if it has one. The caller knows that its
    /// broker is gone, and keeps other brokers from the chain meanwhile.
    pub(super) fn take_without_file(data_dir: &Path, chain: &str) -> Option<Self> {
        let path = path(data_dir, chain);
        // In the order in which it gets these names.
        if [LOCKED, ENDED, SEALED].iter().any(|extension| path.with_extension(extension).exists()) {
            return None;
        }
        match ChainLock::named(data_dir, chain.to_owned()) {
            Ok(ChainLock { path, held, .. }) => Some(Self { path, _held: held }),
            Err(error) => {
                tracing::warn!(chain, %error, "a chain of the ledger without a lock file is not sealed");
                None
            }
        }
    }

    /// Says that the end of the chain is recorded in another chain.
    pub(super) fn mark_sealed(self) {
        rename(&self.path, SEALED);
    }
}

/// Renames a lock file. If this fails, the next broker seals the chain, which may be a second time.
fn rename(path: &Path, extension: &str) {
    if let Err(error) = fs::rename(path, path.with_extension(extension)) {
        tracing::debug!(%error, ?path, "the lock file of a chain keeps its name");
    }
}

/// Reports whether a chain is known to have its end, and no broker holds it, whatever its lock file is called.
pub(super) fn is_ended(data_dir: &Path, chain: &str) -> bool {
    let path = path(data_dir, chain);
    let file = [ENDED, SEALED].into_iter().find_map(|extension| open(&path.with_extension(extension)));
    file.is_some_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_ok())
}

/// Returns how far a chain had come when its broker last wrote its lock file, or `None` if the file does not say so.
pub(super) fn witness(data_dir: &Path, chain: &str) -> Option<ChainTip> {
    let path = path(data_dir, chain);
    // A text that was read while it was being written is read again.
    (0..READ_TRIES).find_map(|_| read_position(&path))
}

fn read_position(path: &Path) -> Option<ChainTip> {
    let names = [LOCKED, ENDED, SEALED].into_iter().map(|extension| path.with_extension(extension));
    let text = names.into_iter().find_map(|path| read_line(&path))?;
    let mut words = text.split_ascii_whitespace();
    let end = ChainTip { seq: words.next()?.parse().ok()?, hash: hash_of(words.next()?)? };
    // This rejects a text that is half old and half new.
    (line(end) == text).then_some(end)
}

/// Reads a lock file. One that somebody else made may have any length, and none has more than a line.
fn read_line(path: &Path) -> Option<String> {
    let mut text = String::new();
    open(path)?.take(MAX_LINE_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Opens a lock file. Anything but a regular file counts as missing: a broker makes neither links nor named pipes.
fn open(path: &Path) -> Option<File> {
    regular_file::open(path, Symlinks::Refuse).ok().flatten()
}

/// Parses a hash of 64 hexadecimal digits.
pub(super) fn hash_of(digits: &str) -> Option<RecordHash> {
    let mut hash = RecordHash::default();
    if digits.len() != 2 * hash.len() {
        return None;
    }
    for (byte, digits) in hash.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(hash)
}

/// Removes unfinished lock files of brokers that died while they started.
pub(super) fn remove_unfinished(data_dir: &Path) {
    for entry in fs::read_dir(data_dir.join(FOLDER)).into_iter().flatten().flatten() {
        let age = || entry.metadata().and_then(|found| found.modified()).ok()?.elapsed().ok();
        if entry.path().extension().is_some_and(|kind| kind == "new") && age().is_some_and(|age| age > UNFINISHED_AGE) {
            // An error means that another broker removed it first.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Reports whether a text can be the name of a chain: ASCII letters and digits, at most 26, as a ULID has. Names are
/// used in file names and in signed texts.
pub(super) fn is_name(text: &str) -> bool {
    (1..=26).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Returns all chains that have a lock file, under any name.
pub(super) fn all(data_dir: &Path) -> Result<BTreeSet<String>, LedgerError> {
    list(data_dir, &[LOCKED, ENDED, SEALED])
}

/// Returns the chains whose lock files say that they have their end, or are sealed.
pub(super) fn ended(data_dir: &Path) -> Result<BTreeSet<String>, LedgerError> {
    list(data_dir, &[ENDED, SEALED])
}

/// Returns the chains whose lock files say that another chain has sealed them.
pub(super) fn sealed(data_dir: &Path) -> Result<BTreeSet<String>, LedgerError> {
    list(data_dir, &[SEALED])
}

fn list(data_dir: &Path, extensions: &[&str]) -> Result<BTreeSet<String>, LedgerError> {
    let names = names_in(&data_dir.join(FOLDER))?;
    let chain = |name: &String| {
        name.split_once('.')
            .filter(|(chain, found)| is_name(chain) && extensions.contains(found))
            .map(|(chain, _)| chain.to_owned())
    };
    Ok(names.iter().filter_map(chain).collect())
}

fn path(data_dir: &Path, chain: &str) -> PathBuf {
    data_dir.join(FOLDER).join(format!("{chain}.{LOCKED}"))
}

/// Returns the text of a lock file. Its length is constant, and its checksum rejects a half-written text.
pub(super) fn line(ChainTip { seq, hash }: ChainTip) -> String {
    let text = format!("{seq:020} {}", hex(&hash));
    let sum = hex(&Sha256::digest(text.as_bytes()));
    format!("{text} {}\n", sum.get(..16).unwrap_or_default())
}
