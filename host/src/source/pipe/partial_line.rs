//! The pieces of a line that are still to be written.

use std::io::IoSlice;

use bytes::Bytes;

/// A line in pieces, which may have been partly written.
pub(super) struct PartialLine {
    left: Vec<Bytes>,
    written: usize,
}

impl PartialLine {
    /// Returns a line that ends in a line feed.
    pub(super) fn of_line(mut line: Vec<Bytes>) -> Self {
        // With the piece before it, so that a short line is one write.
        let last = line.pop().unwrap_or_default();
        line.push(Bytes::from([&*last, b"\n"].concat()));
        Self { left: line, written: 0 }
    }

    /// Returns the unwritten rest, for one write.
    pub(super) fn slices(&self) -> Vec<IoSlice<'_>> {
        self.left.iter().map(|piece| IoSlice::new(piece)).collect()
    }

    /// Notes that this many bytes more were written.
    pub(super) fn advance(&mut self, mut bytes: usize) {
        self.written += bytes;
        self.left.retain_mut(|piece| {
            let taken = bytes.min(piece.len());
            bytes -= taken;
            *piece = piece.slice(taken..);
            !piece.is_empty()
        });
    }

    /// Reports whether everything has been written.
    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Reports whether nothing has been written.
    pub(super) fn is_whole(&self) -> bool {
        self.written == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_written_whole_however_much_is_taken_at_once() {
        let text = b"{\"a\":[1,2]}\n";
        for step in 1..=text.len() {
            let pieces = [&b"{"[..], b"\"a\":", b"[1,2]", b"}"];
            let mut left = PartialLine::of_line(pieces.map(Bytes::from_static).into());
            assert!(left.is_whole());
            let mut written = Vec::new();
            while !left.is_empty() {
                let whole: Vec<u8> = left.slices().iter().flat_map(|slice| slice.to_vec()).collect();
                let taken: Vec<u8> = whole.into_iter().take(step).collect();
                left.advance(taken.len());
                written.extend(taken);
                assert!(!left.is_whole());
            }
            assert_eq!(written, text);
        }
    }
}
