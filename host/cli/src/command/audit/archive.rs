//! `portcullis audit archive` and `restore`: a copy of the ledger in one file.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path};
use std::process::ExitCode;

use anyhow::Context as _;
use portcullis::ledger::{LedgerFiles, PublicKey};
use portcullis_osv::open_archive;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::verify;
use crate::output;

/// The folders of a data folder that an archive has; anything else in one is not ours.
const FOLDERS: [&str; 4] = ["chains", "checkpoints", "keys", "records"];

/// The largest number of files in an archive. A ledger has some for each broker, and one for each 64 MiB of records.
const MAX_FILES: usize = 1_000_000;

/// The room on the disk that an archive leaves free, in bytes; on a small disk it is a tenth of the room.
const KEPT_FREE: u64 = 1 << 30;

/// Writes the ledger of a data folder into a new ZIP archive.
pub(super) fn archive(folder: &Path, path: &Path) -> anyhow::Result<ExitCode> {
    let files = LedgerFiles::of(folder)?;
    let failed = || format!("cannot write {}", path.display());
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut archive = ZipWriter::new(BufWriter::new(created.with_context(failed)?));
    let written = files.copy_each::<anyhow::Error>(|name, file| {
        let options = SimpleFileOptions::default().unix_permissions(0o600).large_file(true);
        archive.start_file_from_path(name, options).with_context(failed)?;
        io::copy(file, &mut archive).with_context(failed).map(drop)
    });
    let finished = written.and_then(|count| {
        let mut file = archive.finish().with_context(failed)?;
        file.flush().and_then(|()| file.get_ref().sync_all()).with_context(failed).map(|()| count)
    });
    let count = match finished {
        Ok(count) => count,
        Err(error) => {
            // A part of an archive is worse than none.
            let _ = fs::remove_file(path);
            return Err(error);
        }
    };
    output::message(&format!(
        "{}: {count} files; `portcullis audit restore` makes a data folder of it that can be read and verified",
        path.display()
    ));
    Ok(ExitCode::SUCCESS)
}

/// Makes a new data folder of an archive and verifies it.
pub(super) fn restore(path: &Path, folder: &Path, keys: &[PublicKey], json: bool) -> anyhow::Result<ExitCode> {
    let failed = || format!("cannot read {}", path.display());
    let mut archive = open_archive(path, u64::MAX, MAX_FILES).with_context(failed)?;
    let mut needed = 0_u64;
    for index in 0..archive.len() {
        needed = needed.saturating_add(archive.by_index(index).with_context(failed)?.size());
    }
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(disk) = rustix::fs::statvfs(parent) {
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let room = free - KEPT_FREE.min(free / 10);
        anyhow::ensure!(
            needed <= room,
            "{}: its files have {needed} bytes, and {} has room for {room}: name a folder on a larger disk, with `DIR`",
            path.display(),
            parent.display()
        );
    }
    let mut folders = fs::DirBuilder::new();
    folders.mode(0o700).create(folder).with_context(|| {
        format!("cannot create {}: name a folder that does not exist yet, with `DIR`", folder.display())
    })?;
    for name in FOLDERS {
        folders.create(folder.join(name)).with_context(|| format!("cannot create {}", folder.join(name).display()))?;
    }
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).with_context(failed)?;
        let name = entry.name().to_owned();
        let is_ours = match Path::new(&name).components().collect::<Vec<_>>()[..] {
            [Component::Normal(first), Component::Normal(_)] => FOLDERS.iter().any(|ours| first == *ours),
            _ => false,
        };
        if !is_ours || !entry.is_file() {
            anyhow::bail!(
                "{}: it has {name:?}, which is not a file of a ledger; the rest is in {}",
                path.display(),
                folder.display()
            );
        }
        let failed = || format!("cannot write {}", folder.join(&name).display());
        let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join(&name));
        let announced = entry.size();
        // The announced size of an entry may be false, so the bytes that are written are counted.
        let mut content = (&mut entry).take(announced.saturating_add(1));
        if io::copy(&mut content, &mut created.with_context(failed)?).with_context(failed)? > announced {
            anyhow::bail!(
                "{}: {name:?} has more than the {announced} bytes that the archive announces; the rest is in {}",
                path.display(),
                folder.display()
            );
        }
    }
    verify::forget(folder);
    verify::run(folder, &[], keys, false, json)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs::File;

    use super::*;

    #[test]
    fn an_archive_with_anything_but_files_of_a_ledger_is_refused() {
        for name in
            ["../records/x", "/records/x", "records/../../x", "records/a/b", "ledger.sqlite", "records/", "other/x"]
        {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("archive.zip");
            let mut archive = ZipWriter::new(File::create(&path).unwrap());
            archive.start_file(name, SimpleFileOptions::default()).unwrap();
            archive.finish().unwrap();
            let refused = restore(&path, &dir.path().join("restored"), &[], false).unwrap_err().to_string();
            assert!(refused.contains("not a file of a ledger"), "{name}: {refused}");
            assert!(!dir.path().join("x").exists());
        }
    }

    /// Makes an archive with one file of zeros that announces another size.
    fn announcing(path: &Path, size: u32) {
        let mut archive = ZipWriter::new(File::create(path).unwrap());
        archive.start_file("records/x", SimpleFileOptions::default()).unwrap();
        archive.write_all(&[0; 100_000]).unwrap();
        archive.finish().unwrap();
        let mut bytes = fs::read(path).unwrap();
        let directory = bytes.windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
        drop(bytes.splice(directory + 24..directory + 28, size.to_le_bytes()));
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn an_archive_gets_no_more_room_than_it_announces() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("archive.zip");
        let restored = dir.path().join("restored");
        announcing(&path, 10);
        let refused = restore(&path, &restored, &[], false).unwrap_err().to_string();
        assert!(refused.contains("more than the 10 bytes"), "{refused}");
        assert_eq!(fs::metadata(restored.join("records/x")).unwrap().len(), 11);
    }
}
