//! The connection that carries messages to a source and back. Each kind of source has one implementation;
//! [`super::mcp_connection`] speaks MCP over any of them.

use async_trait::async_trait;

use crate::call::Cause;
use crate::protocol::{Id, Json, Message};

/// The member of an error's data by which a transport says that a person must log in before the source answers.
pub(super) const LOGIN: &str = "needsLogin";

/// One connection to one source.
#[async_trait]
pub(crate) trait Transport: Send + Sync {
    /// Sends one message. `Ok` means that it may have reached the source; an error means that it certainly has not.
    async fn send(&self, message: &Message) -> Result<(), TransportError>;
    /// Returns the next message from the source, or `None` once the connection has ended. Called by one task only.
    async fn receive(&self) -> Option<Result<ReceivedMessage, TransportError>>;
    /// Tells the transport the protocol revision that was agreed, for its headers.
    fn agreed(&self, protocol: &str) {
        let _ = protocol;
    }
    /// Tells the transport which tools the source lists, and returns those that can be called over this transport.
    fn listed(&self, tools: Vec<Json>) -> Vec<Json> {
        tools
    }
    /// Ends the connection within [`CLOSE_DEADLINE`](crate::limits::CLOSE_DEADLINE); idempotent.
    async fn close(&self);
    /// Returns why the connection ended, if that is known ("exited with status 1; its last words: …").
    fn exit_reason(&self) -> Option<Cause>;
}

/// A message from the source.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedMessage {
    pub(crate) message: Message,
    /// The broker's request on whose stream the message came, if the transport has a stream for each request.
    pub(crate) stream_of: Option<Id>,
}

impl From<Message> for ReceivedMessage {
    fn from(message: Message) -> Self {
        Self { message, stream_of: None }
    }
}

/// An error that concerns one message, or the whole connection.
#[cfg_attr(not(feature = "remote"), expect(dead_code, reason = "only servers lose and end sessions"))]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum TransportError {
    /// The message was not sent.
    #[error(transparent)]
    NotSent(Cause),
    /// A message from the source was skipped because of its size. The connection stays open.
    #[error("the source sent a message of {size} bytes, over the limit of {limit} bytes")]
    Oversized {
        /// The size in bytes, as far as the message was read.
        size: usize,
        /// The largest message that is read, in bytes.
        limit: usize,
    },
    /// A message from the source was skipped because of its depth or its number of values. The connection stays open.
    #[error(transparent)]
    TooComplex(Cause),
    /// The answer to one request will not come, and the source may or may not have acted on it. The connection stays
    /// open.
    #[error("{reason}")]
    Lost {
        /// The request whose answer was lost.
        id: Id,
        /// The cause of the loss.
        reason: Cause,
    },
    /// The source has forgotten the session, and did not act on the message that it refused for that. The connection
    /// ends.
    #[error("{reason}")]
    Expired {
        /// The request that was refused, or `None` if it was another kind of message.
        id: Option<Id>,
        /// The cause of the refusal.
        reason: Cause,
    },
    /// The source does not speak the protocol. The connection ends.
    #[error(transparent)]
    Garbage(Cause),
    /// The connection is gone.
    #[error(transparent)]
    Closed(Cause),
}

impl TransportError {
    /// Returns the cause, without its meaning for the connection.
    pub(crate) fn into_cause(self) -> Cause {
        match self {
            Self::NotSent(cause) | Self::TooComplex(cause) | Self::Garbage(cause) | Self::Closed(cause) => cause,
            Self::Lost { reason, .. } | Self::Expired { reason, .. } => reason,
            // All of it is the broker's own.
            Self::Oversized { .. } => Cause::own(self.to_string()),
        }
    }
}
