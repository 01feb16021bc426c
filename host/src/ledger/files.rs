//! Whether the files that the writer has open are still those in the data folder. What is written to a file that was moved
//! or deleted is durable nowhere that anybody looks.

use std::io;
use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};

use super::{LedgerError, store};

/// The database and its write-ahead log, as they were when the writer opened them.
#[derive(Debug)]
pub(super) struct Files {
    database: Open,
    /// `None` where the file system cannot have one.
    log: Option<Open>,
}

/// A file by its path, and which file that was.
#[derive(Debug)]
pub(super) struct Open {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// The sizes of both, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sizes {
    pub(super) database: u64,
    pub(super) log: u64,
}

impl Files {
    /// The database, as it was found before a connection opened it, and the log that the connection has made.
    pub(super) fn of(database: Open) -> Result<Self, LedgerError> {
        // SQLite follows links, and puts the log beside what it finds.
        let real = database.path.canonicalize();
        let mut log = real.map_err(|error| LedgerError::file("find", &database.path, error))?.into_os_string();
        log.push("-wal");
        Ok(Self { database, log: Open::of(log.into()).ok() })
    }

    /// Looks at both files: two calls of the system, and nothing is read.
    ///
    /// # Errors
    /// [`LedgerError::Moved`] where one is not the file that the writer has open.
    pub(super) fn look(&self) -> Result<Sizes, LedgerError> {
        let moved = || LedgerError::Moved(self.database.path.clone());
        let database = self.database.size().ok_or_else(moved)?;
        let log = match &self.log {
            Some(log) => log.size().ok_or_else(moved)?,
            None => 0,
        };
        Ok(Sizes { database, log })
    }
}

impl Open {
    /// The database of a data folder, before anybody opens it: what is there before and after is what was opened.
    pub(super) fn database(data_dir: &Path) -> Result<Self, LedgerError> {
        let path = store::path(data_dir);
        Self::of(path.clone()).map_err(|error| LedgerError::file("find", &path, error))
    }

    fn of(path: PathBuf) -> io::Result<Self> {
        let Found { device, inode, .. } = find(&path)?;
        Ok(Self { path, device, inode })
    }

    /// Its size, if it is still the file at its path.
    fn size(&self) -> Option<u64> {
        let found = find(&self.path).ok()?;
        ((found.device, found.inode) == (self.device, self.inode)).then_some(found.size)
    }
}

/// What stands at a path.
struct Found {
    device: u64,
    inode: u64,
    size: u64,
}

/// Looks at a file without asking for its times. Since Linux 6.13 a write after somebody has seen the time of the last one takes a
/// new time, which the next `fdatasync` then writes too: a tenth of what a call costs.
#[cfg(target_os = "linux")]
fn find(path: &Path) -> io::Result<Found> {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::INO | StatxFlags::SIZE)?;
    let device = makedev(found.stx_dev_major, found.stx_dev_minor);
    Ok(Found { device, inode: found.stx_ino, size: found.stx_size })
}

#[cfg(not(target_os = "linux"))]
fn find(path: &Path) -> io::Result<Found> {
    use std::os::unix::fs::MetadataExt as _;

    let found = std::fs::metadata(path)?;
    Ok(Found { device: found.dev(), inode: found.ino(), size: found.len() })
}
