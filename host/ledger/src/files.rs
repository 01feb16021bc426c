//! Files of the ledger: which there are, and whether one that is open is still the one at its path. A record that is
//! written to a moved or deleted file is durable where nobody will read it.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use portcullis_core::private::NotPrivate;
#[cfg(target_os = "linux")]
use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};

use super::LedgerError;

/// Returns the names of the files in a folder; none if there is no such folder. Names that are not UTF-8 are not ours.
pub(super) fn names_in(folder: &Path) -> Result<Vec<String>, LedgerError> {
    let failed = |error: io::Error| LedgerError::file("read", folder, error);
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().into_string().ok()).map_err(failed));
    names.filter_map(Result::transpose).collect()
}

/// Creates a private file (0600) with its content and its name on disk. An existing one is left unchanged, and `false`
/// is returned.
pub(super) fn create(path: &Path, content: &[u8]) -> Result<bool, LedgerError> {
    let failed = |error: &dyn std::fmt::Display| LedgerError::file("create", path, error);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(|error| failed(&error))?;
    file.as_file().set_permissions(Permissions::from_mode(0o600)).map_err(|error| failed(&error))?;
    file.write_all(content).and_then(|()| file.as_file().sync_all()).map_err(|error| failed(&error))?;
    match file.persist_noclobber(path) {
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(failed(&error.error)),
        Ok(_) => sync_folder(folder).map(|()| true),
    }
}

/// Checks that a database and the files that SQLite keeps next to it are regular files, if they exist: SQLite follows
/// links, and waits for a named pipe.
pub(super) fn check_database(path: &Path) -> Result<(), LedgerError> {
    for suffix in ["", "-journal", "-shm", "-wal"] {
        let mut file = path.as_os_str().to_owned();
        file.push(suffix);
        let file = PathBuf::from(file);
        let shown = || file.display().to_string();
        let refused = match fs::symlink_metadata(&file) {
            Ok(found) if found.is_symlink() => NotPrivate::Link(shown()),
            Ok(found) if !found.is_file() => NotPrivate::Kind(shown(), "file"),
            _ => continue,
        };
        return Err(LedgerError::file("use", &file, io::Error::from(refused)));
    }
    Ok(())
}

/// Writes to disk which files a folder has.
pub(super) fn sync_folder(folder: &Path) -> Result<(), LedgerError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| LedgerError::file("write", folder, error))
}

/// A file, identified by its path, device and inode.
#[derive(Debug, Clone)]
pub(super) struct WatchedFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl WatchedFile {
    /// Identifies the file at a path.
    pub(super) fn of(path: PathBuf) -> io::Result<Self> {
        let FileIdentity { device, inode, .. } = find(&path)?;
        Ok(Self { path, device, inode })
    }

    /// Returns the file's size. This takes one system call and reads no content.
    ///
    /// # Errors
    /// [`LedgerError::Moved`] if another file, or none, is at its path now.
    pub(super) fn size(&self) -> Result<u64, LedgerError> {
        find(&self.path)
            .ok()
            .filter(|found| (found.device, found.inode) == (self.device, self.inode))
            .map(|found| found.size)
            .ok_or_else(|| LedgerError::Moved(self.path.clone()))
    }

    /// Checks that at least this many bytes are in the file.
    ///
    /// # Errors
    /// [`LedgerError::Moved`] as for [`WatchedFile::size`], and [`LedgerError::Cut`].
    pub(super) fn holds(&self, bytes: u64) -> Result<(), LedgerError> {
        let size = self.size()?;
        if size < bytes {
            let cause = format!("it has {size} bytes, and {bytes} were written");
            return Err(LedgerError::Cut { path: self.path.clone(), cause });
        }
        Ok(())
    }

    /// Reports whether this is the same file.
    pub(super) fn is(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
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
