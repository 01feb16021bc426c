//! Answers as HTTP: one JSON body if the answer is the first message, otherwise a stream of events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::events;
use super::streams::SessionStreams;
use crate::front::outgoing::MessageSender;
use crate::front::protocol::{self, CallWork};
use crate::protocol::{Answer, Id, Message, MessageError, Response as JsonRpcResponse, RpcError};

/// The interval at which a silent stream shows that it is alive. Proxies drop connections that are silent for 30 to 60
/// seconds.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The answer to a request that is not served.
#[derive(Debug)]
pub(crate) struct HttpRefusal {
    pub(crate) status: StatusCode,
    pub(crate) header: Option<(HeaderName, HeaderValue)>,
    /// The reason for the ledger, if the request was turned away before it became a call.
    pub(crate) reason: Option<&'static str>,
    body: Box<JsonRpcResponse>,
}

impl HttpRefusal {
    pub(crate) fn new(status: StatusCode, code: i64, message: impl Into<String>) -> Self {
        Self::of(status, None, &RpcError::new(code, message))
    }

    /// Returns the answer to a request, with the request's id if that was read.
    pub(crate) fn of(status: StatusCode, id: Option<Id>, error: &RpcError) -> Self {
        Self { status, header: None, reason: None, body: Box::new(JsonRpcResponse::error(id, error)) }
    }

    /// Makes it the answer to the request with that id.
    pub(crate) fn answering(mut self, id: Id) -> Self {
        self.body.id = Some(id);
        self
    }

    pub(crate) fn parse_error(text: &Bytes, error: &MessageError) -> Self {
        let status = match error {
            MessageError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        };
        Self { status, header: None, reason: Some("malformed"), body: Box::new(protocol::parse_error(text, error)) }
    }

    /// Adds the reason for the ledger.
    pub(crate) fn because(mut self, reason: &'static str) -> Self {
        self.reason = Some(reason);
        self
    }

    /// Returns a 503 for a request for which there is no room now, but will be soon.
    pub(crate) fn busy(message: String) -> Self {
        let mut refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, RpcError::INTERNAL, message);
        refusal.header = Some((RETRY_AFTER, HeaderValue::from_static("1")));
        refusal
    }

    pub(crate) fn method_not_allowed(allowed: &'static str) -> Self {
        let message = format!("this method is not served here; allowed: {allowed}");
        let mut refusal = Self::new(StatusCode::METHOD_NOT_ALLOWED, RpcError::INVALID_REQUEST, message);
        refusal.header = Some((ALLOW, HeaderValue::from_static(allowed)));
        refusal
    }
}

impl IntoResponse for HttpRefusal {
    fn into_response(self) -> Response {
        let mut response = json(self.status, *self.body);
        response.headers_mut().extend(self.header);
        response
    }
}

/// Returns a response whose body is one message.
pub(crate) fn json(status: StatusCode, answer: JsonRpcResponse) -> Response {
    let body = Body::new(Pieces(Message::Response(answer).to_chunks().into()));
    (status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

/// A body that is complete, in pieces.
struct Pieces(VecDeque<Bytes>);

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|piece| piece.len() as u64).sum())
    }
}

/// Returns the status of an answer in the modern era: 404 for an unknown method, 400 where one of the protocol's own
/// errors blames the request, otherwise 200.
pub(crate) fn modern_status(answer: &JsonRpcResponse) -> StatusCode {
    let code = match &answer.answer {
        Answer::Error(error) => error.get("code").and_then(|code| code.read::<i64>().ok()),
        Answer::Result(_) => None,
    };
    match code {
        Some(RpcError::METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        Some(RpcError::HEADER_MISMATCH | RpcError::MISSING_CAPABILITY | RpcError::UNSUPPORTED_VERSION) => {
            StatusCode::BAD_REQUEST
        }
        _ => StatusCode::OK,
    }
}

/// Returns the response to a message that is taken and not answered.
pub(crate) fn accepted() -> Response {
    StatusCode::ACCEPTED.into_response()
}

/// Drives a call and answers with its messages, in order. `used` is held until the call ends.
///
/// If the agent disconnects, a call with `streams` (2025-11-25 and earlier) continues, and the agent may come back for
/// its messages: disconnecting does not cancel. Without `streams` (2026-07-28) the call is cancelled.
pub(crate) async fn work(
    work: CallWork,
    out: MessageSender,
    mut messages: mpsc::Receiver<Message>,
    streams: Option<&Resumable>,
    used: impl Send + 'static,
) -> Response {
    let call = async move {
        if let Some(response) = work.run().await {
            out.send(Message::Response(response)).await;
        }
        drop(used);
    };
    // Most calls send nothing but their answer, and need no separate task.
    let mut call = InlineCall { call: Some(call.boxed()), cancel: streams.is_none() };
    let first = async {
        tokio::select! {
            biased;
            message = messages.recv() => message,
            () = call.end() => messages.recv().await,
        }
    };
    let (first, over) = match tokio::time::timeout(KEEP_ALIVE, first).await {
        Ok(first) => {
            let over = first.is_none();
            (first, over)
        }
        // A stream can show that the call is alive.
        Err(_) => (None, false),
    };
    // If the call has sent nothing and never will, there is nothing to resume.
    match (first, streams) {
        (Some(Message::Response(response)), None) => json(modern_status(&response), response),
        (Some(Message::Response(response)), Some(_)) => json(StatusCode::OK, response),
        (first, Some(resumable)) if !over => {
            // The call continues, whether the agent listens or not.
            drop(call.move_to_task());
            events::resumable(resumable.streams.open(first, messages), resumable.starts_with_id, ())
        }
        (first, _) => events::plain(first, messages, call.move_to_task()),
    }
}

/// The streams of a legacy session, and how they begin.
#[derive(Clone)]
pub(crate) struct Resumable {
    pub(crate) streams: Arc<SessionStreams>,
    /// True if the agent accepts an event without data, which tells it the id at which a stream begins.
    pub(crate) starts_with_id: bool,
}

/// A call that is driven by the task of its connection. If the agent disconnects, a call that is to be finished
/// continues in a separate task.
struct InlineCall {
    call: Option<BoxFuture<'static, ()>>,
    /// True if the call is cancelled when its agent disconnects.
    cancel: bool,
}

impl InlineCall {
    async fn end(&mut self) {
        if let Some(call) = &mut self.call {
            call.await;
            self.call = None;
        }
    }

    /// Moves the rest of the call to a separate task. The returned guard must be held for as long as the agent listens.
    fn move_to_task(&mut self) -> Option<AbortOnDrop> {
        let call = self.call.take()?;
        // If the runtime is just being dropped, there is none to continue in, and the call is dropped with it.
        let task = Handle::try_current().ok()?.spawn(call);
        self.cancel.then(|| AbortOnDrop(task.abort_handle()))
    }
}

impl Drop for InlineCall {
    fn drop(&mut self) {
        if !self.cancel {
            self.move_to_task();
        }
    }
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
