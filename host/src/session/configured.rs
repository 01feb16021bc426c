//! A session under one configuration, and the agent's side of it, which outlives a change of the configuration.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use serde_json::json;
use tokio::sync::{OnceCell, watch};
use tokio::task::AbortHandle;

use super::agent_notifications::NotificationQueue;
use super::change_throttle::ChangeThrottle;
use super::continuations::Continuations;
use super::discovery::{self, DiscoveryResults, PendingSource};
use super::earlier_lists::EarlierLists;
use super::list_records::ListRecorder;
use super::listing::{ListingRound, SessionCatalog};
use super::lists::SessionLists;
use super::source_client::AgentNotifier;
use super::source_questions::SourceQuestions;
use super::subscription_streams::SubscriptionStreams;
use super::tool_refresh::ToolRefresh;
use super::upstream_subscriptions::UpstreamSubscriptions;
use super::{ListPage, Session, shortened};
use crate::agent::Agent;
use crate::call::{CallId, Caller};
use crate::config::ProfileConfig;
use crate::context::Context;
use crate::item::{ItemKind, recorded_uri};
use crate::ledger::{self, Event, EventBody};
use crate::protocol::RpcError;
use crate::source::{NoClient, SourceClient};
use crate::sync::{Mutex, MutexGuard};

/// The agent's side of a session: its identity, the channels to it, and its unfinished work.
pub(super) struct AgentState {
    pub(super) session: Weak<Session>,
    /// The caller as the session was opened. Each configuration has its own trust level for it.
    pub(super) opened_by: Caller,
    pub(super) agent: Agent,
    pub(super) continuations: Arc<Continuations>,
    pub(super) sink: AgentNotifier,
    pub(super) changes: ChangeThrottle,
    pub(super) listeners: SubscriptionStreams,
    pub(super) upstream_subscriptions: UpstreamSubscriptions,
    pub(super) notifications: NotificationQueue,
    pub(super) source_questions: SourceQuestions,
    ended: AtomicBool,
    /// True once the agent's requests in flight are dropped, because it may not have their results any more.
    cut: watch::Sender<bool>,
    began: Instant,
}

impl AgentState {
    pub(super) fn new(
        session: Weak<Session>,
        opened_by: Caller,
        agent: Agent,
        continuations: Arc<Continuations>,
    ) -> Self {
        Self {
            session,
            opened_by,
            agent,
            continuations,
            sink: AgentNotifier::default(),
            changes: ChangeThrottle::default(),
            listeners: SubscriptionStreams::default(),
            upstream_subscriptions: UpstreamSubscriptions::default(),
            notifications: NotificationQueue::default(),
            source_questions: SourceQuestions::default(),
            ended: AtomicBool::new(false),
            cut: watch::Sender::new(false),
            began: Instant::now(),
        }
    }

    /// Returns the session, unless it is being dropped.
    pub(super) fn session(&self) -> Option<Arc<Session>> {
        self.session.upgrade()
    }

    pub(super) fn ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Drops the requests in flight, and those that come later.
    pub(super) fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Returns the result of a request, or why there is none if the requests of the session are dropped.
    pub(super) async fn unless_cut<T>(&self, request: impl Future<Output = T>) -> Result<T, RpcError> {
        let mut cut = self.cut.subscribe();
        tokio::select! {
            biased;
            _ = cut.wait_for(|cut| *cut) => {
                Err(RpcError::new(RpcError::INVALID_REQUEST, "this session has ended, and its open requests with it"))
            }
            answer = request => Ok(answer),
        }
    }

    /// Ends the run without a record.
    pub(super) fn end_quietly(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }
}

/// The way in which a run ended without failing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunStatus {
    /// Its agent or its front ended it.
    Ended,
    /// The broker ended it, while the agent may have wanted to continue.
    Interrupted,
    /// The connection was lost while the run was opened, and nobody ended it.
    Abandoned,
}

impl RunStatus {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Interrupted => "interrupted",
            Self::Abandoned => "abandoned",
        }
    }
}

/// A session under one configuration. A request keeps the one that it began with.
pub(super) struct ConfiguredSession {
    pub(super) me: Weak<Self>,
    /// The state that survives a change of the configuration.
    pub(super) agent_side: Arc<AgentState>,
    pub(super) caller: Arc<Caller>,
    pub(super) profile: Arc<ProfileConfig>,
    pub(super) context: Arc<Context>,
    /// The tools that the session may call: listed once, and again only if a source is live or was absent, or if the
    /// agent subscribes to changes.
    tools: Mutex<Arc<ToolSnapshot>>,
    pub(super) refresh: ToolRefresh,
    /// The records of what the sources list.
    pub(super) list_records: Arc<ListRecorder>,
    /// The sources that were not waited for when the tools were listed. `None` before that, and once another task waits
    /// for them.
    pending: Mutex<Option<Vec<PendingSource>>>,
    /// The prompts, resources and templates that the session may use.
    pub(super) lists: SessionLists,
    /// The lists that the agent was shown under the previous configuration, until it has been notified of the
    /// differences.
    pub(super) carried: Mutex<Option<Arc<EarlierLists>>>,
    /// The task that discovers the sources for a handshake.
    discovery: Mutex<Option<AbortHandle>>,
}

/// The tools, or the error because of which there are none.
pub(super) type ToolSnapshot = OnceCell<Result<Arc<SessionCatalog>, RpcError>>;

impl ConfiguredSession {
    pub(super) fn new(
        agent_side: Arc<AgentState>,
        caller: Caller,
        profile: Arc<ProfileConfig>,
        context: Arc<Context>,
        carried: Option<EarlierLists>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            list_records: ListRecorder::new(&context.ledger, &caller.session),
            agent_side,
            caller: Arc::new(caller),
            profile,
            context,
            tools: Mutex::default(),
            refresh: ToolRefresh::default(),
            pending: Mutex::default(),
            lists: SessionLists::default(),
            carried: Mutex::new(carried.map(Arc::new)),
            discovery: Mutex::default(),
        })
    }

    /// Checks that the run has not ended. The error of one that could not begin says why.
    pub(super) fn check_not_ended(&self) -> Result<(), RpcError> {
        if !self.agent_side.ended() {
            return Ok(());
        }
        let failed = self.lock_tools().get().and_then(|tools| tools.as_ref().err().cloned());
        Err(failed.unwrap_or_else(|| RpcError::new(RpcError::INVALID_REQUEST, "this session has ended")))
    }

    /// Asks those sources again, or has them asked, whose list of a kind is out of date.
    pub(super) async fn renew(&self, kind: ItemKind) {
        match kind {
            ItemKind::Tool => self.refresh_outdated().await,
            _ => self.expire_old(kind),
        }
    }

    pub(super) async fn list(&self, kind: ItemKind) -> Result<ListPage, RpcError> {
        let listing = self.listing(kind).await?;
        self.keep_list(&listing, kind);
        Ok(self.deferred(kind).unwrap_or_else(|| self.with_status(kind, listing.list_page())))
    }

    pub(super) async fn listing(&self, kind: ItemKind) -> Result<Arc<SessionCatalog>, RpcError> {
        if kind == ItemKind::Tool { self.snapshot().await } else { self.list_of(kind).await }
    }

    pub(super) async fn snapshot(&self) -> Result<Arc<SessionCatalog>, RpcError> {
        let cell = Arc::clone(&self.lock_tools());
        let taken = cell.get_or_init(|| async {
            let mut carried = self.carried_answers(ItemKind::Tool);
            let client = self.client();
            let asked =
                discovery::ask_all(std::mem::take(&mut carried.unknown), &self.list_records, &client, ItemKind::Tool);
            // Boxed, as the compiler limits the nesting of futures.
            let DiscoveryResults { mut answered, mut pending } = Box::pin(asked).await;
            answered.extend(carried.answered);
            pending.extend(carried.awaited.into_iter().map(|upstream| PendingSource {
                listed: discovery::question(&upstream, &client, ItemKind::Tool),
                kind: ItemKind::Tool,
                upstream,
            }));
            let taken = Box::pin(self.build_listing(answered, ListingRound::First, ItemKind::Tool)).await;
            let taken = taken.map(Arc::new).map_err(|cause| {
                self.agent_side.end_quietly();
                self.record(ledger::EventKind::RunError, json!({ "error": cause.recorded(), "status": "failed" }));
                RpcError::new(RpcError::INTERNAL, cause.to_string()).with_data(json!({ "code": "discovery-failed" }))
            })?;
            *self.lock_pending() = Some(pending);
            Ok(taken)
        });
        let taken = taken.await.clone()?;
        let pending = self.lock_pending().take();
        if let Some(pending) = pending {
            self.add_absent_later(&taken, pending);
        }
        Ok(taken)
    }

    fn lock_pending(&self) -> MutexGuard<'_, Option<Vec<PendingSource>>> {
        self.pending.lock()
    }

    pub(super) fn lock_tools(&self) -> MutexGuard<'_, Arc<ToolSnapshot>> {
        self.tools.lock()
    }

    /// Returns the session as its sources see it.
    pub(super) fn client(&self) -> Arc<dyn SourceClient> {
        // While a session is being dropped, nothing holds it any more.
        match self.agent_side.session() {
            Some(session) => session,
            None => Arc::new(NoClient),
        }
    }

    /// Keeps the task that discovers the sources for a handshake, to end it with the session.
    pub(super) fn keep_discovery(&self, task: AbortHandle) {
        *self.discovery.lock() = Some(task);
    }

    pub(super) fn stop_discovery(&self) {
        if let Some(discovery) = self.discovery.lock().take() {
            discovery.abort();
        }
    }

    /// Records a request that is refused before it reaches the gate, and returns the error.
    pub(super) fn record_rejection(&self, code: &str, kind: ItemKind, name: &str, text: &str) -> RpcError {
        // A URI that leads nowhere is the agent's own words.
        let is_uri = kind == ItemKind::Resource && !name.is_empty();
        let recorded = if is_uri { recorded_uri(name) } else { shortened(name) };
        let event = Event {
            kind: ledger::EventKind::CallDenied,
            run: Some(self.caller.session.clone()),
            call: Some(CallId::new()),
            body: EventBody::new()
                .with("code", code)
                .with(kind.as_str(), recorded)
                .with("principal", &*self.caller.principal)
                .with("profile", self.caller.profile.as_str()),
        };
        self.context.ledger.record(event);
        RpcError::new(RpcError::INVALID_PARAMS, text)
    }

    /// Ends the run. `why` names the cause of an interruption.
    pub(super) fn end(&self, status: RunStatus, why: Option<&str>) {
        self.stop_discovery();
        self.list_records.report();
        if !self.agent_side.ended.swap(true, Ordering::SeqCst) {
            self.context.session_durations.record(self.agent_side.began.elapsed());
            let mut body = json!({ "status": status.as_str() });
            if let (Some(why), Some(members)) = (why, body.as_object_mut()) {
                members.insert("error".to_owned(), why.into());
            }
            self.record(ledger::EventKind::RunCompleted, body);
        }
        self.agent_side.continuations.rounds.end(&self.caller.session);
        self.agent_side.upstream_subscriptions.end_all();
        for (upstream, _) in self.context.admitted(&self.caller.profile) {
            upstream.source.end_session(&self.caller.session);
        }
    }

    pub(super) fn record(&self, kind: ledger::EventKind, body: serde_json::Value) {
        self.context.ledger.record(Event::new(kind, body).in_run(&self.caller.session));
    }
}
