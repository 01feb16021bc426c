//! Widely used servers, and the cell that each was measured to need.
//!
//! The data is `known.toml`, which `tests/servers/measure.py` measures again. Its lines are proposals: a person
//! confirms them before anything is opened.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use portcullis_cell::is_credential;
use serde::Deserialize;

use super::noise::is_too_wide;
use super::proposal::{CellKey, CellLine};

/// The servers of `known.toml`. A test parses it, so that a build with a broken file is never released.
static SERVERS: LazyLock<Vec<KnownServer>> = LazyLock::new(|| {
    let file: File = toml::from_str(include_str!("known.toml")).unwrap_or_default();
    file.server
});

#[derive(Debug, Default, Deserialize)]
struct File {
    server: Vec<KnownServer>,
}

/// A widely used server with the cell that it was measured to need.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct KnownServer {
    /// The package, with its ecosystem: `npm:tavily-mcp`, `pypi:mcp-server-git`.
    pub package: String,
    /// The version that was measured.
    pub version: String,
    /// The day on which it was measured, as `YYYY-MM-DD`.
    pub measured: String,
    /// The use of existing files and folders among the arguments; `None` if they need no grant.
    pub arguments: Option<CellKey>,
    /// The use of the working directory, if one is configured; `None` if it needs no grant.
    pub working_directory: Option<CellKey>,
    /// Variables that hold a path, and what the source does with it.
    #[serde(default)]
    pub variables: BTreeMap<String, CellKey>,
    /// The hosts that it connects to, with their ports.
    #[serde(default)]
    pub network: Vec<String>,
    /// Variables without which it does not work, most often a key.
    #[serde(default)]
    pub environment: Vec<String>,
    /// A sentence with what a person should know besides.
    pub remark: Option<String>,
}

impl KnownServer {
    /// Returns all known servers, in the order of their packages.
    #[must_use]
    pub fn all() -> &'static [Self] {
        &SERVERS
    }

    /// Returns the known server that a command starts by `npx` or `uvx`.
    #[must_use]
    pub fn started_by(argv: &[String]) -> Option<&'static Self> {
        let package = portcullis_cell::package_name(argv)?;
        SERVERS.iter().find(|known| known.package == package)
    }

    /// Returns the lines that a source's cell is proposed to have. Paths are looked up on this machine: one that a
    /// variable names and that does not exist yet is replaced by its folder. Paths that hold credentials, or much more
    /// than the source works on, such as a whole home, are left out.
    #[must_use]
    pub fn lines(
        &self,
        argv: &[String],
        env: &BTreeMap<String, String>,
        directory: Option<&Path>,
        home: Option<&Path>,
    ) -> Vec<CellLine> {
        let base = directory.unwrap_or(Path::new("/"));
        let existing = |path: &Path| {
            let found = path.canonicalize().ok().or_else(|| path.parent()?.canonicalize().ok())?;
            (!is_credential(&found, home) && !is_too_wide(&found, home, true)).then_some(found)
        };
        let evidence = format!("{} {} needed it on {}", self.package, self.version, self.measured);
        let line = |key, value| CellLine { key, value, evidence: vec![evidence.clone()], remark: None };
        let mut paths: Vec<(PathBuf, CellKey)> = Vec::new();
        if let Some(key) = self.arguments {
            let words = argv.iter().skip(1).map(|word| word.rsplit_once('=').map_or(word.as_str(), |(_, value)| value));
            let named = words.filter(|word| word.contains('/') || word.starts_with('.'));
            // A word that names nothing may be anything: an address, a pattern, a package.
            let there = named.filter(|word| base.join(word).exists());
            paths.extend(there.filter_map(|word| existing(&base.join(word))).map(|path| (path, key)));
        }
        for (name, key) in &self.variables {
            let path = env.get(name).and_then(|value| existing(&base.join(value)));
            paths.extend(path.map(|path| (path, *key)));
        }
        paths.extend(self.working_directory.and_then(|key| Some((existing(directory?)?, key))));
        let paths = paths.iter().filter_map(|(path, key)| Some(line(*key, path.to_str()?.to_owned())));
        let hosts = self.network.iter().map(|host| line(CellKey::Network, host.clone()));
        let mut lines: Vec<CellLine> = paths.chain(hosts).collect();
        lines.sort_by(|a, b| (a.key, &a.value).cmp(&(b.key, &b.value)));
        lines.dedup();
        lines
    }
}

#[cfg(test)]
mod tests;
