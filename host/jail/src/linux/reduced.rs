//! The reduced tier: no namespaces. Landlock restricts files, seccomp the network, and this process adopts and kills
//! what the source leaves behind.

use std::io;
use std::os::unix::net::UnixStream;

use rustix::process::{
    Pid, Signal, WaitOptions, geteuid, getpid, kill_process, set_child_subreaper, set_parent_process_death_signal, wait,
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
    // The closed connection reports the broker's end too, and leaves time to kill the rest.
    set_parent_process_death_signal(None).step("outlive the broker")?;
    let status = start_and_keep(ask, control, streams, Vec::new(), geteuid().as_raw());
    kill_descendants();
    Ok(end_as(status?.map_or(libc::SIGKILL, |status| status.as_raw())))
}

/// Kills every process beneath this one. Their children become its own and are killed in turn.
pub(super) fn kill_descendants() {
    loop {
        for child in children().unwrap_or_default() {
            // It may have ended meanwhile.
            let _ = kill_process(child, Signal::KILL);
        }
        if matches!(wait(WaitOptions::empty()), Err(rustix::io::Errno::CHILD)) {
            return;
        }
    }
}

fn children() -> io::Result<Vec<Pid>> {
    let own = getpid();
    let listed = std::fs::read_to_string(format!("/proc/self/task/{own}/children"))?;
    Ok(listed.split_ascii_whitespace().filter_map(|pid| pid.parse().ok().and_then(Pid::from_raw)).collect())
}
