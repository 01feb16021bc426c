//! Why a broker cannot be built.

use crate::catalog::{FilterError, LockError};
use crate::ledger::LedgerError;
use crate::name::SourceName;
use crate::plugin::PluginError;
use crate::secret::SecretError;
use crate::source::SourceError;

/// Why a broker cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// There is nothing to serve.
    #[error("no source is configured, so there is nothing to serve: add a `[sources.NAME]`")]
    NoSources,
    /// A plugin cannot be loaded, or rejects its settings.
    #[error(transparent)]
    Plugin(#[from] PluginError),
    /// The ledger cannot be opened.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A secret is missing, or its file cannot be read.
    #[error("source `{source_name}`: {error}")]
    Secret {
        /// Which source wants it.
        source_name: SourceName,
        /// What is wrong.
        error: SecretError,
    },
    /// The store of secrets cannot be opened.
    #[error(transparent)]
    Secrets(#[from] SecretError),
    /// The lock is damaged.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A list holds a glob that is none.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// A source's configuration cannot be used.
    #[error("source `{source_name}`: {error}")]
    Source {
        /// Which.
        source_name: SourceName,
        /// What is wrong.
        error: SourceError,
    },
    /// Spans cannot be exported as configured.
    #[error("`[telemetry]`: {0}")]
    Telemetry(String),
    /// The socket for the command line cannot be opened.
    #[error("control socket in {folder:?}: {error}")]
    Control {
        /// The data folder.
        folder: std::path::PathBuf,
        /// What is wrong.
        error: String,
    },
}
