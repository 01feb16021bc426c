//! Finds where a path really leads, and the links on the way.

use std::io;
use std::path::{Component, Path, PathBuf};

/// The largest number of links that are followed: as many as the kernel follows.
const MAX_LINKS: usize = 40;

/// A path without links, and the links that an empty root needs so that the path as written leads there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResolvedPath {
    pub(super) real: PathBuf,
    /// The real path of each link, with its target as written in the link.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
}

/// Follows an absolute path one component at a time, as the kernel does.
pub(super) fn follow(path: &Path) -> io::Result<ResolvedPath> {
    let mut real = PathBuf::from("/");
    let mut links: Vec<(PathBuf, PathBuf)> = Vec::new();
    let mut left: Vec<PathBuf> = parts(path);
    while let Some(part) = left.pop() {
        if part.as_os_str() == ".." {
            real.pop();
            continue;
        }
        let next = real.join(&part);
        if !std::fs::symlink_metadata(&next)?.is_symlink() {
            real = next;
            continue;
        }
        if links.len() == MAX_LINKS {
            return Err(io::Error::other(format!("more than {MAX_LINKS} links")));
        }
        let target = std::fs::read_link(&next)?;
        if target.is_absolute() {
            real = PathBuf::from("/");
        }
        left.extend(parts(&target));
        links.push((next, target));
    }
    Ok(ResolvedPath { real, links })
}

/// Returns the components of a path, the last one first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let named = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    named.rev().map(|part| PathBuf::from(part.as_os_str())).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_link_on_the_way_is_returned() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        std::fs::create_dir_all(at("versions/3/bin")).unwrap();
        std::fs::write(at("versions/3/bin/python3"), "").unwrap();
        symlink("python3", at("versions/3/bin/python")).unwrap();
        symlink(at("versions/3"), at("current")).unwrap();
        std::fs::create_dir(at("venv")).unwrap();
        symlink("../current/bin/python", at("venv/python")).unwrap();
        let traced = follow(&at("venv/python")).unwrap();
        assert_eq!(traced.real, at("versions/3/bin/python3"));
        let expected = [
            (at("venv/python"), PathBuf::from("../current/bin/python")),
            (at("current"), at("versions/3")),
            (at("versions/3/bin/python"), PathBuf::from("python3")),
        ];
        assert_eq!(traced.links, expected);
    }

    #[test]
    fn a_cycle_of_links_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        symlink("circle", dir.path().join("circle")).unwrap();
        assert!(follow(&dir.path().join("circle")).is_err());
        assert_eq!(follow(&dir.path().join("absent")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
