//! Idle timeouts: connections that end when no bytes pass through them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// A stream that notes when bytes pass through it.
#[derive(Debug)]
pub(super) struct IdleTrackingStream<S> {
    stream: S,
    begun: Instant,
    /// The time at which bytes last passed, in milliseconds since `begun`.
    last: Arc<AtomicU64>,
}

/// Watches a stream. The returned future completes when no byte was read or written for the time `limit`.
pub(super) fn watch<S>(stream: S, limit: Duration) -> (IdleTrackingStream<S>, impl Future<Output = ()>) {
    let (begun, last) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let watched = IdleTrackingStream { stream, begun, last: Arc::clone(&last) };
    let idle = async move {
        loop {
            let seen = last.load(Ordering::Relaxed);
            tokio::time::sleep_until(begun + Duration::from_millis(seen) + limit).await;
            if last.load(Ordering::Relaxed) == seen {
                return;
            }
        }
    };
    (watched, idle)
}

impl<S> IdleTrackingStream<S> {
    pub(super) fn get_ref(&self) -> &S {
        &self.stream
    }

    fn touch(&self) {
        let millis = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(millis, Ordering::Relaxed);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for IdleTrackingStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if polled.is_ready() {
            self.touch();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for IdleTrackingStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        if polled.is_ready() {
            self.touch();
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        if polled.is_ready() {
            self.touch();
        }
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_carries_nothing_ends_and_one_that_carries_goes_on() {
        let limit = Duration::from_secs(60);
        let (near, mut far) = tokio::io::duplex(64);
        let (mut near, idle) = watch(near, limit);
        let idle = tokio::spawn(idle);
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(50)).await;
            far.write_all(b"x").await.unwrap();
            near.read_u8().await.unwrap();
            tokio::time::sleep(Duration::from_secs(50)).await;
            near.write_all(b"x").await.unwrap();
        }
        assert!(!idle.is_finished());
        let before = Instant::now();
        idle.await.unwrap();
        assert_eq!(before.elapsed(), limit);
    }
}
