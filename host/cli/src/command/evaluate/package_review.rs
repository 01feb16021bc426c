//! Looks at the packages that were installed for a server, before it is started.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use portcullis::cell::{InstallReport, Provenance};
use portcullis::config::ConfigCandidate;
use portcullis::lockfile::{LockedPackage, Lockfile};
use portcullis_evaluate::{AuditedPackage, PinnedVersion, PriorKnowledge, judge_by_records};
use portcullis_osv::{Ecosystem, OsvCheck, OsvDatabase, OsvEdition, OsvMatch};
use serde_json::Value;

/// The greatest depth at which installed packages are looked for, and the largest number of them.
const MAX_DEPTH: usize = 12;
const MAX_PACKAGES: usize = 5000;

/// The longest description of a package, in bytes.
const MAX_DESCRIPTION_BYTES: u64 = 8 << 20;

/// The scripts that npm runs when a package is installed.
const SCRIPTS: [&str; 3] = ["preinstall", "install", "postinstall"];

/// The result of a review of packages.
#[derive(Default)]
pub(super) struct PackageReview {
    pub(super) known: PriorKnowledge,
    /// True if a record says that the server, or something that it needs, is malicious.
    pub(super) malicious: bool,
}

impl PackageReview {
    /// Returns the review of a program that no package manager installed.
    pub(super) fn of_no_package() -> Self {
        let mut review = Self::default();
        review.known.unchecked.push("where it comes from: not checked, as no package was installed".to_owned());
        review
    }

    /// Takes in the review of another part of the same server.
    pub(super) fn take_in(&mut self, other: Self) {
        self.malicious |= other.malicious;
        self.known.findings.take_in(other.known.findings);
        self.known.about.extend(other.known.about);
        self.known.unchecked.extend(other.known.unchecked);
    }
}

/// Judges the packages in a folder, by the database if there is one. `asked_for` is the name of the one that a person
/// typed.
pub(super) fn look(folder: &Path, asked_for: Option<&str>, database: Option<&Path>) -> anyhow::Result<PackageReview> {
    let mut review = PackageReview::default();
    let (mut packages, mut left_out) = (Vec::new(), 0);
    installed(folder, 0, &mut packages, &mut left_out);
    if left_out > 0 {
        let limits = format!("more than {MAX_PACKAGES} of them or {MAX_DEPTH} folders deep");
        review.known.unchecked.push(format!("folders with packages that were not looked at, {limits}: {left_out}"));
    }
    for package in &packages {
        let is = |name: &str| package.ecosystem.normal(&package.name) == package.ecosystem.normal(name);
        package.judge(asked_for.is_some_and(is), &mut review.known.findings);
    }
    // A package inside another package's archive is installed, too, although nothing resolved it.
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
    judge_by_records(&check.matches, &mut review.known.findings);
    review.malicious = check.malicious().is_some();
    review.known.unchecked.push(match &check.database {
        None => check.summary(),
        Some(_) => format!("{}; what it does not list is not known", check.summary()),
    });
    let others = if asked_for.is_some() { "the packages that it needs" } else { "the packages" };
    review.known.unchecked.push(format!("who built {others} (provenance): not checked"));
    Ok(review)
}

/// Returns the review of a package that was not installed, because a record calls it malicious.
pub(super) fn refused(record: &OsvMatch, database: &OsvEdition) -> PackageReview {
    let mut review = PackageReview { malicious: true, ..PackageReview::default() };
    judge_by_records(std::slice::from_ref(record), &mut review.known.findings);
    review
        .known
        .unchecked
        .push(format!("everything else: nothing was installed or started, because of {record} in {database}"));
    review
}

/// Reviews the packages by the names and versions that the registry gave, whatever they themselves claim.
pub(super) fn look_at_lock(phase: &InstallReport, review: &mut PackageReview) {
    judge_by_records(&phase.osv.matches, &mut review.known.findings);
    review.malicious |= phase.osv.malicious().is_some();
}

/// Compares an installed package with what the lock file of a configuration pins: the named one, or the one that would
/// be found here. A configuration is read for the place of its lock file only.
pub(super) fn compare_with_pins(phase: &InstallReport, config: Option<&Path>, known: &mut PriorKnowledge) {
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
        let before = PinnedVersion { source, version, integrity: pin.integrity.clone() };
        let text = before.compare(&phase.name, &phase.version, &phase.integrity, &mut known.findings);
        known.about.push(text);
    }
}

/// Says whether the registry names attestations of an installed package. None was verified.
pub(super) fn say_provenance(phase: &InstallReport, provenance: &Provenance, known: &mut PriorKnowledge) {
    let said = format!("{} {}: {provenance}", phase.name, phase.version);
    match provenance {
        Provenance::Attested { .. } | Provenance::Unattested => known.about.push(said),
        Provenance::Unknown(_) => known.unchecked.push(said),
    }
}

/// Reports whether both were installed by the same package manager, which the request names first.
fn is_same_ecosystem(pin: &LockedPackage, phase: &InstallReport) -> bool {
    pin.requested.split(':').next() == phase.requested.split(':').next()
}

/// Finds the packages that are installed below a folder, and counts the folders that are left out.
fn installed(folder: &Path, depth: usize, packages: &mut Vec<AuditedPackage>, left_out: &mut usize) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if packages.len() >= MAX_PACKAGES {
            *left_out += 1;
            return;
        }
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_dir() && depth >= MAX_DEPTH {
            *left_out += 1;
        } else if kind.is_dir() {
            if let Some((name, version)) = name.strip_suffix(".dist-info").and_then(|name| name.split_once('-')) {
                let (name, version) = (name.to_owned(), version.to_owned());
                packages.push(AuditedPackage { ecosystem: Ecosystem::PyPi, name, version, scripts: Vec::new() });
            } else {
                installed(&path, depth + 1, packages, left_out);
            }
        } else if let Some(name) = package_name(folder).filter(|_| name == "package.json") {
            packages.extend(described(&path, name));
        }
    }
}

/// Returns the name of the package that npm puts into this folder: directly in `node_modules`, or in a scope there.
fn package_name(folder: &Path) -> Option<String> {
    let text = |part: &Path| Some(part.file_name()?.to_string_lossy().into_owned());
    let (name, above) = (text(folder)?, folder.parent()?);
    match text(above)? {
        modules if modules == "node_modules" => Some(name),
        scope if scope.starts_with('@') && above.parent().and_then(text)? == "node_modules" => {
            Some(format!("{scope}/{name}"))
        }
        _ => None,
    }
}

/// Returns a package by the name of its place, and by the one that it gives itself if that is another.
fn described(file: &Path, name: String) -> Vec<AuditedPackage> {
    let Some(about) = File::open(file).ok().and_then(parsed) else { return Vec::new() };
    let text = |place: &str| about.pointer(place).and_then(Value::as_str).map(str::to_owned);
    let script = |name: &&str| Some(format!("{name}: {}", text(&format!("/scripts/{name}"))?));
    let version = text("/version").unwrap_or_default();
    let other = text("/name").filter(|own| *own != name);
    let package = |name, scripts| AuditedPackage { ecosystem: Ecosystem::Npm, name, version: version.clone(), scripts };
    let placed = package(name, SCRIPTS.iter().filter_map(script).collect());
    std::iter::once(placed).chain(other.map(|own| package(own, Vec::new()))).collect()
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
        // It says that it is another.
        package("node_modules/liar", json!({ "name": "lodash", "version": "4.0.0" }));
        fs::create_dir_all(folder.join("lib/site-packages/Py_Dep-2.0.dist-info")).unwrap();
    }

    fn rules(review: PackageReview) -> Vec<(String, String)> {
        review
            .known
            .findings
            .finish(&[])
            .into_iter()
            .map(|finding| (finding.rule.to_owned(), finding.subject))
            .collect()
    }

    #[test]
    fn a_package_that_a_database_calls_malicious_is_known_before_it_is_started() {
        let (folder, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        install(folder.path());
        let review = look(folder.path(), Some("@me/server"), None).unwrap();
        assert!(
            review.known.unchecked[0].contains("not checked; `portcullis evaluate --update-osv`"),
            "{:?}",
            review.known.unchecked
        );
        assert_eq!(rules(review), [("install-script".to_owned(), "@me/server 1.2.3".to_owned())]);

        let file = database.path().join("state/osv.sqlite");
        let with = |id: &str, ecosystem: &str, name: &str| {
            let package = json!({ "ecosystem": ecosystem, "name": name });
            let record = json!({ "id": id, "summary": "s", "affected": [{ "package": package }] });
            fs::write(database.path().join("a.json"), record.to_string()).unwrap();
            OsvDatabase::build(&file, &[database.path()]).unwrap();
            look(folder.path(), Some("@me/server"), Some(&file)).unwrap()
        };
        let review = with("GHSA-1", "PyPI", "py-dep");
        assert!(
            !review.malicious && review.known.unchecked[0].starts_with("5 packages looked up"),
            "{:?}",
            review.known.unchecked
        );
        assert!(rules(review).contains(&("known-vulnerable".to_owned(), "Py_Dep 2.0".to_owned())));
        let review = with("MAL-1", "npm", "dep");
        assert!(review.malicious);
        assert_eq!(rules(review)[0], ("known-malicious".to_owned(), "dep 0.1.0".to_owned()));
        let review = with("MAL-2", "npm", "liar");
        assert!(review.malicious, "what a package says of itself does not hide it");
    }

    #[test]
    fn folders_that_are_too_deep_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("d/".repeat(MAX_DEPTH + 2))).unwrap();
        let review = look(folder.path(), None, None).unwrap();
        assert!(review.known.unchecked[0].ends_with("12 folders deep: 1"), "{:?}", review.known.unchecked);
    }

    #[test]
    fn what_the_registry_gave_is_known_whatever_the_package_says_of_itself() {
        let record = OsvMatch {
            id: "GHSA-1".to_owned(),
            summary: "s".to_owned(),
            package: "server".to_owned(),
            version: "1.0.0".to_owned(),
        };
        let phase = InstallReport {
            requested: "npm:server".to_owned(),
            name: "server".to_owned(),
            version: "1.0.0".to_owned(),
            integrity: String::new(),
            packages: 1,
            tree: portcullis::digest::Digest::of(b""),
            registry: Vec::new(),
            osv: OsvCheck { matches: vec![record], ..OsvCheck::default() },
            folder: "/nowhere".into(),
        };
        let mut review = PackageReview::default();
        look_at_lock(&phase, &mut review);
        assert_eq!(rules(review), [("known-vulnerable".to_owned(), "server 1.0.0".to_owned())]);
    }
}
