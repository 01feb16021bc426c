//! Standard streams of WASI for a runtime of one thread, which has none for it. Reading blocks the thread, so it does that only
//! once everything else has had its turn.

use std::io::{self, Read as _, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Standard input.
#[derive(Default)]
pub(crate) struct Input {
    /// How often the others went first.
    waited: u32,
}

/// A message passes through so many tasks at most before it is answered.
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
