//! The system calls for which there is no safe wrapper. All `unsafe` code of the launcher on Linux is here.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::process::Pid;
use rustix::thread::UnshareFlags;

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

/// Moves this process into fresh namespaces of the named kinds.
pub(super) fn unshare(namespaces: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: this is unsound only with FILES, which would separate threads from their descriptors; there is only one
    // thread, and no caller names FILES.
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
    // SAFETY: the path is a static string with its terminator, `attr` lives through the call and is as long as `size`
    // says; the kernel only reads both. The descriptors are borrowed, so they are open.
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

fn done(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
