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

/// Files and folders of a home that hold credentials, or that decide which programs start. A person may grant one; nothing
/// proposes it, and nothing proposes a folder that contains one.
const CREDENTIALS: [&str; 63] = [
    ".android",
    ".aws",
    ".azure",
    ".bash_history",
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".cargo/bin",
    ".cargo/credentials.toml",
    ".claude",
    ".claude.json",
    ".codex",
    ".config/1Password",
    ".config/BraveSoftware",
    ".config/Claude",
    ".config/autostart",
    ".config/chromium",
    ".config/doctl",
    ".config/fish",
    ".config/gcloud",
    ".config/gh",
    ".config/git",
    ".config/glab-cli",
    ".config/google-chrome",
    ".config/hub",
    ".config/op",
    ".config/rclone",
    ".config/sops",
    ".config/systemd",
    ".cursor",
    ".docker",
    ".gem/credentials",
    ".gemini",
    ".git-credentials",
    ".gitconfig",
    ".gnupg",
    ".gradle",
    ".kube",
    ".local/bin",
    ".local/share/keyrings",
    ".m2",
    ".mozilla",
    ".my.cnf",
    ".netrc",
    ".npmrc",
    ".password-store",
    ".pgpass",
    ".profile",
    ".pypirc",
    ".s3cfg",
    ".ssh",
    ".terraform.d",
    ".thunderbird",
    ".var/app",
    ".vault-token",
    ".vscode",
    ".zprofile",
    ".zsh_history",
    ".zshenv",
    ".zshrc",
    "bin",
    "snap",
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

/// Reports whether a path holds credentials or decides which programs start, or contains such a path: below the user's
/// home, and below any other.
pub(crate) fn is_credential(path: &Path, home: Option<&Path>) -> bool {
    let mut parts = path.components().skip(1);
    let other_home = match parts.next().map(|part| part.as_os_str().to_owned()) {
        Some(first) if first == "root" => Some(PathBuf::from("/root")),
        Some(first) if first == "home" => parts.next().map(|user| Path::new("/home").join(user)),
        _ => None,
    };
    let named =
        home.into_iter().chain(other_home.as_deref()).filter_map(|home| path.strip_prefix(home).ok()).any(|below| {
            !below.as_os_str().is_empty()
                && CREDENTIALS.iter().any(|known| below.starts_with(known) || Path::new(known).starts_with(below))
        });
    let key = path.file_name().is_some_and(|name| {
        let name = name.to_string_lossy();
        KEYS.iter().any(|key| name == *key) || name.starts_with(".env.")
    });
    let kinds = ["pem", "key", "p12", "pfx", "kdbx", "jks"];
    named || key || path.extension().is_some_and(|kind| kinds.iter().any(|known| kind == *known))
}

/// Reports whether a folder holds much more than one program's files, so that opening it would open everything.
pub(crate) fn is_too_wide(folder: &Path, home: Option<&Path>) -> bool {
    let depth = folder.components().count();
    let above_home = home.is_some_and(|home| home.starts_with(folder));
    // The root, and what stands directly in it.
    depth <= 2 || above_home || home.is_some_and(|home| folder == home.join(".config") || folder == home.join(".local"))
}
