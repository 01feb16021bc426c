//! The files of a component: the folders that it is granted, and what it may open in them.

use std::io;
use std::path::Path;

use portcullis_core::trust::KEPT_NAMES;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::filesystem::WasiFilesystemView as _;
use wasmtime_wasi::p2::FsError;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    Descriptor, DescriptorFlags, DescriptorType, ErrorCode, Host as _, HostDescriptor as _, OpenFlags, PathFlags,
};
use wasmtime_wasi::{FsPerms, WasiCtxBuilder};

use super::super::guest::GuestState;

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
/// changes what a broker finds by its name: a configuration file or a data folder.
pub(super) fn link(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut types = linker.instance(TYPES)?;
    types.func_wrap_async("[method]descriptor.open-at", |mut store, parameters| {
        Box::new(async move {
            let opened = open_at(&mut store, parameters).await;
            answer(&mut store, opened)
        })
    })?;
    types.func_wrap_async("[method]descriptor.create-directory-at", |mut store, (folder, path): OneName| {
        Box::new(async move {
            let made = match changeable([&path]) {
                Ok(()) => store.data_mut().filesystem().create_directory_at(folder, path).await,
                refused => refused,
            };
            answer(&mut store, made)
        })
    })?;
    types.func_wrap_async("[method]descriptor.remove-directory-at", |mut store, (folder, path): OneName| {
        Box::new(async move {
            let removed = match changeable([&path]) {
                Ok(()) => store.data_mut().filesystem().remove_directory_at(folder, path).await,
                refused => refused,
            };
            answer(&mut store, removed)
        })
    })?;
    types.func_wrap_async("[method]descriptor.unlink-file-at", |mut store, (folder, path): OneName| {
        Box::new(async move {
            let removed = match changeable([&path]) {
                Ok(()) => store.data_mut().filesystem().unlink_file_at(folder, path).await,
                refused => refused,
            };
            answer(&mut store, removed)
        })
    })?;
    types.func_wrap_async(
        "[method]descriptor.rename-at",
        |mut store, (folder, path, other, name): (Resource<Descriptor>, String, Resource<Descriptor>, String)| {
            Box::new(async move {
                let renamed = match changeable([&path, &name]) {
                    Ok(()) => store.data_mut().filesystem().rename_at(folder, path, other, name).await,
                    refused => refused,
                };
                answer(&mut store, renamed)
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.symlink-at",
        |mut store, (folder, target, name): (Resource<Descriptor>, String, String)| {
            Box::new(async move {
                let linked = match changeable([&target, &name]) {
                    Ok(()) => store.data_mut().filesystem().symlink_at(folder, target, name).await,
                    refused => refused,
                };
                answer(&mut store, linked)
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.link-at",
        |mut store,
         (folder, follow, path, other, name): (
            Resource<Descriptor>,
            PathFlags,
            String,
            Resource<Descriptor>,
            String,
        )| {
            Box::new(async move {
                let linked = match changeable([&path, &name]) {
                    Ok(()) => store.data_mut().filesystem().link_at(folder, follow, path, other, name).await,
                    refused => refused,
                };
                answer(&mut store, linked)
            })
        },
    )
}

type OneName = (Resource<Descriptor>, String);

type Parameters = (Resource<Descriptor>, PathFlags, String, OpenFlags, DescriptorFlags);

fn answer<T>(
    store: &mut StoreContextMut<'_, GuestState>,
    done: Result<T, FsError>,
) -> wasmtime::Result<(Result<T, ErrorCode>,)> {
    Ok((match done {
        Ok(done) => Ok(done),
        Err(error) => Err(store.data_mut().filesystem().convert_error_code(error)?),
    },))
}

/// Refuses paths that name a configuration or a data folder, or pass through one.
fn changeable<const N: usize>(paths: [&String; N]) -> Result<(), FsError> {
    let names = |path: &&String, name: &str| path.split('/').any(|part| part.eq_ignore_ascii_case(name));
    let kept = paths.iter().any(|path| KEPT_NAMES.iter().any(|name| names(path, name)));
    if kept { Err(ErrorCode::NotPermitted.into()) } else { Ok(()) }
}

async fn open_at(
    store: &mut StoreContextMut<'_, GuestState>,
    (folder, follow, path, how, rights): Parameters,
) -> Result<Resource<Descriptor>, FsError> {
    // Within an open folder a component uses names relative to it, so a folder of such a name is not opened at all.
    let changes =
        how != OpenFlags::empty() || rights.intersects(DescriptorFlags::WRITE | DescriptorFlags::MUTATE_DIRECTORY);
    if changes {
        changeable([&path])?;
    }
    let mut files = store.data_mut().filesystem();
    let again = Resource::new_borrow(folder.rep());
    match files.stat_at(again, follow, path.clone()).await {
        Ok(about)
            if !matches!(
                about.type_,
                DescriptorType::RegularFile | DescriptorType::Directory | DescriptorType::SymbolicLink
            ) =>
        {
            Err(ErrorCode::NotPermitted.into())
        }
        Ok(about) if about.type_ == DescriptorType::Directory => {
            changeable([&path])?;
            files.open_at(folder, follow, path, how, rights).await
        }
        // A missing file may be created, and what cannot be examined cannot be opened either.
        _ => files.open_at(folder, follow, path, how, rights).await,
    }
}
