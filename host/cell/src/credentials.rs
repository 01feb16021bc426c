//! Files that hold credentials, by their names: no message and no proposal recommends to open one.

use std::path::{Path, PathBuf};

/// Files and folders of a home that hold credentials, or that decide which programs start. A person may grant one;
/// nothing proposes it, and nothing proposes a folder that contains one.
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

/// Reports whether a path holds credentials or decides which programs start, or contains such a path: below the user's
/// home, and below any other.
#[must_use]
pub fn is_credential(path: &Path, home: Option<&Path>) -> bool {
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
    named || is_key_file(path)
}

/// Reports whether a file has a name by which keys and passwords are kept, wherever it is.
#[must_use]
pub fn is_key_file(path: &Path) -> bool {
    let named = path.file_name().is_some_and(|name| {
        let name = name.to_string_lossy();
        KEYS.iter().any(|key| name == *key) || name.starts_with(".env.")
    });
    let kinds = ["pem", "key", "p12", "pfx", "kdbx", "jks"];
    named || path.extension().is_some_and(|kind| kinds.iter().any(|known| kind == *known))
}
