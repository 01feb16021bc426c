//! The lines of an agent's input. Blank lines are skipped, and an overlong line does not end the input.

use std::io;

use bytes::Bytes;
use tokio::io::AsyncRead;

use crate::limited_lines::{LimitedLine, LimitedLines};

/// One line of input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AgentLine {
    /// A line without its line feed; never blank.
    Text(Bytes),
    /// A line longer than the limit, which was skipped. The size in bytes.
    TooLong(usize),
}

/// The lines of an input.
pub(crate) struct AgentLines<R> {
    lines: LimitedLines<R>,
    max: usize,
}

impl<R: AsyncRead + Unpin> AgentLines<R> {
    pub(crate) fn new(input: R, max: usize) -> Self {
        // However long a line is, the next one can be read.
        Self { lines: LimitedLines::new(input, max, usize::MAX), max }
    }

    /// Returns the limit, in bytes.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Returns the next line that is not blank, or `None` at the end. Cancellation safe.
    pub(crate) async fn next(&mut self) -> io::Result<Option<AgentLine>> {
        loop {
            match self.lines.next().await? {
                None => return Ok(None),
                Some(LimitedLine::Whole(text)) if text.trim_ascii().is_empty() => {}
                Some(LimitedLine::Whole(text)) => return Ok(Some(AgentLine::Text(text))),
                Some(LimitedLine::Oversized { size, .. }) => return Ok(Some(AgentLine::TooLong(size))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[tokio::test]
    async fn lines_end_at_line_feeds_and_a_long_one_is_skipped_whole() {
        let input = b"one\r\n\n  \n12345678\n123456789\n".iter().copied();
        let input: Vec<u8> = input.chain(std::iter::repeat_n(b'x', 200_000)).chain(*b"\nlast").collect();
        let mut lines = AgentLines::new(input.as_slice(), 8);
        let mut seen = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            seen.push(line);
        }
        let text = |text: &'static str| AgentLine::Text(Bytes::from_static(text.as_bytes()));
        let expected =
            [text("one\r"), text("12345678"), AgentLine::TooLong(9), AgentLine::TooLong(200_000), text("last")];
        assert_eq!(seen, expected);
    }
}
