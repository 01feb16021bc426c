//! Polls a connection again at once if it wakes itself.
//!
//! A connection and its requests are one task, whose parts talk over channels: a part that receives wakes the sender,
//! which is the same task. The runtime queues a task that is woken while it runs, and wakes another thread to help with
//! it. Two such wake-ups were a third of what a lone call costs.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// The number of polls in a row after which the task goes back to the runtime's queue, so that others get their turn.
const MAX_POLLS: usize = 8;

const IDLE: u8 = 0;
const POLLING: u8 = 1;
const WOKEN: u8 = 2;

/// Drives a future to its end. Wake-ups that come while it is polled lead to another poll, and do not reach the
/// runtime.
///
/// Cancellation: as the future's own.
pub(super) async fn absorb_self_wakes<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let state = Arc::new(PollState { phase: AtomicU8::new(IDLE), task: AtomicWaker::new() });
    let waker = Waker::from(Arc::clone(&state));
    std::future::poll_fn(|cx| state.poll(future.as_mut(), cx, &waker)).await
}

struct PollState {
    phase: AtomicU8,
    task: AtomicWaker,
}

impl PollState {
    fn poll<F: Future>(&self, mut future: Pin<&mut F>, cx: &Context<'_>, waker: &Waker) -> Poll<F::Output> {
        self.task.register(cx.waker());
        for _ in 0..MAX_POLLS {
            self.phase.store(POLLING, Ordering::Release);
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(waker)) {
                return Poll::Ready(output);
            }
            if self.phase.compare_exchange(POLLING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Poll::Pending;
            }
        }
        self.phase.store(IDLE, Ordering::Release);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Wake for PollState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.phase.compare_exchange(POLLING, WOKEN, Ordering::AcqRel, Ordering::Acquire) == Err(IDLE) {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures_util::poll;
    use tokio::sync::oneshot;

    use super::*;

    /// Counts the wake-ups that reach the runtime.
    #[derive(Default)]
    struct Runtime(AtomicUsize);

    impl Wake for Runtime {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn woken(runtime: &Arc<Runtime>) -> usize {
        runtime.0.load(Ordering::Relaxed)
    }

    #[test]
    fn a_future_that_wakes_itself_is_polled_again_and_the_runtime_hears_nothing() {
        let runtime = Arc::new(Runtime::default());
        let waker = Waker::from(Arc::clone(&runtime));
        let mut yields = 3;
        let mut driven = pin!(absorb_self_wakes(std::future::poll_fn(move |cx| {
            if yields == 0 {
                return Poll::Ready(());
            }
            yields -= 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        })));
        assert!(driven.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
        assert_eq!(woken(&runtime), 0);
    }

    #[test]
    fn a_future_that_wakes_itself_for_ever_gives_others_their_turn() {
        let runtime = Arc::new(Runtime::default());
        let waker = Waker::from(Arc::clone(&runtime));
        let polls = AtomicUsize::new(0);
        let mut driven = pin!(absorb_self_wakes(std::future::poll_fn(|cx| -> Poll<()> {
            polls.fetch_add(1, Ordering::Relaxed);
            cx.waker().wake_by_ref();
            Poll::Pending
        })));
        assert!(driven.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(woken(&runtime), 1, "it is queued again");
        assert_eq!(polls.load(Ordering::Relaxed), MAX_POLLS);
    }

    #[tokio::test]
    async fn a_wake_up_from_elsewhere_reaches_the_runtime() {
        let (sender, receiver) = oneshot::channel();
        let mut driven = pin!(absorb_self_wakes(receiver));
        assert!(poll!(&mut driven).is_pending());
        let told = tokio::spawn(async move { sender.send(7) });
        assert_eq!(driven.await, Ok(7));
        assert!(told.await.is_ok());
    }
}
