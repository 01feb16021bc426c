//! Outstanding outcomes: those that could not be written yet. The next transaction writes them first.

use super::super::LedgerError;
use super::super::queue::QUEUE;
use super::WriteUnit;

/// The outstanding outcomes, in the order in which their calls ended. While the ledger cannot be written, the gate lets
/// no call through, so these belong to calls that were in flight, or whose callers went away while their intents were
/// being written.
#[derive(Default)]
pub(super) struct OutstandingOutcomes {
    outcomes: Vec<WriteUnit>,
    /// The number of outstanding outcomes, counted from the first, that were in the transaction whose result is not
    /// known.
    attempted: usize,
}

impl OutstandingOutcomes {
    pub(super) fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// Keeps outcomes as far as there is space, and returns how many are lost. `attempted` says that they were in the
    /// last transaction.
    pub(super) fn add(&mut self, outcomes: Vec<WriteUnit>, attempted: bool) -> u64 {
        let room = QUEUE.saturating_sub(self.outcomes.len());
        let lost = outcomes.len().saturating_sub(room);
        self.outcomes.extend(outcomes.into_iter().take(room));
        if attempted {
            self.attempted = self.outcomes.len();
        }
        lost as u64
    }

    /// Takes the first outcomes, at most `most`, to be written.
    pub(super) fn take(&mut self, most: usize) -> Vec<WriteUnit> {
        self.outcomes.drain(..most.min(self.outcomes.len())).collect()
    }

    /// Keeps the outcomes of a batch that were not written. `attempted` says that this is not known yet.
    pub(super) fn put_back(
        &mut self,
        batch: Vec<WriteUnit>,
        written: &Result<Vec<Result<u64, LedgerError>>, LedgerError>,
        attempted: bool,
    ) {
        let missing = |i: usize| written.as_ref().map_or(true, |each| each.get(i).is_none_or(Result::is_err));
        let back: Vec<_> = batch.into_iter().enumerate().filter(|(i, _)| missing(*i)).map(|(_, item)| item).collect();
        self.attempted = if attempted { back.len() } else { 0 };
        self.outcomes.splice(..0, back);
    }

    /// Resolves the last transaction, now that the file was queried: its outcomes were written, or not.
    pub(super) fn resolve(&mut self, written: bool) {
        let attempted = std::mem::take(&mut self.attempted);
        if written {
            self.outcomes.drain(..attempted.min(self.outcomes.len()));
        }
    }
}
