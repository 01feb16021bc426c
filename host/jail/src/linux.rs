//! The launcher on Linux. It is single-threaded from start to end.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::process::{Signal, getppid, set_parent_process_death_signal, setsid};

use crate::cell::Tier;
use crate::fork_server::Forked;
use crate::launch::LaunchRequest;
use crate::report::CellRefusal;
use crate::step::{StepExt, refused};
use crate::wire;
pub use recorded::{Operation, RecordedSyscall, recorded_call};
pub use seccomp::denied_call;
use source::SourceStreams;
use sys::Fork;
pub use syscall_listener::{Syscall, SyscallListener};

mod bwrap;
mod deputy;
mod full;
mod grants;
mod idmap;
mod landlock;
mod limits;
mod memory;
mod network;
mod performed;
mod recorded;
mod reduced;
mod root;
mod seccomp;
mod source;
mod supervisor;
mod sys;
mod syscall_listener;

/// The exit status of a launcher that refused.
const FAILED: i32 = 126;

/// Serves the broker: makes a copy of this process for each control connection that comes over standard input. The copy
/// is a child of the broker, builds the cell that the broker asks for, and waits for its end. Returns the exit status.
pub(crate) fn run() -> i32 {
    match serve() {
        Ok(None) => 0,
        Ok(Some(control)) => build_and_wait(&control),
        Err(error) => {
            eprintln!("portcullis-jail is started by the broker, not by hand: {error}");
            FAILED
        }
    }
}

/// Returns the control connection in a copy, and `None` once the broker has closed its end of standard input. Nothing
/// about a cell is read before there is a copy, so no copy holds anything of another cell.
fn serve() -> io::Result<Option<UnixStream>> {
    let connection = take_connection()?;
    // The signals of the broker's terminal are not for this process. It may lead its group already.
    let _ = setsid();
    loop {
        let control = match wire::receive::<()>(&connection) {
            Ok(((), descriptors)) => descriptors.into_iter().next().ok_or(io::ErrorKind::InvalidData)?,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        };
        let forked: Forked = match sys::fork_sibling() {
            Ok(Fork::Child) => return Ok(Some(control.into())),
            Ok(Fork::Parent(copy)) => Ok(copy.as_raw_nonzero().get()),
            Err(error) => Err(error.raw_os_error().unwrap_or(libc::EAGAIN)),
        };
        wire::send(&connection, &forked, &[])?;
    }
}

/// Does in a cell that bubblewrap has made what bubblewrap does not. Returns the exit status.
pub(crate) fn run_inside() -> i32 {
    match take_connection().and_then(|outside| Ok((receive_request(&outside)?, outside))) {
        Ok((CellRequest { ask, streams, passed: Some(control) }, outside)) => {
            let control = UnixStream::from(control);
            let built = bwrap::inside(&ask, &control, streams, outside);
            built.unwrap_or_else(|refusal| refuse(&control, refusal))
        }
        // The connection closes without an answer, which the launcher outside reports as a failure.
        _ => FAILED,
    }
}

/// Builds the cell that the broker asks for over its control connection, and waits for its end. Returns the exit
/// status.
fn build_and_wait(control: &UnixStream) -> i32 {
    // Without a request the connection closes without an answer, which the broker reports as a failure.
    let Ok(request) = receive_request(control) else { return FAILED };
    build(request, control).unwrap_or_else(|refusal| refuse(control, refusal))
}

fn build(CellRequest { ask, streams, passed }: CellRequest, control: &UnixStream) -> Result<i32, CellRefusal> {
    detach(ask.parent)?;
    if let Some(open_procs_file) = passed {
        File::from(open_procs_file).write_all(b"0").step("own cgroup")?;
    }
    match ask.launch.cell.tier {
        Tier::Full => full::run(&ask, control, streams),
        Tier::FullViaBwrap => bwrap::run(&ask, control, streams),
        Tier::Reduced => reduced::run(&ask, control, streams),
    }
}

/// Takes the connection from standard input, which becomes `/dev/null`.
fn take_connection() -> io::Result<UnixStream> {
    sys::notice_ends_of_children();
    sys::close_from(3)?;
    let connection = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    rustix::stdio::dup2_stdin(rustix::stdio::stdout())?;
    Ok(connection.into())
}

/// The request for one cell, with its descriptors.
struct CellRequest {
    ask: LaunchRequest,
    streams: SourceStreams,
    /// The file by which a process enters the cell's cgroup, if it has one; inside bubblewrap, the control connection.
    passed: Option<OwnedFd>,
}

fn receive_request(connection: &UnixStream) -> io::Result<CellRequest> {
    let (ask, descriptors) = wire::receive(connection)?;
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or(io::Error::from(io::ErrorKind::InvalidData));
    let streams = SourceStreams { input: next()?, output: next()?, error: next()? };
    Ok(CellRequest { ask, streams, passed: descriptors.next() })
}

/// Detaches this process from the session that the broker was started in.
fn detach(parent: i32) -> Result<(), CellRefusal> {
    setsid().step("own session")?;
    die_with_parent(parent)?;
    // When the machine runs out of memory, the kernel kills a source first. A container may forbid this setting.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    match sys::new_session_keyring() {
        // The kernel has no keyrings, or a container forbids them: there is nothing to leave.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => Ok(()),
        done => done.step("own keyring"),
    }
}

fn die_with_parent(parent: i32) -> Result<(), CellRefusal> {
    set_parent_process_death_signal(Some(Signal::KILL)).step("die with the broker")?;
    // The parent may have ended before the line above; the signal will then never come.
    if getppid().map(|pid| pid.as_raw_nonzero().get()) == Some(parent) {
        Ok(())
    } else {
        Err(refused("die with the broker", "the broker ended before its source had started", "start it again"))
    }
}

/// Tells the broker why there is no cell. Returns the exit status.
fn refuse(control: &UnixStream, refusal: CellRefusal) -> i32 {
    // A broker that is gone needs no answer.
    let _ = wire::send(control, &Err::<crate::report::EnforcementReport, _>(refusal), &[]);
    FAILED
}
