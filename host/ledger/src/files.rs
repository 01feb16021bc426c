//! Checks that the files that the writer has open are still those in the data folder. A record that is written to a
//! moved or deleted file is durable where nobody will read it.

use std::io;
use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};

use super::{LedgerError, store};

/// The identities of the database and its write-ahead log, as they were when the writer opened them.
#[derive(Debug)]
pub(super) struct Files {
    database: WatchedFile,
    /// `None` if the file system does not support a write-ahead log.
    log: Option<WatchedFile>,
}

/// A file, identified by its path, device and inode.
#[derive(Debug)]
pub(super) struct WatchedFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// The sizes of the database and its write-ahead log, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sizes {
    pub(super) database: u64,
    pub(super) log: u64,
}

impl Files {
    /// Identifies the files: the database as it was found before it was opened, and the log that the connection
    /// created.
    pub(super) fn of(database: WatchedFile) -> Result<Self, LedgerError> {
        // SQLite follows symbolic links and puts the log beside the file that it finds.
        let real = database.path.canonicalize();
        let mut log = real.map_err(|error| LedgerError::file("find", &database.path, error))?.into_os_string();
        log.push("-wal");
        Ok(Self { database, log: WatchedFile::of(log.into()).ok() })
    }

    /// Checks both files and returns their sizes. This takes two system calls and reads no content.
    ///
    /// # Errors
    /// [`LedgerError::Moved`] if one of them is not the file that the writer has open.
    pub(super) fn check(&self) -> Result<Sizes, LedgerError> {
        let moved = || LedgerError::Moved(self.database.path.clone());
        let database = self.database.size().ok_or_else(moved)?;
        let log = match &self.log {
            Some(log) => log.size().ok_or_else(moved)?,
            None => 0,
        };
        Ok(Sizes { database, log })
    }
}

impl WatchedFile {
    /// Identifies the database of a data folder before it is opened: a file that is there before and after is the one
    /// that was opened.
    pub(super) fn database(data_dir: &Path) -> Result<Self, LedgerError> {
        let path = store::path(data_dir);
        Self::of(path.clone()).map_err(|error| LedgerError::file("find", &path, error))
    }

    fn of(path: PathBuf) -> io::Result<Self> {
        let FileIdentity { device, inode, .. } = find(&path)?;
        Ok(Self { path, device, inode })
    }

    /// Returns the file's size, or `None` if another file, or none, is at its path now.
    fn size(&self) -> Option<u64> {
        let found = find(&self.path).ok()?;
        ((found.device, found.inode) == (self.device, self.inode)).then_some(found.size)
    }
}

/// The identity and size of the file that was found at a path.
struct FileIdentity {
    device: u64,
    inode: u64,
    size: u64,
}

/// Finds a file without asking for its timestamps. Since Linux 6.13, a write that follows a query of the last
/// modification time gets a new timestamp, which the next `fdatasync` then writes too: a tenth of what a call costs.
#[cfg(target_os = "linux")]
fn find(path: &Path) -> io::Result<FileIdentity> {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::INO | StatxFlags::SIZE)?;
    let device = makedev(found.stx_dev_major, found.stx_dev_minor);
    Ok(FileIdentity { device, inode: found.stx_ino, size: found.stx_size })
}

#[cfg(not(target_os = "linux"))]
fn find(path: &Path) -> io::Result<FileIdentity> {
    use std::os::unix::fs::MetadataExt as _;

    let found = std::fs::metadata(path)?;
    Ok(FileIdentity { device: found.dev(), inode: found.ino(), size: found.len() })
}
