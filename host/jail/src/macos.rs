//! The launcher on macOS: the reduced tier only, by Seatbelt. Not tested, since the project has no such machine.
//!
//! This process starts the source under `sandbox-exec` and kills its process group when the broker closes the
//! connection. A process that leaves the group outlives it.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process_group, setrlimit};

use crate::cell::{CellLimits, Network, Tier};
use crate::launch::{LaunchRequest, TERMINATE};
use crate::report::{CellRefusal, EnforcementReport};
use crate::seatbelt::profile;
use crate::step::{StepExt, refused};
use crate::wire;

/// Part of every macOS so far, though marked as deprecated for years.
const SANDBOX: &str = "/usr/bin/sandbox-exec";

/// The program that replaces the source in a rehearsal.
const NOTHING: &str = "/usr/bin/true";

/// The exit status of a launcher that refused.
const FAILED: i32 = 126;

/// Builds the cell that the request on standard input describes, and waits for its end. Returns the exit status.
pub(crate) fn run() -> i32 {
    let (ask, control, streams) = match receive_request() {
        Ok(received) => received,
        Err(error) => {
            eprintln!("portcullis-jail is started by the broker, not by hand: {error}");
            return FAILED;
        }
    };
    let child = match start(&ask, streams) {
        Ok(child) => child,
        Err(refusal) => {
            // A broker that is gone needs no answer.
            let _ = wire::send(&control, &Err::<EnforcementReport, _>(refusal), &[]);
            return FAILED;
        }
    };
    let enforced = EnforcementReport {
        landlock: 0,
        cgroup: false,
        protects_names: !ask.launch.cell.protected_names.is_empty(),
        user: rustix::process::geteuid().as_raw(),
    };
    // If the broker is gone, the closed connection shows below.
    let _ = wire::send(&control, &Ok::<_, CellRefusal>(enforced), &[]);
    supervise(child, control)
}

fn receive_request() -> io::Result<(LaunchRequest, UnixStream, [Stdio; 3])> {
    close_descriptors();
    let control = UnixStream::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?);
    rustix::stdio::dup2_stdin(rustix::stdio::stdout())?;
    let (ask, descriptors) = wire::receive(&control)?;
    for descriptor in &descriptors {
        rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)?;
    }
    let streams: Result<[_; 3], _> = descriptors.try_into();
    let streams = streams.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok((ask, control, streams.map(Stdio::from)))
}

fn start(ask: &LaunchRequest, [input, output, error]: [Stdio; 3]) -> Result<Child, CellRefusal> {
    let launch = &ask.launch;
    if launch.cell.tier != Tier::Reduced {
        let remedy = "accept the reduced tier with `dangerous-allow-reduced`, or run the broker on Linux";
        return Err(refused("namespaces", "macOS has none", remedy));
    }
    if launch.cell.network != Network::None {
        return Err(refused("reduced tier", "it gives no network", "remove `network` from its cell"));
    }
    if launch.cell.recorded {
        return Err(refused("record system calls", "macOS cannot", "record it on Linux"));
    }
    if rustix::process::geteuid().is_root() {
        return Err(refused(
            "reduced tier",
            "it cannot take root's rights away",
            "start the broker as an ordinary user",
        ));
    }
    limit(&launch.cell.limits).step("limits")?;
    let mut command = Command::new(SANDBOX);
    command.arg("-p").arg(profile(&launch.cell, &launch.program)).env_clear().process_group(0);
    if ask.rehearsal {
        let status = command.arg(NOTHING).status().step("seatbelt")?;
        return match status.success() {
            true => Command::new(NOTHING).spawn().step("seatbelt"),
            false => Err(refused("seatbelt", format_args!("{SANDBOX} ended with {status}"), "use another system")),
        };
    }
    command.arg(&launch.program).args(&launch.arguments).current_dir(&launch.directory);
    command.envs(launch.environment.iter().map(|(name, value)| (name, value)));
    command.stdin(input).stdout(output).stderr(error).spawn().step("start the source")
}

/// Sets the limits that count per process. The number of processes counts for the whole user, so limiting it would
/// affect others.
fn limit(limits: &CellLimits) -> rustix::io::Result<()> {
    let limited = [
        (Resource::Data, limits.memory),
        (Resource::Fsize, limits.file_size),
        (Resource::Core, 0),
        (Resource::Nofile, limits.files.into()),
    ];
    for (resource, value) in limited {
        let value = Some(getrlimit(resource).maximum.map_or(value, |own| value.min(own)));
        setrlimit(resource, Rlimit { current: value, maximum: value })?;
    }
    Ok(())
}

/// Waits for the end of the source, and on another thread for the broker's requests.
fn supervise(mut child: Child, mut control: UnixStream) -> i32 {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // The source leads its process group. An empty group is not an error.
    let signal = move |signal| {
        let _ = group.map(|group| kill_process_group(group, signal));
    };
    std::thread::spawn(move || {
        let mut word = [0];
        while matches!(control.read(&mut word), Ok(1)) {
            if word == [TERMINATE] {
                signal(Signal::TERM);
            }
        }
        signal(Signal::KILL);
    });
    let status = child.wait();
    signal(Signal::KILL);
    status.map_or(FAILED, |status| status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()))
}

/// Closes everything above standard error.
fn close_descriptors() {
    /// More than any process has open by accident; closing further numbers takes time.
    const MOST: u64 = 65_536;
    let limit = getrlimit(Resource::Nofile).current.map_or(MOST, |limit| limit.min(MOST));
    for descriptor in 3..i32::try_from(limit).unwrap_or(i32::MAX) {
        // SAFETY: this process is single-threaded and has opened nothing itself, so no object exists that owns the
        // descriptor; closing one that is not open is an error that changes nothing.
        unsafe { libc::close(descriptor) };
    }
}
