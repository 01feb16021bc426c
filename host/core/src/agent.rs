//! The agent at the other end of a connection: its description, and how to reach it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::future::BoxFuture;
use serde_json::json;

use crate::call::CallProgress;
use crate::protocol::{Answer, Era, Json, Method, Notification, RpcError};

/// The transport of a connection, in OpenTelemetry's terms for MCP (`network.transport`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransportKind {
    /// Standard input and output.
    Pipe,
    /// HTTP.
    Tcp,
}

impl TransportKind {
    /// Returns the name that spans use.
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
    /// Its name and version, as `name/version`; may be empty.
    pub name: Arc<str>,
    /// The era that it speaks.
    pub era: Era,
    /// The negotiated revision of the protocol, or `None` for a program that calls in the same process.
    pub revision: Option<&'static str>,
    /// The transport of its connection, or `None` in the same process.
    pub transport: Option<TransportKind>,
    /// Its `ClientCapabilities`, byte for byte; always a JSON object.
    pub capabilities: Json,
}

impl Agent {
    /// Returns an agent in the same process, which declares no capabilities.
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

    /// Returns the capabilities that sources may learn: all of them, but without `sampling` if the profile does not
    /// allow the use of the agent's model.
    pub fn shared(&self, sampling: bool) -> Json {
        if sampling { self.capabilities.clone() } else { self.capabilities.without("sampling") }
    }

    /// Reports whether it can open a page for a person (elicitation by URL).
    pub fn opens_pages(&self) -> bool {
        let modes = self.capabilities.get("elicitation");
        modes.and_then(|modes| modes.get("url")).is_some_and(|url| url.is_object())
    }

    /// Reports whether it declares this extension.
    pub fn extends(&self, extension: &str) -> bool {
        self.capabilities.get("extensions").is_some_and(|all| all.get(extension).is_some())
    }

    /// Reports whether it declares this capability.
    #[must_use]
    pub fn can(&self, capability: &str) -> bool {
        self.capabilities.get(capability).is_some_and(|value| value.is_object())
    }
}

/// A way to reach the agent and the person behind it, while one of its calls is open or between calls.
///
/// The methods return their futures in boxes themselves. The macro `async_trait` would add bounds between lifetimes,
/// which keep the compiler from caching its proofs: for each method it would prove anew that everything behind a
/// session is `Send`, which took most of the library's compile time.
pub trait AgentPeer: Send + Sync {
    /// Passes on a notification that belongs to the call. Waits until there is room for it.
    fn notify(&self, notification: Notification) -> BoxFuture<'_, ()>;

    /// Returns the id of the agent's request as JSON, or `None` if the call is not a request of an agent.
    fn request_id(&self) -> Option<Json> {
        None
    }

    /// Notes that a source is about to get the call. From here on, its progress says whether it may have an effect.
    fn handed_over(&self, _progress: &Arc<CallProgress>) {}

    /// Notes that the call is answered while requests of its source are open at the agent. They may belong to other
    /// calls, so their answers are still awaited.
    fn ended_before_its_questions(&self) {}

    /// Passes on a notification that belongs to no call. Does not wait: the notification is dropped if the agent does
    /// not read.
    fn offer(&self, _notification: Notification) {}

    /// Returns how this agent can put a question of the broker's own to a person.
    fn elicitation(&self) -> Elicitation;

    /// Sends a request to the agent (legacy era) and waits for its answer, which is an error if the connection is lost.
    fn request<'a>(&'a self, method: &'a Method, params: Option<Json>) -> BoxFuture<'a, Answer>;
}

/// Reports the broker's own progress on a request for which the agent sent a progress token.
///
/// The value increases with each report of this process, as the protocol demands ("Progress"), and it is negative: a
/// source that reports the progress of the same request later begins at zero or above.
pub fn report_progress<'a>(peer: &'a dyn AgentPeer, token: &Json, message: &str) -> BoxFuture<'a, ()> {
    static REPORTS: AtomicU32 = AtomicU32::new(0);
    let progress = f64::from(REPORTS.fetch_add(1, Ordering::Relaxed)) / f64::from(u32::MAX) - 1.0;
    let params = Json::of(&json!({ "progress": progress, "message": message })).with("progressToken", token);
    peer.notify(Notification { method: Method::NotificationsProgress, params })
}

/// A peer without a person, for programs that make calls themselves. It drops progress; a question waits for an answer
/// from another terminal or from `Inbox::answer`.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoAgent;

impl AgentPeer for NoAgent {
    fn notify(&self, _: Notification) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn elicitation(&self) -> Elicitation {
        Elicitation::None
    }

    fn request<'a>(&'a self, _: &'a Method, _: Option<Json>) -> BoxFuture<'a, Answer> {
        Box::pin(async move { Answer::from(RpcError::new(RpcError::METHOD_NOT_FOUND, "there is nobody to ask")) })
    }
}

/// The way in which an agent can put a question to a person.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Elicitation {
    /// The agent cannot do so.
    None,
    /// By a request from the broker on its connection (2025-06-18, 2025-11-25).
    Request,
    /// By an `input_required` result, which the agent answers with a retry (2026-07-28).
    InputRequired,
}
