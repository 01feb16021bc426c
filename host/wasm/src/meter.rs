//! The processor time of guests that wait for the host: for files, servers, or the next message.
//!
//! Counting ticks of the clock would be wrong for such guests, because they see one each time they resume. Instead, the
//! processor time that their thread spends on them is measured. The clock still makes them yield.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use portcullis_core::limits::TICK;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Sleep;

use super::clock::EpochClock;

/// A budget of processor time. Clones share it.
#[derive(Clone)]
pub(crate) struct Meter {
    /// The time spent, in nanoseconds.
    spent: Arc<AtomicU64>,
    budget: Duration,
    /// The share of one processor that the guest may have, above 0; 1 or more is a whole one.
    share: f64,
}

/// The error of a guest that has spent its budget of processor time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its processor time is spent")]
pub(crate) struct OutOfTime;

impl Meter {
    pub(crate) fn new(budget: Duration, share: f64) -> Self {
        Self { spent: Arc::default(), budget, share }
    }

    /// Restores the whole budget.
    pub(crate) fn reset(&self) {
        self.spent.store(0, Ordering::Relaxed);
    }

    /// Runs a guest as [`Meter::run`] does, for a guest that mostly waits: the clock that makes it yield only runs
    /// while the guest does.
    pub(crate) async fn run_by<T>(
        &self,
        clock: &Arc<EpochClock>,
        guest: impl Future<Output = T>,
    ) -> Result<T, OutOfTime> {
        let mut guest = pin!(guest);
        let turns = poll_fn(|context| {
            let _clock = clock.guard();
            guest.as_mut().poll(context)
        });
        self.run(turns).await
    }

    /// Runs a guest until it is done or its budget is spent. Dropping the future stops the guest.
    ///
    /// # Errors
    /// [`OutOfTime`] if the budget is spent.
    pub(crate) async fn run<T>(&self, guest: impl Future<Output = T>) -> Result<T, OutOfTime> {
        let mut guest = pin!(guest);
        let mut owed = Duration::ZERO;
        let mut pause: Option<Pin<Box<Sleep>>> = None;
        poll_fn(|context| {
            if let Some(sleep) = &mut pause {
                if sleep.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                pause = None;
            }
            let before = on_processor();
            let polled = guest.as_mut().poll(context);
            let used = on_processor().saturating_sub(before);
            if let Poll::Ready(done) = polled {
                return Poll::Ready(Ok(done));
            }
            let nanos = u64::try_from(used.as_nanos()).unwrap_or(u64::MAX);
            if self.spent.fetch_add(nanos, Ordering::Relaxed).saturating_add(nanos) > self.limit() {
                return Poll::Ready(Err(OutOfTime));
            }
            if self.share < 1.0 {
                owed += used.mul_f64(1.0 / self.share - 1.0);
                if owed >= TICK {
                    let sleep = pause.insert(Box::pin(tokio::time::sleep(std::mem::take(&mut owed))));
                    // Registers the wake-up. The next poll after the pause resumes the guest, whatever woke it.
                    let _ = sleep.as_mut().poll(context);
                }
            }
            Poll::Pending
        })
        .await
    }

    fn limit(&self) -> u64 {
        u64::try_from(self.budget.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Returns the processor time that this thread has used.
fn on_processor() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Uses the processor for this many turns of a millisecond each, and yields after each turn.
    pub(crate) async fn work(turns: u32) {
        for _ in 0..turns {
            let begin = on_processor();
            while on_processor() - begin < TICK {
                std::hint::spin_loop();
            }
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn work_counts_and_waiting_does_not() {
        let meter = Meter::new(TICK * 500, 1.0);
        let waits = async {
            for _ in 0..200 {
                tokio::task::spawn_blocking(|| ()).await.unwrap();
            }
            work(20).await;
        };
        assert_eq!(meter.run(waits).await, Ok(()));
        assert_eq!(meter.run(work(1000)).await, Err(OutOfTime));
        meter.reset();
        assert_eq!(meter.run(work(20)).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_with_a_share_of_a_processor_is_paused_in_proportion() {
        let begin = tokio::time::Instant::now();
        Meter::new(TICK * 1000, 0.25).run(work(100)).await.unwrap();
        // The paused test clock advances only during the pauses.
        assert!(begin.elapsed() >= TICK * 250, "{:?}", begin.elapsed());
    }
}
