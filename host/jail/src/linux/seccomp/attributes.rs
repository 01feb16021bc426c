//! The system calls that change modes, owners, times and attributes of a file by its path, which Landlock does not
//! restrict, and its length, which Landlock does not restrict before Linux 6.2.

use std::io;

use libc::c_long;

use super::{FCHMODAT2, Filter, all, is_given};

/// These numbers are the same on all architectures; `libc` does not have them.
const SETXATTRAT: c_long = 463;
const REMOVEXATTRAT: c_long = 466;
const FILE_SETATTR: c_long = 469;

/// The calls that take a path and always change something.
const BY_PATH: &[c_long] = &[
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    REMOVEXATTRAT,
    FILE_SETATTR,
    libc::SYS_truncate,
];

/// The calls of [`BY_PATH`] that only this architecture has.
#[cfg(target_arch = "x86_64")]
const BY_PATH_HERE: &[c_long] =
    &[libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat];
#[cfg(not(target_arch = "x86_64"))]
const BY_PATH_HERE: &[c_long] = &[];

/// Returns the rules that deny every change of a file's attributes by its path.
pub(super) fn by_path() -> io::Result<Filter> {
    let mut filter: Filter = BY_PATH.iter().chain(BY_PATH_HERE).map(|&call| (call, Vec::new())).collect();
    // Without a path, the file is one that the caller has opened.
    filter.insert(libc::SYS_utimensat, vec![all([is_given(1)?])?]);
    Ok(filter)
}
