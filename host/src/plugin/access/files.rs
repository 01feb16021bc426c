//! The files of a component: the folders that it is granted, and what it may open in them.

use std::io;
use std::path::Path;

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::filesystem::WasiFilesystemView as _;
use wasmtime_wasi::p2::FsError;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    Descriptor, DescriptorFlags, DescriptorType, ErrorCode, Host as _, HostDescriptor as _, OpenFlags, PathFlags,
};
use wasmtime_wasi::{FsPerms, WasiCtxBuilder};

use super::super::guest::State;

/// The interface as wasmtime defines it. What a component imports of another release of 0.2 is found there too.
const TYPES: &str = "wasi:filesystem/types@0.2.12";

/// Opens a granted folder. As everywhere, a path is inside what it is outside.
///
/// Whoever may write beside the folder can have put a link in its place since the grant was looked at. No link is followed.
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

/// The same where no system call refuses links: it is looked for them.
#[cfg(not(target_os = "linux"))]
pub(super) fn preopen(builder: &mut WasiCtxBuilder, path: &Path, rights: FsPerms) -> io::Result<()> {
    if path.canonicalize()? != path {
        return Err(io::Error::other("there is a link in the path now"));
    }
    builder.preopened_dir(path, path.to_string_lossy(), rights).map_err(io::Error::other)?;
    Ok(())
}

/// Defines `open-at` anew: what is neither a file nor a folder is not opened. A pipe would wait for whoever opens its other end,
/// and a thread of the broker with it, which nothing can end.
pub(super) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.instance(TYPES)?.func_wrap_async("[method]descriptor.open-at", |mut store, parameters| {
        Box::new(async move {
            let opened = open_at(&mut store, parameters).await;
            Ok((match opened {
                Ok(opened) => Ok(opened),
                Err(error) => Err(store.data_mut().filesystem().convert_error_code(error)?),
            },))
        })
    })
}

type Parameters = (Resource<Descriptor>, PathFlags, String, OpenFlags, DescriptorFlags);

async fn open_at(
    store: &mut StoreContextMut<'_, State>,
    (folder, follow, path, how, rights): Parameters,
) -> Result<Resource<Descriptor>, FsError> {
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
        // What is not there may be made, and what cannot be looked at cannot be opened either.
        _ => files.open_at(folder, follow, path, how, rights).await,
    }
}
