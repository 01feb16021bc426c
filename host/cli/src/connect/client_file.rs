//! A client's file as `connect` changes it: atomically, with a copy of its earlier content.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use crate::config_file::{self, PRIVATE_BITS};
use crate::output::escape_hidden;

/// The largest file that is read, in bytes. Claude Code keeps its history in the same file, which reaches some
/// megabytes.
pub(crate) const MAX_BYTES: u64 = 32 << 20;

/// The mode of a file that is made: it may hold a token.
const MODE: u32 = 0o600;

/// A client's file, which need not exist.
pub(crate) struct ClientFile {
    /// The path as the client names it.
    path: PathBuf,
    /// The file that is read and written: where a link leads.
    real: PathBuf,
    /// `None` if there is no file.
    text: Option<String>,
}

impl ClientFile {
    /// Reads the file.
    ///
    /// # Errors
    /// If it cannot be read, is too long or is not UTF-8, or if a link leads out of `project`.
    pub(crate) fn open(path: PathBuf, project: Option<&Path>) -> anyhow::Result<Self> {
        let shown = shown(&path);
        let exists = path.symlink_metadata().is_ok();
        let real = if exists { path.canonicalize() } else { place_of(&path) };
        let real = real.with_context(|| format!("{shown} cannot be read"))?;
        if let Some(project) = project {
            let project = project.canonicalize().context("the working directory cannot be read")?;
            ensure!(
                real.starts_with(&project),
                "{shown} leads out of the project by a link, to {}, and is left as it is",
                escape_hidden(&real.to_string_lossy())
            );
        }
        if !exists {
            return Ok(Self { path, real, text: None });
        }
        let text = read(&real).with_context(|| format!("{shown} is left as it is"))?;
        Ok(Self { path, real, text: Some(text) })
    }

    /// Returns the text, which is empty if there is no file.
    pub(crate) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    pub(crate) fn exists(&self) -> bool {
        self.text.is_some()
    }

    /// Returns the path to show, with the place where a link leads.
    pub(crate) fn shown(&self) -> String {
        let linked = self.path.is_symlink().then(|| format!(" (a link to {})", shown(&self.real)));
        format!("{}{}", shown(&self.path), linked.unwrap_or_default())
    }

    /// Returns the path of the copy.
    pub(crate) fn backup(&self) -> PathBuf {
        let mut name = self.real.file_name().unwrap_or_default().to_owned();
        name.push(".before-portcullis");
        self.real.with_file_name(name)
    }

    /// Returns the text of the copy, if there is one.
    pub(crate) fn backup_text(&self) -> Option<String> {
        read(&self.backup()).ok()
    }

    /// Reports whether others than the user may read or write the file.
    pub(crate) fn is_shared(&self) -> bool {
        std::fs::metadata(&self.real).is_ok_and(|found| found.mode() & !PRIVATE_BITS & 0o777 != 0)
    }

    /// Copies the file next to itself, with its owner and these bits of its mode. A copy that is there is replaced.
    pub(crate) fn back_up(&self, bits: Option<u32>) -> anyhow::Result<()> {
        if !self.exists() {
            return Ok(());
        }
        let backup = self.backup();
        config_file::write_beside(&self.real, &backup, self.text().as_bytes(), bits)
            .with_context(|| format!("{} cannot be written, so nothing is changed", shown(&backup)))
    }

    /// Replaces the text and keeps these bits of the mode, or makes the file with its folder.
    ///
    /// # Errors
    /// If it cannot be written, or was changed meanwhile; the file is then unchanged.
    pub(crate) fn replace(&self, text: &str, bits: Option<u32>) -> anyhow::Result<()> {
        let shown = self.shown();
        let Some(before) = &self.text else {
            if let Some(folder) = self.real.parent() {
                std::fs::create_dir_all(folder).with_context(|| format!("the folder of {shown} cannot be made"))?;
            }
            return config_file::make(&self.real, text.as_bytes(), MODE)
                .with_context(|| format!("{shown} cannot be made"));
        };
        config_file::replace(&self.real, before, text, bits).with_context(|| format!("{shown} is left as it is"))
    }

    /// Removes the copy, or the file that `connect` made.
    pub(crate) fn remove(file: &Path) -> anyhow::Result<()> {
        std::fs::remove_file(file).with_context(|| format!("{} cannot be removed", shown(file)))
    }

    pub(crate) fn real(&self) -> &Path {
        &self.real
    }
}

/// Returns the path of a file that does not exist, without the links of the folders that do.
fn place_of(file: &Path) -> std::io::Result<PathBuf> {
    let there = file.ancestors().find(|folder| folder.symlink_metadata().is_ok()).unwrap_or(Path::new("/"));
    let below = file.strip_prefix(there).unwrap_or(file);
    Ok(there.canonicalize()?.join(below))
}

/// Reads a text that is a regular file of a sensible size.
///
/// # Errors
/// If it is not, each with its reason.
pub(crate) fn read(file: &Path) -> anyhow::Result<String> {
    // A named pipe would be waited for.
    let found = std::fs::metadata(file)?;
    ensure!(found.is_file(), "it is not a regular file");
    ensure!(found.size() <= MAX_BYTES, "it has {} bytes, more than {MAX_BYTES}: is it the right file?", found.size());
    let mut bytes = Vec::new();
    File::open(file)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    String::from_utf8(bytes)
        .map_err(|error| anyhow::anyhow!("it is not UTF-8 at byte {}", error.utf8_error().valid_up_to()))
}

fn shown(path: &Path) -> String {
    escape_hidden(&path.to_string_lossy()).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_file_that_somebody_else_changes_or_makes_meanwhile_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mcp.json");
        let absent = ClientFile::open(path.clone(), None).unwrap();
        std::fs::write(&path, "{}").unwrap();
        assert!(absent.replace("ours", None).is_err());
        let found = ClientFile::open(path.clone(), None).unwrap();
        std::fs::write(&path, "{ }").unwrap();
        let refused = format!("{:#}", found.replace("ours", None).unwrap_err());
        assert!(refused.contains("mcp.json is left as it is: it was changed by somebody else"), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{ }");
    }
}
