//! Finds canaries in sent data, in the encodings that hide a text from a reader: base64 at any offset, base32, hex,
//! percent signs, numbers, reversed, ROT13, and any two of these one inside the other. Encrypted or compressed canaries
//! are not found.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use crate::canary::Canary;

/// The number of characters of a secret that a piece of it holds, however long the encoding makes them. The first
/// bytes of a piece, as many, are looked up; the rest is compared.
const WINDOW: usize = 8;

/// The number of bits of the hash by which pieces are first distinguished.
const FILTER_BITS: u32 = 23;

/// The number of different pieces of one encoded secret that make a find: of a plain one, 15 characters in a row.
const ENOUGH: usize = 8;

/// All encoded forms of some canaries.
#[derive(Debug)]
pub(crate) struct CanaryPatterns {
    /// One bit for each of the first [`FILTER_BITS`] bits of a hash: set if a piece in `windows` has it. It rules out
    /// nearly all pieces of other texts.
    filter: Vec<u64>,
    /// The first bytes of every piece, sorted.
    windows: Vec<Window>,
    /// The forms; of each canary the simpler ones first.
    forms: Vec<Form>,
}

/// The first bytes of a piece of an encoded canary, and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Window {
    bytes: u64,
    /// The number of the form in the list of forms.
    form: u32,
    /// The offset in the form's text.
    offset: u32,
}

/// A canary in one encoding.
#[derive(Debug)]
struct Form {
    /// The place of the canary in the list of canaries.
    canary: usize,
    /// The name of the encoding.
    encoding: String,
    /// The encoded secret, without what differs between spellings.
    text: Vec<u8>,
    /// The length of a piece that holds [`WINDOW`] characters of the secret, in bytes.
    piece: usize,
}

/// A canary that was found in a text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FoundCanary {
    /// Its place in the list of canaries.
    pub(crate) canary: usize,
    /// The encoding in which the canary was found: `plain`, `base64`, `hex of base64`.
    pub(crate) encoding: String,
}

impl CanaryPatterns {
    /// Encodes the canaries in every way.
    #[must_use]
    pub(crate) fn of(canaries: &[Canary]) -> Self {
        let filter = vec![0; 1 << (FILTER_BITS - 6)];
        let mut patterns = Self { filter, windows: Vec::new(), forms: Vec::new() };
        for (at, canary) in canaries.iter().enumerate() {
            let secret = canary.secret.as_bytes();
            let all_once = encoded(secret);
            patterns.add(at, secret, "plain", secret);
            for (name, once) in &all_once {
                patterns.add(at, secret, name, once);
            }
            for (outer, once) in &all_once {
                for (name, twice) in encoded(once) {
                    patterns.add(at, secret, &format!("{name} of {outer}"), &twice);
                }
            }
        }
        patterns.windows.sort_unstable();
        patterns
    }

    fn add(&mut self, canary: usize, secret: &[u8], encoding: &str, text: &[u8]) {
        let form = self.forms.len() as u32;
        let text = plainer(text);
        let piece = (WINDOW * text.len() / secret.len().max(1)).max(WINDOW);
        for (offset, bytes) in (0..).zip(windows(&text)) {
            let (word, bit) = filter_place(bytes);
            if let Some(word) = self.filter.get_mut(word) {
                *word |= bit;
            }
            self.windows.push(Window { bytes, form, offset });
        }
        self.forms.push(Form { canary, encoding: encoding.to_owned(), text, piece });
    }

    /// Returns the canaries of which a text holds too much for a coincidence, each once, with its simplest encoding.
    #[must_use]
    pub(crate) fn find(&self, text: &[u8]) -> Vec<FoundCanary> {
        let mut seen: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        let text = plainer(text);
        for (here, bytes) in windows(&text).enumerate() {
            let (word, bit) = filter_place(bytes);
            if self.filter.get(word).is_none_or(|word| word & bit == 0) {
                continue;
            }
            let first = self.windows.partition_point(|known| known.bytes < bytes);
            let known = self.windows.get(first..).unwrap_or_default();
            for known in known.iter().take_while(|known| known.bytes == bytes) {
                let form = self.form(known.form);
                if form.is_some_and(|form| form.has_piece_of(&text, here, known.offset as usize)) {
                    seen.entry(known.form).or_default().insert(known.offset);
                }
            }
        }
        let mut kept: Vec<FoundCanary> = Vec::new();
        let found = seen.into_iter().filter(|(_, places)| places.len() >= ENOUGH);
        for form in found.filter_map(|(number, _)| self.form(number)) {
            if !kept.iter().any(|known| known.canary == form.canary) {
                kept.push(FoundCanary { canary: form.canary, encoding: form.encoding.clone() });
            }
        }
        kept
    }

    fn form(&self, number: u32) -> Option<&Form> {
        self.forms.get(number as usize)
    }
}

impl Form {
    /// Reports whether a text has, at an offset, the same piece as this form has at a place.
    fn has_piece_of(&self, text: &[u8], offset: usize, at: usize) -> bool {
        let here = text.get(offset..offset + self.piece);
        here.is_some() && here == self.text.get(at..at + self.piece)
    }
}

/// Returns the first bytes of each piece of a text, as numbers.
fn windows(text: &[u8]) -> impl Iterator<Item = u64> {
    text.windows(WINDOW).filter_map(|window| Some(u64::from_be_bytes(window.try_into().ok()?)))
}

/// Returns the word of the filter in which a piece has its bit, and the bit.
fn filter_place(window: u64) -> (usize, u64) {
    // The golden ratio, which spreads what differs in few bits.
    let hash = window.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - FILTER_BITS);
    (usize::try_from(hash >> 6).unwrap_or_default(), 1 << (hash & 63))
}

/// Takes away what differs between spellings of the same text: the case of letters, white space, and escaped line ends.
fn plainer(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        if byte == b'\\' && rest.peek().is_some_and(|next| matches!(next, b'n' | b'r' | b't')) {
            rest.next();
        } else if !byte.is_ascii_whitespace() {
            plain.push(byte.to_ascii_lowercase());
        }
    }
    plain
}

/// Returns a text in every encoding, of some several times: at each offset in a longer text.
fn encoded(text: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut all = Vec::new();
    for offset in 0..3 {
        all.push(("base64", aligned(text, offset, 3, 8, 6, |bytes| STANDARD_NO_PAD.encode(bytes).into_bytes())));
        all.push(("base64", aligned(text, offset, 3, 8, 6, |bytes| URL_SAFE_NO_PAD.encode(bytes).into_bytes())));
    }
    for offset in 0..5 {
        all.push(("base32", aligned(text, offset, 5, 8, 5, base32)));
    }
    all.push(("hex", text.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()));
    all.push(("percent signs", text.iter().flat_map(|byte| format!("%{byte:02X}").into_bytes()).collect()));
    all.push(("numbers", text.iter().flat_map(|byte| format!("{byte},").into_bytes()).collect()));
    all.push(("reversed", text.iter().rev().copied().collect()));
    all.push(("ROT13", text.iter().copied().map(rot13).collect()));
    all
}

/// Encodes a text as if it were `offset` bytes after the start of a longer one, without the characters that depend on
/// its neighbours.
fn aligned(
    text: &[u8],
    offset: usize,
    group: usize,
    bits: usize,
    per_char: usize,
    encode: impl Fn(&[u8]) -> Vec<u8>,
) -> Vec<u8> {
    let padded: Vec<u8> = std::iter::repeat_n(0, offset).chain(text.iter().copied()).collect();
    let all = encode(&padded);
    let first = (offset * bits).div_ceil(per_char);
    let last = padded.len() * bits / per_char;
    debug_assert!(offset < group);
    all.get(first..last).unwrap_or_default().to_vec()
}

/// Encodes in base32 (RFC 4648, section 6), without padding.
fn base32(bytes: &[u8]) -> Vec<u8> {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let (mut out, mut held, mut bits) = (Vec::new(), 0_u32, 0_u32);
    for byte in bytes {
        held = (held << 8 | u32::from(*byte)) & 0xfff;
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            out.extend(LETTERS.get((held >> bits & 31) as usize));
        }
    }
    if bits > 0 {
        out.extend(LETTERS.get((held << (5 - bits) & 31) as usize));
    }
    out
}

fn rot13(byte: u8) -> u8 {
    match byte {
        b'a'..=b'z' => (byte - b'a' + 13) % 26 + b'a',
        b'A'..=b'Z' => (byte - b'A' + 13) % 26 + b'A',
        other => other,
    }
}

/// Returns what a text decodes to, if it is base64 or hex. A source that encodes each piece separately is found in the
/// joined pieces.
#[must_use]
pub(crate) fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let trimmed: Vec<u8> = text.iter().copied().filter(|byte| *byte != b'=').collect();
    if trimmed.len() >= 4 && trimmed.len().is_multiple_of(2) && trimmed.iter().all(u8::is_ascii_hexdigit) {
        let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or_default() as u8;
        return Some(
            trimmed.chunks_exact(2).map(|pair| pair.iter().fold(0, |high, low| high << 4 | digit(*low))).collect(),
        );
    }
    let standard = STANDARD_NO_PAD.decode(&trimmed).or_else(|_| URL_SAFE_NO_PAD.decode(&trimmed)).ok()?;
    (trimmed.len() >= 2).then_some(standard)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;

    fn found(patterns: &CanaryPatterns, text: &[u8]) -> Option<String> {
        patterns.find(text).into_iter().next().map(|found| found.encoding)
    }

    #[test]
    fn a_secret_is_found_in_every_encoding_at_every_offset_and_in_two_at_once() {
        let canaries = Canary::make_all().unwrap();
        let patterns = CanaryPatterns::of(&canaries);
        let secret = canaries[0].secret.as_bytes();
        assert_eq!(found(&patterns, &[b"before ", secret, b" after"].concat()).as_deref(), Some("plain"));
        for offset in 0..6 {
            let around = [&b"abcdef"[..offset], secret, b"tail"].concat();
            assert_eq!(
                found(&patterns, STANDARD_NO_PAD.encode(&around).as_bytes()).as_deref(),
                Some("base64"),
                "{offset}"
            );
            assert_eq!(found(&patterns, &base32(&around)).as_deref(), Some("base32"), "{offset}");
            let hex: String = around.iter().map(|byte| format!("{byte:02X}")).collect();
            assert_eq!(found(&patterns, hex.as_bytes()).as_deref(), Some("hex"));
            let twice = STANDARD_NO_PAD.encode(format!("x{hex}").to_lowercase());
            assert_eq!(found(&patterns, twice.as_bytes()).as_deref(), Some("base64 of hex"));
        }
        let reversed: Vec<u8> = secret.iter().rev().copied().collect();
        assert_eq!(found(&patterns, &reversed).as_deref(), Some("reversed"));
        let rotated: Vec<u8> = secret.iter().copied().map(rot13).collect();
        assert_eq!(found(&patterns, &rotated).as_deref(), Some("ROT13"));
        let numbers: Vec<String> = secret.iter().map(ToString::to_string).collect();
        assert_eq!(found(&patterns, format!("[{}]", numbers.join(", ")).as_bytes()).as_deref(), Some("numbers"));
        assert_eq!(
            found(&patterns, STANDARD_NO_PAD.encode(&reversed).as_bytes()).as_deref(),
            Some("base64 of reversed")
        );
    }

    #[test]
    fn a_part_is_enough_and_what_is_no_canary_is_not_found() {
        let canaries = Canary::make_all().unwrap();
        let patterns = CanaryPatterns::of(&canaries);
        assert!(found(&patterns, &canaries[1].secret.as_bytes()[..20]).is_some());
        assert!(found(&patterns, &canaries[1].secret.as_bytes()[..10]).is_none());
        let others = Canary::make_all().unwrap();
        let text: String = others.iter().map(|canary| canary.content.clone()).collect();
        assert_eq!(patterns.find(text.repeat(50).as_bytes()), []);
    }

    #[test]
    fn a_long_list_of_numbers_that_holds_no_canary_is_not_found() {
        let patterns = CanaryPatterns::of(&Canary::make_all().unwrap());
        // It contains every pair of bytes that occurs in text, and nearly every triple.
        let text: Vec<u8> =
            (0_u32..60_000).map(|at| b' ' + (at.wrapping_mul(2_654_435_761) >> 16) as u8 % 95).collect();
        for (_, list) in encoded(&text).into_iter().filter(|(name, _)| *name == "numbers" || *name == "hex") {
            assert_eq!(patterns.find(&list), []);
        }
    }

    #[test]
    fn a_piece_that_was_encoded_by_itself_is_decoded() {
        assert_eq!(decoded(b"aGVsbG8="), Some(b"hello".to_vec()));
        assert_eq!(decoded(b"68656c6c6f"), Some(b"hello".to_vec()));
        assert_eq!(decoded(b"not encoded!"), None);
    }
}
