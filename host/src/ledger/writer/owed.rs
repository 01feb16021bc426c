//! Outcomes that could not be written yet. The next transaction has them first.

use super::super::LedgerError;
use super::super::queue::QUEUE;
use super::Item;

/// Outcomes in the order in which their calls ended. While the ledger cannot be written no call is let through, so that
/// these are of calls that were under way, or whose callers went away while their intent was being written.
#[derive(Default)]
pub(super) struct Owed {
    outcomes: Vec<Item>,
    /// How many of them, from the first on, stood in the transaction of which nobody knows whether it counts.
    attempted: usize,
}

impl Owed {
    pub(super) fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// Keeps these, as far as there is room; how many are lost. `attempted` says that they stood in the last transaction.
    pub(super) fn add(&mut self, outcomes: Vec<Item>, attempted: bool) -> u64 {
        let room = QUEUE.saturating_sub(self.outcomes.len());
        let lost = outcomes.len().saturating_sub(room);
        self.outcomes.extend(outcomes.into_iter().take(room));
        if attempted {
            self.attempted = self.outcomes.len();
        }
        lost as u64
    }

    /// Takes the first ones, to be written.
    pub(super) fn take(&mut self, most: usize) -> Vec<Item> {
        self.outcomes.drain(..most.min(self.outcomes.len())).collect()
    }

    /// Keeps those of a batch that were not written. `attempted` says that nobody knows that yet.
    pub(super) fn put_back(
        &mut self,
        batch: Vec<Item>,
        written: &Result<Vec<Result<u64, LedgerError>>, LedgerError>,
        attempted: bool,
    ) {
        let missing = |i: usize| written.as_ref().map_or(true, |each| each.get(i).is_none_or(Result::is_err));
        let back: Vec<_> = batch.into_iter().enumerate().filter(|(i, _)| missing(*i)).map(|(_, item)| item).collect();
        self.attempted = if attempted { back.len() } else { 0 };
        self.outcomes.splice(..0, back);
    }

    /// The file was asked: those of the last transaction are in it, or not.
    pub(super) fn resolve(&mut self, written: bool) {
        let attempted = std::mem::take(&mut self.attempted);
        if written {
            self.outcomes.drain(..attempted.min(self.outcomes.len()));
        }
    }
}
