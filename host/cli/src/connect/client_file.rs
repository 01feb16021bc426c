//! A client's file as `connect` changes it: completely or not at all, with a copy of what was there before.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};

use crate::config_file;
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
    /// If it cannot be read, is too long or is not UTF-8, or is a link that leads out of `project`.
    pub(crate) fn open(path: PathBuf, project: Option<&Path>) -> anyhow::Result<Self> {
        let shown = shown(&path);
        if path.symlink_metadata().is_err() {
            return Ok(Self { real: path.clone(), path, text: None });
        }
        let real = path.canonicalize().with_context(|| format!("{shown} cannot be read"))?;
        if let Some(project) = project {
            let project = project.canonicalize().context("the working directory cannot be read")?;
            ensure!(
                real.starts_with(&project),
                "{shown} is a link that leads out of the project, to {}, and is left as it is",
                escape_hidden(&real.to_string_lossy())
            );
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

    /// Copies the file beside it, with its mode and owner. A copy that is there is replaced.
    pub(crate) fn back_up(&self) -> anyhow::Result<()> {
        if !self.exists() {
            return Ok(());
        }
        let backup = self.backup();
        config_file::write_beside(&self.real, &backup, self.text().as_bytes())
            .with_context(|| format!("{} cannot be written, so nothing is changed", shown(&backup)))
    }

    /// Replaces the text, or makes the file with its folder.
    ///
    /// # Errors
    /// If it cannot be written, or was changed meanwhile; the file is as it was then.
    pub(crate) fn replace(&self, text: &str) -> anyhow::Result<()> {
        let shown = self.shown();
        if self.text.is_none() {
            if let Some(folder) = self.real.parent() {
                std::fs::create_dir_all(folder).with_context(|| format!("the folder of {shown} cannot be made"))?;
            }
            let made = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&self.real);
            return made
                .and_then(|mut file| file.write_all(text.as_bytes()))
                .with_context(|| format!("{shown} cannot be made"));
        }
        if read(&self.real)? != self.text() {
            bail!("{shown} is left as it is: it was changed by somebody else meanwhile; run the command again");
        }
        config_file::write_beside(&self.real, &self.real, text.as_bytes())
            .with_context(|| format!("{shown} cannot be written"))
    }

    /// Removes the copy, or the file that `connect` made.
    pub(crate) fn remove(file: &Path) -> anyhow::Result<()> {
        std::fs::remove_file(file).with_context(|| format!("{} cannot be removed", shown(file)))
    }

    pub(crate) fn real(&self) -> &Path {
        &self.real
    }
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
