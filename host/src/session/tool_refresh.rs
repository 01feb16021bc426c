//! Refreshes the tools of a session when a source says that they have changed, or when an absent source comes back.
//!
//! A session keeps the tools that it began with, with four exceptions: a source with `discovery = "live"` is asked
//! again, a modern agent may subscribe to every change, one that does not gets the tools of a source that has changed
//! when it lists again, and a source that was missing when the session began is added when it is there. The agent is
//! told only that its list has changed. Calls in flight keep the definitions that they began with. Each source is asked
//! separately: none waits for another.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::timeout;

use super::configured::ConfiguredSession;
use super::discovery::{self, DISCOVERY_TIMEOUT, ListResult, ListedItems, PendingSource};
use super::listing::{ListingRound, RecordedNames, SessionCatalog};
use super::lists::KINDS;
use crate::config::ToolListUpdates;
use crate::context::Upstream;
use crate::item::ItemKind;
use crate::ledger::EventKind;
use crate::name::SourceName;
use crate::protocol::Era;
use crate::sync::Mutex;

/// The pause after one refresh of a source: a list that changes all the time costs one discovery a second.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest time that a refresh waits for its source: as long as a source may take to connect. After that the
/// session keeps its tools.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// The largest number of added, of removed and of changed names that a log line shows; the ledger has more.
const MAX_SHOWN_NAMES: usize = 16;

/// The refreshes of a session's tools: the sources whose tools are being refreshed, and the lock that orders them.
#[derive(Default)]
pub(super) struct ToolRefresh {
    running: Mutex<HashMap<SourceName, RefreshState>>,
    /// The lock that is held while one list replaces another. No source is queried while it is held.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RefreshState {
    Running,
    /// Another change came meanwhile, so one more refresh follows.
    Again,
}

impl ToolRefresh {
    /// Notes that a refresh is wanted. Returns true if the caller must begin it.
    fn begin(&self, source: &SourceName) -> bool {
        let mut running = self.running.lock();
        let stage = if running.contains_key(source) { RefreshState::Again } else { RefreshState::Running };
        running.insert(source.clone(), stage).is_none()
    }

    /// Ends a refresh. Returns true if the caller must refresh once more.
    fn finish_refresh(&self, source: &SourceName) -> bool {
        let mut running = self.running.lock();
        let again = running.get(source) == Some(&RefreshState::Again);
        if again {
            running.insert(source.clone(), RefreshState::Running);
        } else {
            running.remove(source);
        }
        again
    }

    /// Returns the sources that are being refreshed.
    pub(super) fn running(&self) -> Vec<SourceName> {
        self.running.lock().keys().cloned().collect()
    }
}

impl ConfiguredSession {
    /// Reports whether the session asks a source again when the source says that its tools have changed.
    pub(super) fn follows_tools(&self, upstream: &Upstream) -> bool {
        upstream.config.discovery == ToolListUpdates::Live
            || self.agent_side.listeners.want_tools()
            || self.lacks_current_tools(upstream)
    }

    /// Reports whether the session began without the current tools of a source: without any, or with those that the
    /// source listed for an earlier session.
    fn lacks_current_tools(&self, upstream: &Upstream) -> bool {
        let cell = Arc::clone(&self.lock_tools());
        cell.get().is_some_and(|taken| taken.as_ref().is_ok_and(|tools| tools.is_missing(&upstream.config.name)))
    }

    /// Begins to refresh the tools of a source in the background. Calls during a refresh, or in the pause after it,
    /// lead to one more.
    pub(super) fn request_refresh(&self, upstream: &Arc<Upstream>) {
        let source = &upstream.config.name;
        if !self.refresh.begin(source) {
            return;
        }
        let (me, upstream) = (self.me.clone(), Arc::clone(upstream));
        tokio::spawn(async move {
            loop {
                let Some(session) = me.upgrade().filter(|session| !session.agent_side.ended()) else { return };
                session.refresh_tools(&upstream, LIST_TIMEOUT).await;
                // Dropped before the pause, so that the task does not keep an ended session alive.
                drop(session);
                tokio::time::sleep(PAUSE).await;
                if !me.upgrade().is_some_and(|session| session.refresh.finish_refresh(&upstream.config.name)) {
                    return;
                }
            }
        });
    }

    /// Arranges for the sources that were missing when the session began to be added: when they answer, if they are
    /// still being asked, and at once, if they are connected again.
    pub(super) fn add_absent_later(&self, tools: &SessionCatalog, pending: Vec<PendingSource>) {
        let is_pending =
            |upstream: &Upstream| pending.iter().any(|pending| pending.upstream.config.name == upstream.config.name);
        for upstream in tools.absent().filter(|upstream| !is_pending(upstream)) {
            // A source that connects from here on announces itself.
            if upstream.source.health().connected {
                self.request_refresh(upstream);
            }
        }
        self.add_when_listed(pending);
    }

    /// Waits in the background for sources that are still being asked, and adds their lists.
    pub(super) fn add_when_listed(&self, pending: Vec<PendingSource>) {
        for PendingSource { upstream, kind, listed } in pending {
            let me = self.me.clone();
            tokio::spawn(async move {
                let listed = listed.await;
                let Some(session) = me.upgrade().filter(|session| !session.agent_side.ended()) else { return };
                if kind != ItemKind::Tool {
                    return session.list_arrived(upstream, kind, listed).await;
                }
                if let Ok(listed) = discovery::noted(&session.list_records, kind, &upstream, listed) {
                    session.replace_listed(&upstream, listed).await;
                }
            });
        }
    }

    /// Asks those sources again whose tools are out of date, before a modern agent is answered.
    pub(super) async fn refresh_outdated(&self) {
        let outdated = self.lists.outdated_tools();
        let upstreams = outdated.iter().filter_map(|source| self.upstream(source.as_str()));
        join_all(upstreams.map(async |upstream| self.refresh_tools(&upstream, DISCOVERY_TIMEOUT).await)).await;
    }

    /// Asks a source for its tools again, and waits no longer than that.
    async fn refresh_tools(&self, upstream: &Arc<Upstream>, longest: Duration) {
        let source = &upstream.config.name;
        let mut outdated = self.lists.take_stale(ItemKind::Tool, |other| other == source);
        let asked = discovery::question(upstream, &self.client(), ItemKind::Tool);
        match timeout(longest, asked).await {
            Ok(Ok(listed)) => {
                let listed = discovery::noted(&self.list_records, ItemKind::Tool, upstream, Ok(listed));
                if let Ok(listed) = listed {
                    let changed = self.replace_listed(upstream, listed).await;
                    // An agent that subscribed is told of each change that a source with `discovery = "snapshot"`
                    // announces, even if it changes nothing that the agent sees.
                    if !changed
                        && upstream.config.discovery == ToolListUpdates::Snapshot
                        && self.agent_side.listeners.want_tools()
                    {
                        self.notify_change(ItemKind::Tool);
                    }
                }
                outdated.clear(source);
            }
            Ok(Err(error)) => tracing::warn!(%source, %error, "a source did not list its tools again"),
            Err(_) => {
                tracing::warn!(%source, "a source did not list its tools again within {} s", longest.as_secs())
            }
        }
    }

    /// Replaces a source's earlier offer with its current one, and tells the agent if that changes anything that it
    /// sees. Returns true if it does.
    async fn replace_listed(&self, upstream: &Arc<Upstream>, listed: ListedItems) -> bool {
        let _turn = self.refresh.turn.lock().await;
        let Some(before) = self.current_catalog().await else { return false };
        let source = &upstream.config.name;
        let is_new = before.missing_cause(source).is_some();
        let capabilities = listed.discovered.as_ref().map(|discovered| discovered.capabilities.clone());
        let answered =
            before.with_newer_results(vec![ListResult { upstream: Arc::clone(upstream), listed: Ok(listed) }]);
        let Some(after) = self.replace_tools(&before, answered).await else { return false };
        if is_new {
            self.lists.expire(&KINDS, source);
            let has = |capability: &&(&str, ItemKind)| {
                capabilities.as_ref().is_some_and(|all| all.get(capability.0).is_some())
            };
            let other = [("prompts", ItemKind::Prompt), ("resources", ItemKind::Resource)];
            other.iter().filter(has).for_each(|(_, kind)| self.notify_change(*kind));
            // Its later changes are followed, too.
            match self.agent_side.agent.era {
                Era::Legacy if self.agent_side.sink.now().is_some() => self.follow_lists_in(&after),
                Era::Legacy => {}
                Era::Modern => self.agent_side.listeners.arrivals.send_replace(()),
            }
        }
        let changed = self.notify_difference(ItemKind::Tool, &before, &after);
        if !changed {
            tracing::info!(%source, "a new list of a source changes nothing that its session sees");
        }
        changed
    }

    /// Builds the lists again from the sources' answers, after the lock file has changed, and tells the agent if it sees
    /// other items now.
    pub(super) async fn apply_lock_file(&self) {
        for kind in KINDS {
            self.rebuild_list(kind).await;
        }
        let _turn = self.refresh.turn.lock().await;
        let Some(before) = self.current_catalog().await else { return };
        if let Some(after) = self.replace_tools(&before, before.answered.clone()).await {
            self.notify_difference(ItemKind::Tool, &before, &after);
        }
    }

    /// Returns the session's list of tools, or `None` if it has not been made yet and so will be up to date when it is.
    /// A list that is carried over from the previous configuration is made now.
    async fn current_catalog(&self) -> Option<Arc<SessionCatalog>> {
        let is_carried = self.carried.lock().is_some();
        if is_carried {
            return self.snapshot().await.ok();
        }
        self.lock_tools().get().and_then(|tools| tools.clone().ok())
    }

    /// Replaces the list of tools with one built from these results. Returns `None` and keeps the old list if none can
    /// be built.
    async fn replace_tools(&self, before: &SessionCatalog, answered: Vec<ListResult>) -> Option<Arc<SessionCatalog>> {
        match self.build_listing(answered, ListingRound::Later, ItemKind::Tool).await {
            Ok(after) => {
                let after = Arc::new(after.after(before));
                *self.lock_tools() = Arc::new(tokio::sync::OnceCell::new_with(Some(Ok(Arc::clone(&after)))));
                Some(after)
            }
            Err(error) => {
                tracing::warn!(%error, "a session keeps the tools that it has");
                None
            }
        }
    }

    /// Tells the agent that a list has changed, and records how, if two lists differ in what the agent sees. Returns
    /// true if they do.
    pub(super) fn notify_difference(&self, kind: ItemKind, before: &SessionCatalog, after: &SessionCatalog) -> bool {
        let change = ListDifference::between(before, after);
        if change.is_none() {
            return false;
        }
        let ListDifference { added, removed, changed } = &change;
        let shown =
            |names: &BTreeSet<Arc<str>>| names.iter().take(MAX_SHOWN_NAMES).cloned().collect::<Vec<_>>().join(" ");
        tracing::warn!(
            kind = kind.as_str(),
            added = shown(added),
            removed = shown(removed),
            changed = shown(changed),
            "the items that a session can use have changed"
        );
        let [added, removed, changed] = [added, removed, changed].map(RecordedNames::of);
        let further = added.further + removed.further + changed.further;
        let mut body = json!({ "added": added.listed, "removed": removed.listed, "changed": changed.listed });
        if let Some(body) = body.as_object_mut() {
            if kind != ItemKind::Tool {
                body.insert("kind".to_owned(), json!(kind.as_str()));
            }
            if further > 0 {
                body.insert("further".to_owned(), json!(further));
            }
        }
        self.list_records.record(EventKind::ListChanged, kind.as_str(), body);
        self.notify_change(kind);
        true
    }
}

/// The difference between two lists, by exposed name.
#[derive(Debug, Default, PartialEq, Eq)]
struct ListDifference {
    added: BTreeSet<Arc<str>>,
    removed: BTreeSet<Arc<str>>,
    changed: BTreeSet<Arc<str>>,
}

impl ListDifference {
    fn between(before: &SessionCatalog, after: &SessionCatalog) -> Self {
        let mut change = Self::default();
        for shown in after.items() {
            let name = shown.item.exposed.clone();
            match before.get(&name) {
                None => change.added.insert(name),
                Some(old) if !old.is_shown_like(shown) => change.changed.insert(name),
                Some(_) => continue,
            };
        }
        let gone = before.items().filter(|shown| after.get(&shown.item.exposed).is_none());
        change.removed = gone.map(|shown| shown.item.exposed.clone()).collect();
        change
    }

    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Returns the error message for an item that its source has removed.
pub(super) fn removed(kind: ItemKind, name: &str) -> String {
    format!(
        "{} `{name}` was removed by its source after it was listed; nothing was sent. List again to see what there is",
        kind.as_str()
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn however_many_changes_come_meanwhile_one_more_refresh_follows() {
        let (refresh, one, other) = (ToolRefresh::default(), "one".parse().unwrap(), "other".parse().unwrap());
        assert!(refresh.begin(&one));
        assert!(!refresh.begin(&one) && !refresh.begin(&one));
        assert!(refresh.begin(&other), "none waits for another");
        assert!(refresh.finish_refresh(&one));
        assert!(!refresh.finish_refresh(&one));
        assert!(refresh.begin(&one));
    }
}
