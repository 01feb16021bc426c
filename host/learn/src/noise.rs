//! Paths that programs look for without needing them, and folders that are too wide to be proposed.

use std::path::{Path, PathBuf};

/// Folders that describe the machine: a cell has its own, or does without. A program looks into them at every start,
/// and one that really needs something in them says so when it fails.
const SYSTEM: [&str; 12] = [
    "/dev",
    "/etc",
    "/proc",
    "/run",
    "/sys",
    "/tmp",
    "/usr",
    "/var/cache",
    "/var/lib/dbus",
    "/var/log",
    "/var/run",
    "/var/tmp",
];

/// Files that language runtimes look for in every folder above a program.
const MARKERS: [&str; 14] = [
    "package.json",
    "node_modules",
    "tsconfig.json",
    "jsconfig.json",
    "pyvenv.cfg",
    "pyproject.toml",
    "setup.cfg",
    "setup.py",
    "uv.toml",
    ".python-version",
    ".git",
    ".npmrc",
    ".env",
    "bunfig.toml",
];

/// Reports whether every program looks for such a path, so that it tells nothing about this one. `inside` are the paths
/// that lie in the cell: the folders above them are only passed through.
pub(crate) fn is_noise<'a>(path: &Path, inside: impl IntoIterator<Item = &'a PathBuf>) -> bool {
    if is_bytecode(path) || SYSTEM.iter().any(|folder| path.starts_with(folder)) {
        return true;
    }
    let marker = path.file_name().is_some_and(|name| MARKERS.iter().any(|marker| name == *marker));
    let above = if marker { path.parent().unwrap_or(path) } else { path };
    inside.into_iter().any(|known| known.starts_with(above) && known != path)
}

/// Reports whether a path is that of Python's compiled modules, or of their folder. Python writes them next to its own
/// modules, and does without if it may not.
pub(crate) fn is_bytecode(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "__pycache__")
}

/// Reports whether a folder holds much more than one program's files, so that opening it would open everything. A
/// folder that a person has named may be directly in the root, such as `/workspace` in containers.
pub(crate) fn is_too_wide(folder: &Path, home: Option<&Path>, named: bool) -> bool {
    let depth = folder.components().count();
    let above_home = home.is_some_and(|home| home.starts_with(folder));
    let system =
        ["/etc", "/home", "/root", "/run", "/tmp", "/usr", "/var"].iter().any(|known| folder == Path::new(known));
    depth <= if named { 1 } else { 2 }
        || system
        || above_home
        || home.is_some_and(|home| folder == home.join(".config") || folder == home.join(".local"))
}
