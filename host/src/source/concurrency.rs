//! Limits how many calls a source handles at once, and how many wait for their turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::call::Cause;
use crate::config::ConcurrencyConfig;
use crate::name::SourceName;
use crate::protocol::Method;

/// The limit on the calls that one source handles at once and on those that wait for it. Sources do not delay each
/// other.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit {
    source: SourceName,
    /// `None` if no limit is configured: then the table of pending calls is the only limit.
    concurrency: Option<(usize, Arc<Semaphore>)>,
    queue: usize,
    waiting: AtomicUsize,
}

/// The permission of one call to use the source. Dropping it lets the next waiting call proceed.
#[derive(Debug)]
pub(crate) struct ConcurrencyGuard(#[expect(dead_code, reason = "held, to be dropped")] Option<OwnedSemaphorePermit>);

impl ConcurrencyLimit {
    pub(crate) fn new(source: &SourceName, config: Option<ConcurrencyConfig>) -> Self {
        let concurrency = config.map(|config| (config.concurrency, Arc::new(Semaphore::new(config.concurrency))));
        let queue = config.map_or(0, |config| config.queue);
        Self { source: source.clone(), concurrency, queue, waiting: AtomicUsize::new(0) }
    }

    /// Waits for a turn, in the order of arrival, until `deadline`. Methods that continue a call that the source
    /// already has, or that stay open indefinitely, need no turn. Cancellation safe.
    ///
    /// # Errors
    /// A message for people, if the queue is full or the deadline has passed.
    pub(crate) async fn acquire(&self, method: &Method, deadline: Instant) -> Result<ConcurrencyGuard, Cause> {
        let Some((most, places)) = self.concurrency.as_ref().filter(|_| method.is_work()) else {
            return Ok(ConcurrencyGuard(None));
        };
        let source = &self.source;
        if let Ok(place) = Arc::clone(places).try_acquire_owned() {
            return Ok(ConcurrencyGuard(Some(place)));
        }
        let waits = Waits::begin(&self.waiting);
        if waits.before >= self.queue {
            return Err(Cause::own(format!(
                "source `{source}` is busy: it has {most} calls (`concurrency`), and {} wait for it (`queue`); nothing was sent, \
                 send it again later",
                self.queue
            )));
        }
        match timeout_at(deadline, Arc::clone(places).acquire_owned()).await {
            // The semaphore is never closed.
            Ok(place) => Ok(ConcurrencyGuard(place.ok())),
            Err(_) => Err(Cause::own(format!(
                "source `{source}` is busy: its {most} places (`concurrency`) were taken until the call's time was over; nothing \
                 was sent"
            ))),
        }
    }
}

/// A call that is counted as waiting until this is dropped.
struct Waits<'a> {
    waiting: &'a AtomicUsize,
    before: usize,
}

impl<'a> Waits<'a> {
    fn begin(waiting: &'a AtomicUsize) -> Self {
        Self { waiting, before: waiting.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::time::Duration;

    use super::*;

    fn concurrency(concurrency: usize, queue: usize) -> ConcurrencyLimit {
        ConcurrencyLimit::new(&"s".parse().unwrap(), Some(ConcurrencyConfig { concurrency, queue }))
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[tokio::test(start_paused = true)]
    async fn calls_beyond_the_concurrency_wait_and_calls_beyond_the_queue_are_refused() {
        let concurrency = concurrency(1, 1);
        let first = concurrency.acquire(&Method::ToolsCall, soon()).await.unwrap();
        let mut second = Box::pin(concurrency.acquire(&Method::ToolsCall, soon()));
        assert!(futures_util::poll!(&mut second).is_pending());
        let full = concurrency.acquire(&Method::ToolsCall, soon()).await.unwrap_err();
        assert!(full.contains("source `s` is busy") && full.contains("1 wait"), "{full}");
        assert!(concurrency.acquire(&Method::TasksResult, soon()).await.is_ok(), "it continues a call");
        drop(first);
        drop(second.await.unwrap());
        assert!(concurrency.acquire(&Method::ToolsCall, soon()).await.is_ok(), "the queue is empty again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_its_turn_until_its_deadline_and_leaves_the_queue_when_dropped() {
        let concurrency = concurrency(1, 1);
        let _first = concurrency.acquire(&Method::ToolsCall, soon()).await.unwrap();
        let late = concurrency.acquire(&Method::ToolsCall, soon()).await.unwrap_err();
        assert!(late.contains("nothing was sent"), "{late}");
        let mut gone = Box::pin(concurrency.acquire(&Method::ToolsCall, soon()));
        assert!(futures_util::poll!(&mut gone).is_pending());
        drop(gone);
        let mut next = Box::pin(concurrency.acquire(&Method::ToolsCall, soon()));
        assert!(futures_util::poll!(&mut next).is_pending(), "there is room in the queue");
    }
}
