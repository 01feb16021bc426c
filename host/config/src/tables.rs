//! Tables of a configuration, written with methods instead of JSON. `key` sets anything that has no method.

use std::net::SocketAddr;
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value, json};

use portcullis_core::call::{Phase, TrustLevel};

use super::Approve;

/// A source, `[sources.NAME]`, for [`ConfigBuilder::source`](super::ConfigBuilder::source).
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a table does nothing until a builder gets it"]
pub struct SourceTable(Map<String, Value>);

/// A plugin, an entry of `[[policies]]`, `[[transforms]]`, `[[approvals]]` or `[[sinks]]`.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a table does nothing until a builder gets it"]
pub struct PluginTable(Map<String, Value>);

/// A profile, `[profiles.NAME]`, for [`ConfigBuilder::profile`](super::ConfigBuilder::profile).
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use = "a table does nothing until a builder gets it"]
pub struct ProfileTable(Map<String, Value>);

/// The HTTP front, `[serve]`, for [`ConfigBuilder::serve`](super::ConfigBuilder::serve).
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use = "a table does nothing until a builder gets it"]
pub struct ServeTable(Map<String, Value>);

impl SourceTable {
    /// Returns a source that is a WebAssembly component: `builtin:NAME`, a file, or a reference to a registry.
    pub fn component(component: &str) -> Self {
        Self(Map::new()).key("component", component)
    }

    /// Returns a source that is a program which speaks MCP over its standard streams: the program and its arguments.
    pub fn command(command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self(Map::new()).key("command", texts(command))
    }

    /// Returns a source that is a server at this address.
    pub fn url(url: &str) -> Self {
        Self(Map::new()).key("url", url)
    }

    /// Returns a source that the program itself adds to the builder of the broker, under this name.
    pub fn native(name: &str) -> Self {
        Self(Map::new()).key("native", name)
    }

    /// Lets the source read a file or a folder.
    pub fn read(mut self, path: impl AsRef<Path>) -> Self {
        grant(&mut self.0, "read", json!(path.as_ref()));
        self
    }

    /// Lets the source read and write a file or a folder.
    pub fn write(mut self, path: impl AsRef<Path>) -> Self {
        grant(&mut self.0, "write", json!(path.as_ref()));
        self
    }

    /// Lets the source reach a host, as `host:port`.
    pub fn network(mut self, host: &str) -> Self {
        grant(&mut self.0, "network", json!(host));
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        insert(&mut self.0, "env", name, json!(value));
        self
    }

    /// Sets any key of the table, replacing an earlier value. The members of an object, such as `cell`, are added to
    /// those that are there, so that this and [`SourceTable::read`] go together.
    pub fn key(mut self, key: &str, value: impl Into<Value>) -> Self {
        match (self.0.get_mut(key), value.into()) {
            (Some(Value::Object(there)), Value::Object(more)) => add(there, more),
            (_, value) => drop(self.0.insert(key.to_owned(), value)),
        }
        self
    }
}

impl PluginTable {
    /// Returns a plugin: `builtin:NAME`, `native:NAME`, a file, or a reference to a registry.
    pub fn new(plugin: &str) -> Self {
        Self(Map::new()).key("plugin", plugin)
    }

    /// Sets the plugin's settings, which must become an object. Its members that are absent (`None`) are left out.
    pub fn settings(self, settings: impl Serialize) -> Self {
        // Settings are an object, so that `build` refuses a text, and shows it.
        let refused = |error| Value::String(format!("settings that cannot be serialised: {error}"));
        self.key("settings", serde_json::to_value(settings).unwrap_or_else(refused))
    }

    /// Sets the phases in which the plugin is asked.
    pub fn on(self, phases: impl IntoIterator<Item = Phase>) -> Self {
        self.key("on", texts(phases.into_iter().map(Phase::as_str)))
    }

    /// Records the policy's verdicts without applying them.
    pub fn shadow(self) -> Self {
        self.key("mode", "shadow")
    }

    /// Sets any key of the table.
    pub fn key(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.to_owned(), value.into());
        self
    }
}

impl ProfileTable {
    /// Returns a profile with only defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how far the callers are trusted.
    pub fn trust(self, trust: TrustLevel) -> Self {
        self.key("trust", trust.as_str())
    }

    /// Sets the globs over the exposed names of the tools that are visible.
    pub fn allow(self, globs: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.key("allow", texts(globs))
    }

    /// Sets the globs over the exposed names of the tools that are hidden.
    pub fn deny(self, globs: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.key("deny", texts(globs))
    }

    /// Sets the calls before which a person is asked although no policy asks.
    pub fn approve(self, approve: Approve) -> Self {
        self.key("approve", approve.as_str())
    }

    /// Sets any key of the table.
    pub fn key(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.to_owned(), value.into());
        self
    }
}

impl ServeTable {
    /// Returns a front with only defaults: it listens on 127.0.0.1:8765, and its token is generated.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the address to listen on.
    pub fn listen(self, address: SocketAddr) -> Self {
        self.key("listen", address.to_string())
    }

    /// Sets the host names under which the front is called, in addition to loopback names and the address that it
    /// listens on.
    pub fn hosts(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.key("hosts", texts(names))
    }

    /// Sets the web origins from which requests are accepted, such as `https://app.example.com`.
    pub fn origins(self, origins: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.key("origins", texts(origins))
    }

    /// Adds a caller that has its own profile and token: the secret of this name, which
    /// [`Config::store_secret`](super::Config::store_secret) stores.
    pub fn caller(mut self, name: &str, profile: &str, secret: &str) -> Self {
        insert(&mut self.0, "callers", name, json!({ "profile": profile, "token": { "secret": secret } }));
        self
    }

    /// Sets any key of the table.
    pub fn key(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.to_owned(), value.into());
        self
    }
}

impl From<SourceTable> for Value {
    fn from(table: SourceTable) -> Self {
        Self::Object(table.0)
    }
}

impl From<PluginTable> for Value {
    fn from(table: PluginTable) -> Self {
        Self::Object(table.0)
    }
}

impl From<ServeTable> for Value {
    fn from(table: ServeTable) -> Self {
        Self::Object(table.0)
    }
}

impl From<ProfileTable> for Value {
    fn from(table: ProfileTable) -> Self {
        Self::Object(table.0)
    }
}

fn texts(texts: impl IntoIterator<Item = impl Into<String>>) -> Value {
    Value::Array(texts.into_iter().map(|text| Value::String(text.into())).collect())
}

/// Adds members to an object: objects and lists under one key are joined, and another value replaces the earlier one.
fn add(into: &mut Map<String, Value>, more: Map<String, Value>) {
    for (key, value) in more {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(there)), Value::Object(more)) => add(there, more),
            (Some(Value::Array(there)), Value::Array(more)) => there.extend(more),
            (_, value) => drop(into.insert(key, value)),
        }
    }
}

/// Puts a value into the table under this key. Something else that `key` put there stays, and `build` refuses it.
fn insert(into: &mut Map<String, Value>, table: &str, key: &str, value: Value) {
    if let Value::Object(table) = into.entry(table).or_insert_with(|| Value::Object(Map::new())) {
        table.insert(key.to_owned(), value);
    }
}

/// Appends a text to the list under this key of `cell`, as [`insert`] does.
fn grant(into: &mut Map<String, Value>, key: &str, value: Value) {
    if let Value::Object(cell) = into.entry("cell").or_insert_with(|| Value::Object(Map::new()))
        && let Value::Array(all) = cell.entry(key).or_insert_with(|| Value::Array(Vec::new()))
    {
        all.push(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_methods_granted_stays_beside_what_a_key_grants() {
        let cell = json!({ "read": ["/usr/share"], "memory": "1GiB" });
        let table =
            SourceTable::command(["disk"]).read("/srv").key("cell", cell).write("/tmp/out").key("timeout", "5s");
        let table = table.key("timeout", "6s").env("A", "1").key("env", json!({ "A": "2", "B": "3" }));
        let cell = json!({ "read": ["/srv", "/usr/share"], "write": ["/tmp/out"], "memory": "1GiB" });
        let expected = json!({ "command": ["disk"], "cell": cell, "timeout": "6s", "env": { "A": "2", "B": "3" } });
        assert_eq!(Value::from(table), expected);
    }
}
