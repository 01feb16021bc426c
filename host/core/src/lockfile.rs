//! The lock file `portcullis.lock`: the definitions of tools, prompts, resources and templates that a person accepted,
//! and the versions to which packages and components are pinned.

mod cached;
mod differences;
mod resolved;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::item::{Item, ItemKind};
use crate::name::SourceName;
use crate::private;
use crate::private::regular_file::{self, Symlinks};
use crate::protocol::Json;

pub use cached::CachedLockfile;
pub use differences::differences;
pub(crate) use resolved::tree_of;
pub use resolved::{PackageVersion, ResolvedPackage};

/// The name of the file in the data folder.
pub(super) const FILE_NAME: &str = "portcullis.lock";

/// The name of an empty file that is locked while the lock file is changed.
const GUARD_NAME: &str = ".portcullis.lock.guard";

/// The largest lock file that is read, in bytes: 10,000 definitions of 5 KiB.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// The result of comparing an item with the lock file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acceptance {
    /// No definition of this item was accepted.
    Unknown,
    /// This exact definition from this exact source was accepted.
    Accepted,
    /// Another definition, or the same name from another source, was accepted. The lines describe the change.
    Changed(Vec<String>),
}

/// The content of a lock file: accepted definitions, pinned packages and pinned components.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lockfile {
    version: u32,
    /// Ordered by source, kind and name. Version 1 has only tools.
    #[serde(default, rename = "item", alias = "tool", skip_serializing_if = "Vec::is_empty")]
    items: Vec<LockedItem>,
    #[serde(default, rename = "package", skip_serializing_if = "Vec::is_empty")]
    packages: Vec<LockedPackage>,
    #[serde(default, rename = "component", skip_serializing_if = "Vec::is_empty")]
    components: Vec<LockedComponent>,
}

/// A plugin or component that is pinned to its bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedComponent {
    /// The reference in the configuration, with an absolute path.
    pub component: String,
    /// The digest that its bytes must have.
    pub digest: Digest,
    /// The time at which a person accepted the component, in RFC 3339.
    pub accepted: String,
}

/// An item that was accepted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LockedItem {
    /// The source's configured name.
    pub source: String,
    /// The digest of what the source is: its command, address or component.
    pub identity: Digest,
    /// The kind of the item; for a source's instructions, the kind is `source`.
    #[serde(default = "tool")]
    pub kind: ItemKind,
    /// The item's name, URI or URI template at the source.
    #[serde(alias = "tool")]
    pub name: String,
    /// The digest of its definition.
    pub digest: Digest,
    /// The time at which the item was accepted, in RFC 3339.
    pub accepted: String,
    /// The definition, so that a change can be shown.
    pub definition: String,
}

/// Returns the pin by which `portcullis lock accept` names exactly this definition: the source, `@` and the digest.
#[must_use]
pub fn pin(source: &SourceName, definition: Digest) -> String {
    format!("{source}@{definition}")
}

/// A package that is pinned with everything it depends on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LockedPackage {
    /// The source's configured name.
    pub source: String,
    /// The package that the source's command asks for: `npm:@org/server`, `pypi:server==1.2`.
    pub requested: String,
    /// The package's name in the registry.
    pub name: String,
    /// The version to which the request resolved.
    pub version: String,
    /// The hash that its bytes must have.
    pub integrity: String,
    /// The digest of the whole tree.
    pub tree: Digest,
    /// The time at which the package was pinned, in RFC 3339.
    pub pinned: String,
    /// The origin of the package: `host:port` of all hosts that were reached for it.
    #[serde(default)]
    pub registry: Vec<String>,
    /// The whole tree, so that a change can be shown.
    pub units: Vec<PackageVersion>,
}

impl LockedItem {
    fn place(&self) -> Place<'_> {
        (&self.source, self.kind, &self.name)
    }
}

/// Identifies an item: its source, kind and name.
type Place<'a> = (&'a str, ItemKind, &'a str);

fn place(item: &Item) -> Place<'_> {
    (item.source.as_str(), item.kind, &item.name)
}

impl LockedPackage {
    /// Returns the packages that another tree adds, removes or changes, one line each.
    #[must_use]
    pub fn differences(&self, other: &ResolvedPackage) -> Vec<String> {
        let shown = |unit: &PackageVersion| format!("{}@{} ({})", unit.name, unit.version, unit.integrity);
        let gone =
            self.units.iter().filter(|unit| !other.units.contains(unit)).map(|unit| format!("- {}", shown(unit)));
        let new = other.units.iter().filter(|unit| !self.units.contains(unit)).map(|unit| format!("+ {}", shown(unit)));
        gone.chain(new).collect()
    }
}

/// An error that says why a lock file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The file could not be read or written.
    #[error("{path}: {error}")]
    Io {
        /// The lock file.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The file is not a lock file of this version.
    #[error("{path}: {reason}; repair it, or remove it and accept the definitions again with `portcullis lock accept`")]
    Malformed {
        /// The lock file.
        path: PathBuf,
        /// The fault in the file.
        reason: String,
    },
}

/// The version that is written.
const VERSION: u32 = 2;

/// The oldest version that is read: its items are tools.
const OLDEST: u32 = 1;

fn tool() -> ItemKind {
    ItemKind::Tool
}

impl Lockfile {
    /// Returns the path of the lock file in a data folder.
    #[must_use]
    pub fn path(data_dir: &Path) -> PathBuf {
        data_dir.join(FILE_NAME)
    }

    /// Reads the lock file of a data folder. A missing file gives an empty lock.
    ///
    /// # Errors
    /// If the file cannot be read or parsed: a damaged lock file must not be taken for "nothing was ever accepted".
    pub fn load(data_dir: &Path) -> Result<Self, LockError> {
        let path = Self::path(data_dir);
        let text = Self::read(&path)?;
        text.map_or_else(|| Ok(Self::empty()), |text| Self::parse(&path, &text))
    }

    /// Returns a lock file that has nothing.
    fn empty() -> Self {
        Self { version: VERSION, ..Self::default() }
    }

    /// Returns the text of a lock file. `None` if there is no file.
    fn read(path: &Path) -> Result<Option<String>, LockError> {
        use std::io::ErrorKind::{FileTooLarge, InvalidData, NotFound};
        let of = |error: std::io::Error| match error.kind() {
            FileTooLarge | InvalidData => LockError::Malformed { path: path.to_owned(), reason: error.to_string() },
            _ => LockError::Io { path: path.to_owned(), error },
        };
        match regular_file::read_text(path, Symlinks::Refuse, MAX_BYTES) {
            Err(error) if error.kind() == NotFound => Ok(None),
            read => read.map(Some).map_err(of),
        }
    }

    fn parse(path: &Path, text: &str) -> Result<Self, LockError> {
        let malformed = |reason: String| LockError::Malformed { path: path.to_owned(), reason };
        let mut lock: Self = toml::from_str(text).map_err(|error| malformed(error.to_string()))?;
        if !(OLDEST..=VERSION).contains(&lock.version) {
            return Err(malformed(format!("version {} is none of {OLDEST} to {VERSION}", lock.version)));
        }
        lock.version = VERSION;
        lock.items.sort_by(|a, b| a.place().cmp(&b.place()));
        for entry in &lock.items {
            let definition = Json::parse(entry.definition.clone()).map_err(|error| malformed(error.to_string()))?;
            if Digest::of_json(&definition) != Ok(entry.digest) {
                let reason = format!("digest and definition of `{}` of `{}` disagree", entry.name, entry.source);
                return Err(malformed(reason));
            }
        }
        if let Some(entry) = lock.packages.iter().find(|entry| tree_of(&entry.units) != entry.tree) {
            return Err(malformed(format!(
                "tree and units of package `{}` of `{}` disagree",
                entry.name, entry.source
            )));
        }
        Ok(lock)
    }

    /// Reads the lock file, changes it and writes it, and keeps other processes from changing it meanwhile.
    ///
    /// # Errors
    /// If it cannot be read or written; then nothing was changed.
    pub fn change(data_dir: &Path, change: impl FnOnce(&mut Self)) -> Result<(), LockError> {
        let path = data_dir.join(GUARD_NAME);
        let _held = private::lock(&path).map_err(|error| LockError::Io { path, error: error.into() })?;
        let mut lock = Self::load(data_dir)?;
        change(&mut lock);
        lock.save(data_dir)
    }

    /// Writes the lock file atomically.
    ///
    /// # Errors
    /// If the folder or the file cannot be written.
    pub fn save(&self, data_dir: &Path) -> Result<(), LockError> {
        let path = Self::path(data_dir);
        let write = || {
            let body = toml::to_string(self).map_err(std::io::Error::other)?;
            let mut file = tempfile::NamedTempFile::new_in(data_dir)?;
            file.write_all(
                b"# Accepted definitions, pinned packages and components. Written by `portcullis`; safe to commit.\n",
            )?;
            file.write_all(body.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(&path).map_err(|error| error.error)?;
            Ok(())
        };
        write().map_err(|error| LockError::Io { path: path.clone(), error })
    }

    /// Returns the accepted items, ordered by source, kind and name.
    #[must_use]
    pub fn items(&self) -> &[LockedItem] {
        &self.items
    }

    /// Accepts a definition, and replaces any earlier one of that item.
    pub fn accept(&mut self, item: &Item, identity: Digest) {
        self.items.retain(|entry| entry.place() != place(item));
        self.items.push(LockedItem {
            source: item.source.to_string(),
            identity,
            kind: item.kind,
            name: item.name.to_string(),
            digest: item.digest,
            accepted: now(),
            definition: item.definition.as_str().to_owned(),
        });
        self.items.sort_by(|a, b| a.place().cmp(&b.place()));
    }

    /// Returns the pinned packages, ordered by source.
    #[must_use]
    pub fn packages(&self) -> &[LockedPackage] {
        &self.packages
    }

    /// Returns the package to which a source's command is pinned. A pin for another command does not apply.
    #[must_use]
    pub fn package(&self, source: &str, requested: &str) -> Option<&LockedPackage> {
        self.packages.iter().find(|entry| entry.source == source && entry.requested == requested)
    }

    /// Pins a source's command to what it resolved to at these hosts, and replaces any earlier pin of that source.
    pub fn pin(&mut self, source: &str, requested: &str, resolved: &ResolvedPackage, registry: &[String]) {
        self.packages.retain(|entry| entry.source != source);
        self.packages.push(LockedPackage {
            source: source.to_owned(),
            requested: requested.to_owned(),
            name: resolved.main.name.clone(),
            version: resolved.main.version.clone(),
            integrity: resolved.main.integrity.clone(),
            tree: resolved.tree,
            pinned: now(),
            registry: registry.to_vec(),
            units: resolved.units.clone(),
        });
        self.packages.sort_by(|a, b| a.source.cmp(&b.source));
    }

    /// Restores the earlier pin of a source's package, or removes the pin.
    pub fn restore_package(&mut self, source: &str, before: Option<LockedPackage>) {
        self.packages.retain(|entry| entry.source != source);
        self.packages.extend(before);
        self.packages.sort_by(|a, b| a.source.cmp(&b.source));
    }

    /// Returns the pinned plugins and components, ordered by name.
    #[must_use]
    pub fn components(&self) -> &[LockedComponent] {
        &self.components
    }

    /// Pins a plugin or component to these bytes, and returns the digest that was pinned before.
    pub fn pin_component(&mut self, component: &str, digest: Digest) -> Option<Digest> {
        let before = self.unpin_component(component);
        self.components.push(LockedComponent { component: component.to_owned(), digest, accepted: now() });
        self.components.sort_by(|a, b| a.component.cmp(&b.component));
        before
    }

    /// Removes the pin of a plugin or component, and returns the digest that was pinned.
    pub fn unpin_component(&mut self, component: &str) -> Option<Digest> {
        let index = self.components.iter().position(|entry| entry.component == component)?;
        Some(self.components.remove(index).digest)
    }

    /// Compares the present form of an item with the lock file.
    #[must_use]
    pub fn of(&self, item: &Item, identity: Digest) -> Acceptance {
        let found = self.items.binary_search_by(|entry| entry.place().cmp(&place(item)));
        match found.ok().and_then(|index| self.items.get(index)) {
            None => Acceptance::Unknown,
            Some(entry) if entry.digest == item.digest && entry.identity == identity => Acceptance::Accepted,
            Some(entry) => {
                let mut changes = Vec::new();
                if entry.identity != identity {
                    changes.push("the source is another program, address or component than before".to_owned());
                }
                changes.extend(differences(&entry.definition, item.definition.as_str()));
                Acceptance::Changed(changes)
            }
        }
    }
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests;
