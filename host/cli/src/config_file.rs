//! The configuration file as commands change it: one command at a time, completely or not at all, and trusted as it is
//! written if it was trusted.

use std::fs::{File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use portcullis::config::{Config, ConfigCandidate, TrustStatus, find_text, user_trust};
use portcullis::digest::Digest;
use portcullis::trust::TrustRecord;

use crate::command::trust;
use crate::output::{self, escape_hidden};

/// What is said of a file that is not written because it is not as it was read.
pub(crate) const CHANGED_MEANWHILE: &str =
    "is left as it is: it was changed by somebody else meanwhile; run the command again";

/// The bits of a mode that let somebody write.
const WRITE_BITS: u32 = 0o222;

/// A configuration file that is about to be changed. Other commands wait until it is dropped.
pub(crate) struct ConfigFile {
    /// The file, under the real name of its folder.
    path: PathBuf,
    text: String,
    /// The user's trust in the file as it was read, or `None` if it does not count.
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
            bail!("{} {CHANGED_MEANWHILE}", escape_hidden(&self.path.to_string_lossy()));
        }
        Ok(self)
    }

    /// Leaves the trust in the file to a person: what is written next counts only after a look at it, unless the file is
    /// named.
    pub(crate) fn without_trust(self) -> Self {
        Self { trusted: None, ..self }
    }

    /// Replaces the text, if the new one is a valid configuration. Line endings stay as they were.
    ///
    /// # Errors
    /// If the new text is not valid or cannot be written; the file is as it was then.
    pub(crate) fn replace(self, changed: &str) -> anyhow::Result<()> {
        let shown = escape_hidden(&self.path.to_string_lossy()).into_owned();
        Config::parse(changed, &self.path)
            .with_context(|| format!("{shown} is left as it is, because it would not be valid with the change"))?;
        let changed = in_style_of(&self.text, changed);
        // A link stays one, and leads to the new text.
        let real = self.path.canonicalize().with_context(|| format!("{shown} cannot be read"))?;
        let before = std::fs::read(&real).with_context(|| format!("{shown} cannot be read"))?;
        if before != self.text.as_bytes() {
            bail!("{shown} {CHANGED_MEANWHILE}");
        }
        write(&real, changed.as_bytes()).with_context(|| format!("{shown} cannot be written"))?;
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
        let shown = escape_hidden(&file.to_string_lossy()).into_owned();
        output::message(&format!(
            "it is not trusted, so it is not used yet: `portcullis trust '{shown}'` shows it and asks"
        ));
    }
}

/// Returns a text with the line endings and the byte order mark of another.
fn in_style_of(before: &str, changed: &str) -> String {
    let mark = if before.starts_with('\u{feff}') && !changed.starts_with('\u{feff}') { "\u{feff}" } else { "" };
    match before.contains("\r\n") {
        true => format!("{mark}{}", changed.replace("\r\n", "\n").replace('\n', "\r\n")),
        false => format!("{mark}{changed}"),
    }
}

/// Replaces the content of a file in one step. Its owner, group and mode stay.
fn write(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    write_beside(file, file, bytes)
}

/// Writes a file in one step, with the owner, group and mode of a model in the same folder, which may be the file
/// itself.
pub(crate) fn write_beside(model: &Path, file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let before = std::fs::metadata(model)?;
    ensure!(before.mode() & WRITE_BITS != 0, "it may not be written by anybody (mode {:o})", before.mode() & 0o7777);
    let mut new = tempfile::NamedTempFile::new_in(file.parent().unwrap_or(Path::new(".")))?;
    new.write_all(bytes)?;
    let made = new.as_file().metadata()?;
    if (made.uid(), made.gid()) != (before.uid(), before.gid()) {
        fchown(new.as_file(), Some(before.uid()), Some(before.gid())).context("its owner and group cannot be kept")?;
    }
    new.as_file().set_permissions(Permissions::from_mode(before.mode() & 0o7777))?;
    new.as_file().sync_all()?;
    new.persist(file).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_endings_and_the_byte_order_mark_stay() {
        assert_eq!(in_style_of("\u{feff}a\r\n", "a\nb\n"), "\u{feff}a\r\nb\r\n");
        assert_eq!(in_style_of("\u{feff}a\r\n", "\u{feff}a\r\nb\n"), "\u{feff}a\r\nb\r\n");
        assert_eq!(in_style_of("a\n", "a\nb\n"), "a\nb\n");
    }
}
