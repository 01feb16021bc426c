//! Limits how long an agent that reads slowly delays its sources: a notification that belongs to no call waits for the
//! agent only as long as its delay budget lasts.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::sync::Mutex;

/// The longest time that notifications wait one after the other. The source's other messages wait meanwhile, and on a
/// connection that sessions share these are messages to others.
const MAX_DELAY: Duration = Duration::from_secs(1);

/// The divisor of the passing time that gives the time which is given back: an agent that always reads slowly delays a
/// source by a twentieth of the time.
const RECOVERY_DIVISOR: u32 = 20;

/// The delay that one agent has left. An agent that reads gets everything; one that does not delays a source by
/// [`MAX_DELAY`], and then gets only messages that it has room for.
#[derive(Default)]
pub(super) struct DelayBudget(Mutex<Option<SpentDelay>>);

/// The time that an agent has made its sources wait, and the moment up to which that is counted.
#[derive(Clone, Copy)]
struct SpentDelay {
    waited: Duration,
    at: Instant,
}

impl DelayBudget {
    /// Waits until a notification has found its place, or drops it.
    pub(super) async fn wait_for(&self, passing: impl Future) {
        let begun = Instant::now();
        let spent = self.0.lock().map_or(Duration::ZERO, |spent| {
            spent.waited.saturating_sub(begun.duration_since(spent.at) / RECOVERY_DIVISOR)
        });
        let passed = timeout(MAX_DELAY.saturating_sub(spent), passing).await;
        let at = Instant::now();
        *self.0.lock() = Some(SpentDelay { waited: spent + (at - begun), at });
        if passed.is_err() {
            tracing::debug!("an agent does not read; a notification that belongs to no call was dropped");
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_pauses_gets_everything_and_one_that_does_not_read_delays_its_source_once() {
        let (budget, begun) = (DelayBudget::default(), Instant::now());
        let (out, mut queue) = mpsc::channel(2);
        let read = async {
            tokio::time::sleep(MAX_DELAY / 2).await;
            let mut heard = Vec::new();
            while heard.len() < 100 {
                heard.extend(queue.recv().await);
            }
            (heard, queue)
        };
        let tell = async {
            for number in 0..100 {
                budget.wait_for(out.send(number)).await;
            }
        };
        let ((heard, queue), ()) = tokio::join!(read, tell);
        assert_eq!(heard, (0..100).collect::<Vec<_>>());
        for number in 0..100 {
            budget.wait_for(out.send(number)).await;
        }
        assert_eq!((begun.elapsed(), queue.len()), (MAX_DELAY, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_always_reads_slowly_delays_its_source_by_a_small_part_of_the_time() {
        let budget = DelayBudget::default();
        let (out, mut queue) = mpsc::channel(1);
        let slow = tokio::spawn(async move {
            while queue.recv().await.is_some() {
                tokio::time::sleep(MAX_DELAY * 9 / 10).await;
            }
        });
        let (mut waited, begun) = (Duration::ZERO, Instant::now());
        while begun.elapsed() < MAX_DELAY * 100 {
            let before = Instant::now();
            budget.wait_for(out.send(())).await;
            waited += before.elapsed();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop(out);
        slow.abort();
        assert!(waited <= MAX_DELAY + MAX_DELAY * 100 / RECOVERY_DIVISOR, "{waited:?}");
    }
}
