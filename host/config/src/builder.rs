//! Builds a configuration from tables that a program writes: those of `portcullis.toml`, without the file.

use std::path::Path;

use serde_json::{Map, Value};

use super::error::{ConfigError, UnlocatedProblem};
use super::raw::RawConfig;
use super::{Config, build, value};

/// The tables of a configuration that contain others by name.
const NAMED: [&str; 3] = ["sources", "groups", "profiles"];

/// A builder that collects configuration tables. Each table is a JSON object with the keys that the same table of
/// `portcullis.toml` has (`portcullis schema` lists them), or a [`SourceTable`](super::SourceTable) or the like, and follows the same rules. A later table replaces an
/// earlier one of the same name.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct ConfigBuilder {
    tables: Map<String, Value>,
    base: std::path::PathBuf,
    state_dir: Option<std::path::PathBuf>,
}

impl Config {
    /// Returns a builder for a configuration without a file. The data folder is `.portcullis` in `folder` unless
    /// `[broker]` sets another, and relative paths are relative to `folder`. A fresh builder has no source, and no
    /// broker can be built without one.
    pub fn builder(folder: impl AsRef<Path>) -> ConfigBuilder {
        ConfigBuilder { tables: Map::new(), base: folder.as_ref().to_owned(), state_dir: None }
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
        let raw = parse(&self.tables).map_err(|problem| {
            let found: Vec<_> = single_tables(&self.tables)
                .filter_map(|(name, table)| Some(parse(&table).err()?.within(&name)))
                .collect();
            refuse(if found.is_empty() { vec![problem] } else { found })
        })?;
        let base = std::path::absolute(&self.base)
            .map_err(|error| unreadable(format!("folder {}: {error}", self.base.display())))?;
        let config = build::build(&raw, None, &value::normal(&base)).map_err(refuse)?;
        Ok(Config { state_dir: self.state_dir, ..config })
    }

    fn named(mut self, kind: &str, name: &str, table: Value) -> Self {
        let all = self.tables.entry(kind).or_insert_with(|| Value::Object(Map::new()));
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

/// Reads tables. They pass through TOML text, so that there is one parser for both.
fn parse(tables: &Map<String, Value>) -> Result<RawConfig, UnlocatedProblem> {
    let text = toml::to_string(tables).map_err(|error| UnlocatedProblem::new(0..0, error.to_string()))?;
    toml::from_str(&text).map_err(|error| UnlocatedProblem::of_toml(&error))
}

/// Returns each table alone, with its name in a file: a problem in it is then known to be its own.
fn single_tables(tables: &Map<String, Value>) -> impl Iterator<Item = (String, Map<String, Value>)> {
    let single = |kind: &String, value: Value| Map::from_iter([(kind.clone(), value)]);
    tables.iter().flat_map(move |(kind, value)| match value {
        Value::Object(named) if NAMED.contains(&kind.as_str()) => named
            .iter()
            .map(|(name, table)| {
                let alone = Map::from_iter([(name.clone(), table.clone())]);
                (format!("[{kind}.{name}]"), single(kind, Value::Object(alone)))
            })
            .collect::<Vec<_>>(),
        Value::Array(entries) => (entries.iter().enumerate())
            .map(|(at, entry)| {
                (format!("[[{kind}]] number {}", at + 1), single(kind, Value::Array(vec![entry.clone()])))
            })
            .collect(),
        _ => vec![(format!("[{kind}]"), single(kind, value.clone()))],
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    #[test]
    fn every_problem_names_its_table_and_no_type_of_the_library() {
        let config = Config::builder("/srv")
            .source("calc", json!({ "componet": "builtin:calculator" }))
            .source("notes", "native:notes")
            .source("fine", json!({ "component": "builtin:calculator" }))
            .policy(json!({ "plugin": "builtin:rules" }))
            .policy(json!({ "plugin": "builtin:rules", "mod": "shadow" }))
            .broker(json!({ "ask-timeout": 5 }))
            .profile("guest", json!({ "trust": null }));
        let text = config.build().unwrap_err().to_string();
        let lines: Vec<_> = text.lines().collect();
        let begins = |start: &str| lines.iter().any(|line| line.starts_with(start));
        assert!(begins("[sources.calc]: unknown key `componet` (did you mean `component`?)"), "{text}");
        assert!(begins("[sources.notes]: invalid type: string \"native:notes\", expected a table ("), "{text}");
        assert!(begins("[[policies]] number 2: unknown key `mod` ("), "{text}");
        assert!(begins("[broker]: "), "{text}");
        assert!(begins("[profiles.guest]: "), "{text}");
        assert_eq!(lines.len(), 5, "{text}");
        assert!(!text.contains("Raw"), "{text}");
    }
}
