//! The letters of texts without their form.

use std::ops::ControlFlow;

use unicode_normalization::UnicodeNormalization as _;

use crate::escape::is_hidden;

/// A sign between two values that are read as one. It is not seen in a text: it divides neither words nor blocks.
pub(super) const JOINT: char = '\u{1f}';

/// Visits the letters and signs of a text without their form, as they have fingerprints, until `visit` stops.
pub(super) fn each_letter(text: &str, mut visit: impl FnMut(char) -> ControlFlow<()>) {
    let seen = |c: &char| *c != JOINT;
    // A visitor that stops has seen what it needs.
    let _ = if text.is_ascii() {
        lower_case(text).filter(seen).try_for_each(&mut visit)
    } else {
        normalized(text).filter(seen).try_for_each(&mut visit)
    };
}

/// Reports whether a sign that has no capitals any more is a letter or a digit. Most are those of ASCII.
pub(super) fn is_letter_or_digit(c: char) -> bool {
    matches!(c, 'a'..='z' | '0'..='9') || !c.is_ascii() && c.is_alphanumeric()
}

/// Returns the letters of an ASCII text without their form: no capitals, nothing that is not seen but joints.
fn lower_case(text: &str) -> impl Iterator<Item = char> {
    let seen = |byte: &u8| !byte.is_ascii_control() || matches!(byte, b'\t' | b'\n' | b'\r' | b'\x1f');
    text.bytes().filter(seen).map(|byte| char::from(byte.to_ascii_lowercase()))
}

/// Returns the letters of a text without their form: no capitals, no wide letters, nothing that is not seen. Line
/// separators stay, and so do joints.
pub(super) fn normalized(text: &str) -> impl Iterator<Item = char> {
    let seen = |c: char| match c {
        '\t' | '\n' | '\r' | JOINT => Some(c),
        '\u{85}' | '\u{2028}' | '\u{2029}' => Some('\n'),
        c => (!is_hidden(c)).then_some(c),
    };
    text.nfkc().filter_map(seen).flat_map(char::to_lowercase)
}

/// The kind of an ASCII character in a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Letter,
    Digit,
    Sign,
    Joint,
    /// Nothing that is seen.
    Hidden,
}

/// The class of each byte of an ASCII text.
#[expect(clippy::indexing_slicing, reason = "the compiler evaluates it")]
static CLASSES: [Class; 256] = {
    let mut classes = [Class::Hidden; 256];
    let mut byte = 0;
    while byte < classes.len() {
        classes[byte] = Class::of_code(byte as u8);
        byte += 1;
    }
    classes
};

impl Class {
    #[inline]
    pub(super) fn of(byte: u8) -> Self {
        CLASSES.get(usize::from(byte)).copied().unwrap_or(Self::Hidden)
    }

    /// Reports whether it is a letter or a digit.
    pub(super) fn is_run(self) -> bool {
        matches!(self, Self::Letter | Self::Digit)
    }

    const fn of_code(byte: u8) -> Self {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => Self::Letter,
            b'0'..=b'9' => Self::Digit,
            b'\x1f' => Self::Joint,
            b'\t' | b'\n' | b'\r' | b' '..=b'~' => Self::Sign,
            _ => Self::Hidden,
        }
    }
}
