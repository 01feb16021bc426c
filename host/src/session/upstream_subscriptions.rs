//! The subscriptions of the broker at modern sources on behalf of a legacy agent.

use crate::sync::{Mutex, MutexGuard};
use std::collections::HashMap;

use tokio::task::AbortHandle;

/// The largest number of subscriptions that one legacy session can have at modern sources: one for each resource, and
/// one for the lists of each source. Each has a stream of its own.
const MAX_FOLLOWS: usize = 64;

/// The subscriptions of the broker at modern sources on behalf of a legacy agent.
#[derive(Default)]
pub(super) struct UpstreamSubscriptions(Mutex<HashMap<String, AbortHandle>>);

impl UpstreamSubscriptions {
    pub(super) fn add(&self, key: String, following: AbortHandle) {
        let mut upstream_subscriptions = self.lock();
        if upstream_subscriptions.len() >= MAX_FOLLOWS && !upstream_subscriptions.contains_key(&key) {
            tracing::debug!("{MAX_FOLLOWS} subscriptions are open already; another is not opened");
            return following.abort();
        }
        if let Some(before) = upstream_subscriptions.insert(key, following) {
            before.abort();
        }
    }

    pub(super) fn remove(&self, key: &str) {
        if let Some(following) = self.lock().remove(key) {
            following.abort();
        }
    }

    /// Ends all subscriptions.
    pub(super) fn end(&self) {
        self.lock().drain().for_each(|(_, following)| following.abort());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, AbortHandle>> {
        self.0.lock()
    }
}
