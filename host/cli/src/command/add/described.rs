//! The source that a server's description (the entry of a registry, or the manifest of a bundle) describes, its
//! settings, and the values that the user gives.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use portcullis::config::NewSource;

/// The largest number of characters that are shown of a setting's description.
const MAX_DESCRIPTION_CHARS: usize = 100;

/// A source as its description asks for it, before the user's own switches are added.
#[derive(Debug, Default)]
pub(super) struct DescribedSource {
    pub(super) source: NewSource,
    /// Notes on what the user should know or must do.
    pub(super) notes: Vec<String>,
    /// The temporary folder that a bundle was unpacked into, and the place that its files move to.
    pub(super) unpacked: Option<(tempfile::TempDir, PathBuf)>,
}

impl DescribedSource {
    /// Moves the files of a bundle to their place. Call this last, when nothing else can fail.
    pub(super) fn keep(&self) -> anyhow::Result<()> {
        let Some((unpacked, place)) = &self.unpacked else { return Ok(()) };
        std::fs::rename(unpacked.path().join("bundle"), place)
            .with_context(|| format!("cannot move the bundle to {}", place.display()))
    }
}

/// The values that the user gives with `--set`, the names of the settings that a description asked for, and the missing
/// ones.
#[derive(Debug)]
pub(super) struct Settings {
    given: BTreeMap<String, Vec<String>>,
    missing_switches: Vec<String>,
    requested: Vec<String>,
}

/// A value that a description asks for.
pub(super) struct SettingRequest<'a> {
    pub(super) name: &'a str,
    pub(super) description: &'a str,
    pub(super) default: Option<String>,
    pub(super) required: bool,
}

impl Settings {
    pub(super) fn new(given: &[(String, String)]) -> Self {
        let mut all = BTreeMap::<_, Vec<_>>::new();
        for (name, value) in given {
            all.entry(name.clone()).or_default().push(value.clone());
        }
        Self { given: all, missing_switches: Vec::new(), requested: Vec::new() }
    }

    /// Returns the values of a setting: those that the user gave, or else the default. Returns an empty list if there
    /// is neither; if the setting is required, [`Settings::finish`] reports that it is missing.
    pub(super) fn values_of(&mut self, asked: &SettingRequest<'_>) -> Vec<String> {
        self.requested.push(asked.name.to_owned());
        match (self.given.get(asked.name), &asked.default) {
            (Some(given), _) => given.clone(),
            (None, Some(default)) => vec![default.clone()],
            (None, None) => {
                if asked.required {
                    let about: String = asked.description.chars().take(MAX_DESCRIPTION_CHARS).collect();
                    self.missing_switches.push(format!("--set {}=…  ({about})", asked.name));
                }
                Vec::new()
            }
        }
    }

    /// Returns an error if a value is missing, or the user gave one that the description does not ask for.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        if let Some(unknown) = self.given.keys().find(|name| !self.requested.contains(name)) {
            anyhow::bail!(
                "the description asks for no setting {unknown:?}; it asks for {}",
                if self.requested.is_empty() { "none".to_owned() } else { self.requested.join(", ") }
            );
        }
        if !self.missing_switches.is_empty() {
            anyhow::bail!("the server needs more settings: add {}", self.missing_switches.join(" and "));
        }
        Ok(())
    }
}

/// Returns the name under which the store of secrets keeps the value of a source's setting.
pub(super) fn secret_name(source: &str, value: &str) -> String {
    let key: String =
        value.to_ascii_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    format!("{source}-{}", key.trim_matches('-'))
}
