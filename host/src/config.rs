//! The configuration: `portcullis.toml`, parsed strictly into types that hold every invariant.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::call::{Phase, Trust};
use crate::name::{ProfileName, SourceName};

/// Everything the broker is told. Paths are absolute.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file it came from; None for a configuration made in memory.
    pub file: Option<PathBuf>,
    /// Ledger, lock, caches, sockets. Created 0700.
    pub data_dir: PathBuf,
    /// The HTTP front.
    pub serve: ServeConfig,
    /// How long an ask waits for a person before it is denied.
    pub ask_timeout: Duration,
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
    /// No token is asked for.
    pub dangerous_no_token: bool,
}

/// A value that is written down, or kept by `portcullis secret`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// As written.
    Plain(String),
    /// The name of a secret.
    Secret(String),
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
    /// Whether a session fails if this source does.
    pub required: bool,
    /// Whether it starts with the broker instead of with the first session.
    pub eager: bool,
    /// Whether the source's own hints may lower risk.
    pub trust_annotations: bool,
    /// Which tools are shown, by glob over the exposed name; None means all, as far as the profile's trust goes.
    pub allow: Option<Vec<String>>,
    /// Which tools are not shown; wins over `allow`.
    pub deny: Vec<String>,
    /// What the source may touch.
    pub cell: CellConfig,
    /// How long one call may take.
    pub timeout: Duration,
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
        /// Loopback and private addresses may be reached.
        dangerous_allow_private: bool,
    },
    /// A WebAssembly component.
    Component {
        /// Which one.
        component: PluginRef,
        /// For its `configure`.
        settings: serde_json::Value,
        /// Capabilities it may import.
        grant: Vec<String>,
    },
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

/// `cell`: what a process source may touch. Everything empty means nothing.
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
    /// A weaker cell is accepted where the platform has no full one.
    pub dangerous_allow_reduced: bool,
}

/// Which plugin or component.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PluginRef {
    /// `builtin:NAME`
    Builtin(String),
    /// A `.wasm` file.
    Path(PathBuf),
}

/// One entry of `[[policies]]`, `[[transforms]]`, `[[approvals]]` or `[[sinks]]`.
#[derive(Debug, Clone)]
pub struct PluginConfig {
    /// The plugin.
    pub plugin: PluginRef,
    /// For its `configure`, an object.
    pub settings: serde_json::Value,
    /// Phases in which it is asked.
    pub on: Vec<Phase>,
    /// Its verdicts are recorded and never applied.
    pub shadow: bool,
    /// Capabilities it may import beside those of its world.
    pub grant: Vec<String>,
    /// Where the lines of a sink go; None means the data folder.
    pub file: Option<PathBuf>,
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
    /// When a person is asked.
    pub approve: Approve,
    /// How much of a call the ledger keeps.
    pub record: Detail,
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
    /// The bodies too.
    Full,
}
