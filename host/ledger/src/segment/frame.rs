//! A frame: the unit in which a segment is written. `docs/src/ledger-format.md` describes it for other programs.
//!
//! A frame begins with a header of 32 bytes, in little-endian order: `PLF2`, the CRC-32 of everything that follows in
//! the frame (4), the kind (1), the codec (1), the number of records (2), the length of what follows the header (4),
//! the length of the text (4), the offset of the dictionary (4), and the number of the first record (8). A frame of
//! records continues with their hashes, 32 bytes each, and their texts, each on a line, compressed.

use lz4_flex::block::get_maximum_output_size;
use lz4_flex::block::{compress_into, compress_into_with_dict, decompress, decompress_with_dict};

use crate::record::{ChainedRecord, RecordHash};

/// The length of a frame's header, in bytes.
pub(super) const HEADER_BYTES: usize = 32;

/// The bytes with which each frame begins.
pub(super) const MAGIC: [u8; 4] = *b"PLF2";

/// The places in a header of its checksum, of what that covers, and of the length.
const CHECKSUM_AT: usize = 4;
const COVERED_FROM: usize = 8;
const LENGTH_AT: usize = 12;

/// The text after which a frame takes no further record, in bytes.
const FULL_TEXT_BYTES: usize = 1024 * 1024;

/// The longest text of one frame, in bytes: it was not yet full, and then took the longest record (4 MiB, and a few
/// hundred bytes around its body).
const MAX_TEXT_BYTES: usize = 8 * 1024 * 1024;

/// The largest number of records of a frame.
const MAX_RECORDS: usize = 512;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// The first frame of a segment: JSON that names the chain and the place of the segment in it.
    Start = 1,
    /// Text that frames after it are compressed with.
    Dictionary = 2,
    /// Records, with which an append begins.
    Records = 3,
    /// Records of the same append as the frame before.
    MoreRecords = 4,
}

impl FrameKind {
    const ALL: [Self; 4] = [Self::Start, Self::Dictionary, Self::Records, Self::MoreRecords];

    /// Reports whether frames of this kind hold records.
    pub(super) fn has_records(self) -> bool {
        matches!(self, Self::Records | Self::MoreRecords)
    }
}

/// The way in which the text of a frame is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Codec {
    /// The text is stored uncompressed.
    Stored = 0,
    /// An LZ4 block.
    Lz4 = 1,
    /// An LZ4 block that refers to a dictionary.
    Lz4WithDictionary = 2,
}

/// The header of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameHeader {
    checksum: u32,
    pub(super) kind: FrameKind,
    codec: Codec,
    count: usize,
    /// The length of what follows the header, in bytes.
    pub(super) length: usize,
    text: usize,
    dictionary: u32,
    pub(super) first: u64,
}

/// A dictionary: its offset in the segment, and its text.
#[derive(Debug, Clone)]
pub(super) struct Dictionary {
    pub(super) offset: u32,
    pub(super) text: Vec<u8>,
}

impl FrameHeader {
    /// Reads a header; `None` if these bytes begin no frame.
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let word = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        let size = |at: usize| usize::try_from(word(at)?).ok();
        let [_, _, _, _, _, _, _, _, kind, codec, low, high, ..] = *bytes;
        let header = Self {
            checksum: word(CHECKSUM_AT)?,
            kind: FrameKind::ALL.into_iter().find(|known| *known as u8 == kind)?,
            codec: [Codec::Stored, Codec::Lz4, Codec::Lz4WithDictionary]
                .into_iter()
                .find(|known| *known as u8 == codec)?,
            count: u16::from_le_bytes([low, high]).into(),
            length: size(LENGTH_AT)?,
            text: size(16)?,
            dictionary: word(20)?,
            first: u64::from_le_bytes(bytes.get(24..)?.try_into().ok()?),
        };
        let has_records =
            header.count > 0 && header.first > 0 && header.first.checked_add(header.count as u64).is_some();
        let fits = header.text <= MAX_TEXT_BYTES
            && header.count <= MAX_RECORDS
            && header.kind.has_records() == has_records
            && header.length >= header.count * size_of::<RecordHash>()
            && header.length <= header.count * size_of::<RecordHash>() + get_maximum_output_size(header.text);
        (bytes.starts_with(&MAGIC) && fits).then_some(header)
    }

    /// Reports whether the frame is unchanged: `bytes` are its header, and `rest` is what follows it.
    pub(super) fn is_whole(&self, bytes: &[u8; HEADER_BYTES], rest: &[u8]) -> bool {
        rest.len() == self.length && checksum(bytes, rest) == self.checksum
    }

    /// Returns the offset of the dictionary that the text needs, if it needs one.
    pub(super) fn dictionary(&self) -> Option<u32> {
        (self.codec == Codec::Lz4WithDictionary).then_some(self.dictionary)
    }

    /// Returns the number after that of the frame's last record.
    pub(super) fn next(&self) -> u64 {
        self.first + self.count as u64
    }

    /// Returns the records of a whole frame. Whether they form a chain is not checked.
    ///
    /// # Errors
    /// The fault in the frame.
    pub(super) fn records(&self, rest: &[u8], dictionary: &[u8]) -> Result<Vec<ChainedRecord>, String> {
        let (hashes, packed) =
            rest.split_at_checked(self.count * size_of::<RecordHash>()).ok_or("a frame is shorter than its hashes")?;
        let text = match self.codec {
            Codec::Stored => Ok(packed.to_vec()),
            Codec::Lz4 => decompress(packed, self.text),
            Codec::Lz4WithDictionary => decompress_with_dict(packed, self.text, dictionary),
        };
        let text = text.map_err(|error| format!("a frame cannot be decompressed: {error}"))?;
        let text = String::from_utf8(text).map_err(|_| "the text of a frame is not UTF-8")?;
        let (hashes, _) = hashes.as_chunks::<{ size_of::<RecordHash>() }>();
        let records: Vec<_> = (self.first..)
            .zip(lines(&text).zip(hashes))
            .map(|(seq, (text, hash))| ChainedRecord { seq, text: text.to_owned(), hash: *hash })
            .collect();
        let count = lines(&text).count();
        if records.len() != self.count || count != self.count {
            return Err(format!("a frame of {} records has {count} lines", self.count));
        }
        Ok(records)
    }

    /// Returns the hashes of a frame's records; none if they are incomplete.
    pub(super) fn hashes<'a>(&self, rest: &'a [u8]) -> &'a [RecordHash] {
        rest.get(..self.count * size_of::<RecordHash>()).unwrap_or_default().as_chunks().0
    }
}

/// Returns the lines of a text; the last may have no line end.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let ends = memchr::memchr_iter(b'\n', text.as_bytes());
    let last = (!text.is_empty() && !text.ends_with('\n')).then_some(text.len());
    let mut start = 0;
    ends.chain(last).filter_map(move |end| {
        let line = text.get(start..end);
        start = end + 1;
        line
    })
}

/// Appends the first frame of a segment.
pub(super) fn push_start(out: &mut Vec<u8>, json: &str) {
    push(
        out,
        FrameKind::Start,
        Codec::Stored,
        &Content { first: 0, count: 0, text: json.len(), dictionary: 0 },
        |out| {
            out.extend_from_slice(json.as_bytes());
        },
    );
}

/// Appends a frame that holds a dictionary.
pub(super) fn push_dictionary(out: &mut Vec<u8>, text: &[u8]) {
    let content = Content { first: 0, count: 0, text: text.len(), dictionary: 0 };
    push(out, FrameKind::Dictionary, Codec::Stored, &content, |out| out.extend_from_slice(text));
}

/// Appends frames for all of these records, in order, and returns where the last frame begins in the buffer. Earlier
/// content of the buffer belongs to the same append.
pub(super) fn push_records(out: &mut Vec<u8>, mut records: &[ChainedRecord], dictionary: Option<&Dictionary>) -> usize {
    let mut last = out.len();
    let mut kind = if last == 0 { FrameKind::Records } else { FrameKind::MoreRecords };
    while let Some(first) = records.first() {
        let mut text = String::new();
        let count = records
            .iter()
            .take(MAX_RECORDS)
            .take_while(|record| {
                let room = text.len() < FULL_TEXT_BYTES;
                if room {
                    text.push_str(&record.text);
                    text.push('\n');
                }
                room
            })
            .count();
        last = out.len();
        let (these, rest) = records.split_at(count);
        records = rest;
        let codec = if dictionary.is_some() { Codec::Lz4WithDictionary } else { Codec::Lz4 };
        let offset = dictionary.map_or(0, |dictionary| dictionary.offset);
        let content = Content { first: first.seq, count, text: text.len(), dictionary: offset };
        push(out, kind, codec, &content, |out| {
            these.iter().for_each(|record| out.extend_from_slice(&record.hash));
            pack(out, text.as_bytes(), dictionary);
        });
        kind = FrameKind::MoreRecords;
    }
    last
}

/// Appends the compressed text. The buffer has room for the longest result, so that compressing it cannot fail.
fn pack(out: &mut Vec<u8>, text: &[u8], dictionary: Option<&Dictionary>) {
    let start = out.len();
    out.resize(start + get_maximum_output_size(text.len()), 0);
    let room = out.get_mut(start..).unwrap_or_default();
    let packed = match dictionary {
        Some(dictionary) => compress_into_with_dict(text, room, &dictionary.text),
        None => compress_into(text, room),
    };
    out.truncate(start + packed.unwrap_or_default());
}

/// The facts of a frame that its header names.
struct Content {
    first: u64,
    count: usize,
    text: usize,
    dictionary: u32,
}

/// Appends one frame whose content after the header is written by `fill`. No length here comes near 4 GiB.
fn push(out: &mut Vec<u8>, kind: FrameKind, codec: Codec, content: &Content, fill: impl FnOnce(&mut Vec<u8>)) {
    let word = |size: usize| u32::try_from(size).unwrap_or(u32::MAX).to_le_bytes();
    let start = out.len();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&[kind as u8, codec as u8]);
    out.extend_from_slice(&u16::try_from(content.count).unwrap_or(u16::MAX).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&word(content.text));
    out.extend_from_slice(&content.dictionary.to_le_bytes());
    out.extend_from_slice(&content.first.to_le_bytes());
    fill(out);
    let length = word(out.len() - start - HEADER_BYTES);
    patch(out, start + LENGTH_AT, length);
    let checksum = crc32fast::hash(out.get(start + COVERED_FROM..).unwrap_or_default());
    patch(out, start + CHECKSUM_AT, checksum.to_le_bytes());
}

fn patch(out: &mut [u8], at: usize, value: [u8; 4]) {
    if let Some(place) = out.get_mut(at..at + value.len()) {
        place.copy_from_slice(&value);
    }
}

/// Returns the checksum of a frame, from its header and what follows that.
fn checksum(header: &[u8; HEADER_BYTES], rest: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(header.get(COVERED_FROM..).unwrap_or_default());
    sum.update(rest);
    sum.finalize()
}
