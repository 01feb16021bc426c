//! Sources: the upstream side of the broker.
//!
//! A [`Source`] accepts a call only with a [`Permit`], and takes it by value: one permit, one call.

mod component;
mod concurrency;
mod error;
mod given_values;
#[cfg(feature = "remote")]
mod http;
mod mcp_connection;
mod native;
mod pipe;
#[cfg(feature = "process")]
mod process;
mod supervised;
#[cfg(test)]
pub(crate) mod testing;
mod transport;
mod unusable;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::call::{Outcome, SessionId};
use crate::gate::Permit;
use crate::item::ItemKind;
use crate::name::{ProfileName, SourceName};
use crate::protocol::{Answer, Era, Json, Notification, Request, RpcError};
use crate::sync::Mutex;

pub use component::ComponentSource;
pub(crate) use component::{CommandSource, ComponentProgram};
pub(crate) use concurrency::ConcurrencyLimit;
pub use error::SourceError;
pub(crate) use given_values::GivenValues;
#[cfg(feature = "remote")]
pub use http::HttpConnection;
#[cfg(feature = "remote")]
pub(crate) use http::HttpSource;
pub(crate) use mcp_connection::url_elicitations_needed;
pub use native::NativeSource;
pub(crate) use native::{InProcessServer, InProcessSource};
pub(crate) use pipe::{PipeConfig, RedactedValues};
#[cfg(feature = "process")]
pub(crate) use process::ProcessSource;
pub(crate) use supervised::SupervisionConfig;
pub(crate) use unusable::UnusableSource;

/// One configured upstream, connected or not. Declaring it opens nothing; [`Source::discover`] does.
#[async_trait]
pub trait Source: Send + Sync + std::fmt::Debug {
    /// Connects if necessary and lists the tools. Every step has a deadline. Cancellation safe: a connection that was
    /// half-way up is used by the next caller.
    ///
    /// # Errors
    /// [`SourceError`], with the text that the ledger and the agent get.
    async fn discover(&self, client: &Arc<dyn SourceClient>) -> Result<Discovery, SourceError>;

    /// Lists its items of a kind other than tools. Empty if it has none of that kind. Cancellation safe.
    ///
    /// # Errors
    /// [`SourceError`].
    async fn list(&self, client: &Arc<dyn SourceClient>, kind: ItemKind) -> Result<ListedDefinitions, SourceError>;

    /// Sends one permitted call to the source and waits for its answer. The source's messages meanwhile go to `events`,
    /// in order. Dropping the future cancels the call at the source and leaves the connection usable.
    async fn call(&self, permit: Permit, client: &Arc<dyn SourceClient>, events: CallEventSender) -> Outcome;

    /// Sends one permitted notification, which has no answer. Dropping the future leaves open whether it was sent.
    ///
    /// # Errors
    /// [`SourceError::Timeout`] if the source did not take it in time, and may or may not have it; any other if it
    /// surely does not have it.
    async fn notify(&self, permit: Permit, client: &Arc<dyn SourceClient>) -> Result<(), SourceError>;

    /// Delivers a notification that the broker itself wrote, if this session has its own connection.
    fn queue_notification(&self, _session: &SessionId, _notification: Notification) {}

    /// Releases the state that is kept for a session that has ended.
    fn end_session(&self, _session: &SessionId) {}

    /// Returns the only era of the protocol that can be spoken with it. `None` if both can be spoken, or neither has
    /// been tried yet.
    fn only_era(&self) -> Option<Era> {
        None
    }

    /// Reports whether its requests carry what identifies an account: listed headers, or a login.
    fn has_account(&self) -> bool {
        false
    }

    /// Returns its health, as far as it is known. Sends no request.
    fn health(&self) -> ConnectionHealth {
        ConnectionHealth::default()
    }

    /// Pings it over each open connection, and notes the result. Connects to nothing. Cancellation safe.
    async fn ping(&self) {}

    /// Ends its connections, and connects again if one is wanted: pending answers have [`DRAIN_DEADLINE`] to arrive.
    /// `cause` is for the ledger. Returns its status once the next connection is open, or after `timeout`. The restart
    /// continues if the future is dropped.
    ///
    /// # Errors
    /// [`SourceError`] if the next connection cannot be made, or if there is nothing that could be ended.
    async fn restart(&self, _cause: &str, _timeout: Duration) -> Result<SourceStatus, SourceError> {
        let why = "it is a component that is made anew for each call, so that there is nothing to restart; it gets new \
                   values of secrets when the configuration is reloaded";
        Err(SourceError::Start(why.into()))
    }

    /// Ends it permanently: pending answers have [`DRAIN_DEADLINE`] to arrive, then the connections, and the processes
    /// if there are any, end within [`CLOSE_DEADLINE`](crate::limits::CLOSE_DEADLINE). Idempotent.
    async fn close(&self);
}

/// Returns the file that the broker keeps a source's standard error in; the file before it ends in `.log.1`. Only
/// sources that run here have one.
#[must_use]
pub fn log_file(data_dir: &Path, source: &SourceName) -> PathBuf {
    data_dir.join("logs").join(format!("{source}.log"))
}

/// The state of a source in its life cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum SourceStatus {
    /// It is not connected, and no session needs it to be.
    #[default]
    Idle,
    /// A connection is being made.
    Starting,
    /// It is connected.
    Ready,
    /// It is connected and did not answer a ping; or one of several connections to it is broken.
    Degraded,
    /// A connection ended or could not be made, and will be tried again soon.
    BackingOff,
    /// The attempts to connect are spent. The source is left alone for a while, and then tried once.
    Failed,
    /// It was closed.
    Stopped,
}

impl SourceStatus {
    /// All states.
    pub(crate) const ALL: [Self; 7] =
        [Self::Idle, Self::Starting, Self::Ready, Self::Degraded, Self::BackingOff, Self::Failed, Self::Stopped];

    /// Returns the word that the ledger and `portcullis status` use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::BackingOff => "backing-off",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }

    /// Returns the state of a source with several connections: degraded if some are open and some are broken.
    pub(crate) fn of_all(all: impl Iterator<Item = Self>) -> Self {
        let all: Vec<_> = all.collect();
        let any = |status| all.contains(&status);
        let broken = any(Self::BackingOff) || any(Self::Failed);
        if any(Self::Degraded) || (any(Self::Ready) && broken) {
            return Self::Degraded;
        }
        let others = [Self::Ready, Self::Starting, Self::BackingOff, Self::Failed, Self::Stopped];
        others.into_iter().find(|status| any(*status)).unwrap_or_default()
    }
}

/// The health of a source, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConnectionHealth {
    /// The state in its life cycle.
    pub status: SourceStatus,
    /// True if a connection is open.
    pub connected: bool,
    /// The time at which the source last answered a ping, in milliseconds since the Unix epoch.
    pub last_ping: Option<u64>,
    /// Connections that broke or could not be made, and pings without an answer, since the broker started.
    pub error_count: u64,
    /// The reason why the source is not connected, although it should be.
    pub error: Option<String>,
}

/// A session as its sources see it: the facts that they may know about the agent, and the channel to it for messages
/// that belong to no call.
#[doc(hidden)]
pub trait SourceClient: Send + Sync {
    /// Returns the session. `None` for a caller without one, such as the command line: then no connection is made just
    /// for it.
    fn session(&self) -> Option<&SessionId>;

    /// Returns the principal that opened the session; may be empty.
    fn principal(&self) -> &str {
        ""
    }

    /// Returns the profile under which the session is served. `None` for a caller without a session.
    fn profile(&self) -> Option<&ProfileName> {
        None
    }

    /// Returns the era that the agent speaks. `None` for a caller that is not an agent: it is served in the newest era
    /// that the source speaks.
    fn era(&self) -> Option<Era> {
        None
    }

    /// Returns the `ClientCapabilities` that the source may know. A session with `{}` can share a connection with
    /// others.
    fn capabilities(&self) -> Json;

    /// Returns the lowest log level that the agent wants for all calls, a JSON string, if it has set one.
    fn log_level(&self) -> Option<Json>;

    /// Takes a notification that belongs to no call. The source's other messages wait meanwhile.
    fn notify<'a>(&'a self, source: &'a str, notification: Notification) -> BoxFuture<'a, ()>;

    /// Puts a request of the source to the agent, if no open call could carry it.
    fn request<'a>(&'a self, source: &'a str, request: Request) -> BoxFuture<'a, Answer>;
}

/// A client that declares no capabilities and ignores notifications, for callers that only want to see a source's
/// offer.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoClient;

impl SourceClient for NoClient {
    fn session(&self) -> Option<&SessionId> {
        None
    }

    fn capabilities(&self) -> Json {
        Json::empty_object()
    }

    fn log_level(&self) -> Option<Json> {
        None
    }

    fn notify<'a>(&'a self, _: &'a str, _: Notification) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn request<'a>(&'a self, _: &'a str, _: Request) -> BoxFuture<'a, Answer> {
        Box::pin(async move { nobody_to_ask() })
    }
}

/// Returns the answer to a source's question when there is no agent to ask.
pub(crate) fn nobody_to_ask() -> Answer {
    let why = "this connection offers no client capabilities; there is nobody to ask";
    Answer::from(RpcError::new(RpcError::METHOD_NOT_FOUND, why))
}

/// The longest time that pending answers may take when a source is closed, before
/// [`CLOSE_DEADLINE`](crate::limits::CLOSE_DEADLINE) begins: calls that are almost done end well, and no caller waits
/// for the others.
pub const DRAIN_DEADLINE: std::time::Duration = std::time::Duration::from_secs(2);

/// The description that a source gives of itself.
#[derive(Debug, Clone)]
pub struct Discovery {
    /// The `serverInfo`: name and version as the source claims them; `{}` where it has none.
    pub server: Json,
    /// The protocol revision spoken with it.
    pub protocol: String,
    /// The `ServerCapabilities`, byte for byte.
    pub capabilities: Json,
    /// The instructions, if any.
    pub instructions: Option<String>,
    /// The tools.
    pub tools: ListedDefinitions,
}

/// A list of a source: definitions in its order, byte for byte.
#[derive(Debug, Clone, Default)]
pub struct ListedDefinitions {
    /// MCP `Tool`, `Prompt`, `Resource` or `ResourceTemplate` objects.
    pub items: Vec<Json>,
    /// The time in milliseconds for which the source says that the list is valid.
    pub ttl_ms: u64,
    /// True if the source says that the list is the same for everybody.
    pub public: bool,
    /// The source's result (of the first page) with an empty list in place of its items, byte for byte: it holds the
    /// result's other members. `None` if there is no such result.
    pub other_members: Option<Json>,
}

/// The `progressToken` of the latest request that a call is for, if it has one: a request is repeated with the agent's
/// answers while the source has the call. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct ProgressToken(Arc<Mutex<Option<Json>>>);

impl ProgressToken {
    /// Returns a token of this value.
    #[must_use]
    pub fn of(token: Option<Json>) -> Self {
        Self(Arc::new(Mutex::new(token)))
    }

    /// Replaces the value.
    pub(crate) fn set(&self, token: Option<Json>) {
        *self.0.lock() = token;
    }

    /// Returns the value.
    #[must_use]
    pub fn get(&self) -> Option<Json> {
        self.0.lock().clone()
    }
}

/// The destination of the messages that a source sends during one call.
#[derive(Debug, Clone)]
pub struct CallEventSender {
    /// The caller's `progressToken`, put back unchanged into each notification. Without one there is no progress.
    pub token: ProgressToken,
    /// The channel to the caller. A full channel slows the source down, not the broker.
    pub out: mpsc::Sender<CallEvent>,
    /// The bytes of large notifications that may still be put into the channel.
    room: Arc<Semaphore>,
}

impl CallEventSender {
    /// The size in bytes above which a notification counts. The places in the channel bound smaller ones.
    const SMALL_BYTES: usize = 16 * 1024;

    /// The bytes that all large notifications of one call may have together until the caller takes them.
    const ROOM_BYTES: usize = 1024 * 1024;

    /// Returns the destination behind this channel, for a caller with this `progressToken`.
    #[must_use]
    pub fn new(token: ProgressToken, out: mpsc::Sender<CallEvent>) -> Self {
        Self { token, out, room: Arc::new(Semaphore::new(Self::ROOM_BYTES)) }
    }

    /// Passes a notification on, and waits until there is room for it. Returns false if the caller has gone.
    /// Cancellation safe: the notification is then dropped.
    pub(crate) async fn notify(&self, mut notification: Notification) -> bool {
        if let Some((params, bytes)) = Self::take_large(&mut notification) {
            let room = Arc::clone(&self.room).acquire_many_owned(bytes).await;
            notification.params = room.ok().map(|room| params.held_with(room));
        }
        self.out.send(CallEvent::Notification(notification)).await.is_ok()
    }

    /// Passes a notification on if there is room for it, and drops it otherwise.
    pub(crate) fn offer(&self, mut notification: Notification) {
        if let Some((params, bytes)) = Self::take_large(&mut notification) {
            let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(bytes) else { return };
            notification.params = Some(params.held_with(room));
        }
        // A caller that has gone needs nothing, and one without room gets what comes later.
        let _ = self.out.try_send(CallEvent::Notification(notification));
    }

    /// Takes the parameters out of a large notification, with the bytes that they count for.
    fn take_large(notification: &mut Notification) -> Option<(Json, u32)> {
        let params = notification.params.take_if(|params| params.as_bytes().len() > Self::SMALL_BYTES)?;
        let bytes = u32::try_from(params.as_bytes().len().min(Self::ROOM_BYTES)).unwrap_or(u32::MAX);
        Some((params, bytes))
    }
}

/// A message that a source sends during a call.
#[derive(Debug)]
pub enum CallEvent {
    /// Progress, a log message, or whatever else concerns the call.
    Notification(Notification),
    /// A request of the source to the agent (2025-11-25 and earlier).
    Request(SourceRequest),
}

/// A request of a source. If it is dropped unanswered, the source gets an error that nobody answers.
#[derive(Debug)]
pub struct SourceRequest {
    /// The request, with the source's own id.
    pub request: Request,
    /// Takes the answer.
    pub reply: oneshot::Sender<Answer>,
}
