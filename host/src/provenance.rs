//! Information flow within a session: which results it has seen, under which labels, and which of them the arguments
//! of a later call came from. Nothing is kept unless a plugin of the gate asks for it.
//!
//! A result is kept as keyed fingerprints of its values, never as text. The arguments of a call are looked up in them
//! unchanged, reversed, and decoded. Where a bound is reached, nothing is forgotten in silence: the session counts as
//! not traced from then on, and plugins must treat its calls as coming from everything that it has seen.

mod encoded;
mod fingerprint;
mod fingerprint_index;
mod flow_key;
mod letters;
mod lookup;
mod phrase;
mod traced_call;
mod values;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::flow::{INSTRUCTIONS, PRIVATE, UNTRUSTED};

use crate::protocol::Json;
use crate::shared_limit::{LimitShare, PrincipalRoom};
use crate::sync::Mutex;
use fingerprint::{Fingerprints, Positions};
use fingerprint_index::{FingerprintIndex, MAX_KINDS};
use flow_key::FlowKey;
pub use traced_call::{SourceFlow, TracedCall};

/// The most results with labels that a session keeps. Their number is kept in 16 bits with each fingerprint.
const MAX_RESULTS: usize = 4_096;

/// The largest result, in bytes, whose values are kept.
const MAX_RESULT_BYTES: usize = 1024 * 1024;

/// The most bytes that are kept of all sessions. By the rule of [`SharedLimit`](crate::shared_limit::SharedLimit) a
/// single principal gets half of that, which is room for 35 sessions that keep as much as a session may. A session
/// without room keeps nothing more, and counts as not traced.
pub(crate) const MAX_FLOW_BYTES: u64 = 512 * 1024 * 1024;

/// The bytes that one result takes in addition to its fingerprints: its names, its labels and its place in the lists.
const RESULT_BYTES: usize = 512;

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
    cleared: AtomicU64,
    /// The room for what is kept. Without it, only the bounds of a session count.
    room: Option<PrincipalRoom>,
}

impl SessionFlow {
    /// Makes a session that takes its memory from this room.
    pub(crate) fn within(room: PrincipalRoom) -> Self {
        Self { room: Some(room), ..Self::default() }
    }

    /// Notes that the session makes a call for which nothing is kept.
    pub(crate) fn miss(&self) {
        if !self.missed.load(Ordering::Relaxed) {
            self.missed.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that a person refused a call: the agent does unwanted things, and its next calls may be part of that,
    /// whether or not they contain traceable text. The session is not traced any more.
    pub(crate) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// Gives the session a label that no result of it has.
    pub(crate) fn label(&self, label: &str) {
        insert(&mut self.seen.lock().get_or_insert_with(|| self.nothing_seen()).labels, label);
    }

    /// Forgets what the session has seen: it counts as one that has seen nothing. Returns the labels that it had.
    pub(crate) fn clear(&self) -> Vec<String> {
        let labels = self.snapshot().labels;
        let mut seen = self.seen.lock();
        self.missed.store(false, Ordering::Relaxed);
        self.refused.store(false, Ordering::Relaxed);
        self.cleared.fetch_add(1, Ordering::Relaxed);
        *seen = None;
        labels
    }

    /// Returns how often the session was cleared.
    pub(crate) fn times_cleared(&self) -> u64 {
        self.cleared.load(Ordering::Relaxed)
    }

    /// Forgets the values of what the session has seen, but not that it has seen it: what has labels cannot be traced any
    /// more.
    pub(crate) fn forget_values(&self) {
        let mut seen = self.seen.lock();
        *seen = seen.take().filter(|seen| !seen.labels.is_empty()).map(|before| {
            let mut after = self.nothing_seen();
            (after.labels, after.count, after.full) = (before.labels, before.count, true);
            after
        });
    }

    /// Reports whether the session has seen something with a label, or may have, or a person refused a call of it.
    pub(crate) fn has_seen(&self) -> bool {
        let has_labels = self.seen.lock().as_ref().is_some_and(|seen| !seen.labels.is_empty());
        has_labels || self.missed.load(Ordering::Relaxed) || self.refused.load(Ordering::Relaxed)
    }

    /// Returns the labels of the session, and whether it is traced.
    #[cfg(test)]
    pub(crate) fn known(&self) -> (Vec<String>, bool) {
        let FlowSnapshot { labels, traced, .. } = self.snapshot();
        (labels, traced)
    }

    /// Returns the facts known about the session at this moment.
    fn snapshot(&self) -> FlowSnapshot {
        let missed = self.missed.load(Ordering::Relaxed);
        let mut snapshot = match &*self.seen.lock() {
            Some(seen) => FlowSnapshot { labels: seen.labels.clone(), traced: !seen.full, results: seen.count },
            None => FlowSnapshot { labels: Vec::new(), traced: true, results: 0 },
        };
        snapshot.traced &= !self.refused.load(Ordering::Relaxed);
        if missed {
            snapshot.traced = false;
            for label in [PRIVATE, UNTRUSTED, INSTRUCTIONS] {
                insert(&mut snapshot.labels, label);
            }
        }
        snapshot
    }

    /// Keeps the part of a message that the agent is given.
    fn keep(&self, result: SeenResult, text: &Json, message: SeenMessage) {
        let call = Arc::clone(&result.call);
        let too_large = text.as_bytes().len() > MAX_RESULT_BYTES;
        let index = {
            let mut seen = self.seen.lock();
            let seen = seen.get_or_insert_with(|| self.nothing_seen());
            match seen.keep(result, message) {
                Some(_) if too_large => {
                    seen.full = true;
                    None
                }
                index => index,
            }
        };
        let Some(index) = index else { return };
        // Prose has a fingerprint for every third or fourth byte.
        let mut taken = Vec::with_capacity(MAX_LOCKED.min(text.as_bytes().len() / 3));
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
        if let Some(seen) = seen.as_mut().filter(same)
            && seen.take_room(fingerprints.len())
        {
            seen.fingerprints.reserve(fingerprints.len());
            for fingerprint in fingerprints.iter() {
                seen.full |= !seen.fingerprints.insert(*fingerprint, index);
            }
        }
        fingerprints.clear();
    }

    fn nothing_seen(&self) -> Box<SeenResults> {
        Box::new(SeenResults { share: self.room.as_ref().map(PrincipalRoom::empty_share), ..SeenResults::default() })
    }

    fn key(&self) -> &FlowKey {
        self.key.get_or_init(FlowKey::random)
    }
}

/// The labels of a session at one moment, whether it is traced, and how much it has seen.
#[derive(Debug, Clone)]
struct FlowSnapshot {
    labels: Vec<String>,
    traced: bool,
    /// The number of results that the session has seen.
    results: u64,
}

/// A message that an agent is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SeenMessage {
    /// The result of a call, which counts as one.
    Result,
    /// Another message, such as progress or a question.
    Other,
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

/// The results that were kept, and the fingerprints of their values.
#[derive(Debug, Default)]
struct SeenResults {
    results: Vec<SeenResult>,
    /// The labels of all results and those of the session itself, sorted.
    labels: Vec<String>,
    /// The sources and labels that results have, each once: the kinds of results.
    kinds: Vec<(Arc<str>, Arc<[String]>)>,
    fingerprints: FingerprintIndex,
    count: u64,
    /// True once something was not kept.
    full: bool,
    /// The memory of what is kept, if it is limited.
    share: Option<LimitShare>,
}

impl SeenResults {
    /// Keeps a result without its fingerprints. Returns its index, or `None` if it has no labels or there is no room.
    fn keep(&mut self, result: SeenResult, message: SeenMessage) -> Option<u16> {
        self.count += u64::from(message == SeenMessage::Result);
        if result.labels.is_empty() {
            return None;
        }
        for label in result.labels.iter() {
            insert(&mut self.labels, label);
        }
        let same = |(source, labels): &(Arc<str>, Arc<[String]>)| *source == result.source && *labels == result.labels;
        let place = self.kinds.iter().position(same).unwrap_or(self.kinds.len());
        let index = u16::try_from(self.results.len()).ok().filter(|_| self.results.len() < MAX_RESULTS);
        let kind = u8::try_from(place).ok().filter(|_| place < MAX_KINDS);
        let (Some(index), Some(kind), true) = (index, kind, self.take_room(0)) else {
            self.full = true;
            return None;
        };
        if place == self.kinds.len() {
            self.kinds.push((Arc::clone(&result.source), Arc::clone(&result.labels)));
        }
        self.fingerprints.add_result(kind);
        self.results.push(SeenResult { number: self.count.max(1), index, ..result });
        Some(index)
    }

    /// Takes the memory for one more result and this many fingerprints. Without room something is not kept.
    fn take_room(&mut self, fingerprints: usize) -> bool {
        let Some(share) = &mut self.share else { return true };
        let bytes = (self.results.len() + 1) * RESULT_BYTES + self.fingerprints.bytes_with(fingerprints);
        let fits = share.grow_to(bytes as u64);
        self.full |= !fits;
        fits
    }
}

/// Inserts a label into a sorted list, once.
fn insert(labels: &mut Vec<String>, label: &str) {
    if let Err(place) = labels.binary_search_by(|known| known.as_str().cmp(label)) {
        labels.insert(place, label.to_owned());
    }
}

#[cfg(test)]
mod tests;
