//! `portcullis audit archive` and `restore`: a copy of the ledger in one file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path};
use std::process::ExitCode;

use anyhow::Context as _;
use portcullis::ledger::{LedgerFiles, PublicKey};
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

use super::verify;
use crate::output;

/// The folders of a data folder that an archive has; anything else in one is not ours.
const FOLDERS: [&str; 4] = ["chains", "checkpoints", "keys", "records"];

/// Writes the ledger of a data folder into a new ZIP archive.
pub(super) fn archive(folder: &Path, path: &Path) -> anyhow::Result<ExitCode> {
    let files = LedgerFiles::of(folder)?;
    let failed = || format!("cannot write {}", path.display());
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut archive = ZipWriter::new(BufWriter::new(created.with_context(failed)?));
    let written = files.copy_each::<anyhow::Error>(|name| {
        let mut file = match File::open(folder.join(name)) {
            // A chain ended meanwhile, and its lock file has another name.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file.with_context(|| format!("cannot read {}", folder.join(name).display()))?,
        };
        let options = SimpleFileOptions::default().unix_permissions(0o600).large_file(true);
        archive.start_file_from_path(name, options).with_context(failed)?;
        io::copy(&mut file, &mut archive).with_context(failed).map(drop)
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
    let mut archive = ZipArchive::new(File::open(path).with_context(failed)?).with_context(failed)?;
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
        io::copy(&mut entry, &mut created.with_context(failed)?).with_context(failed)?;
    }
    verify::forget(folder);
    verify::run(folder, &[], keys, false, json)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

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
}
