//! One instance of a plugin: its store, its limits, and the meaning of its errors.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use portcullis_cell::display_size;
use portcullis_config::TIMEOUT;
use portcullis_core::limits::{self, CallLimits};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use wasmtime::component::ResourceTableError;
use wasmtime::{Engine, PoolConcurrencyLimitError, ResourceLimiter, Store, Trap, UpdateDeadline};
use wasmtime_wasi::WasiCtxBuilder;

use super::access::{EnforcedAccess, Wasi};
use super::clock::{ClockGuard, EpochClock};
use super::error::{FailureCode, PluginFailure};
use super::meter::{Meter, OutOfTime};
use super::v0_1::GuestFacts;

/// The state of a store: the budget of the running call, and the facts that the guest may ask the host for.
pub(crate) struct GuestState {
    pub facts: GuestFacts,
    /// The WASI context of a component source.
    pub wasi: Option<Box<Wasi>>,
    /// The broker's descriptors that the guest may use.
    pub descriptors: Option<OwnedSemaphorePermit>,
    /// The share of one processor that the guest may have, if its time is measured.
    pub share: Option<f64>,
    /// The limits of one tool call.
    pub tool: CallLimits,
    pub clock: Arc<EpochClock>,
    ticks_left: u32,
    calls_left: u32,
    memory: usize,
    memory_limit: usize,
    /// True if the memory limit comes from the configuration of a source.
    configured: bool,
}

/// A limit that the host itself enforces, by its own error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Exceeded {
    #[error("it wanted more than {} MiB of memory", .0 >> 20)]
    Memory(usize),
    #[error("it wanted more than {} of memory; to give it more, write `cell = {{ memory = \"{}MiB\" }}` in its source", display_size(*.0), (2 * .0).div_ceil(1 << 20))]
    Granted(u64),
    #[error("it wanted a table of more than {} elements", limits::TABLE_ELEMENTS)]
    Table,
    #[error("it called the host more than {} times", limits::HOST_CALLS)]
    HostCalls,
}

impl GuestState {
    /// Creates a store for a fresh instance that can reach nothing: it has no memory yet, no time and no facts.
    pub(crate) fn store(engine: &Engine, clock: &Arc<EpochClock>, facts: GuestFacts) -> Store<Self> {
        let clock = clock.clone();
        let state = Self {
            facts,
            wasi: None,
            descriptors: None,
            share: None,
            tool: CallLimits::tool(limits::TOOL_DEADLINE, TIMEOUT, limits::PAYLOAD_OUTPUT_BYTES),
            clock,
            ticks_left: 0,
            calls_left: 0,
            memory: 0,
            memory_limit: limits::MEMORY_BYTES,
            configured: false,
        };
        let mut store = Store::new(engine, state);
        // Fails where the engine does not count instructions: then none are kept.
        let _ = store.set_fuel(u64::MAX);
        store.set_max_component_handles(limits::COMPONENT_HANDLES);
        store.limiter(|state| state);
        store.epoch_deadline_callback(|mut context| {
            let state = context.data_mut();
            // The time of guests that wait for the host is measured, not counted in ticks: they would see a tick each
            // time they resume.
            if state.share.is_none() {
                state.ticks_left = match state.ticks_left {
                    0 => return Ok(UpdateDeadline::Interrupt),
                    ticks => ticks - 1,
                };
            }
            Ok(UpdateDeadline::Yield(1))
        });
        store
    }

    /// Creates a store for a component source, with what the component may access.
    ///
    /// # Errors
    /// A granted folder cannot be opened.
    pub(crate) fn confined(
        engine: &Engine,
        clock: &Arc<EpochClock>,
        facts: GuestFacts,
        confinement: &EnforcedAccess,
    ) -> Result<Store<Self>, PluginFailure> {
        Self::confined_with(engine, clock, facts, confinement, |builder| {
            builder.envs(&confinement.access.env);
        })
    }

    /// Creates a store as [`GuestState::confined`] does. `more` adds variables and standard streams; otherwise there
    /// are no variables, and the streams are closed.
    pub(crate) fn confined_with(
        engine: &Engine,
        clock: &Arc<EpochClock>,
        facts: GuestFacts,
        confinement: &EnforcedAccess,
        more: impl FnOnce(&mut WasiCtxBuilder),
    ) -> Result<Store<Self>, PluginFailure> {
        let EnforcedAccess { access, wasi, .. } = confinement;
        let mut store = Self::store(engine, clock, facts);
        let state = store.data_mut();
        (state.memory_limit, state.configured) = (access.memory(), true);
        state.tool = CallLimits::tool(access.processor_time(), access.timeout, access.output);
        state.wasi = wasi.then(|| confinement.open(more)).transpose()?.map(Box::new);
        // The time of guests that can wait for the host is measured.
        state.share = access.grant.limits.cpu.or((*wasi || access.key_value.is_some()).then_some(1.0));
        Ok(store)
    }

    /// Returns the bytes of memory that the instance has.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// Counts one call from the guest to the host.
    pub(crate) fn host_call(&mut self) -> wasmtime::Result<()> {
        self.calls_left = self.calls_left.checked_sub(1).ok_or(Exceeded::HostCalls)?;
        Ok(())
    }
}

impl ResourceLimiter for GuestState {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let all = self.memory.saturating_add(desired.saturating_sub(current));
        if all > self.memory_limit {
            return Err(match self.configured {
                true => Exceeded::Granted(self.memory_limit as u64),
                false => Exceeded::Memory(self.memory_limit),
            }
            .into());
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

    // The following limits are those of the pool of instances. Without the pool, nothing else limits it.

    fn instances(&self) -> usize {
        limits::CORE_INSTANCES_PER_COMPONENT as usize
    }

    fn tables(&self) -> usize {
        limits::MEMORIES_PER_COMPONENT as usize
    }

    fn memories(&self) -> usize {
        limits::MEMORIES_PER_COMPONENT as usize
    }
}

/// A configured instance that is ready for its call, and the slot that it occupies.
pub(crate) struct ReadyInstance<W> {
    pub world: W,
    pub store: Store<GuestState>,
    /// The turn of its decision, once it has one.
    _turn: Option<OwnedSemaphorePermit>,
    _slot: OwnedSemaphorePermit,
}

impl<W> ReadyInstance<W> {
    pub(crate) fn new(world: W, store: Store<GuestState>, slot: OwnedSemaphorePermit) -> Self {
        Self { world, store, _turn: None, _slot: slot }
    }

    /// Holds the turn of the decision for as long as the instance lives.
    pub(crate) fn holding(self, turn: Option<OwnedSemaphorePermit>) -> Self {
        Self { _turn: turn, ..self }
    }
}

/// The limits of a call that has received its budget, and the clock that runs for it.
#[must_use = "without its clock a guest has no deadline"]
pub(crate) struct CallBudget {
    limits: CallLimits,
    /// The meter of a guest whose time is measured.
    meter: Option<Meter>,
    _clock: ClockGuard,
}

/// Gives the next call of this store its budget. Its deadline counts from here.
pub(crate) fn arm(store: &mut Store<GuestState>, limits: CallLimits) -> CallBudget {
    let ticks = limits.deadline.as_millis() / limits::TICK.as_millis();
    let state = store.data_mut();
    state.ticks_left = u32::try_from(ticks).unwrap_or(u32::MAX);
    state.calls_left = limits::HOST_CALLS;
    state.facts.log_lines_left = limits::LOG_LINES;
    store.set_epoch_deadline(1);
    store.set_hostcall_fuel(limits.output);
    let state = store.data();
    let meter = state.share.map(|share| Meter::new(limits.deadline, share));
    CallBudget { limits, meter, _clock: state.clock.guard() }
}

/// Waits for a call into a guest for as long as its limits allow. Dropping the future stops the guest.
pub(crate) async fn guard<T>(
    armed: CallBudget,
    call: impl Future<Output = wasmtime::Result<T>>,
) -> Result<T, PluginFailure> {
    let limits = armed.limits;
    let call = match armed.meter {
        None => timeout(limits.wall_clock, call).await,
        Some(meter) => {
            // Boxed to keep this future small for guests that are not metered: those decide.
            let metered = Box::pin(timeout(limits.wall_clock, meter.run(call))).await;
            metered.map(|done| done.unwrap_or_else(|spent| Err(spent.into())))
        }
    };
    match call {
        Ok(result) => result.map_err(|error| failure(limits, &error)),
        Err(_) if limits.configured => {
            let detail = format!("it did not answer within {} s", limits.wall_clock.as_secs_f32());
            Err(PluginFailure::new(FailureCode::Deadline, detail))
        }
        Err(_) => Err(deadline(limits)),
    }
}

fn deadline(limits: CallLimits) -> PluginFailure {
    let detail = match limits.configured {
        true => out_of_time(limits.deadline),
        false => format!("it did not finish within {} ms", limits.deadline.as_millis()),
    };
    PluginFailure::new(FailureCode::Deadline, detail)
}

/// Describes how a component source exceeded its processor time, and which setting raises it.
pub(crate) fn out_of_time(limit: Duration) -> String {
    format!(
        "it ran for {} s of processor time; to give it a whole processor for as long as its `timeout`, write \
         `cell = {{ cpu = 1.0 }}` in its source",
        limit.as_secs_f32()
    )
}

/// Describes how a component source exceeded the bytes of one call, and which setting raises them.
fn too_much(limit: u64) -> String {
    format!(
        "it passed more than {} in one call; to let it pass more, write `cell = {{ output = \"{}MiB\" }}` in its source",
        display_size(limit),
        (2 * limit).div_ceil(1 << 20)
    )
}

/// Converts an error of the engine to a failure.
pub(crate) fn failure(limits: CallLimits, error: &wasmtime::Error) -> PluginFailure {
    if let Some(exceeded) = error.downcast_ref::<Exceeded>() {
        let code = match exceeded {
            Exceeded::Memory(_) | Exceeded::Granted(_) | Exceeded::Table => FailureCode::Memory,
            Exceeded::HostCalls => FailureCode::HostCalls,
        };
        return PluginFailure::new(code, exceeded.to_string());
    }
    if error.is::<OutOfTime>() {
        return deadline(limits);
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::Interrupt) => return deadline(limits),
        Some(Trap::UnreachableCodeReached) => return PluginFailure::new(FailureCode::Trap, "it panicked or aborted"),
        Some(trap) => return PluginFailure::new(FailureCode::Trap, trap.to_string()),
        None => {}
    }
    if let Some(ResourceTableError::Full) = error.downcast_ref() {
        let most = limits::WASI_HANDLES;
        let detail = format!(
            "it held too many handles at once; at most there are {most}, and fewer where this process may open few files"
        );
        return PluginFailure::new(FailureCode::Memory, detail);
    }
    if error.is::<PoolConcurrencyLimitError>() {
        return PluginFailure::new(FailureCode::Busy, "every slot for plugin instances is in use");
    }
    // Wasmtime has no error types for these. The tests of guests that meet the limits fail if the texts change.
    let text = format!("{error:#}");
    if text.contains("store handle limit exceeded") {
        let detail = format!("it held more than {} handles of resources at once", limits::COMPONENT_HANDLES);
        return PluginFailure::new(FailureCode::Memory, detail);
    }
    if text.contains("fuel allocated for hostcalls") {
        let detail = match limits.configured {
            true => too_much(limits.output as u64),
            false => format!("it passed more than {} KiB in one call", limits.output >> 10),
        };
        return PluginFailure::new(FailureCode::Output, detail);
    }
    // Neither a trap nor a limit: the answer breaks the contract, for example with text that is not UTF-8.
    PluginFailure::new(FailureCode::Output, text)
}
