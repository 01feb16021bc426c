//! One agent's connection under one profile.
//!
//! A [`Session`] lasts as long as its agent is there. Its behaviour follows from the configuration in force: each
//! request is answered by one `ConfiguredSession`, from its first check to its answer, even if the configuration is
//! replaced meanwhile.

mod agent_notifications;
mod ask;
mod change_receiver;
mod change_throttle;
mod configured;
mod continuations;
mod conversion;
mod deferred;
mod delay_budget;
mod direct;
mod discovery;
mod earlier_lists;
mod execution;
mod expose;
mod gate_input;
mod group;
mod handshake;
mod health;
mod in_flight;
mod inbound_notifications;
mod installing;
mod kept_results;
mod list_records;
mod listen;
mod listing;
mod lists;
mod lost_stream;
mod offers;
mod pending_rounds;
mod request;
mod resource_subscription;
mod round_trips;
mod seen_lists;
mod source_client;
mod source_questions;
mod stream_feeds;
mod subscription_filter;
mod subscription_streams;
mod target;
mod tasks;
mod tool;
mod tool_refresh;
mod upstream_subscriptions;
mod watched_resources;

use std::sync::{Arc, Weak};

use futures_util::FutureExt as _;
use serde_json::json;
use tokio::sync::watch;
use tracing::Instrument as _;

use crate::agent::{Agent, AgentPeer};
use crate::call::{Caller, Params};
use crate::config::ProfileConfig;
use crate::context::Context;
use crate::item::ItemKind;
use crate::protocol::{Answer, Era, Json, Method, Notification, RpcError};
use crate::sync::Mutex;

use configured::{AgentState, ConfiguredSession, RunStatus};
pub(crate) use continuations::ContinuationStore;
use continuations::Continuations;
pub(crate) use listing::contested_by_broker;
use request::SessionRequest;
#[cfg(test)]
pub(crate) use tasks::MAX_QUESTION_BYTES;
pub use tool::{Progress, Tool, ToolResult};

/// The most characters of an unknown name that messages and records repeat.
const MAX_NAME_SHOWN: usize = 128;

/// One agent's connection under one profile; a *run* in the ledger. It has methods for tools; prompts, resources and
/// whatever else MCP has are used over [`connect`](crate::connect), with an MCP client.
///
/// # Example
/// ```
/// # async fn call(broker: &portcullis::Broker) -> Result<(), Box<dyn std::error::Error>> {
/// let session = broker.open_session(&"default".parse()?, &"me".parse()?, "my-program").await?;
/// let sum = session.call_tool("calc__add", &serde_json::json!({ "a": 20, "b": 22 })).await?;
/// println!("{}", sum.text());
/// session.close().await;
/// # Ok(())
/// # }
/// ```
pub struct Session {
    agent_side: Arc<AgentState>,
    current: watch::Sender<Arc<ConfiguredSession>>,
    /// Held while one configuration replaces another.
    reconfiguring: Mutex<()>,
}

/// The part of the catalog of one kind that a session can see.
#[derive(Debug, Clone)]
pub struct ListPage {
    /// MCP `Tool`, `Prompt`, `Resource` or `ResourceTemplate` objects under their exposed names, in a fixed order.
    pub items: Arc<[Json]>,
    /// The time in milliseconds for which the source says that the list is valid.
    pub ttl_ms: u64,
    /// True if the list is the same for everybody who may ask this broker (2026-07-28, "Caching").
    pub public: bool,
    /// The source's own result with an empty list in place of its items, if there is only one source: it holds the
    /// result's other members.
    pub other_members: Option<Json>,
}

impl Session {
    /// Makes a session under this profile. `continuations` holds what its caller may come back to.
    pub(crate) fn new(
        caller: Caller,
        agent: Agent,
        profile: Arc<ProfileConfig>,
        context: Arc<Context>,
        continuations: Arc<Continuations>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me: &Weak<Self>| {
            let agent_side = Arc::new(AgentState::new(me.clone(), caller.clone(), agent, continuations));
            let configured = ConfiguredSession::new(Arc::clone(&agent_side), caller, profile, context, None);
            Self { agent_side, current: watch::Sender::new(configured), reconfiguring: Mutex::default() }
        })
    }

    /// Returns the caller, as the configuration in force describes it.
    #[doc(hidden)]
    #[must_use]
    pub fn caller(&self) -> Arc<Caller> {
        Arc::clone(&self.current().caller)
    }

    /// Returns the identifier of the session, which the ledger has for each of its calls as `run`.
    #[must_use]
    pub fn id(&self) -> String {
        self.caller().session.to_string()
    }

    /// Forgets what the session has seen, for policies about information flow. Returns the labels that it had.
    pub(crate) fn clear_flow(&self) -> Vec<String> {
        self.agent_side.continuations.clear_flow()
    }

    /// Reports whether the run has ended, well or not. A front opens a new session instead of using an ended one.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.agent_side.ended()
    }

    /// Returns the capabilities of the session's sources together, with their instructions for a model. Begins to
    /// discover the sources, and does not wait until all have answered: for those that have not, it returns the
    /// capabilities from their last connection, or, if there was none, all that this broker serves. If discovery fails,
    /// returns what every session has; a later request gets the error.
    #[doc(hidden)]
    pub async fn offers(&self) -> AdvertisedCapabilities {
        self.current().offers().await
    }

    /// Returns the tools this session may see, as MCP `Tool` objects under their exposed names, in a fixed order. The
    /// first call discovers; later ones return the same snapshot. All tools are returned, even if the profile defers
    /// them.
    ///
    /// # Errors
    /// If a required source could not be discovered: nothing is served on a partial set.
    #[doc(hidden)]
    pub async fn tools(&self) -> Result<Arc<[Json]>, RpcError> {
        Ok(self.current().listing(ItemKind::Tool).await?.list_page().items)
    }

    /// Returns what this session lists of one kind: the items it may see, or the tools that stand for them where tools
    /// are deferred.
    ///
    /// # Errors
    /// If a required source could not be discovered, or does not list.
    #[doc(hidden)]
    pub async fn list(&self, kind: ItemKind) -> Result<ListPage, RpcError> {
        self.current().list(kind).await
    }

    /// Returns what this session lists of one kind, as an answer to a request with these parameters. Sources whose lists
    /// are out of date are asked again. Meanwhile the agent gets progress on sources that are being installed, if it
    /// listens to progress.
    ///
    /// # Errors
    /// As for [`list`](Self::list), and if the session has ended.
    #[doc(hidden)]
    pub async fn list_for(
        &self,
        kind: ItemKind,
        params: &Json,
        peer: Arc<dyn AgentPeer>,
    ) -> Result<ListPage, RpcError> {
        let token = Params::parse(&kind.list_method(), params.clone()).progress_token();
        // Later pages are of the list that the first one began.
        let is_first = params.get("cursor").is_none_or(|cursor| cursor == Json::null());
        self.current().check_not_ended()?;
        let listed = async {
            loop {
                let configured = self.current();
                let page = async {
                    if is_first {
                        configured.renew(kind).await;
                    }
                    configured.list(kind).await
                };
                let page = configured
                    .report_installations_during(token.clone(), &*peer, |source| configured.uses(source), page)
                    .await;
                // A list that another configuration overtook would never be corrected.
                if Arc::ptr_eq(&configured, &self.current()) {
                    return page;
                }
            }
        };
        // Boxed, as the compiler limits the nesting of futures.
        self.agent_side.unless_cut(listed.boxed()).await?
    }

    /// Answers a request of any method: the one entry for what an agent asks. `params` are as received, in full. The
    /// configuration in force when the request arrives governs all of it, except that a subscription continues under
    /// each later one. Dropping the future cancels the call at its source and records that its outcome is unknown.
    #[doc(hidden)]
    pub async fn request(&self, method: impl Into<Method>, params: Json, peer: Arc<dyn AgentPeer>) -> Answer {
        let (method, configured) = (method.into(), self.current());
        let request = SessionRequest::new(&configured, method, params, peer);
        let log = request.log();
        if let Err(ended) = request.check_session() {
            return Answer::from(ended);
        }
        if request.method != Method::SubscriptionsListen {
            // Boxed, as the compiler limits the nesting of futures, also in programs that embed the broker.
            let answer = self.agent_side.unless_cut(request.handle().boxed().instrument(log)).await;
            return answer.unwrap_or_else(Answer::from);
        }
        // It may stay open for days, and must not keep an old configuration alive.
        let opened = request.into_subscription();
        drop(configured);
        self.listen(opened).instrument(log).await
    }

    /// Takes a notification of the agent, and returns before it is delivered. A change of its roots is announced to all
    /// sources, by a notification that the broker writes itself. Progress and the status of a task go to the source
    /// whose question they are about. A notification that the protocol does not define goes to the source that its
    /// `_meta` names under `portcullis/source`, or to the only source. All but the first pass the gate, one after
    /// another, and are recorded.
    #[doc(hidden)]
    pub fn notified(&self, notification: &Notification) {
        self.current().notified(notification);
    }

    /// Sets the channel for notifications and questions to the agent that belong to no call. It is used until the agent
    /// goes or another channel is set.
    #[doc(hidden)]
    pub fn attach(&self, peer: Arc<dyn AgentPeer>) {
        self.agent_side.sink.open(peer);
        if self.ended() {
            return;
        }
        let configured = self.current();
        // Does nothing if another configuration overtakes it, which does the same.
        tokio::spawn(async move { configured.follow_lists().await });
    }

    /// Ends the agent's subscriptions, which would never end on their own, so that the session can be closed.
    #[doc(hidden)]
    pub fn end_listeners(&self) {
        self.agent_side.listeners.end();
    }

    /// Drops the agent's requests in flight: it may not have their results any more. Each is answered with an error, and
    /// a call that its source has is recorded as one whose outcome is unknown. A question to a person about one of them
    /// stays open until it expires, and nothing runs if it is answered.
    #[doc(hidden)]
    pub fn cut(&self) {
        self.end_listeners();
        self.agent_side.cut();
    }

    /// Ends the run in the ledger, after waiting for at most three seconds until the agent's last notifications have
    /// reached their sources. Calls in flight end as they would have ended; later ones are refused with the reason
    /// `session-ended`. Idempotent.
    ///
    /// Cancellation: the run may not be ended; it ends when the session is dropped.
    pub async fn close(&self) {
        self.agent_side.notifications.finish().await;
        self.current().end(RunStatus::Ended, None);
    }

    /// Ends the run because the broker stops, as [`Session::close`] does.
    pub(crate) async fn interrupt(&self) {
        self.agent_side.notifications.finish().await;
        self.current().end(RunStatus::Interrupted, Some("the broker stopped"));
    }

    /// Ends the run without a record, because its beginning was never recorded.
    pub(crate) fn forget(&self) {
        self.agent_side.end_quietly();
    }

    /// Serves the session under another configuration from the next request on. Requests in flight finish under the one
    /// that they began with. Ends the session, and drops its requests in flight, if its profile is gone. `in_force`
    /// returns the configuration; it is called when it is this call's turn, so that none replaces a newer one.
    pub(crate) fn reconfigure(&self, in_force: impl FnOnce() -> Arc<Context>) {
        let _turn = self.reconfiguring.lock();
        let (context, before) = (in_force(), self.current());
        if self.ended() || Arc::ptr_eq(&before.context, &context) {
            return;
        }
        let Some(profile) = context.profiles.get(&before.caller.profile) else {
            let why = format!("profile `{}` was removed from the configuration", before.caller.profile);
            self.cut();
            return before.end(RunStatus::Interrupted, Some(&why));
        };
        let caller = Caller { trust: profile.config.trust, ..(*before.caller).clone() };
        let (side, profile) = (Arc::clone(&self.agent_side), Arc::clone(&profile.config));
        let after = ConfiguredSession::new(side, caller, profile, context, before.to_carry());
        self.current.send_replace(Arc::clone(&after));
        before.stop_discovery();
        after.continue_from_earlier();
    }

    /// Shows the agent what the lock file admits now.
    pub(crate) async fn apply_lock_file(&self) {
        if !self.ended() {
            self.current().apply_lock_file().await;
        }
    }

    fn current(&self) -> Arc<ConfiguredSession> {
        self.current.borrow().clone()
    }
}

/// Ends the run of a session that is dropped without being closed, such as when a connection is lost while the session
/// is opened.
impl Drop for Session {
    fn drop(&mut self) {
        self.current().end(RunStatus::Abandoned, None);
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("caller", &self.caller()).field("ended", &self.ended()).finish_non_exhaustive()
    }
}

/// The capabilities of a session's sources together.
#[derive(Debug, Clone, PartialEq)]
pub struct AdvertisedCapabilities {
    /// MCP `ServerCapabilities`.
    pub capabilities: serde_json::Value,
    /// The instructions of the sources for a model, each under its source's name.
    pub instructions: Option<String>,
    /// The only era that the front speaks, if the single source behind it speaks only that.
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
