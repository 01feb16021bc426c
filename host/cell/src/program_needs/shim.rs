//! Shims of version managers: small programs that start a real one, which version files choose.
//!
//! The files of pyenv and its relatives (nodenv, rbenv), asdf and volta are read. A shim that chooses by other means is
//! refused, with the remedy.

use std::path::{Path, PathBuf};

use portcullis_core::private::regular_file::{self, Symlinks};

use super::super::program_search::is_program;
use super::super::{CellError, ProgramSearch};

/// The largest shim or version file that is read, in bytes; real ones have a few lines.
const MAX_BYTES: u64 = 64 * 1024;

/// Returns the program that a shim starts, or `None` if the path is not a shim.
///
/// # Errors
/// If the files do not tell which program the shim runs.
pub(super) fn resolve(
    path: &Path,
    directory: Option<&Path>,
    programs: &ProgramSearch,
) -> Result<Option<PathBuf>, CellError> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Ok(None);
    };
    let manager = folder.parent().unwrap_or(folder);
    if folder.ends_with("shims") && manager.join("versions").is_dir() {
        return chosen_by_file(path, name, manager, directory, programs).map(Some);
    }
    if folder.ends_with("shims") && manager.join("installs").is_dir() {
        return of_asdf(path, name, manager).map(Some);
    }
    // A package of npm may have a program of this name, and Volta's is in no package.
    let is_packaged = path.components().any(|part| part.as_os_str() == "node_modules");
    let leads_to =
        |shim: &str| std::fs::read_link(path).is_ok_and(|target| target.file_name().is_some_and(|name| name == shim));
    if !is_packaged && leads_to("volta-shim") {
        return of_volta(path, name, manager).map(Some);
    }
    Ok(None)
}

/// Resolves a shim of pyenv or a relative: by `.python-version` in the working directory or above, else by the file
/// `version`.
fn chosen_by_file(
    path: &Path,
    name: &str,
    root: &Path,
    directory: Option<&Path>,
    programs: &ProgramSearch,
) -> Result<PathBuf, CellError> {
    let local = directory.into_iter().flat_map(Path::ancestors).find_map(|folder| {
        [".python-version", ".node-version", ".ruby-version"].iter().find_map(|file| {
            // Each manager has its own file; a file counts only if one of its versions is installed here.
            words(&folder.join(file))
                .filter(|versions| versions.iter().any(|version| installed(root, version).is_some()))
        })
    });
    let versions = local.or_else(|| words(&root.join("version"))).unwrap_or_else(|| vec!["system".to_owned()]);
    for version in &versions {
        let found = match version.as_str() {
            "system" => programs.find(name, |other| !other.starts_with(root)),
            version => {
                installed(root, version).map(|prefix| prefix.join("bin").join(name)).filter(|path| is_program(path))
            }
        };
        if let Some(found) = found {
            return Ok(found);
        }
    }
    let versions = versions.join(" ");
    Err(refuse(path, &format!("of the chosen version {versions} in {}, which has no such program", root.display())))
}

/// Returns `versions/3.12.1` for `3.12.1`, and the newest matching version for `3.12`.
fn installed(root: &Path, version: &str) -> Option<PathBuf> {
    let folder = root.join("versions");
    if !version.is_empty() && !version.contains('/') && folder.join(version).is_dir() {
        return Some(folder.join(version));
    }
    let prefix = format!("{version}.");
    let names = std::fs::read_dir(&folder).ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let numbers = |name: &str| name.split('.').map(|part| part.parse::<u32>().unwrap_or(0)).collect::<Vec<_>>();
    names.filter(|name| name.starts_with(&prefix)).max_by_key(|name| numbers(name)).map(|name| folder.join(name))
}

/// Resolves a shim of asdf, which lists its candidates: `# asdf-plugin: nodejs 20.1.0`. If there is only one, it
/// is used.
fn of_asdf(path: &Path, name: &str, root: &Path) -> Result<PathBuf, CellError> {
    let text = read(path).unwrap_or_default();
    let candidates: Vec<PathBuf> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# asdf-plugin: ")?.split_once(' '))
        .map(|(plugin, version)| root.join("installs").join(plugin).join(version.trim()).join("bin").join(name))
        .filter(|path| is_program(path))
        .collect();
    match candidates.as_slice() {
        [one] => Ok(one.clone()),
        many => Err(refuse(path, &format!("of asdf with {} versions to choose from", many.len()))),
    }
}

/// Resolves a shim of volta, which names its default Node.js in a JSON file.
fn of_volta(path: &Path, name: &str, root: &Path) -> Result<PathBuf, CellError> {
    let chosen = read(&root.join("tools/user/platform.json"));
    let platform: serde_json::Value = chosen.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let runtime = platform.pointer("/node/runtime").and_then(serde_json::Value::as_str).unwrap_or_default();
    let found = root.join("tools/image/node").join(runtime).join("bin").join(name);
    let is_version = !runtime.is_empty() && !runtime.contains('/') && runtime != "..";
    match is_version && is_program(&found) {
        true => Ok(found),
        false => Err(refuse(path, "of volta, whose default has no such program")),
    }
}

fn refuse(path: &Path, what: &str) -> CellError {
    CellError::Program(format!("{} is a shim {what}; name the real program by its full path", path.display()))
}

/// Returns the words of a version file, without comments.
fn words(file: &Path) -> Option<Vec<String>> {
    let text = read(file)?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let words: Vec<String> = lines.flat_map(str::split_whitespace).map(str::to_owned).collect();
    (!words.is_empty()).then_some(words)
}

fn read(file: &Path) -> Option<String> {
    regular_file::read_text(file, Symlinks::Follow, MAX_BYTES).ok()
}
