//! Checks that no other user could have written a configuration: it starts programs, so it is not used otherwise.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use portcullis_core::escape::{escape_hidden, shell_word};
use rustix::fs::{StatVfsMountFlags, fstatvfs, statvfs};

use super::error::ConfigError;

/// The owner of files that come with the system.
const ROOT: u32 = 0;

/// The mode bit that lets everybody write.
const OTHERS_WRITE: u32 = 0o002;

/// The mode bits that let the group or everybody write.
const ANY_OTHER_WRITES: u32 = 0o022;

/// The sticky bit: in a folder that has it, users can remove or rename only their own files.
const STICKY: u32 = 0o1000;

/// Checks that an opened configuration belongs to the user who runs this program or to root, that no other user may
/// write it, and that no folder on the way to it lets everybody replace it. For root, only root's own files pass. On a
/// file system that is mounted read-only nobody can write, whatever the modes are.
///
/// # Errors
/// A [`ConfigError`] with the command to run.
pub(super) fn check(file: &Path, opened: &File) -> Result<(), ConfigError> {
    let about = opened.metadata().map_err(|error| super::unreadable(file, &error))?;
    let shown = escape_hidden(&file.to_string_lossy()).into_owned();
    let user = rustix::process::geteuid().as_raw();
    if about.uid() != user && about.uid() != ROOT {
        let message =
            format!("{shown} belongs to another user (uid {}), who can make it start any program", about.uid());
        let help = format!("look at what it says, then copy it, or run `chown {user} {}` as root", shell_word(&shown));
        return Err(ConfigError::without_place(message, help));
    }
    let writable = |about: &Metadata, bits: u32| about.mode() & bits != 0;
    let read_only = || fstatvfs(opened).is_ok_and(|about| about.f_flag.contains(StatVfsMountFlags::RDONLY));
    if about.is_file() && writable(&about, ANY_OTHER_WRITES) && !read_only() {
        let mode = about.mode() & 0o7777;
        let message =
            format!("{shown} can be written by other users (mode {mode:o}), who can make it start any program");
        return Err(ConfigError::without_place(
            message,
            format!("look at what it says, then run `chmod go-w {}`", shell_word(&shown)),
        ));
    }
    // A pipe of the shell, for example, is in no folder.
    let Ok(real) = file.canonicalize() else { return Ok(()) };
    for folder in real.ancestors().skip(1) {
        let Ok(about) = folder.metadata() else { continue };
        let read_only = || statvfs(folder).is_ok_and(|about| about.f_flag.contains(StatVfsMountFlags::RDONLY));
        if writable(&about, OTHERS_WRITE) && !writable(&about, STICKY) && !read_only() {
            let place = escape_hidden(&folder.to_string_lossy()).into_owned();
            let message = format!("everybody can replace {shown} with another file, as everybody may write {place}");
            return Err(ConfigError::without_place(
                message,
                format!("run `chmod o-w {word}`, or `chmod +t {word}`", word = shell_word(&place)),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, chown};

    use crate::Config;

    #[test]
    fn a_configuration_that_others_own_or_may_write_is_refused_with_the_command_to_run() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/b");
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("portcullis.toml");
        fs::write(&file, "").unwrap();
        let mode = |path: &std::path::Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let load = || Config::load(Some(&file)).map(drop).map_err(|error| error.to_string());
        mode(&file, 0o644);
        load().unwrap();
        for open in [0o664, 0o646] {
            mode(&file, open);
            let error = load().unwrap_err();
            assert!(error.contains(&format!("chmod go-w '{}'", file.display())), "{error}");
        }
        mode(&file, 0o600);
        // The folder itself is private, but a folder above it can be replaced.
        let above = dir.path().join("a");
        mode(&above, 0o777);
        let error = load().unwrap_err();
        assert!(error.contains(&format!("chmod o-w '{}'", above.display())), "{error}");
        mode(&above, 0o1777);
        load().unwrap();
        if rustix::process::geteuid().is_root() {
            chown(&file, Some(4242), None).unwrap();
            let error = load().unwrap_err();
            assert!(error.contains("another user (uid 4242)") && error.contains("chown 0"), "{error}");
        }
    }
}
