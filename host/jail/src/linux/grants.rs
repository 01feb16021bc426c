//! Opens everything that a cell mounts in advance: the cell sees the opened files, wherever their paths lead later.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};

use super::idmap::IdMappings;
use super::sys::{MountAttributes, mount_setattr};
use crate::cell::{Mount, MountAccess};
use crate::report::CellRefusal;
use crate::step::{StepExt, refused};

/// The name of the step that opens the mounts.
const STEP: &str = "open the mounts";

/// A detached copy of the mounts beneath one path, restricted to what the grant allows.
pub(super) struct DetachedMount {
    pub(super) path: PathBuf,
    pub(super) tree: OwnedFd,
    pub(super) is_folder: bool,
}

/// Opens each of the mounts, outer paths before those within them. With `maps`, the source gets the rights of an
/// entry's owner, unless the entry is public.
pub(super) fn open(mounts: &[Mount], mut maps: Option<&mut IdMappings>) -> Result<Vec<DetachedMount>, CellRefusal> {
    let mut mounts: Vec<_> = mounts.iter().collect();
    mounts.sort_by_key(|mount| mount.path.components().count());
    mounts.into_iter().map(|mount| grant(mount, maps.as_deref_mut())).collect()
}

fn grant(mount: &Mount, maps: Option<&mut IdMappings>) -> Result<DetachedMount, CellRefusal> {
    let path = &mount.path;
    let named = File::from(open_path(path)?);
    let about = named.metadata().step(format_args!("look at {}", path.display()))?;
    let tree = clone_tree(&named).step(format_args!("copy the mounts of {}", path.display()))?;
    let read_only = if mount.access == MountAccess::Write { 0 } else { libc::MOUNT_ATTR_RDONLY };
    let set = read_only | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    let mut attributes = MountAttributes { set, private: true, recursive: true, idmap: None };
    if let Some(maps) = maps.filter(|_| mount.access != MountAccess::Public) {
        let namespace = maps.for_owner(about.uid(), about.gid())?;
        attributes.idmap = Some(namespace.as_fd());
        if let Err(error) = mount_setattr(tree.as_fd(), &attributes) {
            without_idmap(mount, about.permissions().mode(), &error)?;
            attributes.idmap = None;
            mount_setattr(tree.as_fd(), &attributes).step(format_args!("protect {}", path.display()))?;
        }
    } else {
        mount_setattr(tree.as_fd(), &attributes).step(format_args!("protect {}", path.display()))?;
    }
    Ok(DetachedMount { path: path.clone(), tree, is_folder: about.is_dir() })
}

/// Opens a path without following links. A refusal says why it cannot be opened.
pub(super) fn open_path(path: &Path) -> Result<OwnedFd, CellRefusal> {
    let shown = path.display();
    if !path.is_absolute() {
        return Err(refused(STEP, format_args!("{shown} is not absolute"), "write the whole path"));
    }
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve).map_err(|errno| match errno {
        Errno::LOOP => {
            let remedy = match path.canonicalize() {
                Ok(target) => format!("write {}, where it leads now", target.display()),
                Err(_) => "write the path that it leads to".to_owned(),
            };
            refused(STEP, format_args!("{shown} has a symbolic link in it"), remedy)
        }
        Errno::NOENT => refused(STEP, format_args!("{shown} does not exist"), "create it, or grant something else"),
        errno => {
            let mut refusal = refused(STEP, format_args!("{shown}: {errno}"), "grant what the broker itself can open");
            refusal.errno = Some(errno.raw_os_error());
            refusal
        }
    })
}

/// Returns a detached copy of the mounts at and beneath a place.
pub(super) fn clone_tree(place: impl AsFd) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    open_tree(place, "", flags)
}

/// Accepts a mount that cannot be id-mapped if everyone may read it: some file systems do not support id mapping.
fn without_idmap(mount: &Mount, mode: u32, error: &io::Error) -> Result<(), CellRefusal> {
    const EVERYBODY_READS: u32 = 0o004;
    if mount.access != MountAccess::Write && mode & EVERYBODY_READS != 0 {
        return Ok(());
    }
    let cause = format_args!("{} is on a file system without id-mapped mounts: {error}", mount.path.display());
    let mut refusal = refused("map owners", cause, "start the broker as an ordinary user who owns it");
    refusal.errno = error.raw_os_error();
    Err(refusal)
}
