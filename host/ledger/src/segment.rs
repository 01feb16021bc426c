//! Segments: the files in which a chain's records are kept on a disk.
//!
//! A segment is a sequence of frames. Each append is one write of whole frames. A crash can leave a part of the last one,
//! which was never confirmed: its whole frames count, and readers stop before the rest. Nothing that was confirmed is
//! ever written again.

mod frame;
mod reader;
mod writer;

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::files::names_in;
use super::storage::{ChainReader, ChainWriter, Place, Storage, StorageLimits};
use super::{LedgerError, chain};

/// The version of the format of segments and records.
pub(super) const FORMAT: u32 = 2;

/// The extension of the files' names.
const EXTENSION: &str = "records";

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

impl Storage for Segments {
    fn create(&self, chain: &str) -> Box<dyn ChainWriter> {
        Box::new(writer::SegmentWriter::new(&self.data_dir, chain, self.limits))
    }

    fn chains(&self) -> Result<BTreeSet<String>, LedgerError> {
        let names = names_in(&folder(&self.data_dir))?;
        Ok(names.iter().filter_map(|name| parse(name)).map(|(chain, _)| chain.to_owned()).collect())
    }

    fn last_place(&self, chain: &str) -> Result<Place, LedgerError> {
        // A chain has few segments, and the folder may have those of thousands of chains.
        let following = (2..).take_while(|number| path(&self.data_dir, chain, *number).exists());
        Ok(Place { segment: following.last().unwrap_or(1), offset: 0 })
    }

    fn read(&self, chain: &str, from: Place) -> Result<Box<dyn ChainReader>, LedgerError> {
        Ok(Box::new(reader::SegmentReader::open(&self.data_dir, chain, from)?))
    }

    fn finish(&self, chain: &str, end: Place, is_clean: bool) -> Result<(), LedgerError> {
        let path = path(&self.data_dir, chain, end.segment.max(1));
        let finished = OpenOptions::new().write(true).open(&path).and_then(|file| {
            // Its writer holds this lock while it lives.
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            if is_clean {
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

/// Returns the folder of the segments.
pub(super) fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("records")
}

/// Returns the path of a segment, which are numbered from 1.
pub(super) fn path(data_dir: &Path, chain: &str, number: u32) -> PathBuf {
    folder(data_dir).join(format!("{chain}-{number:06}.{EXTENSION}"))
}

/// Returns the chain and the number that a segment's name says.
fn parse(name: &str) -> Option<(&str, u32)> {
    let (chain, number) = name.strip_suffix(EXTENSION)?.strip_suffix('.')?.rsplit_once('-')?;
    chain::is_name(chain).then_some((chain, number.parse().ok()?))
}
