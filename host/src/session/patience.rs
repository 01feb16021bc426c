//! How long a source's notification that belongs to no call waits for an agent that reads slowly.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::timeout;

/// The longest time that one notification waits. The source's other messages wait meanwhile.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The patience with one agent. An agent that reads gets everything; one that does not delays a source once, and then
/// gets what it has room for until it reads again.
#[derive(Default)]
pub(super) struct Patience(AtomicBool);

impl Patience {
    /// Waits until a notification has found its place, or drops it.
    pub(super) async fn wait_for(&self, passing: impl Future) {
        let is_spent = self.0.load(Ordering::Relaxed);
        let wait = if is_spent { Duration::ZERO } else { LONGEST_WAIT };
        let passed = timeout(wait, passing).await.is_ok();
        self.0.store(!passed, Ordering::Relaxed);
        if !passed {
            tracing::debug!("an agent does not read; a notification that belongs to no call was dropped");
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_reads_gets_everything_and_one_that_does_not_delays_its_source_once() {
        let (patience, begun) = (Patience::default(), Instant::now());
        let (out, mut queue) = mpsc::channel(2);
        for number in 0..100 {
            patience.wait_for(out.send(number)).await;
        }
        assert_eq!((begun.elapsed(), queue.recv().await), (LONGEST_WAIT, Some(0)));
        // It reads again, slowly.
        let read = async {
            let mut heard = Vec::new();
            while heard.last() != Some(&199) {
                tokio::time::sleep(LONGEST_WAIT / 2).await;
                heard.extend(queue.recv().await);
            }
            heard
        };
        let tell = async {
            for number in 100..200 {
                patience.wait_for(out.send(number)).await;
            }
        };
        let (heard, ()) = tokio::join!(read, tell);
        assert_eq!(heard, [&[1][..], &(100..200).collect::<Vec<_>>()].concat());
    }
}
