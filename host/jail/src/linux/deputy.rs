//! The deputy of a source: it makes, changes and removes files for the source, except those under protected names.
//!
//! Landlock lets the source only read the folders that it may write: it cannot change them directly. Its calls that
//! would do so wait for the deputy (seccomp user notification), which copies the path out of the source's memory, opens
//! the folder around the last name, compares that name, and makes the call in the open folder. Changes that the source
//! makes to its memory or to the path meanwhile have no effect. A call that changes no such folder, or that fails
//! anyway, is passed back to the kernel: there the source's own restrictions decide about it, whatever the path is by
//! then.
//!
//! The deputy runs in the supervising process: in the namespaces of the cell, as the same user, without privileges over
//! files, and restricted by Landlock to what the cell grants. So the source gains nothing through it.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, fcntl_setfl, ftruncate, linkat, mkdirat, openat, renameat_with,
    symlinkat, unlinkat,
};
use rustix::io::Errno;
use rustix::thread::UnshareFlags;

use self::caller::WaitingCaller;
use self::place::{FilePlace, PathTarget, kind, own_link, path_of};
use super::landlock::{self, RestrictedProcess};
use super::performed::{FileRequest, PathArgument};
use super::sys;
use super::syscall_listener::{ForwardedCall, Syscall, SyscallAnswer, SyscallListener};
use crate::cell::{CellSpec, Tier};
use crate::names::folded_name;
use crate::report::CellRefusal;
use crate::step::StepExt;
use crate::wire;

mod caller;
mod place;

/// Threads of the deputy. A slow disk delays as many calls before it delays others.
pub(super) const WORKERS: u32 = 4;

/// Bytes of the stack of each: a path and a few structures.
const STACK_BYTES: usize = 256 << 10;

/// The most attempts to open a file that other processes make and remove meanwhile.
const MAX_ATTEMPTS: u32 = 64;

/// The deputy of one source.
pub(super) struct Deputy {
    /// The folders that the source cannot change directly.
    guarded: Vec<PathBuf>,
    /// The protected names, as [`folded_name`] returns them.
    names: Vec<Vec<u8>>,
    /// The largest file that the source may have, in bytes.
    file_size: u64,
}

/// The way on which calls come.
pub(super) enum CallSource {
    /// From the kernel.
    Own(SyscallListener),
    /// From the broker, which records the source and sees the calls first.
    Forwarded(SyscallListener, Mutex<UnixStream>),
}

/// A reason not to perform a call.
enum Stop {
    /// The call changes nothing in a guarded folder, or fails anyway: it is passed back to the kernel. If it must not
    /// be, it fails with this error.
    Pass(Errno),
    /// The call fails with this error.
    Fail(Errno),
}

/// The meaning of a path for the deputy.
enum Standing {
    /// In no guarded folder.
    Outside,
    /// In a guarded folder, and free to be changed.
    Free,
    /// Under a protected name in a guarded folder.
    Protected,
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Fail(errno)
    }
}

/// Passes back a call if something was not found: the kernel finds the right error.
fn found<T>(result: rustix::io::Result<T>) -> Result<T, Stop> {
    result.map_err(Stop::Pass)
}

impl Deputy {
    /// Returns the deputy of a cell with protected names, and restricts this process to what the cell grants. Returns
    /// `None` for any other cell, and if the kernel cannot give a source a deputy.
    ///
    /// To be called before the source's process is made, so that its restrictions lie within those of this process.
    pub(super) fn of(cell: &CellSpec) -> Result<Option<Self>, CellRefusal> {
        if cell.protected_names.is_empty() || !sys::listeners_are_killable() || memory_is_closed(cell.tier) {
            return Ok(None);
        }
        if landlock::apply(cell, RestrictedProcess::Deputy)? == 0 {
            return Ok(None);
        }
        Ok(Some(Self {
            guarded: landlock::guarded(cell).into_iter().map(Path::to_owned).collect(),
            names: cell.protected_names.iter().map(|name| folded_name(name.as_bytes())).collect(),
            file_size: cell.limits.file_size,
        }))
    }

    /// Starts the threads that perform calls. They live as long as this process.
    pub(super) fn start(self, calls: CallSource) -> Result<(), CellRefusal> {
        let (deputy, calls) = (Arc::new(self), Arc::new(calls));
        for _ in 0..WORKERS {
            let (deputy, calls) = (Arc::clone(&deputy), Arc::clone(&calls));
            let work = move || deputy.work(&calls);
            let worker = thread::Builder::new().name("deputy".to_owned()).stack_size(STACK_BYTES);
            worker.spawn(work).step("start the deputy")?;
        }
        Ok(())
    }

    fn work(&self, calls: &CallSource) {
        // Each thread takes over the umask of its caller.
        if sys::unshare(UnshareFlags::FS).is_err() {
            // Without its deputy the source could only wait.
            std::process::exit(super::FAILED);
        }
        while let Some((listener, call)) = calls.next() {
            let answer = self.answer(listener, &call);
            listener.answer(&call, answer);
        }
    }

    fn answer(&self, listener: &SyscallListener, call: &Syscall) -> SyscallAnswer {
        let Some(request) = FileRequest::of(call.number, call.arguments) else { return SyscallAnswer::Continue };
        match self.perform(&WaitingCaller::new(listener, call), request) {
            Ok(answer) => answer,
            Err(Stop::Pass(errno)) if request.only_truncates() => SyscallAnswer::Fail(errno),
            Err(Stop::Pass(_)) => SyscallAnswer::Continue,
            Err(Stop::Fail(errno)) => SyscallAnswer::Fail(errno),
        }
    }

    fn perform(&self, caller: &WaitingCaller<'_>, request: FileRequest) -> Result<SyscallAnswer, Stop> {
        match request {
            FileRequest::Open { path, flags, mode } => {
                return self.open(caller, path, flags, Mode::from_raw_mode(mode));
            }
            FileRequest::MakeFolder { path, mode } => {
                let place = self.free_place(caller, path)?;
                self.take_umask(caller)?;
                mkdirat(&place.folder, &place.name, Mode::from_raw_mode(mode))?;
            }
            FileRequest::Link { old, new, flags } => self.link(caller, old, new, AtFlags::from_bits_retain(flags))?,
            FileRequest::SymbolicLink { target, path } => {
                let target = found(caller.path(target))?;
                let place = self.free_place(caller, path)?;
                caller.confirm()?;
                symlinkat(target, &place.folder, &place.name)?;
            }
            FileRequest::Rename { old, new, flags } => {
                let (old, new) = (found(FilePlace::find(caller, old))?, found(FilePlace::find(caller, new))?);
                self.check_old(&old)?;
                self.check(&found(new.path())?)?;
                caller.confirm()?;
                let flags = RenameFlags::from_bits_retain(flags);
                renameat_with(&old.folder, &old.name, &new.folder, &new.name, flags)?;
            }
            FileRequest::Remove { path, flags } => {
                let place = found(FilePlace::find(caller, path))?;
                self.check_old(&place)?;
                caller.confirm()?;
                unlinkat(&place.folder, &place.name, AtFlags::from_bits_retain(flags))?;
            }
            FileRequest::Truncate { path, length } => self.truncate(caller, path, length)?,
        }
        Ok(SyscallAnswer::Succeed)
    }

    /// Opens a file for the caller: one that exists, or a new one.
    fn open(
        &self,
        caller: &WaitingCaller<'_>,
        path: PathArgument,
        flags: u32,
        mode: Mode,
    ) -> Result<SyscallAnswer, Stop> {
        let flags = OFlags::from_bits_retain(flags);
        if flags.contains(OFlags::CREATE | OFlags::DIRECTORY) {
            // The kernel refuses this, or makes no folder.
            return Err(Stop::Pass(Errno::INVAL));
        }
        let must_be_new = flags.contains(OFlags::CREATE | OFlags::EXCL);
        let follow = !must_be_new && !flags.contains(OFlags::NOFOLLOW);
        for _ in 0..MAX_ATTEMPTS {
            let opened = match found(PathTarget::find(caller, path, follow))? {
                PathTarget::There(file) if must_be_new && kind(&file)? != FileType::Directory => {
                    return Err(Stop::Fail(Errno::EXIST));
                }
                PathTarget::There(file) => return self.open_what_is_there(caller, &file, flags, mode),
                PathTarget::Absent(_) if !flags.contains(OFlags::CREATE) => return Err(Stop::Pass(Errno::NOENT)),
                PathTarget::Absent(place) => {
                    self.check_new(&place)?;
                    self.take_umask(caller)?;
                    // Only a name that is still free is taken. A file that has appeared meanwhile was not judged.
                    openat(&place.folder, &place.name, flags | OFlags::EXCL | OFlags::CLOEXEC, mode)
                }
            };
            match opened {
                Err(Errno::EXIST) if !must_be_new => {}
                opened => return Ok(SyscallAnswer::Descriptor(opened?, flags & OFlags::CLOEXEC)),
            }
        }
        Err(Stop::Fail(Errno::AGAIN))
    }

    fn open_what_is_there(
        &self,
        caller: &WaitingCaller<'_>,
        file: &OwnedFd,
        flags: OFlags,
        mode: Mode,
    ) -> Result<SyscallAnswer, Stop> {
        let path = found(path_of(file))?;
        let kind = found(kind(file))?;
        if flags.contains(OFlags::TMPFILE) && kind == FileType::Directory {
            // The file has no name, so any name will do: only a file in a protected folder is refused.
            self.check(&path.join("unnamed"))?;
            self.take_umask(caller)?;
            let opened = openat(CWD, own_link(file), flags.difference(OFlags::NOFOLLOW) | OFlags::CLOEXEC, mode)?;
            return Ok(SyscallAnswer::Descriptor(opened, flags & OFlags::CLOEXEC));
        }
        if !matches!(kind, FileType::RegularFile | FileType::Fifo) {
            return Err(Stop::Pass(Errno::ACCESS));
        }
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC);
        match self.standing(&path) {
            Standing::Outside => return Err(Stop::Pass(Errno::ACCESS)),
            Standing::Protected if writes => return Err(Stop::Fail(Errno::PERM)),
            Standing::Protected | Standing::Free => {}
        }
        caller.confirm()?;
        let made = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        // The deputy does not wait for the other end of a pipe. A caller that would otherwise wait gets an error.
        let waits = if kind == FileType::Fifo { OFlags::NONBLOCK } else { OFlags::empty() };
        let opened = openat(CWD, own_link(file), flags.difference(made) | waits | OFlags::CLOEXEC, Mode::empty())?;
        if !flags.contains(waits) {
            fcntl_setfl(&opened, flags)?;
        }
        Ok(SyscallAnswer::Descriptor(opened, flags & OFlags::CLOEXEC))
    }

    fn link(
        &self,
        caller: &WaitingCaller<'_>,
        old: PathArgument,
        new: PathArgument,
        flags: AtFlags,
    ) -> Result<(), Stop> {
        if !(AtFlags::SYMLINK_FOLLOW | AtFlags::EMPTY_PATH).contains(flags) {
            return Err(Stop::Pass(Errno::INVAL));
        }
        let follow = flags.contains(AtFlags::SYMLINK_FOLLOW);
        let is_descriptor = flags.contains(AtFlags::EMPTY_PATH) && found(caller.path(old.pointer))?.is_empty();
        let file = if is_descriptor {
            found(caller.descriptor(old.folder))?
        } else {
            match found(PathTarget::find(caller, old, follow))? {
                PathTarget::There(file) => file,
                PathTarget::Absent(_) => return Err(Stop::Pass(Errno::NOENT)),
            }
        };
        let new = found(FilePlace::find(caller, new))?;
        self.check(&found(path_of(&file))?)?;
        self.check_new(&new)?;
        caller.confirm()?;
        linkat(CWD, own_link(&file), &new.folder, &new.name, AtFlags::SYMLINK_FOLLOW)?;
        Ok(())
    }

    fn truncate(&self, caller: &WaitingCaller<'_>, path: PathArgument, length: i64) -> Result<(), Stop> {
        let length = u64::try_from(length).map_err(|_| Errno::INVAL)?;
        let PathTarget::There(file) = found(PathTarget::find(caller, path, true))? else {
            return Err(Stop::Fail(Errno::NOENT));
        };
        match found(kind(&file))? {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Stop::Fail(Errno::ISDIR)),
            _ => return Err(Stop::Fail(Errno::INVAL)),
        }
        if let Standing::Protected = self.standing(&found(path_of(&file))?) {
            return Err(Stop::Fail(Errno::PERM));
        }
        if length > self.file_size {
            return Err(Stop::Fail(Errno::FBIG));
        }
        caller.confirm()?;
        let opened = openat(CWD, own_link(&file), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        ftruncate(opened, length)?;
        Ok(())
    }

    /// Finds the place of something new, and checks that it is free to be made.
    fn free_place(&self, caller: &WaitingCaller<'_>, path: PathArgument) -> Result<FilePlace, Stop> {
        let place = found(FilePlace::find(caller, path))?;
        self.check_new(&place)?;
        Ok(place)
    }

    /// Refuses a place that is protected. Where something is already, that is the reason.
    fn check_new(&self, place: &FilePlace) -> Result<(), Stop> {
        self.check(&found(place.path())?).map_err(|stop| match stop {
            Stop::Fail(Errno::PERM) if place.open().is_ok() => Stop::Fail(Errno::EXIST),
            stop => stop,
        })
    }

    /// Refuses to move or remove anything at a protected place. If nothing is there, the kernel says so.
    fn check_old(&self, place: &FilePlace) -> Result<(), Stop> {
        self.check(&found(place.path())?).map_err(|stop| match place.open() {
            Err(errno) => Stop::Pass(errno),
            Ok(_) => stop,
        })
    }

    /// Takes over the caller's umask. This is the last access to the caller.
    fn take_umask(&self, caller: &WaitingCaller<'_>) -> rustix::io::Result<()> {
        let mask = caller.umask()?;
        caller.confirm()?;
        rustix::process::umask(mask);
        Ok(())
    }

    /// Checks that a path may be changed. A call that moves or links something between a guarded folder and another is
    /// passed back: they are different mounts, and the kernel refuses it.
    fn check(&self, path: &Path) -> Result<(), Stop> {
        match self.standing(path) {
            Standing::Outside => Err(Stop::Pass(Errno::ACCESS)),
            Standing::Free => Ok(()),
            Standing::Protected => Err(Stop::Fail(Errno::PERM)),
        }
    }

    fn standing(&self, path: &Path) -> Standing {
        let within = self.guarded.iter().filter_map(|folder| path.strip_prefix(folder).ok());
        // The innermost of the folders.
        let Some(below) = within.min_by_key(|below| below.components().count()) else { return Standing::Outside };
        let is_protected = below.iter().any(|name| self.names.contains(&folded_name(name.as_bytes())));
        if is_protected { Standing::Protected } else { Standing::Free }
    }
}

impl CallSource {
    /// Waits for the next call. Returns `None` once there will be no more.
    fn next(&self) -> Option<(&SyscallListener, Syscall)> {
        match self {
            Self::Own(listener) => Some((listener, listener.wait()?)),
            Self::Forwarded(listener, from) => {
                let from = from.lock().unwrap_or_else(PoisonError::into_inner);
                let (ForwardedCall { id, thread, number, arguments }, _) = wire::receive(&from).ok()?;
                Some((listener, Syscall { id, thread, number, arguments }))
            }
        }
    }
}

/// Reports whether the machine lets no process read the memory of another, not even of its descendants (Yama).
fn memory_is_closed(tier: Tier) -> bool {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let scope: u32 = scope.trim().parse().unwrap_or_default();
    // In its own user namespace the deputy keeps the right to do so, which helps up to scope 2.
    scope >= if tier == Tier::Reduced { 2 } else { 3 }
}
