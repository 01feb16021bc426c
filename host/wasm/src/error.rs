//! The two ways in which a plugin fails: it cannot be loaded, or it fails while it runs.

use std::{fmt, io};

/// An error that tells why a plugin cannot be loaded. Each message names the plugin and the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    /// The engine cannot be created, so no plugin can be loaded.
    #[error("the plugin engine cannot start: {0}")]
    Engine(String),
    /// The cache folder for compiled code cannot be used safely.
    #[error("compiled plugins cannot be kept in {folder}: {reason}")]
    Cache {
        /// The folder.
        folder: String,
        /// The fault of the folder.
        reason: String,
    },
    /// There is no built-in plugin of that name.
    #[error("there is no plugin `builtin:{name}`; there are {}", listed(known))]
    UnknownBuiltin {
        /// The name in the configuration.
        name: String,
        /// The names that exist, without `builtin:`.
        known: Vec<&'static str>,
    },
    /// The program that embeds the broker brings no native policy or sink of that name.
    #[error(
        "this program has no {role} `native:{name}`; {known}; one that embeds the broker adds it to its `BrokerBuilder`"
    )]
    UnknownNative {
        /// The role: `policy` or `sink`.
        role: &'static str,
        /// The name in the configuration.
        name: String,
        /// The names that exist, in words.
        known: String,
    },
    /// Something native is configured in a place or with keys that are for components.
    #[error("{plugin} is part of the program that embeds the broker: {why}")]
    Native {
        /// The plugin.
        plugin: String,
        /// The reason why it does not fit, with what to do.
        why: &'static str,
    },
    /// The file cannot be read.
    #[error("{plugin} cannot be read: {error}")]
    Read {
        /// The file.
        plugin: String,
        /// The error of the system.
        error: io::Error,
    },
    /// The plugin cannot be fetched from its registry.
    #[error("{plugin} cannot be fetched: {reason}")]
    Fetch {
        /// The plugin.
        plugin: String,
        /// The reason why the plugin cannot be fetched.
        reason: String,
    },
    /// The plugin does not match the digest that it is pinned to.
    #[error("{plugin} has changed: it is {found} now, and {by} {pinned}; {hint}")]
    Changed {
        /// The plugin.
        plugin: String,
        /// The digest that it has now, as `sha256:…`.
        found: String,
        /// The digest that it must have, as `sha256:…`.
        pinned: String,
        /// The origin of the pin, as the message names it.
        by: &'static str,
        /// The advice for a change that is wanted.
        hint: &'static str,
    },
    /// A key that signs plugins cannot be used.
    #[error("the key {file} of `plugin-keys` cannot be used: {reason}")]
    Key {
        /// The file of the key.
        file: String,
        /// The reason why the key cannot be used.
        reason: String,
    },
    /// None of the configured keys has signed the plugin.
    #[error(
        "{plugin} is not signed by a key of `plugin-keys` ({keys}): {reason}; if it is to be trusted, sign it with \
         `portcullis plugin sign {plugin} --key FILE`"
    )]
    Unsigned {
        /// The plugin.
        plugin: String,
        /// The fault of the signature, or that there is none.
        reason: String,
        /// The files of the keys.
        keys: String,
    },
    /// The plugin is WebAssembly, and this program has no compiler.
    #[error(
        "{plugin} is not compiled, and this program has no compiler: run `portcullis plugin compile {plugin} FILE.cwasm` where \
         there is one, and name what it prints"
    )]
    NoCompiler {
        /// The plugin.
        plugin: String,
    },
    /// The plugin was compiled for another engine.
    #[error(
        "{plugin} was not compiled for this program: {reason}; compile it again with a `portcullis` of this version"
    )]
    OtherEngine {
        /// The plugin.
        plugin: String,
        /// The reason why the code does not fit this program's engine.
        reason: String,
    },
    /// The file holds compiled code, and no digest vouches for it.
    #[error(
        "{plugin} holds compiled code, which runs unchecked: write `{plugin}@sha256:…` with the digest that `portcullis plugin \
         compile` printed"
    )]
    Unpinned {
        /// The plugin.
        plugin: String,
    },
    /// The file is not a WebAssembly component.
    #[error("{plugin} is not a WebAssembly component: {reason}")]
    NotAComponent {
        /// The plugin.
        plugin: String,
        /// The reason why the file is not a component: its actual kind, or the place where it is malformed.
        reason: String,
    },
    /// The component is a plugin of another kind.
    #[error("{plugin} is no {wanted} plugin: it exports {exports}, and must export `{interface}`")]
    WrongWorld {
        /// The plugin.
        plugin: String,
        /// The kind of plugin that it is configured as.
        wanted: &'static str,
        /// The names of its exports.
        exports: String,
        /// The interface that it must export.
        interface: String,
    },
    /// The component cannot be a source.
    #[error("{plugin} is not a source: {why}")]
    NoSource {
        /// The component.
        plugin: String,
        /// The reason why the component cannot be a source.
        why: String,
    },
    /// The component is granted something that it cannot use.
    #[error("{plugin} is given `{key}`, but does not import {import}, without which it cannot use it: remove `{key}`")]
    Useless {
        /// The component.
        plugin: String,
        /// The key in the configuration.
        key: &'static str,
        /// The interface that it must import.
        import: String,
    },
    /// The component is given settings, and nothing in it takes them.
    #[error("{plugin} is given `settings`, which only components of the `tools` world take: use `env`")]
    NoSettings {
        /// The component.
        plugin: String,
    },
    /// The plugin's description of itself cannot be used.
    #[error(
        "{plugin} describes itself in a way that cannot be used: {reason}; `portcullis plugin describe` writes a description"
    )]
    Description {
        /// The plugin.
        plugin: String,
        /// The fault of the description.
        reason: String,
    },
    /// The settings do not fit the schema in the plugin's description.
    #[error(
        "{plugin} describes other settings: `{setting}`: {reason}; `portcullis plugin inspect {plugin}` shows which it takes"
    )]
    OtherSettings {
        /// The plugin.
        plugin: String,
        /// The setting, with its place.
        setting: String,
        /// The reason why the setting does not fit.
        reason: String,
    },
    /// The plugin was built against another track of the contract.
    #[error("{plugin} is built for {package}; this host serves {served}: build it again with the current contract")]
    OtherTrack {
        /// The plugin.
        plugin: String,
        /// The package and version it was built for.
        package: String,
        /// The track that is served.
        served: &'static str,
    },
    /// The plugin imports something that the configuration does not grant.
    #[error("{plugin} imports {imports}")]
    NotGranted {
        /// The plugin.
        plugin: String,
        /// The imports, and for each what to add to the configuration, or that no grant exists.
        imports: String,
    },
    /// The configuration grants a capability that does not exist.
    #[error(
        "`{grant}` in the grants of {plugin} is not a capability; there are `key-value` and `caller`, for sources, and `log` needs no grant"
    )]
    UnknownGrant {
        /// The plugin.
        plugin: String,
        /// The word in `grant`.
        grant: String,
    },
    /// The plugin exports the right interface, but its functions differ from the contract.
    #[error("{plugin} does not fit the contract: {reason}")]
    Contract {
        /// The plugin.
        plugin: String,
        /// The function or type that differs.
        reason: String,
    },
    /// The plugin needs more than any plugin may have.
    #[error("{plugin} needs {needs} to start; the limit is {limit}")]
    TooLarge {
        /// The plugin.
        plugin: String,
        /// The resources that the plugin needs, in words.
        needs: String,
        /// The limit that it exceeds, in words.
        limit: String,
    },
    /// The plugin's `configure` refused the settings.
    #[error("{plugin} refuses its settings: {reason}")]
    Settings {
        /// The plugin.
        plugin: String,
        /// The plugin's own error message.
        reason: String,
    },
    /// The plugin failed when its first instance was started.
    #[error("{plugin} failed at its start: {code}: {detail}")]
    Start {
        /// The plugin.
        plugin: String,
        /// The code of the failure, such as `plugin-trap`.
        code: &'static str,
        /// The details of the failure.
        detail: String,
    },
    /// A sink's file cannot be opened.
    #[error("{plugin} cannot write to {file}: {reason}")]
    File {
        /// The plugin.
        plugin: String,
        /// The file.
        file: String,
        /// The system's error message.
        reason: String,
    },
}

/// Returns the names of built-in plugins as the configuration has them.
fn listed(known: &[&str]) -> String {
    known.iter().map(|known| format!("`builtin:{known}`")).collect::<Vec<_>>().join(", ")
}

/// A failure of a plugin while it runs. The caller that asked it for a decision must deny.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct PluginFailure {
    /// The code, for machines: policies, the ledger, tests.
    pub code: FailureCode,
    /// The details, for the operator. They contain no payload of the call, unless the plugin's own error does.
    pub detail: String,
}

impl PluginError {
    /// Returns the error of a plugin that failed at its start.
    pub(crate) fn start(plugin: String, failure: PluginFailure) -> Self {
        Self::Start { plugin, code: failure.code.as_str(), detail: failure.detail }
    }
}

impl PluginFailure {
    /// Returns a failure with its code and what happened.
    pub fn new(code: FailureCode, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }
}

/// The ways in which a running plugin fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureCode {
    /// A trap: a panic, an exhausted stack, memory out of bounds.
    Trap,
    /// It exceeded its processor time or its timeout.
    Deadline,
    /// It asked for more memory, a larger table or more handles than it may have.
    Memory,
    /// Its answer is too large, or does not follow the contract.
    Output,
    /// It called the host more often than one call may.
    HostCalls,
    /// It returned an error, or the file of a sink cannot be written.
    Error,
    /// No slot, instance or descriptor became free in time.
    Busy,
    /// Something that it is granted cannot be opened.
    Start,
}

impl FailureCode {
    /// Returns the code as the ledger and the agent see it.
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
