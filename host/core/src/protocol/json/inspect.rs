//! The one pass over a text that comes from outside: is it JSON, how deep is it, and where are its long values?
//!
//! The findings are kept with the text, so that nobody passes over a long value again to find its end.

use std::ops::Range;

use super::super::message::{MAX_NESTING, MAX_VALUES};
use super::blocks;

/// The size in bytes from which a value is long: its place is kept, and later scans step over it at once. A shorter one
/// is passed over in about the time that it takes to look for its place.
pub(super) const LONG_BYTES: usize = 512;

/// The facts that are known about a text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TextFacts {
    /// The long values, by where they start. Some may be missing, but the places of the others are right.
    pub(super) long: Vec<LongValue>,
    /// True if it is known that no escape encodes an unpaired surrogate.
    pub(super) paired: bool,
}

/// The place of a string with its quotes, an array or an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LongValue {
    pub(super) start: usize,
    pub(super) end: usize,
    /// The bytes by which the escapes of a string are longer than the characters that they encode.
    pub(super) surplus: usize,
}

/// Checks that a text is exactly one JSON value, nested no deeper than [`MAX_NESTING`] and with no more than
/// [`MAX_VALUES`] in it. Returns `None` if it is not.
pub(super) fn inspect(text: &str) -> Option<TextFacts> {
    let findings = TextFacts { long: Vec::new(), paired: true };
    let mut pass = Pass { bytes: text.as_bytes(), at: 0, commas_left: MAX_VALUES, open: Vec::new(), findings };
    pass.whole()?;
    Some(pass.findings)
}

struct Pass<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The commas between members and items that may still come.
    commas_left: usize,
    /// The arrays and objects around the position.
    open: Vec<OpenContainer>,
    findings: TextFacts,
}

struct OpenContainer {
    object: bool,
    /// The place of the array or object in the list of long values. It is entered when it begins, so that the list is
    /// in order, and is removed if it ends soon.
    entry: usize,
}

impl Pass<'_> {
    /// Passes over the whole text. There is no recursion, since the depth of nesting is not known yet.
    fn whole(&mut self) -> Option<()> {
        loop {
            if self.begin_value()? && self.end_value()? {
                return (self.at == self.bytes.len()).then_some(());
            }
        }
    }

    /// Passes over a value, or over the beginning of an array or object that holds something. Returns true if the value
    /// has ended, and false if another one begins in it.
    fn begin_value(&mut self) -> Option<bool> {
        match self.skip_space()? {
            b'{' => {
                self.open(true)?;
                if self.skip_space()? != b'}' {
                    self.key()?;
                    return Some(false);
                }
                self.close();
            }
            b'[' => {
                self.open(false)?;
                if self.skip_space()? != b']' {
                    return Some(false);
                }
                self.close();
            }
            b'"' => self.string()?,
            b't' => self.word(b"true")?,
            b'f' => self.word(b"false")?,
            b'n' => self.word(b"null")?,
            _ => self.number()?,
        }
        Some(true)
    }

    /// Passes over what follows a value. Returns true at the end of the outermost one, and false if another one begins.
    fn end_value(&mut self) -> Option<bool> {
        while let Some(innermost) = self.open.last() {
            let object = innermost.object;
            match (self.skip_space()?, object) {
                (b',', object) => {
                    self.at += 1;
                    self.commas_left = self.commas_left.checked_sub(1)?;
                    if object {
                        self.skip_space()?;
                        self.key()?;
                    }
                    return Some(false);
                }
                (b'}', true) | (b']', false) => self.close(),
                _ => return None,
            }
        }
        self.skip_space();
        Some(true)
    }

    fn open(&mut self, object: bool) -> Option<()> {
        (self.open.len() < MAX_NESTING).then_some(())?;
        self.open.push(OpenContainer { object, entry: self.findings.long.len() });
        self.findings.long.push(LongValue { start: self.at, end: self.at, surplus: 0 });
        self.at += 1;
        Some(())
    }

    fn close(&mut self) {
        self.at += 1;
        let Some(OpenContainer { entry, .. }) = self.open.pop() else { return };
        match self.findings.long.get_mut(entry) {
            Some(value) if self.at - value.start >= LONG_BYTES => value.end = self.at,
            // Nothing in a short value is long, so it is the last one in the list.
            _ => self.findings.long.truncate(entry),
        }
    }

    /// Passes over a key and its colon.
    fn key(&mut self) -> Option<()> {
        (self.bytes.get(self.at)? == &b'"').then_some(())?;
        self.string()?;
        (self.skip_space()? == b':').then(|| self.at += 1)
    }

    fn string(&mut self) -> Option<()> {
        let found = blocks::string(self.bytes, self.at + 1)?;
        let (start, end) = (self.at, found.end + 1);
        self.findings.paired &= !found.unpaired;
        if end - start >= LONG_BYTES {
            self.findings.long.push(LongValue { start, end, surplus: found.surplus });
        }
        self.at = end;
        Some(())
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.bytes.get(self.at..)?.starts_with(word).then(|| self.at += word.len())
    }

    fn number(&mut self) -> Option<()> {
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let digits = self.bytes.get(self.at..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += digits;
        (digits > 0).then_some(())
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.bytes.get(self.at) == Some(&byte);
        self.at += usize::from(there);
        there
    }

    /// Passes over white space and returns the next byte, which is not taken.
    fn skip_space(&mut self) -> Option<u8> {
        while let Some(byte) = self.bytes.get(self.at).copied() {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }
}

impl TextFacts {
    /// Returns the long value that starts at this position. `next` is where to look first: the number of the long
    /// value after the last one that was found, when a text is read from its beginning to its end.
    pub(super) fn at(&self, start: usize, next: &mut usize) -> Option<LongValue> {
        while let Some(value) = self.long.get(*next) {
            if value.start >= start {
                return (value.start == start).then_some(*value);
            }
            *next += 1;
        }
        None
    }

    /// Adds what is known about the bytes in this range of another text, which stand at `to` in this one.
    pub(super) fn add(&mut self, from: &Self, range: &Range<usize>, to: usize) {
        let first = from.long.partition_point(|value| value.start < range.start);
        let inside = from.long.iter().skip(first).take_while(|value| value.start < range.end);
        let moved = inside.filter(|value| value.end <= range.end).map(|value| LongValue {
            start: value.start - range.start + to,
            end: value.end - range.start + to,
            ..*value
        });
        self.long.extend(moved);
        self.paired &= from.paired;
    }
}

#[cfg(test)]
mod tests;
