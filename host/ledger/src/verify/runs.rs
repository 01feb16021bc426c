//! The numbers of records in their runs: each run's records are numbered from 1.

use std::collections::HashMap;

use super::check::RunKey;

/// The number of runs from which a chain's are forgotten, so that a hostile one does not fill the memory.
const MAX_RUNS: usize = 1 << 20;

/// The number of the last record of each run of a chain.
#[derive(Default)]
pub(super) struct RunsOfChain {
    last: HashMap<RunKey, u64>,
    /// True if runs were forgotten.
    is_partial: bool,
}

impl RunsOfChain {
    /// Checks the number of the next record of a run. `unread` is the number of records of the chain that were removed
    /// or verified before: without any, a run that is not known yet begins with 1.
    pub(super) fn next(&mut self, run: RunKey, number: u64, unread: u64) -> Result<(), String> {
        let expected = match self.last.get(&run) {
            Some(last) => last + 1,
            None if unread == 0 && !self.is_partial => 1,
            None => number,
        };
        if number != expected {
            return Err(format!("it is record {number} of its run, and record {expected} is missing"));
        }
        if self.last.len() >= MAX_RUNS {
            self.clear();
            self.is_partial = true;
        }
        self.last.insert(run, number);
        Ok(())
    }

    /// Forgets the runs, before another chain.
    pub(super) fn clear(&mut self) {
        self.last.clear();
        self.is_partial = false;
    }
}
