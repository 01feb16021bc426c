//! Files and folders that only the user who runs the broker can read or write.
//!
//! A file that others may write is refused and not repaired, because they may have written to it already.

pub mod regular_file;

use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use self::regular_file::Symlinks;
use crate::escape::shell_word;

/// The mode of private folders.
pub const FOLDER_MODE: u32 = 0o700;

/// The mode of private files.
pub const FILE_MODE: u32 = 0o600;

/// The reason why a file or folder is not private to this user, with the command that helps.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotPrivate {
    /// Others may read or write it.
    #[error(
        "{path} is open to other users (mode {mode:o}): run `chmod {wanted:o} {word}`, and replace what they may have read",
        word = shell_word(.path)
    )]
    Open {
        /// The file or folder.
        path: String,
        /// The mode that it has.
        mode: u32,
        /// The mode that it should have.
        wanted: u32,
    },
    /// It is a folder that several users share, such as `/tmp`, and can be no one's own.
    #[error(
        "{path} is a folder that users share (mode {mode:o}): name a folder of this user's own instead, in it or elsewhere"
    )]
    Shared {
        /// The folder.
        path: String,
        /// The mode that it has.
        mode: u32,
    },
    /// It belongs to another user.
    #[error(
        "{path} belongs to another user (uid {owner}): run `portcullis` as that user, or remove it with `rm -r {word}`",
        word = shell_word(.path)
    )]
    Owner {
        /// The file or folder.
        path: String,
        /// The user id of the owner.
        owner: u32,
    },
    /// It is a symbolic link.
    #[error(
        "{0} is a symbolic link, which is not followed here: run `rm {word}`, and put what it leads to in its place",
        word = shell_word(.0)
    )]
    Link(String),
    /// It is not a folder where a folder is expected, or not a file where a file is expected.
    #[error("{0} is not a {1}: remove it with `rm -r {word}`", word = shell_word(.0))]
    Kind(String, &'static str),
    /// The operating system reported an error.
    #[error("{path}: {error}")]
    Io {
        /// The file or folder.
        path: String,
        /// The error of the operating system.
        error: io::Error,
    },
}

impl NotPrivate {
    pub(crate) fn io(path: &Path, error: io::Error) -> Self {
        Self::Io { path: path.display().to_string(), error }
    }
}

/// An error of a file is reported behind the file's path, which is therefore left out.
impl From<NotPrivate> for io::Error {
    fn from(error: NotPrivate) -> Self {
        let text = error.to_string();
        match error {
            NotPrivate::Io { error, .. } => error,
            NotPrivate::Open { path, .. }
            | NotPrivate::Shared { path, .. }
            | NotPrivate::Owner { path, .. }
            | NotPrivate::Link(path)
            | NotPrivate::Kind(path, _) => Self::other(format!("it{}", text.strip_prefix(&path).unwrap_or(&text))),
        }
    }
}

/// Creates a folder with mode 0700 if it is missing, and checks that it is private.
///
/// # Errors
/// [`NotPrivate`]; an existing folder is left unchanged.
pub fn folder(path: &Path) -> Result<(), NotPrivate> {
    if !check_folder(path)? {
        let made = DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path);
        made.map_err(|error| NotPrivate::io(path, error))?;
        check_folder(path)?;
    }
    Ok(())
}

/// Checks that a folder is private: owned by this user, closed to all others, and not a symbolic link. Reports whether
/// it exists.
///
/// # Errors
/// [`NotPrivate`]
pub(crate) fn check_folder(path: &Path) -> Result<bool, NotPrivate> {
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(NotPrivate::io(path, error)),
    };
    if metadata.is_symlink() {
        return Err(NotPrivate::Link(path.display().to_string()));
    }
    if !metadata.is_dir() {
        return Err(NotPrivate::Kind(path.display().to_string(), "folder"));
    }
    check(path, &metadata, FOLDER_MODE).map(|()| true)
}

/// Checks a folder that earlier versions created with mode 0755 inside a private one, and makes it private, unless
/// others could write to it. A missing folder is not created.
///
/// # Errors
/// [`NotPrivate`]
pub fn narrow_folder(path: &Path) -> Result<(), NotPrivate> {
    match check_folder(path) {
        Err(NotPrivate::Open { mode, .. }) if mode & 0o022 == 0 => {
            let narrowed = std::fs::set_permissions(path, Permissions::from_mode(FOLDER_MODE));
            narrowed.map_err(|error| NotPrivate::io(path, error))
        }
        checked => checked.map(drop),
    }
}

/// Opens a file to read it, without following a symbolic link, and checks that it is private. Returns `None` if there
/// is no file.
///
/// # Errors
/// [`NotPrivate`]
pub fn open(path: &Path) -> Result<Option<File>, NotPrivate> {
    let Some(file) = regular_file::open(path, Symlinks::Refuse)? else { return Ok(None) };
    let metadata = file.metadata().map_err(|error| NotPrivate::io(path, error))?;
    check(path, &metadata, FILE_MODE)?;
    Ok(Some(file))
}

/// Checks that a path is not a symbolic link, or leads to nothing yet. A folder from a cloned repository may have
/// links, and writing through them changes files elsewhere.
///
/// # Errors
/// [`NotPrivate::Link`]
pub fn refuse_link(path: &Path) -> Result<(), NotPrivate> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => Err(NotPrivate::Link(path.display().to_string())),
        _ => Ok(()),
    }
}

/// Checks the owner and the mode of a file or folder.
///
/// # Errors
/// [`NotPrivate::Shared`], [`NotPrivate::Owner`] and [`NotPrivate::Open`].
pub fn check(path: &Path, metadata: &Metadata, wanted: u32) -> Result<(), NotPrivate> {
    let shared = is_shared(path, metadata);
    let path = path.display().to_string();
    if shared {
        return Err(NotPrivate::Shared { path, mode: metadata.mode() & 0o7777 });
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(NotPrivate::Owner { path, owner: metadata.uid() });
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 == 0 { Ok(()) } else { Err(NotPrivate::Open { path, mode, wanted }) }
}

/// Reports whether a folder is there for several users, so that neither closing nor removing it is good advice: one
/// with the sticky bit, or one of the system's, which root owns and others may read. Root's own folders count only at
/// the top, such as `/srv`.
fn is_shared(path: &Path, metadata: &Metadata) -> bool {
    const STICKY: u32 = 0o1000;
    const ROOT: u32 = 0;
    let is_open = metadata.mode() & 0o077 != 0;
    let is_top = path.is_absolute() && path.ancestors().count() <= 2;
    let is_of_system = metadata.uid() == ROOT && is_open && (is_top || !rustix::process::geteuid().is_root());
    metadata.is_dir() && (metadata.mode() & STICKY != 0 || is_of_system)
}

/// Replaces a private file as a whole: a reader sees either the old content or the new one.
///
/// # Errors
/// [`NotPrivate::Io`].
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), NotPrivate> {
    let folder = path.parent().unwrap_or(Path::new("."));
    // Temporary files are created with mode 0600.
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|error: io::Error| NotPrivate::io(path, error))
}

/// Takes an exclusive lock on a file, which is held until the returned file is dropped, and creates the file if there
/// is none. Blocks while another process holds the lock. The content of the file stays.
///
/// # Errors
/// [`NotPrivate::Link`] and [`NotPrivate::Kind`] if the path leads elsewhere, or to no file; [`NotPrivate::Io`].
pub fn lock(path: &Path) -> Result<File, NotPrivate> {
    let file = lock_file(path)?;
    file.lock().map_err(|error| NotPrivate::io(path, error))?;
    Ok(file)
}

/// Opens a file for locking, and creates it if it does not exist. Its content stays, and no symbolic link is followed.
///
/// # Errors
/// As for [`lock`].
pub fn lock_file(path: &Path) -> Result<File, NotPrivate> {
    // Also to read: a named pipe that nobody reads could not be distinguished from other errors.
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
    regular_file::open_with(&mut options, path, Symlinks::Refuse)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_folder_that_is_open_or_a_link_or_of_another_user_is_refused_with_the_command_to_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/state");
        assert!(!check_folder(&path).unwrap());
        folder(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        fs::set_permissions(&path, Permissions::from_mode(0o750)).unwrap();
        let refused = |path: &Path| folder(path).unwrap_err().to_string();
        assert!(refused(&path).contains(&format!("chmod 700 '{}'", path.display())), "{}", refused(&path));
        narrow_folder(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        fs::set_permissions(&path, Permissions::from_mode(0o770)).unwrap();
        assert!(narrow_folder(&path).unwrap_err().to_string().contains("chmod 700"), "others could write into it");
        fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        let link = dir.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(refused(&link).contains(&format!("rm '{}'", link.display())), "{}", refused(&link));
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(refused(&file).contains("is not a folder"), "{}", refused(&file));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(4242), None).unwrap();
            assert!(refused(&path).contains("another user (uid 4242)"), "{}", refused(&path));
        }
    }

    #[test]
    fn a_folder_that_users_share_is_neither_to_be_closed_nor_to_be_removed() {
        let dir = tempfile::tempdir().unwrap();
        let sticky = dir.path().join("sticky");
        folder(&sticky).unwrap();
        fs::set_permissions(&sticky, Permissions::from_mode(0o1777)).unwrap();
        // The system's own folder is root's, and open to everybody.
        for path in [&sticky, Path::new("/usr")] {
            let refused = folder(path).unwrap_err().to_string();
            assert!(refused.contains("name a folder of this user's own instead"), "{refused}");
            assert!(!refused.contains("chmod") && !refused.contains("rm -r"), "{refused}");
        }
    }

    #[test]
    fn a_file_that_is_open_a_link_or_a_pipe_is_refused_and_a_private_one_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let refused = |name: &str| open(&at(name)).unwrap_err().to_string();
        assert!(open(&at("absent")).unwrap().is_none());
        fs::write(at("key"), "").unwrap();
        fs::set_permissions(at("key"), Permissions::from_mode(0o640)).unwrap();
        assert!(refused("key").contains("chmod 600"), "{}", refused("key"));
        fs::set_permissions(at("key"), Permissions::from_mode(0o600)).unwrap();
        assert!(open(&at("key")).unwrap().is_some());
        symlink(at("key"), at("link")).unwrap();
        assert!(refused("link").contains("symbolic link"), "{}", refused("link"));
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RUSR).unwrap();
        assert!(refused("pipe").contains("is not a file"), "{}", refused("pipe"));
    }

    #[test]
    fn a_lock_empties_no_file_and_is_taken_through_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("victim"), "precious").unwrap();
        drop(lock(&at("victim")).unwrap());
        symlink(at("victim"), at("link")).unwrap();
        let refused = |name: &str| lock(&at(name)).unwrap_err().to_string();
        assert!(refused("link").contains(&format!("run `rm '{}'`", at("link").display())), "{}", refused("link"));
        assert_eq!(fs::read_to_string(at("victim")).unwrap(), "precious");
        symlink(at("absent"), at("dangling")).unwrap();
        assert!(refused("dangling").contains("symbolic link"), "{}", refused("dangling"));
        assert!(!at("absent").exists());
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RWXU).unwrap();
        assert!(refused("pipe").contains("is not a file"), "{}", refused("pipe"));
        let linked = refuse_link(&at("link")).unwrap_err().to_string();
        assert!(linked.contains("/link is a symbolic link"), "{linked}");
        refuse_link(&at("victim")).and_then(|()| refuse_link(&at("absent"))).unwrap();
    }
}
