//! The readings of a text: unchanged, backwards, and decoded from escapes, base64 and hexadecimal digits, also where
//! one encoding is inside another.

use base64::Engine as _;
use base64::engine::general_purpose::GeneralPurpose;
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig};

use super::letters::Class;
use crate::scan::leading_escape;

/// The most encodings that are opened one inside the other.
const MAX_DEPTH: usize = 3;

/// The most bytes that the texts of one call may decode to, in all readings together. Letters can be chosen so that
/// every alignment of every depth is readable: then a text has 43 times as many.
const MAX_DECODED: usize = 8 * 1024 * 1024;

/// The fewest characters of an encoded value.
const SHORTEST: usize = 12;

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);

/// Reads the texts of one call.
#[derive(Debug)]
pub(super) struct Decoder {
    /// The bytes that may still be decoded, or `None` once a text would have had more.
    left: Option<usize>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { left: Some(MAX_DECODED) }
    }
}

impl Decoder {
    /// Reports whether some text was not decoded, because all of them would have decoded to too much.
    pub(super) fn is_cut(&self) -> bool {
        self.left.is_none()
    }

    /// Visits every reading of a text.
    pub(super) fn each_reading(&mut self, text: &str, visit: &mut dyn FnMut(&str)) {
        self.each_to(text, true, MAX_DEPTH, visit);
    }

    /// Visits every reading of a text that is decoded.
    pub(super) fn each_decoded(&mut self, text: &str, visit: &mut dyn FnMut(&str)) {
        self.each_to(text, false, MAX_DEPTH, visit);
    }

    /// Visits the decodings of a text, with `depth` encodings one inside the other, and before that the text itself if
    /// it is `wanted`.
    fn each_to(&mut self, text: &str, wanted: bool, depth: usize, visit: &mut dyn FnMut(&str)) {
        for reading in [text, &backwards(text)] {
            if wanted {
                visit(reading);
            }
            if depth == 0 || self.is_cut() {
                continue;
            }
            for decoded in decoded(reading) {
                // It is read in both directions.
                self.left = self.left.and_then(|left| left.checked_sub(2 * decoded.len()));
                if self.is_cut() {
                    break;
                }
                self.each_to(&decoded, true, depth - 1, visit);
            }
        }
    }
}

/// Visits a text forwards and backwards.
pub(super) fn each_direction(text: &str, visit: &mut dyn FnMut(&str)) {
    visit(text);
    visit(&backwards(text));
}

fn backwards(text: &str) -> String {
    if text.is_ascii() {
        let mut bytes = text.as_bytes().to_vec();
        bytes.reverse();
        return String::from_utf8(bytes).unwrap_or_default();
    }
    text.chars().rev().collect()
}

/// Returns the texts that a text decodes to. Each is shorter than the text.
fn decoded(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    found.extend(unescaped(text));
    for run in encodable_runs(text) {
        runs(run, &mut found);
        // The signs of base64 also divide the parts of a path or a name.
        let parts = run.split(|byte| b"/-_+".contains(byte));
        let parts = parts.filter(|part| part.len() >= SHORTEST && part.len() < run.len());
        parts.for_each(|part| runs(part, &mut found));
    }
    found
}

/// Returns the runs of a text that are long enough for an encoded value.
fn encodable_runs(text: &str) -> impl Iterator<Item = &[u8]> {
    let mut rest = text.as_bytes();
    std::iter::from_fn(move || {
        while let Some(window) = rest.get(..SHORTEST) {
            // Read backwards: most words of prose are shorter, and text before the last gap need not be read.
            if let Some(gap) = window.iter().rposition(|byte| !is_inside(*byte)) {
                rest = rest.get(gap + 1..).unwrap_or_default();
                continue;
            }
            let length = rest.iter().position(|byte| !is_inside(*byte)).unwrap_or(rest.len());
            let (run, behind) = rest.split_at(length);
            rest = behind;
            return Some(run);
        }
        None
    })
}

/// Reports whether an encoded value may have this byte.
fn is_inside(byte: u8) -> bool {
    Class::of(byte).is_run() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

/// Decodes one run of letters and digits. It may begin with something else than the encoded value, so each alignment is
/// tried.
fn runs(run: &[u8], found: &mut Vec<String>) {
    if run.iter().all(u8::is_ascii_hexdigit) {
        found.extend((0..2).filter_map(|from| run.get(from..)).filter_map(|run| text_of(&hex_decoded(run))));
    }
    // A word of only lower-case letters is prose, not base64.
    if run.iter().all(u8::is_ascii_lowercase) {
        return;
    }
    let is_url_safe = run.iter().any(|byte| b"-_".contains(byte));
    let alphabet = if is_url_safe { &base64::alphabet::URL_SAFE } else { &base64::alphabet::STANDARD };
    let engine = GeneralPurpose::new(alphabet, LENIENT);
    for from in 0..4 {
        // A single last character holds less than a byte.
        let Some(run) = run.get(from..).map(|run| if run.len() % 4 == 1 { run.split_at(run.len() - 1).0 } else { run })
        else {
            continue;
        };
        found.extend(engine.decode(run).ok().and_then(|bytes| text_of(&bytes)));
    }
}

/// Returns bytes as text, if most of them are readable: an encoding that is opened at the wrong place gives noise.
fn text_of(bytes: &[u8]) -> Option<String> {
    let of_chunk = |text: &str| text.bytes().filter(|byte| !byte.is_ascii_control()).count();
    let readable = || bytes.utf8_chunks().map(|chunk| of_chunk(chunk.valid())).sum::<usize>();
    (bytes.len() >= 6 && readable() * 4 >= bytes.len() * 3).then(|| String::from_utf8_lossy(bytes).into_owned())
}

fn hex_decoded(run: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok()).unwrap_or_default();
    run.chunks_exact(2).map(|pair| pair.iter().fold(0, |sum, byte| sum << 4 | digit(*byte))).collect()
}

/// Decodes `%41`, `\x41`, `\u0041` and `&#65;`, if the text has any of them.
fn unescaped(text: &str) -> Option<String> {
    memchr::memchr3(b'%', b'\\', b'&', text.as_bytes())?;
    let mut bytes = Vec::with_capacity(text.len());
    let (mut rest, mut any) = (text, false);
    while let Some(next) = rest.chars().next() {
        let mut buffer = [0; 4];
        let length = match leading_escape(rest) {
            Some((code, length)) => {
                any = true;
                match (u8::try_from(code), char::from_u32(code)) {
                    (Ok(byte), _) => bytes.push(byte),
                    (Err(_), c) => bytes.extend_from_slice(c.unwrap_or(' ').encode_utf8(&mut buffer).as_bytes()),
                }
                length
            }
            None => {
                bytes.extend_from_slice(next.encode_utf8(&mut buffer).as_bytes());
                next.len_utf8()
            }
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    any.then(|| String::from_utf8_lossy(&bytes).into_owned())
}
