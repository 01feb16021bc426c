//! Reads only regular files. A cloned repository or an archive may have put a link to a device, or a named pipe, where
//! a file is expected: opening one never waits, and reading one ends at a limit, whatever size it reports.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

use super::NotPrivate;

/// The treatment of a path that is a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symlinks {
    /// The file that it leads to is opened: the user may keep the file elsewhere.
    Follow,
    /// It is refused: the folder that has it may not be the user's own work.
    Refuse,
}

/// Opens a regular file to read it. Returns `None` if there is no file.
///
/// # Errors
/// [`NotPrivate::Link`] and [`NotPrivate::Kind`] if it is something else; [`NotPrivate::Io`].
pub fn open(path: &Path, links: Symlinks) -> Result<Option<File>, NotPrivate> {
    match open_with(File::options().read(true), path, links) {
        Err(NotPrivate::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

/// Opens a regular file with options of the caller.
///
/// # Errors
/// As for [`open`], and [`NotPrivate::Io`] if there is no file and the options create none.
pub fn open_with(options: &mut OpenOptions, path: &Path, links: Symlinks) -> Result<File, NotPrivate> {
    // Opening must not block if the path is a named pipe.
    let flags = OFlags::NONBLOCK | if links == Symlinks::Refuse { OFlags::NOFOLLOW } else { OFlags::empty() };
    let not_a_file = || NotPrivate::Kind(path.display().to_string(), "file");
    let is_link = || std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    let file = options.custom_flags(flags.bits().cast_signed()).open(path).map_err(|error| match error.kind() {
        _ if links == Symlinks::Refuse && is_link() => NotPrivate::Link(path.display().to_string()),
        // Of a socket or of a pipe that nobody reads.
        _ if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => not_a_file(),
        _ => NotPrivate::io(path, error),
    })?;
    let metadata = file.metadata().map_err(|error| NotPrivate::io(path, error))?;
    if metadata.is_file() { Ok(file) } else { Err(not_a_file()) }
}

/// Reads a regular file of at most `max` bytes.
///
/// # Errors
/// As for [`open`]; if there is no file; or if it has more bytes.
pub fn read(path: &Path, links: Symlinks, max: u64) -> io::Result<Vec<u8>> {
    let file = open_with(File::options().read(true), path, links)?;
    let mut bytes = Vec::new();
    let read = file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if read as u64 > max {
        let cause = format!("it is larger than {max} bytes, and no file of its kind is");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, cause));
    }
    Ok(bytes)
}

/// Reads a regular file of at most `max` bytes that is UTF-8.
///
/// # Errors
/// As for [`read`]; or if it is not UTF-8.
pub fn read_text(path: &Path, links: Symlinks, max: u64) -> io::Result<String> {
    String::from_utf8(read(path, links, max)?).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        io::Error::new(io::ErrorKind::InvalidData, format!("it is not UTF-8 at byte {place}"))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_no_regular_file_is_never_read_whatever_size_it_says() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "text").unwrap();
        symlink(at("file"), at("link")).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let read = |name: &str, links| read_text(&at(name), links, 4).map_err(|error| error.to_string());
        for links in [Symlinks::Follow, Symlinks::Refuse] {
            assert_eq!(read("file", links), Ok("text".to_owned()));
            for name in ["pipe", "socket", "."] {
                let error = read(name, links).unwrap_err();
                assert!(error.contains("is not a file: remove it with `rm -r '"), "{name}: {error}");
            }
            assert!(read_text(&at("absent"), links, 4).is_err_and(|error| error.kind() == io::ErrorKind::NotFound));
            assert!(open(&at("absent"), links).unwrap().is_none());
            assert!(read_text(&at("file"), links, 3).unwrap_err().to_string().contains("larger than 3 bytes"));
        }
        assert_eq!(read("link", Symlinks::Follow), Ok("text".to_owned()));
        assert!(read("link", Symlinks::Refuse).unwrap_err().contains("is a symbolic link, which is not followed here"));
        assert!(read("zero", Symlinks::Follow).unwrap_err().contains("is not a file"));
        assert!(read("zero", Symlinks::Refuse).unwrap_err().contains("run `rm '"));
    }
}
