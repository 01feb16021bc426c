//! Provides values for the settings of an untrusted bundle: defaults and placeholders, and nothing of the user's.

use std::path::PathBuf;

use serde_json::Value;

use crate::bundle::{ManifestValues, UserSetting};

/// The values of an evaluated bundle. The folder replaces each folder or file that the user would name.
pub(crate) struct PlaceholderSettings(pub(crate) PathBuf);

impl ManifestValues for PlaceholderSettings {
    fn folder(&self, _: &str) -> anyhow::Result<String> {
        Ok(self.0.to_string_lossy().into_owned())
    }

    /// Returns the default, or else something of that kind.
    fn setting(&mut self, name: &str, asked: &UserSetting) -> anyhow::Result<Vec<String>> {
        let default = match &asked.default {
            Value::Array(values) => values.first().unwrap_or(&Value::Null),
            value => value,
        };
        Ok(vec![match (asked.kind.as_str(), default) {
            // A default may name a folder of the user.
            ("directory" | "file", _) => self.0.to_string_lossy().into_owned(),
            (_, Value::String(text)) if !text.contains("${") => text.clone(),
            (_, Value::Number(number)) => number.to_string(),
            (_, Value::Bool(value)) => value.to_string(),
            ("number", _) => "1".to_owned(),
            ("boolean", _) => "false".to_owned(),
            _ => format!("placeholder-{name}"),
        }])
    }

    /// A placeholder is not a secret.
    fn keeps_secrets(&self) -> bool {
        false
    }
}
