//! The configuration file as commands change it: one command at a time, atomically, and still trusted if it was trusted
//! before.

use std::fs::{File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use portcullis::config::{Config, ConfigCandidate, TrustStatus, find_text, user_trust};
use portcullis::digest::Digest;
use portcullis::trust::TrustRecord;
use tempfile::NamedTempFile;

use crate::command::trust;
use crate::output::{self, escape_hidden, shell_word};

/// The message about a file that is not written because it has changed since it was read.
const CHANGED_MEANWHILE: &str = "it was changed by somebody else meanwhile; run the command again";

/// The bits of a mode that `chmod` sets.
const MODE_BITS: u32 = 0o7777;

/// The bits of the mode of a file that holds a token.
pub(crate) const PRIVATE_BITS: u32 = 0o700;

/// The bits of a mode that let somebody write.
const WRITE_BITS: u32 = 0o222;

/// A configuration file that is about to be changed. Other commands wait until it is dropped.
pub(crate) struct ConfigFile {
    /// The file, under the real name of its folder.
    path: PathBuf,
    text: String,
    /// The user's trust in the file as read, or `None` if it does not count.
    trusted: Option<TrustRecord>,
    /// `None` for a user without a home folder.
    _lock: Option<File>,
}

impl ConfigFile {
    /// Finds and reads the file that a command would use, whether it is valid and trusted or not.
    ///
    /// # Errors
    /// If there is none, or somebody else may have written it.
    pub(crate) fn open(named: Option<&Path>) -> anyhow::Result<Self> {
        let lock = user_trust().ok().map(|trust| trust.lock_edits()).transpose()?;
        let (path, text) = find_text(named)?;
        let trusted = ConfigCandidate::load(Some(&path)).ok().and_then(|found| {
            let record = found.trusted().ok().flatten()?;
            (found.digest() == Digest::of(text.as_bytes()) && found.matches(&record)).then_some(record)
        });
        Ok(Self { path, text, trusted, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the file if its text is still this one, apart from line endings.
    ///
    /// # Errors
    /// If somebody else has changed it since this text was read or written.
    pub(crate) fn still_with(self, text: &str) -> anyhow::Result<Self> {
        if self.text != text && self.text != in_style_of(&self.text, text) {
            bail!("{} is left as it is: {CHANGED_MEANWHILE}", escape_hidden(&self.path.to_string_lossy()));
        }
        Ok(self)
    }

    /// Leaves the trust in the file to a person: the next written text counts only after a look at it, unless the file
    /// is named.
    pub(crate) fn without_trust(self) -> Self {
        Self { trusted: None, ..self }
    }

    /// Replaces the text, if the new one is a valid configuration. Line endings stay unchanged.
    ///
    /// # Errors
    /// If the new text is not valid or cannot be written; the file is then unchanged.
    pub(crate) fn replace(self, changed: &str) -> anyhow::Result<()> {
        let shown = escape_hidden(&self.path.to_string_lossy()).into_owned();
        Config::parse(changed, &self.path)
            .with_context(|| format!("{shown} is left as it is, because it would not be valid with the change"))?;
        let changed = in_style_of(&self.text, changed);
        // A link stays one, and leads to the new text.
        let real = self.path.canonicalize().with_context(|| format!("{shown} cannot be read"))?;
        replace(&real, &self.text, &changed, None).with_context(|| format!("{shown} is left as it is"))?;
        let Some(record) = &self.trusted else { return Ok(()) };
        let found = ConfigCandidate::load(Some(&self.path))?;
        if found.digest() != Digest::of(changed.as_bytes()) {
            return Ok(());
        }
        match trust::data_is_seen(&found, Some(record)) {
            Ok(()) => found.accept().map(drop)?,
            Err(error) => output::message(&format!("{shown} is not trusted as it is now: {error}")),
        }
        Ok(())
    }
}

/// Says how to trust the file that a command would use, if it is not trusted.
pub(crate) fn explain_trust(named: Option<&Path>) {
    let status = ConfigCandidate::load(named).and_then(|found| Ok((found.trust_status()?, found.file().to_owned())));
    if let Ok((TrustStatus::Unknown | TrustStatus::Changed(_), file)) = status {
        output::message(&format!(
            "it is not trusted, so it is not used yet: `portcullis trust {}` shows it and asks",
            shell_word(&file.to_string_lossy())
        ));
    }
}

/// Returns a text with the line endings and the byte order mark of another.
pub(crate) fn in_style_of(before: &str, changed: &str) -> String {
    let mark = if before.starts_with('\u{feff}') && !changed.starts_with('\u{feff}') { "\u{feff}" } else { "" };
    match before.contains("\r\n") {
        true => format!("{mark}{}", changed.replace("\r\n", "\n").replace('\n', "\r\n")),
        false => format!("{mark}{changed}"),
    }
}

/// Replaces the text of a file in one step if it is still this one. Its owner and group stay, and so does its mode, or
/// these bits of it.
///
/// # Errors
/// If it cannot be written, or was changed meanwhile; the file is then unchanged.
pub(crate) fn replace(file: &Path, before: &str, after: &str, bits: Option<u32>) -> anyhow::Result<()> {
    let new = like(file, file, after.as_bytes(), bits.unwrap_or(MODE_BITS))?;
    ensure!(std::fs::read(file)? == before.as_bytes(), CHANGED_MEANWHILE);
    new.persist(file).map_err(|error| error.error)?;
    Ok(())
}

/// Writes a file in one step, with the owner and group and these bits of the mode of a model in the same folder.
pub(crate) fn write_beside(model: &Path, file: &Path, bytes: &[u8], bits: Option<u32>) -> anyhow::Result<()> {
    like(model, file, bytes, bits.unwrap_or(MODE_BITS))?.persist(file).map_err(|error| error.error)?;
    Ok(())
}

/// Makes a file in one step, with what the user's mask allows of this mode.
///
/// # Errors
/// If it exists, or cannot be written; nothing is left then.
pub(crate) fn make(file: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    let mut new = tempfile::Builder::new().permissions(Permissions::from_mode(mode)).tempfile_in(folder_of(file))?;
    new.write_all(bytes)?;
    new.as_file().sync_all()?;
    new.persist_noclobber(file).map_err(|error| error.error)?;
    Ok(())
}

/// Writes a file in one step, whether it exists or not. Anything but a regular file, such as a pipe, is written to.
pub(crate) fn put(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    match std::fs::metadata(file) {
        Ok(found) if found.is_file() => {
            let real = file.canonicalize()?;
            write_beside(&real, &real, bytes, None)
        }
        Ok(_) => Ok(std::fs::write(file, bytes)?),
        Err(_) => Ok(make(file, bytes, 0o666)?),
    }
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns a complete file that can replace another, with the owner, the group and these bits of the mode of a model.
fn like(model: &Path, file: &Path, bytes: &[u8], bits: u32) -> anyhow::Result<NamedTempFile> {
    let before = std::fs::metadata(model)?;
    ensure!(before.mode() & WRITE_BITS != 0, "it may not be written by anybody (mode {:o})", before.mode() & 0o7777);
    let mut new = NamedTempFile::new_in(folder_of(file))?;
    new.write_all(bytes)?;
    let made = new.as_file().metadata()?;
    if (made.uid(), made.gid()) != (before.uid(), before.gid()) {
        fchown(new.as_file(), Some(before.uid()), Some(before.gid())).context("its owner and group cannot be kept")?;
    }
    new.as_file().set_permissions(Permissions::from_mode(before.mode() & MODE_BITS & bits))?;
    new.as_file().sync_all()?;
    Ok(new)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_text_that_was_made_from_another_one_is_refused() {
        let opened =
            |text: &str| ConfigFile { path: "x.toml".into(), text: text.to_owned(), trusted: None, _lock: None };
        for (now, since) in [("a\n", "a\n"), ("a\r\nb\n", "a\r\nb\n"), ("a\r\n", "a\n")] {
            assert!(opened(now).still_with(since).is_ok(), "{now:?}");
        }
        let refused = opened("a\nb\n").still_with("a\n").err().unwrap().to_string();
        assert!(refused.contains("x.toml is left as it is: it was changed by somebody else"), "{refused}");
    }

    #[test]
    fn what_cannot_be_written_is_left_whole_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        make(&file, b"first", 0o600).unwrap();
        assert_eq!(make(&file, b"second", 0o600).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
        assert!(
            replace(&file, "another", "second", None).unwrap_err().to_string().contains("changed by somebody else")
        );
        assert_eq!(std::fs::read(&file).unwrap(), b"first");
        put(&file, b"third").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"third");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn line_endings_and_the_byte_order_mark_stay() {
        assert_eq!(in_style_of("\u{feff}a\r\n", "a\nb\n"), "\u{feff}a\r\nb\r\n");
        assert_eq!(in_style_of("\u{feff}a\r\n", "\u{feff}a\r\nb\n"), "\u{feff}a\r\nb\r\n");
        assert_eq!(in_style_of("a\n", "a\nb\n"), "a\nb\n");
    }
}
