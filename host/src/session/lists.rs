//! The prompts, resources and templates of a session: listed when they are first asked for, and listed again by a
//! source that announces a change.

use std::collections::HashSet;
use std::sync::Arc;

use super::configured::ConfiguredSession;
use super::discovery::{self, DiscoveryResults, ListResult, ListedItems};
use super::listing::{ListingRound, SessionCatalog};
use crate::context::Upstream;
use crate::item::ItemKind;
use crate::name::SourceName;
use crate::protocol::{Era, Notification, RpcError};
use crate::source::SourceError;
use crate::sync::{Mutex, MutexGuard};

/// The kinds of items that are listed here.
pub(super) const KINDS: [ItemKind; 3] = [ItemKind::Prompt, ItemKind::Resource, ItemKind::Template];

/// The prompts, resources and templates of a session. No kind waits for another.
#[derive(Default)]
pub(super) struct SessionLists {
    prompts: tokio::sync::Mutex<Option<Arc<SessionCatalog>>>,
    resources: tokio::sync::Mutex<Option<Arc<SessionCatalog>>>,
    templates: tokio::sync::Mutex<Option<Arc<SessionCatalog>>>,
    /// The lists that are out of date, by kind and source.
    stale: Mutex<HashSet<(ItemKind, SourceName)>>,
}

impl SessionLists {
    /// Marks lists of a source as out of date.
    pub(super) fn expire(&self, kinds: &[ItemKind], source: &SourceName) {
        self.stale().extend(kinds.iter().map(|kind| (*kind, source.clone())));
    }

    /// Returns the list of a kind, if it was listed and is not being listed now.
    pub(super) fn now(&self, kind: ItemKind) -> Option<Arc<SessionCatalog>> {
        self.of(kind).try_lock().ok()?.clone()
    }

    /// Returns the marks of all lists that are out of date.
    pub(super) fn all_stale(&self) -> HashSet<(ItemKind, SourceName)> {
        self.stale().clone()
    }

    fn of(&self, kind: ItemKind) -> &tokio::sync::Mutex<Option<Arc<SessionCatalog>>> {
        match kind {
            ItemKind::Prompt => &self.prompts,
            ItemKind::Resource => &self.resources,
            ItemKind::Tool | ItemKind::Template | ItemKind::Source => &self.templates,
        }
    }

    /// Takes the marks of the sources whose list of a kind is out of date.
    fn take_stale(&self, kind: ItemKind) -> Stale<'_> {
        let sources = self.stale().extract_if(|(of, _)| *of == kind).map(|(_, source)| source).collect();
        Stale { lists: self, kind, sources }
    }

    fn stale(&self) -> MutexGuard<'_, HashSet<(ItemKind, SourceName)>> {
        self.stale.lock()
    }
}

/// The sources whose list of a kind is out of date. Their marks come back if it is dropped before the lists were
/// fetched again: the request may be cancelled, or fail.
struct Stale<'a> {
    lists: &'a SessionLists,
    kind: ItemKind,
    sources: HashSet<SourceName>,
}

impl Stale<'_> {
    /// Clears the marks, because the lists have been fetched again.
    fn clear(mut self) {
        self.sources.clear();
    }
}

impl Drop for Stale<'_> {
    fn drop(&mut self) {
        for source in self.sources.drain() {
            self.lists.expire(&[self.kind], &source);
        }
    }
}

impl ConfiguredSession {
    /// Returns the items of a kind other than tools that the session may use. A source that was asked before is asked
    /// again only if it said that its list has changed.
    pub(super) async fn list_of(&self, kind: ItemKind) -> Result<Arc<SessionCatalog>, RpcError> {
        // A source that cannot be discovered has no lists either.
        let tools = self.snapshot().await?;
        let mut place = self.lists.of(kind).lock().await;
        let stale = self.lists.take_stale(kind);
        if let Some(listing) = place.as_ref().filter(|_| stale.sources.is_empty()) {
            return Ok(Arc::clone(listing));
        }
        let again = |upstream: &Arc<Upstream>| place.is_none() || stale.sources.contains(&upstream.config.name);
        let admitted = self.context.admitted(&self.caller.profile).map(|(upstream, _)| upstream).filter(again);
        let (mut absent, mut upstreams) = (Vec::new(), Vec::new());
        for upstream in admitted {
            match tools.missing_cause(&upstream.config.name) {
                Some(cause) => absent.push(ListResult { upstream, listed: Err(cause.clone()) }),
                None => upstreams.push(upstream),
            }
        }
        let DiscoveryResults { mut answered, pending } =
            discovery::ask_all(upstreams, &self.list_records, &self.client(), kind).await;
        answered.extend(absent);
        if let Some(before) = place.as_ref() {
            answered = before.with_newer_results(answered);
        }
        let listing = Arc::new(self.build_list(answered, kind).await?);
        *place = Some(Arc::clone(&listing));
        stale.clear();
        drop(place);
        self.add_when_listed(pending);
        Ok(listing)
    }

    /// Adds the items of a source that was no longer waited for, and tells the agent.
    pub(super) async fn list_arrived(
        &self,
        upstream: Arc<Upstream>,
        kind: ItemKind,
        listed: Result<ListedItems, SourceError>,
    ) {
        let listed = discovery::noted(&self.list_records, kind, &upstream, listed);
        if listed.is_err() {
            return;
        }
        let mut place = self.lists.of(kind).lock().await;
        let Some(before) = place.as_ref() else { return };
        match self.build_list(before.with_newer_results(vec![ListResult { upstream, listed }]), kind).await {
            Ok(listing) => *place = Some(Arc::new(listing)),
            Err(error) => return tracing::warn!(error = error.message, "a session keeps the lists that it has"),
        }
        drop(place);
        self.notify_change(kind);
    }

    /// Tells the agent that a list has changed.
    pub(super) fn notify_change(&self, kind: ItemKind) {
        let changed = Notification { method: kind.changed_method(), params: None };
        match self.agent_side.agent.era {
            Era::Legacy => self.agent_side.sink.offer(changed),
            Era::Modern => self.agent_side.listeners.notify(&changed),
        }
    }

    async fn build_list(&self, answered: Vec<ListResult>, kind: ItemKind) -> Result<SessionCatalog, RpcError> {
        let listing = self.build_listing(answered, ListingRound::First, kind).await;
        listing.map_err(|cause| RpcError::new(RpcError::INTERNAL, cause.to_string()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_list_stays_out_of_date_until_it_was_taken_anew() {
        let lists = SessionLists::default();
        lists.expire(&[ItemKind::Prompt], &"files".parse().unwrap());
        drop(lists.take_stale(ItemKind::Prompt));
        assert!(lists.take_stale(ItemKind::Resource).sources.is_empty());
        let stale = lists.take_stale(ItemKind::Prompt);
        assert_eq!(stale.sources.len(), 1, "the first request was cancelled");
        stale.clear();
        assert!(lists.take_stale(ItemKind::Prompt).sources.is_empty());
    }
}
