//! What a source has said to a client that declares the same, for a crowd of sessions that would have to connect only to hear it
//! again.
//!
//! A legacy source learns what a client can do when the connection is made, and may list other tools to a client that can do more.
//! So what it listed stands for those who declare the very same, and for nobody else.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::protocol::Json;
use crate::source::Discovery;

/// How long what a source said to one session stands for others: less than a person takes to wonder why a change is not seen, and
/// long enough that a crowd of sessions does not connect for each.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// How many sorts of clients are told apart. There are a few programs, each of which declares one thing.
const MAX_KNOWN: usize = 16;

/// What a source has said, by what was declared to it.
#[derive(Default)]
pub(super) struct Known(HashMap<Json, Entry>);

struct Entry {
    discovery: Discovery,
    at: Instant,
    /// How often the source had said by then that a list has changed.
    changes: u64,
}

impl Known {
    /// What the source says to whoever declares this, if it was said a moment ago and nothing has changed since.
    pub(super) fn get(&self, declared: &Json, changes: u64) -> Option<Discovery> {
        let entry = self.0.get(declared)?;
        (entry.changes == changes && entry.at.elapsed() < KNOWN_FOR).then(|| entry.discovery.clone())
    }

    pub(super) fn insert(&mut self, declared: Json, changes: u64, discovery: Discovery) {
        if self.0.len() >= MAX_KNOWN && !self.0.contains_key(&declared) {
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
