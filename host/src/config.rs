//! The configuration: `portcullis.toml`, parsed strictly into types that hold every invariant.
//!
//! `Raw` (what is written, strict serde) becomes [`Config`] (what holds) in one step that collects every problem. Whether
//! files, programs and hosts exist is not asked here.

mod build;
mod builder;
mod callers;
mod cell;
mod effects;
mod error;
mod find;
mod group;
pub mod import;
mod oauth;
mod others;
mod owner;
mod plugin;
mod raw;
mod raw_source;
mod search;
mod share;
mod source;
mod telemetry;
#[cfg(test)]
mod tests;
mod value;
mod variable;
mod wrap;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use builder::Builder;
pub use callers::{CallerConfig, JwtConfig};
pub use error::{ConfigError, Problem};
pub use find::{Found, Standing, real_file, user_trust};
pub use group::Membership;
pub use oauth::OAuthConfig;
pub use others::Writer;
pub use plugin::{PluginConfig, PluginRef};
pub use search::{user_config_dir, user_data_dir, user_state_dir};
pub use share::{BudgetConfig, Places, Rate};
pub(crate) use source::{OWN_HEADERS, TIMEOUT};
pub use telemetry::TelemetryConfig;
pub use wrap::Wrap;

use crate::call::Trust;
use crate::egress::Reach;
use crate::name::{ProfileName, SourceName};
use crate::protocol::Era;
use crate::secret::Value;

/// The longest file: a thousand times an ordinary one, and parsed in milliseconds.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// Everything the broker is told. Paths are absolute.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file it came from; None for a configuration made in memory.
    pub file: Option<PathBuf>,
    /// Ledger, lock, packages, sockets. Created 0700.
    pub data_dir: PathBuf,
    /// The state folder of the user, with compiled code. No file names it: [`Config::load`] takes [`user_state_dir`]. None means
    /// that compiled code is kept in memory only.
    pub state_dir: Option<PathBuf>,
    /// The HTTP front.
    pub serve: ServeConfig,
    /// Where spans go; None means that there are none.
    pub telemetry: Option<TelemetryConfig>,
    /// How long an ask waits for a person before it is denied.
    pub ask_timeout: Duration,
    /// The largest message that is read, in bytes. A larger one fails its call, and the error names its size.
    pub max_message: usize,
    /// The sources, in name order.
    pub sources: BTreeMap<SourceName, SourceConfig>,
    /// Policy plugins, in the order written.
    pub policies: Vec<PluginConfig>,
    /// Transform plugins, in the order written.
    pub transforms: Vec<PluginConfig>,
    /// Approval plugins, in the order written.
    pub approvals: Vec<PluginConfig>,
    /// Audit plugins, in the order written.
    pub sinks: Vec<PluginConfig>,
    /// The profiles; `default` is always there.
    pub profiles: BTreeMap<ProfileName, ProfileConfig>,
}

impl Config {
    /// Reads the named file, or else `./portcullis.toml`, or else `portcullis/portcullis.toml` in `$XDG_CONFIG_HOME` or
    /// `~/.config`. What is merely found in the working directory counts only if the user has trusted it.
    ///
    /// # Errors
    /// As for [`Found::look`] and [`Found::counted`].
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        Found::look(path)?.counted()
    }

    /// Parses the text of a file. `file` is what messages name, and what paths are relative to; it is not opened.
    ///
    /// # Errors
    /// [`ConfigError`] with every problem found: bad TOML, unknown keys, and values that could not hold.
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        let refuse = |faults| ConfigError::of(faults, Some(file), text);
        let raw = toml::from_str(text).map_err(|error| refuse(vec![error::Fault::of_toml(&error)]))?;
        let absolute = std::path::absolute(file).map_err(|error| unreadable(file, &error))?;
        let absolute = value::normal(&absolute);
        let base = absolute.parent().unwrap_or(Path::new("/")).to_owned();
        build::build(&raw, Some(absolute), &base).map_err(refuse)
    }

    /// The configuration of one wrapped command, without a file: everything is checked as if it were written in one.
    ///
    /// # Errors
    /// [`ConfigError`] with every problem found, or without a home folder.
    pub fn for_wrap(wrap: &Wrap) -> Result<Self, ConfigError> {
        Ok(Self { state_dir: user_state_dir(), ..wrap::config(wrap)? })
    }

    /// The files and folders of the broker and of its user that no source is given.
    pub(crate) fn own_files(&self) -> Vec<PathBuf> {
        let here = [Some(self.data_dir.clone()), self.file.clone(), self.state_dir.clone()];
        let user = [user_data_dir(), user_state_dir(), user_config_dir(), others::user_configured_data_dir()];
        here.into_iter().chain(user).flatten().collect()
    }
}

/// The JSON Schema of `portcullis.toml`, for editors.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(raw::RawConfig).to_value()
}

fn unreadable(file: &Path, error: &std::io::Error) -> ConfigError {
    let shown = file.to_string_lossy();
    let message = format!("{} cannot be read: {error}", crate::visible::visible(&shown));
    ConfigError::without_place(message, "name another one with `--config FILE`")
}

/// `[serve]`
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The bearer token that callers need; None means the generated one in the data folder.
    pub token: Option<Value>,
    /// Host names, beside loopback and the listen address, that a request may carry in `Host`.
    pub hosts: Vec<String>,
    /// Web origins that may call.
    pub origins: Vec<String>,
    /// Callers with a token and a profile of their own, by name.
    pub callers: BTreeMap<String, CallerConfig>,
    /// Whose tokens count too.
    pub jwt: Option<JwtConfig>,
    /// The bearer token that reads `/metrics`, and does nothing else; None means that there are no metrics to read.
    pub metrics_token: Option<Value>,
    /// No token is asked for.
    pub dangerous_no_token: bool,
}

/// `[sources.NAME]`
#[derive(Debug, Clone)]
pub struct SourceConfig {
    /// The name.
    pub name: SourceName,
    /// What it is.
    pub endpoint: Endpoint,
    /// How its tools are named for the agent.
    pub names: Naming,
    /// Facts for policies.
    pub tags: Vec<String>,
    /// The group under whose name its tools are offered.
    pub group: Option<Membership>,
    /// Of the members of a group those with a higher one go first; 0 to 100.
    pub priority: u8,
    /// Whether a session fails if this source does.
    pub required: bool,
    /// Whether it starts with the broker instead of with the first session.
    pub eager: bool,
    /// The only era of the protocol that is spoken with it; None means that of the agent, where the source speaks it.
    pub era: Option<Era>,
    /// Whether the source's own hints may lower risk.
    pub trust_annotations: bool,
    /// What of the `_meta` of an agent's requests reaches it: keys, and `user_context` and `request_id` of `deps`.
    pub context: Vec<String>,
    /// Which tools are shown, by glob over the exposed name; None means all, as far as the profile's trust goes.
    pub allow: Option<Vec<String>>,
    /// Which tools are not shown; wins over `allow`.
    pub deny: Vec<String>,
    /// What the source may touch.
    pub cell: CellConfig,
    /// How long one call may take, waiting for its turn and all.
    pub timeout: Duration,
    /// How many calls it has at once; None means as many as come.
    pub places: Option<Places>,
    /// Whether sessions follow its changes.
    pub discovery: DiscoveryMode,
    /// Whether a connection outlives a call.
    pub lifecycle: Lifecycle,
    /// How long a connection is kept that nobody uses.
    pub idle: Duration,
    /// The largest message, in bytes: [`Config::max_message`].
    pub max_message: usize,
}

/// What a session does when a source says that its tools have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DiscoveryMode {
    /// It keeps the tools that it began with.
    #[default]
    Snapshot,
    /// It takes them anew.
    Live,
}

/// Whether a connection to a source outlives a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lifecycle {
    /// It is kept, and watched.
    #[default]
    Warm,
    /// Each call has one of its own, and a process if that is what the source is.
    PerCall,
}

/// What a source is.
#[derive(Debug, Clone)]
pub enum Endpoint {
    /// A program that speaks MCP over stdio.
    Command {
        /// Program and arguments; never a shell string.
        argv: Vec<String>,
        /// Working directory; None means a private home.
        cwd: Option<PathBuf>,
        /// Variables beside the broker's own PATH, HOME, LANG and TMPDIR.
        env: BTreeMap<String, Value>,
    },
    /// A server that speaks streamable HTTP.
    Url {
        /// `http` or `https`.
        url: url::Url,
        /// Sent with every request.
        headers: BTreeMap<String, Value>,
        /// How a person logs in to it, where it wants that.
        oauth: OAuthConfig,
        /// Loopback and private addresses may be reached.
        dangerous_allow_private: bool,
        /// How messages are carried.
        carrier: Carrier,
    },
    /// A WebAssembly component.
    Component {
        /// Which one.
        component: PluginRef,
        /// For its `configure`.
        settings: serde_json::Value,
        /// Capabilities it may import.
        grant: Vec<String>,
        /// All the variables that it sees.
        env: BTreeMap<String, Value>,
    },
}

/// How messages are carried to a `url`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Carrier {
    /// Streamable HTTP, or the transport before it if the server refuses that.
    #[default]
    Detect,
    /// Streamable HTTP.
    Http,
    /// HTTP with SSE (2024-11-05).
    Sse,
}

/// How a source's tools are named for the agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Naming {
    /// `source__tool`
    #[default]
    Source,
    /// `mcp__source__tool`
    Mcp,
    /// As the source names them.
    Plain,
    /// This, then the source's name for the tool.
    Prefix(String),
}

/// `cell`: what a source that runs here may touch. Everything empty means nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CellConfig {
    /// Files and folders it may read.
    pub read: Vec<PathBuf>,
    /// Files and folders it may read and write.
    pub write: Vec<PathBuf>,
    /// `host:port` it may reach.
    pub network: Vec<String>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u32>,
    /// Processors.
    pub cpu: Option<f64>,
    /// Open descriptors.
    pub files: Option<u32>,
    /// Bytes under `/tmp`.
    pub tmp: Option<u64>,
    /// Instances of a component that work at once.
    pub instances: Option<u32>,
    /// Bytes that one call of a component may pass.
    pub output: Option<u64>,
    /// A weaker cell is accepted where the platform has no full one.
    pub dangerous_allow_reduced: bool,
    /// `dangerous-allow-private` of the source: what it may reach may be on this machine or near it.
    pub dangerous_allow_private: bool,
}

impl CellConfig {
    /// How far what it may reach may lie.
    pub(crate) fn reach(&self) -> Reach {
        if self.dangerous_allow_private { Reach::Private } else { Reach::Public }
    }
}

/// `[profiles.NAME]`
#[derive(Debug, Clone)]
pub struct ProfileConfig {
    /// How far callers under it are trusted.
    pub trust: Trust,
    /// Globs over source names.
    pub sources: Vec<String>,
    /// Globs over exposed tool names; None means all, as far as trust goes.
    pub allow: Option<Vec<String>>,
    /// Globs over exposed tool names; wins over `allow`.
    pub deny: Vec<String>,
    /// How an agent learns of the tools.
    pub tools: Exposure,
    /// When a person is asked.
    pub approve: Approve,
    /// Whether sources may use the agent's model.
    pub sampling: bool,
    /// Whether an agent may read how its sources are.
    pub status: bool,
    /// How much of a call the ledger keeps.
    pub record: Detail,
    /// What all who call under it may spend together.
    pub budget: Option<BudgetConfig>,
}

/// How an agent learns of the tools that it may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Exposure {
    /// All are listed.
    #[default]
    Listed,
    /// It searches for them: `find_tools`, `describe_tool` and `call_tool` are listed.
    Deferred,
}

/// When a person is asked although no policy says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Approve {
    /// For risky calls.
    #[default]
    Risky,
    /// For every call.
    Always,
    /// For none; logged.
    Never,
}

/// How much of arguments and results the ledger keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Detail {
    /// Keyed hash and redacted shape.
    #[default]
    Shape,
    /// The bodies too, up to 1 MiB.
    Full,
}
