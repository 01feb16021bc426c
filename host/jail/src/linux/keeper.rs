//! The process that keeps a cell: it waits for the source's end and for the broker to hang up, and reaps whoever is left
//! behind. When it ends, the kernel kills everything in the cell.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group, wait};

use crate::launch::TERMINATE;

/// Keeps the cell until the source has ended, and says how; None if the broker hung up before. `ends` is readable when a
/// child has ended.
pub(super) fn keep(source: Pid, control: &UnixStream, ends: &OwnedFd) -> Option<WaitStatus> {
    loop {
        if let Some(status) = reap(source) {
            return Some(status);
        }
        let mut awaited = [PollFd::new(control, PollFlags::IN), PollFd::new(ends, PollFlags::IN)];
        // Interrupted or failed, what follows finds out what is the case.
        let _ = poll(&mut awaited, None);
        let [called, ended] = awaited.map(|descriptor| !descriptor.revents().is_empty());
        if ended {
            // Only says that somebody ended; who, the next round asks.
            let _ = rustix::io::read(ends.as_fd(), &mut [0_u8; 128]);
        }
        if called {
            let mut word = [0; 16];
            match { control }.read(&mut word) {
                Ok(count) if count > 0 => {
                    if word.contains(&TERMINATE) {
                        // The source leads its group. Nobody left is no error.
                        let _ = kill_process_group(source, Signal::TERM);
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                _ => return None,
            }
        }
    }
}

/// Reaps whoever has ended; says how the source has, if it is among them.
fn reap(source: Pid) -> Option<WaitStatus> {
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid == source {
            return Some(status);
        }
    }
    None
}
