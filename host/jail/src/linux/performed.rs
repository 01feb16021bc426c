//! The system calls that the deputy of a source performs, and the meaning of their arguments.

use libc::c_long;

/// A path among the arguments of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PathArgument {
    /// The caller's descriptor of the folder to which the path is relative, or `AT_FDCWD`.
    pub(super) folder: i32,
    /// The path's address in the caller's memory.
    pub(super) pointer: u64,
}

/// A call that makes, changes or removes something. Flags and modes are as the caller gave them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileRequest {
    /// Open a file to write, to truncate or to make it.
    Open { path: PathArgument, flags: u32, mode: u32 },
    /// Make a folder.
    MakeFolder { path: PathArgument, mode: u32 },
    /// Make another name of a file.
    Link { old: PathArgument, new: PathArgument, flags: u32 },
    /// Make a symbolic link; the target is an address in the caller's memory.
    SymbolicLink { target: u64, path: PathArgument },
    /// Rename or exchange.
    Rename { old: PathArgument, new: PathArgument, flags: u32 },
    /// Remove a file, a folder or a link.
    Remove { path: PathArgument, flags: u32 },
    /// Change the length of a file.
    Truncate { path: PathArgument, length: i64 },
}

/// The flags of `open`: at least one is set if the call can change something.
pub(super) const CHANGING_FLAGS: [i32; 4] = [libc::O_CREAT, libc::O_WRONLY, libc::O_RDWR, libc::O_TRUNC];

/// The calls that the deputy performs, on all architectures. For those that open a file, the argument with the flags.
pub(super) const PERFORMED: &[(c_long, Option<u8>)] = &[
    (libc::SYS_openat, Some(2)),
    (libc::SYS_mkdirat, None),
    (libc::SYS_linkat, None),
    (libc::SYS_symlinkat, None),
    (libc::SYS_renameat, None),
    (libc::SYS_renameat2, None),
    (libc::SYS_unlinkat, None),
    (libc::SYS_truncate, None),
];

/// The performed system calls that only this architecture has.
#[cfg(target_arch = "x86_64")]
pub(super) const PERFORMED_HERE: &[(c_long, Option<u8>)] = &[
    (libc::SYS_open, Some(1)),
    (libc::SYS_creat, None),
    (libc::SYS_mkdir, None),
    (libc::SYS_link, None),
    (libc::SYS_symlink, None),
    (libc::SYS_rename, None),
    (libc::SYS_unlink, None),
    (libc::SYS_rmdir, None),
];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const PERFORMED_HERE: &[(c_long, Option<u8>)] = &[];

impl FileRequest {
    /// Returns what a call asks for, or `None` for a call that changes nothing that the deputy guards.
    pub(super) fn of(number: c_long, arguments: [u64; 6]) -> Option<Self> {
        let [a, b, c, d, e, _] = arguments;
        match number {
            libc::SYS_openat => Self::open(at(a, b), low(c), low(d)),
            libc::SYS_mkdirat => Some(Self::MakeFolder { path: at(a, b), mode: low(c) }),
            libc::SYS_linkat => Some(Self::Link { old: at(a, b), new: at(c, d), flags: low(e) }),
            libc::SYS_symlinkat => Some(Self::SymbolicLink { target: a, path: at(b, c) }),
            libc::SYS_renameat => Some(Self::Rename { old: at(a, b), new: at(c, d), flags: 0 }),
            libc::SYS_renameat2 => Some(Self::Rename { old: at(a, b), new: at(c, d), flags: low(e) }),
            libc::SYS_unlinkat => Some(Self::Remove { path: at(a, b), flags: low(c) }),
            libc::SYS_truncate => Some(Self::Truncate { path: plain(a), length: b.cast_signed() }),
            _ => Self::of_older(number, arguments),
        }
    }

    /// As [`Self::of`], for calls that only this architecture has.
    #[cfg(target_arch = "x86_64")]
    fn of_older(number: c_long, arguments: [u64; 6]) -> Option<Self> {
        let [a, b, c, ..] = arguments;
        const NEW: u32 = (libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC).cast_unsigned();
        match number {
            libc::SYS_open => Self::open(plain(a), low(b), low(c)),
            libc::SYS_creat => Self::open(plain(a), NEW, low(b)),
            libc::SYS_mkdir => Some(Self::MakeFolder { path: plain(a), mode: low(b) }),
            libc::SYS_link => Some(Self::Link { old: plain(a), new: plain(b), flags: 0 }),
            libc::SYS_symlink => Some(Self::SymbolicLink { target: a, path: plain(b) }),
            libc::SYS_rename => Some(Self::Rename { old: plain(a), new: plain(b), flags: 0 }),
            libc::SYS_unlink => Some(Self::Remove { path: plain(a), flags: 0 }),
            libc::SYS_rmdir => Some(Self::Remove { path: plain(a), flags: libc::AT_REMOVEDIR.cast_unsigned() }),
            _ => None,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn of_older(_: c_long, _: [u64; 6]) -> Option<Self> {
        None
    }

    fn open(path: PathArgument, flags: u32, mode: u32) -> Option<Self> {
        let changes = CHANGING_FLAGS.into_iter().any(|flag| flags & flag.cast_unsigned() != 0);
        // Such a descriptor is a mere name of the file, and the other flags do not count.
        let is_name = flags & libc::O_PATH.cast_unsigned() != 0;
        (changes && !is_name).then_some(Self::Open { path, flags, mode })
    }

    /// Reports whether the call shortens a file without opening it to write, which Landlock of an older kernel does not
    /// see (before 6.2): it must not be passed to the kernel, which would read the path again.
    pub(super) fn only_truncates(&self) -> bool {
        const ACCESS: u32 = libc::O_ACCMODE.cast_unsigned();
        const TRUNCATE: u32 = libc::O_TRUNC.cast_unsigned();
        match self {
            Self::Truncate { .. } => true,
            Self::Open { flags, .. } => flags & TRUNCATE != 0 && flags & ACCESS == libc::O_RDONLY.cast_unsigned(),
            _ => false,
        }
    }
}

const fn at(folder: u64, pointer: u64) -> PathArgument {
    PathArgument { folder: low(folder).cast_signed(), pointer }
}

const fn plain(pointer: u64) -> PathArgument {
    PathArgument { folder: libc::AT_FDCWD, pointer }
}

/// Returns the 32 bits that the kernel takes of these arguments.
const fn low(argument: u64) -> u32 {
    (argument & 0xffff_ffff) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::recorded_call;

    #[test]
    fn every_performed_call_is_understood_and_seen_by_the_recorder() {
        for &(number, flags) in PERFORMED.iter().chain(PERFORMED_HERE) {
            let mut arguments = [0; 6];
            if let Some(argument) = flags.and_then(|at| arguments.get_mut(usize::from(at))) {
                *argument = u64::from(libc::O_WRONLY.cast_unsigned());
            }
            assert!(FileRequest::of(number, arguments).is_some(), "{number}");
            assert!(recorded_call(number).is_some(), "{number}");
        }
    }
}
