//! One MCP connection to one source, over any transport: requests go out, answers and notifications come back.
//!
//! A connection that several sessions share declares no client capabilities, so a source should send no requests over
//! it: those that come are refused, because it is unknown which session they are for. The requests on a connection that
//! belongs to one session are put to its agent.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::transport::Transport;
use super::{CallEventSender, Discovery, ListedDefinitions, SourceClient, SourceError};
use crate::call::{Cause, Outcome};
use crate::item::ItemKind;
use crate::name::SourceName;
use crate::protocol::{Era, Json, Message, Method, Notification};
use crate::sync::Mutex;

mod call_deadline;
mod control_queue;
mod handshake;
mod list;
mod meta;
mod pending;
mod request_turns;
mod route;
mod subscribers;
mod url_elicitations;

pub(crate) use call_deadline::CallDeadline;
use control_queue::QueuedMessage;
use handshake::HandshakeResult;
pub(crate) use handshake::{EraChoice, HandshakeDeadlines};
use meta::RequestFacts;
use pending::{McpConnectionState, NoResponse, ReplyRoute};
use request_turns::RequestTurns;
pub(crate) use subscribers::Subscribers;
pub(crate) use url_elicitations::needed as url_elicitations_needed;

/// The most short messages of the broker's own (cancellations, answers to pings) that wait to be sent. Further ones are
/// dropped: a source that reads nothing would not read them either.
const MAX_CONTROL_MESSAGES: usize = 64;

/// The longest time that a call waits for a source to confirm another log level. The call continues without it.
const LEVEL_DEADLINE: Duration = Duration::from_secs(1);

/// The timeout of a request that is meant to stay open. Short enough for a counter of milliseconds.
const UNLIMITED: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// An open connection. Dropping it ends it.
pub(crate) struct McpConnection {
    shared: Arc<McpConnectionState>,
    agreed: HandshakeResult,
    deadlines: HandshakeDeadlines,
    /// The log level that a legacy source was last asked for.
    level: Mutex<Option<Json>>,
    tasks: [JoinHandle<()>; 2],
}

/// The reason why a connection has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectionEnd {
    /// A text for people; only its cause goes into the ledger.
    pub(crate) why: Cause,
    /// True if the source has forgotten the session, and would open another.
    pub(crate) expired: bool,
}

/// The parameters of a new connection.
#[derive(Clone)]
pub(crate) struct McpConnectionConfig {
    /// The source's configured name, which notifications and requests to sessions carry.
    pub(crate) source: SourceName,
    /// The era in which the connection is made.
    pub(crate) era_choice: EraChoice,
    /// The client capabilities that are declared to a legacy source.
    pub(crate) capabilities: Json,
    /// The members of an agent's `_meta` that the source may see.
    pub(crate) context: Arc<[String]>,
    /// The client that will own the connection if it cannot be shared.
    pub(crate) client: Option<Weak<dyn SourceClient>>,
    /// The sessions that are notified of changes if the connection is shared.
    pub(crate) subscribers: Arc<Subscribers>,
}

impl McpConnection {
    /// Opens a connection: finds out which era the source speaks, agrees on a revision and lists the tools.
    /// Cancellation safe: dropping the future drops the connection. After an error the transport is closed.
    ///
    /// # Errors
    /// [`SourceError`]; if the connection ended, [`Transport::exit_reason`] tells what the transport knows about the
    /// end.
    pub(crate) async fn open(
        transport: Arc<dyn Transport>,
        deadlines: HandshakeDeadlines,
        config: McpConnectionConfig,
    ) -> Result<(Self, Discovery), SourceError> {
        let whole = deadlines.whole;
        let (control_queue, queue) = mpsc::channel(MAX_CONTROL_MESSAGES);
        let shared = Arc::new(McpConnectionState {
            transport: Arc::clone(&transport),
            config,
            owner: OnceLock::new(),
            control_queue,
            pending: Mutex::default(),
            request_room: Arc::new(Semaphore::new(route::SOURCE_REQUESTS_KIB)),
            request_turns: RequestTurns::new(),
            strays: AtomicU64::new(0),
            timed_out: AtomicU32::new(0),
            state_changed: watch::Sender::new(()),
        });
        let tasks = [
            tokio::spawn(route::read(Arc::clone(&shared))),
            tokio::spawn(control_queue::run(Arc::clone(&transport), queue)),
        ];
        // From here on, dropping the future drops the connection, which stops the tasks.
        let level = Mutex::default();
        let mut connection = Self { shared, agreed: HandshakeResult::default(), deadlines, level, tasks };
        let opened = async {
            connection.agreed = handshake::agree(&connection.shared, &connection.deadlines).await?;
            transport.agreed(&connection.agreed.protocol);
            connection.discover().await
        };
        match timeout(whole, opened)
            .await
            .unwrap_or_else(|_| Err(handshake::late(&ItemKind::Tool.list_method(), whole)))
        {
            Ok(discovery) => Ok((connection, discovery)),
            Err(error) => {
                transport.close().await;
                Err(error)
            }
        }
    }

    /// Lists the tools again, and returns them with the source's description of itself from the handshake.
    ///
    /// # Errors
    /// [`SourceError`] if the source does not answer, ends, lists too much, or gives an invalid answer.
    pub(crate) async fn discover(&self) -> Result<Discovery, SourceError> {
        Ok(Discovery {
            server: self.agreed.server.clone(),
            protocol: self.agreed.protocol.clone(),
            capabilities: self.agreed.capabilities.clone(),
            instructions: self.agreed.instructions.clone(),
            tools: self.list(ItemKind::Tool).await?,
        })
    }

    /// Lists the items of one kind that the source offers.
    ///
    /// # Errors
    /// As for [`McpConnection::discover`].
    pub(crate) async fn list(&self, kind: ItemKind) -> Result<ListedDefinitions, SourceError> {
        let whole = self.deadlines.whole;
        let listing = list::list(&self.shared, &self.agreed, kind, self.deadlines.list);
        let mut listed = timeout(whole, listing).await.map_err(|_| handshake::late(&kind.list_method(), whole))??;
        if kind == ItemKind::Tool && self.is_modern() {
            listed.items = self.shared.transport.listed(listed.items);
        }
        Ok(listed)
    }

    /// Reports whether the connection belongs to one session: the source is a legacy one that was told the capabilities
    /// of the session's agent, or that keeps state for each client.
    pub(crate) fn has_owner(&self) -> bool {
        self.shared.owner.get().is_some()
    }

    /// Sends one request and waits for its answer until the call's deadline, which is extended while the source waits
    /// for the agent. If the deadline has passed already, nothing is sent. `params` are the caller's; the `_meta`
    /// members that this connection needs are added. Dropping the future sends a cancellation to the source.
    pub(crate) async fn call(
        &self,
        method: &Method,
        params: &Json,
        client: &Arc<dyn SourceClient>,
        events: CallEventSender,
        time: CallDeadline,
    ) -> Outcome {
        // If that fails, the call continues, with fewer log messages.
        let _ = timeout(LEVEL_DEADLINE.min(time.left() / 2), self.set_level(params)).await;
        let left = if method == Method::SubscriptionsListen { UNLIMITED } else { time.left() };
        if left.is_zero() {
            return Outcome::NotSent(time.is_over());
        }
        let (capabilities, level) = (client.capabilities(), client.log_level());
        let progress = events.token.get().is_some();
        let with_facts = |id| {
            let context = &self.shared.config.context;
            let facts =
                RequestFacts { era: self.agreed.era, capabilities: &capabilities, level: level.as_ref(), context };
            meta::with_facts(params, &facts, progress.then_some(id))
        };
        let caller = ReplyRoute { session: client.session().cloned(), events };
        match self.shared.request(method, with_facts, Some(caller), left).await {
            Ok(answer) => Outcome::Answered(answer),
            Err(NoResponse::NotSent(why)) => Outcome::NotSent(why),
            Err(NoResponse::Timeout) => Outcome::Unknown(Cause::own(format!(
                "no answer to `{method}` within {} s; the source may have acted or not",
                time.whole.as_secs_f32()
            ))),
            Err(NoResponse::Broken(why)) => Outcome::Unknown(why),
        }
    }

    /// Sets the log level of a legacy source, which remembers it. A modern caller states the level with each call.
    async fn set_level(&self, params: &Json) {
        let wanted = params.get("_meta").as_ref().and_then(meta::level_of);
        let Some(wanted) = wanted.filter(|_| !self.is_modern() && self.declares("logging")) else { return };
        let params = Json::empty_object().with("level", &wanted).unwrap_or_else(Json::empty_object);
        // Noted before the answer, so that a source that does not answer is not asked again by each call.
        let before = self.level.lock().replace(wanted.clone());
        if before == Some(wanted) {
            return;
        }
        let _ = self.shared.request(&Method::LoggingSetLevel, |_| params, None, self.deadlines.list).await;
    }

    /// Repeats a request of the session that an earlier connection has answered. The new answer is ignored.
    pub(crate) async fn repeat(&self, method: Method, params: Json) {
        let _ = self.shared.request(&method, |_| params, None, self.deadlines.list).await;
    }

    /// Returns the client capabilities that were declared to the source, if it is a legacy one.
    pub(crate) fn declared(&self) -> &Json {
        &self.shared.config.capabilities
    }

    /// Sends a notification of the client's agent, and waits at most `timeout` until it has been sent.
    pub(crate) async fn notify(
        &self,
        method: &Method,
        params: &Json,
        client: &Arc<dyn SourceClient>,
        timeout: Duration,
    ) -> Result<(), SourceError> {
        let capabilities = client.capabilities();
        let context = &self.shared.config.context;
        let facts = RequestFacts { era: self.agreed.era, capabilities: &capabilities, level: None, context };
        let params = Some(meta::with_facts(params, &facts, None));
        let message = Message::Notification(Notification { method: method.clone(), params });
        let sent = tokio::time::timeout(timeout, self.shared.transport.send(&message)).await;
        sent.map_err(|_| handshake::late(method, timeout))?.map_err(|error| {
            self.shared.broke(&error);
            SourceError::Closed(error.into_cause())
        })
    }

    /// Queues a notification, which is sent when the source takes it.
    pub(crate) fn queue_notification(&self, notification: Notification) {
        self.shared.send_soon(Message::Notification(notification));
    }

    /// Reports whether the connection is open, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        let pending = self.shared.pending();
        pending.ended.is_none() && pending.broken.is_none()
    }

    /// Waits until the connection has ended, and returns why. Cancellation safe.
    pub(crate) async fn ended(&self) -> ConnectionEnd {
        self.until(|pending| {
            let why = pending.ended.as_ref().or(pending.broken.as_ref())?.clone();
            Some(ConnectionEnd { why, expired: pending.expired })
        })
        .await
    }

    /// Waits until no request waits for an answer any more. Cancellation safe.
    pub(crate) async fn drained(&self) {
        self.shared.pending().draining = true;
        self.until(|pending| (pending.ended.is_some() || pending.awaited() == 0).then_some(())).await;
    }

    /// Waits until the number of consecutive requests that timed out differs from `seen` and is not 0, and returns it.
    /// Cancellation safe.
    pub(crate) async fn timed_out(&self, seen: u32) -> u32 {
        self.until(|_| Some(self.shared.timed_out.load(Ordering::Relaxed)).filter(|now| *now > 0 && *now != seen)).await
    }

    /// Returns when the connection was last used; the present time if it is in use, even if only for a subscription.
    pub(crate) fn used(&self) -> Instant {
        self.unused_since().unwrap_or_else(Instant::now)
    }

    /// Returns when the connection was last used, or `None` if it is in use, even if only for a subscription or a
    /// request of the source.
    pub(crate) fn unused_since(&self) -> Option<Instant> {
        let pending = self.shared.pending();
        let in_use = pending.requests.values().any(|entry| entry.awaited || entry.caller.is_some());
        (!in_use && pending.source_requests.is_empty()).then(|| pending.used.unwrap_or_else(Instant::now))
    }

    /// Checks that the source is alive: any answer counts. A source of a revision without `ping` (2026-07-28) is sent
    /// `server/discover`.
    ///
    /// # Errors
    /// [`SourceError`] if nothing comes within `deadline`, or the connection has ended.
    pub(crate) async fn ping(&self, deadline: Duration) -> Result<(), SourceError> {
        let facts = RequestFacts::of_broker(self.agreed.era);
        let method = if self.is_modern() { Method::ServerDiscover } else { Method::Ping };
        let with_facts = |_| meta::with_facts(&Json::empty_object(), &facts, None);
        match self.shared.request(&method, with_facts, None, deadline).await {
            Ok(_) => Ok(()),
            Err(lost) => Err(handshake::explain(&method, deadline, lost)),
        }
    }

    /// Reports whether a legacy source keeps state for each client, so that each session needs its own connection.
    pub(crate) fn keeps_state(&self) -> bool {
        !self.is_modern() && handshake::keeps_state(&self.agreed.capabilities)
    }

    async fn until<T>(&self, found: impl Fn(&pending::PendingRequests) -> Option<T>) -> T {
        let mut news = self.shared.state_changed.subscribe();
        loop {
            if let Some(found) = found(&self.shared.pending()) {
                return found;
            }
            // Never an error: the sender lives in `shared`.
            let _ = news.changed().await;
        }
    }

    /// Returns the era that is spoken over the connection.
    pub(crate) fn era(&self) -> Era {
        self.agreed.era
    }

    /// Reports whether the source speaks 2026-07-28.
    pub(crate) fn is_modern(&self) -> bool {
        self.agreed.era == Era::Modern
    }

    /// Reports whether the source has declared this capability.
    pub(crate) fn declares(&self, capability: &str) -> bool {
        self.agreed.capabilities.get(capability).is_some()
    }

    /// Waits until the control messages queued so far, such as cancellations, have been sent. Cancellation safe.
    pub(crate) async fn flushed(&self) {
        let (done, flushed) = oneshot::channel();
        // An error means that the connection has ended: nothing more can be sent.
        if self.shared.control_queue.send(QueuedMessage::Flushed(done)).await.is_ok() {
            let _ = flushed.await;
        }
    }

    /// Closes the connection. The outcome of calls that still wait is unknown.
    pub(crate) async fn close(&self) {
        self.shared.transport.close().await;
        self.shared.end(&"the connection to the source was closed".into());
    }
}

impl Drop for McpConnection {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        for task in self.shared.pending().source_requests.values() {
            task.abort();
        }
    }
}

impl std::fmt::Debug for McpConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpConnection").field("protocol", &self.agreed.protocol).field("open", &self.is_open()).finish()
    }
}

#[cfg(test)]
mod tests;
