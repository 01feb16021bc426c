//! Writes lines to a source: at once where the source takes them, and otherwise in a task that finishes the line.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::task::AbortHandle;

use super::partial_line::PartialLine;
use crate::call::Cause;
use crate::source::transport::TransportError;
use crate::sync::Mutex;

/// The stream that a source reads.
type Input = Box<dyn AsyncWrite + Send + Unpin>;

/// The input of a source, to which lines are written one after the other, in the order in which they were sent.
///
/// A line is never left half written: bytes that the source does not take at once are written by a separate task, even
/// if the sender gives up.
pub(super) struct SourceInput {
    /// `None` once the input is closed, or the source reads no more.
    stream: Arc<AsyncMutex<Option<Input>>>,
    /// The task that finishes a line.
    finishing: Mutex<Option<AbortHandle>>,
}

/// The reason why a line was not written.
pub(super) enum NotWritten {
    /// The input was closed before.
    Closed,
    /// Nothing of the line was written.
    Failed(TransportError),
}

impl SourceInput {
    pub(super) fn new(stream: Input) -> Self {
        Self { stream: Arc::new(AsyncMutex::new(Some(stream))), finishing: Mutex::default() }
    }

    /// Writes a line, which is given without its line feed.
    ///
    /// Cancellation: the line is written completely or not at all.
    ///
    /// # Errors
    /// [`NotWritten`]. If a part was written before the source failed, that is not an error: its effect in the source
    /// is not known.
    pub(super) async fn write(&self, line: Vec<Bytes>) -> Result<(), NotWritten> {
        let mut stream = Arc::clone(&self.stream).lock_owned().await;
        let Some(open) = &mut *stream else { return Err(NotWritten::Closed) };
        let mut line = PartialLine::of_line(line);
        // Most lines fit into the pipe, so that neither a task nor a wake-up is needed.
        let at_once = poll_line(open, &mut line, &mut Context::from_waker(Waker::noop()));
        match at_once {
            Poll::Ready(written) => ended(&mut stream, &line, written),
            Poll::Pending => {
                let task = tokio::spawn(finish(stream, line));
                *self.finishing.lock() = Some(task.abort_handle());
                task.await.unwrap_or(Err(NotWritten::Closed))
            }
        }
    }

    /// Closes the input, after the lines that were sent before.
    ///
    /// Cancellation: the input may stay open.
    pub(super) async fn close(&self) {
        let Some(mut stream) = self.stream.lock().await.take() else { return };
        // If the stream was split, the other half keeps it open: only a shutdown is an end for its reader. A source
        // that has gone makes an error, and is closed too.
        let _ = stream.shutdown().await;
    }
}

impl Drop for SourceInput {
    fn drop(&mut self) {
        if let Some(task) = self.finishing.lock().take() {
            task.abort();
        }
    }
}

/// Writes the rest of a line.
async fn finish(mut stream: OwnedMutexGuard<Option<Input>>, mut line: PartialLine) -> Result<(), NotWritten> {
    let Some(open) = &mut *stream else { return Err(NotWritten::Closed) };
    let written = poll_fn(|cx| poll_line(open, &mut line, cx)).await;
    ended(&mut stream, &line, written)
}

/// Writes as much of a line as the source takes, until all of it is written or the source fails.
fn poll_line(open: &mut Input, line: &mut PartialLine, cx: &mut Context<'_>) -> Poll<Result<(), Cause>> {
    while !line.is_empty() {
        match std::task::ready!(Pin::new(&mut *open).poll_write_vectored(cx, &line.slices())) {
            Ok(0) => return Poll::Ready(Err(Cause::own("it takes no more input"))),
            Ok(written) => line.advance(written),
            Err(error) => return Poll::Ready(Err(Cause::of(error))),
        }
    }
    Poll::Ready(Ok(()))
}

/// Returns the outcome of a line. A source that failed gets no more lines.
fn ended(stream: &mut Option<Input>, line: &PartialLine, written: Result<(), Cause>) -> Result<(), NotWritten> {
    let Err(why) = written else { return Ok(()) };
    stream.take();
    if line.is_whole() {
        let why = why.under("the source does not take the message: ");
        return Err(NotWritten::Failed(TransportError::Closed(why)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use futures_util::{FutureExt as _, poll};
    use tokio::io::{AsyncReadExt as _, duplex, split};

    use super::*;

    fn line(text: &'static str) -> Vec<Bytes> {
        vec![Bytes::from_static(text.as_bytes())]
    }

    #[tokio::test]
    async fn a_line_whose_sender_gives_up_is_finished_before_the_next() {
        let (near, mut far) = duplex(4);
        let input = SourceInput::new(Box::new(near));
        {
            let mut given_up = Box::pin(input.write(line("the first line")));
            assert!(poll!(&mut given_up).is_pending());
        }
        let mut never_begun = Box::pin(input.write(line("never sent")));
        assert!(poll!(&mut never_begun).is_pending());
        drop(never_begun);
        let mut text = String::new();
        let (written, _) = tokio::join!(
            async {
                let written = input.write(line("the second")).await;
                input.close().await;
                written.is_ok()
            },
            far.read_to_string(&mut text)
        );
        assert!(written);
        assert_eq!(text, "the first line\nthe second\n");
    }

    #[tokio::test]
    async fn a_source_that_reads_no_more_is_told_apart_from_one_that_took_a_part() {
        let (near, far) = duplex(4);
        let input = SourceInput::new(Box::new(near));
        let mut partly = Box::pin(input.write(line("a long line")));
        assert!(poll!(&mut partly).is_pending());
        drop(far);
        assert!(partly.await.is_ok(), "what the source makes of a part is not known");
        assert!(matches!(input.write(line("more")).await, Err(NotWritten::Closed)));

        let (near, far) = duplex(4);
        let input = SourceInput::new(Box::new(near));
        drop(far);
        let refused = input.write(line("nothing of it")).await;
        assert!(matches!(refused, Err(NotWritten::Failed(TransportError::Closed(_)))));
    }

    #[tokio::test]
    async fn a_half_of_a_stream_that_is_closed_ends_it_for_its_reader() {
        let (near, mut far) = duplex(64);
        let (_held, near) = split(near);
        let input = SourceInput::new(Box::new(near));
        assert!(input.write(line("the last")).await.is_ok());
        input.close().await;
        let mut text = String::new();
        let read = far.read_to_string(&mut text).now_or_never();
        assert!(read.is_some(), "the stream has not ended");
        assert_eq!(text, "the last\n");
    }

    #[tokio::test]
    async fn an_input_that_nobody_reads_is_released_when_it_is_dropped() {
        let (near, mut far) = duplex(4);
        let input = SourceInput::new(Box::new(near));
        {
            let mut given_up = Box::pin(input.write(line("a long line")));
            assert!(poll!(&mut given_up).is_pending());
        }
        drop(input);
        let mut text = String::new();
        far.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "a lo");
    }
}
