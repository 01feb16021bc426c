//! The files that reports are written to.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::Args;
use crate::output::escape_hidden;

/// The files for reports, opened before the work: one that cannot be written is known then.
pub(super) struct ReportFiles<'a> {
    pub(super) sarif: Option<ReportFile<'a>>,
    pub(super) html: Option<ReportFile<'a>>,
}

impl<'a> ReportFiles<'a> {
    pub(super) fn open(args: &'a Args) -> anyhow::Result<Self> {
        let open = |path: &'a Option<PathBuf>| path.as_deref().map(ReportFile::open).transpose();
        Ok(Self { sarif: open(&args.sarif)?, html: open(&args.html)? })
    }
}

/// A file for a report, which keeps its content until there is one.
pub(super) struct ReportFile<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> ReportFile<'a> {
    fn open(path: &'a Path) -> anyhow::Result<Self> {
        let file = File::options().write(true).create(true).truncate(false).open(path);
        Ok(Self { path, file: file.with_context(|| unwritable(path))? })
    }

    pub(super) fn write(mut self, text: &str) -> anyhow::Result<()> {
        // A device or a pipe has no length.
        let _ = self.file.set_len(0);
        self.file.write_all(text.as_bytes()).with_context(|| unwritable(self.path))
    }
}

fn unwritable(path: &Path) -> String {
    format!("cannot write the report to {}", escape_hidden(&path.to_string_lossy()))
}
