//! Watches what a program writes into folders, and the room that it leaves on their disks.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The room on the disk that a program must leave, in bytes, or half of what there was before.
const LEAST_ROOM_BYTES: u64 = 1 << 30;

/// The most that a program may write. No limit of a process counts all its files together.
#[derive(Debug, Clone, Copy)]
pub struct DiskQuota {
    /// The most bytes on the disk.
    pub bytes: u64,
    /// The most files and folders.
    pub files: usize,
}

impl DiskQuota {
    /// The pause between two measurements.
    pub const PAUSE: Duration = Duration::from_millis(250);

    /// Waits until a program has written more into these folders than it may, and returns a description of the excess.
    /// Removed files that it holds open are noticed only by the disk's free space. Cancellation safe.
    pub async fn wait_until_exceeded(&self, folders: &[PathBuf]) -> String {
        let least = least_room(folders).map_or(0, |room| (room / 2).min(LEAST_ROOM_BYTES));
        loop {
            tokio::time::sleep(Self::PAUSE).await;
            let (watched, most) = (folders.to_vec(), self.files);
            let Ok(size) = tokio::task::spawn_blocking(move || size(watched, most)).await else { continue };
            let Some((bytes, files)) = size else {
                return "it made a folder that cannot be looked into".to_owned();
            };
            if bytes > self.bytes || files > self.files {
                return format!("it wrote more than {} MiB or {} files", self.bytes >> 20, self.files);
            }
            if least_room(folders).is_some_and(|room| room < least) {
                return format!("less than {} MiB were left on the disk that it writes to", least >> 20);
            }
        }
    }
}

/// Returns the bytes on the disk and the number of all files below these folders, which may be left early if there are
/// more than `most`. Returns `None` if one of them cannot be read, such as one whose path is too long: its content
/// would not count.
fn size(mut folders: Vec<PathBuf>, most: usize) -> Option<(u64, usize)> {
    let (mut bytes, mut files) = (0, 0);
    while let Some(folder) = folders.pop().filter(|_| files <= most) {
        let entries = match fs::read_dir(&folder) {
            // It was removed or replaced meanwhile.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
            entries => entries.ok()?,
        };
        for entry in entries.flatten().take(most.saturating_add(1)) {
            files += 1;
            let Ok(about) = entry.metadata() else { continue };
            bytes += about.blocks() * 512;
            if about.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Some((bytes, files))
}

/// Returns the bytes that this user may still write to the fullest disk of these folders.
fn least_room(folders: &[PathBuf]) -> Option<u64> {
    folders.iter().filter_map(|folder| room_on_disk(folder)).min()
}

fn room_on_disk(folder: &Path) -> Option<u64> {
    rustix::fs::statvfs(folder).ok().map(|about| about.f_bavail.saturating_mul(about.f_frsize))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[tokio::test]
    async fn bytes_and_files_of_all_folders_count_together() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folders = [first.path().to_owned(), second.path().to_owned()];
        fs::create_dir(first.path().join("a")).unwrap();
        for file in [first.path().join("a/b"), second.path().join("c")] {
            fs::write(file, vec![1_u8; 1 << 20]).unwrap();
        }
        assert_eq!(size(folders.to_vec(), 10).unwrap().1, 3);
        for quota in [DiskQuota { bytes: 4 << 10, files: 10 }, DiskQuota { bytes: 1 << 30, files: 2 }] {
            let exceeded = tokio::time::timeout(Duration::from_secs(60), quota.wait_until_exceeded(&folders)).await;
            assert!(exceeded.unwrap().starts_with("it wrote more than"), "{quota:?}");
        }
    }

    #[tokio::test]
    async fn a_folder_whose_path_is_too_long_to_be_read_is_an_excess() {
        let top = tempfile::tempdir().unwrap();
        let (name, packed) = ("n".repeat(250), top.path().join("packed"));
        // Each step puts the tree into one more folder, by short paths.
        fs::create_dir(&packed).unwrap();
        for _ in 0..20 {
            let around = top.path().join("around");
            fs::create_dir(&around).unwrap();
            fs::rename(&packed, around.join(&name)).unwrap();
            fs::rename(around, &packed).unwrap();
        }
        let quota = DiskQuota { bytes: 1 << 30, files: 1000 };
        let folders = [top.path().to_owned()];
        let exceeded = tokio::time::timeout(Duration::from_secs(60), quota.wait_until_exceeded(&folders)).await;
        assert_eq!(exceeded.unwrap(), "it made a folder that cannot be looked into");
    }
}
