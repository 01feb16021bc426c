//! A file whose writes are on disk when they return.
//!
//! Where the file system allows it, a write goes past the page cache (`O_DIRECT`) and is durable by itself (`O_DSYNC`):
//! one request to the disk, where `fdatasync` makes two. Such a write covers whole blocks, so the beginning of the block
//! that a write starts in is written again as it is.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

/// The alignment of direct writes, in bytes and in memory: no disk in use needs a larger one.
const BLOCK: usize = 4096;

/// A file whose writes are on disk when they return.
pub(super) struct DurableFile {
    file: File,
    /// `None` where the file system has no direct writes.
    direct: Option<DirectFile>,
}

/// The same file, for direct writes.
struct DirectFile {
    file: File,
    /// What was written to the block in which the next write begins.
    begun: Vec<u8>,
    /// The buffer in which a write is put together.
    buffer: Vec<u8>,
}

impl DurableFile {
    /// Creates an empty file for this user alone.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let direct = open_direct(path).map(|file| DirectFile { file, begun: Vec::new(), buffer: Vec::new() });
        Ok(Self { file, direct })
    }

    /// Writes zeros to a part of the file, so that later writes there change nothing but data.
    pub(super) fn reserve(&self, part: std::ops::Range<u64>) -> io::Result<()> {
        let zeros = vec![0; usize::try_from(part.end - part.start).unwrap_or(0)];
        self.file.write_all_at(&zeros, part.start)?;
        self.file.sync_data()
    }

    /// Writes bytes where the last write that succeeded ended: `content` of them, and zeros over what a write that failed
    /// may have left there. The file has space up to `reserved`.
    pub(super) fn append(&mut self, bytes: &[u8], content: usize, offset: u64, reserved: u64) -> io::Result<()> {
        let written = self.direct.as_mut().is_some_and(|direct| direct.append(bytes, offset, reserved));
        if !written {
            self.file.write_all_at(bytes, offset)?;
            self.file.sync_data()?;
        }
        if let Some(direct) = &mut self.direct {
            direct.begun.extend_from_slice(bytes.get(..content).unwrap_or(bytes));
            direct.begun.drain(..direct.begun.len() / BLOCK * BLOCK);
        }
        Ok(())
    }

    /// Reports whether these bytes are at an offset, as far as that is known without asking the disk: what nobody read
    /// or wrote since it was written past the cache is not in memory.
    pub(super) fn holds(&self, bytes: &[u8], offset: u64) -> io::Result<bool> {
        let mut found = vec![0; bytes.len()];
        if self.direct.is_none() {
            self.file.read_exact_at(&mut found, offset)?;
            return Ok(found == bytes);
        }
        Ok(cached(&self.file, &mut found, offset).is_none_or(|read| found.get(..read) == bytes.get(..read)))
    }

    /// Writes as on a file system that has no direct writes.
    #[cfg(test)]
    pub(super) fn without_direct_writes(&mut self) {
        self.direct = None;
    }

    /// Cuts the file to this length.
    pub(super) fn finish(self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        self.file.sync_all()
    }
}

impl DirectFile {
    /// Writes past the cache, if that is possible; otherwise nothing counts.
    fn append(&mut self, bytes: &[u8], offset: u64, reserved: u64) -> bool {
        let start = offset - self.begun.len() as u64;
        let length = (self.begun.len() + bytes.len()).next_multiple_of(BLOCK);
        if start + length as u64 > reserved {
            return false;
        }
        self.buffer.clear();
        self.buffer.resize(length + BLOCK, 0);
        let skipped = self.buffer.as_ptr().align_offset(BLOCK).min(BLOCK);
        let Some(blocks) = self.buffer.get_mut(skipped..skipped + length) else { return false };
        let (begun, rest) = blocks.split_at_mut(self.begun.len());
        begun.copy_from_slice(&self.begun);
        rest.get_mut(..bytes.len()).unwrap_or_default().copy_from_slice(bytes);
        self.file.write_at(blocks, start).is_ok_and(|written| written == length)
    }
}

#[cfg(target_os = "linux")]
fn open_direct(path: &Path) -> Option<File> {
    use rustix::fs::OFlags;

    let flags = (OFlags::DIRECT | OFlags::DSYNC).bits().cast_signed();
    OpenOptions::new().write(true).custom_flags(flags).open(path).ok()
}

#[cfg(not(target_os = "linux"))]
fn open_direct(_: &Path) -> Option<File> {
    None
}

/// Reads what is in the page cache, and returns how much that is; `None` if nothing is, or this cannot be asked.
#[cfg(target_os = "linux")]
fn cached(file: &File, buffer: &mut [u8], offset: u64) -> Option<usize> {
    use rustix::io::{ReadWriteFlags, preadv2};

    preadv2(file, &mut [io::IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT).ok()
}

#[cfg(not(target_os = "linux"))]
fn cached(_: &File, _: &mut [u8], _: u64) -> Option<usize> {
    None
}
