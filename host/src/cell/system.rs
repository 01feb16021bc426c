//! What every cell sees of the system: programs and libraries, to be read, and an `/etc` that names nobody.

use std::path::{Path, PathBuf};

/// Programs and libraries of the system; and of `/etc` what the loader, TLS and the links of `/usr/bin` need. Not
/// `/etc/ssl/private`, which a broker that runs as root could open.
const FOLDERS: [&str; 12] = [
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

/// What stands there as it is on this machine: paths to mount, and links (`/lib` leads to `/usr/lib` on most systems).
pub(super) fn view() -> (Vec<PathBuf>, Vec<(PathBuf, PathBuf)>) {
    let (mut folders, mut links) = (Vec::new(), Vec::new());
    for path in FOLDERS.map(PathBuf::from) {
        match std::fs::read_link(&path) {
            Ok(target) => links.push((path, target)),
            Err(_) if path.exists() => folders.push(path),
            Err(_) => {}
        }
    }
    (folders, links)
}

/// Whether a path is there without any profile's doing.
pub(super) fn holds(path: &Path) -> bool {
    FOLDERS.iter().any(|folder| path.starts_with(folder))
}
