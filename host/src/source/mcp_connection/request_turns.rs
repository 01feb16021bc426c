//! Limits how many requests of a source are put to the agent at once, and by a token bucket how fast. Each is a
//! separate call, with its records, so that a source which asks without end would fill the disk of the ledger.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::sync::Mutex;

/// The largest number of requests of the source that are put to the agent at once. Further ones wait for their turn.
pub(super) const MAX_ASKED_AT_ONCE: usize = 16;

/// The most tokens that a source can save up, and has when it connects. Each request takes one.
const BURST: f64 = 256.0;

/// The tokens that each call of the agent brings a source: it may ask several times for every call.
const TOKENS_PER_CALL: f64 = 16.0;

/// The tokens that a second brings a source, whether it is called or not.
const TOKENS_PER_SECOND: f64 = 10.0;

/// The turns of the requests of one connection.
pub(super) struct RequestTurns {
    pub(super) at_once: Semaphore,
    bucket: Mutex<TokenBucket>,
}

/// The tokens that are saved up at a moment. Below zero, that many requests wait for the time that brings them.
struct TokenBucket {
    tokens: f64,
    at: Instant,
}

impl RequestTurns {
    pub(super) fn new() -> Self {
        let bucket = TokenBucket { tokens: BURST, at: Instant::now() };
        Self { at_once: Semaphore::new(MAX_ASKED_AT_ONCE), bucket: Mutex::new(bucket) }
    }

    /// Counts a call of the agent.
    pub(super) fn add_call(&self) {
        let mut bucket = self.bucket.lock();
        bucket.tokens = (bucket.tokens + TOKENS_PER_CALL).min(BURST);
    }

    /// Waits for a turn, which lasts until the returned permit is dropped.
    pub(super) async fn next(&self) -> Option<SemaphorePermit<'_>> {
        let turn = self.at_once.acquire().await.ok();
        let pause = self.bucket.lock().take();
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        turn
    }
}

impl TokenBucket {
    /// Takes one token, and returns the time until it has come.
    fn take(&mut self) -> Duration {
        let now = Instant::now();
        let brought = now.duration_since(self.at).as_secs_f64() * TOKENS_PER_SECOND;
        self.tokens = (self.tokens + brought).min(BURST) - 1.0;
        self.at = now;
        Duration::from_secs_f64((-self.tokens).max(0.0) / TOKENS_PER_SECOND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn taken_within(turns: &RequestTurns, time: Duration) -> u32 {
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
        let expected = BURST + 60.0 * TOKENS_PER_SECOND;
        assert!((f64::from(minute) - expected).abs() < TOKENS_PER_SECOND, "{minute}");
        let begun = Instant::now();
        for _ in 0..10_000 {
            turns.add_call();
            for _ in 0..TOKENS_PER_CALL as usize {
                drop(turns.next().await);
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
}
