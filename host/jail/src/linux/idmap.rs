//! Started as root, the launcher becomes a user who owns nothing. So that this user can do with what is granted what its
//! owner could, the owner's files are shown as that user's: by a mount of their own, with a map of their own.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::thread::UnshareFlags;

use super::sys::{Fork, fork, unshare};
use crate::report::Refusal;
use crate::step::Step;

/// The user and group outside that a source becomes when the broker is root. Debian reserves it; nothing owns anything by it.
pub(super) const NOBODY_ELSE: u32 = 65_533;

/// One user namespace for each owner that was met: in practice root, and at times another.
#[derive(Default)]
pub(super) struct Maps(Vec<((u32, u32), OwnedFd)>);

impl Maps {
    /// The namespace whose map shows files of this owner as those of [`NOBODY_ELSE`].
    pub(super) fn for_owner(&mut self, user: u32, group: u32) -> Result<&OwnedFd, Refusal> {
        let owner = (user, group);
        let known = self.0.iter().position(|(known, _)| *known == owner);
        let at = match known {
            Some(at) => at,
            None => {
                self.0.push((owner, map(user, group).step("map owners")?));
                self.0.len() - 1
            }
        };
        let found = self.0.get(at).map(|(_, namespace)| namespace);
        found.ok_or_else(|| io::Error::other("no map")).step("map owners")
    }
}

/// A user namespace needs a process to be made, and lives on by its descriptor.
fn map(user: u32, group: u32) -> io::Result<OwnedFd> {
    let (mut told, tell) = io::pipe()?;
    let child = match fork()? {
        Fork::Child => {
            drop(told);
            stand_in(tell)
        }
        Fork::Parent(child) => child,
    };
    drop(tell);
    let made = (|| {
        let mut errno = [0; 4];
        told.read_exact(&mut errno)?;
        match i32::from_ne_bytes(errno) {
            0 => describe(child, user, group),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    })();
    // It is our child and waits for this; both can only fail if it is gone.
    let _ = kill_process(child, Signal::KILL);
    let _ = waitpid(Some(child), WaitOptions::empty());
    made
}

/// Makes the namespace and waits to be killed.
fn stand_in(mut tell: io::PipeWriter) -> ! {
    // Dies with the launcher, which may be killed meanwhile.
    let tied = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let errno = tied.and_then(|()| unshare(UnshareFlags::NEWUSER)).err().map_or(0, rustix::io::Errno::raw_os_error);
    // The launcher may have ended before its end was a signal to this process.
    if tell.write_all(&errno.to_ne_bytes()).is_err() {
        std::process::exit(super::FAILED);
    }
    loop {
        // Returns early on signals only.
        rustix::event::pause();
    }
}

fn describe(child: Pid, user: u32, group: u32) -> io::Result<OwnedFd> {
    let folder = format!("/proc/{}", child.as_raw_nonzero());
    // Each of the two maps must be one write.
    std::fs::write(format!("{folder}/uid_map"), format!("{user} {NOBODY_ELSE} 1\n"))?;
    std::fs::write(format!("{folder}/gid_map"), format!("{group} {NOBODY_ELSE} 1\n"))?;
    Ok(File::open(format!("{folder}/ns/user"))?.into())
}
