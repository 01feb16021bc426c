//! An MCP bundle (`.mcpb`): a ZIP archive with `manifest.json`, which says how its server is started.

mod manifest;
mod unpack;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use manifest::Manifest;
pub(crate) use manifest::{ManifestValues, UserSetting};

/// An unpacked bundle, ready to run.
pub(crate) struct Bundle {
    /// The folder that it was unpacked into.
    pub(crate) folder: PathBuf,
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
    /// The variables that its manifest asks for.
    pub(crate) variables: Vec<(String, String)>,
    /// The variables whose whole value is a secret setting, with the name of that setting.
    pub(crate) secrets: Vec<(String, String)>,
    /// The content of its manifest, in sentences.
    pub(crate) about: Vec<String>,
}

/// Reports whether a word names a bundle. `.dxt` is the older ending.
pub(crate) fn is_bundle(word: &str) -> bool {
    let kind = Path::new(word).extension().map(|kind| kind.to_ascii_lowercase());
    kind.is_some_and(|kind| kind == "mcpb" || kind == "dxt")
}

/// Unpacks a bundle into a folder, which must not exist, and reads its manifest, with these values for its variables.
/// Starts nothing.
pub(crate) fn open(file: &Path, folder: &Path, values: &mut dyn ManifestValues) -> anyhow::Result<Bundle> {
    let shown = || format!("the bundle {} cannot be used", file.display());
    unpack::unpack(file, folder).with_context(shown)?;
    let manifest = Manifest::read(folder).with_context(shown)?;
    if let Some(entry) = manifest.program_of(folder) {
        unpack::make_executable(&entry).with_context(shown)?;
    }
    let filled = manifest.command(folder, values).with_context(shown)?;
    Ok(Bundle {
        folder: folder.to_owned(),
        command: filled.command,
        variables: filled.variables,
        secrets: filled.secrets,
        about: manifest.about(),
    })
}
