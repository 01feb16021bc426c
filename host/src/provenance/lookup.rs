//! Looks up the arguments of a call in what its session has seen.

use std::collections::HashSet;

use super::encoded::{self, Decoder};
use super::fingerprint::{Fingerprints, Positions, is_short_word};
use super::values::{self, Part};
use super::{MAX_LOCKED, SeenResult, SessionFlow, phrase};
use crate::protocol::Json;

/// The fingerprints for which a lookup makes room at its beginning: those of short arguments.
const FEW: usize = 256;

/// The results and places at which values of arguments were found.
#[derive(Debug, Default)]
pub(super) struct FoundOrigins {
    /// The results, the latest first, each with the first place in the arguments.
    pub(super) results: Vec<(SeenResult, String)>,
    /// True if the arguments are too large to be looked up as a whole, or decode to too much.
    pub(super) cut: bool,
}

impl SessionFlow {
    /// Looks up a caller's texts: its arguments, each in one form or more.
    pub(super) fn look_up(&self, texts: &[Json]) -> FoundOrigins {
        if self.seen.lock().as_ref().is_none_or(|seen| seen.results.is_empty()) {
            return FoundOrigins::default();
        }
        let (wanted, found, known) = (Vec::with_capacity(FEW), Vec::new(), Vec::new());
        let mut lookup = Lookup { session: self, wanted, found, known, visited: HashSet::new() };
        let mut decoder = Decoder::default();
        let mut visit = |part: Part, pointer: &str, text: &str| {
            if is_short_word(text) {
                return;
            }
            let positions = if part == Part::Edges { Positions::AcrossJoints } else { Positions::Every };
            let mut fingerprints =
                Fingerprints::new(self.key(), positions, |fingerprint| lookup.want(fingerprint, pointer));
            let mut add = |reading: &str| fingerprints.add(reading);
            match part {
                Part::Value | Part::Name => decoder.each_reading(text, &mut add),
                Part::All => decoder.each_decoded(text, &mut add),
                Part::Edges => encoded::each_direction(text, &mut add),
            }
            lookup.find(pointer);
            // The names of members are the tool's words, and the values taken together are not a phrase.
            if part == Part::Value {
                lookup.find_phrase(&phrase::pairs(self.key(), text), pointer);
            }
        };
        let mut too_large = false;
        for text in texts {
            too_large |= values::each_in_arguments(text, &mut visit);
        }
        let mut results = lookup.found;
        results.sort_by_key(|(result, _)| std::cmp::Reverse(result.index));
        FoundOrigins { results, cut: too_large || decoder.is_cut() }
    }
}

/// One lookup, and its findings.
struct Lookup<'a> {
    session: &'a SessionFlow,
    /// The fingerprints that are looked up next.
    wanted: Vec<u64>,
    found: Vec<(SeenResult, String)>,
    /// For the index of each result whether it was found. A text may be in the arguments a million times, and in all
    /// results.
    known: Vec<bool>,
    /// The fingerprints whose results between the first and the last one were visited, as `FingerprintIndex::each`
    /// keeps them.
    visited: HashSet<u32>,
}

impl Lookup<'_> {
    /// Looks up a fingerprint of the text at this place, now or with the next ones.
    fn want(&mut self, fingerprint: u64, pointer: &str) {
        self.wanted.push(fingerprint);
        if self.wanted.len() == MAX_LOCKED {
            self.find(pointer);
        }
    }

    /// Adds the results that have one of the wanted fingerprints, each with the first place in the arguments.
    fn find(&mut self, pointer: &str) {
        if self.wanted.is_empty() {
            return;
        }
        let seen = self.session.seen.lock();
        for fingerprint in self.wanted.drain(..) {
            let Some(seen) = &*seen else { continue };
            seen.fingerprints.each(fingerprint, &mut self.visited, |index| {
                add(&seen.results, index, pointer, &mut self.known, &mut self.found);
            });
        }
    }

    /// Adds the results that may have all of these pairs of words.
    fn find_phrase(&mut self, pairs: &[u64], pointer: &str) {
        if pairs.is_empty() {
            return;
        }
        let seen = self.session.seen.lock();
        let Some(seen) = &*seen else { return };
        for index in seen.fingerprints.with_all(pairs) {
            add(&seen.results, index, pointer, &mut self.known, &mut self.found);
        }
    }
}

/// Adds a result, unless it was found before.
fn add(
    results: &[SeenResult],
    index: u16,
    pointer: &str,
    known: &mut Vec<bool>,
    found: &mut Vec<(SeenResult, String)>,
) {
    let index = usize::from(index);
    if known.len() <= index {
        known.resize(results.len().max(index + 1), false);
    }
    if let Some(is_known) = known.get_mut(index)
        && !std::mem::replace(is_known, true)
        && let Some(result) = results.get(index)
    {
        found.push((result.clone(), pointer.to_owned()));
    }
}
