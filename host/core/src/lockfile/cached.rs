//! A lock file that is kept in memory, for frequent use.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::{LockError, Lockfile};
use crate::digest::Digest;
use crate::file_stamp::FileStamp;
use crate::sync::Mutex;

/// The longest time for which a file counts as unchanged by its times. A program that has mapped the file into its memory
/// can write to it without a trace in them.
const LONGEST_UNREAD: Duration = Duration::from_secs(30);

/// The lock file of a data folder. Each access gives its current content: the file is read again if it may have
/// changed, and parsed again if it has.
#[derive(Debug)]
pub struct CachedLockfile {
    data_dir: PathBuf,
    kept: Mutex<Option<ParsedLockfile>>,
}

#[derive(Debug)]
struct ParsedLockfile {
    lock: Arc<Lockfile>,
    /// The digest of the text.
    text: Digest,
    /// The file that had the text. `None` if its times may hide a change.
    file: Option<FileStamp>,
    /// When the text was read.
    read: Instant,
}

impl CachedLockfile {
    /// Returns the lock file of a data folder, which is not read yet.
    #[must_use]
    pub fn new(data_dir: &Path) -> Self {
        Self { data_dir: data_dir.to_owned(), kept: Mutex::default() }
    }

    /// Returns the data folder.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Returns the lock file if that needs no look into it: there is none, or it was read and has not changed.
    #[must_use]
    pub fn unchanged(&self) -> Option<Arc<Lockfile>> {
        match std::fs::symlink_metadata(Lockfile::path(&self.data_dir)) {
            Ok(file) => {
                let kept = self.kept.lock();
                let is_same = |kept: &&ParsedLockfile| {
                    kept.file == Some(FileStamp::of(&file)) && kept.read.elapsed() < LONGEST_UNREAD
                };
                let same = kept.as_ref().filter(is_same);
                same.map(|kept| Arc::clone(&kept.lock))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(Arc::new(Lockfile::empty())),
            Err(_) => None,
        }
    }

    /// Returns the lock file, which is read if it may have changed. Blocks the thread meanwhile.
    ///
    /// # Errors
    /// As for [`Lockfile::load`].
    pub fn read(&self) -> Result<Arc<Lockfile>, LockError> {
        self.read_at(SystemTime::now())
    }

    fn read_at(&self, now: SystemTime) -> Result<Arc<Lockfile>, LockError> {
        if let Some(unchanged) = self.unchanged() {
            return Ok(unchanged);
        }
        let path = Lockfile::path(&self.data_dir);
        let stamp = || std::fs::symlink_metadata(&path).ok().map(|file| FileStamp::of(&file));
        let before = stamp().filter(|file| file.is_settled(now));
        let Some(text) = Lockfile::read(&path)? else { return Ok(Arc::new(Lockfile::empty())) };
        // A file that was changed or replaced while it was read is read again when next needed.
        let file = before.filter(|before| stamp() == Some(*before));
        let digest = Digest::of(text.as_bytes());
        let known = self.kept.lock().as_ref().filter(|kept| kept.text == digest).map(|kept| Arc::clone(&kept.lock));
        let lock = known.map_or_else(|| Lockfile::parse(&path, &text).map(Arc::new), Ok)?;
        *self.kept.lock() = Some(ParsedLockfile { lock: Arc::clone(&lock), text: digest, file, read: Instant::now() });
        Ok(lock)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use super::*;

    fn accept(folder: &Path, name: &str) {
        Lockfile::change(folder, |lock| _ = lock.pin_component(name, Digest::of(name.as_bytes()))).unwrap();
    }

    fn pinned(lock: &Lockfile) -> Vec<&str> {
        lock.components().iter().map(|pin| pin.component.as_str()).collect()
    }

    #[test]
    fn a_kept_lock_file_is_parsed_once_and_each_edit_of_it_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let (kept, begun) = (CachedLockfile::new(dir.path()), SystemTime::now());
        assert!(pinned(&kept.read().unwrap()).is_empty(), "there is none yet");
        accept(dir.path(), "first");
        let first = kept.read_at(begun).unwrap();
        assert_eq!(pinned(&first), ["first"]);
        assert!(kept.unchanged().is_none(), "a change within the same tick of the clock would not show");
        assert!(Arc::ptr_eq(&first, &kept.read_at(begun).unwrap()), "the same text is not parsed again");

        let later = begun + Duration::from_secs(3600);
        assert!(Arc::ptr_eq(&first, &kept.read_at(later).unwrap()));
        assert!(Arc::ptr_eq(&first, &kept.unchanged().unwrap()), "nothing is read");
        let read_long_ago = Instant::now().checked_sub(LONGEST_UNREAD).unwrap();
        kept.kept.lock().as_mut().unwrap().read = read_long_ago;
        assert!(kept.unchanged().is_none(), "a mapping of it may have been written to");
        assert!(Arc::ptr_eq(&first, &kept.read_at(later).unwrap()), "the same text is not parsed again");
        let path = Lockfile::path(dir.path());
        let (text, times) = (fs::read_to_string(&path).unwrap(), fs::metadata(&path).unwrap().modified().unwrap());
        let stamp = || FileStamp::of(&fs::metadata(&path).unwrap());
        let before = stamp();
        // The clock may need some milliseconds for its next tick; it has had them where the file is as old as it seems.
        while stamp() == before {
            fs::write(&path, text.replace("first", "other")).unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_modified(times).unwrap();
        }
        assert!(kept.unchanged().is_none(), "it was edited in its place and its time set back");
        assert_eq!(pinned(&kept.read_at(later).unwrap()), ["other"]);

        accept(dir.path(), "third");
        assert_eq!(pinned(&kept.read_at(later).unwrap()), ["other", "third"]);
        fs::write(&path, "version = 7").unwrap();
        assert!(kept.read_at(later).unwrap_err().to_string().contains("version 7"));
        assert!(kept.read_at(later).is_err(), "what is damaged replaces nothing and stays damaged");
        fs::remove_file(&path).unwrap();
        assert!(pinned(&kept.read().unwrap()).is_empty());
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(kept.read().unwrap_err().to_string().contains("symbolic link"));
    }
}
