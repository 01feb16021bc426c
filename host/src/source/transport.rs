//! What carries messages to a source and back. One implementation per kind of source; [`super::link`] speaks MCP over any.

use async_trait::async_trait;

use crate::protocol::{Id, Json, Message};

/// In the data of an error that a transport makes: a person must log in before the source says anything.
pub(super) const LOGIN: &str = "needsLogin";

/// One connection to one source.
#[async_trait]
pub(crate) trait Transport: Send + Sync {
    /// Sends one message. Ok means it may have reached the source; an error means it surely has not.
    async fn send(&self, message: &Message) -> Result<(), TransportError>;
    /// The next message from the source; None when the connection has ended. Called by one task only.
    async fn receive(&self) -> Option<Result<Received, TransportError>>;
    /// Tells the transport what was agreed, for headers.
    fn agreed(&self, protocol: &str) {
        let _ = protocol;
    }
    /// Tells the transport which tools there are, and gives those that can be called over it.
    fn listed(&self, tools: Vec<Json>) -> Vec<Json> {
        tools
    }
    /// Ends the connection within [`CLOSE_DEADLINE`](crate::limits::CLOSE_DEADLINE); idempotent.
    async fn close(&self);
    /// What is known of why the connection ended ("exited with status 1; its last words: …").
    fn exit_reason(&self) -> Option<String>;
}

/// A message from the source.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) message: Message,
    /// The request of ours on whose stream it came, where the transport has a stream for each.
    pub(crate) within: Option<Id>,
}

impl From<Message> for Received {
    fn from(message: Message) -> Self {
        Self { message, within: None }
    }
}

/// What went wrong with one message, or with the connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TransportError {
    /// The message did not leave.
    #[error("{0}")]
    NotSent(String),
    /// A message from the source was skipped for its size. The connection goes on.
    #[error("the source sent a message of {size} bytes, over the limit of {limit} bytes")]
    Oversized {
        /// In bytes, as far as it was read.
        size: usize,
        /// The largest that is read.
        limit: usize,
    },
    /// The answer to one request will not come, and nothing tells whether the source acted. The connection goes on.
    #[error("{reason}")]
    Lost {
        /// Whose answer.
        id: Id,
        /// What happened.
        reason: String,
    },
    /// The source has forgotten the session, and did nothing with the message that said which. The connection ends.
    #[error("{reason}")]
    Expired {
        /// The request that was turned away; None for another message.
        id: Option<Id>,
        /// What happened.
        reason: String,
    },
    /// The source does not speak the protocol. The connection ends.
    #[error("{0}")]
    Garbage(String),
    /// The connection is gone.
    #[error("{0}")]
    Closed(String),
}
