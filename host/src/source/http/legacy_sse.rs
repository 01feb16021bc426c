//! The transport of 2024-11-05: one stream of events from the server, which begins with the URL that messages are
//! posted to.
//!
//! Specification: MCP 2024-11-05, "HTTP with SSE".

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, Response as HttpResponse};
use tokio::sync::{mpsc, watch};
use url::Url;

use super::egress_cause;
use super::exchange::{StreamEnd, is_stream, pump};
use super::sse::{SseParser, TooLarge};
use super::transport::{ReceiveResult, TransportShared};
use crate::call::Cause;
use crate::egress::shown;
use crate::protocol::Message;
use crate::source::SourceError;
use crate::source::transport::{Transport, TransportError};

/// The longest time that a server may take to send the URL that messages are posted to, which is its first event.
const ENDPOINT_DEADLINE: Duration = Duration::from_secs(10);

/// A connection to one server.
pub(super) struct LegacySse {
    shared: Arc<TransportShared>,
    inbox: tokio::sync::Mutex<mpsc::Receiver<ReceiveResult>>,
    post_to: Url,
}

impl LegacySse {
    /// Opens the stream and waits for the URL. Cancellation safe.
    pub(super) async fn open(
        shared: Arc<TransportShared>,
        inbox: mpsc::Receiver<ReceiveResult>,
    ) -> Result<Self, SourceError> {
        let opened = tokio::time::timeout(ENDPOINT_DEADLINE, begin(&shared)).await;
        let (response, events, post_to) = opened.unwrap_or_else(|_| {
            let seconds = ENDPOINT_DEADLINE.as_secs();
            Err(SourceError::Timeout { method: "GET".into(), seconds })
        })?;
        let reader = Arc::clone(&shared);
        // Fails only if the connection has ended already.
        let _ = shared.spawn(None, async move { read(&reader, response, events).await });
        Ok(Self { shared, inbox: tokio::sync::Mutex::new(inbox), post_to })
    }
}

async fn begin(shared: &TransportShared) -> Result<(HttpResponse, SseParser, Url), SourceError> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    let response = shared.send(shared.outgoing(Method::GET, headers)).await;
    let mut response = response.map_err(|error| SourceError::Start(egress_cause(error)))?;
    let at = || format!("`{}`", shown(&shared.url));
    if !is_stream(&response) {
        let status = response.status().as_u16();
        let why = format!("{} answered a GET with status {status} and no events", at());
        return Err(SourceError::Protocol(Cause::own(why)));
    }
    let mut events = SseParser::new(shared.limit);
    loop {
        let chunk = response.chunk().await.map_err(|error| SourceError::Closed(Cause::of(error.without_url())))?;
        let Some(chunk) = chunk else {
            return Err(SourceError::Closed(Cause::own(format!("{} ended its stream of events", at()))));
        };
        if let Err(TooLarge(size)) = events.feed(&chunk) {
            return Err(SourceError::Protocol(Cause::own(format!("{} sent an event of {size} bytes", at()))));
        }
        if let Some(endpoint) = events.endpoint() {
            let post_to = shared.url.join(&endpoint).ok().filter(|url| url.origin() == shared.url.origin());
            let elsewhere = || format!("{} asks for messages to be posted to another origin, which is refused", at());
            return Ok((response, events, post_to.ok_or_else(|| SourceError::Protocol(Cause::own(elsewhere())))?));
        }
    }
}

async fn read(shared: &Arc<TransportShared>, mut response: HttpResponse, mut events: SseParser) {
    let why = match pump(shared, &mut response, &mut events, None).await {
        StreamEnd::TooLarge(size) => {
            shared.deliver(Err(TransportError::Oversized { size, limit: shared.limit })).await;
            Cause::own(format!("`{}` sent an event of {size} bytes, over the limit", shared.shown()))
        }
        StreamEnd::Closed(why) => why,
        StreamEnd::Answered => return,
    };
    // The effect of open requests at the server is not known; the stream cannot be resumed.
    shared.deliver(Err(TransportError::Closed(why.clone()))).await;
    shared.end(why);
}

#[async_trait]
impl Transport for LegacySse {
    async fn send(&self, message: &Message) -> Result<(), TransportError> {
        let body = self.shared.body_of(message)?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let (left, leaving) = watch::channel(false);
        let mut outgoing = self.shared.outgoing(Method::POST, headers);
        (outgoing.url, outgoing.body, outgoing.on_body) = (self.post_to.clone(), Some(body), Some(left));
        match self.shared.send(outgoing).await {
            Ok(response) if response.status().is_success() => Ok(()),
            Ok(response) => {
                let (at, status) = (self.shared.shown(), response.status());
                match message {
                    // An error on the server's side does not tell what the server had done before.
                    Message::Request(request) if !status.is_client_error() => {
                        let reason = Cause::own(format!("`{at}` answered with status {}", status.as_u16()));
                        self.shared.deliver(Err(TransportError::Lost { id: request.id.clone(), reason })).await;
                        Ok(())
                    }
                    _ => {
                        let status = status.as_u16();
                        let why = format!("`{at}` refused the message with status {status}");
                        Err(TransportError::NotSent(Cause::own(why)))
                    }
                }
            }
            // The message may have arrived: the answer comes on the stream, or the caller's deadline passes.
            Err(_) if *leaving.borrow() => Ok(()),
            Err(error) => Err(TransportError::NotSent(egress_cause(error))),
        }
    }

    async fn receive(&self) -> Option<ReceiveResult> {
        self.inbox.lock().await.recv().await
    }

    async fn close(&self) {
        self.shared.end("the connection was closed".into());
    }

    fn exit_reason(&self) -> Option<Cause> {
        self.shared.exit_reason()
    }
}

impl Drop for LegacySse {
    fn drop(&mut self) {
        self.shared.end("the connection was dropped".into());
    }
}
