//! The subscriptions of the broker at modern sources on behalf of a legacy agent.

use std::collections::HashMap;

use tokio::task::AbortHandle;

use crate::name::SourceName;
use crate::sync::Mutex;

/// The largest number of subscriptions that one legacy session can have at modern sources: one for each resource, and
/// one for the lists of each source. Each has a stream of its own.
const MAX_FOLLOWS: usize = 64;

/// The subscriptions of the broker at modern sources on behalf of a legacy agent, each with the task that it is.
#[derive(Default)]
pub(super) struct UpstreamSubscriptions(Mutex<HashMap<Followed, AbortHandle>>);

/// What one subscription is to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Followed {
    /// The lists of a source.
    Lists(SourceName),
    /// A resource, by its exposed URI.
    Resource(String),
}

impl UpstreamSubscriptions {
    pub(super) fn add(&self, followed: Followed, task: AbortHandle) {
        let mut upstream_subscriptions = self.0.lock();
        if upstream_subscriptions.len() >= MAX_FOLLOWS && !upstream_subscriptions.contains_key(&followed) {
            tracing::debug!("{MAX_FOLLOWS} subscriptions are open already; another is not opened");
            return task.abort();
        }
        if let Some(before) = upstream_subscriptions.insert(followed, task) {
            before.abort();
        }
    }

    pub(super) fn remove(&self, followed: &Followed) {
        if let Some(task) = self.0.lock().remove(followed) {
            task.abort();
        }
    }

    /// Ends all subscriptions, and returns what they were to, so that they can be made again.
    pub(super) fn end_all(&self) -> Vec<Followed> {
        let all: Vec<_> = self.0.lock().drain().collect();
        let end = |(followed, task): (Followed, AbortHandle)| {
            task.abort();
            followed
        };
        all.into_iter().map(end).collect()
    }
}
