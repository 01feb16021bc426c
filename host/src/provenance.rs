//! Information flow within a session: which results it has seen, under which labels, and which of them the arguments
//! of a later call came from. Nothing is kept unless a plugin of the gate asks for it.
//!
//! A result is kept as keyed fingerprints of its values, never as text. The arguments of a call are looked up in them
//! as they are, reversed, and decoded. Where a bound is reached, nothing is forgotten in silence: the session counts as
//! not traced from then on, and plugins must treat its calls as coming from everything that it has seen.

mod encoded;
mod fingerprint;
mod phrase;
mod traced_call;
mod values;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::flow::{PRIVATE, UNTRUSTED};

use crate::protocol::Json;
use crate::sync::Mutex;
use fingerprint::{Fingerprints, FlowKey, Positions};
pub use traced_call::{SourceFlow, TracedCall};
use values::Part;

/// The most fingerprints that a session keeps: about 4.3 MiB. A page of 10 KiB has about 3,500.
const MAX_FINGERPRINTS: usize = 229_376;

/// The most results with labels that a session keeps. Their number is kept in 16 bits with each fingerprint.
const MAX_RESULTS: usize = 4_096;

/// The largest result, in bytes, whose values are kept.
const MAX_RESULT_BYTES: usize = 1024 * 1024;

/// The most fingerprints that are taken into a session, or looked up in it, while its lock is held: other calls of the
/// session wait for that, and for nothing else.
const MAX_LOCKED: usize = 4_096;

/// The results that one legacy session has seen, or all modern sessions of one principal and profile.
#[derive(Debug, Default)]
pub struct SessionFlow {
    key: OnceLock<FlowKey>,
    seen: Mutex<Option<Box<SeenResults>>>,
    /// True if the session saw a result that nothing was kept of, because no plugin asked for it at the time.
    missed: AtomicBool,
    /// True if a person refused a call of the session.
    refused: AtomicBool,
}

impl SessionFlow {
    /// Notes that the session makes a call of which nothing is kept.
    pub(crate) fn miss(&self) {
        if !self.missed.load(Ordering::Relaxed) {
            self.missed.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that a person refused a call: the agent does what nobody wants, and what it does next may be part of that,
    /// whether or not text of it can be found. The session is not traced any more.
    pub(crate) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// Forgets what the session has seen: it counts as one that has seen nothing. Returns the labels that it had.
    pub(crate) fn clear(&self) -> Vec<String> {
        let labels = self.snapshot().labels;
        let mut seen = self.seen.lock();
        self.missed.store(false, Ordering::Relaxed);
        self.refused.store(false, Ordering::Relaxed);
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
        snapshot.traced &= !self.refused.load(Ordering::Relaxed);
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
        let call = Arc::clone(&result.call);
        let too_large = text.as_bytes().len() > MAX_RESULT_BYTES;
        let Some(index) = self.seen.lock().get_or_insert_default().keep(result, counts, too_large) else { return };
        let mut taken = Vec::with_capacity(MAX_LOCKED);
        let mut fingerprints = Fingerprints::new(self.key(), Positions::Every8th, |fingerprint| {
            taken.push(fingerprint);
            if taken.len() == MAX_LOCKED {
                self.take(index, &call, &mut taken);
            }
        });
        values::each(text.as_str(), &mut |value| fingerprints.add(value));
        self.take(index, &call, &mut taken);
    }

    /// Takes fingerprints of a result, unless the session was cleared meanwhile.
    fn take(&self, index: u16, call: &Arc<str>, fingerprints: &mut Vec<u64>) {
        let mut seen = self.seen.lock();
        let same = |seen: &&mut Box<SeenResults>| {
            seen.results.get(usize::from(index)).is_some_and(|result| Arc::ptr_eq(&result.call, call))
        };
        if let Some(seen) = seen.as_mut().filter(same) {
            fingerprints.iter().for_each(|fingerprint| seen.insert(*fingerprint, index));
        }
        fingerprints.clear();
    }

    /// Looks up arguments.
    fn look_up(&self, arguments: &Json) -> Found {
        if self.seen.lock().as_ref().is_none_or(|seen| seen.results.is_empty()) {
            return Found::default();
        }
        let mut found = Vec::new();
        let mut wanted = Vec::new();
        let cut = values::each_in_arguments(arguments, &mut |part, pointer, text| {
            let mut fingerprints = Fingerprints::new(self.key(), Positions::Every, |fingerprint| {
                wanted.push(fingerprint);
                if wanted.len() == MAX_LOCKED {
                    self.find(&mut wanted, pointer, &mut found);
                }
            });
            let mut add = |reading: &str| fingerprints.add(reading);
            match part {
                Part::Value | Part::Name => encoded::each_reading(text, &mut add),
                Part::All => encoded::each_decoded(text, &mut add),
                Part::Edges => encoded::each_direction(text, &mut add),
            }
            self.find(&mut wanted, pointer, &mut found);
            // The names of members are the tool's words, and all values as one are no phrase.
            if part == Part::Value {
                self.find_phrase(&phrase::pairs(self.key(), text), pointer, &mut found);
            }
        });
        found.sort_by_key(|(result, _): &(SeenResult, String)| std::cmp::Reverse(result.index));
        Found { results: found, cut }
    }

    /// Adds the results that have one of these fingerprints, each with the first place in the arguments.
    fn find(&self, wanted: &mut Vec<u64>, pointer: &str, found: &mut Vec<(SeenResult, String)>) {
        let seen = self.seen.lock();
        for fingerprint in wanted.drain(..) {
            let Some(seen) = &*seen else { continue };
            if let Some(&(first, last)) = seen.places.get(&fingerprint) {
                seen.add([first, last], pointer, found);
            }
        }
    }

    /// Adds the results that may have all of these pairs of words.
    fn find_phrase(&self, pairs: &[u64], pointer: &str, found: &mut Vec<(SeenResult, String)>) {
        let seen = self.seen.lock();
        let Some(seen) = seen.as_ref().filter(|_| !pairs.is_empty()) else { return };
        // A result between the first and the last that have a pair may have it, too.
        let both = |range: Option<(u16, u16)>, pair| {
            let (first, last) = *seen.places.get(pair)?;
            range.map(|(from, to)| (from.max(first), to.min(last)))
        };
        let range = pairs.iter().fold(Some((0, u16::MAX)), both);
        if let Some((from, to)) = range.filter(|(from, to)| from <= to) {
            seen.add([from, to], pointer, found);
        }
    }

    fn key(&self) -> &FlowKey {
        self.key.get_or_init(FlowKey::random)
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
    /// The place of the result among those with labels.
    index: u16,
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
#[derive(Debug, Default)]
struct SeenResults {
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
    /// Keeps a result. Returns its index if its fingerprints are to be taken.
    fn keep(&mut self, result: SeenResult, counts: bool, too_large: bool) -> Option<u16> {
        self.count += u64::from(counts);
        if result.labels.is_empty() {
            return None;
        }
        for label in result.labels.iter() {
            insert(&mut self.labels, label);
        }
        let Some(index) = u16::try_from(self.results.len()).ok().filter(|_| self.results.len() < MAX_RESULTS) else {
            self.full = true;
            return None;
        };
        self.results.push(SeenResult { number: self.count.max(1), index, ..result });
        self.full |= too_large;
        (!too_large).then_some(index)
    }

    /// Adds results that were not found before.
    fn add(&self, indexes: [u16; 2], pointer: &str, found: &mut Vec<(SeenResult, String)>) {
        for index in indexes {
            let new = found.iter().all(|(known, _)| known.index != index);
            if let Some(result) = self.results.get(usize::from(index)).filter(|_| new) {
                found.push((result.clone(), pointer.to_owned()));
            }
        }
    }

    fn insert(&mut self, fingerprint: u64, index: u16) {
        if let Some((first, last)) = self.places.get_mut(&fingerprint) {
            // Two results may be taken at the same time.
            (*first, *last) = ((*first).min(index), (*last).max(index));
        } else if self.places.len() < MAX_FINGERPRINTS {
            self.places.insert(fingerprint, (index, index));
        } else {
            self.full = true;
        }
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
