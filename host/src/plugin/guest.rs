//! One instance of a plugin and what holds it: its store, its limits, and the reading of what went wrong.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use wasmtime::{Engine, PoolConcurrencyLimitError, ResourceLimiter, Store, Trap, UpdateDeadline};

use super::clock::{Clock, Turn};
use super::error::{Failure, FailureCode};
use super::limits::{self, Limits};
use super::v0_1::Facts;

/// What a store holds: the budget of the running call, and the facts that the guest may ask the host for.
pub(crate) struct State {
    pub(crate) facts: Facts,
    clock: Arc<Clock>,
    ticks_left: u32,
    calls_left: u32,
    memory: usize,
}

/// A limit that the host enforces by an error of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Exceeded {
    #[error("it wanted more than {} MiB of memory", limits::MEMORY_BYTES >> 20)]
    Memory,
    #[error("it wanted a table of more than {} elements", limits::TABLE_ELEMENTS)]
    Table,
    #[error("it called the host more than {} times", limits::HOST_CALLS)]
    HostCalls,
}

impl State {
    /// A store for a fresh instance that can reach nothing: no memory yet, no time, no facts.
    pub(crate) fn store(engine: &Engine, clock: &Arc<Clock>, facts: Facts) -> Store<Self> {
        let clock = clock.clone();
        let mut store = Store::new(engine, Self { facts, clock, ticks_left: 0, calls_left: 0, memory: 0 });
        store.limiter(|state| state);
        store.epoch_deadline_callback(|mut context| {
            let state = context.data_mut();
            if state.ticks_left == 0 {
                return Ok(UpdateDeadline::Interrupt);
            }
            state.ticks_left -= 1;
            Ok(UpdateDeadline::Yield(1))
        });
        store
    }

    /// Counts one call of the guest to the host.
    pub(crate) fn host_call(&mut self) -> wasmtime::Result<()> {
        self.calls_left = self.calls_left.checked_sub(1).ok_or(Exceeded::HostCalls)?;
        Ok(())
    }
}

impl ResourceLimiter for State {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let all = self.memory.saturating_add(desired.saturating_sub(current));
        if all > limits::MEMORY_BYTES {
            return Err(Exceeded::Memory.into());
        }
        self.memory = all;
        Ok(true)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        if desired > limits::TABLE_ELEMENTS {
            return Err(Exceeded::Table.into());
        }
        Ok(true)
    }
}

/// A configured instance that waits for its call, and the slot that it occupies.
pub(crate) struct Live<W> {
    pub(crate) world: W,
    pub(crate) store: Store<State>,
    _slot: OwnedSemaphorePermit,
}

impl<W> Live<W> {
    pub(crate) fn new(world: W, store: Store<State>, slot: OwnedSemaphorePermit) -> Self {
        Self { world, store, _slot: slot }
    }
}

/// A call that has its budget: what bounds it, and the clock that runs for it.
#[must_use = "without its clock a guest has no deadline"]
pub(crate) struct Armed {
    limits: Limits,
    _turn: Turn,
}

/// Gives the next call of this store its budget. Deadlines count from here.
pub(crate) fn arm(store: &mut Store<State>, limits: Limits) -> Armed {
    let ticks = limits.deadline.as_millis() / limits::TICK.as_millis();
    let state = store.data_mut();
    state.ticks_left = u32::try_from(ticks).unwrap_or(u32::MAX);
    state.calls_left = limits::HOST_CALLS;
    state.facts.log_lines_left = limits::LOG_LINES;
    store.set_epoch_deadline(1);
    store.set_hostcall_fuel(limits.output);
    Armed { limits, _turn: store.data().clock.turn() }
}

/// Waits for a call into a guest, and no longer than its limits allow. Dropping the future ends the guest.
pub(crate) async fn guard<T>(armed: Armed, call: impl Future<Output = wasmtime::Result<T>>) -> Result<T, Failure> {
    let limits = armed.limits;
    match tokio::time::timeout(limits.deadline + limits::WALL_CLOCK_GRACE, call).await {
        Ok(result) => result.map_err(|error| failure(limits, &error)),
        Err(_) => Err(deadline(limits)),
    }
}

fn deadline(limits: Limits) -> Failure {
    let detail = format!("it did not finish within {} ms", limits.deadline.as_millis());
    Failure::new(FailureCode::Deadline, detail)
}

fn failure(limits: Limits, error: &wasmtime::Error) -> Failure {
    if let Some(exceeded) = error.downcast_ref::<Exceeded>() {
        let code = match exceeded {
            Exceeded::Memory | Exceeded::Table => FailureCode::Memory,
            Exceeded::HostCalls => FailureCode::HostCalls,
        };
        return Failure::new(code, exceeded.to_string());
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::Interrupt) => return deadline(limits),
        Some(Trap::UnreachableCodeReached) => return Failure::new(FailureCode::Trap, "it panicked or aborted"),
        Some(trap) => return Failure::new(FailureCode::Trap, trap.to_string()),
        None => {}
    }
    if error.is::<PoolConcurrencyLimitError>() {
        return Failure::new(FailureCode::Busy, "every slot for plugin instances is in use");
    }
    // Wasmtime has no type for this one; the test of a guest that gives back too much holds on to the words.
    let text = format!("{error:#}");
    if text.contains("fuel allocated for hostcalls") {
        let detail = format!("it passed more than {} KiB in one call", limits.output >> 10);
        return Failure::new(FailureCode::Output, detail);
    }
    // Neither a trap nor a limit: bytes that break the contract, such as text that is not UTF-8.
    Failure::new(FailureCode::Output, text)
}
