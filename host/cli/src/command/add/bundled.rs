//! A source from an MCP bundle (`.mcpb`), which is unpacked next to the configuration.

use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::described::{DescribedSource, SettingRequest, Settings, secret_name};
use crate::bundle::{self, ManifestValues, UserSetting};

/// The folder next to the configuration in which bundles are unpacked.
const FOLDER: &str = "bundles";

/// Unpacks a bundle for a source of this name, and returns the source.
pub(super) fn source(
    bundle: &Path,
    name: &str,
    config: &Path,
    settings: &mut Settings,
) -> anyhow::Result<DescribedSource> {
    let beside = config.parent().context("the configuration is in no folder")?.join(FOLDER);
    let folder = beside.join(name);
    if folder.exists() {
        bail!("{} is there already: remove it, or give the source another name", folder.display());
    }
    // Unpacked elsewhere and then moved, so that a bundle that cannot be used leaves nothing.
    std::fs::create_dir_all(&beside).with_context(|| format!("cannot make {}", beside.display()))?;
    let unpacked = tempfile::Builder::new().prefix(".unpacking-").tempdir_in(&beside)?;
    let mut values = GivenValues { settings, granted: Vec::new() };
    let inside = unpacked.path().join("bundle");
    let opened = bundle::open(bundle, &inside, &mut values)?;
    let GivenValues { granted, .. } = values;
    let in_place = |text: &str| text.replace(&*inside.to_string_lossy(), &folder.to_string_lossy());

    let mut described = DescribedSource { notes: opened.about, ..DescribedSource::default() };
    described.source.command = opened.command.iter().map(|word| in_place(word)).collect();
    described.source.env = opened.variables.iter().map(|(key, value)| (key.clone(), in_place(value))).collect();
    described.source.secret_env =
        opened.secrets.into_iter().map(|(variable, setting)| (variable, secret_name(name, &setting))).collect();
    let own = folder.to_str().context("the folder of the configuration is not UTF-8")?.to_owned();
    described.source.cell = vec![("read", std::iter::once(own).chain(granted).collect())];
    described.notes.push(format!("the bundle is unpacked in {}", folder.display()));
    described.unpacked = Some((unpacked, folder));
    Ok(described)
}

/// The values that the user gives, or the manifest's defaults.
struct GivenValues<'a> {
    settings: &'a mut Settings,
    /// The files and folders among them, which the source may read.
    granted: Vec<String>,
}

impl ManifestValues for GivenValues<'_> {
    fn folder(&self, name: &str) -> anyhow::Result<String> {
        let home = std::env::home_dir().filter(|home| home.is_absolute());
        let home = home.with_context(|| format!("its manifest.json names the folder {name}, and no home is known"))?;
        let place = match name {
            "DESKTOP" => home.join("Desktop"),
            "DOCUMENTS" => home.join("Documents"),
            "DOWNLOADS" => home.join("Downloads"),
            _ => home,
        };
        Ok(place.to_string_lossy().into_owned())
    }

    fn setting(&mut self, name: &str, asked: &UserSetting) -> anyhow::Result<Vec<String>> {
        if asked.sensitive {
            bail!(
                "its manifest.json puts the secret setting {name:?} where it cannot be kept apart: among the arguments, \
                 or inside another value"
            );
        }
        let is_path = matches!(asked.kind.as_str(), "directory" | "file");
        let default = match &asked.default {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(value) => Some(value.to_string()),
            _ => None,
        };
        // A default may name a folder of the user, and only a person opens one.
        let default = default.filter(|text| !is_path && !text.contains("${"));
        let (description, required) = (&*asked.description, asked.required || is_path);
        let mut values = self.settings.values_of(&SettingRequest { name, description, default, required });
        if is_path {
            for value in &mut values {
                *value = std::path::absolute(&value)?.to_string_lossy().into_owned();
                if !self.granted.contains(value) {
                    self.granted.push(value.clone());
                }
            }
        }
        Ok(values)
    }

    fn keeps_secrets(&self) -> bool {
        true
    }
}
