//! Information flow within a session: which results it has seen, under which labels, and which of them the arguments
//! of a later call came from. Nothing is kept unless a plugin of the gate asks for it.
//!
//! A result is kept as keyed fingerprints of its values, never as text. The arguments of a call are looked up in them
//! as they are, reversed, and decoded. Where a bound is reached, nothing is forgotten in silence: the session counts as
//! not traced from then on, and plugins must treat its calls as coming from everything that it has seen.

mod encoded;
mod fingerprint;
mod traced_call;
mod values;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::flow::{PRIVATE, UNTRUSTED};

use crate::protocol::Json;
use crate::sync::Mutex;
use fingerprint::{Fingerprints, FlowKey, Positions};
pub(crate) use traced_call::{SourceFlow, TracedCall};

/// The most fingerprints that a session keeps: about 2.2 MiB. A page of 10 KiB has about 2,000.
const MAX_FINGERPRINTS: usize = 114_688;

/// The most results with labels that a session keeps. Their number is kept in 16 bits with each fingerprint.
const MAX_RESULTS: usize = 4_096;

/// The largest result, in bytes, whose values are kept.
const MAX_RESULT_BYTES: usize = 1024 * 1024;

/// The results that one legacy session has seen, or all modern sessions of one principal and profile.
#[derive(Debug, Default)]
pub(crate) struct SessionFlow {
    seen: Mutex<Option<Box<SeenResults>>>,
    /// True if the session saw a result that nothing was kept of, because no plugin asked for it at the time.
    missed: AtomicBool,
}

impl SessionFlow {
    /// Notes that the session makes a call of which nothing is kept.
    pub(crate) fn miss(&self) {
        if !self.missed.load(Ordering::Relaxed) {
            self.missed.store(true, Ordering::Relaxed);
        }
    }

    /// Forgets what the session has seen: it counts as one that has seen nothing. Returns the labels that it had.
    pub(crate) fn clear(&self) -> Vec<String> {
        let labels = self.snapshot().labels;
        let mut seen = self.seen.lock();
        self.missed.store(false, Ordering::Relaxed);
        *seen = None;
        labels
    }

    /// Returns what is known of the session at this moment.
    fn snapshot(&self) -> FlowSnapshot {
        let missed = self.missed.load(Ordering::Relaxed);
        let mut snapshot = match &*self.seen.lock() {
            Some(seen) => FlowSnapshot { labels: seen.labels.clone(), traced: !seen.full, results: seen.count },
            None => FlowSnapshot { labels: Vec::new(), traced: true, results: 0 },
        };
        if missed {
            snapshot.traced = false;
            for label in [PRIVATE, UNTRUSTED] {
                insert(&mut snapshot.labels, label);
            }
        }
        snapshot
    }

    /// Keeps what the agent is given of a result. `counts` is false for a message beside it, such as progress.
    fn keep(&self, result: SeenResult, text: &Json, counts: bool) {
        let mut seen = self.seen.lock();
        seen.get_or_insert_with(|| Box::new(SeenResults::new())).keep(result, text, counts);
    }

    /// Looks up arguments.
    fn look_up(&self, arguments: &Json) -> Found {
        match &*self.seen.lock() {
            Some(seen) if !seen.results.is_empty() => seen.look_up(arguments),
            _ => Found::default(),
        }
    }
}

/// The labels of a session at one moment, whether it is traced, and how much it has seen.
struct FlowSnapshot {
    labels: Vec<String>,
    traced: bool,
    /// The number of results that the session has seen.
    results: u64,
}

/// A result with labels that a session has seen.
#[derive(Debug, Clone)]
struct SeenResult {
    source: Arc<str>,
    exposed: Arc<str>,
    call: Arc<str>,
    labels: Arc<[String]>,
    /// The number of the result in the session, from one on.
    number: u64,
}

/// The results and places at which values of arguments were found.
#[derive(Debug, Default)]
struct Found {
    /// The results, the latest first, each with the first place in the arguments.
    results: Vec<(SeenResult, String)>,
    /// True if the arguments are too large to be looked up as a whole.
    cut: bool,
}

/// The results that were kept, and the fingerprints of their values.
#[derive(Debug)]
struct SeenResults {
    key: FlowKey,
    results: Vec<SeenResult>,
    /// The labels of all results, sorted.
    labels: Vec<String>,
    /// For each fingerprint the first and the last result that has it, as indexes.
    places: HashMap<u64, (u16, u16), BuildHasherDefault<Identity>>,
    count: u64,
    /// True once something was not kept.
    full: bool,
}

impl SeenResults {
    fn new() -> Self {
        Self {
            key: FlowKey::random(),
            results: Vec::new(),
            labels: Vec::new(),
            places: HashMap::default(),
            count: 0,
            full: false,
        }
    }

    fn keep(&mut self, result: SeenResult, text: &Json, counts: bool) {
        self.count += u64::from(counts);
        if result.labels.is_empty() {
            return;
        }
        for label in result.labels.iter() {
            insert(&mut self.labels, label);
        }
        let Some(index) = u16::try_from(self.results.len()).ok().filter(|_| self.results.len() < MAX_RESULTS) else {
            self.full = true;
            return;
        };
        self.results.push(SeenResult { number: self.count.max(1), ..result });
        if text.as_bytes().len() > MAX_RESULT_BYTES {
            self.full = true;
            return;
        }
        let (places, full) = (&mut self.places, &mut self.full);
        let mut fingerprints = Fingerprints::new(&self.key, Positions::Every8th, |fingerprint| {
            if let Some((_, last)) = places.get_mut(&fingerprint) {
                *last = index;
            } else if places.len() < MAX_FINGERPRINTS {
                places.insert(fingerprint, (index, index));
            } else {
                *full = true;
            }
        });
        values::each(text.as_str(), &mut |value| fingerprints.add(value));
    }

    fn look_up(&self, arguments: &Json) -> Found {
        let mut found: Vec<(u16, String)> = Vec::new();
        let cut = values::each_in_arguments(arguments, &mut |pointer, text| {
            let mut fingerprints = Fingerprints::new(&self.key, Positions::Every, |fingerprint| {
                let Some(&(first, last)) = self.places.get(&fingerprint) else { return };
                for index in [first, last] {
                    if found.iter().all(|(known, _)| *known != index) {
                        found.push((index, pointer.to_owned()));
                    }
                }
            });
            encoded::each_reading(text, &mut |reading| fingerprints.add(reading));
        });
        found.sort_by_key(|(index, _)| std::cmp::Reverse(*index));
        let result = |(index, pointer)| Some((self.results.get(usize::from(index))?.clone(), pointer));
        Found { results: found.into_iter().filter_map(result).collect(), cut }
    }
}

/// Inserts a label into a sorted list, once.
fn insert(labels: &mut Vec<String>, label: &str) {
    if let Err(place) = labels.binary_search_by(|known| known.as_str().cmp(label)) {
        labels.insert(place, label.to_owned());
    }
}

/// A hasher of values that are hashes already.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

#[cfg(test)]
mod tests;
