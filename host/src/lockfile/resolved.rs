//! What a package resolved to: itself and everything it depends on, each by version and integrity.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// Packages in one tree. The largest servers bring a few hundred.
pub(crate) const MAX_UNITS: usize = 5_000;

/// One package at one version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unit {
    /// As the registry calls it.
    pub name: String,
    /// Which.
    pub version: String,
    /// What its bytes must hash to: npm's `sha512-…`; or `sha256:…` over the hashes of all its wheels.
    pub integrity: String,
}

/// A resolved tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedPackage {
    /// The package that was asked for.
    pub main: Unit,
    /// Everything that is installed, ordered, the main package among it.
    pub units: Vec<Unit>,
    /// Digest of all that: the same tree has the same name on every machine.
    pub tree: Digest,
    /// What the installer needs to install exactly this: npm's lock file, or requirements with hashes.
    pub(crate) recipe: String,
}

impl ResolvedPackage {
    /// A tree of these packages, the one that was asked for among them. `recipe` is what its installer needs.
    ///
    /// # Errors
    /// If the main package is not in the tree, or there are more than can be right.
    pub fn new(main: &str, mut units: Vec<Unit>, recipe: String) -> Result<Self, String> {
        if units.len() > MAX_UNITS {
            return Err(format!("it resolves to more than {MAX_UNITS} packages"));
        }
        let wanted = units.iter().find(|unit| unit.name == main).cloned();
        let main = wanted.ok_or_else(|| format!("{main} is not in what it resolves to"))?;
        units.sort();
        units.dedup();
        Ok(Self { main, tree: tree_of(&units), units, recipe })
    }
}

/// Digest of a tree in its order.
pub(crate) fn tree_of(units: &[Unit]) -> Digest {
    let lines = units.iter().map(|unit| format!("{}\n{}\n{}\n", unit.name, unit.version, unit.integrity));
    Digest::of(lines.collect::<String>().as_bytes())
}
