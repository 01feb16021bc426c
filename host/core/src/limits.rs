//! The limits that several modules share, for example what a plugin may use and how much a source may list. Each number
//! is here with its reason.

use std::time::Duration;

/// The longest time that a source may take to exit on its own before it is killed: long enough to flush a file, short
/// enough that Ctrl-C feels immediate.
pub const CLOSE_DEADLINE: Duration = Duration::from_secs(3);

/// The most tools that one source may offer: more than any known server has, and fewer than would overwhelm a model or
/// the broker.
pub const MAX_TOOLS_PER_SOURCE: usize = 1_000;

/// The most prompts, resources or templates of one source. File servers list hundreds; larger ones use templates.
pub const MAX_ITEMS_PER_SOURCE: usize = 10_000;

/// The largest definition of one item, in bytes. The largest known real definition, of a tool, has 20 KiB.
pub const MAX_DEFINITION_BYTES: usize = 256 * 1024;

/// One tick of the clock that interrupts guests (plugins and components).
pub const TICK: Duration = Duration::from_millis(1);

/// Processor time for one decision, counted in ticks that the guest itself has seen, so that a busy machine does not
/// stop a guest that did nothing wrong. A policy takes microseconds; an engine in an interpreted language takes a few
/// milliseconds.
pub const DECISION_DEADLINE: Duration = Duration::from_millis(100);

/// Processor time for instantiating and configuring a guest. Parsing a large rule set takes longer than applying it.
pub const START_DEADLINE: Duration = Duration::from_secs(2);

/// Processor time for one call of a component that is a source, unless its `cell` has a `cpu`: tools compute, policies
/// only compare.
pub const TOOL_DEADLINE: Duration = Duration::from_secs(5);

/// Processor time for one batch of ledger records.
pub const DELIVER_DEADLINE: Duration = Duration::from_secs(2);

/// Wall-clock time beyond the deadline, after which a call is abandoned even if its guest saw no tick, because it
/// waited in the host or was not scheduled.
pub(crate) const WALL_CLOCK_GRACE: Duration = Duration::from_secs(10);

/// Bytes of linear memory, over all memories of an instance. Guests in Rust need one to two MiB, those in QuickJS or
/// Python up to 13 MiB.
pub const MEMORY_BYTES: usize = 16 << 20;

/// Bytes of linear memory of a component that is a source, unless its `cell` sets another number: a Python server with
/// its libraries needs about 30 MiB, and a source keeps state for a session, which a decision does not.
pub const SOURCE_MEMORY_BYTES: u64 = 64 << 20;

/// Handles that an instance of a component may hold at once: streams, files, sockets, and what it waits for. Each may
/// be a file descriptor of the broker, which may have fewer: see `descriptors`.
pub const WASI_HANDLES: usize = 256;

/// Handles of all kinds that an instance may hold at once. It can make some of them itself: a component may define
/// resources. Each takes some 24 bytes of the host, which no limit of memory counts.
pub const COMPONENT_HANDLES: usize = 10_000;

/// Bytes that are buffered between a command and the host in each direction: as much as a pipe of the system holds.
pub const PIPE_BYTES: usize = 64 << 10;

/// Elements of one table of a guest. Python guests need 7,688.
pub const TABLE_ELEMENTS: usize = 10_000;

/// The most memories, and the most tables, of one component.
pub const MEMORIES_PER_COMPONENT: u32 = 3;

/// The most instances of core modules in one component, with the shims that wit-component adds. Tools in Python have
/// the most, 38.
pub const CORE_INSTANCES_PER_COMPONENT: u32 = 64;

/// Bytes that may pass between guest and host in one call, whichever of them makes the call: a decision is short.
pub const DECISION_OUTPUT_BYTES: usize = 64 << 10;

/// Bytes that may pass between guest and host in one call that carries payload: rewritten values, tool results, ledger
/// lines.
pub const PAYLOAD_OUTPUT_BYTES: usize = 8 << 20;

/// Calls of the guest to the host within one call of the host to the guest. A policy reads each fact once or twice; a
/// sink writes one line per record.
pub const HOST_CALLS: u32 = 10_000;

/// Bytes of lines that a sink may write for one batch.
pub const BATCH_BYTES: usize = 64 << 20;

/// Bytes of one line in the operator's log.
pub const LOG_LINE_BYTES: usize = 4 << 10;

/// Lines in the operator's log within one call; further lines are dropped.
pub const LOG_LINES: u32 = 100;

/// The largest `.wasm` file, in bytes. Python with its standard library has 18 MB.
pub const COMPONENT_BYTES: u64 = 64 << 20;

/// Memory slots for decisions. One instance usually takes one slot.
pub const DECISION_SLOTS: u32 = 256;

/// Memory slots for tool sources, separate from those for decisions so that many sessions cannot starve the gate.
pub const TOOL_SLOTS: u32 = 320;

/// Memory slots for commands, which keep their slots as long as they run.
pub const COMMAND_SLOTS: u32 = 256;

/// The instances of one component source that run at once, and the sessions whose state it keeps, unless its `cell`
/// sets another number: enough that calls wait only under heavy load, and few enough that one source cannot take the
/// slots of all others.
pub const SOURCE_INSTANCES: u32 = 128;

/// The largest number of instances that a `cell` may set.
pub const SOURCE_INSTANCES_MOST: u32 = COMMAND_SLOTS;

/// The longest time that a call waits for a slot before it fails closed. A slot is normally free again in well under a
/// millisecond, so waiting this long means that the slots are held by guests that run into their deadlines.
pub const SLOT_WAIT: Duration = Duration::from_secs(5);

/// The longest time that a call waits for an earlier call of the same session: as long as six calls that run into their
/// deadline.
pub const SESSION_WAIT: Duration = Duration::from_secs(30);

/// Instances of a plugin that are kept ready, instantiated and configured. Two hide the start from a single caller.
pub const READY_INSTANCES: usize = 2;

/// Bytes of memory that a pooled slot keeps between uses instead of returning them to the system.
pub const KEEP_RESIDENT_BYTES: usize = 256 << 10;

/// The longest code of a denial, in bytes.
pub const CODE_BYTES: usize = 64;

/// The limits of one call into a guest.
#[derive(Debug, Clone, Copy)]
pub struct CallLimits {
    /// Processor time.
    pub deadline: Duration,
    /// Wall-clock time, for a guest that waits for the host.
    pub wall_clock: Duration,
    /// Bytes that may pass in one call.
    pub output: usize,
    /// True if these limits come from the configuration of a source: errors then name the setting.
    pub configured: bool,
}

impl CallLimits {
    /// The limits of starting an instance.
    pub const START: Self = Self::of(START_DEADLINE, PAYLOAD_OUTPUT_BYTES);
    /// The limits of one decision of a policy or an approval.
    pub const DECISION: Self = Self::of(DECISION_DEADLINE, DECISION_OUTPUT_BYTES);
    /// The limits of one rewriting by a transform, whose output is a payload.
    pub const REWRITE: Self = Self::of(DECISION_DEADLINE, PAYLOAD_OUTPUT_BYTES);
    /// The limits of one batch of records for a sink.
    pub const DELIVER: Self = Self::of(DELIVER_DEADLINE, PAYLOAD_OUTPUT_BYTES);

    /// Returns the limits of a component that is a source, with this processor time and output. It may wait for files
    /// and servers until the source's `timeout`, which applies to each call and is meant to end it; the wall-clock
    /// limit here is therefore longer.
    pub const fn tool(deadline: Duration, timeout: Duration, output: usize) -> Self {
        let wall_clock = timeout.saturating_add(WALL_CLOCK_GRACE);
        Self { configured: true, wall_clock, ..Self::of(deadline, output) }
    }

    const fn of(deadline: Duration, output: usize) -> Self {
        Self { deadline, wall_clock: deadline.saturating_add(WALL_CLOCK_GRACE), output, configured: false }
    }
}
