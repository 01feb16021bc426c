//! The root of a cell: an empty one, into which the declared parts are put. The machine's own root is detached.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2, symlinkat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create, fsconfig_set_string,
    fsmount, fsopen, move_mount, unmount,
};
use rustix::process::{fchdir, pivot_root};

use super::grants::{DetachedMount, clone_tree};
use super::sys::{MountAttributes, mount_setattr};
use crate::cell::CellSpec;
use crate::report::CellRefusal;
use crate::step::{StepExt, refused};

/// Devices that every program expects and that give access to nothing.
pub(super) const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// Links in `/dev` that the C library and shells expect.
pub(super) const DEVICE_LINKS: [(&str, &str); 4] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

/// Bytes of the root itself, which holds only mount points and the cell's own files.
const ROOT_BYTES: u64 = 16 << 20;

/// Files in each private folder: enough for a large package to unpack. They use kernel memory that no other limit
/// counts.
const MAX_FILES: u32 = 65_536;

/// Limits on kernel objects that no other limit counts. There are no namespaces, even for code that gets past seccomp,
/// and as many watches as editors and file servers use.
const KERNEL_LIMITS: [(&str, &str); 6] = [
    ("max_user_namespaces", "0"),
    ("max_mnt_namespaces", "0"),
    ("max_net_namespaces", "0"),
    ("max_inotify_instances", "16"),
    ("max_inotify_watches", "8192"),
    ("max_fanotify_groups", "0"),
];

/// Files in `/proc` with facts about the machine that no source needs: how it was started, its keys and modules, an id
/// by which sources could tell that they share it, and counters from which typing can be detected.
const MASKED: [&str; 9] = [
    "cmdline",
    "interrupts",
    "kallsyms",
    "key-users",
    "keys",
    "modules",
    "softirqs",
    "sys/kernel/random/boot_id",
    "vmallocinfo",
];

/// Moves an opened tree onto an opened folder or file.
const ONTO_OPENED: MoveMountFlags =
    MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH.union(MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH);

const NO_SURPRISES: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);

/// Makes the root and moves into it. To be called by the first process of its namespaces.
pub(super) fn build(cell: &CellSpec, grants: Vec<DetachedMount>) -> Result<(), CellRefusal> {
    let proc = file_system("proc", &[], NO_SURPRISES | MountAttrFlags::MOUNT_ATTR_NOEXEC).step("mount /proc")?;
    let root = tmpfs(ROOT_BYTES, "0755").step("mount the root")?;
    let mut pieces: Vec<Piece> = grants.into_iter().map(Piece::from).collect();
    for (path, mode) in [(Path::new("/tmp"), "1777"), (Path::new("/dev/shm"), "1777"), (&cell.home, "0700")] {
        let tree = tmpfs(cell.limits.tmp, mode).step(format_args!("mount {}", path.display()))?;
        pieces.push(Piece { path: path.to_owned(), tree, is_folder: true });
    }
    let hide = |path: &PathBuf| empty_folder().step(format_args!("hide {}", path.display()));
    let covers = cell.hidden.iter().map(hide).collect::<Result<Vec<_>, _>>()?;
    for name in DEVICES {
        pieces.push(device(name).step(format_args!("mount /dev/{name}"))?);
    }
    for path in masked() {
        let mask = device("null").step(format_args!("mask {}", path.display()))?;
        pieces.push(Piece { path, ..mask });
    }
    // Nothing can be mounted after this, only moved.
    limit_the_kernel(&proc).step("limit namespaces and watches")?;
    read_only(&proc).step("protect /proc")?;
    pieces.push(Piece { path: "/proc".into(), tree: proc, is_folder: true });
    // Inner paths come after outer ones.
    pieces.sort_by_key(|piece| piece.path.components().count());

    move_mount(&root, "", CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).step("attach the root")?;
    for piece in pieces {
        attach(&root, &piece)?;
    }
    for (path, cover) in cell.hidden.iter().zip(&covers) {
        attach_cover(&root, path, cover).step(format_args!("hide {}", path.display()))?;
    }
    for (path, content) in &cell.files {
        write(&root, path, content).step(format_args!("make {}", path.display()))?;
    }
    let links = DEVICE_LINKS.map(|(link, target)| (PathBuf::from(link), PathBuf::from(target)));
    for (path, target) in links.iter().chain(&cell.links) {
        link(&root, path, target).step(format_args!("link {}", path.display()))?;
    }
    enter(&root).step("enter the root")
}

/// Returns the masked files that exist on this machine.
pub(super) fn masked() -> impl Iterator<Item = PathBuf> {
    MASKED.iter().map(|name| Path::new("/proc").join(name)).filter(|path| path.exists())
}

/// Something to mount, and where.
struct Piece {
    path: PathBuf,
    tree: OwnedFd,
    is_folder: bool,
}

impl From<DetachedMount> for Piece {
    fn from(DetachedMount { path, tree, is_folder }: DetachedMount) -> Self {
        Self { path, tree, is_folder }
    }
}

fn file_system(kind: &str, options: &[(&str, &str)], attributes: MountAttrFlags) -> rustix::io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(&context, *key, *value)?;
    }
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

fn tmpfs(bytes: u64, mode: &str) -> rustix::io::Result<OwnedFd> {
    let (size, files) = (bytes.to_string(), MAX_FILES.to_string());
    file_system("tmpfs", &[("size", &size), ("mode", mode), ("nr_inodes", &files)], NO_SURPRISES)
}

/// Makes a folder in which there is nothing, and in which nothing can be made.
fn empty_folder() -> rustix::io::Result<OwnedFd> {
    let closed = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    file_system("tmpfs", &[("mode", "0555")], NO_SURPRISES | closed)
}

fn device(name: &str) -> std::io::Result<Piece> {
    let path = Path::new("/dev").join(name);
    let named = openat(CWD, &path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let tree = clone_tree(named)?;
    let set = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
    mount_setattr(tree.as_fd(), &MountAttributes { set, private: true, ..Default::default() })?;
    Ok(Piece { path, tree, is_folder: false })
}

/// Sets the limits of this process's user namespace, whichever `/proc` is given.
pub(super) fn limit_the_kernel(proc: &OwnedFd) -> rustix::io::Result<()> {
    for (name, value) in KERNEL_LIMITS {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        match openat(proc, Path::new("sys/user").join(name), flags, Mode::empty()) {
            Ok(file) => drop(rustix::io::write(file, value.as_bytes())?),
            // A kernel that lacks the feature has no limit for it.
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn attach(root: &OwnedFd, Piece { path, tree, is_folder }: &Piece) -> Result<(), CellRefusal> {
    let shown = path.display();
    let target = if *is_folder {
        folder(root, path).step(format_args!("make {shown}"))?
    } else {
        let (parent, name) = parent(root, path).step(format_args!("make {shown}"))?;
        // In a granted folder the file already exists.
        match openat(&parent, name, OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC, Mode::from_raw_mode(0o444)) {
            Ok(_) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno).step(format_args!("make {shown}")),
        }
        beneath(&parent, name, OFlags::empty()).step(format_args!("make {shown}"))?
    };
    if path == Path::new("/") {
        return Err(refused(
            "attach /",
            "the root of the machine cannot be granted",
            "grant the folders that are needed",
        ));
    }
    move_mount(tree, "", target, "", ONTO_OPENED).step(format_args!("attach {shown}"))
}

/// Attaches an empty folder over one that exists in the mounts. Makes nothing: it could be made in a granted folder.
fn attach_cover(root: &OwnedFd, path: &Path, cover: &OwnedFd) -> rustix::io::Result<()> {
    let below = path.strip_prefix("/").map_err(|_| Errno::INVAL)?;
    let target = beneath(root, below.as_os_str(), OFlags::DIRECTORY)?;
    move_mount(cover, "", target, "", ONTO_OPENED)
}

fn write(root: &OwnedFd, path: &Path, content: &[u8]) -> std::io::Result<()> {
    let (parent, name) = parent(root, path)?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    File::from(openat(&parent, name, flags, Mode::from_raw_mode(0o444))?).write_all(content)
}

fn link(root: &OwnedFd, path: &Path, target: &Path) -> rustix::io::Result<()> {
    let (parent, name) = parent(root, path)?;
    symlinkat(target, &parent, name)
}

fn parent<'path>(root: &OwnedFd, path: &'path Path) -> rustix::io::Result<(OwnedFd, &'path OsStr)> {
    let (parent, name) = path.parent().zip(path.file_name()).ok_or(Errno::INVAL)?;
    Ok((folder(root, parent)?, name))
}

/// Opens a folder, which is made if it does not exist. Follows no link: granted folders may be full of them.
fn folder(root: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let mut at = beneath(root, OsStr::new("."), OFlags::DIRECTORY)?;
    for component in path.components() {
        let name = match component {
            Component::Normal(name) => name,
            Component::RootDir => continue,
            _ => return Err(Errno::INVAL),
        };
        at = match beneath(&at, name, OFlags::DIRECTORY) {
            Err(Errno::NOENT) => {
                mkdirat(&at, name, Mode::from_raw_mode(0o755))?;
                beneath(&at, name, OFlags::DIRECTORY)?
            }
            opened => opened?,
        };
    }
    Ok(at)
}

fn beneath(folder: &OwnedFd, name: &OsStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(folder, name, OFlags::PATH | OFlags::CLOEXEC | flags, Mode::empty(), resolve)
}

/// Makes this the root, detaches the machine's, and makes the new root read-only.
fn enter(root: &OwnedFd) -> std::io::Result<()> {
    fchdir(root)?;
    // The old root lies over the new one then, and is unmounted.
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    std::env::set_current_dir("/")?;
    read_only(root)
}

fn read_only(tree: &OwnedFd) -> std::io::Result<()> {
    mount_setattr(tree.as_fd(), &MountAttributes { set: libc::MOUNT_ATTR_RDONLY, ..Default::default() })
}
