//! The code that tests have compiled, which later ones take over. Compiling the same plugins for each folder anew took
//! most of the suite's time.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The most bytes that a run begins with. If there are more, it begins without any.
const MAX_BYTES: u64 = 1 << 30;

/// The folder of what was compiled so far, with the key of all entries.
static KEPT: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled-plugins");
    let size: u64 = files(&folder).iter().filter_map(|file| fs::metadata(file).ok()).map(|file| file.len()).sum();
    if size > MAX_BYTES {
        let _ = fs::remove_dir_all(&folder);
    }
    fs::create_dir_all(&folder).unwrap();
    let mut key = tempfile::NamedTempFile::new_in(&folder).unwrap();
    std::io::Write::write_all(&mut key, &[1; 32]).unwrap();
    // Another run may be first.
    let _ = key.persist_noclobber(folder.join("key"));
    folder
});

/// Puts what earlier tests have compiled into the cache of a user.
pub(crate) fn give(cache: &Path) {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(cache).unwrap();
    for file in files(&KEPT) {
        let given = cache.join(file.file_name().unwrap());
        if given.ends_with("key") {
            fs::copy(&file, &given).unwrap();
            fs::set_permissions(&given, fs::Permissions::from_mode(0o600)).unwrap();
        } else {
            // Between two file systems nothing is given.
            let _ = fs::hard_link(&file, &given);
        }
    }
}

/// Keeps what a user's cache has more than was given. One that was given nothing has another key.
pub(crate) fn take(cache: &Path) {
    let key = |folder: &Path| fs::read(folder.join("key")).ok();
    if key(cache) != key(&KEPT) {
        return;
    }
    let is_whole = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "cwasm");
    for file in files(cache).into_iter().filter(is_whole) {
        // A file that is already there was given, or is the same.
        let _ = fs::hard_link(&file, KEPT.join(file.file_name().unwrap()));
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
