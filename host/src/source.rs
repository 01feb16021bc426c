//! Sources: the upstream side of the broker.
//!
//! A [`Source`] accepts a call only with a [`Permit`], and takes it by value: one permit, one call.

mod component;
mod http;
mod link;
mod process;
mod supervised;
mod transport;

use async_trait::async_trait;
use tokio::sync::mpsc;

use crate::call::{Outcome, SessionId};
use crate::gate::Permit;
use crate::message::{Json, Notification};

pub use component::ComponentSource;
pub use http::HttpSource;
pub use process::ProcessSource;

/// One configured upstream, connected or not. Declaring it opens nothing; [`Source::discover`] does.
#[async_trait]
pub trait Source: Send + Sync + std::fmt::Debug {
    /// Connects if need be and lists the tools. Every step has a deadline. Cancellation safe: a connection that was
    /// half-way up is torn down.
    ///
    /// # Errors
    /// [`SourceError`], with the text that the ledger and the agent get.
    async fn discover(&self) -> Result<Discovery, SourceError>;

    /// Carries one permitted call to the source and waits for its answer. Progress of the call goes to `relay` in the
    /// source's order. Dropping the future cancels the call at the source and leaves the connection usable.
    async fn call(&self, permit: Permit, relay: Option<Relay>) -> Outcome;

    /// A session has ended: what is kept for it may go.
    fn end_session(&self, _session: &SessionId) {}

    /// Ends the connection, and the process if there is one, within [`CLOSE_DEADLINE`]. Idempotent.
    async fn close(&self);
}

/// How long a source may take to end by itself before it is killed: long enough to flush a file, short enough that
/// Ctrl-C feels like one.
pub const CLOSE_DEADLINE: std::time::Duration = std::time::Duration::from_secs(3);

/// What stands before a source's own words in a text about its end.
const SAID: [&str; 3] = ["; it wrote ", "; its last words: ", ": first line "];

/// A text about a source's end without what the source itself said, which may repeat arguments.
pub(crate) fn without_last_words(text: &str) -> &str {
    let cut = SAID.iter().filter_map(|said| text.find(said)).min().unwrap_or(text.len());
    text.get(..cut).unwrap_or_default()
}

/// What a source said of itself.
#[derive(Debug, Clone)]
pub struct Discovery {
    /// `serverInfo`: name and version as the source claims them; `{}` where it has none.
    pub server: Json,
    /// The protocol revision spoken with it.
    pub protocol: String,
    /// Its instructions, if any.
    pub instructions: Option<String>,
    /// MCP `Tool` objects, in the source's order, byte for byte.
    pub tools: Vec<Json>,
}

/// Where progress of one call goes.
#[derive(Debug)]
pub struct Relay {
    /// The caller's `progressToken`, put back into each notification as it was sent.
    pub token: Json,
    /// Notifications for the caller. A full channel slows the source down, not the broker.
    pub out: mpsc::Sender<Notification>,
}

/// Why a source cannot be used. The text names the source's command, URL or file, what happened, and the way out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// It could not be started or reached.
    #[error("{0}")]
    Start(String),
    /// It did not answer in time.
    #[error("no answer to `{method}` within {seconds} s")]
    Timeout {
        /// The method that went unanswered.
        method: String,
        /// The deadline.
        seconds: u64,
    },
    /// It said something that is not the protocol.
    #[error("{0}")]
    Protocol(String),
    /// It ended, or the connection broke.
    #[error("{0}")]
    Closed(String),
}
