//! Aggregation of repeated events: the first event of a kind is recorded at once and the others as a count, so that a
//! flood takes few records.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem;
use std::time::Duration;

use portcullis_core::sync::Mutex;

/// The largest number of kinds of events that are distinguished between two reports. Legitimate callers and sources
/// cause a handful.
pub const MAX_KINDS: usize = 64;

/// The time for which repeats are counted before they are reported, at first and at most. The interval doubles while a
/// flood lasts, until an hour of it costs 129 records.
pub const PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

/// A counter of events by kind.
pub struct RepeatCounter<K>(Mutex<Counts<K>>);

struct Counts<K> {
    /// The number of repeats of each kind since it was recorded.
    kinds: HashMap<K, u64>,
    /// Events of kinds beyond [`MAX_KINDS`].
    others: u64,
}

/// The events that were counted and not recorded.
pub struct RepeatReport<K> {
    /// The kinds that were repeated, and how often.
    pub repeated: Vec<(K, u64)>,
    /// Events of kinds beyond [`MAX_KINDS`].
    pub others: u64,
}

impl<K: Clone + Eq + Hash> RepeatCounter<K> {
    /// Counts an event. Returns true if it is the first of its kind, which the caller then records.
    pub fn is_first(&self, kind: &K) -> bool {
        let mut counts = self.0.lock();
        if let Some(repeats) = counts.kinds.get_mut(kind) {
            *repeats += 1;
            return false;
        }
        if counts.kinds.len() >= MAX_KINDS {
            counts.others += 1;
            return false;
        }
        counts.kinds.insert(kind.clone(), 0);
        true
    }

    /// Takes the counts and resets them.
    pub fn report(&self) -> RepeatReport<K> {
        let Counts { kinds, others } = mem::take(&mut *self.0.lock());
        RepeatReport { repeated: kinds.into_iter().filter(|(_, repeats)| *repeats > 0).collect(), others }
    }
}

impl<K> RepeatReport<K> {
    /// Reports whether nothing was repeated.
    pub fn is_empty(&self) -> bool {
        self.repeated.is_empty() && self.others == 0
    }
}

/// Returns the pause that follows this one: the shortest if this one was quiet, otherwise twice as long.
pub fn next_pause(pause: Duration, quiet: bool) -> Duration {
    if quiet { PAUSE } else { (2 * pause).min(LONGEST_PAUSE) }
}

impl<K> Default for RepeatCounter<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self { kinds: HashMap::new(), others: 0 }
    }
}
