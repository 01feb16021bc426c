//! What the broker follows at modern sources on behalf of a legacy agent.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

/// Resources that one legacy session can follow at modern sources, each over a stream of its own.
const MAX_FOLLOWS: usize = 64;

/// What the broker follows at modern sources on behalf of a legacy agent.
#[derive(Default)]
pub(super) struct Follows(Mutex<HashMap<String, AbortHandle>>);

impl Follows {
    pub(super) fn add(&self, key: String, following: AbortHandle) {
        let mut follows = self.lock();
        if follows.len() >= MAX_FOLLOWS && !follows.contains_key(&key) {
            tracing::debug!("{MAX_FOLLOWS} resources are followed already; another is not");
            return following.abort();
        }
        if let Some(before) = follows.insert(key, following) {
            before.abort();
        }
    }

    pub(super) fn remove(&self, key: &str) {
        if let Some(following) = self.lock().remove(key) {
            following.abort();
        }
    }

    /// Ends all.
    pub(super) fn end(&self) {
        self.lock().drain().for_each(|(_, following)| following.abort());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, AbortHandle>> {
        // The map is whole at every point at which a holder could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
