//! The resolution of a package: the package itself and everything it depends on, each with version and integrity.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// The most packages in one tree. The largest servers have a few hundred.
pub(crate) const MAX_UNITS: usize = 5_000;

/// One package at one version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackageVersion {
    /// The name in the registry.
    pub name: String,
    /// The version.
    pub version: String,
    /// The hash that its bytes must have: npm's `sha512-…`, or `sha256:…` over the hashes of all its wheels.
    pub integrity: String,
}

/// A resolved package with its whole dependency tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedPackage {
    /// The package that was requested.
    pub main: PackageVersion,
    /// Everything that is installed, in order, including the main package.
    pub units: Vec<PackageVersion>,
    /// The digest of the tree: equal trees have equal digests on every machine.
    pub tree: Digest,
    /// The text from which the installer installs exactly this tree: npm's lock file, or requirements with hashes.
    pub lock_text: String,
}

impl ResolvedPackage {
    /// Makes a tree of these packages, including the requested one. `lock_text` is what the installer needs.
    ///
    /// # Errors
    /// If the main package is not in the tree, or there are more than 5,000 packages.
    pub fn new(main: &str, mut units: Vec<PackageVersion>, lock_text: String) -> Result<Self, String> {
        if units.len() > MAX_UNITS {
            return Err(format!("it resolves to more than {MAX_UNITS} packages"));
        }
        let wanted = units.iter().find(|unit| unit.name == main).cloned();
        let main = wanted.ok_or_else(|| format!("{main} is not in what it resolves to"))?;
        units.sort();
        units.dedup();
        Ok(Self { main, tree: tree_of(&units), units, lock_text })
    }
}

/// Returns the digest of a tree whose units are in order.
pub(crate) fn tree_of(units: &[PackageVersion]) -> Digest {
    let lines = units.iter().map(|unit| format!("{}\n{}\n{}\n", unit.name, unit.version, unit.integrity));
    Digest::of(lines.collect::<String>().as_bytes())
}
