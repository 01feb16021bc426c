//! The end at which system calls of a source wait: for the broker in a recorded cell, which sees each recorded call
//! before it is carried out, and for the deputy.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use libc::c_long;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use serde::{Deserialize, Serialize};

use super::performed::FileRequest;
use super::sys;
use crate::launch::SyscallListenerHandle;
use crate::wire;

/// The flag of `socket` for a descriptor that `exec` closes. It is that of `open`.
const CLOSE_ON_EXEC: u64 = libc::SOCK_CLOEXEC.cast_unsigned() as u64;

/// A listener that is notified of each recorded system call in a cell (seccomp user notification). Dropping it makes
/// all later recorded calls fail with `ENOSYS`.
#[derive(Debug)]
pub struct SyscallListener {
    descriptor: OwnedFd,
    /// The connection to the deputy of the recorded cell, if it has one.
    deputy: Option<UnixStream>,
}

/// A call that the broker has recorded and the deputy is to perform.
#[derive(Serialize, Deserialize)]
pub(super) struct ForwardedCall {
    pub(super) id: u64,
    /// The thread that makes the call, as the deputy sees it.
    pub(super) thread: u32,
    pub(super) number: i64,
    pub(super) arguments: [u64; 6],
}

/// The deputy's answer to a call.
pub(super) enum SyscallAnswer {
    /// The kernel carries the call out.
    Continue,
    /// The call succeeds with the result 0.
    Succeed,
    /// The call fails.
    Fail(Errno),
    /// The call succeeds with a descriptor, which `exec` closes if the flags say so.
    Descriptor(OwnedFd, OFlags),
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
    pub fn new(SyscallListenerHandle { listener, deputy }: SyscallListenerHandle) -> Self {
        Self { descriptor: listener, deputy: deputy.map(UnixStream::from) }
    }

    /// Takes the descriptor of the deputy itself.
    pub(super) fn of_deputy(descriptor: OwnedFd) -> Self {
        Self { descriptor, deputy: None }
    }

    /// Waits for the next call, as one of several threads. Returns `None` if the kernel refuses the listener, and,
    /// since Linux 6.11, once no process is left that could make such a call. An older kernel lets the threads wait.
    pub(super) fn wait(&self) -> Option<Syscall> {
        loop {
            match sys::receive_notification(&self.descriptor) {
                Ok(call) => return Some(call),
                // The caller was killed before its call could be read, or nobody is left, or a signal came.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {
                    if self.is_deserted() {
                        return None;
                    }
                }
                Err(_) => return None,
            }
        }
    }

    /// Reports whether no process is left whose calls reach this listener.
    fn is_deserted(&self) -> bool {
        let mut awaited = [PollFd::new(&self.descriptor, PollFlags::IN)];
        let polled = poll(&mut awaited, Some(&Timespec::default()));
        polled.is_ok() && awaited[0].revents().contains(PollFlags::HUP)
    }

    /// Answers a call. A caller that was killed meanwhile needs no answer.
    pub(super) fn answer(&self, call: &Syscall, answer: SyscallAnswer) {
        let (listener, id) = (&self.descriptor, call.id);
        let _ = match answer {
            SyscallAnswer::Continue => sys::answer_notification(listener, id, None),
            SyscallAnswer::Succeed => sys::answer_with_success(listener, id),
            SyscallAnswer::Fail(errno) => sys::answer_notification(listener, id, Some(errno.raw_os_error())),
            SyscallAnswer::Descriptor(file, flags) => {
                sys::answer_with_descriptor(listener, id, file.as_fd(), flags.bits()).or_else(|error| {
                    // The caller may have no further descriptor.
                    sys::answer_notification(listener, id, Some(error.raw_os_error().unwrap_or(libc::EMFILE)))
                })
            }
        };
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
    /// of another process that now has its number.
    #[must_use]
    pub fn still_waits(&self, call: &Syscall) -> bool {
        sys::notification_is_valid(&self.descriptor, call.id)
    }

    /// Lets the kernel carry the call out, or the deputy of the cell. The cell decides whether it succeeds.
    pub fn continue_call(&self, call: &Syscall) {
        if self.forward(call).is_some() {
            return;
        }
        // A caller that was killed meanwhile needs no answer.
        let _ = sys::answer_notification(&self.descriptor, call.id, None);
    }

    /// Answers a call for a socket with a descriptor that is not a socket: nothing can be reached over it. The address
    /// that the caller then connects it to is recorded. On an older kernel, or if the caller may have no further
    /// descriptor, the call fails as [`deny`](Self::deny) makes it. Returns whether the caller has got one.
    pub fn stand_in_for_socket(&self, call: &Syscall) -> bool {
        let close_on_exec = call.arguments.get(1).is_some_and(|kind| kind & CLOSE_ON_EXEC != 0);
        let given = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).is_ok_and(|(end, _)| {
            // The other end is closed at once.
            let flags = if close_on_exec { OFlags::CLOEXEC } else { OFlags::empty() };
            sys::answer_with_descriptor(&self.descriptor, call.id, end.as_fd(), flags.bits()).is_ok()
        });
        if !given {
            self.deny(call);
        }
        given
    }

    /// Makes a call fail with `EPERM`, as one that every cell denies.
    pub fn deny(&self, call: &Syscall) {
        // A caller that was killed meanwhile needs no answer.
        let _ = sys::answer_notification(&self.descriptor, call.id, Some(libc::EPERM));
    }

    /// Makes the deputy perform a call. Returns `None` if there is no deputy, or if the deputy does not perform such
    /// calls.
    fn forward(&self, call: &Syscall) -> Option<()> {
        let deputy = self.deputy.as_ref().filter(|_| FileRequest::of(call.number, call.arguments).is_some())?;
        // The process namespace of the cell, in which the deputy is, is the innermost.
        let status = std::fs::read_to_string(format!("/proc/{}/status", call.thread)).ok()?;
        let names = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        let thread = names.split_ascii_whitespace().next_back()?.parse().ok()?;
        let Syscall { id, number, arguments, .. } = *call;
        wire::send(deputy, &ForwardedCall { id, thread, number, arguments }, &[]).ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::super::seccomp;
    use super::*;

    #[test]
    fn nobody_waits_for_calls_of_those_that_have_ended() {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let version: Vec<u32> = release.split('.').take(2).map(|part| part.parse().unwrap_or_default()).collect();
        if version < vec![6, 11] {
            return;
        }
        // The filter is that of one thread, which ends without a call that changes files.
        let caller = std::thread::spawn(|| {
            rustix::thread::set_no_new_privs(true).unwrap();
            seccomp::install_deputy_filter().unwrap()
        });
        assert_eq!(SyscallListener::of_deputy(caller.join().unwrap()).wait(), None);
    }
}
