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

/// The longest line with the size of a chunk that is understood, in bytes.
const MAX_SIZE_LINE: usize = 4096;

/// The number of bytes that are kept of a connection.
const MAX_BYTES: usize = 256 * 1024;

/// The bytes that a source sent over one connection. Dropping it records them, unless all of them were recorded as
/// requests.
pub(super) struct Capture {
    shared: Arc<Shared>,
    /// The hosts that it may have been meant for.
    to: Vec<IntendedHost>,
    channel: MessageProtocol,
    /// The further parts to record with the bytes.
    besides: Vec<(String, Vec<u8>)>,
    bytes: Mutex<Vec<u8>>,
    /// True if more was sent than is kept.
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

    /// Records the bytes at the end, even if everything was recorded in another way: they may contain more.
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
        if let Some(joined) = without_chunk_sizes(&bytes) {
            self.besides.push(("bytes without the sizes of chunks".to_owned(), joined));
        }
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

/// Returns the sent data with the chunks of bodies put together (RFC 9112, section 7.1), or `None` if there are none. A
/// request that is cut or not valid may have chunks, too, so only the empty line before them is looked for.
fn without_chunk_sizes(said: &[u8]) -> Option<Vec<u8>> {
    let (mut joined, mut rest) = (Vec::new(), said);
    while let Some(end) = position(rest, b"\r\n\r\n") {
        let (head, mut body) = rest.split_at(end + 4);
        joined.extend_from_slice(head);
        while let Some((size, after)) = chunk_size(body) {
            let (chunk, after) = after.split_at(size.min(after.len()));
            joined.extend_from_slice(chunk);
            body = after.strip_prefix(b"\r\n").unwrap_or(after);
        }
        rest = body;
    }
    joined.extend_from_slice(rest);
    (joined.len() < said.len()).then_some(joined)
}

/// Returns the size of the chunk that a text begins with, and what follows its line. The rest of the line is left out
/// with it.
fn chunk_size(text: &[u8]) -> Option<(usize, &[u8])> {
    let end = position(text.get(..MAX_SIZE_LINE.min(text.len()))?, b"\r\n")?;
    let line = std::str::from_utf8(text.get(..end)?).ok()?;
    let digits = line.split(|c: char| !c.is_ascii_hexdigit()).next()?;
    let size = usize::from_str_radix(digits, 16).ok().filter(|size| *size > 0)?;
    Some((size, text.get(end + 2..)?))
}

fn position(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
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
