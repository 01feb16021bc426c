//! Looks at the packages that were installed for a server, before it is started.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{Context as _, bail};
use portcullis::cell::InstallPhase;
use portcullis_evaluate::{Ecosystem, FindingList, SupplyPackage};
use serde_json::Value;

use crate::output::escape_hidden;

/// The greatest depth at which installed packages are looked for, and the largest number of them.
const MAX_DEPTH: usize = 12;
const MAX_PACKAGES: usize = 5000;

/// The longest record of a database and description of a package, in bytes.
const MAX_RECORD_BYTES: u64 = 8 << 20;

/// The scripts that npm runs when a package is installed.
const SCRIPTS: [&str; 3] = ["preinstall", "install", "postinstall"];

/// The result of a look at packages.
pub(super) struct Supply {
    pub(super) findings: FindingList,
    /// The identifier of the record that says that the server is malicious.
    pub(super) malicious: bool,
    /// The sentences that say what was not looked at.
    pub(super) unchecked: Vec<String>,
}

/// Judges the installed packages, by the database if there is one.
pub(super) fn look(phase: Option<&InstallPhase>, database: Option<&Path>) -> anyhow::Result<Supply> {
    let mut supply = Supply { findings: FindingList::default(), malicious: false, unchecked: Vec::new() };
    let Some(phase) = phase else {
        supply.unchecked.push("where it comes from: not checked, as no package was installed".to_owned());
        return Ok(supply);
    };
    let mut packages = Vec::new();
    installed(&phase.folder, 0, &mut packages);
    for package in &packages {
        let asked_for = package.ecosystem.normal(&package.name) == package.ecosystem.normal(&phase.name);
        package.judge(asked_for, &mut supply.findings);
    }
    match database {
        None => {
            let text =
                "{} packages: known vulnerabilities and malicious packages: not checked; name a database with --osv";
            supply.unchecked.push(text.replace("{}", &packages.len().to_string()));
        }
        Some(database) => {
            let mut records = 0;
            each_record(database, &mut |record| {
                records += 1;
                for package in &packages {
                    supply.malicious |= package.judge_by(record, &mut supply.findings);
                }
            })?;
            if records == 0 {
                bail!("{} holds no record of OSV", escape_hidden(&database.to_string_lossy()));
            }
            let text = format!(
                "packages that {} does not list ({records} records)",
                escape_hidden(&database.to_string_lossy())
            );
            supply.unchecked.push(text);
        }
    }
    supply.unchecked.push("who built the packages (provenance): not checked".to_owned());
    Ok(supply)
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

/// Calls `each` with every record of a database: a folder of JSON files, or a ZIP archive of them, as OSV publishes it.
fn each_record(database: &Path, each: &mut impl FnMut(&Value)) -> anyhow::Result<()> {
    let shown = || format!("the database {} cannot be read", escape_hidden(&database.to_string_lossy()));
    if database.is_dir() {
        for entry in fs::read_dir(database).with_context(shown)? {
            let path = entry.with_context(shown)?.path();
            if path.extension().is_some_and(|kind| kind == "json") {
                let record = parsed(File::open(&path).with_context(shown)?);
                each(&record.with_context(|| format!("{} is no record", escape_hidden(&path.to_string_lossy())))?);
            }
        }
        return Ok(());
    }
    let file = BufReader::new(File::open(database).with_context(shown)?);
    let mut archive = zip::ZipArchive::new(file).with_context(shown)?;
    for at in 0..archive.len() {
        let entry = archive.by_index(at).with_context(shown)?;
        if entry.name().ends_with(".json") {
            let name = entry.name().to_owned();
            each(&parsed(entry).with_context(|| format!("{} in the archive is no record", escape_hidden(&name)))?);
        }
    }
    Ok(())
}

fn parsed(file: impl Read) -> Option<Value> {
    serde_json::from_reader(file.take(MAX_RECORD_BYTES)).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use std::io::Write as _;

    use portcullis::digest::Digest;
    use serde_json::json;

    use super::*;

    /// Installs what looks like a package of each ecosystem, with a script and a dependency.
    fn phase(folder: &Path) -> InstallPhase {
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
        InstallPhase {
            requested: "npm:@me/server".to_owned(),
            name: "@me/server".to_owned(),
            version: "1.2.3".to_owned(),
            integrity: String::new(),
            packages: 3,
            tree: Digest::of(b""),
            registry: Vec::new(),
            folder: folder.to_owned(),
        }
    }

    fn rules(supply: Supply) -> Vec<(String, String)> {
        supply.findings.finish().into_iter().map(|finding| (finding.rule.to_owned(), finding.subject)).collect()
    }

    #[test]
    fn a_package_that_a_database_calls_malicious_is_known_before_it_is_started() {
        let (folder, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let phase = phase(folder.path());
        let supply = look(Some(&phase), None).unwrap();
        assert!(supply.unchecked[0].starts_with("3 packages") && supply.unchecked[0].contains("not checked"));
        assert_eq!(rules(supply), [("install-script".to_owned(), "@me/server 1.2.3".to_owned())]);

        assert!(look(Some(&phase), Some(database.path())).is_err(), "an empty database has checked nothing");
        let record = |id: &str, ecosystem: &str, name: &str| {
            json!({ "id": id, "summary": "s", "affected": [{ "package": { "ecosystem": ecosystem, "name": name } }] })
                .to_string()
        };
        fs::write(database.path().join("a.json"), record("GHSA-1", "PyPI", "py-dep")).unwrap();
        let supply = look(Some(&phase), Some(database.path())).unwrap();
        assert!(!supply.malicious);
        assert!(rules(supply).contains(&("known-vulnerable".to_owned(), "Py_Dep 2.0".to_owned())));

        let archive = database.path().join("all.zip");
        let mut zip = zip::ZipWriter::new(File::create(&archive).unwrap());
        zip.start_file("MAL-1.json", zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(record("MAL-1", "npm", "dep").as_bytes()).unwrap();
        zip.finish().unwrap();
        let supply = look(Some(&phase), Some(&archive)).unwrap();
        assert!(supply.malicious);
        assert_eq!(rules(supply)[0], ("known-malicious".to_owned(), "dep 0.1.0".to_owned()));
        fs::write(database.path().join("b.json"), "no record").unwrap();
        assert!(look(Some(&phase), Some(database.path())).is_err());
    }
}
