//! What a description of a server asks for, and the values that the user gives.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use portcullis::config::NewSource;

/// The most characters of a description that is shown.
const MAX_DESCRIPTION_CHARS: usize = 100;

/// A source as a description says, before the user's own switches are added.
#[derive(Debug, Default)]
pub(super) struct DescribedSource {
    pub(super) source: NewSource,
    /// What the user should know, or has to do.
    pub(super) notes: Vec<String>,
    /// A bundle's temporary folder, and the place where it is to be.
    pub(super) unpacked: Option<(tempfile::TempDir, PathBuf)>,
}

impl DescribedSource {
    /// Puts the files of a bundle in their place, once everything else is known to be right.
    pub(super) fn keep(&self) -> anyhow::Result<()> {
        let Some((unpacked, place)) = &self.unpacked else { return Ok(()) };
        std::fs::rename(unpacked.path().join("bundle"), place)
            .with_context(|| format!("cannot move the bundle to {}", place.display()))
    }
}

/// The values that the user gives with `--set`, and the names of those that a description asked for.
#[derive(Debug)]
pub(super) struct Settings {
    given: BTreeMap<String, Vec<String>>,
    missing: Vec<String>,
    used: Vec<String>,
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
        Self { given: all, missing: Vec::new(), used: Vec::new() }
    }

    /// Returns the values of a setting: those that the user gave, or the default. None is returned for one that may be
    /// left out, and for one that is missing, which [`Settings::finish`] reports.
    pub(super) fn take(&mut self, asked: &SettingRequest<'_>) -> Vec<String> {
        self.used.push(asked.name.to_owned());
        match (self.given.get(asked.name), &asked.default) {
            (Some(given), _) => given.clone(),
            (None, Some(default)) => vec![default.clone()],
            (None, None) => {
                if asked.required {
                    let about: String = asked.description.chars().take(MAX_DESCRIPTION_CHARS).collect();
                    self.missing.push(format!("--set {}=…  ({about})", asked.name));
                }
                Vec::new()
            }
        }
    }

    /// Returns an error if a value is missing, or the user gave one that the description does not ask for.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        if let Some(unknown) = self.given.keys().find(|name| !self.used.contains(name)) {
            anyhow::bail!(
                "the description asks for no setting {unknown:?}; it asks for {}",
                if self.used.is_empty() { "none".to_owned() } else { self.used.join(", ") }
            );
        }
        if !self.missing.is_empty() {
            anyhow::bail!("the server needs more: add {}", self.missing.join(" and "));
        }
        Ok(())
    }
}

/// Returns the name under which the store keeps a value of a source.
pub(super) fn secret_name(source: &str, value: &str) -> String {
    let key: String =
        value.to_ascii_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    format!("{source}-{}", key.trim_matches('-'))
}
