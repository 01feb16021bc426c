//! Which data folder it is. A path says only where one stands, and whoever may write around it can put another one there.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;
use std::time::UNIX_EPOCH;

use rustix::fs::{Mode, OFlags, fstatvfs};
use serde::{Deserialize, Serialize};

use crate::private::{FOLDER_MODE, NotPrivate};

/// A data folder as it was found or made: another one at the same path is not equal to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataFolder {
    /// Where it stands, without links; what is no UTF-8 in its name is replaced.
    pub path: String,
    /// The number of its file system, which unlike that of the device outlives a restart of the machine.
    file_system: u64,
    inode: u64,
    /// When it was made, in nanoseconds since the Unix epoch, as far as its file system knows: numbers of inodes are given again,
    /// and this no program sets.
    made: Option<u64>,
}

impl DataFolder {
    /// Returns the one that stands at a path, links followed. None if there is none that can be looked at.
    #[must_use]
    pub fn at(path: &Path) -> Option<Self> {
        let path = path.canonicalize().ok()?;
        let opened = rustix::fs::open(&path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let opened = File::from(opened);
        let about = opened.metadata().ok()?;
        let made = about.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
        Some(Self {
            path: path.to_string_lossy().into_owned(),
            file_system: fstatvfs(&opened).ok()?.f_fsid,
            inode: about.ino(),
            made: made.and_then(|made| u64::try_from(made.as_nanos()).ok()),
        })
    }

    /// Makes one where there is none, for this user alone.
    ///
    /// # Errors
    /// [`NotPrivate::Io`] if something stands there already, or the system refuses it.
    pub fn make(path: &Path) -> Result<Self, NotPrivate> {
        let failed = |error| NotPrivate::Io { path: path.display().to_string(), error };
        let mut builder = DirBuilder::new();
        builder.mode(FOLDER_MODE);
        let around = path.parent().unwrap_or(path);
        builder.recursive(true).create(around).map_err(failed)?;
        builder.recursive(false).create(path).map_err(failed)?;
        Self::at(path).ok_or_else(|| failed(io::ErrorKind::NotFound.into()))
    }

    /// Says whether it still stands where it stood.
    #[must_use]
    pub fn stands(&self) -> bool {
        Self::at(Path::new(&self.path)).is_some_and(|there| there == *self)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn another_folder_at_the_same_path_is_another_data_folder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/.portcullis");
        assert!(DataFolder::at(&path).is_none());
        let made = DataFolder::make(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(path.join("lock"), "").unwrap();
        assert!(made.stands() && DataFolder::at(&path).as_ref() == Some(&made), "what stands in it is no part of it");
        assert!(DataFolder::make(&path).unwrap_err().to_string().contains("exists"), "nothing is taken over");

        // Its own folder is moved away, and others come in its place; then even its inode is given again.
        fs::rename(dir.path().join("a"), dir.path().join("b")).unwrap();
        assert!(!made.stands());
        for _ in 0..3 {
            fs::create_dir_all(&path).unwrap();
            assert!(!made.stands());
            fs::remove_dir_all(dir.path().join("a")).unwrap();
        }
        fs::remove_dir_all(dir.path().join("b")).unwrap();
        fs::create_dir_all(&path).unwrap();
        assert!(!made.stands());
        fs::remove_dir_all(dir.path().join("a")).unwrap();
        let elsewhere = DataFolder::make(&dir.path().join("elsewhere")).unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        symlink(&elsewhere.path, &path).unwrap();
        assert_eq!(DataFolder::at(&path), Some(elsewhere), "where a link leads is where it stands");
    }
}
