//! Node.js: the program, the libraries next to it, and the packages that a script belongs to.

use std::path::Path;

use super::Search;

/// Adds `prefix/lib` for `prefix/bin/node`: npm and all globally installed packages. This fits nvm, fnm, volta, asdf
/// and the archives of nodejs.org.
pub(super) fn toolchain(search: &mut Search<'_>, node: &Path) {
    if let Some(prefix) = node.parent().and_then(Path::parent) {
        search.need(&prefix.join("lib"));
    }
}

/// Adds the outermost `node_modules` that contains a script. For other scripts, adds their package and the
/// `node_modules` of all folders above them, where Node.js looks for packages.
pub(super) fn script(search: &mut Search<'_>, script: &Path) {
    let installed = script.ancestors().filter(|folder| folder.ends_with("node_modules")).last();
    if let Some(modules) = installed {
        search.need(modules);
        return;
    }
    let mut above = script.ancestors().skip(1).filter(|folder| !search.programs.is_too_wide(folder));
    if let Some(package) = above.find(|folder| folder.join("package.json").is_file()) {
        search.need(package);
    }
    for folder in script.ancestors().skip(1) {
        let modules = folder.join("node_modules");
        if modules.is_dir() {
            search.need(&modules);
        }
    }
}
