//! The clock that interrupts guests. It stops while none runs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::Thread;
use std::time::Duration;

use wasmtime::{Engine, EngineWeak};

/// The ticks without a running guest after which the clock stops. Starting it again wakes a thread, which costs more
/// than a few ticks.
const IDLE_TICKS: u32 = 50;

/// The clock of one engine. Every store holds it, because a plugin that outlived its clock would have no deadline.
pub(crate) struct EpochClock {
    running: Arc<AtomicUsize>,
    thread: Thread,
}

/// A guard that keeps the clock running while a guest runs.
pub(crate) struct ClockGuard(Arc<EpochClock>);

impl EpochClock {
    /// Starts the clock's thread, which ticks for an engine once in `tick`. The thread ends when the clock is dropped.
    pub(crate) fn start(engine: &Engine, tick: Duration) -> Result<Arc<Self>, String> {
        let running = Arc::new(AtomicUsize::new(0));
        let (engine, count) = (engine.weak(), Arc::downgrade(&running));
        let thread = std::thread::Builder::new().name("plugin-clock".into()).spawn(move || run(&engine, &count, tick));
        let thread = thread.map_err(|error| format!("no thread for the clock: {error}"))?;
        Ok(Arc::new(Self { running, thread: thread.thread().clone() }))
    }

    /// Keeps the clock ticking until the returned guard is dropped.
    pub(crate) fn guard(self: &Arc<Self>) -> ClockGuard {
        if self.running.fetch_add(1, Ordering::SeqCst) == 0 {
            self.thread.unpark();
        }
        ClockGuard(self.clone())
    }
}

impl Drop for ClockGuard {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for EpochClock {
    fn drop(&mut self) {
        // The thread wakes and finds that the count is gone. If it wakes before the count is dropped, it notices
        // after one more tick.
        self.running = Arc::default();
        self.thread.unpark();
    }
}

fn run(engine: &EngineWeak, running: &Weak<AtomicUsize>, tick: Duration) {
    let mut idle = 0;
    while let (Some(engine), Some(running)) = (engine.upgrade(), running.upgrade()) {
        engine.increment_epoch();
        let rests = running.load(Ordering::SeqCst) == 0;
        drop((engine, running));
        idle = if rests { idle + 1 } else { 0 };
        if idle > IDLE_TICKS {
            // A turn that began after the count was read has left a token, so that this returns at once.
            std::thread::park();
            idle = 0;
        } else {
            // Late ticks are dropped and not made up for: a burst would use up every guest's time at once.
            std::thread::sleep(tick);
        }
    }
}
