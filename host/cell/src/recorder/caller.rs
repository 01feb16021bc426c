//! Finds out what a waiting system call is about: reads the caller's memory, and looks into its root.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Component, Path, PathBuf};

use portcullis_jail::{Operation, RecordedCall, Syscall, SyscallListener, denied_call, recorded_call};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, StatVfsMountFlags, fstatvfs, openat, openat2};
use rustix::io::Errno;

use super::{Action, Availability, Subject};

/// The longest path that the kernel takes, in bytes, with its terminator.
const MAX_PATH_BYTES: usize = 4096;

/// The size of a page of memory, and the most that is read at once, in bytes. A path seldom crosses a page, and the
/// page after it may not exist.
const PAGE_BYTES: usize = 4096;

/// The longest address that is read, in bytes: that of IPv6.
const MAX_ADDRESS_BYTES: usize = 28;

/// Flags of `open`, which are the same on all architectures that cells run on.
const ACCESS_MODE: u64 = 0o3;
const CREATE: u64 = 0o100;
const TRUNCATE: u64 = 0o1000;

/// The families of addresses.
const INET: u16 = 2;
const INET6: u16 = 10;

/// A system call as it is seen from inside the cell.
pub(super) struct Seen {
    action: Action,
    subject: Subject,
    /// The answer of the cell, or `None` for a path that is to be looked up outside.
    inside: Option<Availability>,
    /// True if the call does nothing else than to make the path.
    makes: bool,
    /// True if the call may make the path.
    may_make: bool,
}

/// Returns what a call is about, or `None` if it concerns only the caller itself, or names no path.
///
/// # Errors
/// If the memory or the root of the caller cannot be read, or if it has ended.
pub(super) fn seen(listener: &SyscallListener, call: &Syscall) -> io::Result<Option<Seen>> {
    let plain = |action, subject, inside| Seen { action, subject, inside: Some(inside), makes: false, may_make: false };
    let Some(known) = recorded_call(call.number) else {
        let name = denied_call(call.number).unwrap_or("socket");
        return Ok(Some(plain(Action::Call, Subject::Call(name), Availability::Denied)));
    };
    let argument = |at: usize| call.arguments.get(at).copied().unwrap_or_default();
    match known.operation {
        Operation::Signal => {
            // A process group or process 1: everything that is not one known process.
            let to_others = argument(0).cast_signed() as i32 <= 1 && argument(1) != 0;
            Ok(to_others.then(|| plain(Action::Call, Subject::Call("kill"), Availability::Granted)))
        }
        Operation::Connect => {
            let memory = File::open(format!("/proc/{}/mem", call.thread))?;
            let length = known.flags.map(argument).unwrap_or_default();
            let Some(address) = address(&memory, argument(known.path), length) else { return Ok(None) };
            // The cell has no other interface than loopback.
            let loopback = address.ip().to_canonical().is_loopback();
            let inside = if loopback { Availability::Granted } else { Availability::Denied };
            still(listener, call, plain(Action::Connect, Subject::Address(address), inside))
        }
        operation => {
            let caller = Caller::of(call)?;
            let Some(path) = caller.path(known, call) else { return Ok(None) };
            let flags = known.flags.map(argument).unwrap_or_default();
            let action = match operation {
                Operation::Open if flags & (ACCESS_MODE | CREATE | TRUNCATE) != 0 => Action::Write,
                Operation::Open => Action::Read,
                Operation::Create | Operation::Change | Operation::Remove => Action::Write,
                Operation::Execute => Action::Execute,
                _ => Action::Look,
            };
            let makes = operation == Operation::Create;
            let may_make = makes || flags & CREATE != 0;
            let inside = caller.availability(&path, action, may_make);
            still(listener, call, Seen { action, subject: Subject::Path(path), inside, makes, may_make })
        }
    }
}

/// Returns what was seen, if the caller still waits: otherwise its memory may be that of another process.
fn still(listener: &SyscallListener, call: &Syscall, seen: Seen) -> io::Result<Option<Seen>> {
    if listener.still_waits(call) { Ok(Some(seen)) } else { Err(io::ErrorKind::NotFound.into()) }
}

impl Seen {
    /// Returns the attempt. Looks outside for a path that the cell does not have.
    pub(super) fn attempt(self) -> (Action, Subject, Availability) {
        let Self { action, subject, inside, makes, may_make } = self;
        let Subject::Path(path) = &subject else {
            return (action, subject, inside.unwrap_or(Availability::Absent));
        };
        // What is there already is left as it is, as by `mkdir -p`.
        let action =
            if makes && path.symlink_metadata().is_ok_and(|about| about.is_dir()) { Action::Look } else { action };
        let exists = |path: &Path| path.symlink_metadata().is_ok();
        let made = may_make && path.parent().is_some_and(exists);
        let outside = || if exists(path) || made { Availability::Hidden } else { Availability::Absent };
        let availability = inside.unwrap_or_else(outside);
        (action, subject, availability)
    }
}

/// Returns the name of a thread: that of its program, unless it has chosen another.
pub(super) fn program(thread: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{thread}/comm")).unwrap_or_default();
    portcullis_core::escape::escape_hidden(name.trim_end()).into_owned()
}

/// The process that waits.
struct Caller {
    thread: u32,
    memory: File,
    /// Its root folder.
    root: OwnedFd,
}

impl Caller {
    fn of(call: &Syscall) -> io::Result<Self> {
        let of = |name: &str| format!("/proc/{}/{name}", call.thread);
        let root = openat(CWD, of("root"), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { thread: call.thread, memory: File::open(of("mem"))?, root })
    }

    /// Returns the absolute path that a call names, or `None` for one that names none, such as an open descriptor.
    fn path(&self, known: &RecordedCall, call: &Syscall) -> Option<PathBuf> {
        let pointer = call.arguments.get(known.path).copied().filter(|pointer| *pointer != 0)?;
        let named = PathBuf::from(std::ffi::OsString::from_vec(text(&self.memory, pointer)?));
        if named.as_os_str().is_empty() {
            return None;
        }
        if named.is_absolute() {
            return Some(normal(&named));
        }
        let folder = known.folder.and_then(|at| call.arguments.get(at)).map(|folder| *folder as i32);
        let link = match folder {
            Some(descriptor) if descriptor >= 0 => format!("/proc/{}/fd/{descriptor}", self.thread),
            _ => format!("/proc/{}/cwd", self.thread),
        };
        let base = std::fs::read_link(link).ok().filter(|base| base.is_absolute())?;
        Some(normal(&base.join(named)))
    }

    /// Returns whether the cell has the path for this action, or `None` if it has not.
    fn availability(&self, path: &Path, action: Action, may_make: bool) -> Option<Availability> {
        let granted = |file: &OwnedFd| match action {
            Action::Write if is_read_only(file) => Availability::ReadOnly,
            _ => Availability::Granted,
        };
        match self.open(path) {
            Ok(file) => Some(granted(&file)),
            Err(Errno::ACCESS) => Some(Availability::Denied),
            Err(_) if may_make => Some(granted(&self.open(path.parent()?).ok()?)),
            Err(_) => None,
        }
    }

    /// Opens a path as it is inside the cell, without its content.
    fn open(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let below = path.strip_prefix("/").unwrap_or(path);
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        openat2(&self.root, below, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT)
    }
}

fn is_read_only(file: &OwnedFd) -> bool {
    fstatvfs(file).is_ok_and(|about| about.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Reads a text that ends with a zero byte.
fn text(memory: &File, pointer: u64) -> Option<Vec<u8>> {
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

/// Reads an internet address. `None` for any other.
fn address(memory: &File, pointer: u64, length: u64) -> Option<SocketAddr> {
    let length = usize::try_from(length).ok().filter(|_| pointer != 0)?.min(MAX_ADDRESS_BYTES);
    let mut bytes = [0; MAX_ADDRESS_BYTES];
    memory.read_exact_at(bytes.get_mut(..length)?, pointer).ok()?;
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    match u16::from_ne_bytes([bytes[0], bytes[1]]) {
        INET => Some((Ipv4Addr::from(*bytes.get(4..8)?.first_chunk::<4>()?), port).into()),
        INET6 => Some((Ipv6Addr::from(*bytes.get(8..24)?.first_chunk::<16>()?), port).into()),
        _ => None,
    }
}

/// Returns an absolute path without `.` and `..`. A link before `..` would lead elsewhere, which only the record shows.
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
