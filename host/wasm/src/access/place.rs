//! The place to which a component's path leads, found one name at a time.
//!
//! The names in a path tell little: a symbolic link may lie on the way, which came with a repository, or which a
//! program puts there at this moment. So each folder is opened by its own name, without the system following any link,
//! and the names that are opened are judged.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;

use portcullis_cell::folded_name;
use portcullis_core::trust::{DATA_FOLDER, KEPT_NAMES};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, readlinkat, statat};
use rustix::io::{Errno, Result};

/// The most symbolic links on one way, as on Linux.
const MAX_LINKS: usize = 40;

/// The longest path and the longest target of a link, in bytes, as on Linux.
const MAX_PATH_BYTES: usize = 4096;

/// The flags with which a folder on the way is opened: on Linux without the right to read it, which passing through
/// does not need.
#[cfg(target_os = "linux")]
const PASS_THROUGH: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const PASS_THROUGH: OFlags = OFlags::RDONLY;

/// The name in an open folder to which a path leads.
#[derive(Debug)]
pub(super) struct ResolvedName {
    /// The last name, or `.` for the folder itself. It has no slash behind it, with which the system would follow a
    /// link that has taken the place of a folder meanwhile.
    pub(super) name: String,
    /// True if the path ends with a slash, so that there is a folder or nothing.
    pub(super) is_folder: bool,
    /// The kind of the entry, a symbolic link only if the last name is not followed, or `None` if there is nothing.
    pub(super) kind: Option<FileType>,
    /// True if it has the name of a configuration or a data folder, or lies in a folder of such a name.
    pub(super) is_kept: bool,
    /// True if it is a data folder, or lies in one.
    pub(super) is_in_data_folder: bool,
}

impl ResolvedName {
    /// Finds the place to which a path leads from an open folder, and opens the folder around it, unless that is the
    /// folder itself. With `follow`, a symbolic link at the end is followed, too.
    ///
    /// # Errors
    /// `EPERM` for a path that leaves the folder, `ELOOP` for too many links, `ENAMETOOLONG` for a path that is too
    /// long, and the errors of the system.
    pub(super) fn find(root: &File, path: &str, follow: bool) -> Result<(Self, Option<File>)> {
        let mut way = Way { passed: Vec::new(), innermost: None, ahead: Vec::new(), links: 0 };
        way.go_on(path)?;
        let is_folder = path.ends_with('/');
        let name = loop {
            let Some(name) = way.ahead.pop() else { break ".".to_owned() };
            let folder = way.innermost.as_ref().unwrap_or(root);
            match name.as_str() {
                "." => {}
                ".." => way.go_back()?,
                _ if way.ahead.is_empty() => match link_at(folder, &name)? {
                    Some(target) if follow || is_folder => way.go_on(&target)?,
                    _ => break name,
                },
                _ => match openat(
                    folder,
                    &name,
                    PASS_THROUGH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                    Mode::empty(),
                ) {
                    Ok(opened) => way.enter(name, opened.into())?,
                    Err(Errno::LOOP | Errno::NOTDIR) => {
                        let target = link_at(folder, &name)?.ok_or(Errno::NOTDIR)?;
                        way.go_on(&target)?;
                    }
                    Err(error) => return Err(error),
                },
            }
        };
        let folder = way.innermost.as_ref().unwrap_or(root);
        let kind = match statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(about) => Some(FileType::from_raw_mode(about.st_mode)),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error),
        };
        if is_folder && kind.is_some_and(|kind| kind != FileType::Directory) {
            return Err(Errno::NOTDIR);
        }
        let names = || way.passed.iter().map(|(name, _)| name).chain([&name]);
        let (is_kept, is_in_data_folder) =
            (names().any(|name| is_kept(name)), names().any(|name| is_named(name, DATA_FOLDER)));
        Ok((Self { name, is_folder, kind, is_kept, is_in_data_folder }, way.innermost))
    }
}

/// Reports whether it is a name by which a broker finds a file that it trusts.
pub(super) fn is_kept(name: &str) -> bool {
    KEPT_NAMES.iter().any(|kept| is_named(name, kept))
}

fn is_named(name: &str, kept: &str) -> bool {
    folded_name(name.as_bytes()) == kept.as_bytes()
}

/// The way along a path. Only its innermost folder is open, so that a long one takes no more descriptors than a short
/// one.
struct Way {
    /// The names of the folders below the first, and what tells each from all others.
    passed: Vec<(String, FolderIdentity)>,
    /// The last of them, or `None` in the first folder.
    innermost: Option<File>,
    /// The names that are still to be passed, the last one first.
    ahead: Vec<String>,
    /// The number of links that were followed.
    links: usize,
}

impl Way {
    /// Puts a path before the rest of the way.
    fn go_on(&mut self, path: &str) -> Result<()> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        if path.starts_with('/') {
            return Err(Errno::PERM);
        }
        if path.len() >= MAX_PATH_BYTES {
            return Err(Errno::NAMETOOLONG);
        }
        if self.links > MAX_LINKS {
            return Err(Errno::LOOP);
        }
        self.links += 1;
        self.ahead.extend(path.split('/').rev().filter(|name| !name.is_empty()).map(str::to_owned));
        Ok(())
    }

    /// Goes into a folder of the innermost one.
    fn enter(&mut self, name: String, folder: File) -> Result<()> {
        self.passed.push((name, FolderIdentity::of(&folder)?));
        self.innermost = Some(folder);
        Ok(())
    }

    /// Leaves the innermost folder. The first one cannot be left, and a folder that was moved meanwhile leads nowhere.
    fn go_back(&mut self) -> Result<()> {
        let left = self.innermost.take().ok_or(Errno::PERM)?;
        self.passed.pop();
        if let Some((_, passed)) = self.passed.last() {
            let around: File =
                openat(&left, "..", PASS_THROUGH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?.into();
            if FolderIdentity::of(&around)? != *passed {
                return Err(Errno::NOENT);
            }
            self.innermost = Some(around);
        }
        Ok(())
    }
}

/// The device and the number of a folder there.
#[derive(PartialEq, Eq)]
struct FolderIdentity {
    device: u64,
    inode: u64,
}

impl FolderIdentity {
    fn of(folder: &File) -> Result<Self> {
        let about = folder.metadata().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(Self { device: about.dev(), inode: about.ino() })
    }
}

/// Returns the target of a symbolic link, or `None` if it is not one.
fn link_at(folder: &File, name: &str) -> Result<Option<String>> {
    match readlinkat(folder, name, Vec::new()) {
        Ok(target) => target.into_string().map(Some).map_err(|_| Errno::ILSEQ),
        Err(Errno::INVAL | Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn find(folder: &std::path::Path, path: &str, follow: bool) -> Result<ResolvedName> {
        ResolvedName::find(&File::open(folder).unwrap(), path, follow).map(|(place, _)| place)
    }

    #[test]
    fn a_place_is_judged_by_the_names_to_which_links_lead() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        fs::create_dir_all(folder.join("a/.portcullis")).unwrap();
        fs::write(folder.join("a/portcullis.toml"), "").unwrap();
        for (target, link) in
            [("a/.portcullis", "data"), ("../data", "a/up"), ("a/portcullis.toml", "conf"), ("a", "b")]
        {
            symlink(target, folder.join(link)).unwrap();
        }
        for path in ["a/.portcullis/x", "data/x", "data/", "a/up/x", "b/up/x", "b/../a/up/x", ".portcullis"] {
            let place = find(folder, path, true);
            assert!(place.as_ref().is_ok_and(|place| place.is_in_data_folder && place.is_kept), "{path}: {place:?}");
        }
        assert!(find(folder, "data", true).unwrap().is_in_data_folder);
        assert!(!find(folder, "data", false).unwrap().is_kept, "the link itself may be removed");
        let conf = find(folder, "conf", true).unwrap();
        assert!(conf.is_kept && !conf.is_in_data_folder && conf.kind == Some(FileType::RegularFile), "{conf:?}");
        let folder_by_slash = find(folder, "b/", true).unwrap();
        assert_eq!(folder_by_slash.name, "a", "the system would follow a link behind whose name there is a slash");
        for free in ["a", "b/new", "a/../new", ".", "./b/", "a//new"] {
            let place = find(folder, free, true).unwrap();
            assert!(!place.is_kept && !place.is_in_data_folder, "{free}: {place:?}");
        }
        for name in ["Portcullis.TOML", "portculli\u{17f}.toml", "portcullis.toml. ", ".PORTCULLIS"] {
            assert!(find(folder, name, true).unwrap().is_kept, "{name}");
        }
    }

    #[test]
    fn a_path_that_leaves_its_folder_or_never_ends_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("folder");
        fs::create_dir_all(folder.join("a")).unwrap();
        fs::write(folder.join("file"), "").unwrap();
        for (target, link) in [("..", "out"), ("/etc", "etc"), ("round", "round"), ("../../folder", "a/back")] {
            symlink(target, folder.join(link)).unwrap();
        }
        let long = "./".repeat(MAX_PATH_BYTES / 2);
        for (path, error) in [
            (&*long, Errno::NAMETOOLONG),
            ("..", Errno::PERM),
            ("a/../../folder", Errno::PERM),
            ("/etc", Errno::PERM),
            ("out/x", Errno::PERM),
            ("etc/passwd", Errno::PERM),
            ("a/back", Errno::PERM),
            ("round", Errno::LOOP),
            ("round/x", Errno::LOOP),
            ("file/x", Errno::NOTDIR),
            ("file/", Errno::NOTDIR),
            ("none/x", Errno::NOENT),
            ("", Errno::NOENT),
        ] {
            let refused = find(&folder, path, true).unwrap_err();
            assert_eq!(refused, error, "{path}");
        }
    }

    #[test]
    fn a_way_leads_back_through_the_folders_it_came_through_or_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
        fs::create_dir(dir.path().join(".portcullis")).unwrap();
        let root = File::open(dir.path()).unwrap();
        let mut way = Way { passed: Vec::new(), innermost: None, ahead: Vec::new(), links: 0 };
        for name in ["a", "b"] {
            let folder = way.innermost.as_ref().unwrap_or(&root);
            let opened = openat(folder, name, PASS_THROUGH | OFlags::DIRECTORY, Mode::empty()).unwrap();
            way.enter(name.to_owned(), opened.into()).unwrap();
        }
        // A program moves the folder in which the way is.
        fs::rename(dir.path().join("a/b"), dir.path().join(".portcullis/b")).unwrap();
        assert_eq!(way.go_back().unwrap_err(), Errno::NOENT);
        fs::rename(dir.path().join(".portcullis/b"), dir.path().join("a/b")).unwrap();
        let place = find(dir.path(), "a/b/c/../../new/../..", true);
        assert_eq!(place.unwrap_err(), Errno::NOENT, "there is no folder `new`");
        let place = find(dir.path(), "a/b/c/../../b/c/../../../.portcullis", true).unwrap();
        assert!(place.is_in_data_folder && place.name == ".portcullis", "{place:?}");
    }
}
