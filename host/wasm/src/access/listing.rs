//! The listings of folders, which are read a part at a time: a folder may have millions of entries, and the entries
//! read are memory of the broker that no limit of the component counts.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, DirEntry, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;
use tokio::task::spawn_blocking;
use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemCtxView};
use wasmtime_wasi::p2::FsError;
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorType, DirectoryEntry, ErrorCode};

use super::files::code_of;

/// The entries that are read at a time, with names of up to 255 bytes. An instance has some 250 listings.
const PART_ENTRIES: usize = 256;

/// The entries of a folder that its component has not taken yet.
#[derive(Default)]
pub(super) struct Listing {
    /// The folder, or `None` once all of it was read.
    folder: Option<Dir>,
    /// The entries that were read and not yet taken.
    read: VecDeque<Result<DirectoryEntry, ErrorCode>>,
}

/// Begins to list a folder.
pub(super) async fn open(
    files: &mut WasiFilesystemCtxView<'_>,
    (folder,): (Resource<Descriptor>,),
) -> Result<Resource<Listing>, FsError> {
    let Descriptor::Dir(folder) = files.table.get(&folder)? else { return Err(ErrorCode::NotDirectory.into()) };
    let folder = Arc::clone(&folder.dir);
    let opened = spawn_blocking(move || Listing::of(&folder)).await;
    let listing = opened.map_err(|_| ErrorCode::Io)?.map_err(code_of)?;
    Ok(files.table.push(listing)?)
}

/// Takes the next entry.
pub(super) async fn next(
    files: &mut WasiFilesystemCtxView<'_>,
    (listing,): (Resource<Listing>,),
) -> Result<Option<DirectoryEntry>, FsError> {
    let listing = files.table.get_mut(&listing)?;
    if listing.read.is_empty() && listing.folder.is_some() {
        let mut rest = std::mem::take(listing);
        let read = move || {
            rest.read_on(PART_ENTRIES);
            rest
        };
        *listing = spawn_blocking(read).await.map_err(|_| ErrorCode::Io)?;
    }
    Ok(listing.read.pop_front().transpose()?)
}

impl Listing {
    fn of(folder: &File) -> rustix::io::Result<Self> {
        // Opened again, because all descriptors of one opening share the position in it.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = Dir::new(openat(folder, ".", flags, Mode::empty())?)?;
        Ok(Self { folder: Some(folder), read: VecDeque::new() })
    }

    /// Reads until there are `most` entries, or until the end of the folder.
    fn read_on(&mut self, most: usize) {
        let Some(folder) = &mut self.folder else { return };
        while self.read.len() < most {
            let entry = match folder.read() {
                Some(Ok(entry)) => described(folder, &entry).transpose(),
                Some(Err(error)) => Some(Err(code_of(error))),
                None => {
                    self.folder = None;
                    return;
                }
            };
            self.read.extend(entry);
        }
    }
}

/// Returns an entry as a component sees it; `None` for the folder itself, the one around it, and what has vanished.
fn described(folder: &Dir, entry: &DirEntry) -> Result<Option<DirectoryEntry>, ErrorCode> {
    let name = entry.file_name();
    if matches!(name.to_bytes(), b"." | b"..") {
        return Ok(None);
    }
    let kind = match entry.file_type() {
        // Not every file system reports the kinds of its entries.
        FileType::Unknown => {
            let about = folder.fd().and_then(|folder| statat(folder, name, AtFlags::SYMLINK_NOFOLLOW));
            match about {
                Ok(about) => FileType::from_raw_mode(about.st_mode),
                Err(Errno::NOENT) => return Ok(None),
                Err(error) => return Err(code_of(error)),
            }
        }
        known => known,
    };
    let type_ = match kind {
        FileType::RegularFile => DescriptorType::RegularFile,
        FileType::Directory => DescriptorType::Directory,
        FileType::Symlink => DescriptorType::SymbolicLink,
        FileType::Fifo => DescriptorType::Fifo,
        FileType::Socket => DescriptorType::Socket,
        FileType::CharacterDevice => DescriptorType::CharacterDevice,
        FileType::BlockDevice => DescriptorType::BlockDevice,
        FileType::Unknown => DescriptorType::Unknown,
    };
    let name = name.to_str().map_err(|_| ErrorCode::IllegalByteSequence)?.to_owned();
    Ok(Some(DirectoryEntry { type_, name }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_folder_is_read_a_part_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("d")).unwrap();
        let mut listing = Listing::of(&File::open(folder.path()).unwrap()).unwrap();
        let mut names = Vec::new();
        for part in [3, 1, 0] {
            listing.read_on(3);
            assert_eq!(listing.read.len(), part);
            let read = listing.read.drain(..).map(Result::unwrap);
            names.extend(read.map(|entry| (entry.name, entry.type_ == DescriptorType::Directory)));
        }
        names.sort();
        let expected = [("a", false), ("b", false), ("c", false), ("d", true)];
        assert_eq!(names, expected.map(|(name, is_folder)| (name.to_owned(), is_folder)));
    }
}
