//! Writing a chain's segments: each append is one write over space that was reserved before, and one `fdatasync`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use portcullis_core::digest::hex;
use portcullis_core::sync::Mutex;
use rustix::fs::{FlockOperation, flock};

use super::SegmentStart;
use super::frame::{self, Dictionary, HEADER_BYTES};
use crate::LedgerError;
use crate::chain::ChainTip;
use crate::files::WatchedFile;
use crate::record::ChainedRecord;
use crate::storage::{ChainWriter, StorageLimits, StorageProbe};

/// The size at which a segment is full and the next one begins, in bytes.
const SEGMENT_BYTES: u64 = 64 * 1024 * 1024;

/// The age at which a segment is full, so that old records can be removed although their broker still writes.
const SEGMENT_AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The space that is reserved at a time, in bytes: as much as the segment has already, within these limits. Writing
/// over zeros that are on disk is cheaper than making a file longer, because only the data must be synced.
const RESERVED_BYTES: std::ops::RangeInclusive<u64> = 64 * 1024..=4 * 1024 * 1024;

/// The size of a dictionary, in bytes. Records of the same tools repeat most of their text within it, and preparing it
/// for each frame takes about a microsecond.
const DICTIONARY_BYTES: usize = 4096;

/// The text after which a segment gets its first dictionary, in bytes; the next ones follow after eight times as much
/// each, since the first records of a broker are unlike those that follow.
const FIRST_DICTIONARY: u64 = 4096;
const DICTIONARY_GROWTH: u64 = 8;

/// The writer of one chain's segments.
pub(super) struct SegmentWriter {
    data_dir: PathBuf,
    chain: String,
    limits: StorageLimits,
    /// The segment that is being written; `None` until the first record.
    open: Option<OpenSegment>,
    /// The file that is being written and its expected content, for the probe.
    watched: Arc<Mutex<Option<(WatchedFile, u64)>>>,
    /// The last record that was written.
    tip: ChainTip,
    /// The buffer in which an append is put together.
    buffer: Vec<u8>,
}

/// The segment that is being written.
struct OpenSegment {
    number: u32,
    /// The time at which it was begun, by a clock that runs while the machine sleeps.
    begun: SystemTime,
    file: File,
    watched: WatchedFile,
    /// The end of the last frame that is on disk.
    end: u64,
    /// The header of that frame, and its place: somebody may cut or overwrite the file.
    last: (u64, [u8; HEADER_BYTES]),
    /// The size of the file.
    reserved: u64,
    /// The end of the longest append that failed. Its remains are overwritten with zeros.
    failed: u64,
    dictionary: Option<Dictionary>,
    /// The text of the segment so far, in bytes, and the amount at which the next dictionary is due.
    text: u64,
    dictionary_due: u64,
    /// The end of the text: the next dictionary.
    recent: Vec<u8>,
}

impl SegmentWriter {
    pub(super) fn new(data_dir: &Path, chain: &str, limits: StorageLimits) -> Self {
        let (data_dir, chain) = (data_dir.to_owned(), chain.to_owned());
        let watched = Arc::default();
        Self { data_dir, chain, limits, open: None, watched, tip: ChainTip::default(), buffer: Vec::new() }
    }

    /// Begins the next segment if there is none, or if the present one is full.
    fn segment(&mut self) -> Result<&mut OpenSegment, LedgerError> {
        let number = match &self.open {
            Some(open) if !open.is_full(self.limits) => None,
            Some(open) => Some(open.number + 1),
            None => Some(1),
        };
        if let Some(number) = number {
            let next = OpenSegment::create(&self.data_dir, &self.chain, number, self.tip, self.limits)?;
            if let Some(full) = self.open.replace(next) {
                full.finish()?;
            }
        }
        self.open.as_mut().ok_or(LedgerError::Closed)
    }
}

impl SegmentWriter {
    /// Tells the probe which file is written, and how much is in it.
    fn watch(&self) {
        let mut watched = self.watched.lock();
        match (&self.open, &mut *watched) {
            (Some(open), Some((file, end))) if file.is(&open.watched) => *end = open.end,
            (open, watched) => *watched = open.as_ref().map(|open| (open.watched.clone(), open.end)),
        }
    }
}

impl ChainWriter for SegmentWriter {
    fn append(&mut self, records: &[ChainedRecord]) -> Result<(), LedgerError> {
        let Some(last) = records.last() else { return Ok(()) };
        let mut buffer = std::mem::take(&mut self.buffer);
        let limits = self.limits;
        let written = self.segment().and_then(|segment| segment.append(records, &mut buffer, limits));
        self.buffer = buffer;
        if written.is_ok() {
            self.tip = ChainTip { seq: last.seq, hash: last.hash };
        }
        self.watch();
        written
    }

    fn probe(&self) -> StorageProbe {
        let watched = Arc::clone(&self.watched);
        Arc::new(move || {
            // Not under the lock: callers would wait for each other's check of the disk.
            let open = watched.lock().clone();
            open.map_or(Ok(()), |(file, end)| file.holds(end))
        })
    }

    fn finish(&mut self) -> Result<(), LedgerError> {
        self.open.take().map_or(Ok(()), OpenSegment::finish)
    }

    fn abandon(&mut self) {
        self.open = None;
        // It may not exist yet. If this fails, the chain reads as incomplete, which it is.
        let _ = fs::remove_file(super::path(&self.data_dir, &self.chain, 1));
    }
}

impl OpenSegment {
    /// Creates a segment with its first frame. Both the file and its name are on disk afterwards.
    fn create(
        data_dir: &Path,
        chain: &str,
        number: u32,
        tip: ChainTip,
        limits: StorageLimits,
    ) -> Result<Self, LedgerError> {
        let path = super::path(data_dir, chain, number);
        let failed = |error: io::Error| failure(&path, &error);
        let mut options = OpenOptions::new();
        // The remains of a failed attempt hold no record.
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(&path).map_err(failed)?;
        // A process that takes this broker for dead learns here that it lives, whatever the chain's lock file says.
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| failed(error.into()))?;
        let (format, hash, seq) = (super::FORMAT, hex(&tip.hash), tip.seq + 1);
        let start = SegmentStart { chain: chain.to_owned(), format, hash, segment: number, seq };
        let start = serde_json::to_string(&start).map_err(|error| failed(error.into()))?;
        let mut bytes = Vec::new();
        frame::push_start(&mut bytes, &start);
        let header = bytes.first_chunk().copied().unwrap_or([0; HEADER_BYTES]);
        let watched = WatchedFile::of(path.clone()).map_err(failed)?;
        let mut segment = Self {
            number,
            begun: SystemTime::now(),
            file,
            watched,
            end: 0,
            last: (0, header),
            reserved: 0,
            failed: 0,
            dictionary: None,
            text: 0,
            dictionary_due: FIRST_DICTIONARY,
            recent: Vec::new(),
        };
        segment.reserve(bytes.len() as u64, limits)?;
        segment.file.write_all_at(&bytes, 0).map_err(failed)?;
        segment.file.sync_data().map_err(failed)?;
        segment.end = bytes.len() as u64;
        let folder = super::folder(data_dir);
        File::open(&folder).and_then(|folder| folder.sync_all()).map_err(|error| failure(&folder, &error))?;
        Ok(segment)
    }

    /// Reports whether the next segment must begin: never while remains of a failed append follow the end, because
    /// readers would take those for the end of the chain, or for its records.
    fn is_full(&self, limits: StorageLimits) -> bool {
        if self.failed > self.end {
            return false;
        }
        // A clock that was set back makes a segment younger, which does no harm.
        let age = self.begun.elapsed().unwrap_or_default();
        self.end >= limits.segment.unwrap_or(SEGMENT_BYTES) || age >= limits.age.unwrap_or(SEGMENT_AGE)
    }

    /// Appends records in one write, and waits until they are on disk. After an error nothing of them counts: the next
    /// append overwrites them.
    fn append(
        &mut self,
        records: &[ChainedRecord],
        buffer: &mut Vec<u8>,
        limits: StorageLimits,
    ) -> Result<(), LedgerError> {
        self.check()?;
        buffer.clear();
        let due = self.text >= self.dictionary_due;
        let fresh = due.then(|| {
            frame::push_dictionary(buffer, &self.recent);
            Dictionary { offset: u32::try_from(self.end).unwrap_or(u32::MAX), text: self.recent.clone() }
        });
        let last = frame::push_records(buffer, records, fresh.as_ref().or(self.dictionary.as_ref()));
        let header = buffer.get(last..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; HEADER_BYTES]);
        let end = self.end + buffer.len() as u64;
        buffer.resize(buffer.len().max(usize::try_from(self.failed.saturating_sub(self.end)).unwrap_or(0)), 0);
        self.reserve(self.end + buffer.len() as u64, limits)?;
        self.failed = self.end + buffer.len() as u64;
        self.file.write_all_at(buffer, self.end).map_err(|error| self.failure(&error))?;
        self.file.sync_data().map_err(|error| self.failure(&error))?;
        self.failed = 0;
        self.last = (self.end + last as u64, header);
        self.end = end;
        if due {
            self.dictionary = fresh;
            self.dictionary_due = self.dictionary_due.saturating_mul(DICTIONARY_GROWTH);
        }
        self.remember(records);
        Ok(())
    }

    /// Keeps the end of the text for the next dictionary.
    fn remember(&mut self, records: &[ChainedRecord]) {
        for record in records {
            self.text += record.text.len() as u64 + 1;
            let start = record.text.len().saturating_sub(DICTIONARY_BYTES - 1);
            self.recent.extend_from_slice(record.text.as_bytes().get(start..).unwrap_or_default());
            self.recent.push(b'\n');
        }
        self.recent.drain(..self.recent.len().saturating_sub(DICTIONARY_BYTES));
    }

    /// Makes sure that the file has space up to `end`. Zeros are written, because the file system must note for space
    /// that was only allocated when it is written for the first time.
    fn reserve(&mut self, end: u64, limits: StorageLimits) -> Result<(), LedgerError> {
        if end <= self.reserved {
            return Ok(());
        }
        let most = limits.bytes.unwrap_or(u64::MAX);
        let ahead = self.reserved.clamp(*RESERVED_BYTES.start(), *RESERVED_BYTES.end());
        // On a nearly full disk, the needed bytes may fit where a reserve does not.
        let mut last = LedgerError::Full(self.watched.path().to_owned());
        for target in [end + ahead, end] {
            if target > most {
                continue;
            }
            let zeros = vec![0; usize::try_from(target - self.reserved).unwrap_or(0)];
            match self.file.write_all_at(&zeros, self.reserved).and_then(|()| self.file.sync_data()) {
                Ok(()) => {
                    self.reserved = target;
                    return Ok(());
                }
                Err(error) => last = self.failure(&error),
            }
        }
        Err(last)
    }

    /// Checks that the file is in its place, and that the last frame is still there.
    fn check(&self) -> Result<(), LedgerError> {
        self.watched.holds(self.end)?;
        let (at, expected) = &self.last;
        let mut found = [0; HEADER_BYTES];
        let read = self.file.read_exact_at(&mut found, *at);
        read.map_err(|error| self.failure(&error))?;
        if found != *expected {
            let cause = format!("what was written at byte {at} is not there any more");
            return Err(LedgerError::Cut { path: self.watched.path().to_owned(), cause });
        }
        Ok(())
    }

    fn failure(&self, error: &io::Error) -> LedgerError {
        failure(self.watched.path(), error)
    }

    /// Gives back the space that was reserved and not used.
    fn finish(self) -> Result<(), LedgerError> {
        let cut = self.file.set_len(self.end).and_then(|()| self.file.sync_all());
        cut.map_err(|error| self.failure(&error))
    }
}

/// Converts an error of the file system.
fn failure(path: &Path, error: &io::Error) -> LedgerError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            LedgerError::Full(path.to_owned())
        }
        _ => LedgerError::file("write", path, error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;
    use crate::record::{RecordHash, hash};
    use crate::segment::Segments;
    use crate::storage::{ChainEnd, ChainPosition, Storage as _};

    fn records(n: usize) -> Vec<ChainedRecord> {
        let mut before = RecordHash::default();
        let next = |seq| {
            let text = format!("{{\"seq\":{seq},\"random\":\"{}\"}}", ulid::Ulid::generate());
            before = hash(&before, text.as_bytes());
            ChainedRecord { seq, text, hash: before }
        };
        (1..=n as u64).map(next).collect()
    }

    /// Whatever a failed append left behind, the next ones take its place.
    #[test]
    fn what_a_failed_append_left_is_overwritten_and_never_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(crate::segment::folder(dir.path())).unwrap();
        let storage = Segments::new(dir.path(), StorageLimits::default());
        let (all, lost) = (records(40), records(90));
        let mut writer = SegmentWriter::new(dir.path(), "X", StorageLimits::default());
        writer.append(&all[..10]).unwrap();
        for (from, to) in [(10, 11), (11, 30), (30, 40)] {
            let open = writer.open.as_mut().unwrap();
            // The frames of an append that reached the disk although it was reported as failed.
            let mut frames = Vec::new();
            frame::push_records(&mut frames, &lost[from..], None);
            open.file.write_all_at(&frames, open.end).unwrap();
            open.failed = open.end + frames.len() as u64;
            writer.append(&all[from..to]).unwrap();
            let mut reader = storage.read("X", ChainPosition::default()).unwrap();
            let mut read = Vec::new();
            while let Some(batch) = reader.next().unwrap() {
                read.extend(batch.records);
            }
            assert_eq!((read.len(), reader.end().unwrap()), (to, ChainEnd::Clean));
            assert_eq!(read, all[..to]);
        }
    }

    #[test]
    fn a_segment_ends_only_once_nothing_is_left_of_a_failed_append() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(crate::segment::folder(dir.path())).unwrap();
        let limits = StorageLimits { age: Some(Duration::ZERO), ..StorageLimits::default() };
        let all = records(4);
        let mut writer = SegmentWriter::new(dir.path(), "X", limits);
        for (from, leaves, number) in [(0, false, 1), (1, false, 2), (2, true, 2), (3, false, 3)] {
            if leaves {
                let open = writer.open.as_mut().unwrap();
                open.failed = open.end + 100;
            }
            writer.append(&all[from..=from]).unwrap();
            assert_eq!(writer.open.as_ref().unwrap().number, number, "record {from}");
        }
    }
}
