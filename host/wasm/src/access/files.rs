//! The files of a component: the folders that it is granted, and what it may open in them.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FileType;
use rustix::io::Errno;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource, ResourceType};
use wasmtime_wasi::filesystem::{Descriptor, Dir, WasiFilesystemCtxView, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, ErrorCode, Host as _, HostDescriptor as _, NewTimestamp, OpenFlags, PathFlags,
};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, FsError};
use wasmtime_wasi::{FsPerms, WasiCtxBuilder};

use super::super::guest::GuestState;
use super::listing::{self, Listing};
use super::place::{ResolvedName, is_kept};
use super::streams::InParts;

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
/// changes a configuration file or a data folder, which brokers find by name, nor opens anything in a data folder.
///
/// The [`ResolvedName`] to which a path leads is judged, and the work is then done with its one name.
///
/// It also replaces what reads and writes ahead of the component, in memory of the broker: streams and listings.
pub(super) fn link(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut types = linker.instance(TYPES)?;
    macro_rules! replace {
        ($method:literal, $work:path) => {
            types.func_wrap_async(concat!("[method]", $method), |mut store, parameters| {
                Box::new(async move {
                    let done = $work(&mut store.data_mut().filesystem(), parameters).await;
                    answer(&mut store, done)
                })
            })?
        };
    }
    replace!("descriptor.open-at", open);
    replace!("descriptor.set-times-at", set_times);
    replace!("descriptor.create-directory-at", create_directory);
    replace!("descriptor.remove-directory-at", remove_directory);
    replace!("descriptor.unlink-file-at", unlink_file);
    replace!("descriptor.rename-at", rename);
    replace!("descriptor.symlink-at", symlink);
    replace!("descriptor.link-at", hard_link);
    replace!("descriptor.read-via-stream", read_stream);
    replace!("descriptor.write-via-stream", write_stream);
    replace!("descriptor.append-via-stream", append_stream);
    types.resource("directory-entry-stream", ResourceType::host::<Listing>(), |mut store, rep| {
        store.data_mut().filesystem().table.delete(Resource::<Listing>::new_own(rep))?;
        Ok(())
    })?;
    replace!("descriptor.read-directory", listing::open);
    replace!("directory-entry-stream.read-directory-entry", listing::next);
    Ok(())
}

async fn open(
    files: &mut WasiFilesystemCtxView<'_>,
    (folder, flags, path, mut how, rights): Open,
) -> Result<Resource<Descriptor>, FsError> {
    let at = OpenParent::find(files, &folder, &path, follows(flags)).await?;
    // With a slash after the name, only a folder is opened, and nothing is created.
    if at.place.is_folder {
        how |= OpenFlags::DIRECTORY;
    }
    let changes =
        how != OpenFlags::empty() || rights.intersects(DescriptorFlags::WRITE | DescriptorFlags::MUTATE_DIRECTORY);
    let opened = match at.place.kind {
        _ if at.place.is_in_data_folder || changes && at.place.is_kept => Err(ErrorCode::NotPermitted.into()),
        // Within an open folder a component uses names relative to it, so a folder of such a name is not opened.
        Some(FileType::Directory) if at.place.is_kept => Err(ErrorCode::NotPermitted.into()),
        // A missing file may be created, and the system does not follow a link unasked.
        None | Some(FileType::RegularFile | FileType::Directory | FileType::Symlink) => {
            files.open_at(at.folder(&folder), PathFlags::empty(), at.name(), how, rights).await
        }
        Some(_) => Err(ErrorCode::NotPermitted.into()),
    };
    at.close(files, opened)
}

async fn set_times(
    files: &mut WasiFilesystemCtxView<'_>,
    (folder, flags, path, accessed, modified): Times,
) -> Result<(), FsError> {
    let at = OpenParent::changeable(files, &folder, &path, follows(flags)).await?;
    let set = files.set_times_at(at.folder(&folder), PathFlags::empty(), at.name(), accessed, modified).await;
    at.close(files, set)
}

async fn create_directory(files: &mut WasiFilesystemCtxView<'_>, (folder, path): OneName) -> Result<(), FsError> {
    let at = OpenParent::changeable(files, &folder, &path, false).await?;
    let made = files.create_directory_at(at.folder(&folder), at.name()).await;
    at.close(files, made)
}

async fn remove_directory(files: &mut WasiFilesystemCtxView<'_>, (folder, path): OneName) -> Result<(), FsError> {
    let at = OpenParent::changeable(files, &folder, &path, false).await?;
    let removed = files.remove_directory_at(at.folder(&folder), at.name()).await;
    at.close(files, removed)
}

async fn unlink_file(files: &mut WasiFilesystemCtxView<'_>, (folder, path): OneName) -> Result<(), FsError> {
    let at = OpenParent::changeable(files, &folder, &path, false).await?;
    let removed = files.unlink_file_at(at.folder(&folder), at.name()).await;
    at.close(files, removed)
}

async fn rename(files: &mut WasiFilesystemCtxView<'_>, (folder, path, other, name): TwoNames) -> Result<(), FsError> {
    let from = OpenParent::changeable(files, &folder, &path, false).await?;
    let renamed = match OpenParent::changeable(files, &other, &name, false).await {
        Ok(to) if to.place.is_folder && from.place.kind != Some(FileType::Directory) => {
            to.close(files, Err(ErrorCode::NotDirectory.into()))
        }
        Ok(to) => {
            let renamed = files.rename_at(from.folder(&folder), from.name(), to.folder(&other), to.name()).await;
            to.close(files, renamed)
        }
        Err(error) => Err(error),
    };
    from.close(files, renamed)
}

async fn symlink(files: &mut WasiFilesystemCtxView<'_>, (folder, target, name): Symlink) -> Result<(), FsError> {
    if target.split('/').any(is_kept) {
        return Err(ErrorCode::NotPermitted.into());
    }
    let at = OpenParent::changeable(files, &folder, &name, false).await?;
    if at.place.is_folder {
        return at.close(files, Err(ErrorCode::NoEntry.into()));
    }
    let linked = files.symlink_at(at.folder(&folder), target, at.name()).await;
    at.close(files, linked)
}

async fn hard_link(
    files: &mut WasiFilesystemCtxView<'_>,
    (folder, flags, path, other, name): Link,
) -> Result<(), FsError> {
    let from = OpenParent::changeable(files, &folder, &path, follows(flags)).await?;
    let linked = match OpenParent::changeable(files, &other, &name, false).await {
        Ok(to) if to.place.is_folder => to.close(files, Err(ErrorCode::NoEntry.into())),
        Ok(to) => {
            let (old, new) = (from.folder(&folder), to.folder(&other));
            let linked = files.link_at(old, PathFlags::empty(), from.name(), new, to.name()).await;
            to.close(files, linked)
        }
        Err(error) => Err(error),
    };
    from.close(files, linked)
}

async fn read_stream(
    files: &mut WasiFilesystemCtxView<'_>,
    (file, offset): (Resource<Descriptor>, u64),
) -> Result<Resource<DynInputStream>, FsError> {
    let opened = files.read_via_stream(file, offset)?;
    let stream: DynInputStream = Box::new(InParts(files.table.delete(opened)?));
    Ok(files.table.push(stream)?)
}

async fn write_stream(
    files: &mut WasiFilesystemCtxView<'_>,
    (file, offset): (Resource<Descriptor>, u64),
) -> Result<Resource<DynOutputStream>, FsError> {
    let opened = files.write_via_stream(file, offset)?;
    in_parts(files, opened)
}

async fn append_stream(
    files: &mut WasiFilesystemCtxView<'_>,
    (file,): (Resource<Descriptor>,),
) -> Result<Resource<DynOutputStream>, FsError> {
    let opened = files.append_via_stream(file)?;
    in_parts(files, opened)
}

fn in_parts(
    files: &mut WasiFilesystemCtxView<'_>,
    opened: Resource<DynOutputStream>,
) -> Result<Resource<DynOutputStream>, FsError> {
    let stream: DynOutputStream = Box::new(InParts(files.table.delete(opened)?));
    Ok(files.table.push(stream)?)
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
pub(super) fn code_of(error: Errno) -> ErrorCode {
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

/// The name to which a path leads, whose folder is in the table of the guest while the work is done.
struct OpenParent {
    place: ResolvedName,
    /// The folder around the last name, unless that is the one that the guest named.
    folder: Option<Resource<Descriptor>>,
}

impl OpenParent {
    async fn find(
        files: &mut WasiFilesystemCtxView<'_>,
        folder: &Resource<Descriptor>,
        path: &str,
        follow: bool,
    ) -> Result<Self, FsError> {
        let Descriptor::Dir(root) = files.table.get(folder)? else { return Err(ErrorCode::NotDirectory.into()) };
        let (within, perms, mode) = (Arc::clone(&root.dir), root.perms, root.open_mode);
        let path = path.to_owned();
        let found = tokio::task::spawn_blocking(move || ResolvedName::find(&within, &path, follow)).await;
        let (place, folder) = found.map_err(|_| ErrorCode::Io)?.map_err(code_of)?;
        let opened = |folder| files.table.push(Descriptor::Dir(Dir::new(folder, perms, mode, false)));
        Ok(Self { place, folder: folder.map(opened).transpose()? })
    }

    /// Finds the place of something to create, change or remove, which must not be a configuration or a data folder,
    /// nor be in one.
    async fn changeable(
        files: &mut WasiFilesystemCtxView<'_>,
        folder: &Resource<Descriptor>,
        path: &str,
        follow: bool,
    ) -> Result<Self, FsError> {
        let found = Self::find(files, folder, path, follow).await?;
        if found.place.is_kept {
            return found.close(files, Err(ErrorCode::NotPermitted.into()));
        }
        Ok(found)
    }

    fn folder(&self, named: &Resource<Descriptor>) -> Resource<Descriptor> {
        Resource::new_borrow(self.folder.as_ref().unwrap_or(named).rep())
    }

    fn name(&self) -> String {
        self.place.name.clone()
    }

    /// Closes the folder around the last name, and returns how the work there ended.
    fn close<T>(self, files: &mut WasiFilesystemCtxView<'_>, done: Result<T, FsError>) -> Result<T, FsError> {
        if let Some(folder) = self.folder {
            files.table.delete(folder)?;
        }
        done
    }
}
