//! Finds out what a system call that waits for the recorder attempts: reads the memory of the calling thread, and
//! resolves paths in its root.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Component, Path, PathBuf};

use portcullis_jail::{Operation, Syscall, SyscallListener, denied_call, recorded_call};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, StatVfsMountFlags, StatxFlags, fstat, fstatvfs, openat, openat2, statx,
};
use rustix::io::Errno;

use super::{AttemptAction, AttemptAvailability, AttemptSubject, WatchedFiles};

/// The longest path that the kernel takes, in bytes, with its terminator.
const MAX_PATH_BYTES: usize = 4096;

/// The smallest page of memory, and the most that is read at once, in bytes. A path seldom crosses a page, and the next
/// page may not be mapped.
const PAGE_BYTES: usize = 4096;

/// The longest address that is read, in bytes: that of a Unix socket.
const MAX_ADDRESS_BYTES: usize = 110;

/// The most messages that the kernel sends in one call, the bytes from one header to the next, and those at the start
/// of a header in which the pointer to an address and its length are.
const MAX_MESSAGES: u64 = 1024;
const MMSGHDR_BYTES: u64 = 64;
const NAME_FIELDS_BYTES: usize = 12;

/// Flags of `open`, which are the same on all architectures that cells run on.
const ACCESS_MODE: u64 = 0o3;
const CREATE: u64 = 0o100;
const TRUNCATE: u64 = 0o1000;

/// The families of addresses.
const UNIX: u16 = 1;
const INET: u16 = 2;
const INET6: u16 = 10;

/// One thing that a system call attempts, as it looks from inside the cell.
pub(super) struct AttemptInCell {
    action: AttemptAction,
    subject: AttemptSubject,
    /// The availability of the subject in the cell, or `None` for a path that must be looked up outside.
    inside: Option<AttemptAvailability>,
    /// True if the call only creates the path.
    only_creates: bool,
    /// True if the call may create the path.
    may_create: bool,
    /// True if the path leads to a file whose every use is recorded ([`super::Recording::watch`]), such as a canary.
    is_watched: bool,
}

/// Returns what a system call attempts: nothing if it concerns only the caller itself or names no path, and several
/// things if it sends several messages or renames something.
///
/// # Errors
/// If the memory or the root of the caller cannot be opened, or if the caller no longer waits. An address or a
/// path that cannot be read is left out.
pub(super) fn attempts_of(
    listener: &SyscallListener,
    call: &Syscall,
    watched: &WatchedFiles,
) -> io::Result<Vec<AttemptInCell>> {
    let Some(known) = recorded_call(call.number) else {
        // Without a name it is `socket` for a Unix socket: the only other call that the listener gets.
        let name = denied_call(call.number).unwrap_or("socket");
        return Ok(vec![AttemptInCell::plain(
            AttemptAction::Call,
            AttemptSubject::Call(name),
            AttemptAvailability::Denied,
        )]);
    };
    let argument = |at: usize| call.arguments.get(at).copied().unwrap_or_default();
    match known.operation {
        Operation::Signal => {
            // To a process group, to all processes, or to process 1, the first of the cell. Signal 0 only asks whether
            // they exist.
            let to_others = argument(0).cast_signed() as i32 <= 1 && argument(1) != 0;
            let kill = || {
                AttemptInCell::plain(AttemptAction::Call, AttemptSubject::Call("kill"), AttemptAvailability::Granted)
            };
            Ok(to_others.then(kill).into_iter().collect())
        }
        Operation::Connect => {
            let memory = File::open(format!("/proc/{}/mem", call.thread))?;
            let length = known.flags.map(argument).unwrap_or_default();
            let address = address(&memory, argument(known.path), length);
            if_still_waiting(
                listener,
                call,
                address.map(|to| AttemptInCell::connection(to, call)).into_iter().collect(),
            )
        }
        Operation::Send => {
            let memory = File::open(format!("/proc/{}/mem", call.thread))?;
            let count = known.flags.map_or(1, argument);
            let addresses = message_destinations(&memory, argument(known.path), count);
            if_still_waiting(
                listener,
                call,
                addresses.into_iter().map(|to| AttemptInCell::connection(to, call)).collect(),
            )
        }
        operation => {
            let caller = CallingThread::of(call)?;
            let flags = known.flags.map(argument).unwrap_or_default();
            let action = match operation {
                Operation::Open if flags & (ACCESS_MODE | CREATE | TRUNCATE) != 0 => AttemptAction::Write,
                Operation::Open => AttemptAction::Read,
                Operation::Create | Operation::Change => AttemptAction::Write,
                Operation::Remove | Operation::Rename => AttemptAction::Replace,
                Operation::Execute => AttemptAction::Execute,
                _ => AttemptAction::Look,
            };
            let only_creates = operation == Operation::Create;
            let may_create = only_creates || operation == Operation::Rename || flags & CREATE != 0;
            let attempt = |path: PathBuf, may_create: bool| {
                let (inside, known) = caller.availability(&path, action, may_create, watched);
                let (is_watched, subject) = (known.is_some(), AttemptSubject::Path(known.unwrap_or(path)));
                AttemptInCell { action, subject, inside, only_creates, may_create, is_watched }
            };
            let old = known.old.and_then(|(folder, path)| caller.path(folder, path, call));
            let path = caller.path(known.folder, known.path, call);
            let seen =
                old.map(|path| attempt(path, false)).into_iter().chain(path.map(|path| attempt(path, may_create)));
            if_still_waiting(listener, call, seen.collect())
        }
    }
}

/// Returns the recorded data if the caller still waits. Otherwise returns an error, as the memory may have been that of
/// another process.
fn if_still_waiting(
    listener: &SyscallListener,
    call: &Syscall,
    seen: Vec<AttemptInCell>,
) -> io::Result<Vec<AttemptInCell>> {
    if listener.still_waits(call) { Ok(seen) } else { Err(io::ErrorKind::NotFound.into()) }
}

impl AttemptInCell {
    fn plain(action: AttemptAction, subject: AttemptSubject, inside: AttemptAvailability) -> Self {
        Self { action, subject, inside: Some(inside), only_creates: false, may_create: false, is_watched: false }
    }

    fn connection(to: SocketAddress, call: &Syscall) -> Self {
        let address = match to {
            SocketAddress::Internet(address) => address,
            SocketAddress::Unix(name) => {
                let subject = AttemptSubject::Path(absolute_socket_path(call.thread, &name));
                return Self::plain(AttemptAction::Connect, subject, AttemptAvailability::Denied);
            }
        };
        // The cell has no network interface except loopback.
        let loopback = address.ip().to_canonical().is_loopback();
        let inside = if loopback { AttemptAvailability::Granted } else { AttemptAvailability::Denied };
        Self::plain(AttemptAction::Connect, AttemptSubject::Address(address), inside)
    }

    /// Reports whether this is an attempt to connect to a Unix socket, which every cell denies.
    pub(super) fn is_unix_socket(&self) -> bool {
        self.action == AttemptAction::Connect && matches!(self.subject, AttemptSubject::Path(_))
    }

    /// Reports whether this only asks about a path that is not watched, without opening it.
    pub(super) fn is_mere_look(&self) -> bool {
        self.action == AttemptAction::Look && !self.is_watched
    }

    /// Returns the attempt. Looks outside the cell for a path that the cell does not have, and for a folder that the
    /// call would create.
    pub(super) fn attempt(self) -> (AttemptAction, AttemptSubject, AttemptAvailability) {
        let Self { action, subject, inside, only_creates, may_create, .. } = self;
        let AttemptSubject::Path(path) = &subject else {
            return (action, subject, inside.unwrap_or(AttemptAvailability::Absent));
        };
        // Creating a folder that exists changes nothing, as in `mkdir -p`.
        let action = if only_creates && path.symlink_metadata().is_ok_and(|about| about.is_dir()) {
            AttemptAction::Look
        } else {
            action
        };
        let exists = |path: &Path| path.symlink_metadata().is_ok();
        let made = may_create && path.parent().is_some_and(exists);
        let outside = || if exists(path) || made { AttemptAvailability::Hidden } else { AttemptAvailability::Absent };
        let availability = inside.unwrap_or_else(outside);
        (action, subject, availability)
    }
}

/// Returns the name of a thread, cleaned for display. It is that of its program, cut off after 15 bytes, unless the
/// thread has chosen another.
pub(super) fn thread_name(thread: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{thread}/comm")).unwrap_or_default();
    portcullis_core::escape::escape_hidden(name.trim_end()).into_owned()
}

/// The thread whose system call waits, with its memory and its root.
struct CallingThread {
    thread: u32,
    memory: File,
    /// Its root folder.
    root: OwnedFd,
}

impl CallingThread {
    fn of(call: &Syscall) -> io::Result<Self> {
        let of = |name: &str| format!("/proc/{}/{name}", call.thread);
        let root = openat(CWD, of("root"), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { thread: call.thread, memory: File::open(of("mem"))?, root })
    }

    /// Returns the absolute path that a call names with these arguments, or `None` if it names none, as a call on an
    /// open descriptor does, or if the path cannot be read.
    fn path(&self, folder: Option<usize>, path: usize, call: &Syscall) -> Option<PathBuf> {
        let pointer = call.arguments.get(path).copied().filter(|pointer| *pointer != 0)?;
        let named = PathBuf::from(std::ffi::OsString::from_vec(c_string(&self.memory, pointer)?));
        if named.as_os_str().is_empty() {
            return None;
        }
        if named.is_absolute() {
            return Some(normal(&named));
        }
        let folder = folder.and_then(|at| call.arguments.get(at)).map(|folder| *folder as i32);
        let link = match folder {
            Some(descriptor) if descriptor >= 0 => format!("/proc/{}/fd/{descriptor}", self.thread),
            _ => format!("/proc/{}/cwd", self.thread),
        };
        let base = std::fs::read_link(link).ok().filter(|base| base.is_absolute())?;
        Some(normal(&base.join(named)))
    }

    /// Returns two things: how far the cell has the path for this action, or `None` if the path is not in the cell; and
    /// the path of the watched file that it leads to, if any.
    fn availability(
        &self,
        path: &Path,
        action: AttemptAction,
        may_create: bool,
        watched: &WatchedFiles,
    ) -> (Option<AttemptAvailability>, Option<PathBuf>) {
        let granted = |file: &OwnedFd| match action {
            AttemptAction::Write | AttemptAction::Replace if is_read_only(file) => AttemptAvailability::ReadOnly,
            AttemptAction::Replace if self.is_mount_point(path, file) => AttemptAvailability::Alone,
            _ => AttemptAvailability::Granted,
        };
        // A link that is replaced is not followed.
        let links = if action == AttemptAction::Replace { OFlags::NOFOLLOW } else { OFlags::empty() };
        match self.open(path, links) {
            Ok(file) => {
                let about = fstat(&file).ok();
                let known = about.and_then(|about| watched.lock().get(&(about.st_dev, about.st_ino)).cloned());
                (Some(granted(&file)), known)
            }
            Err(Errno::ACCESS) => (Some(AttemptAvailability::Denied), None),
            Err(_) if may_create => {
                let folder = path.parent().and_then(|folder| self.open(folder, OFlags::empty()).ok());
                (folder.as_ref().map(granted), None)
            }
            Err(_) => (None, None),
        }
    }

    /// Opens a path as the cell sees it, without access to its content (`O_PATH`).
    fn open(&self, path: &Path, links: OFlags) -> rustix::io::Result<OwnedFd> {
        let below = path.strip_prefix("/").unwrap_or(path);
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        openat2(&self.root, below, OFlags::PATH | OFlags::CLOEXEC | links, Mode::empty(), ResolveFlags::IN_ROOT)
    }

    /// Reports whether a path is itself a mount, such as a file that a cell is granted without its folder.
    fn is_mount_point(&self, path: &Path, file: &OwnedFd) -> bool {
        let folder = path.parent().and_then(|folder| self.open(folder, OFlags::empty()).ok());
        let mounts = mount_of(file).zip(folder.as_ref().and_then(mount_of));
        mounts.is_some_and(|(own, of_folder)| own != of_folder)
    }
}

/// Returns the number of the mount that a file is on, or `None` before Linux 5.8.
fn mount_of(file: &OwnedFd) -> Option<u64> {
    let about = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    StatxFlags::from_bits_retain(about.stx_mask).contains(StatxFlags::MNT_ID).then_some(about.stx_mnt_id)
}

fn is_read_only(file: &OwnedFd) -> bool {
    fstatvfs(file).is_ok_and(|about| about.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Reads a string that ends with a zero byte. Returns `None` if it is too long or cannot be read.
fn c_string(memory: &File, pointer: u64) -> Option<Vec<u8>> {
    let (mut read, mut page) = (Vec::new(), [0; PAGE_BYTES]);
    while read.len() < MAX_PATH_BYTES {
        let at = pointer.checked_add(read.len() as u64)?;
        // Up to the end of the page, since the next may not exist.
        let left = PAGE_BYTES - usize::try_from(at % PAGE_BYTES as u64).ok()?;
        let count = memory.read_at(page.get_mut(..left)?, at).ok().filter(|count| *count > 0)?;
        let piece = page.get(..count)?;
        match piece.iter().position(|byte| *byte == 0) {
            Some(end) => {
                read.extend_from_slice(piece.get(..end)?);
                return Some(read);
            }
            None => read.extend_from_slice(piece),
        }
    }
    None
}

/// An address that a call names.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SocketAddress {
    Internet(SocketAddr),
    /// The path of a Unix socket, or `@` and the name of an abstract one.
    Unix(PathBuf),
}

/// Returns the absolute path of a Unix socket that a thread names. The name of an abstract socket stays unchanged, and
/// so does any name if the folder of the thread cannot be read.
fn absolute_socket_path(thread: u32, name: &Path) -> PathBuf {
    let has_no_file = name.as_os_str().as_encoded_bytes().starts_with(b"@");
    match std::fs::read_link(format!("/proc/{thread}/cwd")) {
        Ok(folder) if !has_no_file => normal(&folder.join(name)),
        _ => name.to_owned(),
    }
}

/// Reads a socket address. Returns `None` if it is neither an internet address nor that of a Unix socket, or cannot be
/// read.
fn address(memory: &File, pointer: u64, length: u64) -> Option<SocketAddress> {
    let length = usize::try_from(length).ok().filter(|_| pointer != 0)?.min(MAX_ADDRESS_BYTES);
    let mut bytes = [0; MAX_ADDRESS_BYTES];
    memory.read_exact_at(bytes.get_mut(..length)?, pointer).ok()?;
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    match u16::from_ne_bytes([bytes[0], bytes[1]]) {
        INET => Some(SocketAddress::Internet((Ipv4Addr::from(*bytes.get(4..8)?.first_chunk::<4>()?), port).into())),
        INET6 => Some(SocketAddress::Internet((Ipv6Addr::from(*bytes.get(8..24)?.first_chunk::<16>()?), port).into())),
        UNIX => {
            let name = bytes.get(2..length)?;
            // A name that begins with a zero byte is that of an abstract socket. It may contain more zero bytes; only
            // what precedes the next one is kept.
            let (kind, name) = if name.first() == Some(&0) { (&b"@"[..], name.get(1..)?) } else { (&b""[..], name) };
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            let name = [kind, name.get(..end)?].concat();
            Some(SocketAddress::Unix(PathBuf::from(std::ffi::OsString::from_vec(name)))).filter(|_| end > 0)
        }
        _ => None,
    }
}

/// Reads the addresses that the headers of messages name, each once; see sendmsg(2) and sendmmsg(2).
fn message_destinations(memory: &File, pointer: u64, count: u64) -> BTreeSet<SocketAddress> {
    let named = |at: u64| {
        let mut head = [0; NAME_FIELDS_BYTES];
        memory.read_exact_at(&mut head, pointer.checked_add(at * MMSGHDR_BYTES)?).ok()?;
        let name = u64::from_ne_bytes(*head.first_chunk()?);
        let length = u32::from_ne_bytes(*head.last_chunk()?);
        address(memory, name, length.into())
    };
    (0..count.min(MAX_MESSAGES)).filter_map(named).collect()
}

/// Returns an absolute path without `.` and `..`. Does not follow links, so a `..` after one may lead to another path
/// than the kernel takes. That can make the recording wrong, but grants nothing.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => drop(normal.pop()),
            _ => {}
        }
    }
    normal
}
