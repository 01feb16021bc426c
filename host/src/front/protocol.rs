//! The protocol towards one agent, in either era: which message may come when. It does no input or output itself.
//!
//! [`AgentConnection`] is a stdio connection, which hands over each [`Message`] and gets a [`NextStep`]; the HTTP front
//! uses the modules below. Specification: MCP 2025-11-25 and 2026-07-28,
//! "Lifecycle", "Cancellation", "Pagination", "Elicitation".

pub(crate) mod agent_channel;
pub(crate) mod client;
mod dialect;
pub(crate) mod legacy;
pub(crate) mod modern;
mod open_calls;
mod page;
pub(crate) mod session_handle;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use open_calls::{CallWork, OpenCalls};

use self::client::ClientInfo;
use self::legacy::LegacyConversation;
use self::session_handle::SessionHandle;
use super::backend::Backend;
use super::outgoing::MessageSender;
use crate::agent::{self, TransportKind};
use crate::name::ProfileName;
use crate::principal::Principal;
use crate::protocol::{
    Id, Json, Message, MessageError, Method, Notification, Request, Response, RpcError, meta, revision,
};
use crate::session::AdvertisedCapabilities;

/// The largest number of client descriptions that one connection may send; each gets a session. A client has one name,
/// but may declare other capabilities for other requests.
const MAX_CLIENT_DESCRIPTIONS: usize = 16;

/// The instructions for a model that is about to use the broker.
const INSTRUCTIONS: &str = "Calls pass a policy and may be held until a person approves them.";

/// Returns these instructions, followed by those of the sources.
fn instructions(offers: &AdvertisedCapabilities) -> String {
    match &offers.instructions {
        Some(said) => format!("{INSTRUCTIONS}\n\n{said}"),
        None => INSTRUCTIONS.to_owned(),
    }
}

/// The action that the front takes after a message.
pub(crate) enum NextStep {
    /// An answer that is ready.
    Answer(Response),
    /// No answer.
    Silence,
    /// A request that takes time, which the front drives.
    Work(CallWork),
}

/// One agent on its own connection (stdio). Its first request but `ping` that is not refused decides the era.
pub(crate) struct AgentConnection {
    backend: Arc<dyn Backend>,
    profile: ProfileName,
    principal: Principal,
    state: State,
}

enum State {
    /// No request has decided the era yet.
    Fresh,
    Legacy(LegacyConversation),
    Modern {
        /// A session for each description of itself that the agent has sent.
        handles: Vec<(agent::Agent, SessionHandle)>,
        calls: OpenCalls,
    },
}

impl AgentConnection {
    pub(crate) fn new(backend: Arc<dyn Backend>, profile: ProfileName, principal: Principal) -> Self {
        Self { backend, profile, principal, state: State::Fresh }
    }

    /// Takes a message. Messages that belong to the request go to `out`. Not cancellation safe: a session may have been
    /// opened.
    pub(crate) async fn accept(&mut self, message: Message, out: &MessageSender) -> NextStep {
        match (&self.state, message) {
            (State::Legacy(legacy), Message::Notification(said)) if said.method == Method::NotificationsInitialized => {
                // Before this notification the agent expects no messages.
                legacy.attach(out.clone());
                NextStep::Silence
            }
            (State::Legacy(legacy), message) => legacy.accept(message, out),
            (_, Message::Request(request)) => {
                let id = request.id.clone();
                let step = self.request(request, out).await;
                step.unwrap_or_else(|error| NextStep::Answer(Response::error(Some(id), &error)))
            }
            (
                State::Modern { calls, .. },
                Message::Notification(Notification { method: Method::NotificationsCancelled, params }),
            ) => {
                calls.cancel(params.as_ref());
                NextStep::Silence
            }
            (State::Modern { handles, .. }, Message::Notification(notification)) => {
                // A notification without a known description counts as from the client that was described first.
                let client = ClientInfo::from_meta(notification.params.as_ref(), TransportKind::Pipe).ok();
                let known =
                    handles.iter().find(|(agent, _)| client.as_ref().is_some_and(|client| client.agent == *agent));
                if let Some((_, handle)) = known.or(handles.first()) {
                    handle.notified(&notification);
                }
                NextStep::Silence
            }
            (_, Message::Notification(_) | Message::Response(_)) => NextStep::Silence,
        }
    }

    async fn request(&mut self, request: Request, out: &MessageSender) -> Result<NextStep, RpcError> {
        let fresh = matches!(self.state, State::Fresh);
        match &request.method {
            Method::Initialize if fresh => {
                let (backend, params) = (&*self.backend, request.params.as_ref());
                let opened =
                    LegacyConversation::open(backend, &self.profile, &self.principal, TransportKind::Pipe, params);
                let (legacy, result) = opened.await?;
                self.state = State::Legacy(legacy);
                Ok(NextStep::Answer(Response::result(request.id, result)))
            }
            Method::Ping if fresh => Ok(NextStep::Answer(Response::result(request.id, Json::empty_object()))),
            method
                if fresh
                    && method != Method::ServerDiscover
                    && client::meta_version(request.params.as_ref()).is_none() =>
            {
                Err(RpcError::new(
                    RpcError::INVALID_REQUEST,
                    format!("begin with `initialize`, or send `_meta` with {:?}", meta::PROTOCOL_VERSION),
                ))
            }
            _ => self.modern(request, out).await,
        }
    }

    async fn modern(&mut self, request: Request, out: &MessageSender) -> Result<NextStep, RpcError> {
        let client = ClientInfo::from_meta(request.params.as_ref(), TransportKind::Pipe)?;
        if matches!(self.state, State::Fresh) {
            let mut handles = Vec::new();
            if request.method == Method::ServerDiscover {
                let opened = self.backend.open(&self.profile, &self.principal, client.agent.clone()).await;
                let handle = opened.map(SessionHandle::new)?;
                if modern::is_refused(&handle, &request).await {
                    return Err(modern::refusal());
                }
                handles.push((client.agent.clone(), handle));
            }
            self.state = State::Modern { handles, calls: OpenCalls::default() };
        }
        let State::Modern { handles, calls } = &mut self.state else {
            return Err(RpcError::new(RpcError::INTERNAL, "a session of one era took a request of the other"));
        };
        // A session ends on its own if something it needs is unavailable; the next one may get it.
        handles.retain(|(_, handle)| !handle.ended());
        if let Some((_, handle)) = handles.iter().find(|(agent, _)| *agent == client.agent) {
            return Ok(modern::serve(handle, &client, request, out, calls));
        }
        if handles.len() >= MAX_CLIENT_DESCRIPTIONS {
            let why = format!("this connection has described its client in {MAX_CLIENT_DESCRIPTIONS} ways already");
            return Err(RpcError::new(RpcError::INVALID_REQUEST, why));
        }
        let opened = self.backend.open(&self.profile, &self.principal, client.agent.clone()).await;
        let handle = opened.map(SessionHandle::new)?;
        handles.push((client.agent.clone(), handle.clone()));
        Ok(modern::serve(&handle, &client, request, out, calls))
    }

    /// Handles the end of the input: open questions fail, and subscriptions end.
    pub(crate) fn input_ended(&self) {
        match &self.state {
            State::Fresh => {}
            State::Legacy(legacy) => legacy.input_ended(),
            State::Modern { handles, .. } => handles.iter().for_each(|(_, handle)| handle.end_listeners()),
        }
    }

    /// Answers the open calls with an error that says that they were interrupted.
    pub(crate) fn interrupt(&self) {
        match &self.state {
            State::Fresh => {}
            State::Legacy(legacy) => legacy.interrupt(),
            State::Modern { calls, .. } => calls.interrupt(),
        }
    }

    /// Waits for open calls, but no longer than `timeout`, then ends all sessions.
    pub(crate) async fn close(&self, timeout: Duration) {
        match &self.state {
            State::Fresh => {}
            State::Legacy(legacy) => legacy.close(timeout).await,
            State::Modern { handles, .. } => {
                futures_util::future::join_all(handles.iter().map(|(_, handle)| handle.close(timeout))).await;
            }
        }
    }
}

/// Returns the answer to bytes that are not a message, with the id if one can be read.
pub(crate) fn parse_error(text: &bytes::Bytes, error: &MessageError) -> Response {
    let id = Json::parse(text.clone()).ok().filter(|json| json.get("method").is_some()).and_then(|json| json.get("id"));
    let id = id.and_then(|id| Id::from_json(id.as_str()).ok());
    Response::error(id, &RpcError::new(error.code(), error.to_string()))
}

/// Returns the answer to a method that the agent's era does not have.
pub(crate) fn method_not_found(request: Request) -> Response {
    let (method, modern) = (&request.method, revision::MODERN);
    let why = format!("method {method:?} is not served here: {modern} and the revisions with `initialize` do not mix");
    Response::error(Some(request.id), &RpcError::new(RpcError::METHOD_NOT_FOUND, why))
}

fn server_info() -> serde_json::Value {
    serde_json::json!({ "name": "portcullis", "title": "Portcullis", "version": env!("CARGO_PKG_VERSION") })
}
