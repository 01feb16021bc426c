//! The configuration, `portcullis.toml`, parsed strictly into types that uphold every invariant.
//!
//! The `Raw` types (the file as written, read by strict serde) become a [`Config`] (validated values) in one step that
//! collects every problem. This step does not ask whether programs and hosts exist, and looks at the disk only to point
//! out a relative argument that would not be found.

mod build;
mod builder;
mod callers;
mod cell;
mod digest;
mod edit;
mod effects;
mod error;
mod find;
mod group;
pub mod import;
mod ledger;
mod literal;
mod oauth;
mod other_configs;
mod owner;
mod place;
mod plugin;
mod profile;
mod questions;
mod quota;
mod raw;
mod raw_profile;
mod raw_source;
mod read;
mod scan;
mod search;
mod secret_uses;
mod secret_values;
mod serve;
mod sink;
mod source;
mod syslog;
mod tables;
mod telemetry;
#[cfg(test)]
mod tests;
mod tool_sources;
mod value;
mod variable;
mod wrap;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portcullis_core::name::{ProfileName, SourceName};
use portcullis_core::protocol::Era;
use portcullis_core::secret::ConfigValue;

pub use builder::ConfigBuilder;
pub use callers::{CallerConfig, JwtConfig};
pub use cell::CellConfig;
pub use edit::{EditError, NewSource, add_source, add_to_cell, comment_on_cell, remove_source, set_value};
pub use effects::data_dir_switch;
pub use error::{ConfigError, ConfigProblem, most_similar, type_hint};
pub use find::{ConfigCandidate, TrustStatus, find_text, known_data_dir, real_file, user_trust};
pub use group::Membership;
pub use ledger::{Durability, LedgerConfig, WitnessConfig};
pub use literal::LiteralVariable;
pub use oauth::{OAuthClient, OAuthConfig};
pub use other_configs::PossibleWriter;
pub use place::setting_line;
pub use plugin::{PluginConfig, PluginRef};
pub use profile::{
    Approve, Destructive, Detail, Exposure, Images, Instructions, Links, ProfileConfig, Schemas, StructuredContent,
};
pub use questions::{QuestionsConfig, WebhookConfig};
pub use quota::{BudgetConfig, ConcurrencyConfig, Rate};
pub use scan::ScanMode;
pub use search::{environment_variable, named_by_environment, no_home, user_config_dir, user_data_dir, user_state_dir};
pub use secret_uses::uses_of_secret;
pub use secret_values::{looks_secret, secret_arguments};
pub use serve::ServeConfig;
pub use sink::RemoteSinkConfig;
pub use source::{OWN_HEADERS, TIMEOUT};
pub use syslog::SyslogAddress;
pub use tables::{PluginTable, ProfileTable, ServeTable, SourceTable};
pub use telemetry::TelemetryConfig;
pub use wrap::WrapOptions;

/// The largest configuration file, in bytes: a thousand times an ordinary one.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// The complete configuration of a broker. Paths are absolute.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// The file it was read from, or `None` for a configuration made in memory.
    pub file: Option<PathBuf>,
    /// The data folder: ledger, lock file, packages, sockets. Created with mode 0700.
    pub data_dir: PathBuf,
    /// The user's state folder, which keeps compiled code. No configuration key sets it: [`Config::load`] uses
    /// `portcullis` in `$XDG_STATE_HOME` or `~/.local/state`. `None` keeps compiled code in memory only.
    pub state_dir: Option<PathBuf>,
    /// The settings of the HTTP front.
    #[doc(hidden)]
    pub serve: ServeConfig,
    /// The ways in which people hear of questions, in addition to the agent's own.
    #[doc(hidden)]
    pub questions: QuestionsConfig,
    /// The collector to which spans are sent, or `None` to record none.
    #[doc(hidden)]
    pub telemetry: Option<TelemetryConfig>,
    /// The longest time that an ask waits for a person before the call is denied.
    #[doc(hidden)]
    pub ask_timeout: Duration,
    /// The settings of the ledger.
    #[doc(hidden)]
    pub ledger: LedgerConfig,
    /// The largest message that is read, in bytes. A larger one fails its call, and the error states its size.
    #[doc(hidden)]
    pub max_message: usize,
    /// The files with the public keys that sign plugins. If there are any, a plugin that none of them signed is not
    /// loaded.
    #[doc(hidden)]
    pub plugin_keys: Vec<PathBuf>,
    /// The sources, in name order.
    #[doc(hidden)]
    pub sources: BTreeMap<SourceName, SourceConfig>,
    /// The sources with `enabled = false`, which are neither started nor shown.
    #[doc(hidden)]
    pub disabled: BTreeMap<SourceName, SourceConfig>,
    /// Policy plugins, in the order of the file.
    #[doc(hidden)]
    pub policies: Vec<PluginConfig>,
    /// Transform plugins, in the order of the file.
    #[doc(hidden)]
    pub transforms: Vec<PluginConfig>,
    /// Approval plugins, in the order of the file.
    #[doc(hidden)]
    pub approvals: Vec<PluginConfig>,
    /// Audit plugins, in the order of the file.
    #[doc(hidden)]
    pub sinks: Vec<PluginConfig>,
    /// Servers to which the broker itself sends records, in the order of the file.
    #[doc(hidden)]
    pub remote_sinks: Vec<RemoteSinkConfig>,
    /// The profiles. `default` always exists.
    #[doc(hidden)]
    pub profiles: BTreeMap<ProfileName, ProfileConfig>,
}

impl Config {
    /// Reads the named file, or else `./portcullis.toml`, or else `portcullis/portcullis.toml` in `$XDG_CONFIG_HOME` or
    /// `~/.config`. A file that was only found in the working directory is used only if the user has trusted it.
    ///
    /// # Errors
    /// [`ConfigError`]: as for [`Config::parse`], or there is no such file, or it is not trusted.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        ConfigCandidate::load(path)?.into_usable()
    }

    /// Parses the text of a file. `file` appears in messages, and relative paths start at its folder; it is not opened.
    ///
    /// # Errors
    /// [`ConfigError`]: bad TOML, or else the first unknown key or wrong type of each table, or else every value that
    /// is not valid.
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        let refuse = |problems| ConfigError::of(problems, Some(file), text);
        let raw = read::read(text).map_err(refuse)?;
        let absolute = std::path::absolute(file).map_err(|error| unreadable(file, &error))?;
        let absolute = value::normal(&absolute);
        let base = absolute.parent().unwrap_or(Path::new("/")).to_owned();
        build::build(&raw, Some(absolute), &base).map_err(refuse)
    }

    /// Returns the configuration of one wrapped command, without a file: everything is checked as if it were in one.
    ///
    /// # Errors
    /// [`ConfigError`] with every problem found, or if the user has no home folder.
    #[doc(hidden)]
    pub fn for_wrap(wrap: &WrapOptions) -> Result<Self, ConfigError> {
        Ok(Self { state_dir: user_state_dir(), ..wrap::config(wrap)? })
    }

    /// Returns the folder of the file, or `None` for a configuration made in memory.
    #[doc(hidden)]
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.file.as_deref().and_then(Path::parent)
    }
}

/// Returns the JSON Schema of `portcullis.toml`, for editors.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(raw::RawConfig).to_value()
}

fn unreadable(file: &Path, error: &std::io::Error) -> ConfigError {
    let shown = file.to_string_lossy();
    let message = format!("{} cannot be read: {error}", portcullis_core::escape::escape_hidden(&shown));
    ConfigError::without_place(message, "name another one with `--config FILE`")
}

/// One source: `[sources.NAME]`.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct SourceConfig {
    /// The name of the source.
    pub name: SourceName,
    /// The kind of source, and what leads to it.
    pub endpoint: Endpoint,
    /// The style in which the source's tools are named for the agent.
    pub names: Naming,
    /// Labels that policies can read.
    pub tags: Vec<String>,
    /// The labels of the source's results, or `None` for those that follow from its cell.
    pub labels: Option<Vec<String>>,
    /// Hosts to which links in the source's results may lead, in addition to its own and those of its cell.
    pub link_hosts: Vec<String>,
    /// The group under whose name the source's tools are offered.
    pub group: Option<Membership>,
    /// The source's rank in its group, 0 to 100: members with a higher priority are called first.
    pub priority: u8,
    /// True unless the source is in [`Config::disabled`].
    pub enabled: bool,
    /// True if a session fails when this source fails. Otherwise the session begins without it.
    pub required: bool,
    /// True if the source starts with the broker instead of with the first session.
    pub eager: bool,
    /// The only era of MCP that is spoken with the source, or `None` for the era of the agent if the source speaks it.
    pub era: Option<Era>,
    /// True if the source's own hints may lower the risk of its tools.
    pub trust_annotations: bool,
    /// The parts of an agent's `_meta` that are passed to the source: keys, and `user_context` and `request_id` of
    /// `deps`.
    pub context: Vec<String>,
    /// Globs over the exposed names of the tools that are shown, or `None` for all that the profile's trust admits.
    pub allow: Option<Vec<String>>,
    /// Globs over the exposed names of the tools that are hidden; wins over `allow`.
    pub deny: Vec<String>,
    /// The files, hosts and resources that the source may use.
    pub cell: CellConfig,
    /// The timeout of one call, including the time in which it waits for its turn.
    pub timeout: Duration,
    /// The limits on the calls that the source handles at once and that wait for it, or `None` for no limit.
    pub concurrency: Option<ConcurrencyConfig>,
    /// The largest number of connections at a time that belong to one session, or one call if each has its own: 1 to
    /// 256.
    pub max_connections: usize,
    /// The mode of discovery: whether sessions follow changes of the source's tools.
    pub discovery: ToolListUpdates,
    /// The consequence of findings in the source's definitions and instructions.
    pub scan: ScanMode,
    /// The lifecycle of a connection: whether it outlives a call.
    pub lifecycle: ConnectionReuse,
    /// The time for which an unused connection is kept.
    pub idle: Duration,
    /// The largest message, in bytes: [`Config::max_message`].
    pub max_message: usize,
}

/// The reaction of a session when a source announces that its tools have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub enum ToolListUpdates {
    /// The session keeps the tools that it began with.
    #[default]
    Snapshot,
    /// The session fetches the tools again.
    Live,
}

/// The lifecycle of a connection to a source: whether it outlives a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub enum ConnectionReuse {
    /// The connection is kept open and supervised.
    #[default]
    Warm,
    /// Each call has its own connection, and its own process if the source is a program.
    PerCall,
}

/// The kind of a source and what leads to it.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub enum Endpoint {
    /// A program that speaks MCP over stdio.
    Command {
        /// Program and arguments; never a shell string.
        argv: Vec<String>,
        /// The working directory, or `None` for a private home.
        #[serde(serialize_with = "digest::paths")]
        cwd: Option<PathBuf>,
        /// Environment variables, in addition to the PATH, HOME, LANG and TMPDIR that the broker sets.
        env: BTreeMap<String, ConfigValue>,
    },
    /// A server that speaks streamable HTTP.
    Url {
        /// The address: `http` or `https`.
        #[serde(serialize_with = "digest::text")]
        url: url::Url,
        /// Headers that are sent with every request.
        headers: BTreeMap<String, ConfigValue>,
        /// The settings with which a person logs in to the server, if it requires that.
        oauth: OAuthConfig,
        /// True if loopback and private addresses may be reached.
        dangerous_allow_private: bool,
        /// The transport.
        transport_kind: HttpTransportKind,
    },
    /// A WebAssembly component.
    Component {
        /// The component: a file, a built-in one or a reference to a registry.
        component: PluginRef,
        /// The settings that its `configure` receives.
        settings: serde_json::Value,
        /// Names of the capabilities that it may import.
        grant: Vec<String>,
        /// All environment variables that it sees.
        env: BTreeMap<String, ConfigValue>,
        /// The command-line arguments that it sees behind the source's name.
        args: Vec<String>,
    },
    /// A part of the program that embeds the broker, in no cell.
    Native {
        /// The name under which the program adds it.
        name: String,
    },
}

/// The transport that carries messages to a `url`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub enum HttpTransportKind {
    /// Streamable HTTP, or the older HTTP with SSE if the server refuses streamable HTTP.
    #[default]
    Detect,
    /// Streamable HTTP.
    Http,
    /// HTTP with SSE (2024-11-05).
    Sse,
}

/// The style in which a source's tools are named for the agent.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub enum Naming {
    /// `source__tool`: the name of the source, then the tool's own name.
    #[default]
    Source,
    /// `mcp__source__tool`: the same with `mcp__` in front.
    Mcp,
    /// The tool's own name, as the source gives it.
    Plain,
    /// This prefix, then the tool's own name.
    Prefix(String),
}
