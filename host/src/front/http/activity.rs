//! The activity of each connection, by which the front chooses the ones to close when there is no room for more.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::reply::HttpRefusal;
use crate::principal::Principal;
use crate::shared_limit::{LimitShare, SharedLimit};

/// A clock that the accept loop advances, so that a request need not read the system's clock. It counts ticks.
#[derive(Clone, Default)]
pub(super) struct TickClock(Arc<AtomicU64>);

impl TickClock {
    pub(super) fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Advances the clock by one tick and returns the new time.
    pub(super) fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// The phase that a connection is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionPhase {
    /// The head of a request is arriving, or the first one is awaited.
    Head,
    /// The head has arrived. Its sender is not identified yet, or need not be.
    Unadmitted,
    /// A request of an admitted caller is in progress, until its answer has been written.
    Serving,
    /// An answer has been written, and no further request has begun.
    Resting,
    /// The front is closing the connection.
    Closing,
}

impl ConnectionPhase {
    fn of(word: u64) -> Self {
        match word & 7 {
            0 => Self::Head,
            1 => Self::Unadmitted,
            2 => Self::Serving,
            3 => Self::Resting,
            _ => Self::Closing,
        }
    }
}

/// The phase of one connection and the tick at which it began, in one word.
pub(crate) struct Activity {
    clock: TickClock,
    word: AtomicU64,
}

impl Activity {
    /// Returns the activity of a connection that was just accepted.
    pub(super) fn new(clock: TickClock) -> Arc<Self> {
        let word = AtomicU64::new(word(ConnectionPhase::Head, clock.now()));
        Arc::new(Self { clock, word })
    }

    /// Returns the phase and the tick at which it began. Each byte that is written restarts `Resting`.
    pub(super) fn now(&self) -> (ConnectionPhase, u64) {
        let word = self.word.load(Ordering::Relaxed);
        (ConnectionPhase::of(word), word >> 3)
    }

    /// Marks the connection as closing unless a request is in progress. Returns true if it was marked by this call.
    pub(super) fn close(&self) -> bool {
        self.change(
            |phase| !matches!(phase, ConnectionPhase::Serving | ConnectionPhase::Closing),
            ConnectionPhase::Closing,
        )
    }

    /// Notes that a request's head has been read.
    pub(super) fn begin(self: &Arc<Self>) -> RequestInProgress {
        self.change(|phase| phase != ConnectionPhase::Closing, ConnectionPhase::Unadmitted);
        RequestInProgress { activity: self.clone(), share: None }
    }

    fn received(&self) {
        if self.now().0 == ConnectionPhase::Resting {
            self.change(|phase| phase == ConnectionPhase::Resting, ConnectionPhase::Head);
        }
    }

    fn sent(&self) {
        if self.now().0 == ConnectionPhase::Resting {
            self.change(|phase| phase == ConnectionPhase::Resting, ConnectionPhase::Resting);
        }
    }

    fn change(&self, may: impl Fn(ConnectionPhase) -> bool, to: ConnectionPhase) -> bool {
        let next = word(to, self.clock.now());
        let update = |now| may(ConnectionPhase::of(now)).then_some(next);
        self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update).is_ok()
    }
}

fn word(phase: ConnectionPhase, since: u64) -> u64 {
    since << 3 | phase as u64
}

/// A request in progress, with the place that it holds among its caller's requests.
pub(crate) struct RequestInProgress {
    activity: Arc<Activity>,
    share: Option<LimitShare>,
}

impl RequestInProgress {
    /// Counts the request as its caller's.
    ///
    /// # Errors
    /// 503 if the caller already has its share in progress.
    pub(super) fn admit(
        &mut self,
        limit: &Arc<SharedLimit>,
        principal: &Principal,
        what: &str,
    ) -> Result<(), HttpRefusal> {
        let share = limit.try_take(principal, 1).ok_or_else(|| {
            let message = format!("this caller has its share of {what} open already; wait for one to end");
            HttpRefusal::busy(message)
        })?;
        self.share = Some(share);
        self.activity.change(|phase| phase == ConnectionPhase::Unadmitted, ConnectionPhase::Serving);
        Ok(())
    }

    /// Counts the request as a stream from now on, and no longer as a request. If there is no room among the streams it
    /// stays a request, because its call has already begun.
    pub(super) fn streams(&mut self, limit: &Arc<SharedLimit>) {
        let share = self.share.as_ref().and_then(|share| limit.try_take(share.principal(), 1));
        if share.is_some() {
            self.share = share;
        }
    }

    /// Returns the body, which holds the request's place until it ends.
    pub(super) fn until_end_of(self, body: Body) -> AnswerBody {
        AnswerBody { body, _request: self }
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.activity.change(|phase| phase != ConnectionPhase::Closing, ConnectionPhase::Resting);
    }
}

/// The body of an answer. Its request is in progress until the body is dropped.
pub(super) struct AnswerBody {
    body: Body,
    _request: RequestInProgress,
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection's byte stream, which notes when bytes pass.
pub(super) struct ActivityStream<S> {
    pub(super) stream: S,
    pub(super) activity: Arc<Activity>,
}

impl<S: AsyncRead + Unpin> AsyncRead for ActivityStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.activity.received();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ActivityStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if written.is_ready() {
            self.activity.sent();
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        if written.is_ready() {
            self.activity.sent();
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
