//! The classes of bytes, and small steps in a text.

/// A byte of a word: a letter, a digit or `_`.
pub(super) const WORD: u16 = 1;
pub(super) const DIGIT: u16 = 1 << 1;
pub(super) const UPPER: u16 = 1 << 2;
pub(super) const LOWER: u16 = 1 << 3;
/// A digit or a letter from `a` to `f`.
pub(super) const HEX: u16 = 1 << 4;
/// A byte between words at which something may be found: `@`, `:`, `=`, and [`WIDE`].
pub(super) const ANCHOR: u16 = 1 << 5;
/// One of `-`, `.`
pub(super) const JOINT: u16 = 1 << 6;
/// One of `+`, `/`, `=`, which only base64 has within a value.
pub(super) const BASE64: u16 = 1 << 7;

/// `_`, which joins the words of a name.
pub(super) const JOINS: u16 = 1 << 8;

/// The first byte of wide signs, such as the wide colon.
pub(super) const WIDE: u8 = 0xef;

static CLASSES: [u16; 256] = classes();

#[allow(clippy::indexing_slicing, reason = "evaluated by the compiler, and a byte is below 256")]
const fn classes() -> [u16; 256] {
    let mut classes = [0; 256];
    let mut b = 0_u8;
    loop {
        classes[b as usize] = match b {
            b'0'..=b'9' => WORD | DIGIT | HEX,
            b'A'..=b'Z' => WORD | UPPER,
            b'a'..=b'f' => WORD | LOWER | HEX,
            b'g'..=b'z' => WORD | LOWER,
            b'_' => WORD | JOINS,
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
#[inline]
pub(super) fn class(b: u8) -> u16 {
    CLASSES.get(usize::from(b)).copied().unwrap_or_default()
}

#[inline]
pub(super) fn is_word(b: u8) -> bool {
    class(b) & WORD != 0
}

/// Returns the length of the run at the start whose bytes are allowed, at most `limit`.
#[inline]
pub(super) fn run(bytes: &[u8], limit: usize, mut allowed: impl FnMut(u8) -> bool) -> usize {
    bytes.iter().take(limit).take_while(|b| allowed(**b)).count()
}

/// Returns the length of the run at the end whose bytes are allowed, at most `limit`.
#[inline]
pub(super) fn run_back(bytes: &[u8], limit: usize, allowed: impl Fn(u8) -> bool) -> usize {
    bytes.iter().rev().take(limit).take_while(|b| allowed(**b)).count()
}

/// Returns the bytes from `at` on; none if that is behind the end.
#[inline]
pub(super) fn from(bytes: &[u8], at: usize) -> &[u8] {
    bytes.get(at..).unwrap_or_default()
}

/// Returns the bytes before `at`.
#[inline]
pub(super) fn before(bytes: &[u8], at: usize) -> &[u8] {
    bytes.get(..at).unwrap_or_default()
}

/// Returns the byte at `at`, or 0 behind the end. No detector takes a 0 for something.
#[inline]
pub(super) fn at(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or_default()
}

/// Reports whether the bytes are not only a few characters again and again, as in `xxxxxxxx`.
pub(super) fn is_varied(bytes: &[u8]) -> bool {
    let seen = bytes.iter().fold(0_u128, |seen, b| seen | 1 << (b & 0x7f));
    seen.count_ones() >= 4
}

/// The bytes that are processed together: they become vector instructions.
const BLOCK: usize = 16;

/// Reports whether a byte is a small letter, a space or a comma. Nothing that is looked for consists only of these.
#[inline]
fn is_calm(b: u8) -> bool {
    (b.wrapping_sub(b'a') < 26) | (b == b' ') | (b == b',')
}

/// Returns how many bytes at the start are calm, in whole blocks that each have a space.
#[inline]
pub(super) fn calm(bytes: &[u8]) -> usize {
    let (blocks, _) = bytes.as_chunks::<BLOCK>();
    let calm = |block: &&[u8; BLOCK]| {
        let all = block.map(|b| u8::from(!is_calm(b)));
        let spaces = block.map(|b| u8::from(b == b' '));
        u128::from_ne_bytes(all) == 0 && u128::from_ne_bytes(spaces) != 0
    };
    blocks.iter().take_while(calm).count() * BLOCK
}

/// Reports whether all bytes are calm, and no word is as long as a block.
#[inline]
pub(super) fn all_calm(bytes: &[u8]) -> bool {
    let rest = from(bytes, calm(bytes));
    rest.len() < BLOCK && rest.iter().all(|b| is_calm(*b))
}
