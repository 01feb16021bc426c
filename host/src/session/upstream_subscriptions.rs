//! The subscriptions of the broker at modern sources on behalf of a legacy agent.

use std::collections::HashMap;

use tokio::task::AbortHandle;

use crate::name::SourceName;
use crate::sync::{Mutex, MutexGuard};

/// The largest number of subscriptions that one legacy session can have at modern sources: one for each resource, and
/// one for the lists of each source. Each has a stream of its own.
const MAX_FOLLOWS: usize = 64;

/// The subscriptions of the broker at modern sources on behalf of a legacy agent.
#[derive(Default)]
pub(super) struct UpstreamSubscriptions(Mutex<HashMap<String, Followed>>);

/// One subscription.
struct Followed {
    task: AbortHandle,
    source: SourceName,
    /// The resource, at the source. `None` for the source's lists.
    uri: Option<String>,
}

impl UpstreamSubscriptions {
    pub(super) fn add(&self, key: String, source: &SourceName, uri: Option<String>, task: AbortHandle) {
        let mut upstream_subscriptions = self.lock();
        if upstream_subscriptions.len() >= MAX_FOLLOWS && !upstream_subscriptions.contains_key(&key) {
            tracing::debug!("{MAX_FOLLOWS} subscriptions are open already; another is not opened");
            return task.abort();
        }
        if let Some(before) = upstream_subscriptions.insert(key, Followed { task, source: source.clone(), uri }) {
            before.task.abort();
        }
    }

    pub(super) fn remove(&self, key: &str) {
        if let Some(following) = self.lock().remove(key) {
            following.task.abort();
        }
    }

    /// Ends all subscriptions.
    pub(super) fn end(&self) {
        self.restart();
    }

    /// Ends all subscriptions, and returns each as it must be made again: with its key, its source and its resource.
    pub(super) fn restart(&self) -> Vec<(String, SourceName, Option<String>)> {
        let all: Vec<_> = self.lock().drain().collect();
        let end = |(key, Followed { task, source, uri })| {
            task.abort();
            (key, source, uri)
        };
        all.into_iter().map(end).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Followed>> {
        self.0.lock()
    }
}
