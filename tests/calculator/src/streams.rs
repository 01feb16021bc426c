//! Standard streams under WASI for tokio's single-threaded runtime, which provides none there. A read blocks the only
//! thread, so it happens only after all other tasks have had their turn.

use std::io::{self, Read as _, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Standard input.
#[derive(Default)]
pub(crate) struct Input {
    /// The number of polls for which this stream has given way to other tasks.
    waited: u32,
}

/// The number of polls to give way: a message passes through at most so many tasks before it is answered.
const TURNS: u32 = 16;

impl AsyncRead for Input {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.waited < TURNS {
            self.waited += 1;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.waited = 0;
        let read = io::stdin().read(into.initialize_unfilled())?;
        into.advance(read);
        Poll::Ready(Ok(()))
    }
}

/// Standard output.
pub(crate) struct Output;

impl AsyncWrite for Output {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(io::stdout().write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(io::stdout().flush())
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}
