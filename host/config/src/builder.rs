//! Builds a configuration from tables that a program writes: those of `portcullis.toml`, without the file.

use std::path::Path;

use serde_json::Value;

use super::error::{ConfigError, UnlocatedProblem};
use super::{Config, build, value};

/// A builder that collects configuration tables. Each table is a JSON object with the keys that the same table of
/// `portcullis.toml` has (`portcullis schema` lists them), or a [`SourceTable`](super::SourceTable) or the like, and follows the same rules. A later table replaces an
/// earlier one of the same name.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct ConfigBuilder {
    tables: serde_json::Map<String, Value>,
    base: std::path::PathBuf,
    state_dir: Option<std::path::PathBuf>,
}

impl Config {
    /// Returns a builder for a configuration without a file. The data folder is `.portcullis` in `folder` unless
    /// `[broker]` sets another, and relative paths are relative to `folder`. A fresh builder has no source, and no
    /// broker can be built without one.
    pub fn builder(folder: impl AsRef<Path>) -> ConfigBuilder {
        ConfigBuilder { tables: serde_json::Map::new(), base: folder.as_ref().to_owned(), state_dir: None }
    }
}

impl ConfigBuilder {
    /// Adds `[sources.NAME]`, such as `json!({ "component": "builtin:calculator" })`.
    pub fn source(self, name: &str, table: impl Into<Value>) -> Self {
        self.named("sources", name, table.into())
    }

    /// Adds `[groups.NAME]`, such as `json!({ "sources": ["primary", "mirror"] })`.
    pub fn group(self, name: &str, table: impl Into<Value>) -> Self {
        self.named("groups", name, table.into())
    }

    /// Adds `[profiles.NAME]`, such as `json!({ "trust": "low" })`.
    pub fn profile(self, name: &str, table: impl Into<Value>) -> Self {
        self.named("profiles", name, table.into())
    }

    /// Appends an entry of `[[policies]]`.
    pub fn policy(self, table: impl Into<Value>) -> Self {
        self.push("policies", table.into())
    }

    /// Appends an entry of `[[transforms]]`.
    pub fn transform(self, table: impl Into<Value>) -> Self {
        self.push("transforms", table.into())
    }

    /// Appends an entry of `[[approvals]]`.
    pub fn approval(self, table: impl Into<Value>) -> Self {
        self.push("approvals", table.into())
    }

    /// Appends an entry of `[[sinks]]`.
    pub fn sink(self, table: impl Into<Value>) -> Self {
        self.push("sinks", table.into())
    }

    /// Sets `[broker]`.
    pub fn broker(mut self, table: impl Into<Value>) -> Self {
        self.tables.insert("broker".to_owned(), table.into());
        self
    }

    /// Sets `[serve]`.
    pub fn serve(mut self, table: impl Into<Value>) -> Self {
        self.tables.insert("serve".to_owned(), table.into());
        self
    }

    /// Sets the folder that keeps compiled code between starts, such as [`user_state_dir`](super::user_state_dir). It
    /// must be private, and not a folder that a source may write: its content is loaded as code. Without it, each start
    /// compiles again.
    pub fn state_dir(mut self, folder: impl AsRef<Path>) -> Self {
        self.state_dir = Some(folder.as_ref().to_owned());
        self
    }

    /// Builds the configuration, or returns every problem.
    ///
    /// # Errors
    /// [`ConfigError`] with every problem found: unknown keys, values that are not valid, JSON that TOML cannot express
    /// (`null`).
    pub fn build(self) -> Result<Config, ConfigError> {
        let refuse = |faults: Vec<UnlocatedProblem>| ConfigError::of(faults, None, "");
        let unreadable = |message: String| ConfigError::without_place(message, "write it as in `portcullis.toml`");
        // The tables pass through TOML text, so that there is one parser for both.
        let text = toml::to_string(&self.tables).map_err(|error| unreadable(error.to_string()))?;
        let raw = toml::from_str(&text).map_err(|error| unreadable(error.message().to_owned()))?;
        let base = std::path::absolute(&self.base)
            .map_err(|error| unreadable(format!("folder {}: {error}", self.base.display())))?;
        let config = build::build(&raw, None, &value::normal(&base)).map_err(refuse)?;
        Ok(Config { state_dir: self.state_dir, ..config })
    }

    fn named(mut self, kind: &str, name: &str, table: Value) -> Self {
        let all = self.tables.entry(kind).or_insert_with(|| Value::Object(serde_json::Map::new()));
        if let Value::Object(all) = all {
            all.insert(name.to_owned(), table);
        }
        self
    }

    fn push(mut self, kind: &str, table: Value) -> Self {
        let all = self.tables.entry(kind).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(all) = all {
            all.push(table);
        }
        self
    }
}
