//! Lists what every cell has of the system: programs and libraries, read-only, and an `/etc` without the machine's
//! users.

use std::path::{Path, PathBuf};

/// The system's programs and libraries, and what the loader, TLS and the links in `/usr/bin` need from `/etc`.
/// `/etc/ssl/private` is left out, since a broker that runs as root could open it.
const SHARED_PATHS: [&str; 12] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/ca-certificates",
];

/// Returns the shared system paths that this machine has: paths to mount, and links (`/lib` leads to `/usr/lib` on most
/// systems).
pub(super) fn present() -> (Vec<PathBuf>, Vec<(PathBuf, PathBuf)>) {
    let (mut folders, mut links) = (Vec::new(), Vec::new());
    for path in SHARED_PATHS.map(PathBuf::from) {
        match std::fs::read_link(&path) {
            Ok(target) => links.push((path, target)),
            Err(_) if path.exists() => folders.push(path),
            Err(_) => {}
        }
    }
    (folders, links)
}

/// Reports whether every cell has this path, whatever its program needs.
pub(super) fn is_shared(path: &Path) -> bool {
    SHARED_PATHS.iter().any(|folder| path.starts_with(folder))
}

/// Folders that a full cell does not take from the machine: it has its own, or (`/run`, `/sys`) none.
const OWN_FOLDERS: [&str; 7] = ["/dev", "/etc", "/home/source", "/proc", "/run", "/sys", "/tmp"];

/// Those of the folders that a full cell does not take from the machine in which files and folders can be granted.
const GRANTABLE: [&str; 3] = ["/etc", "/run", "/tmp"];

/// Reports whether a path is shared with every cell, or lies in a folder that a full cell does not take from the
/// machine.
pub(super) fn is_shared_or_replaced(path: &Path) -> bool {
    is_shared(path) || OWN_FOLDERS.iter().any(|folder| path.starts_with(folder))
}

/// Reports whether a path lies in a folder that a full cell replaces with its own, but can still be granted.
pub(super) fn can_be_granted(path: &Path) -> bool {
    !is_shared(path) && GRANTABLE.iter().any(|folder| path.starts_with(folder) && path != Path::new(folder))
}
