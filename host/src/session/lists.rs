//! The prompts, resources and templates of a session: listed when they are first asked for, and listed again by a
//! source that announces a change, and by one whose list has grown old when an agent lists.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::configured::ConfiguredSession;
use super::discovery::{self, DiscoveryResults, ListResult, ListedItems};
use super::listing::{ListingRound, SessionCatalog};
use super::subscription_filter::announces;
use crate::context::Upstream;
use crate::item::ItemKind;
use crate::name::SourceName;
use crate::protocol::{Era, Notification, RpcError};
use crate::source::SourceError;
use crate::sync::{Mutex, MutexGuard};

/// The kinds of items that are listed here.
pub(super) const KINDS: [ItemKind; 3] = [ItemKind::Prompt, ItemKind::Resource, ItemKind::Template];

/// The time for which a list counts as current at least: an agent that lists all the time costs a source one list a
/// second.
const MIN_AGE: Duration = Duration::from_secs(1);

/// The prompts, resources and templates of a session. No kind waits for another.
#[derive(Default)]
pub(super) struct SessionLists {
    prompts: tokio::sync::Mutex<Option<Arc<SessionCatalog>>>,
    resources: tokio::sync::Mutex<Option<Arc<SessionCatalog>>>,
    templates: tokio::sync::Mutex<Option<Arc<SessionCatalog>>>,
    /// The lists that are out of date, by kind and source: those of tools too, if the agent is modern.
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

    /// Takes the marks of those of these sources whose list of a kind is out of date.
    pub(super) fn take_stale(&self, kind: ItemKind, of: impl Fn(&SourceName) -> bool) -> Stale<'_> {
        let mut stale = self.stale();
        let sources = stale.extract_if(|(marked, source)| *marked == kind && of(source));
        Stale { lists: self, kind, sources: sources.map(|(_, source)| source).collect() }
    }

    /// Returns the sources whose list of tools is out of date.
    pub(super) fn outdated_tools(&self) -> Vec<SourceName> {
        let stale = self.stale();
        stale.iter().filter(|(kind, _)| *kind == ItemKind::Tool).map(|(_, source)| source.clone()).collect()
    }

    fn stale(&self) -> MutexGuard<'_, HashSet<(ItemKind, SourceName)>> {
        self.stale.lock()
    }
}

/// The sources whose list of a kind is out of date. Their marks come back if it is dropped before the lists were
/// fetched again: the request may be cancelled, or fail.
pub(super) struct Stale<'a> {
    lists: &'a SessionLists,
    kind: ItemKind,
    sources: HashSet<SourceName>,
}

impl Stale<'_> {
    /// Clears the mark of a source, because its list has been fetched again.
    pub(super) fn clear(&mut self, source: &SourceName) {
        self.sources.remove(source);
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
    /// Marks those lists of a kind as out of date that have outlived the time for which their source says that they are
    /// valid. A legacy source says none: its list lasts until it announces a change, if it announces any.
    pub(super) fn expire_old(&self, kind: ItemKind) {
        let tools = self.lock_tools().get().and_then(|tools| tools.clone().ok());
        let Some((listing, tools)) = self.lists.now(kind).zip(tools) else { return };
        for ListResult { upstream, listed } in &listing.answered {
            let source = &upstream.config.name;
            let mut discovered = tools.sources().filter(|(other, _)| other.config.name == *source);
            let lasts = discovered.any(|(_, discovered)| discovered.era == Era::Legacy && announces(discovered, kind));
            let is_old =
                |listed: &ListedItems| listed.at.elapsed() >= Duration::from_millis(listed.offer.ttl_ms).max(MIN_AGE);
            if !lasts && listed.as_ref().is_ok_and(is_old) {
                self.lists.expire(&[kind], source);
            }
        }
    }

    /// Returns the items of a kind other than tools that the session may use. A source that was asked before is asked
    /// again only if its list is marked as out of date. If it does not list again, the session keeps what it has.
    pub(super) async fn list_of(&self, kind: ItemKind) -> Result<Arc<SessionCatalog>, RpcError> {
        // A source that cannot be discovered has no lists either.
        let tools = self.snapshot().await?;
        let mut place = self.lists.of(kind).lock().await;
        let mut stale = self.lists.take_stale(kind, |_| true);
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
        let failed: HashSet<_> = match place.as_ref() {
            None => HashSet::new(),
            Some(before) => {
                let failed = answered.extract_if(.., |result| result.listed.is_err() && before.has_listed(result));
                let failed = failed.map(|result| result.upstream.config.name.clone()).collect();
                answered = before.with_newer_results(answered);
                failed
            }
        };
        let listing = Arc::new(self.build_list(answered, kind).await?);
        *place = Some(Arc::clone(&listing));
        stale.sources.retain(|source| failed.contains(source));
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
        let source = upstream.config.name.clone();
        let mut place = self.lists.of(kind).lock().await;
        let Some(before) = place.as_ref() else { return };
        match self.build_list(before.with_newer_results(vec![ListResult { upstream, listed }]), kind).await {
            Ok(listing) => *place = Some(Arc::new(listing)),
            Err(error) => return tracing::warn!(error = error.message, "a session keeps the lists that it has"),
        }
        self.lists.take_stale(kind, |other| *other == source).clear(&source);
        drop(place);
        self.notify_change(kind);
    }

    /// Builds a list again from what the sources answered, and tells the agent if it sees other items now.
    pub(super) async fn rebuild_list(&self, kind: ItemKind) {
        let mut place = self.lists.of(kind).lock().await;
        let Some(before) = place.clone() else { return };
        match self.build_listing(before.answered.clone(), ListingRound::Later, kind).await {
            Ok(after) => {
                let after = Arc::new(after);
                *place = Some(Arc::clone(&after));
                drop(place);
                self.notify_difference(kind, &before, &after);
            }
            Err(error) => tracing::warn!(%error, "a session keeps the lists that it has"),
        }
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
        let files = "files".parse().unwrap();
        drop(lists.take_stale(ItemKind::Prompt, |_| true));
        assert!(lists.take_stale(ItemKind::Resource, |_| true).sources.is_empty());
        assert!(lists.take_stale(ItemKind::Prompt, |source| *source != files).sources.is_empty());
        let mut stale = lists.take_stale(ItemKind::Prompt, |_| true);
        assert_eq!(stale.sources.len(), 1, "the first request was cancelled");
        stale.clear(&files);
        drop(stale);
        assert!(lists.take_stale(ItemKind::Prompt, |_| true).sources.is_empty());
    }
}
