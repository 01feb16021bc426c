//! Answers as HTTP: one JSON body where the answer is the first thing to say, else a stream of events.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::mpsc;

use crate::front::protocol::contact::Out;
use crate::front::protocol::{self, Work};
use crate::message::{Id, Message, MessageError, Response as Answered, RpcError};

/// How often a silent stream says that it lives. Proxies drop connections that are silent for 30 to 60 seconds.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A request that is not served.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) header: Option<(HeaderName, &'static str)>,
    /// Why it was turned away before the protocol, for the ledger.
    pub(crate) reason: Option<&'static str>,
    body: Box<Answered>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, code: i64, message: impl Into<String>) -> Self {
        Self::of(status, None, &RpcError::new(code, message))
    }

    /// The answer to a request whose id was read.
    pub(crate) fn of(status: StatusCode, id: Option<Id>, error: &RpcError) -> Self {
        Self { status, header: None, reason: None, body: Box::new(Answered::error(id, error)) }
    }

    /// As the answer to the request of that id.
    pub(crate) fn answering(mut self, id: Id) -> Self {
        self.body.id = Some(id);
        self
    }

    pub(crate) fn malformed(text: &bytes::Bytes, error: &MessageError) -> Self {
        let status = match error {
            MessageError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        };
        Self { status, header: None, reason: Some("malformed"), body: Box::new(protocol::malformed(text, error)) }
    }

    /// Says why, for the ledger.
    pub(crate) fn because(mut self, reason: &'static str) -> Self {
        self.reason = Some(reason);
        self
    }

    pub(crate) fn method_not_allowed(allowed: &'static str) -> Self {
        let message = format!("this method is not served here; {allowed} are");
        let mut refusal = Self::new(StatusCode::METHOD_NOT_ALLOWED, RpcError::INVALID_REQUEST, message);
        refusal.header = Some((ALLOW, allowed));
        refusal
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = json(self.status, *self.body);
        response.headers_mut().extend(self.header.map(|(name, value)| (name, HeaderValue::from_static(value))));
        response
    }
}

/// One message as a whole body.
pub(crate) fn json(status: StatusCode, answer: Answered) -> Response {
    let body = Body::from(Message::Response(answer).to_line());
    (status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

/// A message that is taken and not answered.
pub(crate) fn accepted() -> Response {
    StatusCode::ACCEPTED.into_response()
}

/// What happens to a call whose agent stops listening for the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenLeft {
    /// It is cancelled (2026-07-28).
    Cancel,
    /// It goes on, and its answer is dropped: leaving is no cancellation (2025-11-25 and earlier).
    Finish,
}

/// Drives a call on a task of its own and answers with what it says, in its order. `used` is held until the call ends.
pub(crate) async fn work(
    work: Work,
    out: Out,
    mut said: mpsc::Receiver<Message>,
    when_left: WhenLeft,
    used: impl Send + 'static,
) -> Response {
    let task = tokio::spawn(async move {
        if let Some(response) = work.run().await {
            let _ = out.send(Message::Response(response)).await;
        }
        drop(used);
    });
    let listening = (when_left == WhenLeft::Cancel).then(|| AbortOnDrop(task.abort_handle()));
    match tokio::time::timeout(KEEP_ALIVE, said.recv()).await {
        Ok(Some(Message::Response(response))) => json(StatusCode::OK, response),
        Ok(first) => stream(said, first, listening),
        // A stream can say that we live.
        Err(_) => stream(said, None, listening),
    }
}

/// A stream of events: `first`, then what comes through `said`, until nobody can say any more. `held` is dropped when the
/// stream ends or the peer leaves.
pub(crate) fn stream(said: mpsc::Receiver<Message>, first: Option<Message>, held: impl Send + 'static) -> Response {
    let events = stream::unfold((first, said, held), |(first, mut said, held)| async move {
        let message = match first {
            Some(message) => message,
            None => said.recv().await?,
        };
        let line = String::from_utf8(message.to_line().into()).ok()?;
        Some((Ok::<_, Infallible>(Event::default().data(line)), (None, said, held)))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
