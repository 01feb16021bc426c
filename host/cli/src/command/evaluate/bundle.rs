//! An MCP bundle (`.mcpb`): a ZIP archive with `manifest.json`, which says how its server is started.

mod manifest;
mod unpack;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use portcullis_evaluate::Condition;

use super::false_home::work_folder;
use manifest::Manifest;

/// An unpacked bundle, ready to run.
pub(super) struct Bundle {
    /// The folder that it was unpacked into.
    pub(super) folder: PathBuf,
    /// The program and its arguments.
    pub(super) command: Vec<String>,
    /// The variables that its manifest asks for.
    pub(super) variables: Vec<(String, String)>,
    /// The sentences that say what its manifest says.
    pub(super) about: Vec<String>,
}

/// Reports whether a word names a bundle. `.dxt` is the older ending.
pub(super) fn is_bundle(word: &str) -> bool {
    let kind = Path::new(word).extension().map(|kind| kind.to_ascii_lowercase());
    kind.is_some_and(|kind| kind == "mcpb" || kind == "dxt")
}

/// Unpacks a bundle into a folder, which must not exist, and reads its manifest. Starts nothing.
pub(super) fn open(file: &Path, folder: &Path) -> anyhow::Result<Bundle> {
    let shown = || format!("the bundle {} cannot be used", file.display());
    unpack::unpack(file, folder).with_context(shown)?;
    let manifest = Manifest::read(folder).with_context(shown)?;
    if let Some(entry) = manifest.program_of(folder) {
        unpack::make_executable(&entry).with_context(shown)?;
    }
    let filled = manifest.command(folder, &work_folder(Condition::Baseline)).with_context(shown)?;
    Ok(Bundle {
        folder: folder.to_owned(),
        command: filled.command,
        variables: filled.variables,
        about: manifest.about(),
    })
}
