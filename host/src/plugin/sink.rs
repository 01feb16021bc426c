//! A sink: an audit plugin and the file that its lines go to.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Identity;
use super::error::{Failure, FailureCode, PluginError};
use super::stock::Stock;
use super::v0_1::SinkWorld;

/// Receives the ledger's records.
#[derive(Clone)]
pub struct Sink {
    identity: Arc<Identity>,
    stock: Stock<SinkWorld>,
    out: Arc<Out>,
}

struct Out {
    path: String,
    file: File,
    /// The last write broke off, perhaps within a line.
    torn: AtomicBool,
}

impl Sink {
    pub(super) fn open(identity: Identity, path: &Path, stock: Stock<SinkWorld>) -> Result<Self, PluginError> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let path = path.display().to_string();
        let file = file.map_err(|error| PluginError::File {
            plugin: identity.name.clone(),
            file: path.clone(),
            reason: error.to_string(),
        })?;
        let out = Arc::new(Out { path, file, torn: AtomicBool::new(false) });
        Ok(Self { identity: Arc::new(identity), stock, out })
    }

    /// Which plugin it is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Hands over a batch of records. The lines that the plugin makes of it are on disk when this returns without an error;
    /// with one, usually none of them is written, and the batch has to come again. If the future is dropped, the batch may
    /// be written all the same.
    ///
    /// # Errors
    /// [`Failure`]; [`FailureCode::Error`] also for a file that cannot be written.
    pub async fn deliver(&self, records: Vec<String>) -> Result<(), Failure> {
        let lines = self.stock.take().await?.deliver(&records).await?;
        let out = self.out.clone();
        let failed = |error: &dyn fmt::Display| {
            Failure::new(FailureCode::Error, format!("{} cannot be written: {error}", self.out.path))
        };
        let written = tokio::task::spawn_blocking(move || out.append(lines)).await;
        written.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
    }
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
        // A line that broke off on a full disk must not swallow the next one.
        if self.torn.load(Ordering::Acquire) {
            lines.insert(0, '\n');
        }
        self.torn.store(true, Ordering::Release);
        (&self.file).write_all(lines.as_bytes())?;
        self.torn.store(false, Ordering::Release);
        self.file.sync_data()
    }
}
