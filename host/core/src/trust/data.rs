//! The identity of a data folder. A path only tells where a folder is, and anyone who may write next to it can put
//! another one there.

use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

#[cfg(target_os = "linux")]
use rustix::fs::{AtFlags, StatxFlags};
use rustix::fs::{Mode, OFlags, fstatvfs};
use serde::{Deserialize, Serialize};

use crate::private::{FILE_MODE, FOLDER_MODE, NotPrivate};

/// A particular data folder, found or created: another folder at the same path is not equal to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataFolder {
    /// The path without links; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// The number of its file system, which, unlike the number of the device, survives a restart of the machine.
    file_system: u64,
    inode: u64,
    /// The time at which the folder was created, in nanoseconds since the Unix epoch, if its file system records that:
    /// inode numbers are reused, but no program can set this time.
    made: Option<u64>,
}

impl DataFolder {
    /// Returns the folder at a path, following links. `None` if there is none, or it cannot be examined.
    #[must_use]
    pub fn at(path: &Path) -> Option<Self> {
        let path = path.canonicalize().ok()?;
        let opened = rustix::fs::open(&path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let opened = File::from(opened);
        let about = opened.metadata().ok()?;
        Some(Self {
            path: path.to_string_lossy().into_owned(),
            file_system: fstatvfs(&opened).ok()?.f_fsid,
            inode: about.ino(),
            made: made(&opened),
        })
    }

    /// Creates a folder that is private to this user.
    ///
    /// # Errors
    /// [`NotPrivate::Io`] if something exists at this path already, or the system refuses.
    pub fn make(path: &Path) -> Result<Self, NotPrivate> {
        let failed = |error| NotPrivate::Io { path: path.display().to_string(), error };
        let mut builder = DirBuilder::new();
        builder.mode(FOLDER_MODE);
        let around = path.parent().unwrap_or(path);
        builder.recursive(true).create(around).map_err(failed)?;
        builder.recursive(false).create(path).map_err(failed)?;
        keep_out_of_git(path).map_err(failed)?;
        Self::at(path).ok_or_else(|| failed(io::ErrorKind::NotFound.into()))
    }

    /// Reports whether the folder is still in its place.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        Self::at(Path::new(&self.path)).is_some_and(|there| there == *self)
    }
}

/// Returns the time at which a folder was created, in nanoseconds since the Unix epoch. The standard library does not
/// ask for it in programs that are linked with musl, and then the same folder would be another one for each of two
/// programs.
#[cfg(target_os = "linux")]
fn made(folder: &File) -> Option<u64> {
    let about = rustix::fs::statx(folder, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
    let has_time = about.stx_mask & StatxFlags::BTIME.bits() != 0;
    let seconds = u64::try_from(about.stx_btime.tv_sec).ok().filter(|_| has_time)?;
    seconds.checked_mul(1_000_000_000)?.checked_add(about.stx_btime.tv_nsec.into())
}

/// Returns the time at which a folder was created, in nanoseconds since the Unix epoch.
#[cfg(not(target_os = "linux"))]
fn made(folder: &File) -> Option<u64> {
    let made = folder.metadata().ok()?.created().ok()?;
    u64::try_from(made.duration_since(std::time::UNIX_EPOCH).ok()?.as_nanos()).ok()
}

/// Writes a `.gitignore` into a new data folder: it is usually in a project, and holds secrets and its own record. The
/// lock file is left to be committed. An existing file is left unchanged.
///
/// # Errors
/// If it cannot be written.
pub fn keep_out_of_git(data_dir: &Path) -> io::Result<()> {
    match File::options().write(true).create_new(true).mode(FILE_MODE).open(data_dir.join(".gitignore")) {
        Ok(mut file) => file.write_all(b"*\n!.gitignore\n!portcullis.lock\n"),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn the_time_at_which_a_folder_was_created_is_known_whatever_a_program_is_linked_with() {
        let dir = tempfile::tempdir().unwrap();
        let folder = File::open(dir.path()).unwrap();
        // The standard library knows it in this program, if the file system does.
        let known = folder.metadata().unwrap().created().ok();
        let known = known.map(|made| made.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos());
        assert_eq!(made(&folder).map(u128::from), known);
    }

    #[test]
    fn another_folder_at_the_same_path_is_another_data_folder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/.portcullis");
        assert!(DataFolder::at(&path).is_none());
        let made = DataFolder::make(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_to_string(path.join(".gitignore")).unwrap(), "*\n!.gitignore\n!portcullis.lock\n");
        fs::write(path.join("lock"), "").unwrap();
        assert!(
            made.is_in_place() && DataFolder::at(&path).as_ref() == Some(&made),
            "the content is not part of the identity"
        );
        assert!(
            DataFolder::make(&path).unwrap_err().to_string().contains("exists"),
            "an existing folder is not taken over"
        );

        // The folder above is moved away and others take its place; then even the inode number is reused.
        fs::rename(dir.path().join("a"), dir.path().join("b")).unwrap();
        assert!(!made.is_in_place());
        for _ in 0..3 {
            fs::create_dir_all(&path).unwrap();
            assert!(!made.is_in_place());
            fs::remove_dir_all(dir.path().join("a")).unwrap();
        }
        fs::remove_dir_all(dir.path().join("b")).unwrap();
        fs::create_dir_all(&path).unwrap();
        assert!(!made.is_in_place());
        fs::remove_dir_all(dir.path().join("a")).unwrap();
        let elsewhere = DataFolder::make(&dir.path().join("elsewhere")).unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        symlink(&elsewhere.path, &path).unwrap();
        assert_eq!(DataFolder::at(&path), Some(elsewhere), "a link is followed");
    }
}
