//! Answers as HTTP: one JSON body where the answer is the first thing to say, else a stream of events.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, stream};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::front::protocol::contact::Out;
use crate::front::protocol::{self, Work};
use crate::message::{Answer, Id, Message, MessageError, Response as Answered, RpcError};

/// How often a silent stream says that it lives. Proxies drop connections that are silent for 30 to 60 seconds.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A request that is not served.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) header: Option<(HeaderName, HeaderValue)>,
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
        refusal.header = Some((ALLOW, HeaderValue::from_static(allowed)));
        refusal
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = json(self.status, *self.body);
        response.headers_mut().extend(self.header);
        response
    }
}

/// One message as a whole body.
pub(crate) fn json(status: StatusCode, answer: Answered) -> Response {
    let body = Body::from(Message::Response(answer).to_line());
    (status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

/// In the modern era an unknown method is 404, and what the protocol's own errors say of the request is 400.
pub(crate) fn modern_status(answer: &Answered) -> StatusCode {
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

/// Drives a call and answers with what it says, in its order. `used` is held until the call ends.
pub(crate) async fn work(
    work: Work,
    out: Out,
    mut said: mpsc::Receiver<Message>,
    when_left: WhenLeft,
    used: impl Send + 'static,
) -> Response {
    let call = async move {
        if let Some(response) = work.run().await {
            let _ = out.send(Message::Response(response)).await;
        }
        drop(used);
    };
    // Most calls say nothing but their answer, and need no task of their own.
    let mut call = Here { call: Some(call.boxed()), when_left };
    let first = async {
        tokio::select! {
            biased;
            message = said.recv() => message,
            () = call.end() => said.recv().await,
        }
    };
    match tokio::time::timeout(KEEP_ALIVE, first).await {
        Ok(Some(Message::Response(response))) => {
            let modern = when_left == WhenLeft::Cancel;
            json(if modern { modern_status(&response) } else { StatusCode::OK }, response)
        }
        Ok(first) => stream(said, first, call.elsewhere()),
        // A stream can say that we live.
        Err(_) => stream(said, None, call.elsewhere()),
    }
}

/// A call that is driven by the task of its connection. When the agent leaves, it goes on elsewhere if it is to be finished.
struct Here {
    call: Option<BoxFuture<'static, ()>>,
    when_left: WhenLeft,
}

impl Here {
    async fn end(&mut self) {
        if let Some(call) = &mut self.call {
            call.await;
            self.call = None;
        }
    }

    /// Gives the rest of the call a task of its own. What is returned is to be held as long as somebody listens.
    fn elsewhere(&mut self) -> Option<AbortOnDrop> {
        let call = self.call.take()?;
        // There is no runtime any more when it is just being dropped, and the call with it.
        let task = Handle::try_current().ok()?.spawn(call);
        (self.when_left == WhenLeft::Cancel).then(|| AbortOnDrop(task.abort_handle()))
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        if self.when_left == WhenLeft::Finish {
            self.elsewhere();
        }
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
    // Proxies that hold events back would make progress arrive with the answer.
    let unbuffered = [(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"))];
    (unbuffered, Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))).into_response()
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
