//! A reader of lines from a program that may never end a line: a long line costs no memory.

use bytes::Bytes;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::protocol::MessageBuffer;

/// The most bytes that are read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// One line, without its line feed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LimitedLine {
    /// A line within the limit.
    Whole(Bytes),
    /// A line over the limit, skipped to its end or as far as one line is ever read.
    Oversized {
        /// The bytes that were skipped.
        size: usize,
        /// True if the end was found, so that the next line can be read.
        ended: bool,
    },
}

/// A reader of lines of at most `limit` bytes. Up to about `skip` bytes of a longer line are discarded in search of its
/// end.
pub(crate) struct LimitedLines<R> {
    input: BufReader<R>,
    limit: usize,
    skip: usize,
    line: MessageBuffer,
    skipped: usize,
}

impl<R: AsyncRead + Unpin> LimitedLines<R> {
    pub(crate) fn new(input: R, limit: usize, skip: usize) -> Self {
        Self {
            input: BufReader::with_capacity(CHUNK_BYTES, input),
            limit,
            skip,
            line: MessageBuffer::default(),
            skipped: 0,
        }
    }

    /// Returns the next line, or `None` at the end. A last line without a line feed counts. Cancellation safe.
    pub(crate) async fn next(&mut self) -> std::io::Result<Option<LimitedLine>> {
        loop {
            let chunk = self.input.fill_buf().await?;
            if chunk.is_empty() {
                let rest = self.line.len() + self.skipped;
                return Ok((rest > 0).then(|| self.take(true)));
            }
            let end = memchr::memchr(b'\n', chunk);
            let part = chunk.get(..end.unwrap_or(chunk.len())).unwrap_or_default();
            if self.skipped > 0 || self.line.len() + part.len() > self.limit {
                self.skipped += std::mem::take(&mut self.line).len() + part.len();
            } else {
                self.line.extend(part, self.limit);
            }
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            if end.is_some() || self.skipped > self.skip {
                return Ok(Some(self.take(end.is_some())));
            }
        }
    }

    fn take(&mut self, ended: bool) -> LimitedLine {
        match std::mem::take(&mut self.skipped) {
            0 => LimitedLine::Whole(std::mem::take(&mut self.line).into_bytes()),
            size => LimitedLine::Oversized { size, ended },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    async fn all(text: &[u8]) -> Vec<LimitedLine> {
        let mut lines = LimitedLines::new(text, 4, 10);
        let mut out = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            let stop = matches!(line, LimitedLine::Oversized { ended: false, .. });
            out.push(line);
            if stop {
                break;
            }
        }
        out
    }

    #[tokio::test]
    async fn a_long_line_is_skipped_and_the_next_is_read() {
        let whole = |text: &'static str| LimitedLine::Whole(Bytes::from_static(text.as_bytes()));
        assert_eq!(all(b"abcd\n\nx").await, [whole("abcd"), whole(""), whole("x")]);
        assert_eq!(all(b"abcde\nx\n").await, [LimitedLine::Oversized { size: 5, ended: true }, whole("x")]);
    }

    #[tokio::test]
    async fn a_line_without_an_end_is_given_up() {
        assert_eq!(all(b"abcdefghijklmnop").await, [LimitedLine::Oversized { size: 16, ended: false }]);
    }
}
