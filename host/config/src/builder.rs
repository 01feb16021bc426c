//! Builds a configuration from tables that a program writes: those of `portcullis.toml`, without the file.

use std::path::Path;

use serde_json::{Map, Value};

use super::error::{ConfigError, UnlocatedProblem};
use super::place::{NAMED, TablePlace};
use super::{Config, build, read, value};

/// A builder that collects configuration tables. Each table is a JSON object with the keys that the same table of
/// `portcullis.toml` has (`portcullis schema` lists them), or a [`SourceTable`](super::SourceTable) or a similar type,
/// and follows the same rules. A later table replaces an earlier one of the same name.
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
    pub fn broker(self, table: impl Into<Value>) -> Self {
        self.set("broker", table.into())
    }

    /// Sets `[serve]`.
    pub fn serve(self, table: impl Into<Value>) -> Self {
        self.set("serve", table.into())
    }

    /// Sets `[ledger]`, such as `json!({ "retention": "90d" })`.
    pub fn ledger(self, table: impl Into<Value>) -> Self {
        self.set("ledger", table.into())
    }

    /// Sets `[questions]`, the ways in which people hear of questions, such as `json!({ "desktop": true })`.
    pub fn questions(self, table: impl Into<Value>) -> Self {
        self.set("questions", table.into())
    }

    /// Sets `[telemetry]`, such as `json!({ "otlp": "http://127.0.0.1:4318" })`.
    pub fn telemetry(self, table: impl Into<Value>) -> Self {
        self.set("telemetry", table.into())
    }

    /// Sets the folder that keeps compiled code between starts, such as one in `~/.local/state`. It must be private, and
    /// not a folder that a source may write: its content is loaded as code. Without it, each start compiles again.
    pub fn state_dir(mut self, folder: impl AsRef<Path>) -> Self {
        self.state_dir = Some(folder.as_ref().to_owned());
        self
    }

    /// Builds the configuration, or returns the problems, each with its table and key.
    ///
    /// # Errors
    /// [`ConfigError`]: an unknown key or a wrong type, the first of each table; or else every value that is not valid.
    /// A member of an object that is `null`, as an absent `Option` becomes, is left out; `null` in another place is an
    /// error.
    pub fn build(mut self) -> Result<Config, ConfigError> {
        let unreadable = |message: String| ConfigError::without_place(message, "write it as in `portcullis.toml`");
        let text = text_of(&mut self.tables).map_err(|problems| ConfigError::of_tables(problems, ""))?;
        let refuse = |problems| ConfigError::of_tables(problems, &text);
        let raw = read::read(&text).map_err(refuse)?;
        let base = std::path::absolute(&self.base)
            .map_err(|error| unreadable(format!("folder {}: {error}", self.base.display())))?;
        let config = build::build(&raw, None, &value::normal(&base)).map_err(refuse)?;
        Ok(Config { state_dir: self.state_dir, ..config })
    }

    fn set(mut self, kind: &str, table: Value) -> Self {
        self.tables.insert(kind.to_owned(), table);
        self
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

/// Returns the text of tables, without absent values. They pass through it so that there is one parser for both.
fn text_of(tables: &mut Map<String, Value>) -> Result<String, Vec<UnlocatedProblem>> {
    let (mut nulls, mut unwritable) = (Vec::new(), Vec::new());
    for_each_table(tables, |place, table| {
        leave_out_absent(table, &place, &mut nulls);
        if let Err(error) = toml::Value::try_from(&*table) {
            unwritable.push(UnlocatedProblem::new(0..0, error.to_string()).within(place));
        }
    });
    let refused = |place: &TablePlace| {
        let help = "leave it out, or write a value: only a member of an object may be absent";
        UnlocatedProblem::new(0..0, "null is no value").help(help).within(place)
    };
    if !nulls.is_empty() {
        return Err(nulls.iter().map(refused).collect());
    }
    if !unwritable.is_empty() {
        return Err(unwritable);
    }
    toml::to_string(tables).map_err(|error| vec![UnlocatedProblem::new(0..0, error.to_string())])
}

/// Removes the members of objects that are `null`, and adds the places of other nulls to `nulls`.
fn leave_out_absent(value: &mut Value, place: &TablePlace, nulls: &mut Vec<TablePlace>) {
    match value {
        Value::Null => nulls.push(place.clone()),
        Value::Array(values) => {
            let numbered = values.iter_mut().enumerate();
            numbered.for_each(|(before, value)| leave_out_absent(value, &place.number(before), nulls));
        }
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.iter_mut().for_each(|(key, member)| leave_out_absent(member, &place.key(key), nulls));
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Calls `visit` with each table and its place.
fn for_each_table(tables: &mut Map<String, Value>, mut visit: impl FnMut(TablePlace, &mut Value)) {
    for (kind, value) in tables {
        match value {
            Value::Object(named) if NAMED.contains(&kind.as_str()) => {
                named.iter_mut().for_each(|(name, table)| visit(TablePlace::named(kind, name), table));
            }
            Value::Array(entries) => {
                let numbered = entries.iter_mut().enumerate();
                numbered.for_each(|(before, entry)| visit(TablePlace::entry(kind, before), entry));
            }
            table => visit(TablePlace::table(kind), table),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::super::PluginTable;
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
            .profile("guest", json!({ "trust": ["low"] }))
            .ledger(json!({ "retain": "90d" }))
            .questions(json!({ "web-hook": {} }))
            .telemetry(json!({}));
        let text = config.build().unwrap_err().to_string();
        let lines: Vec<_> = text.lines().collect();
        let begins = |start: &str| lines.iter().any(|line| line.starts_with(start));
        assert!(begins("[sources.calc]: unknown key `componet` (did you mean `component`?)"), "{text}");
        assert!(begins("[sources.notes]: invalid type: string \"native:notes\", expected a table ("), "{text}");
        assert!(begins("[[policies]] number 2: unknown key `mod` ("), "{text}");
        assert!(begins("[broker] ask-timeout: invalid type: integer `5`, expected a string ("), "{text}");
        assert!(begins("[profiles.guest] trust: "), "{text}");
        assert!(begins("[ledger]: unknown key `retain` ("), "{text}");
        assert!(begins("[questions]: unknown key `web-hook` ("), "{text}");
        assert!(begins("[telemetry]: "), "{text}");
        assert_eq!(lines.len(), 8, "{text}");
        assert!(!text.contains("Raw"), "{text}");
    }

    #[test]
    fn a_value_that_is_not_valid_names_its_table_and_its_key() {
        let config = Config::builder("/srv")
            .source("docs", json!({ "url": "docs" }))
            .source("calc", json!({ "component": "./junk.wasm@sha256:abcd", "timeout": "x" }))
            .source("notes", json!({ "native": "notes", "cell": { "network": ["a:1"] } }))
            .source("disk", json!({ "command": ["disk"], "cell": { "network": ["a.example:1", "b"] } }))
            .source("none", json!({}))
            .sink(json!({ "plugin": "builtin:jsonl" }))
            .sink(json!({ "plugin": "./junk.wasm@sha256:abcd" }))
            .profile("guest", json!({ "max-result": "1B" }))
            .broker(json!({ "ask-timeout": "soon" }));
        let text = config.build().unwrap_err().to_string();
        let begins = |start: &str| assert!(text.lines().any(|line| line.starts_with(start)), "{start}\n{text}");
        begins("[sources.docs] url: this URL is not valid: relative URL without a base (");
        begins("[sources.calc] component: \"./junk.wasm@sha256:abcd\" names no plugin");
        begins("[sources.calc] timeout: duration \"x\" is not a whole number with a unit (");
        begins("[sources.notes] cell: `cell` belongs to a source with `command`, and this one has `native` (");
        begins("[sources.disk] cell.network number 2: ");
        begins("[sources.none]: source \"none\" has none of ");
        begins("[[sinks]] number 2 plugin: ");
        begins("[profiles.guest] max-result: ");
        begins("[broker] ask-timeout: duration \"soon\" ");
        assert_eq!(text.lines().count(), 9, "{text}");
    }

    #[test]
    fn an_absent_member_is_left_out_and_a_null_in_another_place_is_refused() {
        #[derive(serde::Serialize)]
        struct Rules {
            deny: Vec<Option<&'static str>>,
            ask: Option<Vec<&'static str>>,
            inner: Option<Box<Rules>>,
        }
        let rules = |deny| {
            let inner = Rules { deny: vec![], ask: None, inner: None };
            Rules { deny, ask: None, inner: Some(Box::new(inner)) }
        };
        let config = |deny| {
            let table = PluginTable::new("builtin:rules").settings(rules(deny)).key("grant", None::<Vec<String>>);
            Config::builder("/srv").policy(table)
        };
        let built = config(vec![Some("calc__divide")]).build().unwrap();
        let settings = built.policies.first().map(|policy| policy.settings.clone());
        assert_eq!(settings, Some(json!({ "deny": ["calc__divide"], "inner": { "deny": [] } })));

        let text = config(vec![Some("a"), None]).source("away", Value::Null).build().unwrap_err().to_string();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.contains(&"[[policies]] number 1 settings.deny number 2: null is no value (leave it out, or write a value: only a member of an object may be absent)"), "{text}");
        assert!(lines.iter().any(|line| line.starts_with("[sources.away]: null is no value (")), "{text}");
        assert_eq!(lines.len(), 2, "{text}");

        let keys = std::collections::BTreeMap::from([((1, 2), 3)]);
        let text = Config::builder("/srv").policy(PluginTable::new("builtin:rules").settings(keys)).build();
        let text = text.unwrap_err().to_string();
        assert!(text.contains("[[policies]] number 1 settings: ") && text.contains("key must be a string"), "{text}");
    }
}
