//! Unpacks an archive that somebody else made: only files and folders, only below one folder, and only so much.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, bail};
use portcullis_osv::open_archive;

/// The largest archive, and the largest size of its files together, in bytes.
const MAX_ARCHIVE_BYTES: u64 = 512 << 20;
const MAX_UNPACKED_BYTES: u64 = 2 << 30;

/// The largest number of entries, and the greatest depth of folders.
const MAX_ENTRIES: usize = 100_000;
const MAX_DEPTH: usize = 64;

/// The longest path of an entry, in bytes.
const MAX_PATH_BYTES: usize = 1024;

/// The bits of a Unix mode that say that a file may be executed.
const EXECUTABLE: u32 = 0o111;

/// Unpacks an archive into a folder, which is created if it does not exist.
pub(super) fn unpack(archive: &Path, folder: &Path) -> anyhow::Result<()> {
    unpack_at_most(archive, folder, MAX_UNPACKED_BYTES)
}

fn unpack_at_most(archive: &Path, folder: &Path, max_bytes: u64) -> anyhow::Result<()> {
    let mut archive = open_archive(archive, MAX_ARCHIVE_BYTES, MAX_ENTRIES)?;
    let mut private = DirBuilder::new();
    private.recursive(true).mode(0o700);
    private.create(folder)?;
    let mut left = max_bytes;
    for at in 0..archive.len() {
        let mut entry = archive.by_index(at)?;
        let name = entry.name().to_owned();
        let place = folder.join(place(&name)?);
        if entry.is_symlink() || !(entry.is_dir() || entry.is_file()) {
            bail!("its entry {name:?} is neither a file nor a folder");
        }
        if entry.is_dir() {
            private.create(&place).with_context(|| format!("cannot create its folder {name:?}"))?;
            continue;
        }
        if let Some(parent) = place.parent() {
            private.create(parent).with_context(|| format!("cannot write its file {name:?}"))?;
        }
        let executable = entry.unix_mode().is_some_and(|mode| mode & EXECUTABLE != 0);
        // `create_new` refuses a name that occurs twice in the archive.
        let file = File::options().write(true).create_new(true).mode(0o600).open(&place);
        let mut file = file.with_context(|| format!("its file {name:?}"))?;
        // The size that an entry declares may be false, so the bytes that are written are counted.
        let written =
            io::copy(&mut (&mut entry).take(left + 1), &mut file).with_context(|| format!("its file {name:?}"))?;
        left = match left.checked_sub(written) {
            Some(left) => left,
            None => bail!("its files have more than {max_bytes} bytes together"),
        };
        if executable {
            make_executable(&place)?;
        }
    }
    Ok(())
}

/// Makes a file executable for this user.
pub(super) fn make_executable(file: &Path) -> io::Result<()> {
    fs::set_permissions(file, Permissions::from_mode(0o700))
}

/// Returns the path of an entry below the folder. Refuses an absolute name, one with `..`, a leading `./`, a backslash
/// or a zero byte, and one that is empty, too long or too deep.
fn place(name: &str) -> anyhow::Result<PathBuf> {
    let path = Path::new(name.strip_suffix('/').unwrap_or(name));
    let usual = !name.contains(['\\', '\0'])
        && name.len() <= MAX_PATH_BYTES
        && path.components().count() <= MAX_DEPTH
        && path.components().all(|part| matches!(part, Component::Normal(_)))
        && !path.as_os_str().is_empty();
    if !usual {
        bail!(
            "its entry {name:?} has a path that is not below the bundle, is too long or too deep, or contains a forbidden character"
        );
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::io::Write as _;

    use zip::write::SimpleFileOptions;

    use super::*;

    /// Unpacks an archive with these entries, and returns the error.
    fn refused(make: impl FnOnce(&mut zip::ZipWriter<File>)) -> String {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.mcpb");
        let mut zip = zip::ZipWriter::new(File::create(&file).unwrap());
        make(&mut zip);
        zip.finish().unwrap();
        let inside = dir.path().join("in/side");
        let error = unpack_at_most(&file, &inside, 1 << 20).unwrap_err();
        let outside = fs::read_dir(dir.path()).unwrap().flatten().filter(|entry| entry.file_name() != "in").count();
        let beside = fs::read_dir(dir.path().join("in")).into_iter().flatten().count();
        assert_eq!((outside, beside), (1, 1), "nothing is written elsewhere");
        format!("{error:#}")
    }

    #[test]
    fn an_archive_is_unpacked_into_its_folder_alone_and_within_limits() {
        let plain = SimpleFileOptions::default();
        for name in [
            "../evil",
            "a/../../evil",
            "/etc/evil",
            "a\\..\\evil",
            "a/./b/../../../c",
            &"a/".repeat(65),
            &"a".repeat(1025),
        ] {
            let error = refused(|zip| {
                zip.start_file(name, plain).unwrap();
                zip.write_all(b"evil").unwrap();
            });
            assert!(error.contains("not below the bundle"), "{name}: {error}");
        }
        let error = refused(|zip| zip.add_symlink("link", "/etc", plain).unwrap());
        assert!(error.contains("neither a file nor a folder"), "{error}");
        let error = refused(|zip| {
            for at in 0..3 {
                zip.start_file(format!("bomb-{at}"), plain).unwrap();
                zip.write_all(&vec![0; 400 << 10]).unwrap();
            }
        });
        assert!(error.contains("more than 1048576 bytes together"), "{error}");
        let error = refused(|zip| {
            // On this file system, and on every one that matters, these are a folder and a file of one name.
            zip.add_directory("same", plain).unwrap();
            zip.start_file("same", plain).unwrap();
        });
        assert!(error.contains("its file \"same\""), "{error}");
    }

    #[test]
    fn files_are_private_and_executable_only_if_the_archive_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.mcpb");
        let mut zip = zip::ZipWriter::new(File::create(&file).unwrap());
        zip.start_file("a/run", SimpleFileOptions::default().unix_permissions(0o4755)).unwrap();
        zip.start_file("a/data", SimpleFileOptions::default().unix_permissions(0o666)).unwrap();
        zip.finish().unwrap();
        unpack(&file, &dir.path().join("out")).unwrap();
        let mode = |name: &str| fs::metadata(dir.path().join("out").join(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!([mode(""), mode("a"), mode("a/run"), mode("a/data")], [0o700, 0o700, 0o700, 0o600]);
    }
}
