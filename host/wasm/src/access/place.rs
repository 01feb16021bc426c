//! The place to which a component's path leads, found one name at a time.
//!
//! The names in a path say little: a symbolic link may lie on the way, which came with a repository, or which a program
//! puts there at this moment. So each folder is opened by its own name, without the system following anything, and
//! the names of what is opened are judged.

use std::fs::File;

use portcullis_cell::folded_name;
use portcullis_core::trust::{DATA_FOLDER, KEPT_NAMES};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, readlinkat, statat};
use rustix::io::{Errno, Result};

/// The most symbolic links on one way, as on Linux.
const MAX_LINKS: usize = 40;

/// The flags with which a folder on the way is opened: on Linux without the right to read it, which passing through does not need.
#[cfg(target_os = "linux")]
const PASS_THROUGH: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const PASS_THROUGH: OFlags = OFlags::RDONLY;

/// A name in an open folder.
#[derive(Debug)]
pub(super) struct Place {
    /// The last name, with a slash behind it if the path has one, or `.` for the folder itself.
    pub(super) name: String,
    /// The kind of what is there, a symbolic link only if the last name is not followed, or `None` if nothing is.
    pub(super) kind: Option<FileType>,
    /// True if it has the name of a configuration or a data folder, or lies in a folder of such a name.
    pub(super) is_kept: bool,
    /// True if it is a data folder, or lies in one.
    pub(super) is_in_data_folder: bool,
}

impl Place {
    /// Finds the place to which a path leads from an open folder, and opens the folder around it, unless that is the
    /// folder itself. With `follow`, a symbolic link at the end is followed, too.
    ///
    /// # Errors
    /// `EPERM` for a path that leaves the folder, `ELOOP` for too many links, and what the system says.
    pub(super) fn find(root: &File, path: &str, follow: bool) -> Result<(Self, Option<File>)> {
        let mut way = Way { folders: Vec::new(), ahead: Vec::new(), links: 0 };
        way.go_on(path)?;
        let slash = path.ends_with('/');
        let name = loop {
            let Some(name) = way.ahead.pop() else { break ".".to_owned() };
            let folder = way.folders.last().map_or(root, |(_, folder)| folder);
            match name.as_str() {
                "." => {}
                ".." => way.go_back()?,
                _ if way.ahead.is_empty() => match link_at(folder, &name)? {
                    Some(target) if follow || slash => way.go_on(&target)?,
                    _ => break name,
                },
                _ => match openat(
                    folder,
                    &name,
                    PASS_THROUGH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                    Mode::empty(),
                ) {
                    Ok(opened) => way.folders.push((name, opened.into())),
                    Err(Errno::LOOP | Errno::NOTDIR) => {
                        let target = link_at(folder, &name)?.ok_or(Errno::NOTDIR)?;
                        way.go_on(&target)?;
                    }
                    Err(error) => return Err(error),
                },
            }
        };
        let folder = way.folders.last().map_or(root, |(_, folder)| folder);
        let kind = match statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(about) => Some(FileType::from_raw_mode(about.st_mode)),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error),
        };
        let names = || way.folders.iter().map(|(name, _)| name).chain([&name]);
        let (is_kept, is_in_data_folder) =
            (names().any(|name| is_kept(name)), names().any(|name| is_named(name, DATA_FOLDER)));
        let name = if slash && name != "." { name + "/" } else { name };
        Ok((Self { name, kind, is_kept, is_in_data_folder }, way.folders.pop().map(|(_, folder)| folder)))
    }
}

/// Reports whether it is a name by which a broker finds a file that it trusts.
pub(super) fn is_kept(name: &str) -> bool {
    KEPT_NAMES.iter().any(|kept| is_named(name, kept))
}

fn is_named(name: &str, kept: &str) -> bool {
    folded_name(name.as_bytes()) == kept.as_bytes()
}

/// The way along a path.
struct Way {
    /// The open folders below the first, with their names.
    folders: Vec<(String, File)>,
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
        if self.links > MAX_LINKS {
            return Err(Errno::LOOP);
        }
        self.links += 1;
        self.ahead.extend(path.split('/').rev().filter(|name| !name.is_empty()).map(str::to_owned));
        Ok(())
    }

    /// Leaves the innermost folder. The first one cannot be left.
    fn go_back(&mut self) -> Result<()> {
        self.folders.pop().map(drop).ok_or(Errno::PERM)
    }
}

/// Returns the target of a symbolic link, or `None` if it is none.
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

    fn find(folder: &std::path::Path, path: &str, follow: bool) -> Result<Place> {
        Place::find(&File::open(folder).unwrap(), path, follow).map(|(place, _)| place)
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
        for (path, error) in [
            ("..", Errno::PERM),
            ("a/../../folder", Errno::PERM),
            ("/etc", Errno::PERM),
            ("out/x", Errno::PERM),
            ("etc/passwd", Errno::PERM),
            ("a/back", Errno::PERM),
            ("round", Errno::LOOP),
            ("round/x", Errno::LOOP),
            ("file/x", Errno::NOTDIR),
            ("none/x", Errno::NOENT),
            ("", Errno::NOENT),
        ] {
            let refused = find(&folder, path, true).unwrap_err();
            assert_eq!(refused, error, "{path}");
        }
    }
}
