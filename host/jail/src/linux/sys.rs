//! The system calls for which there is no safe wrapper. All `unsafe` code of the launcher on Linux is here.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::UnshareFlags;
use seccompiler::sock_filter;

use super::syscall_listener::Syscall;

/// Returns the process group of a process, if it has a number in this namespace. The kernel returns 0 for one that has
/// none here, which `rustix` does not expect.
pub(super) fn group_of(process: i32) -> Option<i32> {
    // SAFETY: the call takes and returns numbers.
    Some(unsafe { libc::getpgid(process) }).filter(|group| *group > 0)
}

/// The side of a [`fork`] that this process is on.
pub(super) enum Fork {
    Child,
    Parent(Pid),
}

/// Makes a copy of this process.
pub(super) fn fork() -> io::Result<Fork> {
    // SAFETY: the launcher is single-threaded, so no thread that the copy lacks can hold a lock; the copy may continue
    // like any process.
    match unsafe { libc::fork() } {
        0 => Ok(Fork::Child),
        pid => Pid::from_raw(pid).filter(|_| pid > 0).map(Fork::Parent).ok_or_else(io::Error::last_os_error),
    }
}

/// Makes a copy of this process that is a child of this process's parent.
///
/// The C library is not informed, so it has the wrong thread id for the copy; with that it could raise no signal for
/// itself (`raise`, `abort`). The copy's own copies by [`fork`] are right again.
pub(super) fn fork_sibling() -> io::Result<Fork> {
    const NONE: libc::c_ulong = 0;
    let flags = libc::c_ulong::from((libc::CLONE_PARENT | libc::SIGCHLD).unsigned_abs());
    // SAFETY: without a stack and without CLONE_VM the copy continues here with its own memory, as after `fork`, and
    // the kernel reads no pointer. The launcher is single-threaded, so no thread that the copy lacks can hold a lock.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, NONE, NONE, NONE, NONE) };
    if pid == 0 {
        return Ok(Fork::Child);
    }
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).filter(|pid| pid.as_raw_nonzero().get() > 0);
    pid.map(Fork::Parent).ok_or_else(io::Error::last_os_error)
}

/// Moves this process into fresh namespaces of the named kinds, or with FS gives this thread its own umask.
pub(super) fn unshare(namespaces: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: this is unsound only with FILES, which would separate threads from their descriptors; no caller names
    // FILES.
    unsafe { rustix::thread::unshare_unsafe(namespaces) }
}

/// Closes all descriptors from this number on.
pub(super) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: no memory is passed. It is called before any object exists that owns a descriptor above standard error.
    done(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0_u32) })
}

/// Has `exec` close all descriptors from this number on.
pub(super) fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: no memory is passed, and nothing is closed before this process becomes another program.
    done(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) })
}

/// The new attributes of a mount tree.
#[derive(Default)]
pub(super) struct MountAttributes<'fd> {
    /// Flags to set: `libc::MOUNT_ATTR_*`.
    pub(super) set: u64,
    /// True if mounts that are made outside must not appear inside.
    pub(super) private: bool,
    /// A user namespace whose map translates the owners of files.
    pub(super) idmap: Option<BorrowedFd<'fd>>,
    pub(super) recursive: bool,
}

/// Changes the attributes of the mount tree that a descriptor names.
pub(super) fn mount_setattr(tree: BorrowedFd<'_>, attributes: &MountAttributes<'_>) -> io::Result<()> {
    let idmap = attributes.idmap.map_or(0, |_| libc::MOUNT_ATTR_IDMAP);
    let namespace = attributes.idmap.map_or(0, |namespace| namespace.as_raw_fd().unsigned_abs());
    let attr = libc::mount_attr {
        attr_set: attributes.set | idmap,
        attr_clr: 0,
        propagation: if attributes.private { libc::MS_PRIVATE } else { 0 },
        userns_fd: namespace.into(),
    };
    let flags = libc::AT_EMPTY_PATH | if attributes.recursive { libc::AT_RECURSIVE } else { 0 };
    let path = c"".as_ptr();
    let size = size_of::<libc::mount_attr>();
    // SAFETY: the path is a static string with its terminator, `attr` lives through the call and is `size` bytes long;
    // the kernel only reads both. The descriptors are borrowed, so they are open.
    done(unsafe { libc::syscall(libc::SYS_mount_setattr, tree.as_raw_fd(), path, flags, &raw const attr, size) })
}

/// Leaves the keyrings of the session that the broker runs in.
pub(super) fn new_session_keyring() -> io::Result<()> {
    const JOIN_SESSION_KEYRING: libc::c_int = 1;
    // SAFETY: a null name asks for an anonymous keyring; no memory is passed.
    done(unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>()) })
}

/// Resets all signals to their default actions and unblocks them. Signals that the broker or its parent ignores (Rust
/// programs ignore SIGPIPE, `nohup` ignores SIGHUP) would stay ignored in the source, since "ignore" survives `exec`;
/// so do blocked signals.
pub(super) fn default_signals() {
    for signal in 1..=64 {
        // SAFETY: this sets the default action and installs no handler, so no code of ours runs in signal context.
        // Numbers that cannot be set (SIGKILL, SIGSTOP, those of the C library) are refused, which changes nothing.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let mut none = std::mem::MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the set before it is read; the pointers are to a local that outlives the calls.
    // Neither can fail with these arguments.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

/// Resets the action for the end of a child. If the broker's program ignores such ends, so would this process, and then
/// nobody could learn how a source has ended.
pub(super) fn notice_ends_of_children() {
    // SAFETY: this sets the default action and installs no handler, so no code of ours runs in signal context. It
    // cannot fail for this signal.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
    }
}

/// Returns a descriptor that is readable when a child has ended. Blocks SIGCHLD.
pub(super) fn child_ends() -> io::Result<OwnedFd> {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the set before anything reads it; all pointers are to locals that outlive the
    // calls. The descriptor is fresh, so nothing else owns it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        done(libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()).into())?;
        let descriptor = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        done(descriptor.into())?;
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}

/// The flags of a filter with a listener, with which a signal does not interrupt a call that the listener has already
/// seen (Linux 5.19).
const KILLABLE: libc::c_ulong = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;

/// Reports whether the kernel has listeners whose calls are not interrupted, and so not made twice, by a signal.
pub(super) fn listeners_are_killable() -> bool {
    let none = std::ptr::null::<libc::sock_fprog>();
    // SAFETY: the kernel checks the flags first, and then refuses the null pointer: no filter is installed.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, KILLABLE, none) };
    result < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

/// Installs a filter whose listener is notified of each matching call, and returns the listener. `exec` closes it.
pub(super) fn install_with_listener(filter: &[sock_filter]) -> io::Result<OwnedFd> {
    let len = u16::try_from(filter.len()).map_err(io::Error::other)?;
    // The library's steps have the layout of the kernel's, and the kernel only reads them.
    let program = libc::sock_fprog { len, filter: filter.as_ptr().cast_mut().cast() };
    let install = |flags: libc::c_ulong| {
        // SAFETY: the program points to `len` steps that live through the call, which the kernel copies.
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) }
    };
    let descriptor = match install(KILLABLE) {
        -1 if io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) => {
            install(libc::SECCOMP_FILTER_FLAG_NEW_LISTENER)
        }
        result => result,
    };
    done(descriptor)?;
    let descriptor = i32::try_from(descriptor).map_err(io::Error::other)?;
    // SAFETY: the descriptor is fresh, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Receives the next call that waits at a listener.
pub(super) fn receive_notification(listener: &OwnedFd) -> io::Result<Syscall> {
    // SAFETY: the structure consists of numbers, for which zero is a value; the kernel requires it to be zero.
    let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one structure of this type, which lives through the call.
    done(unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) }.into())?;
    let (number, arguments) = (call.data.nr.into(), call.data.args);
    Ok(Syscall { id: call.id, thread: call.pid, number, arguments })
}

/// Reports whether a call still waits at a listener.
pub(super) fn notification_is_valid(listener: &OwnedFd, id: u64) -> bool {
    // SAFETY: the kernel reads one number, which lives through the call.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) == 0 }
}

/// Answers a call that waits at a listener: with an error, or by letting the kernel carry it out.
pub(super) fn answer_notification(listener: &OwnedFd, id: u64, error: Option<i32>) -> io::Result<()> {
    let flags = if error.is_none() { libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE } else { 0 };
    let flags = u32::try_from(flags).map_err(io::Error::other)?;
    let mut answer = libc::seccomp_notif_resp { id, val: 0, error: -error.unwrap_or_default(), flags };
    // SAFETY: the kernel reads one structure of this type, which lives through the call.
    done(unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) }.into())
}

/// Answers a call that waits at a listener as one that succeeded, with the result 0.
pub(super) fn answer_with_success(listener: &OwnedFd, id: u64) -> io::Result<()> {
    let mut answer = libc::seccomp_notif_resp { id, val: 0, error: 0, flags: 0 };
    // SAFETY: the kernel reads one structure of this type, which lives through the call.
    done(unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) }.into())
}

/// Copies memory of another process, up to the end of what exists there. Returns how many bytes were copied.
pub(super) fn read_memory(thread: u32, address: u64, into: &mut [u8]) -> rustix::io::Result<usize> {
    /// The size of the smallest page. Each piece lies within one, so that it exists either completely or not.
    const PAGE_BYTES: usize = 4096;
    let address = usize::try_from(address).map_err(|_| Errno::FAULT)?;
    let first = (PAGE_BYTES - address % PAGE_BYTES).min(into.len());
    let second = address.checked_add(first).ok_or(Errno::FAULT)?;
    let piece = |begin: usize, len: usize| libc::iovec { iov_base: begin as *mut libc::c_void, iov_len: len };
    let theirs = [piece(address, first), piece(second, (into.len() - first).min(PAGE_BYTES))];
    let ours = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: the kernel writes at most the number of bytes in `ours`, which is all of `into`. The addresses in the
    // other process are numbers to this one.
    let read = unsafe { libc::process_vm_readv(thread.cast_signed(), &raw const ours, 1, theirs.as_ptr(), 2, 0) };
    usize::try_from(read).map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::FAULT))
}

/// Answers a call that waits at a listener with a copy of a descriptor, which becomes one of the caller's (Linux 5.14).
pub(super) fn answer_with_descriptor(
    listener: &OwnedFd,
    id: u64,
    descriptor: BorrowedFd<'_>,
    flags: u32,
) -> io::Result<()> {
    let mut answer = libc::seccomp_notif_addfd {
        id,
        flags: u32::try_from(libc::SECCOMP_ADDFD_FLAG_SEND).map_err(io::Error::other)?,
        srcfd: descriptor.as_raw_fd().cast_unsigned(),
        newfd: 0,
        newfd_flags: flags,
    };
    // SAFETY: the kernel reads one structure of this type, which lives through the call, and copies the descriptor.
    done(unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw mut answer) }.into())
}

fn done(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
