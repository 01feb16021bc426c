//! The launcher on Linux. It is single-threaded from start to end.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;

use rustix::process::{Signal, getppid, set_parent_process_death_signal, setsid};

use crate::cell::Tier;
use crate::launch::LaunchRequest;
use crate::report::CellRefusal;
use crate::step::{StepExt, refused};
use crate::wire;
pub use recorded::{Operation, RecordedSyscall, recorded_call};
pub use seccomp::denied_call;
use source::SourceStreams;
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

/// Builds the cell that the request on standard input describes, and waits for its end. Returns the exit status.
pub(crate) fn run() -> i32 {
    let received = match receive_request() {
        Ok(received) => received,
        Err(error) => {
            eprintln!("portcullis-jail is started by the broker, not by hand: {error}");
            return FAILED;
        }
    };
    let told = received.control.try_clone();
    match (build(received), told) {
        (Ok(status), _) => status,
        (Err(refusal), Ok(control)) => {
            refuse(&control, refusal);
            FAILED
        }
        // The connection closes without an answer, which the broker reports as a failure.
        (Err(_), Err(_)) => FAILED,
    }
}

/// The request that came over standard input, with its descriptors.
struct Received {
    ask: LaunchRequest,
    streams: SourceStreams,
    /// The control connection to the broker.
    control: UnixStream,
    /// Inside bubblewrap, the connection to the launcher outside.
    outside: Option<UnixStream>,
    /// The file by which a process enters the cell's cgroup.
    cgroup: Option<File>,
}

fn build(Received { ask, streams, control, outside, cgroup }: Received) -> Result<i32, CellRefusal> {
    if let Some(outside) = outside {
        return bwrap::inside(&ask, &control, streams, outside);
    }
    detach(ask.parent)?;
    if let Some(mut open_procs_file) = cgroup {
        open_procs_file.write_all(b"0").step("own cgroup")?;
    }
    match ask.launch.cell.tier {
        Tier::Full => full::run(&ask, control, streams),
        Tier::FullViaBwrap => bwrap::run(&ask, &control, streams),
        Tier::Reduced => reduced::run(&ask, &control, streams),
    }
}

/// Takes the connection from standard input, which becomes `/dev/null`, and reads the request from it.
fn receive_request() -> io::Result<Received> {
    sys::close_from(3)?;
    let line = UnixStream::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?);
    rustix::stdio::dup2_stdin(rustix::stdio::stdout())?;
    let (ask, descriptors) = wire::receive::<LaunchRequest>(&line)?;
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or(io::Error::from(io::ErrorKind::InvalidData));
    let streams = SourceStreams { input: next()?, output: next()?, error: next()? };
    let (control, outside, cgroup) = if ask.inside {
        (next()?.into(), Some(line), None)
    } else {
        let cgroup = ask.cgroup.then(next).transpose()?;
        (line, None, cgroup.map(File::from))
    };
    Ok(Received { ask, streams, control, outside, cgroup })
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

fn refuse(control: &UnixStream, refusal: CellRefusal) {
    // A broker that is gone needs no answer.
    let _ = wire::send(control, &Err::<crate::report::EnforcementReport, _>(refusal), &[]);
}
