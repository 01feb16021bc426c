//! Finds the place that a path names, as the kernel would for the caller, and opens the folder around it. Whatever
//! happens to the path afterwards, a name in an open folder stays the one that was judged.

use std::ffi::{CStr, CString, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, fstatfs, openat, openat2, readlinkat};
use rustix::io::Errno;

use super::super::performed::PathArgument;
use super::caller::WaitingCaller;

/// The most symbolic links that are followed in the last component of a path: as many as the kernel follows.
const MAX_LINKS: u32 = 40;

/// The kind of the file system in which the kernel shows processes. proc(5)
const PROC_SUPER_MAGIC: i64 = 0x9fa0;

/// A name in an open folder. Nothing may be there, or a link, which no call of the deputy follows.
pub(super) struct FilePlace {
    pub(super) folder: OwnedFd,
    /// The name, with the slashes that the caller wrote after it.
    pub(super) name: CString,
}

/// The thing that a path leads to.
pub(super) enum PathTarget {
    /// Nothing is there.
    Absent(FilePlace),
    /// Something is there, or is behind a descriptor of the caller. It is open without its content.
    There(OwnedFd),
}

/// A path, and where it begins.
struct Named {
    base: Base,
    path: CString,
}

enum Base {
    /// A descriptor of the caller, or its working directory.
    Caller(i32),
    /// The folder of a link.
    Folder(OwnedFd),
}

/// A part of the way to a target.
enum Step {
    Place(FilePlace),
    /// The thing behind a descriptor of the caller.
    Descriptor(OwnedFd),
    /// A folder without a name.
    Folder(OwnedFd),
}

impl FilePlace {
    /// Finds the place that an argument names, and follows no link in its last component.
    pub(super) fn find(caller: &WaitingCaller<'_>, argument: PathArgument) -> rustix::io::Result<Self> {
        match step(caller, Named::of(caller, argument)?)? {
            Step::Place(place) => Ok(place),
            // Nothing can be made there.
            Step::Descriptor(_) | Step::Folder(_) => Err(Errno::PERM),
        }
    }

    /// Returns the path of the place.
    pub(super) fn path(&self) -> rustix::io::Result<PathBuf> {
        let name = self.plain_name().to_vec();
        Ok(path_of(&self.folder)?.join(OsString::from_vec(name)))
    }

    /// Returns the name without slashes after it.
    fn plain_name(&self) -> &[u8] {
        let name = self.name.to_bytes();
        let slashes = name.iter().rev().take_while(|byte| **byte == b'/').count();
        name.get(..name.len() - slashes).unwrap_or_default()
    }

    /// Opens the entry without its content, also if it is a link.
    pub(super) fn open(&self) -> rustix::io::Result<OwnedFd> {
        openat(&self.folder, self.plain_name(), OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
    }
}

impl PathTarget {
    /// Finds what an argument names. `follow` is true if a link in the last component leads on.
    pub(super) fn find(caller: &WaitingCaller<'_>, argument: PathArgument, follow: bool) -> rustix::io::Result<Self> {
        let mut named = Named::of(caller, argument)?;
        for _ in 0..=MAX_LINKS {
            let place = match step(caller, named)? {
                Step::Descriptor(file) | Step::Folder(file) => return Ok(Self::There(file)),
                Step::Place(place) => place,
            };
            let must_be_folder = place.name.as_bytes().ends_with(b"/");
            let there = match place.open() {
                Err(Errno::NOENT) if !must_be_folder => return Ok(Self::Absent(place)),
                opened => opened?,
            };
            match kind(&there)? {
                FileType::Symlink if follow => {}
                FileType::Directory => return Ok(Self::There(there)),
                _ if must_be_folder => return Err(Errno::NOTDIR),
                _ => return Ok(Self::There(there)),
            }
            // One of the kernel's own links leads to the object that a process holds, not to the path that it shows.
            if fstatfs(&there)?.f_type == PROC_SUPER_MAGIC {
                return Err(Errno::LOOP);
            }
            named = Named { base: Base::Folder(place.folder), path: readlinkat(&there, c"", Vec::new())? };
        }
        Err(Errno::LOOP)
    }
}

impl Named {
    fn of(caller: &WaitingCaller<'_>, argument: PathArgument) -> rustix::io::Result<Self> {
        Ok(Self { base: Base::Caller(argument.folder), path: caller.path(argument.pointer)? })
    }
}

/// Opens the folder around the last component of a path. The kernel follows the links on the way there, except its own
/// links to what a process holds: those of this process are not the caller's.
fn step(caller: &WaitingCaller<'_>, Named { base, path }: Named) -> rustix::io::Result<Step> {
    let (base, path) = match own_descriptor(caller, &path) {
        Some((descriptor, [])) => return caller.descriptor(descriptor).map(Step::Descriptor),
        Some((descriptor, rest)) => (Base::Caller(descriptor), rest.to_vec()),
        None => (base, path.into_bytes()),
    };
    let slashes = path.iter().rev().take_while(|byte| **byte == b'/').count();
    let end = path.len() - slashes;
    let begin = path.get(..end).unwrap_or_default().iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let (parent, name) = path.split_at(begin);
    let open = |base: BorrowedFd<'_>, path: &[u8]| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat2(base, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
    };
    let base = match base {
        _ if path.first() == Some(&b'/') => None,
        Base::Caller(descriptor) => Some(caller.folder(descriptor)?),
        Base::Folder(folder) => Some(folder),
    };
    let from = base.as_ref().map_or(CWD, AsFd::as_fd);
    if matches!(name.get(..end - begin).unwrap_or_default(), b"" | b"." | b"..") {
        // These name a folder that can be neither created nor removed.
        return open(from, &path).map(Step::Folder);
    }
    let folder = match base {
        Some(base) if parent.is_empty() => base,
        _ => open(from, parent)?,
    };
    Ok(Step::Place(FilePlace { folder, name: CString::new(name).map_err(|_| Errno::INVAL)? }))
}

/// Returns the descriptor that a path names as one of the caller's own, or its working directory, and the rest of the
/// path.
fn own_descriptor<'path>(caller: &WaitingCaller<'_>, path: &'path CStr) -> Option<(i32, &'path [u8])> {
    let path = path.to_bytes();
    for (name, descriptor) in [("stdin", 0), ("stdout", 1), ("stderr", 2)] {
        if path.strip_prefix(b"/dev/") == Some(name.as_bytes()) {
            return Some((descriptor, &[]));
        }
    }
    let thread = format!("/proc/{}/", caller.thread());
    let own = ["/proc/self/", "/proc/thread-self/", &thread].iter().find_map(|own| path.strip_prefix(own.as_bytes()));
    if let Some(rest) = own.and_then(|own| own.strip_prefix(b"cwd/")).filter(|rest| !rest.is_empty()) {
        return Some((libc::AT_FDCWD, rest));
    }
    let after = path.strip_prefix(b"/dev/fd/").or_else(|| own?.strip_prefix(b"fd/"))?;
    let end = after.iter().position(|byte| *byte == b'/').unwrap_or(after.len());
    let (number, rest) = after.split_at(end);
    let descriptor = std::str::from_utf8(number).ok()?.parse().ok()?;
    let rest = rest.iter().position(|byte| *byte != b'/').and_then(|begin| rest.get(begin..));
    Some((descriptor, rest.unwrap_or_default()))
}

/// Returns the path of an open file as the kernel knows it now.
pub(super) fn path_of(file: impl AsFd) -> rustix::io::Result<PathBuf> {
    let path = readlinkat(CWD, own_link(file), Vec::new())?;
    Ok(OsString::from_vec(path.into_bytes()).into())
}

/// Returns a path by which this process finds a file that it has opened.
pub(super) fn own_link(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

pub(super) fn kind(file: &OwnedFd) -> rustix::io::Result<FileType> {
    Ok(FileType::from_raw_mode(fstat(file)?.st_mode))
}
