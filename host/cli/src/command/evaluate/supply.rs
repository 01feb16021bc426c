//! Looks at the packages that were installed for a server, before it is started.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use portcullis::cell::InstallPhase;
use portcullis::config::ConfigCandidate;
use portcullis::lockfile::{LockedPackage, Lockfile};
use portcullis_evaluate::{PinnedBefore, PriorKnowledge, SupplyPackage, judge_by_records};
use portcullis_osv::{Ecosystem, OsvCheck, OsvDatabase, OsvEdition, OsvMatch};
use serde_json::Value;

/// The greatest depth at which installed packages are looked for, and the largest number of them.
const MAX_DEPTH: usize = 12;
const MAX_PACKAGES: usize = 5000;

/// The longest description of a package, in bytes.
const MAX_DESCRIPTION_BYTES: u64 = 8 << 20;

/// The scripts that npm runs when a package is installed.
const SCRIPTS: [&str; 3] = ["preinstall", "install", "postinstall"];

/// The result of a look at packages.
#[derive(Default)]
pub(super) struct Supply {
    pub(super) known: PriorKnowledge,
    /// True if a record says that the server, or something that it needs, is malicious.
    pub(super) malicious: bool,
}

impl Supply {
    /// Returns what is known of a program that no package manager installed.
    pub(super) fn of_no_package() -> Self {
        let mut supply = Self::default();
        supply.known.unchecked.push("where it comes from: not checked, as no package was installed".to_owned());
        supply
    }

    /// Takes in what is known of another part of the same server.
    pub(super) fn take_in(&mut self, other: Self) {
        self.malicious |= other.malicious;
        self.known.findings.take_in(other.known.findings);
        self.known.about.extend(other.known.about);
        self.known.unchecked.extend(other.known.unchecked);
    }
}

/// Judges the packages in a folder, by the database if there is one. `asked_for` is the name of the one that a person
/// typed.
pub(super) fn look(folder: &Path, asked_for: Option<&str>, database: Option<&Path>) -> anyhow::Result<Supply> {
    let mut supply = Supply::default();
    let mut packages = Vec::new();
    installed(folder, 0, &mut packages);
    for package in &packages {
        let is = |name: &str| package.ecosystem.normal(&package.name) == package.ecosystem.normal(name);
        package.judge(asked_for.is_some_and(is), &mut supply.known.findings);
    }
    // What lies inside another package's archive is installed, too, although nothing resolved it.
    let database = database.map(OsvDatabase::open).transpose()?.flatten();
    let mut check = OsvCheck::default();
    for ecosystem in [Ecosystem::Npm, Ecosystem::PyPi] {
        let of = packages.iter().filter(|package| package.ecosystem == ecosystem);
        if let Some(database) = &database {
            let found =
                database.check(ecosystem, of.map(|package| (package.name.as_str(), package.version.as_str())))?;
            check.packages += found.packages;
            check.matches.extend(found.matches);
            check.database = found.database;
        }
    }
    judge_by_records(&check.matches, &mut supply.known.findings);
    supply.malicious = check.malicious().is_some();
    supply.known.unchecked.push(match &check.database {
        None => check.summary(),
        Some(_) => format!("{}; what it does not list is not known", check.summary()),
    });
    supply.known.unchecked.push("who built the packages (provenance): not checked".to_owned());
    Ok(supply)
}

/// Returns what is known of a package that was not installed, because a record calls it malicious.
pub(super) fn refused(record: &OsvMatch, database: &OsvEdition) -> Supply {
    let mut supply = Supply { malicious: true, ..Supply::default() };
    judge_by_records(std::slice::from_ref(record), &mut supply.known.findings);
    supply
        .known
        .unchecked
        .push(format!("everything else: nothing was installed or started, because of {record} in {database}"));
    supply
}

/// Compares an installed package with what the lock file of a configuration pins: the named one, or the one that would
/// be found here. A configuration is read for the place of its lock file only.
pub(super) fn compare_with_pins(phase: &InstallPhase, config: Option<&Path>, known: &mut PriorKnowledge) {
    let Ok(candidate) = ConfigCandidate::load(config) else {
        known.unchecked.push("what was pinned before: not checked, as there is no configuration here".to_owned());
        return;
    };
    let lock = match Lockfile::load(&candidate.config().data_dir) {
        Ok(lock) => lock,
        Err(error) => {
            known.unchecked.push(format!("what was pinned before: not checked: {error}"));
            return;
        }
    };
    for pin in lock.packages().iter().filter(|pin| pin.name == phase.name && is_same_ecosystem(pin, phase)) {
        let (source, version) = (pin.source.clone(), pin.version.clone());
        let before = PinnedBefore { source, version, integrity: pin.integrity.clone() };
        let text = before.compare(&phase.name, &phase.version, &phase.integrity, &mut known.findings);
        known.about.push(text);
    }
}

/// Reports whether both were installed by the same package manager, which the request names first.
fn is_same_ecosystem(pin: &LockedPackage, phase: &InstallPhase) -> bool {
    pin.requested.split(':').next() == phase.requested.split(':').next()
}

/// Finds the packages that are installed below a folder.
fn installed(folder: &Path, depth: usize, packages: &mut Vec<SupplyPackage>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if packages.len() >= MAX_PACKAGES {
            return;
        }
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_dir() && depth < MAX_DEPTH {
            if let Some((name, version)) = name.strip_suffix(".dist-info").and_then(|name| name.split_once('-')) {
                let (name, version) = (name.to_owned(), version.to_owned());
                packages.push(SupplyPackage { ecosystem: Ecosystem::PyPi, name, version, scripts: Vec::new() });
            } else {
                installed(&path, depth + 1, packages);
            }
        } else if name == "package.json" && is_package(folder) {
            packages.extend(described(&path));
        }
    }
}

/// Reports whether a folder is where npm puts a package: directly in `node_modules`, or in a scope there.
fn is_package(folder: &Path) -> bool {
    let named = |folder: Option<&Path>, name: &str| folder.and_then(Path::file_name).is_some_and(|known| known == name);
    let scope =
        folder.parent().filter(|scope| scope.file_name().is_some_and(|name| name.to_string_lossy().starts_with('@')));
    named(folder.parent(), "node_modules") || named(scope.and_then(Path::parent), "node_modules")
}

fn described(file: &Path) -> Option<SupplyPackage> {
    let about = parsed(File::open(file).ok()?)?;
    let text = |place: &str| about.pointer(place).and_then(Value::as_str).map(str::to_owned);
    let script = |name: &&str| Some(format!("{name}: {}", text(&format!("/scripts/{name}"))?));
    Some(SupplyPackage {
        ecosystem: Ecosystem::Npm,
        name: text("/name")?,
        version: text("/version")?,
        scripts: SCRIPTS.iter().filter_map(script).collect(),
    })
}

fn parsed(file: impl Read) -> Option<Value> {
    serde_json::from_reader(file.take(MAX_DESCRIPTION_BYTES)).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use serde_json::json;

    use super::*;

    /// Installs what looks like a package of each ecosystem, with a script and a dependency.
    fn install(folder: &Path) {
        let package = |path: &str, about: Value| {
            let folder = folder.join(path);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("package.json"), about.to_string()).unwrap();
        };
        let about = json!({ "name": "@me/server", "version": "1.2.3", "scripts": { "postinstall": "node x" } });
        package("node_modules/@me/server", about);
        package("node_modules/@me/server/dist", json!({ "name": "no package", "version": "1" }));
        package("node_modules/dep", json!({ "name": "dep", "version": "0.1.0" }));
        fs::create_dir_all(folder.join("lib/site-packages/Py_Dep-2.0.dist-info")).unwrap();
    }

    fn rules(supply: Supply) -> Vec<(String, String)> {
        supply.known.findings.finish().into_iter().map(|finding| (finding.rule.to_owned(), finding.subject)).collect()
    }

    #[test]
    fn a_package_that_a_database_calls_malicious_is_known_before_it_is_started() {
        let (folder, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        install(folder.path());
        let supply = look(folder.path(), Some("@me/server"), None).unwrap();
        assert!(
            supply.known.unchecked[0].contains("not checked; `portcullis evaluate --update-osv`"),
            "{:?}",
            supply.known.unchecked
        );
        assert_eq!(rules(supply), [("install-script".to_owned(), "@me/server 1.2.3".to_owned())]);

        let file = database.path().join("state/osv.sqlite");
        let with = |id: &str, ecosystem: &str, name: &str| {
            let package = json!({ "ecosystem": ecosystem, "name": name });
            let record = json!({ "id": id, "summary": "s", "affected": [{ "package": package }] });
            fs::write(database.path().join("a.json"), record.to_string()).unwrap();
            OsvDatabase::build(&file, &[database.path()]).unwrap();
            look(folder.path(), Some("@me/server"), Some(&file)).unwrap()
        };
        let supply = with("GHSA-1", "PyPI", "py-dep");
        assert!(
            !supply.malicious && supply.known.unchecked[0].starts_with("3 packages looked up"),
            "{:?}",
            supply.known.unchecked
        );
        assert!(rules(supply).contains(&("known-vulnerable".to_owned(), "Py_Dep 2.0".to_owned())));
        let supply = with("MAL-1", "npm", "dep");
        assert!(supply.malicious);
        assert_eq!(rules(supply)[0], ("known-malicious".to_owned(), "dep 0.1.0".to_owned()));
    }
}
