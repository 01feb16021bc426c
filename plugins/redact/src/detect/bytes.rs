//! The classes of bytes, and small steps in a text.

/// A byte of a word: a letter, a digit or `_`.
pub(super) const WORD: u8 = 1;
pub(super) const DIGIT: u8 = 1 << 1;
pub(super) const UPPER: u8 = 1 << 2;
pub(super) const LOWER: u8 = 1 << 3;
/// A digit or a letter from `a` to `f`.
pub(super) const HEX: u8 = 1 << 4;
/// A byte between words at which something may be found: `@`, `:`, `=`, and [`WIDE`].
pub(super) const ANCHOR: u8 = 1 << 5;
/// One of `-`, `.`
pub(super) const JOINT: u8 = 1 << 6;
/// One of `+`, `/`, `=`, which only base64 has within a value.
pub(super) const BASE64: u8 = 1 << 7;

/// The first byte of wide signs, of which the colon is one.
pub(super) const WIDE: u8 = 0xef;

static CLASSES: [u8; 256] = classes();

#[allow(clippy::indexing_slicing, reason = "evaluated by the compiler, and a byte is below 256")]
const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut b = 0_u8;
    loop {
        classes[b as usize] = match b {
            b'0'..=b'9' => WORD | DIGIT | HEX,
            b'A'..=b'Z' => WORD | UPPER,
            b'a'..=b'f' => WORD | LOWER | HEX,
            b'g'..=b'z' => WORD | LOWER,
            b'_' => WORD,
            b'@' | b':' | WIDE => ANCHOR,
            b'=' => ANCHOR | BASE64,
            b'-' | b'.' => JOINT,
            b'+' | b'/' => BASE64,
            _ => 0,
        };
        if b == u8::MAX {
            return classes;
        }
        b += 1;
    }
}

/// Returns the classes of a byte.
pub(super) fn class(b: u8) -> u8 {
    CLASSES.get(usize::from(b)).copied().unwrap_or_default()
}

pub(super) fn is_word(b: u8) -> bool {
    class(b) & WORD != 0
}

/// Returns the length of the run at the start whose bytes are allowed, at most `limit`.
pub(super) fn run(bytes: &[u8], limit: usize, mut allowed: impl FnMut(u8) -> bool) -> usize {
    bytes.iter().take(limit).take_while(|b| allowed(**b)).count()
}

/// Returns the length of the run at the end whose bytes are allowed, at most `limit`.
pub(super) fn run_back(bytes: &[u8], limit: usize, allowed: impl Fn(u8) -> bool) -> usize {
    bytes.iter().rev().take(limit).take_while(|b| allowed(**b)).count()
}

/// Returns the bytes from `at` on; none if that is behind the end.
pub(super) fn from(bytes: &[u8], at: usize) -> &[u8] {
    bytes.get(at..).unwrap_or_default()
}

/// Returns the bytes before `at`.
pub(super) fn before(bytes: &[u8], at: usize) -> &[u8] {
    bytes.get(..at).unwrap_or_default()
}

/// Returns the byte at `at`, or 0 behind the end. No detector takes a 0 for something.
pub(super) fn at(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or_default()
}

/// Reports whether the bytes are not only a few characters again and again, as in `xxxxxxxx`.
pub(super) fn is_varied(bytes: &[u8]) -> bool {
    let seen = bytes.iter().fold(0_u128, |seen, b| seen | 1 << (b & 0x7f));
    seen.count_ones() >= 4
}
