//! Paths that programs look for without needing them, and paths that no proposal opens.

use std::path::{Path, PathBuf};

/// Folders whose content a cell has of its own, or that show the state of the machine. A program looks into them at every
/// start and works without.
const SYSTEM: [&str; 12] = [
    "/dev",
    "/etc",
    "/proc",
    "/run",
    "/sys",
    "/tmp",
    "/usr",
    "/var/cache",
    "/var/lib",
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

/// Files and folders of a home that hold credentials. A person may grant one; nothing proposes it.
const CREDENTIALS: [&str; 31] = [
    ".aws",
    ".azure",
    ".bash_history",
    ".claude",
    ".config/gcloud",
    ".config/gh",
    ".config/op",
    ".cursor",
    ".docker",
    ".gem/credentials",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".local/share/keyrings",
    ".mozilla",
    ".my.cnf",
    ".netrc",
    ".npmrc",
    ".password-store",
    ".pgpass",
    ".pypirc",
    ".ssh",
    ".terraform.d",
    ".thunderbird",
    ".vault-token",
    ".zsh_history",
    ".config/chromium",
    ".config/google-chrome",
    ".config/BraveSoftware",
    ".config/Claude",
    ".cargo/credentials.toml",
];

/// Names of files that hold keys wherever they are.
const KEYS: [&str; 8] =
    ["id_rsa", "id_ed25519", "id_ecdsa", "id_dsa", "credentials.json", "token.json", "secrets.json", ".env"];

/// Reports whether every program looks for such a path, so that it says nothing about this one. `inside` are the paths
/// that lie in the cell: the folders above them are only passed through.
pub(crate) fn is_noise<'a>(path: &Path, inside: impl IntoIterator<Item = &'a PathBuf>) -> bool {
    if SYSTEM.iter().any(|folder| path.starts_with(folder)) {
        return true;
    }
    let marker = path.file_name().is_some_and(|name| MARKERS.iter().any(|marker| name == *marker));
    let above = if marker { path.parent().unwrap_or(path) } else { path };
    inside.into_iter().any(|known| known.starts_with(above) && known != path)
}

/// Reports whether a path holds credentials.
pub(crate) fn is_credential(path: &Path, home: Option<&Path>) -> bool {
    let in_home = home.and_then(|home| path.strip_prefix(home).ok());
    let named = in_home.is_some_and(|below| CREDENTIALS.iter().any(|known| below.starts_with(known)));
    let key = path.file_name().is_some_and(|name| KEYS.iter().any(|key| name == *key));
    named || key || path.extension().is_some_and(|kind| kind == "pem" || kind == "key")
}

/// Reports whether a folder holds much more than one program's files, so that opening it would open everything.
pub(crate) fn is_too_wide(folder: &Path, home: Option<&Path>) -> bool {
    let depth = folder.components().count();
    let above_home = home.is_some_and(|home| home.starts_with(folder));
    // The root, and what stands directly in it.
    depth <= 2 || above_home || home.is_some_and(|home| folder == home.join(".config") || folder == home.join(".local"))
}
