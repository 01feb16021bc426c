//! The agent at the other end: what it is, and how it is reached.

use std::sync::Arc;

use async_trait::async_trait;

use crate::protocol::{Answer, Era, Json, Method, Notification, RpcError};

/// What carries a connection, in OpenTelemetry's words for MCP (`network.transport`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransportKind {
    /// Standard input and output.
    Pipe,
    /// HTTP.
    Tcp,
}

impl TransportKind {
    /// The word that spans use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pipe => "pipe",
            Self::Tcp => "tcp",
        }
    }
}

/// An agent as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// `name/version`; may be empty.
    pub name: Arc<str>,
    /// What it speaks.
    pub era: Era,
    /// The revision of the protocol that was settled on, if it speaks any.
    pub revision: Option<&'static str>,
    /// What carries its connection, if there is one.
    pub transport: Option<TransportKind>,
    /// Its `ClientCapabilities`, byte for byte; an object.
    pub capabilities: Json,
}

impl Agent {
    /// An agent in the same process, that can do nothing but call.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            era: Era::Legacy,
            revision: None,
            transport: None,
            capabilities: Json::empty_object(),
        }
    }

    /// What its sources may be told of it: all but the use of its model, where the profile does not allow that.
    pub(crate) fn shared(&self, sampling: bool) -> Json {
        if sampling { self.capabilities.clone() } else { self.capabilities.without("sampling") }
    }

    /// Whether it can open a page for a person.
    pub(crate) fn opens_pages(&self) -> bool {
        let modes = self.capabilities.get("elicitation");
        modes.and_then(|modes| modes.get("url")).is_some_and(|url| url.as_bytes().starts_with(b"{"))
    }

    /// Whether it declares this extension.
    pub(crate) fn extends(&self, extension: &str) -> bool {
        self.capabilities.get("extensions").is_some_and(|all| all.get(extension).is_some())
    }

    /// Whether it has this capability.
    #[must_use]
    pub fn can(&self, capability: &str) -> bool {
        self.capabilities.get(capability).is_some_and(|value| value.as_bytes().starts_with(b"{"))
    }
}

/// How to reach the agent, and the person behind it: while one of its calls is open, or between calls.
#[async_trait]
pub trait AgentPeer: Send + Sync {
    /// Passes on a notification that belongs to the call, and waits until there is room for it.
    async fn notify(&self, notification: Notification);

    /// The id of the agent's request, as JSON, where it is one of the agent's.
    fn request_id(&self) -> Option<Json> {
        None
    }

    /// Told that a source is about to get the call, so that it may have an effect from here on.
    fn handed_over(&self) {}

    /// Passes on a notification that belongs to no call. Does not wait: dropped if the agent does not read.
    fn offer(&self, _notification: Notification) {}

    /// In which way this agent can put a question of the broker's own to a person.
    fn elicitation(&self) -> Elicitation;

    /// Sends a request to the agent (legacy eras) and waits for its answer, which is an error if the connection is lost.
    async fn request(&self, method: &Method, params: Option<Json>) -> Answer;
}

/// No person at the agent's side, for programs that call by themselves. Progress is dropped; a question waits for an answer
/// from another terminal or from [`Inbox::answer`](crate::gate::Inbox::answer).
#[derive(Debug, Clone, Copy, Default)]
pub struct NoAgent;

#[async_trait]
impl AgentPeer for NoAgent {
    async fn notify(&self, _: Notification) {}

    fn elicitation(&self) -> Elicitation {
        Elicitation::None
    }

    async fn request(&self, _: &Method, _: Option<Json>) -> Answer {
        Answer::Error(Json::of(&RpcError::new(RpcError::METHOD_NOT_FOUND, "there is nobody to ask")))
    }
}

/// In which way an agent can put a question to a person.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Elicitation {
    /// Not at all.
    None,
    /// By a request of ours on its connection (2025-06-18, 2025-11-25).
    Request,
    /// By an `input_required` result, which the agent answers with a retry (2026-07-28).
    InputRequired,
}
