//! The process that supervises a cell: it waits for the source to end and for the broker to close the connection, and
//! reaps orphaned processes. When it ends, the kernel kills everything in the cell.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group, wait};

use super::memory::{self, MemoryExcess, MemoryWatcher};
use crate::launch::TERMINATE;

/// The limit on the memory of all processes of a cell together, if only this process enforces it.
pub(super) struct MemoryLimit {
    /// The limit, in bytes.
    pub(super) memory: u64,
    /// The source's standard error, which gets the reason if the limit is exceeded.
    pub(super) stderr: File,
    pub(super) watcher: MemoryWatcher,
}

/// Supervises the cell until the source has ended, and returns how. Returns `None` if the cell must be killed because
/// the broker closed the connection or the processes hold too much memory. `ends` is readable when a child has ended.
pub(super) fn supervise(
    source: Pid,
    control: &UnixStream,
    ends: &OwnedFd,
    mut watch: Option<MemoryLimit>,
) -> Option<WaitStatus> {
    let mut next_check = Instant::now();
    loop {
        if let Some(status) = reap(source) {
            return Some(status);
        }
        let now = Instant::now();
        if let Some(watch) = watch.as_mut().filter(|_| now >= next_check) {
            next_check = now + memory::PAUSE;
            if let Some(excess) = watch.watcher.check(watch.memory) {
                watch.stderr(&excess);
                return None;
            }
        }
        let pause = watch.is_some().then(|| next_check.saturating_duration_since(now));
        let pause = pause.and_then(|pause| Timespec::try_from(pause).ok());
        let mut awaited = [PollFd::new(control, PollFlags::IN), PollFd::new(ends, PollFlags::IN)];
        // If poll was interrupted or failed, the checks below find out what happened.
        let _ = poll(&mut awaited, pause.as_ref());
        let [called, ended] = awaited.map(|descriptor| !descriptor.revents().is_empty());
        if ended {
            // It tells only that some child has ended; the next round finds out which.
            let _ = rustix::io::read(ends.as_fd(), &mut [0_u8; 128]);
        }
        if called {
            let mut word = [0; 16];
            match { control }.read(&mut word) {
                Ok(count) if count > 0 => {
                    if word.contains(&TERMINATE) {
                        // The source leads its process group. An empty group is not an error.
                        let _ = kill_process_group(source, Signal::TERM);
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                _ => return None,
            }
        }
    }
}

impl MemoryLimit {
    fn stderr(&mut self, excess: &MemoryExcess) {
        let given = self.memory >> 20;
        let said = match excess {
            MemoryExcess::Held(held) => {
                let held = held >> 20;
                format!(
                    "portcullis: ended, as its processes hold {held} MiB together and its cell allows {given} MiB\n"
                )
            }
            MemoryExcess::Unreadable(process) => format!(
                "portcullis: ended, as the memory of its process {process} cannot be read and its cell allows {given} MiB\n"
            ),
        };
        // The broker may have stopped reading, and this process must not wait for it.
        let _ = rustix::fs::fcntl_setfl(&self.stderr, OFlags::NONBLOCK);
        let _ = self.stderr.write_all(said.as_bytes());
    }
}

/// Reaps all children that have ended. Returns the source's status if it is among them.
fn reap(source: Pid) -> Option<WaitStatus> {
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid == source {
            return Some(status);
        }
    }
    None
}
