//! The bytes of one connection, kept as they arrive, so that none is lost with a connection that ends in any way.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use portcullis_core::sync::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Shared;
use super::traffic::{IntendedHost, MessageProtocol};

/// The number of bytes that are kept of a connection.
const MAX_BYTES: usize = 256 * 1024;

/// The bytes that a source sent over one connection. Dropping it records them, unless all of them were recorded as
/// requests.
pub(super) struct Capture {
    shared: Arc<Shared>,
    /// The hosts that it may have been meant for.
    to: Vec<IntendedHost>,
    channel: MessageProtocol,
    /// What was said besides the bytes.
    besides: Vec<(String, Vec<u8>)>,
    bytes: Mutex<Vec<u8>>,
    /// True if more was said than is kept.
    cut: AtomicBool,
    understood: AtomicBool,
    /// True if the bytes are noted in any case.
    kept: AtomicBool,
}

impl Capture {
    pub(super) fn new(
        shared: &Arc<Shared>,
        to: Vec<IntendedHost>,
        channel: MessageProtocol,
        besides: Vec<(String, Vec<u8>)>,
    ) -> Arc<Self> {
        let (shared, bytes) = (Arc::clone(shared), Mutex::default());
        let [cut, understood, kept] = Default::default();
        Arc::new(Self { shared, to, channel, besides, bytes, cut, understood, kept })
    }

    /// Notes the bytes at the end, also if everything was noted in another way: they may say more than that.
    pub(super) fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }

    /// Returns the bytes so far.
    pub(super) fn so_far(&self) -> Vec<u8> {
        self.bytes.lock().clone()
    }

    /// Says whether everything so far was noted in another way.
    pub(super) fn understand(&self, understood: bool) {
        self.understood.store(understood, Ordering::Relaxed);
    }

    pub(super) fn is_understood(&self) -> bool {
        self.understood.load(Ordering::Relaxed)
    }

    fn receive(&self, heard: &[u8]) {
        let mut bytes = self.bytes.lock();
        let room = MAX_BYTES.saturating_sub(bytes.len());
        if heard.len() > room {
            self.cut.store(true, Ordering::Relaxed);
        }
        bytes.extend_from_slice(heard.get(..room).unwrap_or(heard));
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if self.is_understood() && !*self.kept.get_mut() {
            return;
        }
        let bytes = std::mem::take(&mut *self.bytes.lock());
        if !bytes.is_empty() {
            self.besides.push(("bytes".to_owned(), bytes));
        }
        for to in &self.to {
            self.shared.traffic.record(self.channel, to, self.besides.clone());
        }
        if *self.cut.get_mut() {
            self.shared.traffic.miss();
        }
    }
}

/// A connection whose bytes are kept.
pub(super) struct CapturingStream<S> {
    stream: S,
    heard: Arc<Capture>,
}

impl<S> CapturingStream<S> {
    pub(super) fn new(stream: S, heard: Arc<Capture>) -> Self {
        Self { stream, heard }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CapturingStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let read = buffer.filled().get(before..).unwrap_or_default();
        if !read.is_empty() {
            self.heard.receive(read);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CapturingStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
