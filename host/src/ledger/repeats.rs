//! Repeats: the first event of a kind is recorded at once, the others as a number, so that a flood is a few records.

use crate::sync::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::mem;
use std::time::Duration;

/// Different kinds that are told apart between two reports. Honest callers and sources cause a handful.
pub(crate) const MAX_KINDS: usize = 64;

/// How long repeats are counted before they are reported, and how long at most, when the flood does not end: then an hour of
/// it costs 129 records.
pub(crate) const PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

/// Counts events by their kind.
pub(crate) struct Repeats<K>(Mutex<Counts<K>>);

struct Counts<K> {
    /// How often each kind came again since it was recorded.
    kinds: HashMap<K, u64>,
    /// Events of kinds for which there was no room.
    others: u64,
}

/// What was only counted.
pub(crate) struct Report<K> {
    /// The kinds that came again, and how often.
    pub(crate) repeated: Vec<(K, u64)>,
    /// Events of kinds for which there was no room.
    pub(crate) others: u64,
}

impl<K: Clone + Eq + Hash> Repeats<K> {
    /// Counts an event. True if it is the first of its kind, which the caller records now.
    pub(crate) fn is_first(&self, kind: &K) -> bool {
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

    /// Takes what was only counted, and starts anew.
    pub(crate) fn report(&self) -> Report<K> {
        let Counts { kinds, others } = mem::take(&mut *self.0.lock());
        Report { repeated: kinds.into_iter().filter(|(_, repeats)| *repeats > 0).collect(), others }
    }
}

impl<K> Report<K> {
    /// Whether nothing came again.
    pub(crate) fn is_empty(&self) -> bool {
        self.repeated.is_empty() && self.others == 0
    }
}

/// The pause that follows one after which there was something to report, or not.
pub(crate) fn next_pause(pause: Duration, quiet: bool) -> Duration {
    if quiet { PAUSE } else { (2 * pause).min(LONGEST_PAUSE) }
}

impl<K> Default for Repeats<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self { kinds: HashMap::new(), others: 0 }
    }
}
