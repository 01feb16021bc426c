//! The limits that several modules share: what a plugin may use, what a source may list. One place for every number, with its reason.

use std::time::Duration;

/// How long a source may take to end by itself before it is killed: long enough to flush a file, short enough that
/// Ctrl-C feels like one.
pub const CLOSE_DEADLINE: Duration = Duration::from_secs(3);

/// The most tools one source may offer: more than any known server has, fewer than would drown a model or the broker.
pub const MAX_TOOLS_PER_SOURCE: usize = 1_000;

/// The most prompts, resources or templates of one source. Servers of files list hundreds; beyond this they have templates.
pub const MAX_ITEMS_PER_SOURCE: usize = 10_000;

/// The largest definition of one item, in bytes. The largest known real one, of a tool, has 20 KiB.
pub const MAX_DEFINITION_BYTES: usize = 256 * 1024;

/// One tick of the clock that interrupts guests.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// Processor time for one decision, counted in ticks that the guest itself has seen, so that a busy machine kills no innocent.
/// A policy takes microseconds; an engine in an interpreted language takes a few milliseconds.
pub const DECISION_DEADLINE: Duration = Duration::from_millis(100);

/// Processor time for instantiating and configuring. Parsing a large rule set takes longer than applying it.
pub const START_DEADLINE: Duration = Duration::from_secs(2);

/// Processor time for one call of a component that is a source, unless its `cell` has a `cpu`: tools compute, policies compare.
pub const TOOL_DEADLINE: Duration = Duration::from_secs(5);

/// Processor time for one batch of ledger records.
pub const DELIVER_DEADLINE: Duration = Duration::from_secs(2);

/// Wall-clock time beyond the deadline, after which a call is given up even if its guest saw no tick: it waited in the host, or
/// was not scheduled.
pub(crate) const WALL_CLOCK_GRACE: Duration = Duration::from_secs(10);

/// Bytes of linear memory, over all memories of an instance. Guests in Rust need one to two MiB, in QuickJS or Python up to 13.
pub const MEMORY_BYTES: usize = 16 << 20;

/// The same for a component that is a source, unless its `cell` says otherwise: a server in Python with its libraries needs some
/// 30 MiB, and a source keeps for a session what a decision forgets.
pub const SOURCE_MEMORY_BYTES: u64 = 64 << 20;

/// Handles that an instance of a component holds at once: streams, files, sockets, what it waits for. Each may be a descriptor of
/// the broker, which may have fewer: see `descriptors`.
pub const WASI_HANDLES: usize = 256;

/// Bytes that wait between a command and the host, each way: as much as a pipe of the system holds.
pub(crate) const PIPE_BYTES: usize = 64 << 10;

/// Elements of one table. Python guests need 7,688.
pub const TABLE_ELEMENTS: usize = 10_000;

/// Memories, and tables, of one component.
pub(crate) const MEMORIES_PER_COMPONENT: u32 = 3;

/// Core modules in one component, with the shims that wit-component adds. Tools in Python have the most, 38.
pub(crate) const CORE_INSTANCES_PER_COMPONENT: u32 = 64;

/// Bytes that may cross between guest and host in one call of either: what a decision says is short.
pub const DECISION_OUTPUT_BYTES: usize = 64 << 10;

/// The same for whatever carries payload: rewritten values, tool results, ledger lines.
pub const PAYLOAD_OUTPUT_BYTES: usize = 8 << 20;

/// Calls of the guest to the host within one call of the host to the guest. A policy reads each fact once or twice; a sink
/// writes one line per record.
pub const HOST_CALLS: u32 = 10_000;

/// Bytes of lines that a sink may write in one batch.
pub const BATCH_BYTES: usize = 64 << 20;

/// Bytes of one line in the operator's log.
pub const LOG_LINE_BYTES: usize = 4 << 10;

/// Lines in the operator's log within one call; later ones are dropped.
pub const LOG_LINES: u32 = 100;

/// Bytes of a `.wasm` file. Python with its standard library has 18 MB.
pub const COMPONENT_BYTES: u64 = 64 << 20;

/// Memory slots for decisions. One instance usually takes one.
pub(crate) const DECISION_SLOTS: u32 = 256;

/// Memory slots for tool sources, apart from those of decisions so that many sessions cannot starve the gate.
pub(crate) const TOOL_SLOTS: u32 = 320;

/// Memory slots for commands, which keep theirs as long as they run.
pub(crate) const COMMAND_SLOTS: u32 = 256;

/// Instances of one component source that work at once, and sessions whose state it keeps, unless its `cell` says otherwise: so
/// many that no caller waits who is not one of a crowd, and no source has the slots of all others.
pub const SOURCE_INSTANCES: u32 = 128;

/// The most that a `cell` may say.
pub const SOURCE_INSTANCES_MOST: u32 = COMMAND_SLOTS;

/// How long a call waits for a slot before it fails closed. The slots turn over in well under a millisecond each, so that
/// waiting this long means that they are held by guests that run into their deadlines.
pub(crate) const SLOT_WAIT: Duration = Duration::from_secs(5);

/// How long a call waits for an earlier call of the same session: six that run into their deadline.
pub(crate) const SESSION_WAIT: Duration = Duration::from_secs(30);

/// Instances kept ready per plugin, instantiated and configured. Two hide the start from a caller who comes alone.
pub(crate) const STOCK: usize = 2;

/// Bytes of memory that a pooled slot keeps between uses instead of giving them back to the system.
pub(crate) const KEEP_RESIDENT_BYTES: usize = 256 << 10;

/// The longest code of a denial.
pub(crate) const CODE_BYTES: usize = 64;

/// Everything that bounds one call into a guest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Processor time.
    pub(crate) deadline: Duration,
    /// Time on the wall, for a guest that waits for the host.
    pub(crate) patience: Duration,
    /// Bytes that cross in one call.
    pub(crate) output: usize,
    /// Whether the configuration of a source says how much that is.
    pub(crate) configured: bool,
}

impl Limits {
    pub(crate) const START: Self = Self::of(START_DEADLINE, PAYLOAD_OUTPUT_BYTES);
    pub(crate) const DECISION: Self = Self::of(DECISION_DEADLINE, DECISION_OUTPUT_BYTES);
    pub(crate) const REWRITE: Self = Self::of(DECISION_DEADLINE, PAYLOAD_OUTPUT_BYTES);
    pub(crate) const DELIVER: Self = Self::of(DELIVER_DEADLINE, PAYLOAD_OUTPUT_BYTES);

    /// Of a component that is a source and has this much processor time and output. It may wait for files and servers; a call of
    /// its own has the source's `timeout` and no more, so that what is meant to end it does.
    pub(crate) const fn tool(deadline: Duration, timeout: Duration, output: usize) -> Self {
        let patience = timeout.saturating_add(WALL_CLOCK_GRACE);
        Self { configured: true, patience, ..Self::of(deadline, output) }
    }

    const fn of(deadline: Duration, output: usize) -> Self {
        Self { deadline, patience: deadline.saturating_add(WALL_CLOCK_GRACE), output, configured: false }
    }
}
