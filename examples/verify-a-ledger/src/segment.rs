//! Segments: frames, their checksums and their compression.

use std::collections::HashMap;

const MARK: &[u8; 4] = b"PLF2";
const HEADER: usize = 32;

/// The kind of a frame.
pub(crate) enum FrameKind {
    Start,
    Dictionary,
    Records,
    /// Nothing that the format has; it is passed over.
    Other,
}

/// A whole frame of a segment.
pub(crate) struct Frame<'a> {
    pub(crate) offset: u32,
    pub(crate) kind: FrameKind,
    codec: u8,
    pub(crate) count: u16,
    dictionary: u32,
    pub(crate) first: u64,
    pub(crate) content: &'a [u8],
}

impl Frame<'_> {
    /// Returns a text of this frame, decompressed.
    pub(crate) fn text(&self, text: &[u8], dictionaries: &HashMap<u32, &[u8]>) -> Option<Vec<u8>> {
        match self.codec {
            0 => Some(text.to_vec()),
            1 => decompressed(text, &[]),
            2 => decompressed(text, dictionaries.get(&self.dictionary)?),
            _ => None,
        }
    }
}

/// Returns the whole frames of a segment. Any bytes after the last one belong to an append that was never confirmed.
pub(crate) fn frames(segment: &[u8]) -> impl Iterator<Item = Frame<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = segment.get(at..)?;
        let header = rest.get(..HEADER).filter(|header| header.starts_with(MARK))?;
        let number = |from: usize| u32::from_le_bytes(*header[from..].first_chunk().unwrap_or(&[0; 4]));
        let whole = rest.get(..HEADER.checked_add(usize::try_from(number(12)).ok()?)?)?;
        if checksum(&whole[8..]) != number(4) {
            return None;
        }
        let kind = match header[8] {
            1 => FrameKind::Start,
            2 => FrameKind::Dictionary,
            0 => FrameKind::Other,
            _ => FrameKind::Records,
        };
        let frame = Frame {
            offset: u32::try_from(at).ok()?,
            kind,
            codec: header[9],
            count: u16::from_le_bytes([header[10], header[11]]),
            dictionary: number(20),
            first: u64::from(number(24)) | u64::from(number(28)) << 32,
            content: &whole[HEADER..],
        };
        at += whole.len();
        Some(frame)
    })
}

/// Returns the CRC-32 of gzip.
fn checksum(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| TABLE[((sum ^ u32::from(*byte)) & 0xff) as usize] ^ (sum >> 8);
    !bytes.iter().fold(u32::MAX, step)
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let (mut sum, mut bit) = (at as u32, 0);
        while bit < 8 {
            sum = if sum & 1 == 1 { 0xedb8_8320 ^ (sum >> 1) } else { sum >> 1 };
            bit += 1;
        }
        table[at] = sum;
        at += 1;
    }
    table
};

/// Returns the text of an LZ4 block that continues a dictionary; `None` if it is damaged.
fn decompressed(block: &[u8], dictionary: &[u8]) -> Option<Vec<u8>> {
    let mut out = dictionary.to_vec();
    let mut block = block.iter().copied();
    fn length(nibble: u8, block: &mut impl Iterator<Item = u8>) -> Option<usize> {
        let mut total = usize::from(nibble);
        let mut more = if nibble == 15 { 255 } else { 0 };
        while more == 255 {
            more = block.next()?;
            total += usize::from(more);
        }
        Some(total)
    }
    while let Some(token) = block.next() {
        for _ in 0..length(token >> 4, &mut block)? {
            out.push(block.next()?);
        }
        // A block ends after literals.
        let Some(low) = block.next() else { break };
        let distance = usize::from(u16::from_le_bytes([low, block.next()?]));
        let start = out.len().checked_sub(distance)?;
        for at in start..start + length(token & 15, &mut block)? + 4 {
            out.push(*out.get(at)?);
        }
    }
    Some(out.split_off(dictionary.len()))
}

/// Returns bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a hash in hexadecimal digits.
pub(crate) fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes().chunks(2);
    let bytes = digits.map(|two| u8::from_str_radix(str::from_utf8(two).ok()?, 16).ok());
    bytes.collect::<Option<Vec<_>>>()?.try_into().ok()
}
