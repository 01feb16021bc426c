//! The two ways in which a plugin fails: it cannot be loaded, or it fails at run time.

use std::fmt;

use crate::digest::Digest;
use crate::oci::OciError;

/// Why a plugin cannot be loaded. Each text names the plugin and the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    /// The engine could not be made; nothing can be loaded.
    #[error("the plugin engine cannot start: {0}")]
    Engine(String),
    /// The folder for compiled code cannot be used safely.
    #[error("compiled plugins cannot be kept in {folder}: {reason}")]
    Cache {
        /// The folder.
        folder: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No built-in plugin of that name.
    #[error("there is no plugin `builtin:{name}`; there are {known}")]
    UnknownBuiltin {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// The file cannot be read.
    #[error("{plugin} cannot be read: {reason}")]
    Read {
        /// The file.
        plugin: String,
        /// What the system says.
        reason: String,
    },
    /// It cannot be had from its registry.
    #[error("{plugin} cannot be fetched: {error}")]
    Fetch {
        /// The plugin.
        plugin: String,
        /// What stands in the way.
        error: OciError,
    },
    /// It is not what it was pinned to.
    #[error("{plugin} has changed: it is {found} now, and {by} {pinned}; {way_out}")]
    Changed {
        /// The plugin.
        plugin: String,
        /// What it is now.
        found: Digest,
        /// What it must be.
        pinned: Digest,
        /// Who says so.
        by: &'static str,
        /// What to do if that is wanted.
        way_out: &'static str,
    },
    /// It is WebAssembly, and this program has no compiler.
    #[error(
        "{plugin} is not compiled, and this program has no compiler: run `portcullis plugin compile {plugin} FILE.cwasm` where \
         there is one, and name what it prints"
    )]
    NoCompiler {
        /// The plugin.
        plugin: String,
    },
    /// It was compiled for another engine.
    #[error(
        "{plugin} was not compiled for this program: {reason}; compile it again with a `portcullis` of this version"
    )]
    OtherEngine {
        /// The plugin.
        plugin: String,
        /// In what they differ.
        reason: String,
    },
    /// Compiled code that nothing vouches for.
    #[error(
        "{plugin} holds compiled code, which runs unchecked: write `{plugin}@sha256:…` with the digest that `portcullis plugin \
         compile` printed"
    )]
    Unpinned {
        /// The plugin.
        plugin: String,
    },
    /// The file holds something else.
    #[error("{plugin} is not a WebAssembly component: {reason}")]
    NotAComponent {
        /// The plugin.
        plugin: String,
        /// What it is, or where it breaks.
        reason: String,
    },
    /// A component for something else.
    #[error("{plugin} is no {wanted} plugin: it exports {exports}, and must export `{interface}`")]
    WrongWorld {
        /// The plugin.
        plugin: String,
        /// What it is configured as.
        wanted: &'static str,
        /// What it exports.
        exports: String,
        /// What it would have to export.
        interface: String,
    },
    /// A component that cannot be a source.
    #[error("{plugin} is no source: {why}")]
    NoSource {
        /// The component.
        plugin: String,
        /// What it is, and what it would have to be.
        why: String,
    },
    /// It is granted what it has no way to use.
    #[error("{plugin} is given `{key}`, and imports no {import} to see it with: take `{key}` out")]
    Useless {
        /// The component.
        plugin: String,
        /// The key of the configuration.
        key: &'static str,
        /// What it would have to import.
        import: String,
    },
    /// It has nothing that takes settings.
    #[error("{plugin} is given `settings`, which only components of the `tools` world take: use `env`")]
    NoSettings {
        /// The component.
        plugin: String,
    },
    /// Built against a contract of another track.
    #[error("{plugin} is built for {package}; this host serves {served}: build it again with the current contract")]
    OtherTrack {
        /// The plugin.
        plugin: String,
        /// The package and version it was built for.
        package: String,
        /// The track that is served.
        served: &'static str,
    },
    /// It imports what the configuration does not grant.
    #[error("{plugin} imports {imports}")]
    NotGranted {
        /// The plugin.
        plugin: String,
        /// Which they are, and for each the line to add, or that no grant exists.
        imports: String,
    },
    /// The configuration grants something that does not exist.
    #[error("`{grant}` in the grants of {plugin} is no capability; there is `log`, and `key-value` for sources")]
    UnknownGrant {
        /// The plugin.
        plugin: String,
        /// The word.
        grant: String,
    },
    /// It names the right interface, and the functions in it differ.
    #[error("{plugin} does not fit the contract: {reason}")]
    Contract {
        /// The plugin.
        plugin: String,
        /// Which function or type.
        reason: String,
    },
    /// It needs more than any plugin gets.
    #[error("{plugin} needs {needs} to start; the limit is {limit}")]
    TooLarge {
        /// The plugin.
        plugin: String,
        /// What it needs.
        needs: String,
        /// What it may have.
        limit: String,
    },
    /// Its own `configure` says that the settings are wrong.
    #[error("{plugin} refuses its settings: {reason}")]
    Settings {
        /// The plugin.
        plugin: String,
        /// The plugin's own words.
        reason: String,
    },
    /// It failed while it was started for the first time.
    #[error("{plugin} failed at its start: {failure}")]
    Start {
        /// The plugin.
        plugin: String,
        /// How.
        failure: Failure,
    },
    /// The file of a sink cannot be opened.
    #[error("{plugin} cannot write to {file}: {reason}")]
    File {
        /// The plugin.
        plugin: String,
        /// The file.
        file: String,
        /// What the system says.
        reason: String,
    },
}

/// A plugin failed at run time. Whoever asked it for a decision denies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct Failure {
    /// For machines: policies, the ledger, tests.
    pub code: FailureCode,
    /// For the operator. Holds no payload of the call, except where the plugin itself put it in its error.
    pub detail: String,
}

impl Failure {
    pub(crate) fn new(code: FailureCode, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }
}

/// In which way a plugin failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureCode {
    /// A trap: a panic, an exhausted stack, memory out of bounds.
    Trap,
    /// It did not finish in its time.
    Deadline,
    /// It wanted more memory or a larger table than it may have.
    Memory,
    /// What it gave back is too large, or not what the contract says.
    Output,
    /// It called the host more often than one decision needs.
    HostCalls,
    /// It said itself that it cannot decide.
    Error,
    /// Every instance that the host may run is in use.
    Busy,
    /// What it is granted cannot be opened.
    Start,
}

impl FailureCode {
    /// The code as the ledger and the agent see it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trap => "plugin-trap",
            Self::Deadline => "plugin-deadline",
            Self::Memory => "plugin-memory",
            Self::Output => "plugin-output",
            Self::HostCalls => "plugin-host-calls",
            Self::Error => "plugin-error",
            Self::Busy => "plugin-busy",
            Self::Start => "plugin-start",
        }
    }
}

impl fmt::Display for FailureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
