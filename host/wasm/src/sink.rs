//! A sink: an audit plugin and the file that its lines are written to, or code of the program that embeds the broker.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portcullis_core::sync::Mutex;

use super::PluginIdentity;
use super::error::{FailureCode, PluginError, PluginFailure};
use super::instance_pool::InstancePool;
use super::native::{self, NativeSink};
use super::v0_1::SinkWorld;

/// A loaded sink, which receives the ledger's records.
#[derive(Clone)]
pub struct Sink {
    identity: Arc<PluginIdentity>,
    code: SinkCode,
}

/// The code that takes a sink's records.
#[derive(Clone)]
enum SinkCode {
    /// A component that makes lines of records, and the file that they are written to.
    Component(InstancePool<SinkWorld>, Arc<Out>),
    /// Code of the program that embeds the broker.
    Native(Arc<dyn NativeSink>),
}

/// The file of a sink. It is created again if somebody has moved or removed it, as log rotation does.
struct Out {
    path: PathBuf,
    opened: Mutex<OpenedFile>,
}

struct OpenedFile {
    file: File,
    /// True if the last write was interrupted, perhaps in the middle of a line.
    torn: bool,
}

impl Sink {
    pub(super) fn open(
        identity: PluginIdentity,
        path: &Path,
        instance_pool: InstancePool<SinkWorld>,
    ) -> Result<Self, PluginError> {
        let out = Out::open(path).map_err(|error| {
            // For a link the system only reports that there are too many.
            let really = path.parent().and_then(|folder| folder.canonicalize().ok()).zip(path.file_name());
            let really = really.map(|(folder, name)| folder.join(name)).filter(|really| really != path);
            let reason = match really {
                _ if path.is_symlink() => {
                    "it is a symbolic link, which is not followed: name the file itself".to_owned()
                }
                Some(really) => format!("there is a symbolic link in it: write {}", really.display()),
                None => error.to_string(),
            };
            PluginError::File { plugin: identity.name.clone(), file: path.display().to_string(), reason }
        })?;
        Ok(Self { identity: Arc::new(identity), code: SinkCode::Component(instance_pool, Arc::new(out)) })
    }

    pub(super) fn native(identity: PluginIdentity, sink: Arc<dyn NativeSink>) -> Self {
        Self { identity: Arc::new(identity), code: SinkCode::Native(sink) }
    }

    /// Returns which plugin it is.
    #[must_use]
    pub fn identity(&self) -> &PluginIdentity {
        &self.identity
    }

    /// Reports whether the plugin itself failed, in its sandbox, so that it will do so again with the same records. An
    /// error that it returns is not such a failure, nor is a failure of native code: a receiver may be down.
    #[must_use]
    pub fn fails_by_itself(&self, failure: &PluginFailure) -> bool {
        use FailureCode::{Busy, Deadline, Error, HostCalls, Memory, Output, Start, Trap};
        match failure.code {
            Trap | Deadline | Memory | Output | HostCalls => matches!(self.code, SinkCode::Component(..)),
            Error | Busy | Start => false,
        }
    }

    /// Hands over a batch of records. After a return without an error, the lines that a plugin made of it are on
    /// disk. After an error usually none of them is written, and the batch must be delivered again. If the future is
    /// dropped, the batch may still be written.
    ///
    /// # Errors
    /// [`PluginFailure`], with [`FailureCode::Error`] if the file cannot be written.
    pub async fn deliver(&self, records: Vec<String>) -> Result<(), PluginFailure> {
        let (instance_pool, out) = match &self.code {
            SinkCode::Component(instance_pool, out) => (instance_pool, out),
            SinkCode::Native(sink) => return native::deliver(&**sink, &records).await,
        };
        let lines = instance_pool.take().await?.deliver(&records).await?;
        let failed = |error: &dyn fmt::Display| {
            PluginFailure::new(FailureCode::Error, format!("{} cannot be written: {error}", out.path.display()))
        };
        let file = Arc::clone(out);
        let written = tokio::task::spawn_blocking(move || file.append(lines)).await;
        written.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
    }
}

/// Opens the file for appending, and creates it private to this user. No symbolic link is followed in any part of the
/// path: anyone who could change a link would decide where the records are written.
#[cfg(target_os = "linux")]
fn open(path: &Path) -> io::Result<File> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY;
    Ok(openat2(CWD, path, flags, Mode::RUSR | Mode::WUSR, ResolveFlags::NO_SYMLINKS)?.into())
}

/// Opens the file on systems without a system call that refuses links in the whole path: the path is
/// checked for them first.
#[cfg(not(target_os = "linux"))]
fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;

    if path.parent().map(Path::canonicalize).transpose()?.as_deref() != path.parent() {
        return Err(io::Error::other("there is a link in the path"));
    }
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    File::options().append(true).create(true).mode(0o600).custom_flags(no_follow).open(path)
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Out {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), opened: Mutex::new(OpenedFile { file: open(path)?, torn: false }) })
    }

    fn append(&self, mut lines: String) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut opened = self.opened.lock();
        if !opened.is_at(&self.path)? {
            tracing::info!(file = %self.path.display(), "the file of a sink was moved or removed, and is made anew");
            *opened = OpenedFile { file: open(&self.path)?, torn: false };
        }
        // A line that was interrupted on a full disk must not merge with the next one.
        if opened.torn {
            lines.insert(0, '\n');
        }
        opened.torn = true;
        opened.file.write_all(lines.as_bytes())?;
        opened.torn = false;
        opened.file.sync_data()
    }
}

impl OpenedFile {
    /// Reports whether this path still leads to the file.
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let own = self.file.metadata()?;
        Ok(fs::symlink_metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino())))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_file_that_was_moved_or_removed_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        // Links are followed in no part of the path.
        let folder = folder.path().canonicalize().unwrap();
        let (path, moved) = (folder.join("calls.jsonl"), folder.join("calls.jsonl.1"));
        let out = Out::open(&path).unwrap();
        out.append("a\n".to_owned()).unwrap();
        out.append("b\n".to_owned()).unwrap();
        fs::rename(&path, &moved).unwrap();
        out.append("c\n".to_owned()).unwrap();
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!((read(&moved), read(&path)), ("a\nb\n".to_owned(), "c\n".to_owned()));
        fs::remove_file(&path).unwrap();
        out.append("d\n".to_owned()).unwrap();
        assert_eq!(read(&path), "d\n");
    }
}
