//! Validates the cell of a source: its access, and the resources that it may use.

use std::path::{Path, PathBuf};

use portcullis_core::limits::SOURCE_INSTANCES_MOST;
use portcullis_net::egress::{AllowedDestinations, Reach};

use super::build::{ProblemCollector, within};
use super::error::UnlocatedProblem;
use super::raw::{Located, RawCell};
use super::value;

/// The possible sizes of memory, in bytes: no runtime starts with less, and no present machine has more.
const MEMORY_LIMITS: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 42;

/// The most processes: the kernel's own bound on process ids.
const MAX_PROCESSES: u32 = 1 << 22;

/// The possible numbers of file descriptors: no runtime starts with fewer than 16, and the kernel's default ceiling is
/// 2^20.
const FILES_LIMITS: std::ops::RangeInclusive<u32> = 16..=1 << 20;

/// The most processors: more than any machine has.
const MAX_CPU: f64 = 4096.0;

/// The bytes that one call of a component may pass: at least a line of text, at most the largest message.
const OUTPUT_LIMITS: std::ops::RangeInclusive<u64> = 1 << 10..=1 << 30;

/// The files, hosts and resources that a source on this machine may use: the `cell` of a source. The default grants
/// nothing.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct CellConfig {
    /// Files and folders that it may read.
    #[serde(serialize_with = "super::digest::paths")]
    pub read: Vec<PathBuf>,
    /// Files and folders that it may read and write.
    #[serde(serialize_with = "super::digest::paths")]
    pub write: Vec<PathBuf>,
    /// Hosts that it may reach, as `host:port`.
    pub network: Vec<String>,
    /// Those of `network` that must have public addresses, whatever `dangerous_allow_private` is. No file says so, but
    /// `portcullis wrap`.
    pub public: Vec<String>,
    /// The memory limit, in bytes.
    pub memory: Option<u64>,
    /// The limit on processes and threads.
    pub processes: Option<u32>,
    /// The limit on processor use, in processors.
    pub cpu: Option<f64>,
    /// The limit on open file descriptors.
    pub files: Option<u32>,
    /// The size of `/tmp`, in bytes.
    pub tmp: Option<u64>,
    /// The limit on instances of a component that run at once.
    pub instances: Option<u32>,
    /// The limit on the bytes that one call of a component may pass between the component and the broker.
    pub output: Option<u64>,
    /// True if a reduced cell is accepted where the platform cannot build a full one.
    pub dangerous_allow_reduced: bool,
    /// `dangerous-allow-private` of the source: whether the hosts in `network` may have loopback or private addresses.
    pub dangerous_allow_private: bool,
    /// True if what the source attempts is recorded, which makes it slower. No file says so, but `portcullis learn`.
    pub recorded: bool,
}

impl CellConfig {
    /// Returns the destinations that the source may reach.
    pub fn destinations(&self) -> AllowedDestinations {
        AllowedDestinations::of_entries(&self.network).public(&self.public)
    }

    /// Returns which addresses the source's `network` may lead to.
    pub fn reach(&self) -> Reach {
        if self.dangerous_allow_private { Reach::Private } else { Reach::Public }
    }
}

/// The broker's own files, which may not be granted to any source (ARCHITECTURE.md, invariant 6).
pub(super) struct BrokerFiles<'a> {
    pub file: Option<&'a Path>,
    pub data_dir: &'a Path,
}

/// Validates a cell; every problem is added to `problems`.
pub(super) fn cell(raw: &RawCell, base: &Path, own: &BrokerFiles<'_>, problems: &mut ProblemCollector) -> CellConfig {
    let read = paths(&raw.read, base, own, PathAccess::Read, problems);
    let write = paths(&raw.write, base, own, PathAccess::Write, problems);
    let size = |at: &Option<Located<String>>, problems: &mut ProblemCollector| {
        let at = at.as_ref()?;
        let bytes = problems.keep(value::size(at))?;
        within(MEMORY_LIMITS.contains(&bytes), at, "size", "from 1MiB to 4096GiB are possible", problems)
            .then_some(bytes)
    };
    let memory = size(&raw.memory, problems);
    let tmp = size(&raw.tmp, problems);
    let output = raw.output.as_ref().and_then(|at| {
        let bytes = problems.keep(value::size(at))?;
        within(OUTPUT_LIMITS.contains(&bytes), at, "size", "from 1KiB to 1GiB are possible", problems).then_some(bytes)
    });
    let instances = raw.instances.as_ref().filter(|at| {
        let help = format!("from 1 to {SOURCE_INSTANCES_MOST} are possible");
        within((1..=SOURCE_INSTANCES_MOST).contains(&***at), at, "instances", &help, problems)
    });
    let processes = raw.processes.as_ref().filter(|at| {
        within((1..=MAX_PROCESSES).contains(&***at), at, "processes", "from 1 to 4194304 are possible", problems)
    });
    let cpu = raw.cpu.as_ref().filter(|at| {
        within(***at > 0.0 && ***at <= MAX_CPU, at, "cpu", "write how many processors, such as 1.0 or 0.5", problems)
    });
    let files = raw
        .files
        .as_ref()
        .filter(|at| within(FILES_LIMITS.contains(&***at), at, "files", "from 16 to 1048576 are possible", problems));
    CellConfig {
        read,
        write,
        network: raw.network.iter().filter_map(|at| problems.keep(value::network(at))).collect(),
        memory,
        processes: processes.map(|at| **at),
        cpu: cpu.map(|at| **at),
        files: files.map(|at| **at),
        tmp,
        instances: instances.map(|at| **at),
        output,
        dangerous_allow_reduced: raw.dangerous_allow_reduced.as_ref().is_some_and(|at| **at),
        ..CellConfig::default()
    }
}

/// Returns a problem for each key of a cell that does not apply to a source of this kind.
pub(super) fn inapplicable_keys<'a>(raw: &'a RawCell, kind: &'a str) -> impl Iterator<Item = UnlocatedProblem> + 'a {
    let (command, component) = ("command", "component");
    let keys = [
        (command, "processes", raw.processes.as_ref().map(Located::span), "a component cannot start any"),
        (command, "files", raw.files.as_ref().map(Located::span), "a component has no descriptors of the system"),
        (command, "tmp", raw.tmp.as_ref().map(Located::span), "a component has no folder that is not granted"),
        (
            command,
            "dangerous-allow-reduced",
            raw.dangerous_allow_reduced.as_ref().map(Located::span),
            "the cell of a component is the same on every platform",
        ),
        (component, "instances", raw.instances.as_ref().map(Located::span), "one process serves all calls"),
        (
            component,
            "output",
            raw.output.as_ref().map(Located::span),
            "`max-message` under `[broker]` bounds its answers",
        ),
    ];
    keys.into_iter().filter(move |(belongs, ..)| *belongs != kind).filter_map(move |(belongs, key, span, why)| {
        let problem = UnlocatedProblem::new(
            span?,
            format!("`{key}` belongs to the cell of a `{belongs}`, and this source has `{kind}`"),
        );
        Some(problem.help(format!("remove `{key}`: {why}")))
    })
}

#[derive(Clone, Copy, PartialEq)]
enum PathAccess {
    Read,
    Write,
}

/// Validates the paths of a cell, and refuses those that would open the broker's own files.
fn paths(
    list: &[Located<String>],
    base: &Path,
    own: &BrokerFiles<'_>,
    access: PathAccess,
    problems: &mut ProblemCollector,
) -> Vec<PathBuf> {
    let check = |at: &Located<String>| {
        let path = value::path(at, base)?;
        let refuse = |what: &str, help: &str| {
            Err(UnlocatedProblem::new(at.span(), format!("path {:?} {what}", at.as_str())).help(help))
        };
        if own.data_dir.starts_with(&path) || path.starts_with(own.data_dir) {
            return refuse(
                "would open the broker's data folder, with its secrets and its ledger, to the source",
                "name smaller folders, or move the data folder away with `data-dir` under `[broker]`",
            );
        }
        if access == PathAccess::Write && own.file.is_some_and(|file| file.starts_with(&path)) {
            return refuse(
                "would let the source rewrite this configuration",
                "name smaller folders, or keep the configuration elsewhere",
            );
        }
        Ok(path)
    };
    list.iter().filter_map(|at| problems.keep(check(at))).collect()
}
