//! One POST from its first byte to the end of its answer; and the GET that listens.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, Response as HttpResponse, StatusCode};
use tokio::sync::watch;

use super::headers;
use super::sse::{Events, TooLarge};
use super::status;
use super::transport::Shared;
use crate::egress::{EgressError, Outgoing};
use crate::protocol::{self, Answer, Id, Message, Response, RpcError, make_room, revision};
use crate::source::transport::{Received, TransportError};

/// The largest body of an error status that is looked at: an error object, not a web page.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// How long the end of a stream is waited for after its answer has come, so that the connection can be used again.
const STREAM_END: Duration = Duration::from_secs(1);

/// How often in a row it is tried to take up a stream that broke, without a single new event.
const MAX_RESUMES: u32 = 5;

/// How long to wait before taking up a stream again, where the server does not say, at first and at most; and the bounds of
/// what it may say.
const RETRY: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);
const MIN_RETRY: Duration = Duration::from_millis(100);
const MAX_RETRY: Duration = Duration::from_secs(5 * 60);

/// One message and what comes back for it.
pub(super) struct Exchange {
    pub(super) shared: Arc<Shared>,
    /// Of the request; None for a message that has no answer.
    pub(super) id: Option<Id>,
    /// Of the request.
    pub(super) method: Option<protocol::Method>,
}

impl Exchange {
    /// Sends the message and delivers what comes back; `left` tells whether it is on its way.
    ///
    /// # Errors
    /// Only if the message surely has not left.
    pub(super) async fn run(self, outgoing: Outgoing, left: watch::Sender<bool>) -> Result<(), EgressError> {
        match self.shared.send(outgoing).await {
            Ok(response) => self.read(response).await,
            Err(error) if *left.borrow() => self.lose(&error.to_string()).await,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn read(&self, response: HttpResponse) {
        let status = response.status();
        if status == StatusCode::NOT_FOUND && self.shared.has_session() {
            return self.expire().await;
        }
        let Some(id) = &self.id else {
            if !status.is_success() {
                tracing::debug!(source = %self.shared.source, status = status.as_u16(), "a message was not accepted");
            }
            return;
        };
        if !status.is_success() {
            return self.fail(id, response).await;
        }
        if self.method == Some(protocol::Method::Initialize)
            && let Some(session) = response.headers().get(headers::SESSION)
        {
            self.shared.open_session(session.clone());
        }
        match media_type(&response).as_str() {
            "application/json" => self.read_json(id, response).await,
            "text/event-stream" => self.read_stream(id, response).await,
            other => {
                let what =
                    if other.is_empty() { "no content".to_owned() } else { format!("`{}`", other.escape_debug()) };
                let why = format!("`{}` answered with {what} instead of JSON or an event stream", self.shared.shown());
                self.spoil(id, RpcError::new(RpcError::INTERNAL, why)).await;
            }
        }
    }

    async fn read_json(&self, id: &Id, response: HttpResponse) {
        match body(response, self.shared.limit).await {
            Ok(text) => match Message::parse(text) {
                Ok(Message::Response(response)) if response.id.as_ref() == Some(id) => {
                    self.shared.deliver(Ok(Message::Response(response).into())).await;
                }
                Ok(Message::Response(Response { id: None, answer: answer @ Answer::Error(_) })) => {
                    // The server could not read the id, which it alone has been sent here.
                    self.shared.deliver(Ok(Message::Response(Response { id: Some(id.clone()), answer }).into())).await;
                }
                Ok(_) => self.garbage(id, "something else than the answer to the request").await,
                Err(error) => self.garbage(id, &error.to_string()).await,
            },
            Err(BodyError::TooLarge(size)) => self.too_large(id, size).await,
            Err(BodyError::Broken(why)) => self.lose(&why).await,
        }
    }

    async fn read_stream(&self, id: &Id, mut response: HttpResponse) {
        let mut events = Events::new(self.shared.limit);
        let mut attempts = 0;
        loop {
            let before = events.last_id().map(ToOwned::to_owned);
            let end = pump(&self.shared, &mut response, &mut events, Some(id)).await;
            let why = match end {
                End::Answered => return,
                End::TooLarge(size) => return self.too_large(id, size).await,
                End::Closed(why) => why,
            };
            if before.as_deref() != events.last_id() {
                attempts = 0;
            }
            // Taking up again is not sending again: the server has said where the rest of the answer can be had.
            match self.resume(&mut events, &mut attempts).await {
                Some(next) => response = next,
                None => return self.lose(&why).await,
            }
        }
    }

    /// The rest of a stream that broke, if the server still has it.
    async fn resume(&self, events: &mut Events, attempts: &mut u32) -> Option<HttpResponse> {
        let protocol = self.shared.protocol();
        if protocol.as_deref().is_some_and(revision::is_modern) {
            return None;
        }
        let last = events.last_id()?.to_owned();
        events.reconnect();
        while *attempts < MAX_RESUMES {
            *attempts += 1;
            tokio::time::sleep(pause(events, RETRY)).await;
            let headers = headers::for_listening(protocol.as_deref(), Some(&last));
            match self.shared.send(self.shared.outgoing(Method::GET, headers)).await {
                Ok(response) if is_stream(&response) => return Some(response),
                // It says no, and will not say yes later.
                Ok(response) if response.status().is_client_error() => return None,
                Ok(_) | Err(_) => {}
            }
        }
        None
    }

    /// Delivers the error that the server gave, or one in its place.
    async fn fail(&self, id: &Id, response: HttpResponse) {
        // What a server refuses for want of another token it has not done (RFC 9110, section 15.5).
        let refused = matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let advice = self.shared.bearer.as_ref().and_then(|bearer| bearer.advice(&response));
        let instead = status::error(&self.shared.source, &self.shared.url, &response, advice.as_deref());
        if advice.is_some() {
            // Whatever the server says of it, this is what helps.
            return self.answer(id, instead).await;
        }
        let given = match body(response, MAX_ERROR_BYTES).await {
            Ok(text) => Message::parse(text).ok(),
            Err(_) => None,
        };
        match given {
            Some(Message::Response(Response { answer: answer @ Answer::Error(_), .. })) => {
                self.shared.deliver(Ok(Message::Response(Response { id: Some(id.clone()), answer }).into())).await;
            }
            _ if refused => self.answer(id, instead).await,
            _ => self.spoil(id, instead).await,
        }
    }

    async fn expire(&self) {
        let reason = format!("`{}` has ended the session (status 404): session expired", self.shared.shown());
        // The server refused it, so it surely did nothing.
        self.shared.deliver(Err(TransportError::Expired { id: self.id.clone(), reason: reason.clone() })).await;
        self.shared.end(&reason);
    }

    async fn too_large(&self, id: &Id, size: usize) {
        let limit = self.shared.limit;
        let why = format!(
            "the answer of `{}` has {size} bytes or more, over the limit of {limit} bytes",
            self.shared.shown()
        );
        self.spoil(id, RpcError::new(RpcError::INTERNAL, why)).await;
    }

    async fn garbage(&self, id: &Id, what: &str) {
        let why = format!("`{}` answered with something that is no valid answer: {what}", self.shared.shown());
        self.spoil(id, RpcError::new(RpcError::INTERNAL, why)).await;
    }

    /// What came back is no answer of the server's. The outcome of a call is unknown then, as it has left; any other request
    /// fails with the error.
    async fn spoil(&self, id: &Id, error: RpcError) {
        match &self.method {
            Some(method) if !changes_nothing(method) => self.lose(&error.message).await,
            _ => self.answer(id, error).await,
        }
    }

    async fn answer(&self, id: &Id, error: RpcError) {
        self.shared.deliver(Ok(Message::Response(Response::error(Some(id.clone()), &error)).into())).await;
    }

    /// The message left and its answer will not come.
    async fn lose(&self, reason: &str) {
        match &self.id {
            Some(id) => {
                let lost = TransportError::Lost { id: id.clone(), reason: reason.to_owned() };
                self.shared.deliver(Err(lost)).await;
            }
            None => tracing::debug!(source = %self.shared.source, reason, "a message may not have arrived"),
        }
    }
}

/// Whether a request is one of those by which the broker itself learns of a server, which leave nothing to wonder about.
fn changes_nothing(method: &protocol::Method) -> bool {
    matches!(method, protocol::Method::Initialize | protocol::Method::ServerDiscover | protocol::Method::Ping)
        || method.ends_with("/list")
}

/// Delivers what the server says on its own, for as long as the connection lasts, if the server offers that at all.
pub(super) async fn listen(shared: &Arc<Shared>) {
    let mut events = Events::new(shared.limit);
    let mut usual = RETRY;
    loop {
        let headers = headers::for_listening(shared.protocol().as_deref(), events.last_id());
        match shared.send(shared.outgoing(Method::GET, headers)).await {
            Ok(mut response) if is_stream(&response) => {
                usual = RETRY;
                if let End::TooLarge(size) = pump(shared, &mut response, &mut events, None).await {
                    return shared.deliver(Err(TransportError::Oversized { size, limit: shared.limit })).await;
                }
                events.reconnect();
            }
            Ok(response) if response.status() == StatusCode::NOT_FOUND && shared.has_session() => {
                // The next message finds out whether that was about the session or about listening.
                return;
            }
            Ok(response) if response.status().is_server_error() => {}
            // It does not know any more where we were: from here on, then.
            Ok(_) if events.last_id().is_some() => events = Events::new(shared.limit),
            // Status 405, most often: not offered.
            Ok(_) => return,
            Err(error) => tracing::debug!(source = %shared.source, %error, "not listening"),
        }
        tokio::time::sleep(pause(&events, usual)).await;
        usual = (usual * 2).min(MAX_PAUSE);
    }
}

/// How long the server wants a client to wait, or as long as is usual.
fn pause(events: &Events, usual: Duration) -> Duration {
    events.retry().map_or(usual, |retry| retry.clamp(MIN_RETRY, MAX_RETRY))
}

/// How a stream ended.
pub(super) enum End {
    /// With the answer that it was for.
    Answered,
    /// By an event over the limit.
    TooLarge(usize),
    /// Before that.
    Closed(String),
}

/// Delivers every message of a stream, in its order.
pub(super) async fn pump(
    shared: &Shared,
    response: &mut HttpResponse,
    events: &mut Events,
    awaited: Option<&Id>,
) -> End {
    loop {
        let chunk = match response.chunk().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return End::Closed(format!("`{}` ended the stream before the answer", shared.shown())),
            Err(error) => return End::Closed(EgressError::from_client(&shared.url, &error).to_string()),
        };
        let data = match events.feed(&chunk) {
            Ok(data) => data,
            Err(TooLarge(size)) => return End::TooLarge(size),
        };
        let mut answered = false;
        for text in data {
            let message = match Message::parse(text) {
                Ok(message) => message,
                Err(error) => {
                    // The answer may still come; if it was this, the caller's deadline ends the wait.
                    tracing::debug!(source = %shared.source, %error, "an event that is no message");
                    continue;
                }
            };
            answered |=
                matches!(&message, Message::Response(response) if awaited.is_some() && response.id.as_ref() == awaited);
            shared.deliver(Ok(Received { message, within: awaited.cloned() })).await;
        }
        if answered {
            let rest = async { while let Ok(Some(_)) = response.chunk().await {} };
            // Only for the connection's sake.
            let _ = tokio::time::timeout(STREAM_END, rest).await;
            return End::Answered;
        }
    }
}

/// Why a body could not be read.
enum BodyError {
    TooLarge(usize),
    Broken(String),
}

async fn body(mut response: HttpResponse, limit: usize) -> Result<Bytes, BodyError> {
    let announced = response.content_length().and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
    if announced > limit {
        return Err(BodyError::TooLarge(announced));
    }
    let mut text = Vec::with_capacity(announced);
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                make_room(&mut text, chunk.len(), limit);
                text.extend_from_slice(&chunk);
            }
            Ok(None) => {
                text.shrink_to_fit();
                return Ok(text.into());
            }
            Err(error) => return Err(BodyError::Broken(EgressError::from_client(response.url(), &error).to_string())),
        }
        if text.len() > limit {
            return Err(BodyError::TooLarge(text.len()));
        }
    }
}

pub(super) fn is_stream(response: &HttpResponse) -> bool {
    response.status().is_success() && media_type(response) == "text/event-stream"
}

/// The content type without its parameters, in lower case; empty if there is none.
fn media_type(response: &HttpResponse) -> String {
    let value = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}
