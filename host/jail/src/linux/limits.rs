//! The limits that the kernel enforces for each process.

use std::fs::DirEntry;
use std::os::unix::fs::MetadataExt;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::cell::{CellLimits, Tier};
use crate::report::CellRefusal;
use crate::step::StepExt;

/// Bytes that can be locked in memory: enough for programs that lock their keys.
const LOCKED_BYTES: u64 = 8 << 20;

/// Bytes of the stack of a first thread, which no other limit counts: the usual default.
const STACK_BYTES: u64 = 8 << 20;

/// Signals and timers that may wait: far more than programs use.
const SIGNALS: u64 = 1024;

/// Limits the descriptors of this process. To be called after the last one was sent to another process: the kernel
/// refuses to send one if the user's processes together have more on their way than the sender may have open.
pub(super) fn limit_descriptors(limits: &CellLimits) -> Result<(), CellRefusal> {
    bound(Resource::Nofile, limits.files.into()).step("limit descriptors")
}

/// Limits this process, except for its descriptors. `helpers` are threads of the launcher that do not count.
pub(super) fn apply(limits: &CellLimits, tier: Tier, helpers: u32) -> Result<(), CellRefusal> {
    // Without its own user namespace, the user's other processes count too.
    let beside = u64::from(helpers) + if tier == Tier::Reduced { threads_of_user() } else { 0 };
    let limited = [
        // Not the address space: language runtimes reserve far more of it than they use.
        (Resource::Data, limits.memory, "limit memory"),
        (Resource::Nproc, beside + u64::from(limits.processes), "limit processes"),
        (Resource::Fsize, limits.file_size, "limit the size of files"),
        (Resource::Memlock, LOCKED_BYTES, "limit locked memory"),
        (Resource::Stack, STACK_BYTES, "limit the stack"),
        // Some users may raise priorities, for sound; a source could then take a processor from everything else.
        (Resource::Rtprio, 0, "limit priorities"),
        (Resource::Nice, 0, "limit priorities"),
        // A core dump would copy the source's secrets to a place that the machine chooses. The kernel ignores 0 where a
        // program takes the dumps, and runs no such program for 1 (core(5)).
        (Resource::Core, 1, "limit cores"),
        (Resource::Msgqueue, 0, "limit message queues"),
        // The kernel counts them for all processes of a user together, timers among them.
        (Resource::Sigpending, SIGNALS, "limit signals"),
    ];
    for (resource, value, step) in limited {
        bound(resource, value).step(step)?;
    }
    Ok(())
}

/// Returns how many processes and threads the user has now. A folder in `/proc` has a link for each folder in it, and
/// two more.
fn threads_of_user() -> u64 {
    let user = rustix::process::geteuid().as_raw();
    let threads = |process: std::io::Result<DirEntry>| {
        let tasks = process.ok()?.path().join("task").metadata().ok()?;
        (tasks.uid() == user).then(|| tasks.nlink().saturating_sub(2))
    };
    std::fs::read_dir("/proc").into_iter().flatten().filter_map(threads).sum()
}

/// Sets a limit, but never above the broker's own.
fn bound(resource: Resource, value: u64) -> rustix::io::Result<()> {
    let value = Some(getrlimit(resource).maximum.map_or(value, |own| value.min(own)));
    setrlimit(resource, Rlimit { current: value, maximum: value })
}

/// Restricts this process to this number of its processors, rounded up. The clock chooses which ones, so that many
/// sources spread over all of them. seccomp keeps the source from changing that.
pub(super) fn pin(processors: f64) -> rustix::io::Result<()> {
    let own = sched_getaffinity(None)?;
    let possible: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&processor| own.is_set(processor)).collect();
    let micros = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_micros());
    let first = usize::try_from(micros).unwrap_or_default() % possible.len().max(1);
    let mut chosen = CpuSet::new();
    let mut left = processors;
    for &processor in possible.iter().cycle().skip(first).take(possible.len()) {
        if left > 0.0 {
            chosen.set(processor);
        }
        left -= 1.0;
    }
    sched_setaffinity(None, &chosen)
}
