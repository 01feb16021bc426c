//! npm: resolves and installs a package, and reads npm's lock file. npm runs in a cell, so what it writes is untrusted.

use std::path::{Path, PathBuf};

use portcullis_core::lockfile::{PackageVersion, ResolvedPackage};
use serde::Deserialize;
use serde_json::{Value, json};

use super::registry::PackageRegistry;

/// The lock file that npm writes, and reads again.
pub(super) const LOCK: &str = "package-lock.json";

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

/// Returns the command that installs what the lock file in the working directory says. It fails if a byte differs.
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

/// Returns npm's environment: the registry, and where it keeps what it has fetched, which is private to the cell if no
/// cache is given.
pub(super) fn environment(registry: Option<&PackageRegistry>, cache: Option<&Path>) -> Vec<(String, String)> {
    let cache = cache.unwrap_or(Path::new("/tmp/npm"));
    let mut environment = vec![
        // A path that does not exist in the cell: the file beside the system's npm may hold credentials.
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
    let lock: LockFile =
        serde_json::from_str(&lock_text).map_err(|error| format!("npm's lock file cannot be read: {error}"))?;
    let mut units = Vec::new();
    for (place, entry) in &lock.packages {
        let Some((_, name)) = place.rsplit_once("node_modules/") else { continue };
        // A package inside the archive of another one is covered by that one's integrity.
        if entry["inBundle"] == true {
            continue;
        }
        let text = |key: &str| entry[key].as_str().map(str::to_owned);
        let (Some(version), Some(integrity)) = (text("version"), text("integrity")) else {
            return Err(format!("its dependency {name:?} comes from no registry and has no integrity"));
        };
        let name = text("name").unwrap_or_else(|| name.to_owned());
        units.push(PackageVersion { name, version, integrity });
    }
    ResolvedPackage::new(main, units, lock_text)
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
    let manifest = std::fs::read_to_string(modules.join(package).join("package.json")).unwrap_or_default();
    let manifest: Value = serde_json::from_str(&manifest).unwrap_or_default();
    let offered: Vec<&str> = match manifest.get("bin") {
        Some(Value::Object(programs)) => programs.keys().map(String::as_str).collect(),
        Some(Value::String(_)) => vec![base],
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
                many.join(" ")
            ));
        }
    };
    let program = modules.join(".bin").join(name);
    match !name.contains('/') && super::is_program_within(&program, &modules) {
        true => Ok(program),
        false => Err(format!("package {package} has no program {name:?}; it has {}", offered.join(" "))),
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
}
