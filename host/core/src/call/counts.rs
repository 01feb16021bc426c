//! The calls that the agent of a session has made.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use crate::sync::Mutex;

/// The most names that are counted separately. An agent may choose the names of resources, of 8 KiB each, so that not
/// the names are kept but their hashes.
const MAX_NAMES: usize = 10_000;

/// The numbers of calls that an agent made in its session before one call, and that reached the gate, whatever their
/// outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EarlierCalls {
    /// All calls.
    pub of_session: u32,
    /// The calls of the same item, by its exposed name. After 10,000 names, further items count as one.
    pub of_item: u32,
}

/// The calls of a session, counted.
#[derive(Debug, Default)]
pub struct SessionCalls(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    all: u32,
    /// The calls by the hash of a name. Its key is random, so that nobody can find two names that have the same.
    by_name: HashMap<u64, u32>,
    names: RandomState,
    /// The calls of items that are not counted separately.
    others: u32,
}

impl EarlierCalls {
    /// Returns these numbers, as a test states them.
    #[must_use]
    pub fn stated(of_session: u32, of_item: u32) -> Self {
        Self { of_session, of_item }
    }
}

impl SessionCalls {
    /// Counts a call of the item with this exposed name, and returns the numbers of the others until now.
    #[must_use]
    pub fn count(&self, exposed: &Arc<str>) -> EarlierCalls {
        let mut counts = self.0.lock();
        let (all, of_item) = counts.of(exposed);
        let earlier = EarlierCalls { of_session: *all, of_item: *of_item };
        (*all, *of_item) = (all.saturating_add(1), of_item.saturating_add(1));
        earlier
    }

    /// Returns the numbers of the other calls for one that was counted before and comes again.
    #[must_use]
    pub fn besides(&self, exposed: &Arc<str>) -> EarlierCalls {
        let mut counts = self.0.lock();
        let (all, of_item) = counts.of(exposed);
        EarlierCalls { of_session: all.saturating_sub(1), of_item: of_item.saturating_sub(1) }
    }
}

impl Counts {
    /// Returns the number of all calls, and the one to which calls of this item count.
    fn of(&mut self, exposed: &Arc<str>) -> (&mut u32, &mut u32) {
        let Self { all, by_name, names, others } = self;
        let name = names.hash_one(exposed);
        let of_item = match by_name.len() < MAX_NAMES {
            true => by_name.entry(name).or_default(),
            false => by_name.get_mut(&name).unwrap_or(others),
        };
        (all, of_item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_name_and_one_that_comes_again_counts_once() {
        let counts = SessionCalls::default();
        let (send, read) = (Arc::from("mail__send"), Arc::from("mail__read"));
        assert_eq!(counts.count(&send), EarlierCalls::stated(0, 0));
        assert_eq!(counts.count(&read), EarlierCalls::stated(1, 0));
        assert_eq!(counts.count(&send), EarlierCalls::stated(2, 1));
        assert_eq!(counts.besides(&send), EarlierCalls::stated(2, 1));
    }

    #[test]
    fn a_name_that_was_counted_is_not_kept() {
        let (counts, name) = (SessionCalls::default(), Arc::from("x".repeat(8 * 1024)));
        assert_eq!(counts.count(&name).of_item, 0);
        assert_eq!(Arc::strong_count(&name), 1);
        assert_eq!(counts.count(&Arc::from(&*name)).of_item, 1, "the same text counts as the same name");
        let other = SessionCalls::default();
        assert_eq!(other.count(&name).of_item, 0);
        let first = |counts: &SessionCalls| counts.0.lock().by_name.keys().copied().collect::<Vec<_>>();
        assert_ne!(first(&counts), first(&other), "a hash says nothing about that of another session");
    }

    #[test]
    fn names_without_end_take_no_memory_and_are_not_counted_too_low() {
        let counts = SessionCalls::default();
        for number in 0..u32::try_from(MAX_NAMES).unwrap_or_default() {
            assert_eq!(counts.count(&Arc::from(number.to_string())), EarlierCalls::stated(number, 0));
        }
        assert_eq!(counts.count(&Arc::from("x")).of_item, 0);
        assert_eq!(counts.count(&Arc::from("y")).of_item, 1);
        assert_eq!(counts.count(&Arc::from("7")).of_item, 1, "a name that is known goes on by itself");
    }
}
