//! The recent discoveries of a source, by the capabilities that clients declared, for a crowd of sessions that would
//! otherwise connect only to get the same lists again.
//!
//! A legacy source learns a client's capabilities when the connection is made, and may list other tools to a client
//! that has more. So its lists are given only to clients that declare exactly the same.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::protocol::Json;
use crate::source::Discovery;

/// The time for which a discovery for one session is used for others: shorter than a person waits before they miss a
/// change, and long enough that not every session of a crowd connects.
const RECENT_FOR: Duration = Duration::from_secs(60);

/// The most sets of declared capabilities that are kept. There are a few agent programs, each with one set.
const MAX_RECENT: usize = 16;

/// The recent discoveries of a source, by the capabilities that were declared to it.
#[derive(Default)]
pub(super) struct RecentDiscoveries(HashMap<Json, Entry>);

struct Entry {
    discovery: Discovery,
    at: Instant,
    /// The number of list changes that the source had announced by then.
    changes: u64,
}

impl RecentDiscoveries {
    /// Returns the discovery for clients that declare this, if it is recent and no list has changed since.
    pub(super) fn get(&self, declared: &Json, changes: u64) -> Option<Discovery> {
        let entry = self.0.get(declared)?;
        (entry.changes == changes && entry.at.elapsed() < RECENT_FOR).then(|| entry.discovery.clone())
    }

    pub(super) fn insert(&mut self, declared: Json, changes: u64, discovery: Discovery) {
        if self.0.len() >= MAX_RECENT && !self.0.contains_key(&declared) {
            let oldest = self.0.iter().min_by_key(|(_, entry)| entry.at).map(|(declared, _)| declared.clone());
            if let Some(oldest) = oldest {
                self.0.remove(&oldest);
            }
        }
        self.0.insert(declared, Entry { discovery, at: Instant::now(), changes });
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
