//! Line framing with a limit: a line without end costs no memory and does not end the connection.

use std::io;

use bytes::Bytes;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

use crate::protocol::MessageBuffer;

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
    input: BufReader<R>,
    max: usize,
    held: MessageBuffer,
    /// The number of bytes of the current line that were dropped, once it was longer than `max`.
    skipped: usize,
}

impl<R: AsyncRead + Unpin> AgentLines<R> {
    pub(crate) fn new(input: R, max: usize) -> Self {
        Self { input: BufReader::with_capacity(64 * 1024, input), max, held: MessageBuffer::default(), skipped: 0 }
    }

    /// Returns the limit, in bytes.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Returns the next line that is not blank, or `None` at the end. Cancellation safe.
    pub(crate) async fn next(&mut self) -> io::Result<Option<AgentLine>> {
        loop {
            let read = self.input.fill_buf().await?;
            let ended = read.is_empty();
            let (part, whole) = match memchr::memchr(b'\n', read) {
                Some(at) => (read.get(..at).unwrap_or_default(), true),
                None => (read, ended),
            };
            if self.skipped == 0 && self.held.len() + part.len() <= self.max {
                self.held.extend(part, self.max);
            } else {
                self.skipped += self.held.len() + part.len();
                self.held = MessageBuffer::default();
            }
            let used = part.len() + usize::from(whole && !ended);
            self.input.consume(used);
            if whole {
                let text = std::mem::take(&mut self.held);
                match std::mem::take(&mut self.skipped) {
                    0 if text.as_slice().iter().all(u8::is_ascii_whitespace) => {
                        if ended {
                            return Ok(None);
                        }
                    }
                    0 => return Ok(Some(AgentLine::Text(text.into_bytes()))),
                    size => return Ok(Some(AgentLine::TooLong(size))),
                }
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
