//! The process that waits for the deputy: its memory, its folders and its descriptors.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::super::sys;
use super::super::syscall_listener::{Syscall, SyscallListener};

/// The longest path that the kernel takes, in bytes, with its terminator.
const MAX_PATH_BYTES: usize = 4096;

/// A thread that waits for the answer to a call.
pub(super) struct WaitingCaller<'a> {
    listener: &'a SyscallListener,
    call: &'a Syscall,
}

impl<'a> WaitingCaller<'a> {
    pub(super) fn new(listener: &'a SyscallListener, call: &'a Syscall) -> Self {
        Self { listener, call }
    }

    pub(super) fn thread(&self) -> u32 {
        self.call.thread
    }

    /// Fails if the call no longer waits. Data that was read from the caller may then be from another process. Must be
    /// called after the last access to the caller and before anything is changed for it.
    pub(super) fn confirm(&self) -> rustix::io::Result<()> {
        if self.listener.still_waits(self.call) { Ok(()) } else { Err(Errno::SRCH) }
    }

    /// Copies a path out of the caller's memory, which is read once: later changes by the caller have no effect.
    pub(super) fn path(&self, pointer: u64) -> rustix::io::Result<CString> {
        let mut bytes = [0; MAX_PATH_BYTES];
        let read = sys::read_memory(self.call.thread, pointer, &mut bytes)?;
        let read = bytes.get(..read).unwrap_or_default();
        match CStr::from_bytes_until_nul(read) {
            Ok(path) => Ok(path.to_owned()),
            Err(_) if read.len() < MAX_PATH_BYTES => Err(Errno::FAULT),
            Err(_) => Err(Errno::NAMETOOLONG),
        }
    }

    /// Opens the folder to which the caller's paths are relative: a descriptor, or its working directory.
    pub(super) fn folder(&self, descriptor: i32) -> rustix::io::Result<OwnedFd> {
        let link = if descriptor == libc::AT_FDCWD { "cwd".to_owned() } else { format!("fd/{descriptor}") };
        self.open(&link, OFlags::PATH | OFlags::DIRECTORY)
    }

    /// Opens the file behind a descriptor of the caller, without its content.
    pub(super) fn descriptor(&self, descriptor: i32) -> rustix::io::Result<OwnedFd> {
        self.open(&format!("fd/{descriptor}"), OFlags::PATH)
    }

    /// Returns the bits that the caller removes from the modes of new files.
    pub(super) fn umask(&self) -> rustix::io::Result<Mode> {
        let status = self.open("status", OFlags::RDONLY)?;
        let mut bytes = [0; 256];
        let read = rustix::io::read(status, &mut bytes)?;
        let text = String::from_utf8_lossy(bytes.get(..read).unwrap_or_default());
        let mask = text.lines().find_map(|line| u32::from_str_radix(line.strip_prefix("Umask:")?.trim(), 8).ok());
        mask.map(Mode::from_raw_mode).ok_or(Errno::SRCH)
    }

    fn open(&self, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        openat(CWD, format!("/proc/{}/{name}", self.call.thread), flags | OFlags::CLOEXEC, Mode::empty())
    }
}
