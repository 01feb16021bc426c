//! Stores the description that a source gave of itself when it last connected, so that the answer to an agent's
//! handshake need not wait for the source after a restart.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::scan_cache::Flags;
use super::stored_json;
use super::upstream::{DiscoveredSource, OfferedItems, Upstream};
use crate::catalog;
use crate::config::ScanMode;
use crate::digest::Digest;
use crate::item::{Item, ItemKind};
use crate::name::SourceName;
use crate::protocol::{Era, Json};

/// The folder of the descriptions, in the data folder.
const FOLDER: &str = "announcements";

/// The largest file that is read or written, in bytes: instructions are shorter, capabilities are a few words, and
/// there are at most 1,000 tools.
const MAX_BYTES: u64 = 512 << 10;

/// The description that a source gave of itself when it last connected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredDescription {
    /// The digest of what the source was.
    identity: Digest,
    /// `ServerCapabilities`
    pub(super) capabilities: serde_json::Value,
    /// The names under which its tools were exposed.
    #[serde(default)]
    tools: BTreeSet<String>,
    /// The name and annotations of each tool that the source calls destructive and whose cell permits destructive
    /// actions.
    #[serde(default)]
    destructive: Vec<serde_json::Value>,
    /// The source's instructions to the model about itself, if it gave any.
    pub(super) instructions: Option<String>,
    /// The only era that the source spoke, if it spoke one.
    pub(super) only_era: Option<Era>,
}

impl StoredDescription {
    pub(super) fn new(
        identity: Digest,
        capabilities: &Json,
        tools: &[Arc<Item>],
        instructions: Option<String>,
        only_era: Option<Era>,
    ) -> Self {
        let brief = |tool: &&Arc<Item>| json!({ "name": &*tool.name, "annotations": { "destructiveHint": true } });
        let destructive = tools.iter().filter(|tool| tool.hints.claim_destructive()).map(|tool| brief(&tool)).collect();
        let tools = tools.iter().map(|tool| tool.exposed.to_string()).collect();
        Self { identity, capabilities: capabilities.to_value(), tools, destructive, instructions, only_era }
    }

    /// Returns the description that an earlier broker kept of this source, if it was the same source then. A file that
    /// cannot be read counts as none: the source is asked anyway.
    pub(super) fn load(data_dir: &Path, source: &SourceName, identity: Digest) -> Option<Self> {
        Self::read(data_dir, source).filter(|kept| kept.identity == identity)
    }

    /// Returns the description of a source, whatever the source was then.
    fn read(data_dir: &Path, source: &SourceName) -> Option<Self> {
        stored_json::read(&path(data_dir, source), MAX_BYTES)
    }

    /// Keeps the description for the next start, replacing an earlier one. One that is too long is not kept.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn save(&self, data_dir: &Path, source: &SourceName) -> std::io::Result<()> {
        stored_json::write(&path(data_dir, source), self, MAX_BYTES)
    }
}

impl Upstream {
    /// Keeps the source's description of itself for the handshakes of later starts.
    pub(super) async fn keep_description(&self, capabilities: &Json, tools: &[Arc<Item>], instructions: Option<&Item>) {
        let text = instructions.and_then(Item::instructions);
        let mut now = StoredDescription::new(self.identity, capabilities, tools, text, self.source.only_era());
        if self.is_harmless() {
            now.destructive.clear();
        }
        if self.description.lock().replace(now.clone()).as_ref() == Some(&now) {
            return;
        }
        let (data_dir, source) = (self.data_dir.clone(), self.config.name.clone());
        let save = move || {
            if let Err(error) = now.save(&data_dir, &source) {
                tracing::debug!(%source, %error, "what a source says of itself is not kept for the next start");
            }
        };
        let _ = tokio::task::spawn_blocking(save).await;
    }

    /// Returns the source's description of itself from its last connection, perhaps to an earlier broker, without
    /// tools. `None` if it never did.
    pub(crate) async fn described(&self) -> Option<DiscoveredSource> {
        let StoredDescription { capabilities, instructions, .. } = self.description.lock().clone()?;
        let instructions = instructions.map(|text| self.instructions(&text));
        let flags = match self.config.scan {
            ScanMode::Off => Flags::default(),
            // Instructions that cannot be scanned are not passed on.
            _ => self.scans.of(instructions.iter()).await.ok()?,
        };
        let tools = OfferedItems { flags, ..OfferedItems::default() };
        Some(DiscoveredSource { tools, era: Era::Legacy, capabilities: Json::of(&capabilities), instructions })
    }

    /// Returns the tools that the source called destructive when it last connected, with nothing of them but names and
    /// annotations.
    pub(crate) fn described_destructive(&self) -> Vec<Arc<Item>> {
        let description = self.description.lock();
        let brief: Vec<_> = description.iter().flat_map(|description| &description.destructive).map(Json::of).collect();
        catalog::items_of(ItemKind::Tool, &self.config, &brief).map(|collected| collected.items).unwrap_or_default()
    }

    /// Returns the names under which the source's tools were exposed when it last connected.
    pub(crate) fn described_tools(&self) -> BTreeSet<String> {
        self.description.lock().as_ref().map(|description| description.tools.clone()).unwrap_or_default()
    }

    /// Reports whether the source ever connected, as far as this broker knows.
    pub(crate) fn is_described(&self) -> bool {
        self.description.lock().is_some()
    }

    /// Returns the only era that the source speaks, if it is known to speak one.
    pub(crate) fn only_era(&self) -> Option<Era> {
        self.source.only_era().or_else(|| self.description.lock().as_ref()?.only_era)
    }
}

/// Returns the names under which a source's tools were exposed when it last connected, whatever the source was then.
pub(crate) fn described_names(data_dir: &Path, source: &SourceName) -> BTreeSet<String> {
    StoredDescription::read(data_dir, source).map(|kept| kept.tools).unwrap_or_default()
}

fn path(data_dir: &Path, source: &SourceName) -> PathBuf {
    data_dir.join(FOLDER).join(format!("{source}.json"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_description_counts_only_for_the_source_that_gave_it() {
        let dir = tempfile::tempdir().unwrap();
        let (source, identity) = ("files".parse().unwrap(), Digest::of(b"one program"));
        assert_eq!(StoredDescription::load(dir.path(), &source, identity), None);
        let capabilities = Json::of(&serde_json::json!({ "prompts": {} }));
        let described =
            StoredDescription::new(identity, &capabilities, &[], Some("be kind".to_owned()), Some(Era::Legacy));
        described.save(dir.path(), &source).unwrap();
        let kept = StoredDescription::load(dir.path(), &source, identity).unwrap();
        assert_eq!(kept, described);
        assert_eq!(StoredDescription::load(dir.path(), &source, Digest::of(b"another program")), None);
        assert_eq!(StoredDescription::load(dir.path(), &"others".parse().unwrap(), identity), None);
    }

    #[test]
    fn a_damaged_or_huge_description_counts_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let (source, identity) = ("files".parse().unwrap(), Digest::of(b"one program"));
        let described = |text: String| StoredDescription::new(identity, &Json::empty_object(), &[], Some(text), None);
        described("x".repeat(1 << 20)).save(dir.path(), &source).unwrap();
        assert_eq!(StoredDescription::load(dir.path(), &source, identity), None);
        described("short".to_owned()).save(dir.path(), &source).unwrap();
        assert!(StoredDescription::load(dir.path(), &source, identity).is_some());
        fs::write(path(dir.path(), &source), "{").unwrap();
        assert_eq!(StoredDescription::load(dir.path(), &source, identity), None);
    }

    #[test]
    fn a_description_that_is_a_link_or_that_others_may_write_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let (source, identity) = ("files".parse().unwrap(), Digest::of(b"one program"));
        let described = StoredDescription::new(identity, &Json::empty_object(), &[], None, None);
        described.save(dir.path(), &source).unwrap();
        let file = path(dir.path(), &source);
        for (mode, expected) in [(0o620, None), (0o602, None), (0o600, Some(described))] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(StoredDescription::load(dir.path(), &source, identity), expected, "{mode:o}");
        }
        let elsewhere = dir.path().join("elsewhere.json");
        fs::rename(&file, &elsewhere).unwrap();
        symlink(&elsewhere, &file).unwrap();
        assert_eq!(StoredDescription::load(dir.path(), &source, identity), None);
    }

    #[test]
    fn a_folder_that_others_can_read_is_closed_and_one_that_they_can_write_gets_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (source, folder) = ("files".parse().unwrap(), dir.path().join(FOLDER));
        let described = StoredDescription::new(Digest::of(b"one program"), &Json::empty_object(), &[], None, None);
        let mode = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
        fs::create_dir(&folder).unwrap();
        mode(0o777);
        assert!(described.save(dir.path(), &source).is_err());
        mode(0o755);
        described.save(dir.path(), &source).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
