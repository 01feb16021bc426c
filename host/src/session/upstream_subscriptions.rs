//! The subscriptions of the broker at sources: at modern ones on behalf of a legacy agent, and of several streams of a
//! modern agent to one resource of a legacy source.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use serde_json::json;
use tokio::task::AbortHandle;

use super::change_receiver::ChangeReceiver;
use super::configured::ConfiguredSession;
use super::listing::{SessionCatalog, VisibleItem};
use super::lost_stream::missed_changes;
use super::request::SessionRequest;
use super::subscription_filter::SubscriptionFilter;
use super::watched_resources::WatchedResources;
use crate::agent::{AgentPeer, NoAgent};
use crate::config::ToolListUpdates;
use crate::context::{DiscoveredSource, Upstream};
use crate::item::ItemKind;
use crate::name::SourceName;
use crate::protocol::{Era, Json, Method};
use crate::sync::Mutex;

/// The largest number of subscriptions that one legacy session can have at modern sources: one for each resource, and
/// one for the lists of each source. Each has its own stream.
pub(super) const MAX_FOLLOWS: usize = 64;

/// The number of resources that are subscribed to at once under another configuration: one may wait for a person.
const MAX_AT_ONCE: usize = 64;

/// The subscriptions of the broker at sources.
#[derive(Default)]
pub(super) struct UpstreamSubscriptions {
    /// The resources that a legacy agent watches, at sources of either era.
    pub(super) watched: WatchedResources,
    /// Those at modern sources on behalf of a legacy agent, each with the task that it is.
    follows: Mutex<HashMap<Followed, AbortHandle>>,
    /// The number of streams of a modern agent that are subscribed to a resource of a legacy source, by its exposed URI.
    streams: Mutex<HashMap<String, usize>>,
}

/// The subject of one subscription.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Followed {
    /// The lists of a source.
    Lists(SourceName),
    /// A resource, by its exposed URI.
    Resource(String),
}

impl UpstreamSubscriptions {
    /// Adds a subscription in place of an earlier one to the same subject. Returns false if there is no room for it. One
    /// of a configuration that is not in force any more is dropped; `is_in_force` is called under the lock.
    fn add(&self, followed: Followed, task: AbortHandle, is_in_force: impl FnOnce() -> bool) -> bool {
        let mut follows = self.follows.lock();
        if !is_in_force() {
            task.abort();
            return true;
        }
        follows.retain(|_, task| !task.is_finished());
        if follows.len() >= MAX_FOLLOWS && !follows.contains_key(&followed) {
            tracing::debug!("{MAX_FOLLOWS} subscriptions are open already; another is not opened");
            task.abort();
            return false;
        }
        if let Some(before) = follows.insert(followed, task) {
            before.abort();
        }
        true
    }

    pub(super) fn remove(&self, followed: &Followed) {
        if let Some(task) = self.follows.lock().remove(followed) {
            task.abort();
        }
    }

    fn follows_lists_of(&self, source: &SourceName) -> bool {
        self.follows.lock().get(&Followed::Lists(source.clone())).is_some_and(|task| !task.is_finished())
    }

    /// Ends all subscriptions.
    pub(super) fn end_all(&self) {
        self.follows.lock().drain().for_each(|(_, task)| task.abort());
        self.watched.clear();
    }

    /// Interrupts all subscriptions, and returns their subjects, so that they can be made again. Changes of resources
    /// are kept until then. Nothing is heard meanwhile from a modern source, so its resources count as changed.
    pub(super) fn interrupt(&self) -> Vec<Followed> {
        let follows: Vec<_> = self.follows.lock().drain().collect();
        follows.iter().for_each(|(_, task)| task.abort());
        let (mut lists, mut unheard) = (Vec::new(), HashSet::new());
        for (followed, _) in follows {
            match followed {
                Followed::Lists(_) => lists.push(followed),
                Followed::Resource(uri) => _ = unheard.insert(uri),
            }
        }
        let watched = self.watched.suspend(|uri| unheard.contains(uri));
        lists.into_iter().chain(watched.into_iter().map(Followed::Resource)).collect()
    }

    /// Notes that a stream is subscribed to a resource.
    pub(super) fn stream_began(&self, uri: &str) {
        *self.streams.lock().entry(uri.to_owned()).or_default() += 1;
    }

    /// Notes that a stream is no longer subscribed to a resource. Returns true if no other stream is.
    pub(super) fn stream_ended(&self, uri: &str) -> bool {
        let mut streams = self.streams.lock();
        let Some(count) = streams.get_mut(uri).filter(|count| **count > 1) else {
            streams.remove(uri);
            return true;
        };
        *count -= 1;
        false
    }
}

impl ConfiguredSession {
    /// Subscribes a legacy agent to changes of its modern sources' lists.
    pub(super) async fn follow_lists(&self) {
        if let Ok(tools) = self.listing(ItemKind::Tool).await {
            self.follow_lists_in(&tools);
        }
    }

    /// Subscribes a legacy agent to changes of those modern sources' lists to which it is not subscribed yet.
    pub(super) fn follow_lists_in(&self, tools: &SessionCatalog) {
        let lists = SubscriptionFilter { tools: true, prompts: true, resources: true, ..SubscriptionFilter::default() };
        let can = |discovered: &DiscoveredSource| {
            lists.lists_of(std::iter::once(discovered)) != SubscriptionFilter::default()
        };
        let subscriptions = &self.agent_side.upstream_subscriptions;
        for (upstream, _) in tools.sources().filter(|(_, discovered)| discovered.era == Era::Modern && can(discovered))
        {
            if !subscriptions.follows_lists_of(&upstream.config.name) {
                self.follow_lists_of(upstream, false);
            }
        }
    }

    /// Subscribes to the lists of a source. `again` is true if a subscription to them was interrupted.
    fn follow_lists_of(&self, upstream: &Arc<Upstream>, again: bool) {
        let tools = upstream.config.discovery == ToolListUpdates::Live;
        let lists = SubscriptionFilter { tools, prompts: true, resources: true, updates: Vec::new() };
        self.follow(Followed::Lists(upstream.config.name.clone()), upstream, lists, Vec::new(), again);
    }

    /// Subscribes to a resource of a modern source. Returns false if there are too many subscriptions.
    pub(super) fn follow_resource(&self, resource: &VisibleItem) -> bool {
        let followed = Followed::Resource(resource.item.exposed.to_string());
        self.follow(followed, &resource.upstream, SubscriptionFilter::default(), vec![resource.clone()], false)
    }

    /// Subscribes to what the agent was subscribed to under another configuration, as far as it may see it under this
    /// one: each resource passes the gate again, and none waits for another.
    pub(super) async fn follow_again(&self, followed: Vec<Followed>) {
        let again = followed.into_iter().map(async |followed| match followed {
            Followed::Lists(source) => {
                self.upstream(source.as_str()).iter().for_each(|upstream| self.follow_lists_of(upstream, true));
            }
            Followed::Resource(uri) => {
                let params = Json::of(&json!({ "uri": uri }));
                // A person who has to agree again is asked where the agent asks.
                let peer: Arc<dyn AgentPeer> = self.agent_side.sink.now().unwrap_or_else(|| Arc::new(NoAgent));
                let again = SessionRequest::new(self, Method::ResourcesSubscribe, params, peer);
                let subscribed = again.subscribe().await;
                tracing::debug!(ok = subscribed.is_ok(), "subscribed again");
            }
        });
        stream::iter(again).buffer_unordered(MAX_AT_ONCE).collect::<()>().await;
    }

    /// Subscribes to a modern source on behalf of a legacy agent. Returns false if there is no room for it.
    fn follow(
        &self,
        followed: Followed,
        upstream: &Arc<Upstream>,
        lists: SubscriptionFilter,
        watched: Vec<VisibleItem>,
        again: bool,
    ) -> bool {
        let Some(session) = self.me.upgrade() else { return true };
        let is_in_force = || self.agent_side.session().is_some_and(|whole| Arc::ptr_eq(&whole.current(), &session));
        let (upstream, configured) = (Arc::clone(upstream), Arc::clone(&session));
        let following = tokio::spawn(async move {
            let missed = if again { missed_changes(&lists, &watched) } else { Vec::new() };
            let receiver = Arc::new(ChangeReceiver::new(&configured, &upstream, None, None, missed));
            configured.feed_of_modern(&upstream, lists, &watched, receiver).await;
        });
        self.agent_side.upstream_subscriptions.add(followed, following.abort_handle(), is_in_force)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn subscriptions_that_have_ended_make_room_and_none_is_dropped_unsaid() {
        let subscriptions = UpstreamSubscriptions::default();
        let add = |number: usize, is_in_force: bool, task: &tokio::task::JoinHandle<()>| {
            subscriptions.add(Followed::Resource(number.to_string()), task.abort_handle(), || is_in_force)
        };
        let (mut ended, open) = (tokio::spawn(async {}), tokio::spawn(std::future::pending()));
        assert!((&mut ended).await.is_ok());
        assert!((0..MAX_FOLLOWS).all(|number| add(number, true, &ended)));
        assert!((0..MAX_FOLLOWS).all(|number| add(number, true, &open)), "the others had ended");
        let another = tokio::spawn(std::future::pending());
        assert!(!add(MAX_FOLLOWS, true, &another));
        assert!(another.await.is_err_and(|error| error.is_cancelled()));
        let overtaken = tokio::spawn(std::future::pending());
        assert!(add(MAX_FOLLOWS, false, &overtaken), "another configuration makes it");
        assert!(overtaken.await.is_err_and(|error| error.is_cancelled()));
        subscriptions.end_all();
    }
}
