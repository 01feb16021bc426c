//! The turns of a source's requests to the agent: how many are put to it at once, and how fast one after the other. Each
//! is a call of its own, with its records, so that a source which asks without end would fill the disk of the ledger.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::sync::Mutex;

/// The largest number of requests of the source that are put to the agent at once. Further ones wait for their turn.
pub(super) const MAX_ASKED_AT_ONCE: usize = 16;

/// The most requests that a source can save up, and has when it connects.
const MOST_SAVED: f64 = 256.0;

/// The requests that each call of the agent brings a source: it may ask several times for every call.
const FOR_A_CALL: f64 = 16.0;

/// The requests that a second brings a source, whether it is called or not.
const FOR_A_SECOND: f64 = 10.0;

/// The turns of the requests of one connection.
pub(super) struct RequestTurns {
    pub(super) at_once: Semaphore,
    saved: Mutex<SavedTurns>,
}

/// The number of turns that are saved up at a moment. Below zero, that many requests wait for the time that brings them.
struct SavedTurns {
    turns: f64,
    at: Instant,
}

impl RequestTurns {
    pub(super) fn new() -> Self {
        let saved = SavedTurns { turns: MOST_SAVED, at: Instant::now() };
        Self { at_once: Semaphore::new(MAX_ASKED_AT_ONCE), saved: Mutex::new(saved) }
    }

    /// Counts a call of the agent.
    pub(super) fn add_call(&self) {
        let mut saved = self.saved.lock();
        saved.turns = (saved.turns + FOR_A_CALL).min(MOST_SAVED);
    }

    /// Waits for a turn, which lasts until the returned permit is dropped.
    pub(super) async fn next(&self) -> Option<SemaphorePermit<'_>> {
        let turn = self.at_once.acquire().await.ok();
        let pause = self.saved.lock().take();
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        turn
    }
}

impl SavedTurns {
    /// Takes one turn, and returns the time until it has come.
    fn take(&mut self) -> Duration {
        let now = Instant::now();
        let brought = now.duration_since(self.at).as_secs_f64() * FOR_A_SECOND;
        self.turns = (self.turns + brought).min(MOST_SAVED) - 1.0;
        self.at = now;
        Duration::from_secs_f64((-self.turns).max(0.0) / FOR_A_SECOND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn taken_within(turns: &RequestTurns, time: Duration) -> usize {
        let mut taken = 0;
        let endless = async {
            loop {
                drop(turns.next().await);
                taken += 1;
            }
        };
        let _: Result<(), _> = tokio::time::timeout(time, endless).await;
        taken
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_asks_without_end_is_slowed_down_and_one_that_is_called_is_not() {
        let turns = RequestTurns::new();
        let minute = taken_within(&turns, Duration::from_secs(60)).await;
        assert!((850..870).contains(&minute), "{minute}");
        let begun = Instant::now();
        for _ in 0..10_000 {
            turns.add_call();
            for _ in 0..16 {
                drop(turns.next().await);
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
}
