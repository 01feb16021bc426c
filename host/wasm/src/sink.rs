//! A sink: an audit plugin and the file that its lines are written to, or code of the program that embeds the broker.

use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

struct Out {
    path: String,
    file: File,
    /// True if the last write was interrupted, perhaps in the middle of a line.
    torn: AtomicBool,
}

impl Sink {
    pub(super) fn open(
        identity: PluginIdentity,
        path: &Path,
        instance_pool: InstancePool<SinkWorld>,
    ) -> Result<Self, PluginError> {
        let opened = open(path);
        let file = path.display().to_string();
        let opened = opened.map_err(|error| {
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
            PluginError::File { plugin: identity.name.clone(), file: file.clone(), reason }
        })?;
        let out = Arc::new(Out { path: file, file: opened, torn: AtomicBool::new(false) });
        Ok(Self { identity: Arc::new(identity), code: SinkCode::Component(instance_pool, out) })
    }

    pub(super) fn native(identity: PluginIdentity, sink: Arc<dyn NativeSink>) -> Self {
        Self { identity: Arc::new(identity), code: SinkCode::Native(sink) }
    }

    /// Returns which plugin it is.
    #[must_use]
    pub fn identity(&self) -> &PluginIdentity {
        &self.identity
    }

    /// Reports whether the plugin failed by itself, in its sandbox, so that it will do so again with the same records.
    /// An error that it returns is none of these failures, nor is a failure of native code: a receiver may be down.
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
            PluginFailure::new(FailureCode::Error, format!("{} cannot be written: {error}", out.path))
        };
        let file = Arc::clone(out);
        let written = tokio::task::spawn_blocking(move || file.append(lines)).await;
        written.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
    }
}

/// Opens the file for appending, and creates it for this user alone. No symbolic link is followed in any part of the
/// path: anyone who could change a link would decide what is written where.
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
    fn append(&self, mut lines: String) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        // A line that was interrupted on a full disk must not merge with the next one.
        if self.torn.load(Ordering::Acquire) {
            lines.insert(0, '\n');
        }
        self.torn.store(true, Ordering::Release);
        (&self.file).write_all(lines.as_bytes())?;
        self.torn.store(false, Ordering::Release);
        self.file.sync_data()
    }
}
