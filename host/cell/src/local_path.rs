//! A look at whether a path exists on this machine that asks no other machine and mounts nothing, since the path may be
//! one that a source chose.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

/// The file systems that keep their files on this machine, or in it. Of any other, such as one of the network, of a
/// program, or one that mounts what is looked for, nothing is known.
const LOCAL: [&str; 18] = [
    "bcachefs", "btrfs", "devtmpfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "iso9660", "overlay", "proc",
    "squashfs", "sysfs", "tmpfs", "vfat", "xfs", "zfs",
];

/// Reports whether a path exists. Returns `None` if that cannot be known: if the path leads through a link or up, or is
/// not on a file system of this machine.
pub(crate) fn exists(path: &Path) -> Option<bool> {
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    if !is_local(path, &mounts) {
        return None;
    }
    // A link could lead to another file system. The last name may be one: it is not followed.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS) {
        Ok(_) => Some(true),
        Err(Errno::NOENT | Errno::NOTDIR) => Some(false),
        Err(_) => None,
    }
}

/// Reports whether a path is on a file system of this machine, as the mounts of proc_pid_mountinfo(5) say.
fn is_local(path: &Path, mounts: &[u8]) -> bool {
    if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
        return false;
    }
    let mut holds = None;
    for (at, kind) in mounts.split(|byte| *byte == b'\n').filter_map(mount) {
        // Of several at one place, the last one is on top.
        if path.starts_with(&at) && holds.as_ref().is_none_or(|(held, _): &(PathBuf, _)| at.starts_with(held)) {
            holds = Some((at, kind));
        }
    }
    holds.is_some_and(|(_, kind)| LOCAL.iter().any(|local| local.as_bytes() == kind))
}

/// Returns the place and the kind of a mount.
fn mount(line: &[u8]) -> Option<(PathBuf, &[u8])> {
    let mut words = line.split(|byte| *byte == b' ');
    let place = words.nth(4)?;
    let kind = words.skip_while(|word| *word != b"-").nth(1)?;
    Some((unescaped(place), kind))
}

/// Returns a path whose blanks and backslashes are written as three octal digits.
fn unescaped(word: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| *first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsStr::from_bytes(&bytes).into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const MOUNTS: &[u8] = b"\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
22 21 0:20 / /proc rw - proc proc rw\n\
23 21 0:30 / /net rw,relatime shared:9 master:3 - autofs -hosts rw\n\
24 21 0:31 / /data rw - nfs4 server:/data rw\n\
25 24 8:2 / /data/near rw - xfs /dev/sdb rw\n\
26 21 0:32 / /mnt/two\\040words rw - fuse.sshfs far:/ rw\n\
27 21 8:3 / /home rw - ext4 /dev/sdc rw\n\
28 27 0:33 / /home rw - autofs auto.home rw\n";

    #[test]
    fn only_file_systems_of_this_machine_are_looked_at() {
        for (path, local) in [
            ("/etc/hosts", true),
            ("/network/x", true),
            ("/proc/self/maps", true),
            ("/data/near/x", true),
            ("/net/data.evil.example/x", false),
            ("/net", false),
            ("/data/x", false),
            ("/data/nearby", false),
            ("/mnt/two words/x", false),
            ("/mnt/two", true),
            ("/home/ann", false),
            ("/etc/../net/evil.example", false),
            ("etc/hosts", false),
        ] {
            assert_eq!(is_local(Path::new(path), MOUNTS), local, "{path}");
        }
        assert!(!is_local(Path::new("/etc/hosts"), b""));
    }

    #[test]
    fn nothing_is_known_of_what_a_link_leads_to() {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let real = folder.path().canonicalize().unwrap();
        std::fs::write(real.join("file"), "").unwrap();
        std::os::unix::fs::symlink("/net", real.join("link")).unwrap();
        assert_eq!(exists(&real.join("file")), Some(true));
        assert_eq!(exists(&real.join("link")), Some(true), "the link itself");
        assert_eq!(exists(&real.join("none")), Some(false));
        assert_eq!(exists(&real.join("file/below")), Some(false));
        assert_eq!(exists(&real.join("link/evil.example")), None);
    }
}
