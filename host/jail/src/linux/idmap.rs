//! Id mapping for a launcher that was started as root and becomes a user who owns nothing. So that this user gets the
//! rights of the owner of the granted files, each grant is mounted with the owner's files shown as that user's.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::thread::UnshareFlags;

use super::sys::{Fork, fork, unshare};
use crate::report::CellRefusal;
use crate::step::StepExt;

/// The user and group outside that a source becomes if the broker is root. Debian reserves the id; nothing is owned by
/// it.
pub(super) const NOBODY_ELSE: u32 = 65_533;

/// One user namespace for each owner seen so far: in practice root, and sometimes another.
#[derive(Default)]
pub(super) struct IdMappings(Vec<((u32, u32), OwnedFd)>);

impl IdMappings {
    /// Returns the namespace whose map shows files of this owner as those of [`NOBODY_ELSE`].
    pub(super) fn for_owner(&mut self, user: u32, group: u32) -> Result<&OwnedFd, CellRefusal> {
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

/// Makes a user namespace with such a map. Making it needs a process; the descriptor keeps it alive afterwards.
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
    // The child waits to be killed; both calls can fail only if it is gone.
    let _ = kill_process(child, Signal::KILL);
    let _ = waitpid(Some(child), WaitOptions::empty());
    made
}

/// Makes the namespace and waits to be killed.
fn stand_in(mut tell: io::PipeWriter) -> ! {
    // The launcher may be killed meanwhile; this process must end with it.
    let tied = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let errno = tied.and_then(|()| unshare(UnshareFlags::NEWUSER)).err().map_or(0, rustix::io::Errno::raw_os_error);
    // The launcher may have ended before the death signal was set.
    if tell.write_all(&errno.to_ne_bytes()).is_err() {
        std::process::exit(super::FAILED);
    }
    loop {
        // Returns only after a signal.
        rustix::event::pause();
    }
}

fn describe(child: Pid, user: u32, group: u32) -> io::Result<OwnedFd> {
    let folder = format!("/proc/{}", child.as_raw_nonzero());
    // The kernel accepts each of the two maps in a single write only.
    std::fs::write(format!("{folder}/uid_map"), format!("{user} {NOBODY_ELSE} 1\n"))?;
    std::fs::write(format!("{folder}/gid_map"), format!("{group} {NOBODY_ELSE} 1\n"))?;
    Ok(File::open(format!("{folder}/ns/user"))?.into())
}
