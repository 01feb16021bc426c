//! Reading a chain's segments, while its broker may be writing them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::SegmentStart;
use super::frame::{Dictionary, FrameHeader, FrameKind, HEADER_BYTES, MAGIC};
use crate::LedgerError;
use crate::chain::{ChainTip, hash_of};
use crate::record::ChainedRecord;
use crate::storage::{ChainEnd, ChainPosition, ChainReader, SegmentDigest, SkippedBatch, StoredBatch};

/// The bytes that are read ahead: few at first, since a search reads single frames, and more with each time.
const FIRST_READ_BYTES: usize = 16 * 1024;
const MAX_READ_BYTES: usize = 256 * 1024;

/// The number of headers without their frames that are examined after the end of a segment.
const MAX_FALSE_STARTS: usize = 100;

/// A reader of the segments of one chain.
pub(super) struct SegmentReader {
    data_dir: PathBuf,
    chain: String,
    /// The segment that is being read; `None` if it does not exist.
    open: Option<SegmentFile>,
    place: ChainPosition,
    /// The last record that was read; `None` if nothing was read yet and the reader began in the middle.
    tip: Option<ChainTip>,
    /// The damage that a crash cannot explain, if any was found.
    damage: Option<String>,
    /// True if something follows the last frame that is not a whole one.
    is_torn: bool,
    /// The digest of the segment up to the place; `None` if none is kept.
    digest: Option<SegmentDigest>,
    /// The digests of the segments that were read to their end.
    ended: Vec<SegmentDigest>,
}

/// A whole frame.
struct Frame {
    bytes: [u8; HEADER_BYTES],
    header: FrameHeader,
    rest: Vec<u8>,
}

/// The content found at an offset of a file.
enum Found {
    Frame(Frame),
    /// Nothing was written there.
    Nothing,
    /// Something that is not a whole frame.
    Garbage,
}

impl SegmentReader {
    /// Opens a chain at a place. `tip` is the record before it, if it is known.
    pub(super) fn open(
        data_dir: &Path,
        chain: &str,
        place: ChainPosition,
        tip: Option<ChainTip>,
    ) -> Result<Self, LedgerError> {
        let open = SegmentFile::open(super::path(data_dir, chain, place.segment))?;
        let (data_dir, chain) = (data_dir.to_owned(), chain.to_owned());
        Ok(Self { data_dir, chain, open, place, tip, damage: None, is_torn: false, digest: None, ended: Vec::new() })
    }

    /// Returns the next frame of records, with its place.
    fn frame(&mut self) -> Result<Option<(ChainPosition, Frame)>, LedgerError> {
        while let Some(file) = &mut self.open {
            let place = self.place;
            match file.frame(place.offset)? {
                Found::Frame(frame) => {
                    self.place.offset += (HEADER_BYTES + frame.rest.len()) as u64;
                    if let Some(digest) = &mut self.digest {
                        digest.push(&frame.bytes);
                        digest.push(&frame.rest);
                    }
                    match (frame.header.kind, place.offset) {
                        (FrameKind::Records | FrameKind::MoreRecords, 1..) => {
                            self.tip = frame.tip();
                            return Ok(Some((place, frame)));
                        }
                        (FrameKind::Start, 0) if is_start(&frame.rest, &self.chain, place.segment, self.tip) => {}
                        (FrameKind::Dictionary, 1..) => {
                            file.dictionary = Some(Dictionary {
                                offset: u32::try_from(place.offset).unwrap_or(u32::MAX),
                                text: frame.rest,
                            });
                        }
                        _ => {
                            let cause =
                                format!("the frame at byte {} of {:?} is out of place", place.offset, file.path);
                            self.damage = Some(cause);
                            return Ok(None);
                        }
                    }
                }
                found => {
                    let torn = matches!(found, Found::Garbage);
                    let next = ChainPosition { segment: place.segment + 1, offset: 0 };
                    let following = SegmentFile::open(super::path(&self.data_dir, &self.chain, next.segment))?;
                    // The broker may have written more after this was read.
                    if file.is_written_since(place.offset)? {
                        continue;
                    }
                    let Some(following) = following else {
                        self.is_torn = torn;
                        return Ok(None);
                    };
                    if torn {
                        self.damage =
                            Some(format!("the records at byte {} of {:?} are damaged", place.offset, file.path));
                        return Ok(None);
                    }
                    (self.open, self.place) = (Some(following), next);
                    let next = self.digest.as_ref().map(|_| SegmentDigest::of(next.segment));
                    self.ended.extend(std::mem::replace(&mut self.digest, next));
                }
            }
        }
        Ok(None)
    }
}

impl ChainReader for SegmentReader {
    fn next(&mut self) -> Result<Option<StoredBatch>, LedgerError> {
        let Some((place, frame)) = self.frame()? else { return Ok(None) };
        let records = match &mut self.open {
            Some(file) => file.records(&frame)?,
            None => return Ok(None),
        };
        match records {
            Ok(records) => Ok(Some(StoredBatch { place, records })),
            Err(cause) => {
                self.damage = Some(cause);
                self.open = None;
                Ok(None)
            }
        }
    }

    fn skip(&mut self) -> Result<Option<SkippedBatch>, LedgerError> {
        let skipped = |(place, frame): (ChainPosition, Frame)| {
            Some(SkippedBatch { place, tip: frame.tip()?, hashes: frame.header.hashes(&frame.rest).to_vec() })
        };
        Ok(self.frame()?.and_then(skipped))
    }

    fn end(&mut self) -> Result<ChainEnd, LedgerError> {
        if let Some(cause) = &self.damage {
            return Ok(ChainEnd::Damaged(cause.clone()));
        }
        let ChainPosition { segment, offset: at } = self.place;
        if super::path(&self.data_dir, &self.chain, segment + 2).exists() {
            return Ok(ChainEnd::Damaged(format!("segment {} is missing", segment + 1)));
        }
        let Some(file) = &mut self.open else {
            let is_missing = super::path(&self.data_dir, &self.chain, segment + 1).exists();
            let cause = format!("segment {segment} is missing");
            return Ok(if is_missing { ChainEnd::Damaged(cause) } else { ChainEnd::Clean });
        };
        if file.goes_on_after(at)? && !file.is_written_since(at)? {
            return Ok(ChainEnd::Damaged(format!("the records at byte {at} of {:?} are damaged", file.path)));
        }
        Ok(if self.is_torn { ChainEnd::Torn } else { ChainEnd::Clean })
    }

    fn place(&self) -> ChainPosition {
        self.place
    }

    fn keep_digest(&mut self, before: SegmentDigest) {
        self.digest = Some(before);
    }

    fn digest(&self) -> Option<SegmentDigest> {
        self.digest.clone()
    }

    fn ended_segments(&mut self) -> Vec<SegmentDigest> {
        std::mem::take(&mut self.ended)
    }
}

/// Reports whether this is the first frame of this segment of this chain, and continues after this record, if it is
/// known.
fn is_start(json: &[u8], chain: &str, number: u32, tip: Option<ChainTip>) -> bool {
    let Ok(start) = serde_json::from_slice::<SegmentStart>(json) else { return false };
    let before = hash_of(&start.hash).map(|hash| ChainTip { seq: start.seq.saturating_sub(1), hash });
    (start.chain.as_str(), start.format, start.segment) == (chain, super::FORMAT, number)
        && before.is_some_and(|before| tip.is_none_or(|tip| tip == before))
}

impl Frame {
    /// Returns the frame's last record.
    fn tip(&self) -> Option<ChainTip> {
        Some(ChainTip { seq: self.header.next() - 1, hash: *self.header.hashes(&self.rest).last()? })
    }
}

/// A segment that is open for reading.
struct SegmentFile {
    path: PathBuf,
    file: File,
    /// Bytes that were read ahead, and where they begin.
    buffer: Vec<u8>,
    buffered_from: u64,
    /// The bytes that are read at once the next time.
    ahead: usize,
    /// The dictionary that was read last.
    dictionary: Option<Dictionary>,
}

impl SegmentFile {
    fn open(path: PathBuf) -> Result<Option<Self>, LedgerError> {
        Ok(super::open(&path)?.map(|file| Self {
            path,
            file,
            buffer: Vec::new(),
            buffered_from: 0,
            ahead: FIRST_READ_BYTES,
            dictionary: None,
        }))
    }

    /// Reads the frame at an offset.
    fn frame(&mut self, offset: u64) -> Result<Found, LedgerError> {
        let Some(bytes) = self.bytes(offset, HEADER_BYTES)?.first_chunk().copied() else {
            let rest = self.bytes(offset, HEADER_BYTES)?;
            return Ok(if rest.iter().any(|byte| *byte != 0) { Found::Garbage } else { Found::Nothing });
        };
        if bytes == [0; HEADER_BYTES] {
            return Ok(Found::Nothing);
        }
        let Some(header) = FrameHeader::parse(&bytes) else { return Ok(Found::Garbage) };
        let rest = self.bytes(offset + HEADER_BYTES as u64, header.length)?;
        if !header.is_whole(&bytes, rest) {
            return Ok(Found::Garbage);
        }
        let rest = rest.to_vec();
        Ok(Found::Frame(Frame { bytes, header, rest }))
    }

    /// Returns the records of a frame; the inner error describes its fault.
    fn records(&mut self, frame: &Frame) -> Result<Result<Vec<ChainedRecord>, String>, LedgerError> {
        if let Some(offset) = frame.header.dictionary()
            && self.dictionary.as_ref().is_none_or(|dictionary| dictionary.offset != offset)
        {
            let Found::Frame(Frame { header: FrameHeader { kind: FrameKind::Dictionary, .. }, rest, .. }) =
                self.frame(offset.into())?
            else {
                return Ok(Err(format!("the dictionary at byte {offset} is not there")));
            };
            self.dictionary = Some(Dictionary { offset, text: rest });
        }
        let dictionary = self.dictionary.as_ref().map_or(&[][..], |dictionary| &dictionary.text);
        Ok(frame.header.records(&frame.rest, dictionary))
    }

    /// Returns the bytes from an offset, fewer if the file ends.
    fn bytes(&mut self, offset: u64, length: usize) -> Result<&[u8], LedgerError> {
        let start = offset.checked_sub(self.buffered_from).and_then(|start| usize::try_from(start).ok());
        let held = start.is_some_and(|start| start + length <= self.buffer.len());
        if !held {
            self.buffer.resize(length.max(self.ahead), 0);
            self.ahead = MAX_READ_BYTES.min(2 * self.ahead);
            let mut filled = 0;
            while let Some(room) = self.buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
                match self.file.read_at(room, offset + filled as u64) {
                    Ok(0) => break,
                    Ok(read) => filled += read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(LedgerError::file("read", &self.path, error)),
                }
            }
            self.buffer.truncate(filled);
            self.buffered_from = offset;
        }
        let start = if held { start.unwrap_or(0) } else { 0 };
        let end = (start + length).min(self.buffer.len());
        Ok(self.buffer.get(start..end).unwrap_or_default())
    }

    /// Reports whether there is a whole frame at an offset by now.
    fn is_written_since(&mut self, offset: u64) -> Result<bool, LedgerError> {
        self.buffer.clear();
        Ok(matches!(self.frame(offset)?, Found::Frame(_)))
    }

    /// Reports whether an append begins anywhere after an offset: then the data there was not cut by a crash, since an
    /// append is confirmed before the next one is written. Frames of the same append do not count.
    fn goes_on_after(&mut self, offset: u64) -> Result<bool, LedgerError> {
        let mut at = offset + 1;
        let mut false_starts = 0;
        loop {
            let bytes = self.bytes(at, MAX_READ_BYTES)?;
            if bytes.len() < HEADER_BYTES {
                return Ok(false);
            }
            let searched = bytes.len() - HEADER_BYTES + 1;
            let starts_frame = |start: &usize| {
                bytes.get(*start..).and_then(<[u8]>::first_chunk).and_then(FrameHeader::parse).is_some()
            };
            let found = memchr::memmem::find_iter(bytes, &MAGIC).filter(|start| *start < searched);
            match found.into_iter().find(starts_frame) {
                None => at += searched as u64,
                Some(start) => {
                    at += start as u64;
                    match self.frame(at)? {
                        Found::Frame(frame) if frame.header.kind != FrameKind::MoreRecords => return Ok(true),
                        Found::Frame(frame) => at += (HEADER_BYTES + frame.rest.len()) as u64,
                        _ => {
                            false_starts += 1;
                            at += 1;
                        }
                    }
                    // No crash leaves this many.
                    if false_starts > MAX_FALSE_STARTS {
                        return Ok(true);
                    }
                }
            }
        }
    }
}
