//! The results in which fingerprints were seen: for each fingerprint the first and the last result, and between them
//! one of each further kind. Results of one kind have the same source and the same labels, so no label of any source is
//! lost, however often a text is seen before and after.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// The most fingerprints that a session keeps: about 4.3 MiB. A page of 10 KiB has about 3,500.
pub(super) const MAX_FINGERPRINTS: usize = 229_376;

/// The most results between the first and the last one that are kept of all fingerprints of a session together: 1 MiB.
pub(super) const MAX_BETWEEN: usize = 131_072;

/// The most kinds of results: a set of them is the bits of one number.
pub(super) const MAX_KINDS: usize = 128;

/// The results that have each fingerprint.
#[derive(Debug, Default)]
pub(super) struct FingerprintIndex {
    /// The kind of each result, below [`MAX_KINDS`].
    kinds: Vec<u8>,
    by_fingerprint: HashMap<u64, FingerprintResults, BuildHasherDefault<Identity>>,
    between: Vec<Between>,
}

/// The results that have one fingerprint, as indexes.
#[derive(Debug, Clone, Copy)]
struct FingerprintResults {
    first: u16,
    last: u16,
    /// The number of entries up to and with the newest one of this fingerprint in [`FingerprintIndex::between`], or 0
    /// if it has none.
    between: u32,
}

// A fingerprint takes no more memory than its hash, the first and the last result would with their padding.
const _: () = assert!(size_of::<(u64, FingerprintResults)>() == 16 && size_of::<Between>() == 8);

/// A result of a kind that neither the first nor the last result of its fingerprint has.
#[derive(Debug, Clone, Copy)]
struct Between {
    result: u16,
    /// The next entry of the same fingerprint, as in [`FingerprintResults::between`].
    next: u32,
}

impl FingerprintIndex {
    /// Adds a result. Its index is the number of those before it.
    pub(super) fn add_result(&mut self, kind: u8) {
        self.kinds.push(kind);
    }

    /// Returns the number of fingerprints.
    pub(super) fn len(&self) -> usize {
        self.by_fingerprint.len()
    }

    /// Returns the most bytes that this takes once this many more fingerprints have been noted.
    pub(super) fn bytes_with(&self, more: usize) -> usize {
        // The tables double when they are full; that of the fingerprints keeps an eighth free, and a byte for each place.
        let places = ((self.len() + more).min(MAX_FINGERPRINTS) * 8).div_ceil(7).next_power_of_two();
        let between = (self.between.len() + more).min(MAX_BETWEEN).next_power_of_two();
        places * (size_of::<(u64, FingerprintResults)>() + 1) + between * size_of::<Between>()
    }

    /// Makes room for this many more fingerprints at once: growing step by step would move all of them several times.
    pub(super) fn reserve(&mut self, more: usize) {
        self.by_fingerprint.reserve(more.min(MAX_FINGERPRINTS.saturating_sub(self.len())));
    }

    /// Notes that a result has a fingerprint. Returns false if that cannot be kept.
    pub(super) fn insert(&mut self, fingerprint: u64, result: u16) -> bool {
        let fits = self.len() < MAX_FINGERPRINTS;
        let results = match self.by_fingerprint.entry(fingerprint) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                if fits {
                    entry.insert(FingerprintResults { first: result, last: result, between: 0 });
                }
                return fits;
            }
        };
        if result == results.first || result == results.last {
            return true;
        }
        // Two results may be taken at the same time, so that this one need not be the last.
        let mut ordered = [results.first, results.last, result];
        ordered.sort_unstable();
        let [first, middle, last] = ordered;
        (results.first, results.last) = (first, last);
        let kind = kind_of(&self.kinds, middle);
        if all_results(&self.between, *results).any(|result| kind_of(&self.kinds, result) == kind) {
            return true;
        }
        let fits = self.between.len() < MAX_BETWEEN;
        if fits {
            self.between.push(Between { result: middle, next: results.between });
            results.between = u32::try_from(self.between.len()).unwrap_or_default();
        }
        fits
    }

    /// Visits the results that have a fingerprint. `visited` has the fingerprints whose results between the first and
    /// the last one were visited before: they are left out.
    pub(super) fn each(&self, fingerprint: u64, visited: &mut HashSet<u32>, mut visit: impl FnMut(u16)) {
        let Some(results) = self.by_fingerprint.get(&fingerprint) else { return };
        visit(results.first);
        visit(results.last);
        if results.between > 0 && visited.insert(results.between) {
            after(&self.between, results.between).for_each(visit);
        }
    }

    /// Returns results that may have all of these fingerprints: at least one of each kind that a result has.
    pub(super) fn with_all(&self, fingerprints: &[u64]) -> Vec<u16> {
        let bit = |result: u16| 1_u128 << kind_of(&self.kinds, result);
        let (mut from, mut to, mut kinds) = (0, u16::MAX, u128::MAX);
        let mut of_last = None;
        for fingerprint in fingerprints {
            let Some(results) = self.by_fingerprint.get(fingerprint).copied() else { return Vec::new() };
            // A result between the first and the last that have one of them may have it, too.
            (from, to) = (results.first.max(from), results.last.min(to));
            kinds &= all_results(&self.between, results).fold(0, |kinds: u128, result| kinds | bit(result));
            of_last = Some(results);
        }
        let Some(of_last) = of_last.filter(|_| from <= to) else { return Vec::new() };
        let mut found = vec![from, to];
        kinds &= !(bit(from) | bit(to));
        for result in all_results(&self.between, of_last) {
            if kinds & bit(result) != 0 {
                kinds &= !bit(result);
                found.push(result);
            }
        }
        found
    }
}

/// Returns the results that are kept of a fingerprint.
fn all_results(between: &[Between], results: FingerprintResults) -> impl Iterator<Item = u16> {
    [results.first, results.last].into_iter().chain(after(between, results.between))
}

/// Returns the results of an entry and of those that it leads to.
fn after(between: &[Between], number: u32) -> impl Iterator<Item = u16> {
    let entry = move |number: u32| between.get(usize::try_from(number.checked_sub(1)?).ok()?);
    std::iter::successors(entry(number), move |known| entry(known.next)).map(|known| known.result)
}

fn kind_of(kinds: &[u8], result: u16) -> u8 {
    kinds.get(usize::from(result)).copied().unwrap_or_default()
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
