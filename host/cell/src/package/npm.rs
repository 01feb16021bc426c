//! npm: resolves and installs a package, and reads npm's lock file. npm runs in a cell, so its output is untrusted.

use std::path::{Component, Path, PathBuf};

use portcullis_core::escape::escape_hidden;
use portcullis_core::lockfile::{PackageVersion, ResolvedPackage};
use serde::Deserialize;
use serde_json::{Value, json};

use super::read_limited;
use super::registry::PackageRegistry;

/// The lock file that npm writes, and reads again.
pub(super) const LOCK: &str = "package-lock.json";

/// The largest `package.json` that is read, in bytes. The broker reads it, outside of the cell's limits.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;

/// The most programs of a package that a message names.
const MAX_SHOWN_PROGRAMS: usize = 12;

/// Options for both steps: no package script runs, nothing is asked, and nothing is reported anywhere.
const QUIET: [&str; 7] = [
    "--ignore-scripts",
    "--omit=dev",
    "--no-audit",
    "--no-fund",
    "--no-update-notifier",
    "--no-progress",
    "--omit-lockfile-registry-resolved=false",
];

/// Returns the command that writes a lock file into the working directory and installs nothing.
pub(super) fn resolve(npm: &Path, specs: &[String]) -> Vec<String> {
    let words = ["install", "--package-lock-only", "--save-exact"].into_iter().chain(QUIET).chain(["--"]);
    command(npm, words.map(str::to_owned).chain(specs.iter().cloned()))
}

/// Returns the command that installs the packages of the lock file in the working directory. It fails if a byte
/// differs.
pub(super) fn install(npm: &Path) -> Vec<String> {
    command(npm, std::iter::once("ci").chain(QUIET).map(str::to_owned))
}

/// Returns the command that prints the registry that npm uses if none is configured.
pub(super) fn default_registry(npm: &Path) -> Vec<String> {
    command(npm, ["config", "get", "registry"].map(str::to_owned).into_iter())
}

fn command(npm: &Path, words: impl Iterator<Item = String>) -> Vec<String> {
    std::iter::once(npm.to_string_lossy().into_owned()).chain(words).collect()
}

/// Returns npm's environment: the registry, and its folder for fetched files, which is private to the cell if no cache
/// is given.
pub(super) fn environment(registry: Option<&PackageRegistry>, cache: Option<&Path>) -> Vec<(String, String)> {
    let cache = cache.unwrap_or(Path::new("/tmp/npm"));
    let mut environment = vec![
        // A path that does not exist in the cell: the file next to the system's npm may hold credentials.
        ("npm_config_globalconfig".to_owned(), "/etc/npmrc".to_owned()),
        ("npm_config_cache".to_owned(), cache.to_string_lossy().into_owned()),
    ];
    let Some(registry) = registry else { return environment };
    environment.push(("npm_config_registry".to_owned(), registry.address.clone()));
    environment
        .extend(registry.scopes.iter().map(|(scope, url)| (format!("npm_config_{scope}:registry"), url.clone())));
    environment
        .extend(registry.certificates.iter().map(|file| ("npm_config_cafile".to_owned(), file.display().to_string())));
    environment
}

#[derive(Deserialize)]
struct LockFile {
    packages: serde_json::Map<String, Value>,
}

/// Reads a lock file: every package with its version and integrity.
///
/// # Errors
/// If a package did not come from a registry, or has no integrity.
pub(super) fn resolved(main: &str, lock_text: String) -> Result<ResolvedPackage, String> {
    let units = placed(&lock_text)?.into_iter().map(|(_, unit)| unit).collect();
    ResolvedPackage::new(main, units, lock_text)
}

/// Returns every package of a lock file with its place in the folder.
fn placed(lock_text: &str) -> Result<Vec<(String, PackageVersion)>, String> {
    let lock: LockFile =
        serde_json::from_str(lock_text).map_err(|error| format!("npm's lock file cannot be read: {error}"))?;
    let mut units = Vec::new();
    for (place, entry) in lock.packages {
        let Some((_, name)) = place.rsplit_once("node_modules/") else { continue };
        if !Path::new(&place).components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(format!("npm's lock file names the place {place:?}, which is not in its folder"));
        }
        // A package inside the archive of another one is covered by that one's integrity, unless it is fetched
        // nevertheless.
        if entry.get("inBundle") == Some(&Value::Bool(true)) && entry.get("resolved").is_none() {
            continue;
        }
        let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
        let (Some(version), Some(integrity)) = (text("version"), text("integrity")) else {
            return Err(format!("its dependency {name:?} comes from no registry and has no integrity"));
        };
        let name = text("name").unwrap_or_else(|| name.to_owned());
        units.push((place, PackageVersion { name, version, integrity }));
    }
    Ok(units)
}

/// Checks that each installed package has the name and the version under which the lock file has it, and was looked up:
/// a dependency can bring its own lock entries, which give another package's archive a name that nobody suspects.
///
/// # Errors
/// If a package has another name or version, or does not state them.
pub(super) fn check_names(folder: &Path, lock_text: &str) -> Result<(), String> {
    for (place, unit) in placed(lock_text)? {
        let place = folder.join(place);
        // One for another platform is left out.
        if !place.exists() {
            continue;
        }
        let own = InstalledManifest::read(&place).unwrap_or_default();
        let number = |version: &str| version.trim_start_matches(['v', '=', ' ']).split('+').next().map(str::to_owned);
        if own.name != unit.name || number(&own.version) != number(&unit.version) {
            let shown = |name: &str, version: &str| escape_hidden(&format!("{name} {version}")).into_owned();
            return Err(format!(
                "has a dependency that the lock file calls {:?} and that calls itself {:?}; nothing is installed",
                shown(&unit.name, &unit.version),
                shown(&own.name, &own.version),
            ));
        }
    }
    Ok(())
}

/// The part of an installed package's `package.json` that the broker reads.
#[derive(Default, Deserialize)]
struct InstalledManifest {
    #[serde(default)]
    name: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    bin: Value,
}

impl InstalledManifest {
    /// Reads the manifest of a package. Returns `None` if it is too large or not a valid manifest.
    fn read(package: &Path) -> Option<Self> {
        let text = read_limited(&package.join("package.json"), MAX_MANIFEST_BYTES).ok()?;
        serde_json::from_str(&text).ok()
    }
}

/// Returns the `package.json` that belongs to a lock file.
pub(super) fn manifest(lock_text: &str) -> String {
    let lock: Value = serde_json::from_str(lock_text).unwrap_or_default();
    json!({ "private": true, "dependencies": lock.pointer("/packages//dependencies") }).to_string()
}

/// Returns the program of an installed package: the one asked for, else the package's only one, else the one with the
/// package's name.
///
/// # Errors
/// If the package has no such program.
pub(super) fn program(folder: &Path, package: &str, wanted: Option<&str>) -> Result<PathBuf, String> {
    let modules = folder.join("node_modules");
    let base = package.rsplit('/').next().unwrap_or(package);
    let manifest = InstalledManifest::read(&modules.join(package))
        .ok_or_else(|| format!("package {package} has no package.json of at most {MAX_MANIFEST_BYTES} bytes"))?;
    let offered: Vec<&str> = match &manifest.bin {
        Value::Object(programs) => programs.keys().map(String::as_str).collect(),
        Value::String(_) => vec![base],
        _ => Vec::new(),
    };
    let name = match (wanted, offered.as_slice()) {
        (Some(wanted), _) => wanted,
        (None, [one]) => one,
        (None, many) if many.contains(&base) => base,
        (None, []) => return Err(format!("package {package} has no program")),
        (None, many) => {
            return Err(format!(
                "package {package} has several programs; write `npx -p {package} PROGRAM`: {}",
                first_of(many)
            ));
        }
    };
    let program = modules.join(".bin").join(name);
    match !name.contains('/') && super::is_program_within(&program, &modules) {
        true => Ok(program),
        false => Err(format!("package {package} has no program {name:?}; it has {}", first_of(&offered))),
    }
}

/// Returns the first names of a list for a message: a package may have any number of programs.
fn first_of(names: &[&str]) -> String {
    let shown = names.iter().take(MAX_SHOWN_PROGRAMS).map(|name| escape_hidden(name)).collect::<Vec<_>>().join(" ");
    match names.len().saturating_sub(MAX_SHOWN_PROGRAMS) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const RECIPE: &str = r#"{"lockfileVersion":3,"packages":{
        "":{"dependencies":{"@org/server":"1.0.0"}},
        "node_modules/@org/server":{"version":"1.0.0","integrity":"sha512-a"},
        "node_modules/b":{"version":"2.0.0","integrity":"sha512-b"},
        "node_modules/b/node_modules/c":{"version":"3.0.0","inBundle":true},
        "node_modules/d/node_modules/b":{"version":"1.9.0","integrity":"sha512-b1"}}}"#;

    #[test]
    fn a_lock_file_is_read_whole() {
        let resolved = resolved("@org/server", RECIPE.to_owned()).unwrap();
        assert_eq!((resolved.main.version.as_str(), resolved.main.integrity.as_str()), ("1.0.0", "sha512-a"));
        let names: Vec<_> = resolved.units.iter().map(|unit| format!("{}@{}", unit.name, unit.version)).collect();
        assert_eq!(names, ["@org/server@1.0.0", "b@1.9.0", "b@2.0.0"]);
        assert_eq!(manifest(RECIPE), r#"{"private":true,"dependencies":{"@org/server":"1.0.0"}}"#);
    }

    #[test]
    fn one_byte_of_integrity_makes_another_tree() {
        let tree = |text: &str| super::resolved("@org/server", text.to_owned()).unwrap().tree;
        assert_eq!(tree(RECIPE), tree(&RECIPE.replace('\n', "")));
        assert_ne!(tree(RECIPE), tree(&RECIPE.replace("sha512-b1", "sha512-b2")));
    }

    #[test]
    fn what_cannot_be_pinned_is_refused() {
        let from_git = RECIPE.replace(r#","integrity":"sha512-b1""#, "");
        assert!(super::resolved("@org/server", from_git).unwrap_err().contains("no integrity"));
        assert!(super::resolved("other", RECIPE.to_owned()).unwrap_err().contains("other is not in"));
        assert!(super::resolved("x", "{}".to_owned()).is_err());
    }

    #[test]
    fn the_program_is_chosen_as_npx_would() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let package = dir.path().join("node_modules/@org/server");
        let bin = dir.path().join("node_modules/.bin");
        std::fs::create_dir_all(&package).unwrap();
        std::fs::create_dir_all(&bin).unwrap();
        for name in ["server", "other", "odd"] {
            std::fs::write(bin.join(name), "").unwrap();
            std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let with = |manifest: &str, wanted: Option<&str>| {
            std::fs::write(package.join("package.json"), manifest).unwrap();
            let program = program(dir.path(), "@org/server", wanted);
            program.map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        };
        assert_eq!(with(r#"{"bin":"x.js"}"#, None).unwrap(), "server");
        assert_eq!(with(r#"{"bin":{"odd":"x.js"}}"#, None).unwrap(), "odd");
        assert_eq!(with(r#"{"bin":{"odd":"x.js","server":"y.js"}}"#, None).unwrap(), "server");
        assert_eq!(with(r#"{"bin":{"odd":"x.js"}}"#, Some("other")).unwrap(), "other");
        assert!(with(r#"{"bin":{"odd":"x.js","other":"y.js"}}"#, None).unwrap_err().contains("-p @org/server"));
        assert!(with("{}", None).unwrap_err().contains("no program"));
        assert!(with("{}", Some("../../evil")).unwrap_err().contains("no program"));
    }

    /// Makes a folder with installed packages of these places, names and versions.
    fn installed(packages: &[(&str, &str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (place, name, version) in packages {
            let package = folder.path().join(place);
            std::fs::create_dir_all(&package).unwrap();
            std::fs::write(package.join("package.json"), json!({ "name": name, "version": version }).to_string())
                .unwrap();
        }
        folder
    }

    #[test]
    fn a_package_under_another_name_than_its_own_is_not_installed() {
        let good = [
            ("node_modules/@org/server", "@org/server", "v1.0.0"),
            ("node_modules/b", "b", "2.0.0+build"),
            ("node_modules/b/node_modules/c", "whatever the archive has", "3.0.0"),
        ];
        check_names(installed(&good).path(), RECIPE).unwrap();
        for liar in [("node_modules/b", "evil", "2.0.0"), ("node_modules/b", "b", "1.9.9"), ("node_modules/b", "", "")]
        {
            let why = check_names(installed(&[good[0], liar]).path(), RECIPE).unwrap_err();
            assert!(why.contains("\"b 2.0.0\"") && why.contains("calls itself"), "{why}");
        }
        let folder = installed(&[good[0]]);
        std::fs::create_dir_all(folder.path().join("node_modules/b")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.path().join("node_modules/b/package.json")).unwrap();
        assert!(check_names(folder.path(), RECIPE).unwrap_err().contains("calls itself"));
        for place in ["../node_modules/b", "/srv/node_modules/b"] {
            let outside = RECIPE.replace("\"node_modules/b\"", &format!("{place:?}"));
            assert!(check_names(folder.path(), &outside).unwrap_err().contains("not in its folder"), "{place}");
        }
        // A file fetched for the archive of another package counts, too.
        let fetched = RECIPE.replace(
            "\"inBundle\":true",
            "\"inBundle\":true,\"resolved\":\"https://r/c.tgz\",\"integrity\":\"sha512-c\"",
        );
        assert_eq!(resolved("@org/server", fetched).unwrap().units.len(), 4);
    }

    #[test]
    fn a_manifest_of_any_size_and_any_number_of_programs_cost_little() {
        let folder = installed(&[("node_modules/b", "b", "2.0.0")]);
        let file = folder.path().join("node_modules/b/package.json");
        let programs: serde_json::Map<_, _> = (0..5000).map(|n| (format!("program{n}"), json!("x"))).collect();
        std::fs::write(&file, json!({ "bin": programs }).to_string()).unwrap();
        let why = program(folder.path(), "b", None).unwrap_err();
        assert!(why.contains("4988 more") && why.len() < 400, "{why}");
        std::fs::write(&file, json!({ "bin": "x", "more": "x".repeat(1 << 20) }).to_string()).unwrap();
        let why = program(folder.path(), "b", None).unwrap_err();
        assert!(why.contains("at most 1048576 bytes"), "{why}");
    }
}
