//! Messages over streamable HTTP: each one is a separate POST, each answer comes back on that POST.
//!
//! Legacy (up to 2025-11-25): `initialize` may open a session, which every later request names and DELETE ends; a GET
//! listens for messages that the server sends on its own. Modern (2026-07-28): there is no session, and dropping a POST
//! cancels it.
//!
//! Specification: MCP, "Transports: Streamable HTTP".

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use url::Url;

use super::egress_cause;
use super::exchange::{self, Exchange};
use super::headers;
use crate::call::Cause;
use crate::egress::{EgressError, HttpClient, OutgoingRequest, shown};
use crate::escape::escape_hidden;
use crate::limits::{CLOSE_DEADLINE, MAX_DEFINITION_BYTES};
use crate::name::SourceName;
use crate::oauth::Bearer;
use crate::protocol::param_header::{self, MirroredArgument};
use crate::protocol::{self, Id, Json, Message, Notification, Request, revision};
use crate::source::transport::{ReceivedMessage, Transport, TransportError};
use crate::sync::{Mutex, MutexGuard};

/// The most messages of the source that wait to be received. A full queue stops reading, so that TCP slows the source
/// down.
const MAX_INBOX: usize = 64;

/// The longest wait until the server accepts the message that opens the session, before others follow. Others that
/// arrive too early are refused, so this concerns their order only.
const ACCEPT_DEADLINE: Duration = Duration::from_secs(5);

/// A message from the source, or an error.
pub(super) type ReceiveResult = Result<ReceivedMessage, TransportError>;

/// A connection to one server. Opens nothing until the first message.
pub(crate) struct HttpTransport {
    shared: Arc<TransportShared>,
    inbox: tokio::sync::Mutex<mpsc::Receiver<ReceiveResult>>,
}

/// The state that the POSTs and the GET of one connection share.
pub(super) struct TransportShared {
    pub(super) source: SourceName,
    pub(super) url: Url,
    pub(super) client: HttpClient,
    /// The largest message, in bytes.
    pub(super) limit: usize,
    /// The configured headers, which are sent only to the server's own origin.
    pub(super) secrets: HeaderMap,
    /// The login whose token is sent along with them, if a person may log in to the source.
    pub(super) bearer: Option<Arc<Bearer>>,
    state: Mutex<State>,
}

/// The access to a server: its URL, the HTTP client, and what authorizes the broker.
#[derive(Clone)]
pub(super) struct ServerAccess {
    pub(super) source: SourceName,
    pub(super) url: Url,
    pub(super) client: HttpClient,
    /// Sent with every request.
    pub(super) headers: HeaderMap,
    pub(super) bearer: Option<Arc<Bearer>>,
}

#[derive(Default)]
struct State {
    /// `None` once the connection has ended.
    inbox: Option<mpsc::Sender<ReceiveResult>>,
    protocol: Option<String>,
    session: Option<HeaderValue>,
    /// The arguments that headers repeat, by tool.
    mirrored: HashMap<String, Vec<MirroredArgument>>,
    /// True once a task listens to the server.
    listening: bool,
    tasks: HashMap<u64, (Option<Id>, AbortHandle)>,
    last_task: u64,
    exit_reason: Option<Cause>,
}

impl HttpTransport {
    /// Returns a transport to a server. A message of more than `limit` bytes is neither sent nor read.
    pub(super) fn new(access: ServerAccess, limit: usize) -> Self {
        let (shared, inbox) = TransportShared::new(access, limit);
        Self { shared, inbox: tokio::sync::Mutex::new(inbox) }
    }
}

#[async_trait]
impl Transport for HttpTransport {
    async fn send(&self, message: &Message) -> Result<(), TransportError> {
        if let Some(id) = cancelled(message) {
            self.shared.abandon(&id);
            if self.shared.protocol().is_some_and(|protocol| revision::is_modern(&protocol)) {
                return Ok(());
            }
        }
        let opens_session =
            matches!(message, Message::Notification(n) if n.method == protocol::Method::NotificationsInitialized);
        let accepted = self.post(message).await?;
        if opens_session {
            // Over another HTTP connection, the next message could overtake this one.
            let _ = tokio::time::timeout(ACCEPT_DEADLINE, accepted).await;
            self.listen();
        }
        Ok(())
    }

    async fn receive(&self) -> Option<ReceiveResult> {
        self.inbox.lock().await.recv().await
    }

    fn agreed(&self, protocol: &str) {
        self.shared.state().protocol = Some(protocol.to_owned());
    }

    fn listed(&self, tools: Vec<Json>) -> Vec<Json> {
        let mut mirrored = HashMap::new();
        let usable = tools.into_iter().filter(|tool| {
            let name = tool.get_str("name").unwrap_or_default();
            // Larger definitions are not offered, and not read here.
            if tool.as_bytes().len() > MAX_DEFINITION_BYTES || !tool.as_str().contains(param_header::ANNOTATION) {
                return true;
            }
            let schema: serde_json::Value =
                tool.get("inputSchema").and_then(|schema| schema.read().ok()).unwrap_or_default();
            match param_header::mirrored_arguments(&schema) {
                Ok(arguments) => mirrored.insert(name, arguments).is_none(),
                Err(why) => {
                    let tool = escape_hidden(&name);
                    tracing::warn!(source = %self.shared.source, %tool, why, "a tool that cannot be called over HTTP is left out");
                    false
                }
            }
        });
        let usable = usable.collect();
        self.shared.state().mirrored = mirrored;
        usable
    }

    async fn close(&self) {
        let session = self.shared.end("the connection was closed".into());
        let Some(session) = session else { return };
        let headers = headers::for_ending(self.shared.protocol().as_deref());
        let mut request = self.shared.outgoing(Method::DELETE, headers);
        request.secrets.insert(headers::SESSION, session);
        // Best effort: the server may not support it, and forgets idle sessions anyway.
        let _ = tokio::time::timeout(CLOSE_DEADLINE, self.shared.send(request)).await;
    }

    fn exit_reason(&self) -> Option<Cause> {
        self.shared.exit_reason()
    }
}

impl HttpTransport {
    /// Sends a message and returns when its body is on the way, not when it is answered. The returned receiver resolves
    /// when the exchange is over.
    async fn post(&self, message: &Message) -> Result<oneshot::Receiver<()>, TransportError> {
        let body = self.shared.body_of(message)?;
        let (left, mut leaving) = watch::channel(false);
        let (refuse, refused) = oneshot::channel();
        let (finish, finished) = oneshot::channel();
        let mirrored = |tool: &str| self.shared.state().mirrored.get(tool).cloned().unwrap_or_default();
        let headers = headers::for_message(message, self.shared.protocol().as_deref(), mirrored);
        let mut outgoing = self.shared.outgoing(Method::POST, headers);
        outgoing.body = Some(body);
        outgoing.on_body = Some(left.clone());
        let (id, method) = match message {
            Message::Request(Request { id, method, .. }) => (Some(id.clone()), Some(method.clone())),
            _ => (None, None),
        };
        let exchange = Exchange { shared: Arc::clone(&self.shared), id: id.clone(), method };
        let task = self.shared.spawn(id, async move {
            if let Err(error) = exchange.run(outgoing, left).await {
                // The sender may have given up.
                let _ = refuse.send(error);
            }
            let _ = finish.send(());
        })?;
        let guard = AbortUnlessSent(Some(task));
        match leaving.wait_for(|left| *left).await.map(drop) {
            Ok(()) => {
                guard.sent();
                Ok(finished)
            }
            Err(_) => Err(match refused.await {
                // The server cannot be reached: whatever was agreed with it before is void.
                Ok(error @ EgressError::Connect { .. }) => TransportError::Closed(egress_cause(error)),
                Ok(error) => TransportError::NotSent(egress_cause(error)),
                Err(_) => TransportError::NotSent("the connection was closed".into()),
            }),
        }
    }

    /// Starts to listen for what the server sends on its own, if it is a legacy one.
    fn listen(&self) {
        let legacy = self.shared.protocol().is_none_or(|protocol| !revision::is_modern(&protocol));
        if !legacy || std::mem::replace(&mut self.shared.state().listening, true) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        // Fails only if the connection has ended, and then there is nothing to receive.
        let _ = self.shared.spawn(None, async move { exchange::listen(&shared).await });
    }
}

impl Drop for HttpTransport {
    fn drop(&mut self) {
        self.shared.end("the connection was dropped".into());
    }
}

impl TransportShared {
    /// Returns a connection over which nothing was sent yet, and the receiver of what will arrive.
    pub(super) fn new(access: ServerAccess, limit: usize) -> (Arc<Self>, mpsc::Receiver<ReceiveResult>) {
        let ServerAccess { source, url, client, headers: secrets, bearer } = access;
        let (sender, inbox) = mpsc::channel(MAX_INBOX);
        let state = Mutex::new(State { inbox: Some(sender), ..State::default() });
        (Arc::new(Self { source, url, client, limit, secrets, bearer, state }), inbox)
    }

    /// Returns why the connection ended, if it has.
    pub(super) fn exit_reason(&self) -> Option<Cause> {
        self.state().exit_reason.clone()
    }

    /// Returns the body that carries a message.
    ///
    /// # Errors
    /// [`TransportError::NotSent`] if it is over the limit.
    pub(super) fn body_of(&self, message: &Message) -> Result<Bytes, TransportError> {
        let (body, limit) = (message.to_line(), self.limit);
        let size = body.len();
        if size > limit {
            let why = format!("a message of {size} bytes is over the limit of {limit} bytes");
            return Err(TransportError::NotSent(Cause::own(why)));
        }
        Ok(body)
    }

    /// Returns a request to the server, with the headers that every request carries.
    pub(super) fn outgoing(&self, method: Method, headers: HeaderMap) -> OutgoingRequest {
        let mut secrets = self.secrets.clone();
        if let Some(session) = self.state().session.clone() {
            secrets.insert(headers::SESSION, session);
        }
        OutgoingRequest { method, url: self.url.clone(), headers, secrets, body: None, on_body: None }
    }

    /// Sends a request with the current token. If the server refuses the token and another one can be had, the request
    /// is sent once more: a server does not act on a request that it answers with 401 or 403 (RFC 9110, section 15.5).
    pub(super) async fn send(&self, mut request: OutgoingRequest) -> Result<Response, EgressError> {
        let Some(bearer) = &self.bearer else { return self.client.send(request).await };
        let mut again = request.again();
        let token = bearer.token().await;
        set_authorization(&mut request, token.as_ref());
        let response = self.client.send(request).await?;
        let refused = matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if !refused || response.url().origin() != self.url.origin() {
            return Ok(response);
        }
        let Some(other) = bearer.refused(&response, token.as_ref()).await else { return Ok(response) };
        set_authorization(&mut again, Some(&other));
        self.client.send(again).await
    }

    /// Returns the URL as messages show it.
    pub(super) fn shown(&self) -> String {
        shown(&self.url)
    }

    pub(super) fn protocol(&self) -> Option<String> {
        self.state().protocol.clone()
    }

    pub(super) fn open_session(&self, mut session: HeaderValue) {
        session.set_sensitive(true);
        self.state().session = Some(session);
    }

    pub(super) fn has_session(&self) -> bool {
        self.state().session.is_some()
    }

    /// Passes a message or an error to the receiver; waits while the queue is full.
    pub(super) async fn deliver(&self, received: ReceiveResult) {
        let inbox = self.state().inbox.clone();
        if let Some(inbox) = inbox {
            // After the end there is no receiver.
            let _ = inbox.send(received).await;
        }
    }

    /// Ends the connection and its tasks, and returns the session that it had. Only the first reason counts.
    pub(super) fn end(&self, why: Cause) -> Option<HeaderValue> {
        let mut state = self.state();
        if state.inbox.take().is_some() {
            state.exit_reason = Some(why);
        }
        for (_, (_, task)) in state.tasks.drain() {
            task.abort();
        }
        state.session.take()
    }

    /// Runs a task that ends with the connection.
    pub(super) fn spawn(
        self: &Arc<Self>,
        id: Option<Id>,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Result<AbortHandle, TransportError> {
        let mut state = self.state();
        if state.inbox.is_none() {
            return Err(TransportError::Closed(state.exit_reason.clone().unwrap_or("".into())));
        }
        state.last_task += 1;
        let number = state.last_task;
        let shared = Arc::clone(self);
        // Boxed, as the runtime moves a task several times, and the work has kilobytes.
        let work = Box::pin(work);
        let task = tokio::spawn(async move {
            work.await;
            shared.state().tasks.remove(&number);
        });
        // Still under the lock that the task needs to remove itself.
        state.tasks.insert(number, (id, task.abort_handle()));
        Ok(task.abort_handle())
    }

    /// Aborts the exchange of one request.
    fn abandon(&self, id: &Id) {
        self.state().tasks.retain(|_, (of, task)| {
            let found = of.as_ref() == Some(id);
            if found {
                task.abort();
            }
            !found
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Sets the token of a request, which is sent only to the server's own origin.
fn set_authorization(request: &mut OutgoingRequest, token: Option<&SecretString>) {
    let value = token.and_then(|token| HeaderValue::from_str(&format!("Bearer {}", token.expose_secret())).ok());
    request.secrets.extend(value.map(|mut value| {
        value.set_sensitive(true);
        (AUTHORIZATION, value)
    }));
}

/// A guard that aborts a POST if its sender gives up before it is sent.
struct AbortUnlessSent(Option<AbortHandle>);

impl AbortUnlessSent {
    fn sent(mut self) {
        self.0 = None;
    }
}

impl Drop for AbortUnlessSent {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// Returns the request that a message cancels, if it is a cancellation.
fn cancelled(message: &Message) -> Option<Id> {
    let Message::Notification(Notification { method, params: Some(params) }) = message else { return None };
    if method != protocol::Method::NotificationsCancelled {
        return None;
    }
    Id::from_json(params.get("requestId")?.as_str()).ok()
}
