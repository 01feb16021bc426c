//! A configuration that a program writes: the tables of `portcullis.toml`, without the file.

use std::path::Path;

use serde_json::Value as Data;

use super::error::{ConfigError, Fault};
use super::{Config, build, value};

/// Collects tables. Each is an object with the keys that the same table of `portcullis.toml` has (`portcullis schema` lists
/// them), and is held to the same rules. A table that is given twice under one name is the later one.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct Builder {
    tables: serde_json::Map<String, Data>,
    base: std::path::PathBuf,
    state_dir: Option<std::path::PathBuf>,
}

impl Config {
    /// A configuration without a file. `folder` takes the data folder, `.portcullis`, unless `[broker]` says otherwise, and
    /// relative paths are relative to it. Without more it has no source, and no broker is built of that.
    pub fn builder(folder: impl AsRef<Path>) -> Builder {
        Builder { tables: serde_json::Map::new(), base: folder.as_ref().to_owned(), state_dir: None }
    }
}

impl Builder {
    /// `[sources.NAME]`, such as `json!({ "component": "builtin:calculator" })`.
    pub fn source(self, name: &str, table: Data) -> Self {
        self.named("sources", name, table)
    }

    /// `[groups.NAME]`, such as `json!({ "sources": ["primary", "mirror"] })`.
    pub fn group(self, name: &str, table: Data) -> Self {
        self.named("groups", name, table)
    }

    /// `[profiles.NAME]`, such as `json!({ "trust": "low" })`.
    pub fn profile(self, name: &str, table: Data) -> Self {
        self.named("profiles", name, table)
    }

    /// `[[policies]]`, after those before it.
    pub fn policy(self, table: Data) -> Self {
        self.listed("policies", table)
    }

    /// `[[transforms]]`, after those before it.
    pub fn transform(self, table: Data) -> Self {
        self.listed("transforms", table)
    }

    /// `[[approvals]]`, after those before it.
    pub fn approval(self, table: Data) -> Self {
        self.listed("approvals", table)
    }

    /// `[[sinks]]`, after those before it.
    pub fn sink(self, table: Data) -> Self {
        self.listed("sinks", table)
    }

    /// `[broker]`.
    pub fn broker(mut self, table: Data) -> Self {
        self.tables.insert("broker".to_owned(), table);
        self
    }

    /// `[serve]`.
    pub fn serve(mut self, table: Data) -> Self {
        self.tables.insert("serve".to_owned(), table);
        self
    }

    /// The folder that keeps compiled code from one start to the next, such as [`user_state_dir`](super::user_state_dir). It must
    /// be private, and no folder that a source may write: what lies in it is loaded as code. Without one, each start compiles.
    pub fn state_dir(mut self, folder: impl AsRef<Path>) -> Self {
        self.state_dir = Some(folder.as_ref().to_owned());
        self
    }

    /// What holds, or everything that does not.
    ///
    /// # Errors
    /// [`ConfigError`] with every problem found: unknown keys, values that could not hold, JSON that TOML cannot say (`null`).
    pub fn build(self) -> Result<Config, ConfigError> {
        let refuse = |faults: Vec<Fault>| ConfigError::of(faults, None, "");
        let unreadable = |message: String| ConfigError::without_place(message, "write it as in `portcullis.toml`");
        // By way of the text, so that there is one reader of both.
        let text = toml::to_string(&self.tables).map_err(|error| unreadable(error.to_string()))?;
        let raw = toml::from_str(&text).map_err(|error| unreadable(error.message().to_owned()))?;
        let base = std::path::absolute(&self.base)
            .map_err(|error| unreadable(format!("folder {}: {error}", self.base.display())))?;
        let config = build::build(&raw, None, &value::normal(&base)).map_err(refuse)?;
        Ok(Config { state_dir: self.state_dir, ..config })
    }

    fn named(mut self, kind: &str, name: &str, table: Data) -> Self {
        let all = self.tables.entry(kind).or_insert_with(|| Data::Object(serde_json::Map::new()));
        if let Data::Object(all) = all {
            all.insert(name.to_owned(), table);
        }
        self
    }

    fn listed(mut self, kind: &str, table: Data) -> Self {
        let all = self.tables.entry(kind).or_insert_with(|| Data::Array(Vec::new()));
        if let Data::Array(all) = all {
            all.push(table);
        }
        self
    }
}
