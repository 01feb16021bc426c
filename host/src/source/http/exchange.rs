//! The exchange of one POST and its answer; and the GET that listens.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Method, Response as HttpResponse, StatusCode};
use tokio::sync::watch;

use super::egress_cause;
use super::headers;
use super::sse::{SseParser, TooLarge};
use super::status::{self, SubstituteAnswer};
use super::transport::TransportShared;
use crate::call::Cause;
use crate::egress::{EgressError, OutgoingRequest};
use crate::protocol::{self, Answer, Id, Message, MessageBuffer, Response, revision};
use crate::source::transport::{ReceivedMessage, TransportError};

/// The largest body of an error status that is read, in bytes: room for an error object, not for a web page.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// The longest wait for the end of a stream after its answer, so that the HTTP connection can be reused.
const STREAM_END: Duration = Duration::from_secs(1);

/// The most attempts in a row to resume a stream that broke.
const MAX_RESUMES: u32 = 5;

/// The pause before a stream is resumed: at first and at most, if the server does not set it; and the bounds on what
/// the server may set.
const RETRY: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);
const MIN_RETRY: Duration = Duration::from_millis(100);
const MAX_RETRY: Duration = Duration::from_secs(5 * 60);

/// One message and its answer.
pub(super) struct Exchange {
    pub(super) shared: Arc<TransportShared>,
    /// The id of the request, or `None` for a message that has no answer.
    pub(super) id: Option<Id>,
    /// The method of the request.
    pub(super) method: Option<protocol::Method>,
}

impl Exchange {
    /// Sends the message and delivers its answer. `left` tells whether the message is on its way.
    ///
    /// # Errors
    /// [`EgressError`] only if the message certainly was not sent.
    pub(super) async fn run(self, outgoing: OutgoingRequest, left: watch::Sender<bool>) -> Result<(), EgressError> {
        match self.shared.send(outgoing).await {
            Ok(response) => self.read(response).await,
            Err(error) if *left.borrow() => self.report_lost(egress_cause(error)).await,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn read(&self, response: HttpResponse) {
        let status = response.status();
        if status == StatusCode::NOT_FOUND && self.shared.has_session() {
            return Box::pin(self.expire()).await;
        }
        let Some(id) = &self.id else {
            if !status.is_success() {
                tracing::debug!(source = %self.shared.source, status = status.as_u16(), "a message was not accepted");
            }
            return;
        };
        if !status.is_success() {
            return Box::pin(self.fail(id, response)).await;
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
                let why = Cause::own(format!("`{}` answered", self.shared.shown()));
                let why = match other {
                    "" => why.then(" with no content"),
                    other => why.said(" with `", other.escape_debug().to_string(), "`"),
                };
                self.fail_request(id, SubstituteAnswer::of(why.then(" instead of JSON or an event stream"))).await;
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
                    // The server could not read the id, but this POST carried only one request.
                    self.shared.deliver(Ok(Message::Response(Response { id: Some(id.clone()), answer }).into())).await;
                }
                Ok(_) => self.garbage(id, "a message that is not the answer to the request".into()).await,
                // A parser may repeat the unexpected input.
                Err(error) => self.garbage(id, Cause::own("").said("", error.to_string(), "")).await,
            },
            Err(BodyError::TooLarge(size)) => self.too_large(id, size).await,
            Err(BodyError::Broken(why)) => self.report_lost(why).await,
        }
    }

    async fn read_stream(&self, id: &Id, mut response: HttpResponse) {
        let mut events = SseParser::new(self.shared.limit);
        loop {
            let end = pump(&self.shared, &mut response, &mut events, Some(id)).await;
            let why = match end {
                StreamEnd::Answered => return,
                StreamEnd::TooLarge(size) => return self.too_large(id, size).await,
                StreamEnd::Closed(why) => why,
            };
            // Resuming is not sending again: the server has named the place of the rest of the answer.
            match Box::pin(self.resume(&mut events)).await {
                Some(next) => response = next,
                None => return self.report_lost(why).await,
            }
        }
    }

    /// Returns the rest of a stream that broke, if the server still has it. A server may also close its streams often
    /// and let clients ask again (2025-11-25, "Resumability"); the deadline of the call bounds that.
    async fn resume(&self, events: &mut SseParser) -> Option<HttpResponse> {
        let protocol = self.shared.protocol();
        if protocol.as_deref().is_some_and(revision::is_modern) {
            return None;
        }
        let last = events.last_id()?.to_owned();
        events.reconnect();
        for _ in 0..MAX_RESUMES {
            tokio::time::sleep(pause(events, RETRY)).await;
            let headers = headers::for_listening(protocol.as_deref(), Some(&last));
            match self.shared.send(self.shared.outgoing(Method::GET, headers)).await {
                Ok(response) if is_stream(&response) => return Some(response),
                // The server refuses, and a later attempt would not help.
                Ok(response) if response.status().is_client_error() => return None,
                Ok(_) | Err(_) => {}
            }
        }
        None
    }

    /// Delivers the error that the server gave, or one made from its status.
    async fn fail(&self, id: &Id, response: HttpResponse) {
        // A server does not act on a request that it refuses for its token (RFC 9110, section 15.5).
        let refused = matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let advice = self.shared.bearer.as_ref().and_then(|bearer| bearer.advice(&response));
        let authorization = self.shared.secrets.get(AUTHORIZATION);
        let (source, url) = (&self.shared.source, &self.shared.url);
        let instead = status::error(source, url, &response, advice.as_deref(), authorization);
        if advice.is_some() {
            // The advice to log in is more helpful than the server's message.
            return self.answer(id, &instead).await;
        }
        let given = match body(response, MAX_ERROR_BYTES).await {
            Ok(text) => Message::parse(text).ok(),
            Err(_) => None,
        };
        match given {
            Some(Message::Response(Response { answer: answer @ Answer::Error(_), .. })) => {
                self.shared.deliver(Ok(Message::Response(Response { id: Some(id.clone()), answer }).into())).await;
            }
            _ if refused => self.answer(id, &instead).await,
            _ => self.fail_request(id, instead).await,
        }
    }

    async fn expire(&self) {
        let reason = format!("`{}` no longer knows the session (status 404): session expired", self.shared.shown());
        let reason = Cause::own(reason);
        // The server refused the message, so it certainly did not act on it.
        self.shared.deliver(Err(TransportError::Expired { id: self.id.clone(), reason: reason.clone() })).await;
        self.shared.end(reason);
    }

    async fn too_large(&self, id: &Id, size: usize) {
        let limit = self.shared.limit;
        let why = format!(
            "the answer of `{}` has {size} bytes or more, over the limit of {limit} bytes",
            self.shared.shown()
        );
        self.fail_request(id, SubstituteAnswer::of(Cause::own(why))).await;
    }

    async fn garbage(&self, id: &Id, what: Cause) {
        let why = format!("`{}` answered with something that is not a valid answer: ", self.shared.shown());
        self.fail_request(id, SubstituteAnswer::of(what.under(why))).await;
    }

    /// Ends a request to which the server gave no valid answer. The outcome of a call is then unknown, because it was
    /// sent; a request that changes nothing fails with the error.
    async fn fail_request(&self, id: &Id, instead: SubstituteAnswer) {
        match &self.method {
            Some(method) if !changes_nothing(method) => self.report_lost(instead.cause).await,
            _ => self.answer(id, &instead).await,
        }
    }

    async fn answer(&self, id: &Id, instead: &SubstituteAnswer) {
        let error = instead.to_error();
        self.shared.deliver(Ok(Message::Response(Response::error(Some(id.clone()), &error)).into())).await;
    }

    /// Reports a message as lost: it was sent, and its answer will not come.
    async fn report_lost(&self, reason: Cause) {
        match &self.id {
            Some(id) => {
                let lost = TransportError::Lost { id: id.clone(), reason };
                self.shared.deliver(Err(lost)).await;
            }
            None => tracing::debug!(source = %self.shared.source, %reason, "a message may not have arrived"),
        }
    }
}

/// Reports whether a method only asks for information about the server, so that its outcome is never in doubt.
fn changes_nothing(method: &protocol::Method) -> bool {
    matches!(method, protocol::Method::Initialize | protocol::Method::ServerDiscover | protocol::Method::Ping)
        || method.is_list()
}

/// Delivers what the server sends on its own, for as long as the connection lasts, if the server offers that.
pub(super) async fn listen(shared: &Arc<TransportShared>) {
    let mut events = SseParser::new(shared.limit);
    let mut usual = RETRY;
    loop {
        let headers = headers::for_listening(shared.protocol().as_deref(), events.last_id());
        match shared.send(shared.outgoing(Method::GET, headers)).await {
            Ok(mut response) if is_stream(&response) => {
                usual = RETRY;
                match pump(shared, &mut response, &mut events, None).await {
                    // No answer comes on this stream, so no call has lost anything. The server would send the same
                    // event again if it were told of the last one: listen from here on.
                    StreamEnd::TooLarge(size) => {
                        tracing::warn!(source = %shared.source, size, limit = shared.limit, "an event over the limit was left out");
                        events = SseParser::new(shared.limit);
                    }
                    StreamEnd::Answered | StreamEnd::Closed(_) => events.reconnect(),
                }
            }
            Ok(response) if response.status() == StatusCode::NOT_FOUND && shared.has_session() => {
                // The next message shows whether the 404 was about the session or about listening.
                return;
            }
            Ok(response) if response.status().is_server_error() => {}
            // The server no longer knows the last event: listen from here on.
            Ok(_) if events.last_id().is_some() => events = SseParser::new(shared.limit),
            // Not offered: most often, status 405.
            Ok(_) => return,
            Err(error) => tracing::debug!(source = %shared.source, %error, "not listening"),
        }
        tokio::time::sleep(pause(&events, usual)).await;
        usual = (usual * 2).min(MAX_PAUSE);
    }
}

/// Returns how long the server wants a client to wait, or `usual` if it has not set that.
fn pause(events: &SseParser, usual: Duration) -> Duration {
    events.retry().map_or(usual, |retry| retry.clamp(MIN_RETRY, MAX_RETRY))
}

/// The way in which a stream ended.
pub(super) enum StreamEnd {
    /// The awaited answer came.
    Answered,
    /// An event was over the limit; the number is its size in bytes, as far as it was read.
    TooLarge(usize),
    /// The stream ended before the answer, for this reason.
    Closed(Cause),
}

/// Delivers every message of a stream, in order.
pub(super) async fn pump(
    shared: &TransportShared,
    response: &mut HttpResponse,
    events: &mut SseParser,
    awaited: Option<&Id>,
) -> StreamEnd {
    loop {
        let chunk = match response.chunk().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => {
                return StreamEnd::Closed(Cause::own(format!(
                    "`{}` ended the stream before the answer",
                    shared.shown()
                )));
            }
            Err(error) => return StreamEnd::Closed(egress_cause(EgressError::from_client(&shared.url, &error))),
        };
        let data = match events.feed(&chunk) {
            Ok(data) => data,
            Err(TooLarge(size)) => return StreamEnd::TooLarge(size),
        };
        let mut answered = false;
        for text in data {
            let message = match Message::parse(text) {
                Ok(message) => message,
                Err(error) => {
                    // The answer may still come; if this was the answer, the caller's deadline ends the wait.
                    tracing::debug!(source = %shared.source, %error, "an event that is not a message was ignored");
                    continue;
                }
            };
            answered |=
                matches!(&message, Message::Response(response) if awaited.is_some() && response.id.as_ref() == awaited);
            shared.deliver(Ok(ReceivedMessage { message, stream_of: awaited.cloned() })).await;
        }
        if answered {
            let rest = async { while let Ok(Some(_)) = response.chunk().await {} };
            // Only so that the connection can be reused.
            let _ = tokio::time::timeout(STREAM_END, rest).await;
            return StreamEnd::Answered;
        }
    }
}

/// The reason why a body could not be read.
enum BodyError {
    TooLarge(usize),
    Broken(Cause),
}

async fn body(mut response: HttpResponse, limit: usize) -> Result<Bytes, BodyError> {
    let announced = response.content_length().and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
    if announced > limit {
        return Err(BodyError::TooLarge(announced));
    }
    let mut text = MessageBuffer::with_capacity(announced);
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => text.extend(&chunk, limit),
            Ok(None) => return Ok(text.into_bytes()),
            Err(error) => {
                return Err(BodyError::Broken(egress_cause(EgressError::from_client(response.url(), &error))));
            }
        }
        if text.len() > limit {
            return Err(BodyError::TooLarge(text.len()));
        }
    }
}

pub(super) fn is_stream(response: &HttpResponse) -> bool {
    response.status().is_success() && media_type(response) == "text/event-stream"
}

/// Returns the content type without its parameters, in lower case; empty if there is none.
fn media_type(response: &HttpResponse) -> String {
    let value = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}
