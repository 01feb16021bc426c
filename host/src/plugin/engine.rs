//! The engine that all plugins share: how code is compiled, and where instances live.

use std::sync::Arc;

use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use super::clock::Clock;
use super::error::PluginError;
use crate::limits;

/// All that a memory can address. A slot reserves as much anyway; how much of it an instance may have is its store's business.
const ADDRESSABLE: usize = 1 << 32;

/// An engine, and the clock that ticks for it.
pub(crate) fn start() -> Result<(Engine, Arc<Clock>), PluginError> {
    let failed = |error: wasmtime::Error| PluginError::Engine(format!("{error:#}"));
    let mut config = config().map_err(failed)?;
    let pooling = InstanceAllocationStrategy::Pooling(pool());
    let engine = Engine::new(config.allocation_strategy(pooling)).or_else(|error| {
        // The pool reserves terabytes of address space, which a small `ulimit -v` forbids.
        tracing::warn!(%error, "no address space for a pool of plugin instances; each is allocated on demand, which is slower");
        Engine::new(config.allocation_strategy(InstanceAllocationStrategy::OnDemand))
    });
    let engine = engine.map_err(failed)?;
    let clock = Clock::start(&engine)?;
    Ok((engine, clock))
}

/// An engine that compiles for engines like ours elsewhere, and runs nothing.
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

/// What an interpreter runs instead of code for the processor; None for that.
const INTERPRETED: Option<&str> = if cfg!(all(feature = "pulley", not(feature = "compiler"))) {
    Some(if cfg!(target_endian = "big") { "pulley64be" } else { "pulley64" })
} else {
    None
};

fn config() -> wasmtime::Result<Config> {
    let mut config = Config::new();
    // Nobody reads the frames of a stripped guest, and gathering them costs more than the trap.
    config.epoch_interruption(true).wasm_backtrace_max_frames(None);
    if let Some(target) = INTERPRETED {
        config.target(target)?;
    }
    Ok(config)
}

fn pool() -> PoolingAllocationConfig {
    let slots = limits::DECISION_SLOTS + limits::TOOL_SLOTS + limits::COMMAND_SLOTS;
    let mut pool = PoolingAllocationConfig::new();
    // What an instance wrote is overwritten, not given back to the system: giving back interrupts every processor that runs a
    // thread of ours, and the next instance pays for getting it again.
    // A slot is a memory, the one thing that is dear: it reserves gigabytes of addresses. Tables and core instances are cheap, and
    // there are as many as the slots can ever need; wit-component makes several of each.
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
