//! The session as its sources see it: the facts that they may know about its agent, and their messages that belong to
//! no call.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::Session;
use super::configured::ConfiguredSession;
use super::delay_budget::DelayBudget;
use super::listing::VisibleItem;
use super::request::SessionRequest;
use super::watched_resources::is_update;
use crate::agent::{AgentPeer, NoAgent};
use crate::call::SessionId;
use crate::context::{DiscoveredSource, Upstream};
use crate::item::ItemKind;
use crate::name::ProfileName;
use crate::protocol::meta::LOG_LEVELS;
use crate::protocol::{self, Answer, Era, Json, Method, Notification, RpcError};
use crate::source::{SourceClient, nobody_to_ask};
use crate::sync::{Mutex, MutexGuard};

/// The longest time that a request of a source that belongs to no call waits for the agent to listen. Agents listen as
/// soon as they are initialised.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Reports whether a log message is at least as severe as the wanted level. False if no level is wanted.
pub(super) fn is_severe_enough(wanted: Option<&str>, said: Option<&str>) -> bool {
    let rank = |level: Option<&str>| LOG_LEVELS.iter().position(|known| Some(*known) == level);
    rank(wanted).is_some_and(|wanted| rank(said).is_none_or(|said| said >= wanted))
}

/// The channel to the agent for messages that belong to no call, and the log level that the agent wants.
pub(super) struct AgentNotifier {
    peer: watch::Sender<Option<Arc<dyn AgentPeer>>>,
    delay_budget: DelayBudget,
    level: Mutex<Option<Json>>,
}

impl Default for AgentNotifier {
    fn default() -> Self {
        Self { peer: watch::Sender::new(None), delay_budget: DelayBudget::default(), level: Mutex::default() }
    }
}

impl AgentNotifier {
    pub(super) fn open(&self, peer: Arc<dyn AgentPeer>) {
        self.peer.send_replace(Some(peer));
    }

    pub(super) fn offer(&self, notification: Notification) {
        if let Some(peer) = self.now() {
            peer.offer(notification);
        }
    }

    /// Passes on a notification of a source, and waits for a slow agent as long as its delay budget lasts.
    pub(super) async fn pass(&self, notification: Notification) {
        if let Some(peer) = self.now() {
            self.delay_budget.wait_for(peer.notify(notification)).await;
        }
    }

    /// Returns the channel to the agent, if it listens.
    pub(super) fn now(&self) -> Option<Arc<dyn AgentPeer>> {
        self.peer.borrow().clone()
    }

    async fn peer(&self) -> Option<Arc<dyn AgentPeer>> {
        let mut peer = self.peer.subscribe();
        let open = tokio::time::timeout(LISTEN_TIMEOUT, peer.wait_for(Option::is_some)).await;
        open.ok()?.ok()?.clone()
    }

    fn level(&self) -> MutexGuard<'_, Option<Json>> {
        self.level.lock()
    }
}

impl SessionRequest<'_> {
    /// Answers `logging/setLevel`: legacy sources that have logs are told the level at once, modern ones with each
    /// call.
    pub(super) async fn set_level(&self) -> Result<Answer, RpcError> {
        let (session, params) = (self.session, self.params.as_json());
        let level =
            params.get("level").filter(|level| level.read().is_ok_and(|level: &str| LOG_LEVELS.contains(&level)));
        let Some(level) = level else {
            let text = format!("`params.level` must be one of {}", LOG_LEVELS.join(", "));
            return Err(RpcError::new(RpcError::INVALID_PARAMS, text));
        };
        *session.agent_side.sink.level() = Some(level.clone());
        let tools = session.listing(ItemKind::Tool).await?;
        let legacy = |discovered: &DiscoveredSource| {
            discovered.era == Era::Legacy && discovered.capabilities.get("logging").is_some()
        };
        let notified = tools
            .sources()
            .filter(|(_, discovered)| legacy(discovered))
            .map(|(upstream, _)| session.send_log_level(upstream, params));
        futures_util::future::join_all(notified).await;
        Ok(Answer::Result(Json::empty_object()))
    }
}

impl ConfiguredSession {
    async fn send_log_level(&self, upstream: &Arc<Upstream>, params: &Json) {
        let request = SessionRequest::new(self, Method::LoggingSetLevel, params.clone(), Arc::new(NoAgent));
        if let Err(error) = request.execute_at(&VisibleItem::whole_source(upstream)).await {
            tracing::debug!(source = %upstream.config.name, %error, "a source was not told the level");
        }
    }

    /// Forgets a list that a source reports as changed: every request from now on gets the new one, whenever the agent
    /// is told. A modern agent has no session that it could begin anew, so it gets the tools of the source anew when it
    /// lists again.
    pub(super) fn forget_changed(&self, source: &str, method: &Method) {
        let kinds: &[ItemKind] = match method {
            Method::NotificationsToolsListChanged if self.agent_side.agent.era == Era::Modern => &[ItemKind::Tool],
            Method::NotificationsPromptsListChanged => &[ItemKind::Prompt],
            Method::NotificationsResourcesListChanged => &[ItemKind::Resource, ItemKind::Template],
            _ => return,
        };
        if let Some(upstream) = self.upstream(source) {
            self.lists.expire(kinds, &upstream.config.name);
        }
    }

    /// Notes a change that a source announces. Returns true if the agent must be told now: a snapshot of tools does not
    /// change during a session, and where the session follows changes, a refresh notifies the agent of the result.
    pub(super) fn changed(&self, upstream: &Arc<Upstream>, method: &Method) -> bool {
        match method {
            Method::NotificationsToolsListChanged if self.follows_tools(upstream) => {
                // The refresh tells the agent of the result.
                self.request_refresh(upstream);
                false
            }
            Method::NotificationsToolsListChanged => {
                if self.agent_side.agent.era == Era::Legacy {
                    tracing::warn!(
                        "a source says that its tools have changed; a session that is open keeps what it has"
                    );
                }
                false
            }
            _ => true,
        }
    }

    /// Passes a notification that belongs to no call on to the agent, if the agent must be told.
    async fn notify_agent(&self, upstream: &Arc<Upstream>, notification: Notification) {
        if !self.changed(upstream, &notification.method) {
            return;
        }
        let no_agent: Arc<dyn AgentPeer> = Arc::new(NoAgent);
        let Some(notification) = self.notification_of_no_call(upstream, notification, &no_agent).await else { return };
        match self.agent_side.agent.era {
            Era::Legacy => self.tell_legacy(notification).await,
            Era::Modern => self.agent_side.listeners.pass(&notification).await,
        }
    }

    /// Notifies a legacy agent of a change. Among resources, only those that it watches count.
    pub(super) async fn tell_legacy(&self, change: Notification) {
        if !is_update(&change) || self.agent_side.upstream_subscriptions.watched.admits(&change) {
            self.agent_side.sink.pass(change).await;
        }
    }

    pub(super) fn upstream(&self, name: &str) -> Option<Arc<Upstream>> {
        let mut admitted = self.context.admitted(&self.caller.profile);
        admitted.find(|(upstream, _)| upstream.config.name.as_str() == name).map(|(upstream, _)| upstream)
    }
}

impl SourceClient for Session {
    fn session(&self) -> Option<&SessionId> {
        Some(&self.agent_side.opened_by.session)
    }

    fn principal(&self) -> &str {
        &self.agent_side.opened_by.principal
    }

    fn profile(&self) -> Option<&ProfileName> {
        Some(&self.agent_side.opened_by.profile)
    }

    fn era(&self) -> Option<Era> {
        // A program that uses a session directly has negotiated no era.
        let agent = &self.agent_side.agent;
        agent.revision.map(|_| agent.era)
    }

    fn capabilities(&self) -> Json {
        self.agent_side.agent.shared(self.current().profile.sampling)
    }

    fn log_level(&self) -> Option<Json> {
        self.agent_side.sink.level().clone()
    }

    fn notify<'a>(&'a self, source: &'a str, notification: Notification) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.current().forget_changed(source, &notification.method);
            let (side, name) = (Arc::downgrade(&self.agent_side), source.to_owned());
            let tell = move |notification| -> BoxFuture<'static, ()> {
                let (side, name) = (side.clone(), name.clone());
                Box::pin(async move {
                    let Some(session) = side.upgrade().and_then(|side| side.session()) else { return };
                    let configured = session.current();
                    if let Some(upstream) = configured.upstream(&name) {
                        configured.notify_agent(&upstream, notification).await;
                    }
                })
            };
            self.agent_side.changes.pass(source, notification, tell).await;
        })
    }

    fn request<'a>(&'a self, source: &'a str, request: protocol::Request) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let side = &self.agent_side;
            let peer = if side.agent.era == Era::Legacy { side.sink.peer().await } else { None };
            let configured = self.current();
            match (configured.upstream(source), peer) {
                (Some(upstream), Some(peer)) => configured.ask(&upstream, request, &peer).await,
                _ => nobody_to_ask(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use portcullis_jail::Launcher;

    use super::*;
    use crate::broker::Broker;
    use crate::config::Config;

    #[tokio::test]
    async fn a_list_that_changes_twice_within_a_second_is_asked_for_again_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let text = "[sources.calc]\ncomponent = \"builtin:calculator\"";
        let config = Config::parse(text, &folder.path().join("portcullis.toml")).unwrap();
        let broker = Broker::build(config, Launcher::SelfExec).await.unwrap();
        let session = broker.open_session(&"default".parse().unwrap(), &"me".parse().unwrap(), "test").await.unwrap();
        let configured = session.current();
        for _ in 0..2 {
            configured.listing(ItemKind::Prompt).await.unwrap();
            assert!(configured.lists.all_stale().is_empty());
            let changed = Notification { method: Method::NotificationsPromptsListChanged, params: None };
            session.notify("calc", changed).await;
            assert!(configured.lists.all_stale().contains(&(ItemKind::Prompt, "calc".parse().unwrap())));
        }
        broker.shutdown().await;
    }
}
