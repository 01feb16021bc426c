//! The system calls that a recorded cell reports, and where each keeps its paths.

use libc::c_long;

/// The use that a system call makes of its subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Look at a file's attributes or at a link.
    Look,
    /// Open a file or a folder; the flags tell whether for writing.
    Open,
    /// Make a file, folder or link.
    Create,
    /// Change a file's attributes or length.
    Change,
    /// Remove a file, folder or link.
    Remove,
    /// Rename a file, folder or link, which may replace another.
    Rename,
    /// Execute a program.
    Execute,
    /// Connect to an address, or send to one.
    Connect,
    /// Send messages, each of which may name an address.
    Send,
    /// Send a signal.
    Signal,
    /// Make a system call that every cell denies.
    Denied,
}

/// A recorded system call: its action, and the arguments that name the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedSyscall {
    /// Its number on this architecture.
    pub number: c_long,
    /// Its name.
    pub name: &'static str,
    /// The kind of operation.
    pub operation: Operation,
    /// The argument that is the descriptor of the folder to which the path is relative, or `None` for the working
    /// directory.
    pub folder: Option<usize>,
    /// The argument that points to the path; for [`Operation::Connect`] to the address, for [`Operation::Send`] to the
    /// headers of the messages, and for [`Operation::Signal`] the process.
    pub path: usize,
    /// The argument with the flags of `open`, the length of an address, or the number of messages if there may be more
    /// than one.
    pub flags: Option<usize>,
    /// For [`Operation::Rename`] the old path, as `folder` and `path` are the new one.
    pub old: Option<(Option<usize>, usize)>,
}

const fn at(number: c_long, name: &'static str, operation: Operation, folder: usize, path: usize) -> RecordedSyscall {
    RecordedSyscall { number, name, operation, folder: Some(folder), path, flags: None, old: None }
}

const fn plain(number: c_long, name: &'static str, operation: Operation, path: usize) -> RecordedSyscall {
    RecordedSyscall { number, name, operation, folder: None, path, flags: None, old: None }
}

/// Returns a call whose first arguments are the old path and whose next ones are the new path.
const fn rename(number: c_long, name: &'static str, has_folders: bool) -> RecordedSyscall {
    let (new, old) = match has_folders {
        true => (at(number, name, Operation::Rename, 2, 3), (Some(0), 1)),
        false => (plain(number, name, Operation::Rename, 1), (None, 0)),
    };
    RecordedSyscall { old: Some(old), ..new }
}

const fn flagged(call: RecordedSyscall, flags: usize) -> RecordedSyscall {
    RecordedSyscall { flags: Some(flags), ..call }
}

/// The number is the same on all architectures; `libc` does not have it for all.
const FCHMODAT2: c_long = 452;

/// Recorded calls that all architectures have. Of a call that makes a link, the path of the link counts.
pub(super) const RECORDED: &[RecordedSyscall] = &[
    flagged(at(libc::SYS_openat, "openat", Operation::Open, 0, 1), 2),
    at(libc::SYS_newfstatat, "newfstatat", Operation::Look, 0, 1),
    at(libc::SYS_statx, "statx", Operation::Look, 0, 1),
    at(libc::SYS_faccessat, "faccessat", Operation::Look, 0, 1),
    at(libc::SYS_faccessat2, "faccessat2", Operation::Look, 0, 1),
    at(libc::SYS_readlinkat, "readlinkat", Operation::Look, 0, 1),
    plain(libc::SYS_chdir, "chdir", Operation::Look, 0),
    at(libc::SYS_mkdirat, "mkdirat", Operation::Create, 0, 1),
    at(libc::SYS_symlinkat, "symlinkat", Operation::Create, 1, 2),
    at(libc::SYS_linkat, "linkat", Operation::Create, 2, 3),
    rename(libc::SYS_renameat, "renameat", true),
    rename(libc::SYS_renameat2, "renameat2", true),
    at(libc::SYS_unlinkat, "unlinkat", Operation::Remove, 0, 1),
    at(libc::SYS_fchmodat, "fchmodat", Operation::Change, 0, 1),
    at(FCHMODAT2, "fchmodat2", Operation::Change, 0, 1),
    at(libc::SYS_fchownat, "fchownat", Operation::Change, 0, 1),
    at(libc::SYS_utimensat, "utimensat", Operation::Change, 0, 1),
    plain(libc::SYS_statfs, "statfs", Operation::Look, 0),
    plain(libc::SYS_truncate, "truncate", Operation::Change, 0),
    plain(libc::SYS_execve, "execve", Operation::Execute, 0),
    at(libc::SYS_execveat, "execveat", Operation::Execute, 0, 1),
    flagged(plain(libc::SYS_connect, "connect", Operation::Connect, 1), 2),
    flagged(plain(libc::SYS_sendto, "sendto", Operation::Connect, 4), 5),
    plain(libc::SYS_sendmsg, "sendmsg", Operation::Send, 1),
    flagged(plain(libc::SYS_sendmmsg, "sendmmsg", Operation::Send, 1), 2),
    plain(libc::SYS_kill, "kill", Operation::Signal, 0),
];

/// The recorded system calls that only this architecture has.
#[cfg(target_arch = "x86_64")]
pub(super) const RECORDED_HERE: &[RecordedSyscall] = &[
    flagged(plain(libc::SYS_open, "open", Operation::Open, 0), 1),
    plain(libc::SYS_stat, "stat", Operation::Look, 0),
    plain(libc::SYS_lstat, "lstat", Operation::Look, 0),
    plain(libc::SYS_access, "access", Operation::Look, 0),
    plain(libc::SYS_readlink, "readlink", Operation::Look, 0),
    plain(libc::SYS_creat, "creat", Operation::Create, 0),
    plain(libc::SYS_mkdir, "mkdir", Operation::Create, 0),
    plain(libc::SYS_symlink, "symlink", Operation::Create, 1),
    plain(libc::SYS_link, "link", Operation::Create, 1),
    rename(libc::SYS_rename, "rename", false),
    plain(libc::SYS_rmdir, "rmdir", Operation::Remove, 0),
    plain(libc::SYS_unlink, "unlink", Operation::Remove, 0),
    plain(libc::SYS_chmod, "chmod", Operation::Change, 0),
    plain(libc::SYS_chown, "chown", Operation::Change, 0),
    plain(libc::SYS_lchown, "lchown", Operation::Change, 0),
    plain(libc::SYS_utime, "utime", Operation::Change, 0),
    plain(libc::SYS_utimes, "utimes", Operation::Change, 0),
];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const RECORDED_HERE: &[RecordedSyscall] = &[];

/// Returns the description of a recorded call, or `None` for a call that every cell denies.
#[must_use]
pub fn recorded_call(number: c_long) -> Option<&'static RecordedSyscall> {
    RECORDED.iter().chain(RECORDED_HERE).find(|call| call.number == number)
}
