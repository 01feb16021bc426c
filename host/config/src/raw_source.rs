//! `[sources.NAME]` as written.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::raw::Located;

/// A tool source: has exactly one of `command`, `url` and `component`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Source", extend("oneOf" = [
    { "required": ["command"] }, { "required": ["url"] }, { "required": ["component"] }
]))]
pub(super) struct RawSource {
    /// A program that speaks MCP over stdio: the program and its arguments as an array, never a shell string.
    pub command: Option<Located<RawCommand>>,
    /// The address of a server that speaks MCP over streamable HTTP or SSE.
    pub url: Option<Located<String>>,
    /// A WebAssembly component: "builtin:NAME"; the path of a .wasm file, or "PATH@sha256:…", which pins the file's
    /// bytes; or "oci://REGISTRY/NAME@sha256:…" from a registry.
    pub component: Option<Located<String>>,
    /// For a program that embeds the broker: a source that is part of it, by the name under which the program adds it.
    /// It runs in no cell.
    pub native: Option<Located<String>>,
    /// For `command` and `component`: environment variables. A component sees only these; a program also sees PATH,
    /// HOME, LANG and TMPDIR, which the broker sets.
    pub env: Option<Located<BTreeMap<Located<String>, Located<RawValue>>>>,
    /// For `component`: the command-line arguments that it sees, behind the source's name, which stands where a program
    /// has its own. Default: none.
    pub args: Option<Located<Vec<Located<String>>>>,
    /// For `command`: the working directory. Default: a private home folder.
    pub cwd: Option<Located<String>>,
    /// For `url`: headers that are sent with every request.
    pub headers: Option<Located<BTreeMap<Located<String>, Located<RawValue>>>>,
    /// For `url`: login settings that `portcullis login` cannot discover by itself.
    pub oauth: Option<Located<RawOAuth>>,
    /// For `url`, and for `network` in the `cell` of a `command` or `component`: allow loopback and private addresses.
    /// Default: false.
    pub dangerous_allow_private: Option<Located<bool>>,
    /// For a `component` of the `tools` world: settings that it receives when it is loaded.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub settings: Option<Located<toml::Table>>,
    /// For `component`: the capabilities that it may import: "key-value", a durable store for each profile, and
    /// "caller", which tells it the principal, profile and session of each call.
    pub grant: Option<Located<Vec<Located<String>>>>,
    /// For `command` and `component`: what the source may touch. What is not named here does not exist for it.
    pub cell: Option<Located<RawCell>>,
    /// The style in which the source's tools are named: "source" (`source__tool`, the default), "mcp"
    /// (`mcp__source__tool`), "plain" (the tool's own name), or a prefix. Not allowed for a member of a group, whose
    /// tools are named after the group.
    pub names: Option<Located<RawNames>>,
    /// Labels that policies can read and that groups can select by.
    #[serde(default)]
    pub tags: Vec<Located<String>>,
    /// The labels of the source's results, for policies about information flow: "untrusted" if strangers may have
    /// written them, "private" if strangers must not read them, and others of your own. Default: "untrusted" if the
    /// source reaches a network or is on one, and "private" if it is granted files, secrets, a capability or an
    /// account.
    pub labels: Option<Vec<Located<String>>>,
    /// Hosts to which links in the source's results may lead under a profile with `links = "text"`, in addition to the
    /// host of its `url` and those of its cell: names such as "docs.example.com", and "*.example.com" for all names
    /// below one.
    #[serde(default)]
    pub link_hosts: Vec<Located<String>>,
    /// Whether the source is used. With false it is checked with the rest of the file, but neither started nor shown.
    /// Default: true.
    pub enabled: Option<bool>,
    /// Whether a session fails if this source fails. Otherwise the session begins without it, and adds it when it is
    /// there. Default: false; always false for a member of a group.
    pub required: Option<bool>,
    /// "eager" starts the source with the broker, "lazy" with the first session. Default: "lazy".
    pub start: Option<RawStart>,
    /// For a source that speaks MCP: the only era of the protocol that is spoken with it, "legacy" (with `initialize`,
    /// 2025-11-25 and earlier) or "modern" (2026-07-28). Default: the era of the agent for which a connection is made,
    /// if the source speaks it.
    pub era: Option<RawEra>,
    /// True if the source's own hints may lower the risk of its tools. Default: false.
    pub trust_annotations: Option<bool>,
    /// The parts of the `_meta` of an agent's requests that are passed to the source: "user_context" and "request_id",
    /// which are members of `deps`, and keys by name, such as "traceparent", "tracestate", "baggage" or
    /// "com.example/tenant". Only a source that speaks MCP receives them. Default: none; the protocol's own keys are
    /// passed as needed.
    #[serde(default)]
    pub context: Vec<Located<String>>,
    /// Globs over the exposed names of the tools that are shown. Default: all that the profile's `trust` admits.
    pub allow: Option<Vec<Located<String>>>,
    /// Globs over the exposed names of the tools that are hidden; wins over `allow`.
    #[serde(default)]
    pub deny: Vec<Located<String>>,
    /// The timeout of one call, from "1s" to "1h". Default: "60s".
    pub timeout: Option<Located<String>>,
    /// The largest number of calls that the source handles at once, from 1 to 1024. Default: no limit.
    #[schemars(extend("minimum" = 1, "maximum" = 1024))]
    pub concurrency: Option<Located<i64>>,
    /// With `concurrency`: how many calls wait for their turn, each until its own timeout; any further call fails
    /// because the source is busy. From 0 to 1024. Default: 64.
    #[schemars(extend("minimum" = 0, "maximum" = 1024))]
    pub queue: Option<Located<i64>>,
    /// The largest number of connections, of a command processes, that sessions have to themselves at a time, or calls
    /// with `lifecycle = "per-call"`; the sessions of one caller have three quarters of them. From 1 to 256. Default:
    /// 256.
    #[schemars(extend("minimum" = 1, "maximum" = 256))]
    pub max_connections: Option<Located<i64>>,
    /// In a group: the rank of this source, from 0 to 100; members with a higher priority are called first. Default:
    /// 50.
    #[schemars(extend("minimum" = 0, "maximum" = 100))]
    pub priority: Option<Located<i64>>,
    /// "warm" keeps a connection open between calls; "per-call" opens one for each call, so that messages that the
    /// source sends between calls are not received. Default: "warm".
    pub lifecycle: Option<RawLifecycle>,
    /// The time for which an unused connection is kept, from "1s" to "7d". Default: "10m". The connection of a session
    /// that has a subscription or a task at the source is kept, and so is the shared connection of an eager source.
    pub idle: Option<Located<String>>,
    /// "snapshot": a session keeps the tools that it began with. "live": when the source announces that its tools have
    /// changed, the session fetches them again and its agent is notified. Default: "snapshot".
    pub discovery: Option<RawDiscovery>,
    /// The consequence of what the scanner finds in the source's definitions and instructions. "quarantine": what has a
    /// grave finding is neither shown nor called until a person accepts it with `portcullis lock accept`; "warn": all
    /// is shown, and findings are reported; "off": nothing is scanned. Default: "quarantine".
    pub scan: Option<RawScan>,
    /// For `url`: the transport, "http" (streamable HTTP) or "sse" (HTTP with SSE, 2024-11-05). Default: the one that
    /// the server supports.
    #[schemars(extend("enum" = ["http", "sse"]))]
    pub transport: Option<Located<String>>,
}

/// Login settings that `portcullis login` cannot discover by itself.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "OAuth")]
pub(super) struct RawOAuth {
    /// The issuer identifier of the only authorization server that is trusted. Default: the one that the source names.
    pub issuer: Option<Located<String>>,
    /// The id of a client that was registered there by hand; requires `issuer`.
    pub client_id: Option<Located<String>>,
    /// The secret of that client, if it has one.
    pub client_secret: Option<Located<RawValue>>,
    /// The URL of a published client ID metadata document that describes this client, with a redirect to
    /// http://127.0.0.1/callback.
    pub client_metadata: Option<Located<String>>,
    /// The scopes to request instead of those that the source suggests.
    pub scopes: Option<Located<Vec<Located<String>>>>,
}

/// The moment at which a source is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Start")]
pub(super) enum RawStart {
    /// With the first session.
    Lazy,
    /// With the broker.
    Eager,
}

/// The era of MCP that is spoken with a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Era")]
pub(super) enum RawEra {
    /// The lifecycle with `initialize` (2025-11-25 and earlier).
    Legacy,
    /// The stateless lifecycle (2026-07-28).
    Modern,
}

/// The mode of discovery: whether sessions follow changes of a source's tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Discovery")]
pub(super) enum RawDiscovery {
    /// A session keeps the tools that it began with.
    Snapshot,
    /// A session fetches the tools again when they change.
    Live,
}

/// The consequence of findings in a source's definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Scan")]
pub(super) enum RawScan {
    /// Nothing is scanned.
    Off,
    /// Findings are reported.
    Warn,
    /// A definition with a grave finding is left out until a person accepts it; other findings are reported.
    Quarantine,
}

/// The lifecycle of a connection: whether it outlives a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Lifecycle")]
pub(super) enum RawLifecycle {
    /// The connection stays open between calls.
    Warm,
    /// Each call has a connection of its own.
    PerCall,
}

/// The files, hosts and resources that a source may use. For a component, only `read`, `write`, `network`, `memory`,
/// `cpu`, `instances` and `output` are allowed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Cell")]
pub(super) struct RawCell {
    /// Files and folders that the source may read.
    #[serde(default)]
    pub read: Vec<Located<String>>,
    /// Files and folders that the source may read and write.
    #[serde(default)]
    pub write: Vec<Located<String>>,
    /// Hosts that the source may reach, as `host:port`.
    #[serde(default)]
    pub network: Vec<Located<String>>,
    /// The memory limit, such as "512MiB".
    pub memory: Option<Located<String>>,
    /// The limit on processes and threads.
    pub processes: Option<Located<u32>>,
    /// The limit on processor use, in processors, such as 1.0 or 0.5. A component may use up to that part of one
    /// processor during its `timeout`; without this limit, it may use 5 s of processor time for each call.
    pub cpu: Option<Located<f64>>,
    /// The limit on open file descriptors.
    pub files: Option<Located<u32>>,
    /// The size of its /tmp, such as "64MiB".
    pub tmp: Option<Located<String>>,
    /// For a component: how many instances run at once, from 1 to 256; further calls wait. An instance with several
    /// memories counts as that many. For a component that keeps state, this also limits the sessions whose state is
    /// kept. Default: 128.
    pub instances: Option<Located<u32>>,
    /// For a component: how much data one call may pass between the component and the broker, from "1KiB" to "1GiB";
    /// for a component that runs as a command (`wasi:cli/run`), the largest message. Default: "8MiB".
    pub output: Option<Located<String>>,
    /// Accept a reduced cell where the platform cannot build a full one. Default: false.
    pub dangerous_allow_reduced: Option<Located<bool>>,
}

/// A value written in this file, or the name of a secret that `portcullis secret` keeps.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(rename = "Value", untagged)]
pub(super) enum RawValue {
    /// The value itself.
    Plain(String),
    /// A secret that was set with `portcullis secret set NAME`.
    Secret(RawSecret),
}

/// A reference to a secret.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Secret")]
pub(super) struct RawSecret {
    /// The NAME that was given to `portcullis secret set NAME`.
    pub secret: String,
}

/// The style in which the tools of a source are named.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(rename = "Names", untagged)]
pub(super) enum RawNames {
    /// One of the fixed styles.
    #[schemars(extend("enum" = ["source", "mcp", "plain"]))]
    Style(String),
    /// A prefix of your own.
    Prefix(RawPrefix),
}

/// A prefix of your own.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Prefix")]
pub(super) struct RawPrefix {
    /// The text in front of the source's own name for the tool.
    pub prefix: String,
}

/// Program and arguments.
#[derive(Debug, Clone)]
pub(super) enum RawCommand {
    /// An array, the only form that is accepted.
    Argv(Vec<Located<String>>),
    /// One string, which is refused; the error suggests the array.
    Line(String),
}

impl JsonSchema for RawCommand {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Command".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "array", "items": { "type": "string" }, "minItems": 1 })
    }
}

impl<'de> Deserialize<'de> for RawCommand {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = RawCommand;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of program and arguments")
            }

            fn visit_str<E: serde::de::Error>(self, line: &str) -> Result<RawCommand, E> {
                Ok(RawCommand::Line(line.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawCommand, A::Error> {
                let mut argv = Vec::new();
                while let Some(word) = seq.next_element()? {
                    argv.push(word);
                }
                Ok(RawCommand::Argv(argv))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Deserialises a string, or a table that is described by a type of its own. Serde's `untagged` would lose the errors
/// inside the table.
macro_rules! string_or_table {
    ($name:ident, $text:ident, $table:ident, $expected:literal) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Either;
                impl<'de> Visitor<'de> for Either {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        Ok($name::$text(text.to_owned()))
                    }

                    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<$name, A::Error> {
                        Deserialize::deserialize(MapAccessDeserializer::new(map)).map($name::$table)
                    }
                }
                deserializer.deserialize_any(Either)
            }
        }
    };
}
string_or_table!(RawValue, Plain, Secret, "a string or `{ secret = \"name\" }`");
string_or_table!(RawNames, Style, Prefix, "\"source\", \"mcp\", \"plain\" or `{ prefix = \"…\" }`");
