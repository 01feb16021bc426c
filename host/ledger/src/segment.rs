//! Segments: the files in which a chain's records are kept on a disk.
//!
//! A segment is a sequence of frames. Each append is one write of whole frames. A crash can leave a part of the last
//! one, which was never confirmed: its whole frames count, and readers stop before the rest. Nothing that was confirmed
//! is ever written again.

mod digest;
mod frame;
mod reader;
mod writer;

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use portcullis_core::private;
use portcullis_core::private::regular_file::{self, Symlinks};
use rustix::fs::{FlockOperation, flock};

use super::chain::ChainTip;
use super::files::names_in;
use super::removed::RemovedRecords;
use super::storage::{
    ChainEnd, ChainPosition, ChainReader, ChainWriter, SegmentDigest, Storage, StorageLimits, StorageLock,
};
use super::{LedgerError, chain};

/// The version of the format of segments and records.
pub(super) const FORMAT: u32 = 2;

/// The extension of the files' names.
const EXTENSION: &str = "records";

/// The extension of the files with the remaining data of removed records.
const REMOVED: &str = "removed";

/// The largest such file that is read, in bytes. Each chain that the removed records sealed takes some 300 of it.
const MAX_REMOVED_BYTES: u64 = 256 * 1024 * 1024;

/// The content of a segment's first frame.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct SegmentStart {
    /// The chain.
    chain: String,
    /// The version of the format.
    format: u32,
    /// The hash of the record before the first one, in hexadecimal digits.
    hash: String,
    /// The number of the segment, from 1.
    segment: u32,
    /// The number of the first record.
    seq: u64,
}

/// The segments in a data folder.
#[derive(Debug, Clone)]
pub(super) struct Segments {
    data_dir: PathBuf,
    limits: StorageLimits,
}

impl Segments {
    pub(super) fn new(data_dir: &Path, limits: StorageLimits) -> Self {
        Self { data_dir: data_dir.to_owned(), limits }
    }
}

impl Segments {
    fn remove_segment(&self, chain: &str, number: u32) -> Result<(), LedgerError> {
        let path = path(&self.data_dir, chain, number);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(LedgerError::file("remove", &path, error)),
            _ => Ok(()),
        }
    }

    /// Locks the folder. It has a lock, and not a file in it, because a reader may not be allowed to write there.
    fn lock(&self, how: FlockOperation) -> Result<Option<StorageLock>, LedgerError> {
        let folder = folder(&self.data_dir);
        let failed = |error: io::Error| LedgerError::file("lock", &folder, error);
        let opened = match File::open(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        match flock(&opened, how) {
            Ok(()) => Ok(Some(Box::new(opened))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(failed(error.into())),
        }
    }
}

impl Storage for Segments {
    fn create(&self, chain: &str) -> Box<dyn ChainWriter> {
        Box::new(writer::SegmentWriter::new(&self.data_dir, chain, self.limits))
    }

    fn chains(&self) -> Result<BTreeSet<String>, LedgerError> {
        let names = names_in(&folder(&self.data_dir))?;
        Ok(names.iter().filter_map(|name| parse(name)).map(|(chain, _)| chain.to_owned()).collect())
    }

    fn last_place(&self, chain: &str) -> Result<ChainPosition, LedgerError> {
        let first = self.removed(chain)?.map_or(1, |removed| removed.segment + 1);
        // A chain has few segments, and the folder may have those of thousands of chains.
        let following = (first + 1..).take_while(|number| path(&self.data_dir, chain, *number).exists());
        Ok(ChainPosition { segment: following.last().unwrap_or(first), offset: 0 })
    }

    fn read(&self, chain: &str, from: ChainPosition) -> Result<Box<dyn ChainReader>, LedgerError> {
        let removed = self.removed(chain)?;
        let (segment, tip) = removed.map_or((1, ChainTip::default()), |removed| (removed.segment + 1, removed.tip));
        let first = ChainPosition { segment, offset: 0 };
        let (from, tip) = if from <= first { (first, Some(tip)) } else { (from, None) };
        Ok(Box::new(reader::SegmentReader::open(&self.data_dir, chain, from, tip)?))
    }

    fn removed(&self, chain: &str) -> Result<Option<RemovedRecords>, LedgerError> {
        let path = removed_path(&self.data_dir, chain);
        let Some(file) = open(&path)? else { return Ok(None) };
        let mut text = String::new();
        let read = file.take(MAX_REMOVED_BYTES).read_to_string(&mut text);
        read.map_err(|error| LedgerError::file("read", &path, error))?;
        RemovedRecords::parse(&text, chain).map(Some).ok_or_else(|| RemovedRecords::damaged(&path))
    }

    fn removed_chains(&self) -> Result<BTreeSet<String>, LedgerError> {
        let names = names_in(&folder(&self.data_dir))?;
        let chain = |name: &String| {
            let chain = name.strip_suffix(REMOVED)?.strip_suffix('.')?;
            chain::is_name(chain).then(|| chain.to_owned())
        };
        Ok(names.iter().filter_map(chain).collect())
    }

    fn remove(&self, removed: &RemovedRecords) -> Result<(), LedgerError> {
        let left = removed_path(&self.data_dir, &removed.chain);
        let before = self.removed(&removed.chain)?.map_or(0, |before| before.segment);
        let text = removed.to_text();
        private::replace(&left, text.as_bytes()).map_err(|error| LedgerError::file("write", &left, error))?;
        (before + 1..=removed.segment).try_for_each(|number| self.remove_segment(&removed.chain, number))
    }

    fn complete_removals(&self) -> Result<(), LedgerError> {
        let names = names_in(&folder(&self.data_dir))?;
        let mut segments: HashMap<&str, Vec<u32>> = HashMap::new();
        for (chain, number) in names.iter().filter_map(|name| parse(name)) {
            segments.entry(chain).or_default().push(number);
        }
        for chain in self.removed_chains()? {
            let Some(numbers) = segments.get(chain.as_str()) else { continue };
            let last = match self.removed(&chain) {
                Ok(removed) => removed.map_or(0, |removed| removed.segment),
                Err(error) => {
                    tracing::warn!(chain, %error, "a removal of old records cannot be completed");
                    continue;
                }
            };
            let mut left = numbers.iter().filter(|number| **number <= last);
            left.try_for_each(|number| self.remove_segment(&chain, *number))?;
        }
        Ok(())
    }

    fn lock_for_removal(&self) -> Result<Option<StorageLock>, LedgerError> {
        self.lock(FlockOperation::NonBlockingLockExclusive)
    }

    fn lock_for_reading(&self) -> Result<Option<StorageLock>, LedgerError> {
        self.lock(FlockOperation::LockShared)
    }

    fn lock_dead(&self, chain: &str) -> Result<Option<StorageLock>, LedgerError> {
        // One that cannot be read is left to the verification.
        let last = || self.last_place(chain).ok().map(|place| place.segment);
        let Some(number) = last() else { return Ok(None) };
        let Some(file) = open(&path(&self.data_dir, chain, number))? else { return Ok(None) };
        // A writer holds the segment that it writes, and begins the next one before it releases it.
        let is_dead = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() && last() == Some(number);
        Ok(is_dead.then(|| Box::new(file) as StorageLock))
    }

    fn digest(&self, chain: &str, upto: ChainPosition) -> Result<Option<(SegmentDigest, bool)>, LedgerError> {
        digest::read(&path(&self.data_dir, chain, upto.segment), upto)
    }

    fn finish(&self, chain: &str, end: ChainPosition, tail: &ChainEnd) -> Result<(), LedgerError> {
        let path = path(&self.data_dir, chain, end.segment.max(1));
        let finished = regular_file::open_with(OpenOptions::new().write(true), &path, Symlinks::Refuse);
        let finished = finished.map_err(io::Error::from).and_then(|file| {
            // Its writer holds this lock while it lives.
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            if *tail == ChainEnd::Clean {
                file.set_len(end.offset)?;
            }
            file.sync_all()
        });
        match finished {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(LedgerError::file("write", &path, error)),
            _ => Ok(()),
        }
    }
}

/// Opens a file for reading; `None` if there is none.
fn open(path: &Path) -> Result<Option<File>, LedgerError> {
    regular_file::open(path, Symlinks::Refuse).map_err(|error| LedgerError::file("read", path, io::Error::from(error)))
}

/// Returns the folder of the segments.
pub(super) fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("records")
}

/// Returns the path of a segment, which are numbered from 1.
pub(super) fn path(data_dir: &Path, chain: &str, number: u32) -> PathBuf {
    folder(data_dir).join(format!("{chain}-{number:06}.{EXTENSION}"))
}

/// Returns the path of the file with the remaining data of a chain's removed records.
pub(super) fn removed_path(data_dir: &Path, chain: &str) -> PathBuf {
    folder(data_dir).join(format!("{chain}.{REMOVED}"))
}

/// Returns the chain and the number in a segment's name.
fn parse(name: &str) -> Option<(&str, u32)> {
    let (chain, number) = name.strip_suffix(EXTENSION)?.strip_suffix('.')?.rsplit_once('-')?;
    chain::is_name(chain).then_some((chain, number.parse().ok()?))
}
