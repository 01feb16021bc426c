//! Files that hold credentials, by their names: no message and no proposal recommends to open one.

use std::path::{Component, Path, PathBuf};

use portcullis_core::trust::DATA_FOLDER;

/// Files and folders of a home that hold credentials. A person may grant one; nothing proposes it, and nothing proposes
/// a folder that contains one.
const CREDENTIALS: [&str; 52] = [
    ".android",
    ".aws",
    ".azure",
    ".bash_history",
    ".boto",
    ".cache/huggingface",
    ".cargo/credentials.toml",
    ".config/1Password",
    ".config/BraveSoftware",
    ".config/Signal",
    ".config/Slack",
    ".config/chromium",
    ".config/containers",
    ".config/doctl",
    ".config/gcloud",
    ".config/gh",
    ".config/github-copilot",
    ".config/glab-cli",
    ".config/google-chrome",
    ".config/hub",
    ".config/microsoft-edge",
    ".config/op",
    ".config/rclone",
    ".config/solana",
    ".config/sops",
    ".databrickscfg",
    ".docker",
    ".gem/credentials",
    ".git-credentials",
    ".gnupg",
    ".gradle",
    ".kaggle",
    ".kube",
    ".local/share/keyrings",
    ".local/share/opencode",
    ".m2",
    ".mozilla",
    ".my.cnf",
    ".netrc",
    ".password-store",
    ".pgpass",
    ".psql_history",
    ".pypirc",
    ".python_history",
    ".s3cfg",
    ".ssh",
    ".terraform.d",
    ".thunderbird",
    ".var/app",
    ".vault-token",
    ".zsh_history",
    "snap",
];

/// Files and folders of a home that decide which programs start: with a shell, a session, git, or an agent. Nothing
/// proposes them either.
const STARTERS: [&str; 41] = [
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".cargo/bin",
    ".claude",
    ".claude.json",
    ".codeium",
    ".codex",
    ".config/Claude",
    ".config/Code",
    ".config/Cursor",
    ".config/autostart",
    ".config/environment.d",
    ".config/fish",
    ".config/git",
    ".config/plasma-workspace",
    ".config/systemd",
    ".config/zed",
    ".continue",
    ".cursor",
    ".gemini",
    ".gitconfig",
    ".local/bin",
    ".local/share/applications",
    ".npmrc",
    ".pam_environment",
    ".profile",
    ".ssh/authorized_keys",
    ".ssh/config",
    ".ssh/rc",
    ".vscode",
    ".xinitrc",
    ".xprofile",
    ".xsession",
    ".zlogin",
    ".zlogout",
    ".zprofile",
    ".zshenv",
    ".zshrc",
    "bin",
];

/// Names of files that hold keys wherever they are.
const KEYS: [&str; 11] = [
    ".credentials.json",
    ".env",
    "auth.json",
    "credentials.json",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_rsa",
    "oauth_creds.json",
    "secrets.json",
    "token.json",
];

/// Folders of a home in which programs are installed, within or next to those that decide which programs start.
const PROGRAMS: [&str; 7] = [
    ".cargo/bin",
    ".claude/plugins",
    ".config/Claude/Claude Extensions",
    ".cursor/extensions",
    ".local/bin",
    ".vscode/extensions",
    "bin",
];

/// Reports whether a path holds credentials or decides which programs start, or contains such a path: below the user's
/// home, and below any other. The data folder of a broker holds credentials wherever it is. A path with `..` is also
/// judged by where that leads if no link is on the way.
#[must_use]
pub fn is_credential(path: &Path, home: Option<&Path>) -> bool {
    let leads_up = path.components().any(|part| part == Component::ParentDir);
    names_credential(path, home) || (leads_up && names_credential(&without_parents(path), home))
}

fn without_parents(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            part => out.push(part),
        }
    }
    out
}

fn names_credential(path: &Path, home: Option<&Path>) -> bool {
    let named = in_homes(path, home).any(|below| {
        let mut all = CREDENTIALS.iter().chain(&STARTERS);
        all.any(|known| below.starts_with(known) || Path::new(known).starts_with(below))
    });
    named || is_key_file(path) || path.components().any(|part| part.as_os_str() == DATA_FOLDER)
}

/// Reports whether a file holds credentials or decides which programs start, in this home or another one. A file in a
/// folder of installed programs is neither just because of its place.
pub(crate) fn is_credential_file(file: &Path, home: Option<&Path>) -> bool {
    let is_below = |below: &Path, known: &[&str]| known.iter().any(|known| below.starts_with(known));
    let named = in_homes(file, home)
        .any(|below| is_below(below, &CREDENTIALS) || is_below(below, &STARTERS) && !is_below(below, &PROGRAMS));
    named || is_key_file(file)
}

/// Reports whether a folder holds credentials or what decides which programs start, or is in one that holds credentials:
/// nothing opens it because a program or its script is in it.
pub(crate) fn is_credential_folder(folder: &Path, home: Option<&Path>) -> bool {
    in_homes(folder, home).any(|below| {
        CREDENTIALS.iter().any(|known| below.starts_with(known))
            || CREDENTIALS.iter().chain(&STARTERS).any(|known| Path::new(known).starts_with(below))
    })
}

/// Reports whether a folder is a whole home, this or another one, or contains this one.
pub(crate) fn holds_home(folder: &Path, home: Option<&Path>) -> bool {
    home.is_some_and(|home| home.starts_with(folder)) || other_home(folder).as_deref() == Some(folder)
}

/// Returns a path below this home and below the one that it is in, if it is in another.
fn in_homes<'a>(path: &'a Path, home: Option<&Path>) -> impl Iterator<Item = &'a Path> {
    let own = home.and_then(|home| path.strip_prefix(home).ok());
    let other = other_home(path).and_then(|home| path.strip_prefix(home).ok());
    own.into_iter().chain(other).filter(|below| !below.as_os_str().is_empty())
}

/// Returns the home of a user in which a path is, by its place.
fn other_home(path: &Path) -> Option<PathBuf> {
    let mut parts = path.components().skip(1);
    match parts.next().map(|part| part.as_os_str().to_owned()) {
        Some(first) if first == "root" => Some(PathBuf::from("/root")),
        Some(first) if first == "home" => parts.next().map(|user| Path::new("/home").join(user)),
        _ => None,
    }
}

/// Reports whether a path below this home decides which programs start later.
#[must_use]
pub fn decides_what_starts(path: &Path, home: &Path) -> bool {
    path.strip_prefix(home).is_ok_and(|below| STARTERS.iter().any(|known| below.starts_with(known)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_folder_of_a_broker_and_what_is_in_it_are_recommended_nowhere() {
        for path in
            ["/srv/code/.portcullis", "/srv/code/.portcullis/portcullis.lock", "/home/me/code/.portcullis/ledger"]
        {
            assert!(is_credential(Path::new(path), None), "{path}");
        }
        for path in ["/srv/code", "/srv/code/portcullis.toml", "/srv/code/.portcullis-notes"] {
            assert!(!is_credential(Path::new(path), None), "{path}");
        }
    }

    #[test]
    fn a_way_around_to_credentials_leads_to_credentials() {
        let home = Some(Path::new("/home/me"));
        for path in ["/home/me/x/../.ssh/config", "/srv/../home/me/.aws", "/home/me/.ssh/../x"] {
            assert!(is_credential(Path::new(path), home), "{path}");
        }
        assert!(!is_credential(Path::new("/home/me/x/../notes"), home));
    }
}
