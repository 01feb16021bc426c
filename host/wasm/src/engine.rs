//! The engine that all plugins share: how code is compiled, and where instances are allocated.

use std::sync::Arc;
use std::time::Duration;

use portcullis_core::limits;
use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use super::clock::EpochClock;
#[cfg(feature = "compiler")]
use super::error::PluginError;

/// The bytes that a memory can address. A slot reserves this much anyway; the store limits how much of it
/// an instance may use.
const ADDRESSABLE: usize = 1 << 32;

/// The settings of an engine and its clock.
pub(crate) struct EngineSettings {
    /// True if the engine keeps the number of instructions that each guest runs, which makes guests slower.
    pub(crate) counts: bool,
    /// The time of one tick of the clock: [`limits::TICK`], except in tests that are not about deadlines.
    pub(crate) tick: Duration,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self { counts: false, tick: limits::TICK }
    }
}

/// Starts an engine, and the clock that ticks for it.
///
/// # Errors
/// Why they cannot start.
pub(crate) fn start(settings: &EngineSettings) -> Result<(Engine, Arc<EpochClock>), String> {
    let failed = |error: wasmtime::Error| format!("{error:#}");
    let mut config = config().map_err(failed)?;
    config.consume_fuel(settings.counts);
    let pooling = InstanceAllocationStrategy::Pooling(pool());
    let engine = Engine::new(config.allocation_strategy(pooling)).or_else(|error| {
        // The pool reserves terabytes of address space, which a small `ulimit -v` forbids.
        tracing::warn!(%error, "no address space for a pool of plugin instances; each is allocated on demand, which is slower");
        Engine::new(config.allocation_strategy(InstanceAllocationStrategy::OnDemand))
    });
    let engine = engine.map_err(failed)?;
    let clock = EpochClock::start(&engine, settings.tick)?;
    Ok((engine, clock))
}

/// Returns an engine that compiles for engines like ours on other hosts, and runs nothing.
#[cfg(feature = "compiler")]
pub(crate) fn compiler(target: Option<&str>) -> Result<Engine, PluginError> {
    let engine = config().and_then(|mut config| {
        if let Some(target) = target {
            config.target(target)?;
        }
        Engine::new(&config)
    });
    engine.map_err(|error| PluginError::Engine(format!("{error:#}")))
}

/// The target of the interpreter; `None` if plugins are compiled to code for the processor.
const INTERPRETED: Option<&str> = if cfg!(all(feature = "pulley", not(feature = "compiler"))) {
    Some(if cfg!(target_endian = "big") { "pulley64be" } else { "pulley64" })
} else {
    None
};

fn config() -> wasmtime::Result<Config> {
    let mut config = Config::new();
    // Stripped guests have no useful backtraces, and collecting one costs more than the trap.
    config.epoch_interruption(true).wasm_backtrace_max_frames(None);
    if let Some(target) = INTERPRETED {
        config.target(target)?;
    }
    Ok(config)
}

fn pool() -> PoolingAllocationConfig {
    let slots = limits::DECISION_SLOTS + limits::TOOL_SLOTS + limits::COMMAND_SLOTS;
    let mut pool = PoolingAllocationConfig::new();
    // Memory that an instance wrote is overwritten and not returned to the system: returning it interrupts every
    // processor that runs one of our threads, and the next instance pays for getting it again. A slot is a memory, the
    // one expensive resource: it reserves gigabytes of address space. Tables and core instances are cheap, and there
    // are as many as the slots can ever need; wit-component makes several of each.
    pool.total_component_instances(slots)
        .total_memories(slots)
        .total_tables(slots * limits::MEMORIES_PER_COMPONENT)
        .total_stacks(slots)
        .total_core_instances(slots * limits::CORE_INSTANCES_PER_COMPONENT)
        .max_core_instances_per_component(limits::CORE_INSTANCES_PER_COMPONENT)
        .max_memories_per_component(limits::MEMORIES_PER_COMPONENT)
        .max_tables_per_component(limits::MEMORIES_PER_COMPONENT)
        .max_memory_size(ADDRESSABLE)
        .table_elements(limits::TABLE_ELEMENTS)
        .linear_memory_keep_resident(limits::KEEP_RESIDENT_BYTES)
        .table_keep_resident(limits::TABLE_ELEMENTS * size_of::<usize>())
        .pagemap_scan(if cfg!(target_os = "linux") { Enabled::Auto } else { Enabled::No });
    pool
}
