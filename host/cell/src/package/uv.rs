//! uv: resolves and installs a Python program, from wheels only, since installing a wheel runs no code. uv runs in a
//! cell, so its output is untrusted.

use std::path::{Path, PathBuf};

use portcullis_core::digest::Digest;
use portcullis_core::lockfile::{PackageVersion, ResolvedPackage};

use super::registry::PackageRegistry;

/// The requirements with their hashes, which uv writes, and reads again.
pub(super) const LOCK: &str = "requirements.txt";

/// The requirements that were asked for, which uv reads.
pub(super) const REQUIREMENTS_FILE: &str = "asked.txt";

/// The folder of the virtual environment.
const ENVIRONMENT: &str = "venv";

/// Returns the command that writes requirements with hashes into the working directory and installs nothing.
pub(super) fn resolve(uv: &Path, python: &Path) -> Vec<String> {
    let python = python.to_string_lossy();
    let words = ["pip", "compile", "--generate-hashes", "--only-binary", ":all:", "--no-header", "--no-annotate"];
    let words = words.into_iter().chain([
        "--no-config",
        "--no-progress",
        "--python",
        &python,
        REQUIREMENTS_FILE,
        "--output-file",
        LOCK,
    ]);
    command(uv, words)
}

/// Returns the commands that make a relocatable environment and install the requirements into it. They fail if a byte
/// differs.
pub(super) fn install(uv: &Path, python: &Path) -> [Vec<String>; 2] {
    let python = python.to_string_lossy();
    let make = ["venv", "--quiet", "--relocatable", "--no-config", "--python", &python, ENVIRONMENT];
    let fill = ["pip", "install", "--quiet", "--no-config", "--no-progress", "--python", ENVIRONMENT];
    let fill =
        fill.into_iter().chain(["--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement", LOCK]);
    [command(uv, make.into_iter()), command(uv, fill)]
}

/// Returns the command that prints the index that uv uses if none is configured: it heads the result of resolving
/// nothing.
pub(super) fn default_index(uv: &Path, python: &Path) -> Vec<String> {
    let python = python.to_string_lossy();
    let words = [
        "pip",
        "compile",
        "--emit-index-url",
        "--offline",
        "--no-header",
        "--no-config",
        "--python",
        &python,
        REQUIREMENTS_FILE,
    ];
    command(uv, words.into_iter())
}

fn command<'a>(uv: &Path, words: impl Iterator<Item = &'a str>) -> Vec<String> {
    std::iter::once(uv.to_string_lossy().into_owned()).chain(words.map(str::to_owned)).collect()
}

/// Returns uv's environment: the index, and its folder for fetched files, which is private to the cell if no cache is
/// given.
pub(super) fn environment(registry: Option<&PackageRegistry>, cache: Option<&Path>) -> Vec<(String, String)> {
    let cache = cache.unwrap_or(Path::new("/tmp/uv"));
    let mut environment = vec![
        ("UV_CACHE_DIR".to_owned(), cache.to_string_lossy().into_owned()),
        ("UV_LINK_MODE".to_owned(), "copy".to_owned()),
        ("UV_PYTHON_DOWNLOADS".to_owned(), "never".to_owned()),
    ];
    let Some(registry) = registry else { return environment };
    environment.push(("UV_DEFAULT_INDEX".to_owned(), registry.address.clone()));
    environment
        .extend(registry.certificates.iter().map(|file| ("SSL_CERT_FILE".to_owned(), file.display().to_string())));
    environment
}

/// Reads requirements with hashes.
///
/// # Errors
/// If a requirement has no exact version or no hash.
pub(super) fn resolved(main: &str, lock_text: String) -> Result<ResolvedPackage, String> {
    let joined = lock_text.replace("\\\n", " ");
    let mut units = Vec::new();
    for line in joined.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let pin = words.next().and_then(|requirement| requirement.split_once("=="));
        let mut hashes: Vec<&str> = line.split_whitespace().filter_map(|word| word.strip_prefix("--hash=")).collect();
        let (Some((name, version)), false) = (pin, hashes.is_empty()) else {
            return Err(format!("its dependency {line:?} comes from no index and has no hash"));
        };
        // A version has wheels for several machines; any of their hashes counts as the resolved one.
        hashes.sort_unstable();
        let integrity = match hashes.as_slice() {
            [one] => (*one).to_owned(),
            many => Digest::of(many.join("\n").as_bytes()).to_string(),
        };
        units.push(PackageVersion { name: normal(name), version: version.to_owned(), integrity });
    }
    ResolvedPackage::new(&normal(main), units, lock_text)
}

/// Returns the normalised name of a package (PEP 503), without extras.
pub(super) fn normal(name: &str) -> String {
    let name = name.split('[').next().unwrap_or(name).to_ascii_lowercase();
    let parts: Vec<&str> = name.split(['-', '_', '.']).filter(|part| !part.is_empty()).collect();
    parts.join("-")
}

/// Returns the environment's interpreter and the program in it.
///
/// # Errors
/// If the installed packages have no such program.
pub(super) fn program(folder: &Path, wanted: &str) -> Result<[PathBuf; 2], String> {
    let bin = folder.join(ENVIRONMENT).join("bin");
    let program = bin.join(wanted);
    match !wanted.contains('/') && super::is_program_within(&program, folder) {
        true => Ok([bin.join("python"), program]),
        false => {
            Err(format!("there is no program {wanted:?} in what was installed; write `uvx --from PACKAGE PROGRAM`"))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
    use super::*;

    const RECIPE: &str =
        "mcp-server-git==1.2 \\\n    --hash=sha256:bb \\\n    --hash=sha256:aa\nclick==8.0 \\\n    --hash=sha256:cc\n";

    #[test]
    fn requirements_are_read_whole() {
        let resolved = resolved("MCP_Server.git", RECIPE.to_owned()).unwrap();
        assert_eq!((resolved.main.name.as_str(), resolved.main.version.as_str()), ("mcp-server-git", "1.2"));
        assert_eq!(resolved.units[0].integrity, "sha256:cc", "one wheel has its own hash");
        assert_eq!(resolved.main.integrity, Digest::of(b"sha256:aa\nsha256:bb").to_string());
    }

    #[test]
    fn what_cannot_be_pinned_is_refused() {
        for text in ["server @ https://example.com/x.whl\n", "server>=1 --hash=sha256:aa\n", "server==1\n"] {
            assert!(super::resolved("server", text.to_owned()).unwrap_err().contains("no hash"), "{text}");
        }
    }
}
