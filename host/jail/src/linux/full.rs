//! The full tier has three processes. The outermost is the one that the broker knows; it waits. The second is the first
//! process of its namespaces; it builds the cell and supervises it. The third becomes the source.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::fchown;
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getegid, geteuid, getpid, kill_process,
    pidfd_open, set_dumpable_behavior, set_parent_process_death_signal, waitpid,
};
use rustix::thread::{
    CapabilitySet, Gid, Uid, UnshareFlags, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use super::deputy::{CallSource, Deputy};
use super::grants::{self, DetachedMount};
use super::idmap::{IdMappings, NOBODY_ELSE};
use super::memory::MemoryWatcher;
use super::source::{SourceStreams, StartReport, become_source, drop_capabilities};
use super::supervisor::{MemoryLimit, supervise};
use super::sys::{Fork, child_ends, fork, unshare};
use super::syscall_listener::SyscallListener;
use super::{die_with_parent, network, root};
use crate::cell::{Tier, USER};
use crate::launch::LaunchRequest;
use crate::report::{CellRefusal, EnforcementReport};
use crate::step::{StepExt, refused};
use crate::wire;

/// All namespaces of Linux except that of time.
const NAMESPACES: UnshareFlags = UnshareFlags::NEWUSER
    .union(UnshareFlags::NEWNS)
    .union(UnshareFlags::NEWPID)
    .union(UnshareFlags::NEWNET)
    .union(UnshareFlags::NEWIPC)
    .union(UnshareFlags::NEWUTS)
    .union(UnshareFlags::NEWCGROUP);

/// Builds the cell and waits for its end.
pub(super) fn run(ask: &LaunchRequest, control: &UnixStream, streams: SourceStreams) -> Result<i32, CellRefusal> {
    let opened = if geteuid().is_root() { Some(open_and_step_down(ask, &streams)?) } else { None };
    let (user, group) = (geteuid(), getegid());
    unshare(NAMESPACES).step("namespaces")?;
    map(user, group).step("map the user")?;
    let (ended, tell) = io::pipe().step("pipe")?;
    match fork().step("fork")? {
        Fork::Child => {
            drop(ended);
            first_process(ask, opened, control, streams, tell, user)
        }
        Fork::Parent(first) => {
            // While this process holds them, the broker does not see the end of the streams.
            drop((opened, streams, tell));
            set_dumpable_behavior(DumpableBehavior::NotDumpable).step("hide memory")?;
            watch(first, control).step("watch the cell")?;
            Ok(end_as(wait_for(first, ended)))
        }
    }
}

/// Opens the granted files with root's rights, then becomes an unprivileged user. Only a launcher that was started as
/// root uses this.
fn open_and_step_down(ask: &LaunchRequest, streams: &SourceStreams) -> Result<Vec<DetachedMount>, CellRefusal> {
    let grants = grants::open(&ask.launch.cell.mounts, Some(&mut IdMappings::default()))?;
    let (user, group) = (Uid::from_raw(NOBODY_ELSE), Gid::from_raw(NOBODY_ELSE));
    // Opening a stream by name (`/dev/stderr`) checks its owner.
    for stream in [&streams.input, &streams.output, &streams.error] {
        fchown(stream, Some(user), Some(group)).step("give the standard streams to the source")?;
    }
    set_thread_groups(&[])
        .and_then(|()| set_thread_res_gid(group, group, group))
        .and_then(|()| set_thread_res_uid(user, user, user))
        .step("become an unprivileged user")?;
    // Changing the user cleared this flag, and with it the right to write the maps of new namespaces.
    set_dumpable_behavior(DumpableBehavior::Dumpable).step("become an unprivileged user")?;
    die_with_parent(ask.parent)?;
    Ok(grants)
}

fn map(user: Uid, group: Gid) -> io::Result<()> {
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{USER} {} 1\n", user.as_raw()))?;
    std::fs::write("/proc/self/gid_map", format!("{USER} {} 1\n", group.as_raw()))
}

/// Waits until the first process has ended or the broker has closed the connection, then kills that process. The kernel
/// lets it be reaped only after everything in its namespace is gone.
pub(super) fn watch(first: Pid, control: &UnixStream) -> rustix::io::Result<()> {
    let ended = pidfd_open(first, PidfdFlags::empty())?;
    loop {
        // Poll reports a closed connection without being asked to. Data from the broker is read by the supervising
        // process.
        let mut awaited = [PollFd::new(control, PollFlags::empty()), PollFd::new(&ended, PollFlags::IN)];
        match poll(&mut awaited, None) {
            Err(Errno::INTR) => {}
            waited => return waited.and_then(|_| kill_process(first, Signal::KILL)),
        }
    }
}

/// Reaps the first process of the cell. Returns the raw exit status of the source: the one read from `ended`, or else
/// that of the first process.
pub(super) fn wait_for(first: Pid, mut ended: impl Read) -> i32 {
    let mut raw = [0; 4];
    let told = ended.read_exact(&mut raw);
    let status = loop {
        match waitpid(Some(first), WaitOptions::empty()) {
            Err(Errno::INTR) => {}
            Ok(Some((_, status))) => break status.as_raw(),
            // This is its only parent, so no other process can have reaped it.
            _ => break libc::SIGKILL,
        }
    };
    told.map_or(status, |()| i32::from_ne_bytes(raw))
}

/// Kills this process by the signal that a raw status names, or returns the exit status to end with.
pub(super) fn end_as(raw: i32) -> i32 {
    let status = ExitStatus::from_raw(raw);
    if let Some(signal) = status.signal().and_then(Signal::from_named_raw) {
        super::sys::default_signals();
        // If the signal does not end a process, the exit status below reports the same.
        let _ = kill_process(getpid(), signal);
    }
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

fn first_process(
    ask: &LaunchRequest,
    opened: Option<Vec<DetachedMount>>,
    control: &UnixStream,
    streams: SourceStreams,
    tell: io::PipeWriter,
    user: Uid,
) -> ! {
    let status = match build_and_keep(ask, opened, control, streams, tell, user) {
        Ok(()) => 0,
        Err(refusal) => super::refuse(control, refusal),
    };
    std::process::exit(status)
}

fn build_and_keep(
    ask: &LaunchRequest,
    opened: Option<Vec<DetachedMount>>,
    control: &UnixStream,
    streams: SourceStreams,
    mut tell: io::PipeWriter,
    user: Uid,
) -> Result<(), CellRefusal> {
    set_parent_process_death_signal(Some(Signal::KILL)).step("set the parent-death signal")?;
    let cell = &ask.launch.cell;
    let grants = match opened {
        Some(grants) => grants,
        None => grants::open(&cell.mounts, None)?,
    };
    root::build(cell, grants)?;
    rustix::system::sethostname(b"cell").step("own host name")?;
    let listeners = network::build(&cell.network)?;
    let status = start_and_keep(ask, control, streams, listeners, user.as_raw())?;
    // If the broker has closed the connection, the source is killed as this process ends.
    let raw = status.map_or(libc::SIGKILL, WaitStatus::as_raw);
    // If the outermost process is gone, this one is killed with it.
    let _ = tell.write_all(&raw.to_ne_bytes());
    Ok(())
}

/// Starts the source, reports that it is ready, and supervises it. To be called by the process whose end ends the cell.
pub(super) fn start_and_keep(
    ask: &LaunchRequest,
    control: &UnixStream,
    streams: SourceStreams,
    listeners: Vec<OwnedFd>,
    user: u32,
) -> Result<Option<WaitStatus>, CellRefusal> {
    let ends = child_ends().step("watch for ends")?;
    let (reports, tell) = io::pipe().step("pipe")?;
    let deputy = Deputy::of(&ask.launch.cell)?;
    let deputized = deputy.is_some();
    let listened = ask.launch.cell.recorded || deputized;
    let line = listened.then(UnixStream::pair).transpose().step("pipe")?;
    let source = match fork().step("fork")? {
        Fork::Child => become_source(ask, streams, tell, line.map(|(_, ours)| ours), deputized),
        Fork::Parent(source) => source,
    };
    let SourceStreams { input, output, error } = streams;
    drop((input, output, tell));
    // In the reduced tier this process would also count processes outside the cell.
    let together = !ask.cgroup && ask.launch.cell.tier != Tier::Reduced;
    let watch = together.then(|| MemoryLimit {
        memory: ask.launch.cell.limits.memory,
        stderr: error.into(),
        watcher: MemoryWatcher::default(),
    });
    set_dumpable_behavior(DumpableBehavior::NotDumpable).step("hide memory")?;
    // A deputy also reads the memory of processes that hide it from others.
    drop_capabilities(deputized.then_some(CapabilitySet::SYS_PTRACE)).step("drop capabilities")?;
    let mut protects_names = false;
    if let Some((line, theirs)) = line {
        drop(theirs);
        protects_names = listen(&line, deputy, ask.launch.cell.recorded.then_some(control))?;
    }
    let landlock = listen_to(reports)?;
    let enforced = EnforcementReport { landlock, cgroup: ask.cgroup, protects_names, user };
    let sockets: Vec<BorrowedFd<'_>> = listeners.iter().map(AsFd::as_fd).collect();
    wire::send(control, &Ok::<_, CellRefusal>(enforced), &sockets).step("report to the broker")?;
    // Only the broker may hold the sockets, so that closing them is up to it.
    drop(listeners);
    Ok(supervise(source, control, &ends, watch))
}

/// Takes the listener of the process that becomes the source, hands it to the broker if that records the source, and
/// starts the deputy. Returns whether there is one. If that process was refused before it had a listener, its report
/// says why.
fn listen(line: &UnixStream, deputy: Option<Deputy>, recorder: Option<&UnixStream>) -> Result<bool, CellRefusal> {
    const STEP: &str = "hand over the listener";
    let Ok(((), listener)) = wire::receive::<()>(line) else { return Ok(false) };
    let Some(listener) = listener.into_iter().next() else { return Ok(false) };
    let tell = |descriptors: &[BorrowedFd<'_>]| match recorder {
        Some(control) => wire::send(control, &Ok::<_, CellRefusal>(()), descriptors).step(STEP),
        None => Ok(()),
    };
    let is_deputized = deputy.is_some();
    match (deputy, recorder) {
        (None, _) => tell(&[listener.as_fd()])?,
        (Some(deputy), None) => deputy.start(CallSource::Own(SyscallListener::of_deputy(listener)))?,
        (Some(deputy), Some(_)) => {
            let (from, to) = UnixStream::pair().step(STEP)?;
            tell(&[listener.as_fd(), to.as_fd()])?;
            deputy.start(CallSource::Forwarded(SyscallListener::of_deputy(listener), from.into()))?;
        }
    }
    Ok(is_deputized)
}

/// Reads what the process that becomes the source reports, until `exec` closes its pipe. Returns the version of
/// Landlock.
fn listen_to(mut reports: io::PipeReader) -> Result<u32, CellRefusal> {
    let mut said = Vec::new();
    reports.read_to_end(&mut said).step("read the report of the source's start")?;
    let mut rest = said.as_slice();
    let mut landlock = None;
    while let Ok((word, more)) = postcard::take_from_bytes(rest) {
        match word {
            StartReport::Restricted(version) => landlock = Some(version),
            StartReport::Refused(refusal) => return Err(refusal),
        }
        rest = more;
    }
    landlock.ok_or_else(|| {
        refused("become the source", "it ended before the program was executed", "is its `memory` enough to start?")
    })
}
