//! Node.js: the program, the libraries beside it, and the packages that a script belongs to.

use std::path::Path;

use super::Search;

/// `prefix/bin/node` with `prefix/lib`: npm and what was installed globally. Holds for nvm, fnm, volta, asdf and the
/// archives of nodejs.org alike.
pub(super) fn toolchain(search: &mut Search<'_>, node: &Path) {
    if let Some(prefix) = node.parent().and_then(Path::parent) {
        search.need(&prefix.join("lib"));
    }
}

/// The whole `node_modules` that a script stands in, or else the package that it belongs to, with the `node_modules` of the
/// folders above it, where Node.js looks for packages.
pub(super) fn script(search: &mut Search<'_>, script: &Path) {
    let installed = script.ancestors().filter(|folder| folder.ends_with("node_modules")).last();
    if let Some(modules) = installed {
        search.need(modules);
        return;
    }
    let mut above = script.ancestors().skip(1).filter(|folder| !search.machine.is_too_wide(folder));
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
