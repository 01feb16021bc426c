//! The last steps of the process that becomes the source. It gives up its remaining rights here, and later steps need
//! none.

use std::convert::Infallible;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc;

use rustix::io::Errno;
use rustix::process::{Signal, getppid, set_parent_process_death_signal, setsid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};
use serde::{Deserialize, Serialize};

use super::deputy::WORKERS;
use super::landlock::RestrictedProcess;
use super::{landlock, limits, seccomp, sys};
use crate::cell::{MountAccess, Tier};
use crate::launch::{LaunchRequest, LaunchSpec};
use crate::report::CellRefusal;
use crate::step::{StepExt, refused};
use crate::wire;

/// The source's ends of its standard streams.
pub(super) struct SourceStreams {
    pub(super) input: OwnedFd,
    pub(super) output: OwnedFd,
    pub(super) error: OwnedFd,
}

/// The report of this process to the supervising one before `exec` closes its pipe.
#[derive(Serialize, Deserialize)]
pub(super) enum StartReport {
    /// Landlock is enforced, in this version.
    Restricted(u32),
    /// The source was not started.
    Refused(CellRefusal),
}

/// Becomes the source. If a step fails, reports that and ends instead; a rehearsal ends before the last step.
/// The listener of a cell that is recorded or has a deputy is sent over `line`.
pub(super) fn become_source(
    ask: &LaunchRequest,
    streams: SourceStreams,
    mut tell: io::PipeWriter,
    line: Option<UnixStream>,
    deputized: bool,
) -> ! {
    let status = match restrict(ask, &mut tell, line, deputized) {
        Ok(()) if ask.rehearsal => 0,
        Ok(()) => {
            let Err(refusal) = execute(&ask.launch, streams);
            say(&mut tell, &StartReport::Refused(refusal));
            super::FAILED
        }
        Err(refusal) => {
            say(&mut tell, &StartReport::Refused(refusal));
            super::FAILED
        }
    };
    std::process::exit(status)
}

fn say(tell: &mut io::PipeWriter, report: &StartReport) {
    // If the supervising process is gone, this one is killed with it.
    let _ = postcard::to_stdvec(report).map(|bytes| tell.write_all(&bytes));
}

fn restrict(
    ask: &LaunchRequest,
    tell: &mut io::PipeWriter,
    line: Option<UnixStream>,
    deputized: bool,
) -> Result<(), CellRefusal> {
    let launch = &ask.launch;
    set_parent_process_death_signal(Some(Signal::KILL)).step("die with the cell")?;
    setsid().step("own session")?;
    let shown = launch.directory.display();
    std::env::set_current_dir(&launch.directory).step(format_args!("change to the folder {shown}"))?;
    let helpers = if deputized { WORKERS } else { 0 };
    limits::apply(&launch.cell.limits, launch.cell.tier, helpers)?;
    // A cgroup limits processors more exactly.
    let processors = launch.cell.limits.cpu.filter(|_| !ask.cgroup);
    processors.map_or(Ok(()), limits::pin).step("limit processors")?;
    drop_capabilities(None).step("drop capabilities")?;
    set_no_new_privs(true).step("no new privileges")?;
    let recorded = launch.cell.recorded;
    // In a recorded cell the recorder's listener serves the deputy too.
    let listener = if deputized && !recorded { install_deputy_filter()? } else { None };
    let deputized = deputized && (recorded || listener.is_some());
    let holder = if deputized { RestrictedProcess::DeputizedSource } else { RestrictedProcess::Source };
    say(tell, &StartReport::Restricted(landlock::apply(&launch.cell, holder)?));
    let is_reduced = launch.cell.tier == Tier::Reduced;
    let writes = launch.cell.mounts.iter().any(|mount| mount.access == MountAccess::Write);
    let rules = seccomp::FilterOptions {
        internet: !is_reduced,
        pinned: processors.is_some(),
        counted: ask.cgroup,
        recorded,
        deputized,
        // Programs that may write to a folder change modes and times there, and seccomp cannot tell paths apart.
        fixed_attributes: is_reduced && !writes,
        supervisor: getppid().map_or(1, |parent| parent.as_raw_nonzero().get()),
        guards_signals: launch.cell.tier == Tier::FullViaBwrap,
    };
    match (line, listener) {
        (Some(line), None) if recorded => record(&line, rules)?,
        (Some(line), Some(listener)) => {
            seccomp::apply(rules).step("seccomp")?;
            wire::send(&line, &(), &[listener.as_fd()]).step("give changes to the deputy")?;
        }
        _ => seccomp::apply(rules).step("seccomp")?,
    }
    limits::limit_descriptors(&launch.cell.limits)
}

/// Installs the filter that gives changes to the deputy. Returns its listener, or `None` if the broker itself runs
/// under a listener, as in some containers: the kernel allows one only.
fn install_deputy_filter() -> Result<Option<OwnedFd>, CellRefusal> {
    match seccomp::install_deputy_filter() {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(None),
        listener => listener.map(Some).step("give changes to the deputy"),
    }
}

/// Installs the filters, the first of which has a listener, and sends that over `line`.
fn record(line: &UnixStream, rules: seccomp::FilterOptions) -> Result<(), CellRefusal> {
    let (give, given) = mpsc::channel::<OwnedFd>();
    // The message is itself a call that is recorded, so that a thread sends it which no filter binds. It is over before
    // the source begins.
    let send = move || given.recv().map_or(Ok(()), |listener| wire::send(line, &(), &[listener.as_fd()]));
    std::thread::scope(|scope| {
        let sender = std::thread::Builder::new().spawn_scoped(scope, send).step("report to the broker")?;
        // From here on each of the recorded calls waits for the listener. The filters that follow allow no other one.
        let listener = seccomp::record().step("record system calls");
        let installed = listener.and_then(|listener| {
            seccomp::apply(rules).step("seccomp")?;
            give.send(listener).map_err(io::Error::other).step("report to the broker")
        });
        // A sender that got nothing ends, too.
        drop(give);
        let sent = sender.join().unwrap_or_else(|_| Err(io::Error::other("the thread that sends it has failed")));
        installed.and_then(|()| sent.step("report to the broker"))
    })
}

/// Drops all capabilities, so that none can be gained from a file either. If one must be kept and this process has it,
/// it stays in use, and is not inherited.
pub(super) fn drop_capabilities(kept: Option<CapabilitySet>) -> rustix::io::Result<()> {
    for number in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Ok(()) => {}
            // There are no more capabilities.
            Err(Errno::INVAL) => break,
            // This process may not, as in the reduced tier; `no_new_privs` keeps files from giving capabilities there.
            Err(Errno::PERM) => break,
            Err(errno) => return Err(errno),
        }
    }
    clear_ambient_capability_set()?;
    let kept = kept.unwrap_or(CapabilitySet::empty()) & capabilities(None)?.permitted;
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() })
}

fn execute(launch: &LaunchSpec, streams: SourceStreams) -> Result<Infallible, CellRefusal> {
    let SourceStreams { input, output, error } = streams;
    rustix::stdio::dup2_stdin(input)
        .and_then(|()| rustix::stdio::dup2_stdout(output))
        .and_then(|()| rustix::stdio::dup2_stderr(error))
        .step("connect the standard streams")?;
    sys::default_signals();
    sys::close_on_exec_from(3).step("close descriptors")?;
    let mut command = Command::new(&launch.program);
    command.args(&launch.arguments).env_clear();
    command.envs(launch.environment.iter().map(|(name, value)| (name, value)));
    // Replaces this process; returns only on failure.
    let failure = command.exec();
    let shown = launch.program.display();
    if failure.kind() == io::ErrorKind::NotFound {
        let remedy = "it, or the interpreter that its first line names, is not in the cell: grant it with `read`";
        let mut refusal = refused(format_args!("execute {shown}"), &failure, remedy);
        refusal.errno = failure.raw_os_error();
        return Err(refusal);
    }
    Err(failure).step(format_args!("execute {shown}"))
}
