//! Python: the interpreter with its library, the virtual environment around it, and the folder of a script.

use std::path::{Path, PathBuf};

use super::Search;

/// Adds what an interpreter needs. `path` is the interpreter as it was called, by which Python finds a virtual
/// environment; `real` is the file.
///
/// `prefix/lib` holds the standard library, packages and libpython with pyenv, uv, asdf and Debian alike. A conda
/// environment is opened as a whole.
pub(super) fn toolchain(search: &mut Search<'_>, path: &Path, real: &Path) {
    if let Some(environment) = environment_of(path) {
        search.needs.notes.push(format!("virtual environment {}", environment.display()));
        search.need(&environment);
    }
    let Some(prefix) = real.parent().and_then(Path::parent) else { return };
    if prefix.join("conda-meta").is_dir() {
        search.need(prefix);
        return;
    }
    for library in ["lib", "lib64"] {
        let library = prefix.join(library);
        if library.is_dir() {
            search.need(&library);
        }
    }
}

/// Adds the environment that a script was installed into, or else the folder of the script, from which it imports.
pub(super) fn script(search: &mut Search<'_>, script: &Path) {
    match environment_of(script) {
        Some(environment) => search.need(&environment),
        None if search.needs.read.iter().any(|read| script.starts_with(read) && script != read) => {}
        None if in_bin(script) => {}
        None => script.parent().into_iter().for_each(|folder| search.need(folder)),
    }
}

/// Reports whether a script lies in a `bin` folder. It then imports from its interpreter's packages, and its neighbours
/// are other programs.
fn in_bin(script: &Path) -> bool {
    script.parent().is_some_and(|folder| folder.ends_with("bin"))
}

/// Returns `venv` for `venv/bin/python`, if that is a virtual environment.
fn environment_of(program: &Path) -> Option<PathBuf> {
    let environment = program.parent()?.parent()?;
    environment.join("pyvenv.cfg").is_file().then(|| environment.to_owned())
}
