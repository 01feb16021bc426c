//! The subscriptions of the broker at sources: at modern ones on behalf of a legacy agent, and of several streams of a
//! modern agent to one resource of a legacy source.

use std::collections::HashMap;

use tokio::task::AbortHandle;

use super::watched_resources::WatchedResources;
use crate::name::SourceName;
use crate::sync::Mutex;

/// The largest number of subscriptions that one legacy session can have at modern sources: one for each resource, and
/// one for the lists of each source. Each has its own stream.
const MAX_FOLLOWS: usize = 64;

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
    pub(super) fn add(&self, followed: Followed, task: AbortHandle) {
        let mut upstream_subscriptions = self.follows.lock();
        if upstream_subscriptions.len() >= MAX_FOLLOWS && !upstream_subscriptions.contains_key(&followed) {
            tracing::debug!("{MAX_FOLLOWS} subscriptions are open already; another is not opened");
            return task.abort();
        }
        if let Some(before) = upstream_subscriptions.insert(followed, task) {
            before.abort();
        }
    }

    pub(super) fn remove(&self, followed: &Followed) {
        if let Some(task) = self.follows.lock().remove(followed) {
            task.abort();
        }
    }

    /// Ends all subscriptions, and returns their subjects, so that they can be made again.
    pub(super) fn end_all(&self) -> Vec<Followed> {
        let follows: Vec<_> = self.follows.lock().drain().collect();
        let end = |(followed, task): (Followed, AbortHandle)| {
            task.abort();
            followed
        };
        let lists = follows.into_iter().map(end).filter(|followed| matches!(followed, Followed::Lists(_)));
        lists.chain(self.watched.take_all().into_iter().map(Followed::Resource)).collect()
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
