//! Notices that a file has changed, without reading it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The age at which the times of a file show each later change. A change within the same tick of a file system's clock
/// shows in no time of the file, and the coarsest clock that is in use ticks every two seconds.
const SETTLED: Duration = Duration::from_secs(3);

/// The facts by which a change of a file is noticed. A program that sets the modification time back cannot set the time
/// of the last change. A write through a memory mapping of the file may show in neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    place: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// Returns the stamp of a file.
    #[must_use]
    pub fn of(file: &Metadata) -> Self {
        Self {
            place: (file.dev(), file.ino()),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }

    /// Returns the stamp of the file that a path leads to, or `None` if there is none.
    #[must_use]
    pub fn at(path: &Path) -> Option<Self> {
        path.metadata().ok().map(|file| Self::of(&file))
    }

    /// Reports whether each change from now on shows in the times of the file.
    #[must_use]
    pub fn is_settled(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(SETTLED);
        let latest = self.modified.0.max(self.changed.0);
        i64::try_from(now.as_secs()).is_ok_and(|now| latest < now)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_file_that_was_written_in_its_place_is_another_although_its_time_was_set_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "deny = []").unwrap();
        let (before, modified) = (FileStamp::at(&path).unwrap(), path.metadata().unwrap().modified().unwrap());
        while FileStamp::at(&path) == Some(before) {
            std::fs::write(&path, "deny = {}").unwrap();
            std::fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        }
        let after = FileStamp::at(&path).unwrap();
        assert_eq!((before.modified, before.size), (after.modified, after.size));
        assert_eq!(FileStamp::at(&dir.path().join("none")), None);
    }
}
