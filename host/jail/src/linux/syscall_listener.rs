//! The broker's end of a recorded cell: it sees each recorded system call before the kernel carries it out.

use std::io;
use std::os::fd::OwnedFd;

use libc::c_long;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::sys;

/// A listener that is told of each recorded system call in a cell (seccomp user notification). Dropping it makes all
/// later recorded calls fail with `ENOSYS`.
#[derive(Debug)]
pub struct SyscallListener {
    descriptor: OwnedFd,
}

/// A system call that waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Syscall {
    pub(super) id: u64,
    /// The thread that makes the call, as this process sees it.
    pub thread: u32,
    /// The number of the call on this architecture.
    pub number: c_long,
    /// Its arguments, as the registers hold them.
    pub arguments: [u64; 6],
}

impl SyscallListener {
    /// Takes the descriptor that [`CellControl::ready`](crate::CellControl::ready) hands over.
    #[must_use]
    pub fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor }
    }

    /// Waits for the next call. Returns `None` once every process of the cell has ended.
    ///
    /// # Errors
    /// If the kernel refuses the listener, which no call of a source can cause.
    pub fn receive(&self) -> io::Result<Option<Syscall>> {
        loop {
            let mut awaited = [PollFd::new(&self.descriptor, PollFlags::IN)];
            match poll(&mut awaited, None) {
                Err(Errno::INTR) => continue,
                result => drop(result?),
            }
            let [happened] = awaited.map(|descriptor| descriptor.revents());
            if !happened.contains(PollFlags::IN) {
                // `POLLERR` without `POLLHUP` means that a signal interrupted the kernel.
                if happened.contains(PollFlags::HUP) {
                    return Ok(None);
                }
                continue;
            }
            match sys::receive_notification(&self.descriptor) {
                Ok(call) => return Ok(Some(call)),
                // The caller was killed before its call could be read, or a signal came.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reports whether the call still waits. If it does, the memory that was read before is the caller's, and not that
    /// of another process that has its number by now.
    #[must_use]
    pub fn still_waits(&self, call: &Syscall) -> bool {
        sys::notification_is_valid(&self.descriptor, call.id)
    }

    /// Lets the kernel carry the call out. The cell decides whether it succeeds.
    pub fn continue_call(&self, call: &Syscall) {
        // A caller that was killed meanwhile needs no answer.
        let _ = sys::answer_notification(&self.descriptor, call.id, None);
    }

    /// Makes a call fail with `EPERM`, as one that every cell denies.
    pub fn deny(&self, call: &Syscall) {
        // A caller that was killed meanwhile needs no answer.
        let _ = sys::answer_notification(&self.descriptor, call.id, Some(libc::EPERM));
    }
}
