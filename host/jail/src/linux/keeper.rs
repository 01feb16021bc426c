//! The process that keeps a cell: it waits for the source's end and for the broker to hang up, and reaps whoever is left
//! behind. When it ends, the kernel kills everything in the cell.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group, wait};

use super::memory::{self, Excess, Watcher};
use crate::launch::TERMINATE;

/// What all processes of a cell may hold together, where nothing but this process sees to it.
pub(super) struct Watch {
    /// Bytes.
    pub(super) memory: u64,
    /// Where it is said if they hold more.
    pub(super) complain: File,
    pub(super) watcher: Watcher,
}

/// Keeps the cell until the source has ended, and says how; None if it is to be killed, as the broker hung up or its
/// processes hold too much. `ends` is readable when a child has ended.
pub(super) fn keep(source: Pid, control: &UnixStream, ends: &OwnedFd, mut watch: Option<Watch>) -> Option<WaitStatus> {
    let mut next_look = Instant::now();
    loop {
        if let Some(status) = reap(source) {
            return Some(status);
        }
        let now = Instant::now();
        if let Some(watch) = watch.as_mut().filter(|_| now >= next_look) {
            next_look = now + memory::PAUSE;
            if let Some(excess) = watch.watcher.look(watch.memory) {
                watch.complain(&excess);
                return None;
            }
        }
        let pause = watch.is_some().then(|| next_look.saturating_duration_since(now));
        let pause = pause.and_then(|pause| Timespec::try_from(pause).ok());
        let mut awaited = [PollFd::new(control, PollFlags::IN), PollFd::new(ends, PollFlags::IN)];
        // Interrupted or failed, what follows finds out what is the case.
        let _ = poll(&mut awaited, pause.as_ref());
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

impl Watch {
    fn complain(&mut self, excess: &Excess) {
        let given = self.memory >> 20;
        let said = match excess {
            Excess::Held(held) => {
                let held = held >> 20;
                format!("portcullis: ended, as its processes hold {held} MiB together and its cell gives {given} MiB\n")
            }
            Excess::Unreadable(process) => format!(
                "portcullis: ended, as the memory of its process {process} cannot be read and its cell gives {given} MiB\n"
            ),
        };
        // The broker may have stopped reading, and must not be waited for.
        let _ = rustix::fs::fcntl_setfl(&self.complain, OFlags::NONBLOCK);
        let _ = self.complain.write_all(said.as_bytes());
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
