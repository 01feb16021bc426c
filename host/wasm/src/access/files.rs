//! The files of a component: the folders that it is granted, and what it may open in them.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FileType;
use rustix::io::Errno;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::filesystem::{Descriptor, Dir, WasiFilesystemCtxView, WasiFilesystemView as _};
use wasmtime_wasi::p2::FsError;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, ErrorCode, Host as _, HostDescriptor as _, NewTimestamp, OpenFlags, PathFlags,
};
use wasmtime_wasi::{FsPerms, WasiCtxBuilder};

use super::super::guest::GuestState;
use super::place::{Place, is_kept};

/// The interface as wasmtime defines it. Imports of another 0.2 release resolve to it too.
const TYPES: &str = "wasi:filesystem/types@0.2.12";

/// Opens a granted folder. As everywhere, a path is the same inside as outside.
///
/// No symbolic link is followed: since the grant was checked, anyone who may write next to the folder can have put a
/// link in its place.
#[cfg(target_os = "linux")]
pub(super) fn preopen(builder: &mut WasiCtxBuilder, path: &Path, rights: FsPerms) -> io::Result<()> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
    use std::os::fd::AsRawFd as _;

    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    let opened = format!("/proc/self/fd/{}", folder.as_raw_fd());
    builder.preopened_dir(opened, path.to_string_lossy(), rights).map_err(io::Error::other)?;
    Ok(())
}

/// Opens a granted folder on systems without a system call that refuses links: the path is checked for them first.
#[cfg(not(target_os = "linux"))]
pub(super) fn preopen(builder: &mut WasiCtxBuilder, path: &Path, rights: FsPerms) -> io::Result<()> {
    if path.canonicalize()? != path {
        return Err(io::Error::other("there is a link in the path now"));
    }
    builder.preopened_dir(path, path.to_string_lossy(), rights).map_err(io::Error::other)?;
    Ok(())
}

/// Replaces the functions that open and change files. Only files and folders are opened: opening a pipe would block a
/// thread of the broker until the other end is opened, and nothing could interrupt it. And no component creates or
/// changes what a broker finds by its name, a configuration file or a data folder, nor opens anything in a data folder.
///
/// What is judged is the [`Place`] to which a path leads, and the work is then done with its one name.
pub(super) fn link(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut types = linker.instance(TYPES)?;
    types.func_wrap_async("[method]descriptor.open-at", |mut store, parameters| {
        Box::new(async move {
            let opened = open_at(&mut store.data_mut().filesystem(), parameters).await;
            answer(&mut store, opened)
        })
    })?;
    types.func_wrap_async("[method]descriptor.set-times-at", |mut store, parameters: Times| {
        Box::new(async move {
            let (folder, flags, path, accessed, modified) = parameters;
            let files = &mut store.data_mut().filesystem();
            let set = async {
                let at = OpenPlace::changeable(files, &folder, &path, follows(flags)).await?;
                files.set_times_at(at.folder(&folder), PathFlags::empty(), at.name(), accessed, modified).await?;
                at.close(files)
            };
            let set = set.await;
            answer(&mut store, set)
        })
    })?;
    types.func_wrap_async("[method]descriptor.create-directory-at", |mut store, (folder, path): OneName| {
        Box::new(async move {
            let files = &mut store.data_mut().filesystem();
            let made = async {
                let at = OpenPlace::changeable(files, &folder, &path, false).await?;
                files.create_directory_at(at.folder(&folder), at.name()).await?;
                at.close(files)
            };
            let made = made.await;
            answer(&mut store, made)
        })
    })?;
    types.func_wrap_async("[method]descriptor.remove-directory-at", |mut store, (folder, path): OneName| {
        Box::new(async move {
            let files = &mut store.data_mut().filesystem();
            let removed = async {
                let at = OpenPlace::changeable(files, &folder, &path, false).await?;
                files.remove_directory_at(at.folder(&folder), at.name()).await?;
                at.close(files)
            };
            let removed = removed.await;
            answer(&mut store, removed)
        })
    })?;
    types.func_wrap_async("[method]descriptor.unlink-file-at", |mut store, (folder, path): OneName| {
        Box::new(async move {
            let files = &mut store.data_mut().filesystem();
            let removed = async {
                let at = OpenPlace::changeable(files, &folder, &path, false).await?;
                files.unlink_file_at(at.folder(&folder), at.name()).await?;
                at.close(files)
            };
            let removed = removed.await;
            answer(&mut store, removed)
        })
    })?;
    types.func_wrap_async("[method]descriptor.rename-at", |mut store, (folder, path, other, name): TwoNames| {
        Box::new(async move {
            let files = &mut store.data_mut().filesystem();
            let renamed = async {
                let from = OpenPlace::changeable(files, &folder, &path, false).await?;
                let to = OpenPlace::changeable(files, &other, &name, false).await?;
                files.rename_at(from.folder(&folder), from.name(), to.folder(&other), to.name()).await?;
                from.close(files)?;
                to.close(files)
            };
            let renamed = renamed.await;
            answer(&mut store, renamed)
        })
    })?;
    types.func_wrap_async("[method]descriptor.symlink-at", |mut store, (folder, target, name): Symlink| {
        Box::new(async move {
            let files = &mut store.data_mut().filesystem();
            let linked = async {
                if target.split('/').any(is_kept) {
                    return Err(ErrorCode::NotPermitted.into());
                }
                let at = OpenPlace::changeable(files, &folder, &name, false).await?;
                files.symlink_at(at.folder(&folder), target, at.name()).await?;
                at.close(files)
            };
            let linked = linked.await;
            answer(&mut store, linked)
        })
    })?;
    types.func_wrap_async("[method]descriptor.link-at", |mut store, (folder, flags, path, other, name): Link| {
        Box::new(async move {
            let files = &mut store.data_mut().filesystem();
            let linked = async {
                let from = OpenPlace::changeable(files, &folder, &path, follows(flags)).await?;
                let to = OpenPlace::changeable(files, &other, &name, false).await?;
                let (old, new) = (from.folder(&folder), to.folder(&other));
                files.link_at(old, PathFlags::empty(), from.name(), new, to.name()).await?;
                from.close(files)?;
                to.close(files)
            };
            let linked = linked.await;
            answer(&mut store, linked)
        })
    })
}

type OneName = (Resource<Descriptor>, String);
type TwoNames = (Resource<Descriptor>, String, Resource<Descriptor>, String);
type Symlink = (Resource<Descriptor>, String, String);
type Link = (Resource<Descriptor>, PathFlags, String, Resource<Descriptor>, String);
type Times = (Resource<Descriptor>, PathFlags, String, NewTimestamp, NewTimestamp);
type Open = (Resource<Descriptor>, PathFlags, String, OpenFlags, DescriptorFlags);

fn answer<T>(
    store: &mut StoreContextMut<'_, GuestState>,
    done: Result<T, FsError>,
) -> wasmtime::Result<(Result<T, ErrorCode>,)> {
    Ok((match done {
        Ok(done) => Ok(done),
        Err(error) => Err(store.data_mut().filesystem().convert_error_code(error)?),
    },))
}

/// Returns an error of the way to a place as a component sees it.
fn code_of(error: Errno) -> ErrorCode {
    match error {
        Errno::PERM => ErrorCode::NotPermitted,
        Errno::NOENT => ErrorCode::NoEntry,
        Errno::NOTDIR => ErrorCode::NotDirectory,
        Errno::LOOP => ErrorCode::Loop,
        Errno::ACCESS => ErrorCode::Access,
        Errno::NAMETOOLONG => ErrorCode::NameTooLong,
        Errno::ILSEQ => ErrorCode::IllegalByteSequence,
        _ => ErrorCode::Io,
    }
}

fn follows(flags: PathFlags) -> bool {
    flags.contains(PathFlags::SYMLINK_FOLLOW)
}

/// The place of a path, whose folder is in the table of the guest while the work is done.
struct OpenPlace {
    place: Place,
    /// The folder around the last name, unless that is the one that the guest named.
    folder: Option<Resource<Descriptor>>,
}

impl OpenPlace {
    async fn find(
        files: &mut WasiFilesystemCtxView<'_>,
        folder: &Resource<Descriptor>,
        path: &str,
        follow: bool,
    ) -> Result<Self, FsError> {
        let Descriptor::Dir(root) = files.table.get(folder)? else { return Err(ErrorCode::NotDirectory.into()) };
        let (within, perms, mode) = (Arc::clone(&root.dir), root.perms, root.open_mode);
        let path = path.to_owned();
        let found = tokio::task::spawn_blocking(move || Place::find(&within, &path, follow)).await;
        let (place, folder) = found.map_err(|_| ErrorCode::Io)?.map_err(code_of)?;
        let opened = |folder| files.table.push(Descriptor::Dir(Dir::new(folder, perms, mode, false)));
        Ok(Self { place, folder: folder.map(opened).transpose()? })
    }

    /// Finds the place of something that is to be made, changed or removed, which may be no configuration or data
    /// folder and in none.
    async fn changeable(
        files: &mut WasiFilesystemCtxView<'_>,
        folder: &Resource<Descriptor>,
        path: &str,
        follow: bool,
    ) -> Result<Self, FsError> {
        let found = Self::find(files, folder, path, follow).await?;
        if found.place.is_kept {
            found.close(files)?;
            return Err(ErrorCode::NotPermitted.into());
        }
        Ok(found)
    }

    fn folder(&self, named: &Resource<Descriptor>) -> Resource<Descriptor> {
        Resource::new_borrow(self.folder.as_ref().unwrap_or(named).rep())
    }

    fn name(&self) -> String {
        self.place.name.clone()
    }

    fn close(self, files: &mut WasiFilesystemCtxView<'_>) -> Result<(), FsError> {
        if let Some(folder) = self.folder {
            files.table.delete(folder)?;
        }
        Ok(())
    }
}

async fn open_at(
    files: &mut WasiFilesystemCtxView<'_>,
    (folder, flags, path, how, rights): Open,
) -> Result<Resource<Descriptor>, FsError> {
    let at = OpenPlace::find(files, &folder, &path, follows(flags)).await?;
    let changes =
        how != OpenFlags::empty() || rights.intersects(DescriptorFlags::WRITE | DescriptorFlags::MUTATE_DIRECTORY);
    let opened = match at.place.kind {
        _ if at.place.is_in_data_folder || changes && at.place.is_kept => Err(ErrorCode::NotPermitted.into()),
        // Within an open folder a component uses names relative to it, so a folder of such a name is not opened at all.
        Some(FileType::Directory) if at.place.is_kept => Err(ErrorCode::NotPermitted.into()),
        // A missing file may be created, and the system does not follow a link by itself.
        None | Some(FileType::RegularFile | FileType::Directory | FileType::Symlink) => {
            files.open_at(at.folder(&folder), PathFlags::empty(), at.name(), how, rights).await
        }
        Some(_) => Err(ErrorCode::NotPermitted.into()),
    };
    at.close(files)?;
    opened
}
