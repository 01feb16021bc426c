//! The errors with which building a broker fails.

use std::io;
use std::path::Path;

use crate::catalog::FilterError;
use crate::config::{Config, most_similar, setting_line, type_hint};
use crate::escape::shell_word;
use crate::ledger::LedgerError;
use crate::lockfile::LockError;
use crate::name::SourceName;
use crate::plugin::PluginError;
use crate::private::NotPrivate;
use crate::secret::SecretError;
use crate::source::SourceError;

/// An error that says why a broker cannot be built.
///
/// # Example
/// ```
/// # async fn build(config: portcullis::Config) {
/// use portcullis::{Broker, BuildError, Launcher};
/// match Broker::build(config, Launcher::SelfExec).await {
///     Err(BuildError::NoSources) => eprintln!("add a source first"),
///     Err(error) => eprintln!("{error}"),
///     Ok(broker) => broker.shutdown().await,
/// }
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// There is nothing to serve.
    #[error("no source is configured, so there is nothing to serve: add a `[sources.NAME]`")]
    NoSources,
    /// Every source is disabled.
    #[error(
        "every configured source has `enabled = false`, so there is nothing to serve: run `portcullis enable NAME`"
    )]
    AllDisabled,
    /// The program was started as the launcher of a source, and its `main` has not become that launcher.
    #[error(
        "this program was started as the launcher of a source and builds a broker instead: call \
         `portcullis::main_if_asked()` as the first statement of `main`, or give `Broker::build` a `Launcher::Path`"
    )]
    LauncherForgotten,
    /// The plugins cannot be run.
    #[error(transparent)]
    Plugin(#[from] PluginError),
    /// A plugin of the configuration cannot be loaded, or rejects its settings.
    #[error("{place}: {error}{}", way_out(error))]
    PluginAt {
        /// The entry of the configuration: the file, if there is one, and the list and the position in it, or the
        /// source.
        place: String,
        /// The error of the plugin.
        error: Box<PluginError>,
    },
    /// The program added two of the same role under one name.
    #[error("the program adds a second {role} under the name `{name}`: give each a name of its own")]
    NativeTwice {
        /// The role: `policy`, `sink` or `source`.
        role: &'static str,
        /// The name.
        name: String,
    },
    /// The configuration does not name a native part that the program added.
    #[error("the program brings the {role} `{name}`, and the configuration does not use it: add {line}")]
    NativeUnused {
        /// The role: `policy`, `sink` or `source`.
        role: &'static str,
        /// The name.
        name: String,
        /// The line to add, and where.
        line: String,
    },
    /// The configuration names a source of the program that the program did not add.
    #[error(
        "source `{source_name}`: this program brings no source `{name}`; one that embeds the broker adds it with \
         `BrokerBuilder::source`"
    )]
    NativeMissing {
        /// The source in the configuration.
        source_name: SourceName,
        /// The name under which the program would add it.
        name: String,
    },
    /// The ledger cannot be opened.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A secret is missing, or its file cannot be read.
    #[error("source `{source_name}`: {error}")]
    Secret {
        /// The source that needs it.
        source_name: SourceName,
        /// The error of the secret, or of its file.
        error: SecretError,
    },
    /// The store of secrets cannot be opened.
    #[error(transparent)]
    Secrets(#[from] SecretError),
    /// The lock is damaged.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A list holds a pattern that is not a valid glob.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// A source's configuration cannot be used.
    #[error("source `{source_name}`: {error}")]
    Source {
        /// The source.
        source_name: SourceName,
        /// The reason why the configuration cannot be used.
        error: SourceError,
    },
    /// A folder of the broker is not private to this user.
    #[error(transparent)]
    Private(#[from] NotPrivate),
    /// A source may write to a file that the broker loads or writes.
    #[error("{what} {} lies in {}, which source `{source_name}` may write: {hint}, or grant smaller folders", .file.display(), .folder.display())]
    Writable {
        /// The purpose of the file.
        what: &'static str,
        /// The file.
        file: std::path::PathBuf,
        /// The source with the grant.
        source_name: SourceName,
        /// The granted folder or file.
        folder: std::path::PathBuf,
        /// The advice to the user.
        hint: &'static str,
    },
    /// Questions cannot be announced as configured.
    #[error("`[questions]`: {0}")]
    Questions(String),
    /// Spans cannot be exported as configured.
    #[error("`[telemetry]`: {0}")]
    Telemetry(String),
    /// Records cannot be sent as configured.
    #[error("{0}")]
    Sinks(String),
    /// The socket for the command line cannot be opened.
    #[error(
        "control socket in {}: {error}; choose a `data-dir` in which this user can create files and sockets",
        .folder.display()
    )]
    Control {
        /// The data folder.
        folder: std::path::PathBuf,
        /// The reason why the socket cannot be opened.
        error: String,
    },
}

impl BuildError {
    /// Returns the error of the plugin at this position of a list of the configuration, such as "`[[policies]]`".
    pub(crate) fn of_listed(config: &Config, list: &str, position: usize, error: PluginError) -> Self {
        let line = match (&error, &config.file) {
            (PluginError::Settings { reason, .. }, Some(file)) => line_of(file, list, position, reason),
            _ => None,
        };
        Self::PluginAt { place: listed_place(config, list, position, line), error: error.into() }
    }

    /// Returns the error of the collector at this position of those sinks that are servers.
    pub(crate) fn of_collector(config: &Config, position: usize, reason: &str) -> Self {
        Self::Sinks(format!("{}: {reason}", listed_place(config, "`[[sinks]]` without a `plugin`", position, None)))
    }
}

/// Returns a position in a list of the configuration in words, with the file if there is one, and the line if it is
/// known.
fn listed_place(config: &Config, list: &str, position: usize, line: Option<usize>) -> String {
    let entry = format!("{list} number {}", position + 1);
    match (&config.file, line) {
        (Some(file), Some(line)) => format!("{}:{line}, {entry}", file.display()),
        (Some(file), None) => format!("{}, {entry}", file.display()),
        (None, _) => entry,
    }
}

/// Returns the line of the setting that an error of a plugin is about. The file may have been changed since it was read.
fn line_of(file: &Path, list: &str, position: usize, reason: &str) -> Option<usize> {
    let name = list.split(['[', ']']).find(|word| word.chars().all(|c| c.is_ascii_lowercase()) && !word.is_empty())?;
    setting_line(&std::fs::read_to_string(file).ok()?, name, position, reason)
}

/// Returns what to write or to do after an error of a plugin, if that follows from the error.
fn way_out(error: &PluginError) -> String {
    match error {
        PluginError::UnknownBuiltin { name, known } => {
            let near = most_similar(name, known.iter().copied());
            near.map(|near| format!("; did you mean `builtin:{near}`?")).unwrap_or_default()
        }
        PluginError::File { file, .. } => match Path::new(file).parent() {
            Some(folder) if !folder.exists() => {
                format!("; make the folder with `mkdir -p {}`", shell_word(&folder.to_string_lossy()))
            }
            _ => String::new(),
        },
        PluginError::Read { error, .. } if error.kind() == io::ErrorKind::NotFound => {
            "; build it first, or correct the path".to_owned()
        }
        error => type_hint(&error.to_string()).map(|hint| format!("; {hint}")).unwrap_or_default(),
    }
}
