//! The reduced tier: no namespaces. Landlock restricts files, seccomp the network, and this process adopts and kills
//! what the source leaves behind.

use std::collections::HashSet;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, geteuid, getpid, kill_process, set_child_subreaper,
    set_parent_process_death_signal, wait, waitid,
};

use super::full::{end_as, start_and_keep};
use super::source::SourceStreams;
use crate::cell::Network;
use crate::launch::LaunchRequest;
use crate::report::CellRefusal;
use crate::step::{StepExt, refused};

/// Starts the source, waits for its end, and kills the processes that it left behind.
pub(super) fn run(ask: &LaunchRequest, control: &UnixStream, streams: SourceStreams) -> Result<i32, CellRefusal> {
    if geteuid().is_root() {
        let remedy = "start the broker as an ordinary user";
        return Err(refused("reduced tier", "without namespaces, root's rights cannot be taken from a source", remedy));
    }
    if ask.launch.cell.network != Network::None {
        let remedy = "remove `network` from its cell, or run it where namespaces are possible";
        return Err(refused("reduced tier", "it cannot tell hosts apart, so it gives no network", remedy));
    }
    if ask.launch.cell.recorded {
        let remedy = "record it where namespaces are possible";
        return Err(refused(
            "record system calls",
            "a reduced cell shows what the machine has, not what it grants",
            remedy,
        ));
    }
    set_child_subreaper(Some(getpid())).step("adopt what is left behind")?;
    // Without this list, nothing that the source leaves behind could be ended.
    children().step("list the processes of the cell (CONFIG_PROC_CHILDREN)")?;
    // The closed connection reports the broker's end too, and leaves time to kill the rest.
    set_parent_process_death_signal(None).step("outlive the broker")?;
    let status = start_and_keep(ask, control, streams, Vec::new(), geteuid().as_raw());
    kill_descendants();
    Ok(end_as(status?.map_or(libc::SIGKILL, |status| status.as_raw())))
}

/// The pause between two rounds of killing, in which those that were killed end.
const ROUND: Duration = Duration::from_micros(500);

/// Kills every process beneath this one, and reaps them once none of them runs. What was killed keeps its place among
/// the processes that the user may have until it is reaped, so a source that forks as fast as it is killed runs out of
/// places: each round ends at least one of its processes for good.
pub(super) fn kill_descendants() {
    let mut ended = HashSet::new();
    loop {
        // Children of a process that has ended are children of this one.
        let running: Vec<_> =
            children().unwrap_or_default().into_iter().filter(|child| !ended.contains(child)).collect();
        if running.is_empty() {
            break;
        }
        for child in running {
            if has_ended(child) {
                ended.insert(child);
            } else {
                // It may have ended meanwhile.
                let _ = kill_process(child, Signal::KILL);
            }
        }
        std::thread::sleep(ROUND);
    }
    while !matches!(wait(WaitOptions::empty()), Err(Errno::CHILD)) {}
}

/// Reports whether a child has ended, and leaves it to be reaped.
fn has_ended(child: Pid) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(child), look), Ok(Some(_)))
}

/// Returns the children of this process, those that have ended included.
fn children() -> io::Result<Vec<Pid>> {
    let own = getpid();
    let listed = std::fs::read_to_string(format!("/proc/self/task/{own}/children"))?;
    Ok(listed.split_ascii_whitespace().filter_map(|pid| pid.parse().ok().and_then(Pid::from_raw)).collect())
}
