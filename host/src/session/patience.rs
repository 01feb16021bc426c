//! The patience with agents that read slowly: how long a source's notification that belongs to no call waits for one.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::sync::Mutex;

/// The longest time that notifications wait one after the other. The source's other messages wait meanwhile, and on a
/// connection that sessions share these are messages to others.
const MOST: Duration = Duration::from_secs(1);

/// The part of the time that is given back: an agent that always reads slowly delays a source by a twentieth.
const GIVEN_BACK: u32 = 20;

/// The patience that is left with one agent. An agent that reads gets everything; one that does not delays a source by
/// [`MOST`], and then gets what it has room for.
#[derive(Default)]
pub(super) struct Patience(Mutex<Option<Spent>>);

/// The time that an agent has made its sources wait, and the moment up to which that is counted.
#[derive(Clone, Copy)]
struct Spent {
    waited: Duration,
    at: Instant,
}

impl Patience {
    /// Waits until a notification has found its place, or drops it.
    pub(super) async fn wait_for(&self, passing: impl Future) {
        let begun = Instant::now();
        let spent = self
            .0
            .lock()
            .map_or(Duration::ZERO, |spent| spent.waited.saturating_sub(begun.duration_since(spent.at) / GIVEN_BACK));
        let passed = timeout(MOST.saturating_sub(spent), passing).await;
        let at = Instant::now();
        *self.0.lock() = Some(Spent { waited: spent + (at - begun), at });
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
        let (patience, begun) = (Patience::default(), Instant::now());
        let (out, mut queue) = mpsc::channel(2);
        let read = async {
            tokio::time::sleep(MOST / 2).await;
            let mut heard = Vec::new();
            while heard.len() < 100 {
                heard.extend(queue.recv().await);
            }
            (heard, queue)
        };
        let tell = async {
            for number in 0..100 {
                patience.wait_for(out.send(number)).await;
            }
        };
        let ((heard, queue), ()) = tokio::join!(read, tell);
        assert_eq!(heard, (0..100).collect::<Vec<_>>());
        for number in 0..100 {
            patience.wait_for(out.send(number)).await;
        }
        assert_eq!((begun.elapsed(), queue.len()), (MOST, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_always_reads_slowly_delays_its_source_by_a_small_part_of_the_time() {
        let patience = Patience::default();
        let (out, mut queue) = mpsc::channel(1);
        let slow = tokio::spawn(async move {
            while queue.recv().await.is_some() {
                tokio::time::sleep(MOST * 9 / 10).await;
            }
        });
        let (mut waited, begun) = (Duration::ZERO, Instant::now());
        while begun.elapsed() < MOST * 100 {
            let before = Instant::now();
            patience.wait_for(out.send(())).await;
            waited += before.elapsed();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop(out);
        slow.abort();
        assert!(waited <= MOST + MOST * 100 / GIVEN_BACK, "{waited:?}");
    }
}
