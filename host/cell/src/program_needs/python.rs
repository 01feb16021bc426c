//! Python: the interpreter with its library, the virtual environment around it, and the folder of a script.

use std::path::{Path, PathBuf};

use super::Search;

/// Adds the files that a Python interpreter needs. `path` is the interpreter as called, by which Python finds a virtual
/// environment; `real` is the file that `path` leads to.
///
/// With pyenv, uv, asdf and Debian alike, `lib` or `lib64` below the prefix holds the standard library, the packages
/// and libpython. A conda environment is added as a whole. For a virtual environment that a script outside names in its
/// first line, only the packages are added: the environment may be the folder of a project.
pub(super) fn add_interpreter(search: &mut Search<'_>, path: &Path, real: &Path) {
    if let Some(environment) = environment_of(path) {
        search.needs.notes.push(format!("virtual environment {}", environment.display()));
        let real = environment.canonicalize().unwrap_or_else(|_| environment.clone());
        if search.interpreted.as_ref().is_some_and(|script| !script.starts_with(&real)) {
            search.need(&environment.join("pyvenv.cfg"));
            search.need(&environment.join("lib"));
        } else {
            add_environment(search, &environment);
        }
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

/// Adds the virtual environment that a script was installed into, or else the folder of the script, from which it
/// imports. Adds nothing if that folder is readable already or is a `bin` folder.
pub(super) fn add_script(search: &mut Search<'_>, script: &Path) {
    match environment_of(script) {
        Some(environment) => add_environment(search, &environment),
        None if search.needs.read.iter().any(|read| script.starts_with(read) && script != read) => {}
        None if in_bin(script) => {}
        None => script.parent().into_iter().for_each(|folder| search.need(folder)),
    }
}

/// Adds the folders that make up a virtual environment. It may be the folder of a project, too.
fn add_environment(search: &mut Search<'_>, environment: &Path) {
    for part in ["pyvenv.cfg", "bin", "etc", "include", "lib", "lib64", "share"] {
        search.need(&environment.join(part));
    }
}

/// Reports whether a script lies in a `bin` folder. Such a script imports from the packages of its interpreter, and its
/// neighbours are other programs.
fn in_bin(script: &Path) -> bool {
    script.parent().is_some_and(|folder| folder.ends_with("bin"))
}

/// Returns `venv` for `venv/bin/python`, if that is a virtual environment.
fn environment_of(program: &Path) -> Option<PathBuf> {
    let environment = program.parent()?.parent()?;
    environment.join("pyvenv.cfg").is_file().then(|| environment.to_owned())
}
