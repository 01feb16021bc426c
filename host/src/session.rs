//! One agent's connection under one profile.

mod agent_notifications;
mod ask;
mod changes;
mod circumstances;
mod client;
mod continuations;
mod deferred;
mod direct;
mod discovery;
mod execution;
mod expose;
mod group;
mod handshake;
mod health;
mod in_flight;
mod inbound_notifications;
mod listen;
mod listing;
mod lists;
mod offers;
mod refresh;
mod request;
mod round_trips;
mod rounds;
mod subscription_filter;
mod target;
mod tasks;
mod upstream_subscriptions;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use serde_json::json;
use tokio::sync::OnceCell;
use tokio::task::AbortHandle;
use tracing::Instrument as _;

use crate::agent::{Agent, AgentPeer};
use crate::call::{CallId, Caller};
use crate::config::ProfileConfig;
use crate::context::Context;
use crate::item::ItemKind;
use crate::ledger::{self, Event};
use crate::protocol::{Answer, Era, Json, Method, RpcError};
use crate::source::{NoPeer, SessionPeer};
use crate::sync::{Mutex, MutexGuard};

use agent_notifications::{NotificationQueue, OpenQuestions};
use changes::Changes;
use client::AgentSink;
pub(crate) use continuations::ContinuationStore;
use continuations::Continuations;
pub use direct::Tool;
use discovery::{AskedSources, Late};
use listen::SubscriptionStreams;
use listing::Listing;
pub(crate) use listing::contested_by_broker;
use lists::Lists;
use refresh::Refresh;
use request::SessionRequest;
use upstream_subscriptions::UpstreamSubscriptions;

/// The most characters of an unknown name that messages and records repeat.
const MAX_NAME_SHOWN: usize = 128;

/// One agent's connection under one profile; a *run* in the ledger.
pub struct Session {
    me: Weak<Self>,
    caller: Arc<Caller>,
    agent: Agent,
    profile: Arc<ProfileConfig>,
    context: Arc<Context>,
    continuations: Arc<Continuations>,
    /// The tools that the session may call: listed once, and again only if a source is live or was absent, or if the
    /// agent wants to hear of changes.
    tools: Mutex<Arc<Snapshot>>,
    refresh: Refresh,
    /// The sources that were not waited for when the tools were listed. `None` before that, and once another task waits
    /// for them.
    late: Mutex<Option<Vec<Late>>>,
    /// The prompts, resources and templates that the session may use.
    lists: Lists,
    changes: Changes,
    sink: AgentSink,
    listeners: SubscriptionStreams,
    upstream_subscriptions: UpstreamSubscriptions,
    agent_notifications: NotificationQueue,
    asking: OpenQuestions,
    /// The task that discovers the sources for a handshake.
    discovery: Mutex<Option<AbortHandle>>,
    ended: AtomicBool,
    began: Instant,
}

/// The tools, or the error because of which there are none.
type Snapshot = OnceCell<Result<Arc<Listing>, RpcError>>;

/// The part of the catalog of one kind that a session can see.
#[derive(Debug, Clone)]
pub struct ListPage {
    /// MCP `Tool`, `Prompt`, `Resource` or `ResourceTemplate` objects under their exposed names, in a fixed order.
    pub items: Arc<[Json]>,
    /// For how many milliseconds all sources say that the list stays as it is.
    pub ttl_ms: u64,
    /// True if the list is the same for everybody who may ask this broker (2026-07-28, "Caching").
    pub public: bool,
    /// The source's own result with an empty list in the place of its items, if there is only one source: it holds the
    /// result's other members.
    pub around: Option<Json>,
}

impl Session {
    /// Makes a session under this profile. `continuations` holds what its caller may come back to.
    pub(crate) fn new(
        caller: Caller,
        agent: Agent,
        profile: Arc<ProfileConfig>,
        (context, continuations): (Arc<Context>, Arc<Continuations>),
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            caller: Arc::new(caller),
            agent,
            profile,
            context,
            continuations,
            tools: Mutex::default(),
            refresh: Refresh::default(),
            late: Mutex::default(),
            lists: Lists::default(),
            changes: Changes::default(),
            sink: AgentSink::default(),
            listeners: SubscriptionStreams::default(),
            upstream_subscriptions: UpstreamSubscriptions::default(),
            agent_notifications: NotificationQueue::default(),
            asking: OpenQuestions::default(),
            discovery: Mutex::default(),
            ended: AtomicBool::new(false),
            began: Instant::now(),
        })
    }

    /// Returns the caller.
    #[must_use]
    pub fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// Reports whether the run has ended, well or not. A front opens a new session instead of using an ended one.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Returns the tools this session may see, as MCP `Tool` objects under their exposed names, in a fixed order. The
    /// first call discovers; later ones return the same snapshot. All tools are returned, even if the profile defers
    /// them.
    ///
    /// # Errors
    /// If a required source could not be discovered: nothing is served on a partial set.
    pub async fn tools(&self) -> Result<Arc<[Json]>, RpcError> {
        Ok(self.listing(ItemKind::Tool).await?.list_page().items)
    }

    /// Returns what this session lists of one kind: the items it may see, or the tools that stand for them where tools
    /// are deferred.
    ///
    /// # Errors
    /// If a required source could not be discovered, or does not list.
    pub async fn list(&self, kind: ItemKind) -> Result<ListPage, RpcError> {
        let listing = self.listing(kind).await?;
        Ok(self.deferred(kind).unwrap_or_else(|| self.with_status(kind, listing.list_page())))
    }

    /// Answers a request of any method: the one entry for what an agent asks. `params` are as received, whole. Dropping
    /// the future cancels the call at its source and records that its outcome is unknown.
    pub async fn request(&self, method: impl Into<Method>, params: Json, peer: Arc<dyn AgentPeer>) -> Answer {
        let request = SessionRequest::new(self, method.into(), params, peer);
        let log = request.log();
        request.handle().instrument(log).await
    }

    /// Sets the channel over which the agent is told, and asked, what belongs to no call. It is used until the agent
    /// goes or another channel is set.
    pub fn attach(&self, peer: Arc<dyn AgentPeer>) {
        self.sink.open(peer);
        if let Some(me) = self.me.upgrade() {
            tokio::spawn(async move { me.follow_lists().await });
        }
    }

    /// Ends the agent's subscriptions, which would never end by themselves, so that the session can be closed.
    pub fn end_listeners(&self) {
        self.listeners.end();
    }

    /// Ends the run in the ledger, after waiting for at most three seconds until the agent's last notifications have
    /// reached their sources. Idempotent.
    pub async fn close(&self) {
        self.agent_notifications.finish().await;
        self.end(json!({}));
    }

    /// Ends the run without a record, because its beginning was never recorded.
    pub(crate) fn forget(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    async fn listing(&self, kind: ItemKind) -> Result<Arc<Listing>, RpcError> {
        if kind == ItemKind::Tool { self.snapshot().await } else { self.list_of(kind).await }
    }

    async fn snapshot(&self) -> Result<Arc<Listing>, RpcError> {
        let cell = Arc::clone(&self.lock_tools());
        let taken = cell.get_or_init(|| async {
            let upstreams = self.context.admitted(&self.caller.profile).map(|(upstream, _)| upstream).collect();
            let client = self.client();
            let asked = discovery::ask_all(upstreams, &self.context, &self.caller, &client, ItemKind::Tool);
            // Boxed, as the compiler limits the nesting of futures.
            let AskedSources { answered, late } = Box::pin(asked).await;
            let taken = self.build_listing(answered, true, ItemKind::Tool).await;
            let taken = taken.map(Arc::new).map_err(|cause| {
                self.ended.store(true, Ordering::SeqCst);
                self.record(ledger::EventKind::RunError, json!({ "error": cause.recorded() }));
                RpcError::new(RpcError::INTERNAL, cause.to_string()).with_data(json!({ "code": "discovery-failed" }))
            })?;
            *self.lock_late() = Some(late);
            Ok(taken)
        });
        let taken = taken.await.clone()?;
        let late = self.lock_late().take();
        if let Some(late) = late {
            self.await_absent(&taken, late);
        }
        Ok(taken)
    }

    fn lock_late(&self) -> MutexGuard<'_, Option<Vec<Late>>> {
        self.late.lock()
    }

    fn lock_tools(&self) -> MutexGuard<'_, Arc<Snapshot>> {
        self.tools.lock()
    }

    /// Returns the session as its sources see it.
    fn client(&self) -> Arc<dyn SessionPeer> {
        // While a session is being dropped, nothing holds it any more.
        match self.me.upgrade() {
            Some(me) => me,
            None => Arc::new(NoPeer),
        }
    }

    /// Records a request that is refused before it reaches the gate, and returns the error.
    fn turned_away(&self, code: &str, kind: ItemKind, name: &str, text: &str) -> RpcError {
        let event = Event {
            kind: ledger::EventKind::CallDenied,
            run: Some(self.caller.session.clone()),
            call: Some(CallId::new()),
            body: json!({
                "code": code,
                kind.as_str(): shortened(name),
                "principal": &*self.caller.principal,
                "profile": self.caller.profile,
            }),
        };
        self.context.ledger.note(event);
        RpcError::new(RpcError::INVALID_PARAMS, text)
    }

    fn end(&self, body: serde_json::Value) {
        if let Some(discovery) = self.discovery.lock().take() {
            discovery.abort();
        }
        if !self.ended.swap(true, Ordering::SeqCst) {
            self.context.session_durations.record(self.began.elapsed());
            self.record(ledger::EventKind::RunCompleted, body);
        }
        self.continuations.rounds.end(&self.caller.session);
        self.upstream_subscriptions.end();
        for (upstream, _) in self.context.admitted(&self.caller.profile) {
            upstream.source.end_session(&self.caller.session);
        }
    }

    fn record(&self, kind: ledger::EventKind, body: serde_json::Value) {
        self.context.ledger.note(Event { kind, run: Some(self.caller.session.clone()), call: None, body });
    }
}

/// Ends the run of a session that is dropped without being closed, such as when a connection is lost while the session
/// is opened.
impl Drop for Session {
    fn drop(&mut self) {
        self.end(json!({ "abandoned": true }));
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("caller", &self.caller).field("ended", &self.ended()).finish_non_exhaustive()
    }
}

/// The capabilities of a session's sources together.
#[derive(Debug, Clone, PartialEq)]
pub struct AdvertisedCapabilities {
    /// MCP `ServerCapabilities`.
    pub capabilities: serde_json::Value,
    /// The instructions of the sources for a model, each under its source's name.
    pub instructions: Option<String>,
    /// The only era that the front speaks, if the one source behind it speaks no other.
    pub only_era: Option<Era>,
}

impl Default for AdvertisedCapabilities {
    fn default() -> Self {
        Self { capabilities: json!({ "tools": { "listChanged": false } }), instructions: None, only_era: None }
    }
}

/// Returns a name as the ledger and messages repeat it: shortened, as an agent can send any text as a name.
fn shortened(name: &str) -> String {
    name.chars().take(MAX_NAME_SHOWN).collect()
}
