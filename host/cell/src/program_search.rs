//! Finds programs on this machine: in the broker's own search path and the user's home.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use portcullis_core::trust::DATA_FOLDER;

use super::CellError;
use super::credentials::{is_credential_file, is_credential_folder};

/// Folders of a home that hold files of many programs, or whatever somebody sent.
const SHARED_FOLDERS: [&str; 13] = [
    ".cache",
    ".config",
    ".local",
    ".local/share",
    ".local/state",
    "Desktop",
    "Documents",
    "Downloads",
    "Music",
    "Pictures",
    "Public",
    "Templates",
    "Videos",
];

/// Folders of a home in which version managers install programs.
const TOOLCHAINS: [&str; 15] = [
    ".asdf",
    ".fnm",
    ".local/share/fnm",
    ".local/share/mise",
    ".local/share/pipx",
    ".local/share/uv",
    ".nodenv",
    ".nvm",
    ".pyenv",
    ".rbenv",
    ".volta",
    "anaconda3",
    "mambaforge",
    "miniconda3",
    "miniforge3",
];

/// The broker's search path for programs, and the folders that no cell mounts as a whole.
#[derive(Debug, Clone)]
pub struct ProgramSearch {
    /// The broker's `PATH`.
    pub search: OsString,
    /// The user's home. No cell mounts all of it.
    pub home: Option<PathBuf>,
    /// The broker's data folder and configuration, which no cell mounts either.
    pub own: Vec<PathBuf>,
}

impl ProgramSearch {
    /// Returns the programs of this machine, as the broker's environment describes it.
    #[expect(clippy::disallowed_methods, reason = "where programs are found; no source sees these variables")]
    pub fn of_this_machine(own: &[PathBuf]) -> Self {
        Self {
            search: std::env::var_os("PATH").unwrap_or_default(),
            home: std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute()),
            own: own.to_vec(),
        }
    }

    /// Returns the absolute path of a program, found as a shell would. Links are kept: a program that is called `npx`
    /// behaves as npx because of its name.
    ///
    /// # Errors
    /// [`CellError::Program`] if there is no such executable file.
    pub fn resolve(&self, program: &str) -> Result<PathBuf, CellError> {
        if program.contains('/') {
            let path = std::path::absolute(program).unwrap_or_else(|_| PathBuf::from(program));
            let why = match std::fs::metadata(&path) {
                Ok(_) if is_program(&path) => return Ok(path),
                Err(error) => format!("program {} cannot be read: {error}; correct `command`", path.display()),
                Ok(_) => format!("{} is not an executable file; correct `command` or chmod +x it", path.display()),
            };
            return Err(CellError::Program(why));
        }
        self.find(program, |_| true).ok_or_else(|| {
            CellError::Program(format!(
                "program `{program}` was not found in {} (the broker's PATH); install it or give its full path",
                self.search.to_string_lossy()
            ))
        })
    }

    /// Returns the first program of that name in the search path for which `wanted` is true.
    pub fn find(&self, program: &str, wanted: impl Fn(&Path) -> bool) -> Option<PathBuf> {
        // A relative entry of the search path would mean another program in each working directory.
        let folders = std::env::split_paths(&self.search).filter(|folder| folder.is_absolute());
        folders.map(|folder| folder.join(program)).find(|path| is_program(path) && wanted(path))
    }

    /// Reports whether a program is in the broker's search path, where an administrator installs programs, or where a
    /// version manager does.
    pub(crate) fn is_installed(&self, program: &Path) -> bool {
        let is_searched = std::env::split_paths(&self.search).any(|folder| program.parent() == Some(&folder));
        let is_administered =
            ["/opt", "/nix/store", "/gnu/store", "/snap"].iter().any(|folder| program.starts_with(folder));
        let below = self.home.as_ref().and_then(|home| program.strip_prefix(home).ok());
        is_searched
            || is_administered
            || below.is_some_and(|below| TOOLCHAINS.iter().any(|folder| below.starts_with(folder)))
    }

    /// Reports whether a folder contains more than a program and its libraries: the home, the broker's files, or all of
    /// a top folder.
    pub(crate) fn is_too_wide(&self, folder: &Path) -> bool {
        const TOP: [&str; 9] = ["/", "/etc", "/home", "/media", "/mnt", "/opt", "/srv", "/tmp", "/var"];
        let kept = self.home.iter().chain(&self.own);
        let of_home = |home: &PathBuf| {
            folder.strip_prefix(home).is_ok_and(|below| SHARED_FOLDERS.iter().any(|name| below == Path::new(name)))
        };
        TOP.iter().any(|top| folder == Path::new(top))
            || self.home.iter().chain(&self.real_home()).any(of_home)
            || kept.into_iter().any(|kept| kept.starts_with(folder))
    }

    /// Reports whether no command opens a file by naming it as its script: one that holds credentials, or one of the
    /// broker's.
    pub(crate) fn is_withheld(&self, file: &Path) -> bool {
        let is_own = |own: &PathBuf| file.starts_with(own) || own.canonicalize().is_ok_and(|own| file.starts_with(own));
        let in_data = file.components().any(|part| part.as_os_str() == DATA_FOLDER);
        in_data || self.is_credential(file) || self.own.iter().any(is_own)
    }

    /// Reports whether a file holds credentials or decides which programs start.
    pub(crate) fn is_credential(&self, file: &Path) -> bool {
        is_credential_file(file, self.real_home().as_deref())
    }

    /// Reports whether a folder holds credentials, so that it is not opened because a script is in it.
    pub(crate) fn holds_credentials(&self, folder: &Path) -> bool {
        is_credential_folder(folder, self.real_home().as_deref())
    }

    fn real_home(&self) -> Option<PathBuf> {
        self.home.as_ref().map(|home| home.canonicalize().unwrap_or_else(|_| home.clone()))
    }
}

pub(crate) fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_missing_program_names_itself_and_where_it_was_looked_for() {
        let programs = ProgramSearch { search: "/nowhere:relative".into(), home: None, own: Vec::new() };
        let why = programs.resolve("no-such-server").unwrap_err().to_string();
        assert!(why.contains("`no-such-server`") && why.contains("/nowhere"), "{why}");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("data");
        std::fs::write(&file, "").unwrap();
        let why = programs.resolve(file.to_str().unwrap()).unwrap_err().to_string();
        assert!(why.contains("not an executable file"), "{why}");
    }

    #[test]
    fn no_program_takes_the_home_or_the_brokers_files_with_it() {
        let programs =
            ProgramSearch { search: OsString::new(), home: Some("/home/me".into()), own: vec!["/srv/a/data".into()] };
        for wide in ["/", "/home", "/home/me", "/srv/a", "/srv/a/data"] {
            assert!(programs.is_too_wide(Path::new(wide)), "{wide}");
        }
        for narrow in ["/home/me/server", "/srv/b", "/opt/tool"] {
            assert!(!programs.is_too_wide(Path::new(narrow)), "{narrow}");
        }
    }
}
