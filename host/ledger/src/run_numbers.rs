//! The numbers of the records of each run, counted from 1, so that a receiver of the records of one run sees whether
//! one is missing.

use std::collections::HashMap;

use portcullis_core::call::SessionId;

/// The number of runs from which those that have ended are looked for.
const SWEEP_FROM: usize = 1024;

/// The number of the last durable record of each run of a chain.
#[derive(Debug, Default)]
pub(super) struct RunNumbers {
    last: HashMap<SessionId, u64>,
    /// The number of runs at which the next sweep is due.
    sweep_at: usize,
}

impl RunNumbers {
    /// Returns the number of the last durable record of a run, or 0.
    pub(super) fn last(&self, run: &SessionId) -> u64 {
        self.last.get(run).copied().unwrap_or_default()
    }

    /// Takes in numbers of records that are durable now. Forgets runs whose identifiers nothing else holds: they get no
    /// further record.
    pub(super) fn advance(&mut self, last: HashMap<SessionId, u64>) {
        self.last.extend(last);
        if self.last.len() >= self.sweep_at.max(SWEEP_FROM) {
            self.last.retain(|run, _| run.is_shared());
            self.sweep_at = 2 * self.last.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_get_no_more_records_are_forgotten_and_no_others() {
        let mut numbers = RunNumbers::default();
        let open = SessionId::new();
        numbers.advance(HashMap::from([(open.clone(), 7)]));
        for number in 0..3 * SWEEP_FROM as u64 {
            numbers.advance(HashMap::from([(SessionId::new(), number)]));
        }
        assert!(numbers.last.len() <= SWEEP_FROM, "{}", numbers.last.len());
        assert_eq!((numbers.last(&open), numbers.last(&SessionId::new())), (7, 0));
    }
}
