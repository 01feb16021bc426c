//! `[sources.NAME]` as it is written.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::raw::At;

/// A tool source: exactly one of `command`, `url` and `component`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Source", extend("oneOf" = [
    { "required": ["command"] }, { "required": ["url"] }, { "required": ["component"] }
]))]
pub(super) struct RawSource {
    /// A program that speaks MCP over stdio: program and arguments, never a shell string.
    pub command: Option<At<RawCommand>>,
    /// A server that speaks streamable HTTP.
    pub url: Option<At<String>>,
    /// A WebAssembly component: "builtin:NAME", the path of a .wasm file, which "PATH@sha256:…" pins to these very bytes, or
    /// "oci://REGISTRY/NAME@sha256:…" from a registry.
    pub component: Option<At<String>>,
    /// For `command` and `component`: the variables that it sees; a program beside PATH, HOME, LANG and TMPDIR, which the broker
    /// makes.
    pub env: Option<At<BTreeMap<At<String>, At<RawValue>>>>,
    /// For `command`: the working directory. Default: a private home.
    pub cwd: Option<At<String>>,
    /// For `url`: sent with every request.
    pub headers: Option<At<BTreeMap<At<String>, At<RawValue>>>>,
    /// For `url`: what `portcullis login` does not find out by itself.
    pub oauth: Option<At<RawOAuth>>,
    /// For `url`, and for the `network` of a `command` or `component`: loopback and private addresses may be reached.
    pub dangerous_allow_private: Option<At<bool>>,
    /// For `component`s of the `tools` world: given to it when it loads.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub settings: Option<At<toml::Table>>,
    /// For `component`: capabilities it may import.
    pub grant: Option<At<Vec<At<String>>>>,
    /// For `command` and `component`: what it may touch. What is not named does not exist for it.
    pub cell: Option<At<RawCell>>,
    /// How its tools are named: "source" (`source__tool`, the default), "mcp" (`mcp__source__tool`), "plain", or a prefix. Not for
    /// a member of a group, whose tools are named after that.
    pub names: Option<At<RawNames>>,
    /// Facts for policies.
    #[serde(default)]
    pub tags: Vec<At<String>>,
    /// Whether a session fails if this source does. Default true; never for a member of a group.
    pub required: Option<bool>,
    /// "eager" starts it with the broker, "lazy" (the default) with the first session.
    pub start: Option<RawStart>,
    /// For what speaks MCP: "legacy" (with `initialize`, 2025-11-25 and earlier) or "modern" (2026-07-28) is the only era that is
    /// spoken with it. Default: the era of the agent that a connection is for, where the source speaks it.
    pub era: Option<RawEra>,
    /// Whether the source's own hints may lower risk. Default false.
    pub trust_annotations: Option<bool>,
    /// What of the `_meta` of an agent's requests reaches it: "user_context" and "request_id", which are members of `deps`, and
    /// keys by their names, such as "traceparent", "tracestate", "baggage" or "com.example/tenant". Components of tools are told
    /// nothing of it. Default none; what the protocol itself keeps there is not asked about.
    #[serde(default)]
    pub context: Vec<At<String>>,
    /// Globs over exposed tool names: which are shown. Default all, as far as the profile's trust goes.
    pub allow: Option<Vec<At<String>>>,
    /// Globs over exposed tool names: which are not shown; wins over `allow`.
    #[serde(default)]
    pub deny: Vec<At<String>>,
    /// How long one call may take. Default "60s".
    pub timeout: Option<At<String>>,
    /// How many calls it has at once, from 1 to 1024. Default: as many as come.
    #[schemars(extend("minimum" = 1, "maximum" = 1024))]
    pub concurrency: Option<At<i64>>,
    /// With `concurrency`: how many calls wait for their turn, within their time; one more is told that the source is busy. From 0
    /// to 1024, default 64.
    #[schemars(extend("minimum" = 0, "maximum" = 1024))]
    pub queue: Option<At<i64>>,
    /// In a group: members with a higher one are called first, from 0 to 100. Default 50.
    #[schemars(extend("minimum" = 0, "maximum" = 100))]
    pub priority: Option<At<i64>>,
    /// "warm" (the default) keeps a connection open between calls, "per-call" makes one for each; then nothing that a source says
    /// between calls is heard.
    pub lifecycle: Option<RawLifecycle>,
    /// How long a connection is kept that nobody uses, from "1s" to "7d". Default "10m". That of a session with a
    /// subscription or a task there is kept, and so is the shared one of an eager source.
    pub idle: Option<At<String>>,
    /// "snapshot" (the default): a session keeps the tools that it began with. "live": it takes them anew when the source says
    /// that they have changed, and its agent is told.
    pub discovery: Option<RawDiscovery>,
    /// For `url`: "http" (streamable HTTP) or "sse" (the transport of 2024-11-05). Default: whichever the server has.
    #[schemars(extend("enum" = ["http", "sse"]))]
    pub transport: Option<At<String>>,
}

/// What `portcullis login` does not find out by itself.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "OAuth")]
pub(super) struct RawOAuth {
    /// The only authorization server that is trusted, by its issuer identifier. Default: the one that the source names.
    pub issuer: Option<At<String>>,
    /// A client that was registered there by hand; needs `issuer`.
    pub client_id: Option<At<String>>,
    /// Its secret, if it has one.
    pub client_secret: Option<At<RawValue>>,
    /// Where a client id metadata document is published that describes this client, with a redirect to http://127.0.0.1/callback.
    pub client_metadata: Option<At<String>>,
    /// Asked for instead of what the source suggests.
    pub scopes: Option<At<Vec<At<String>>>>,
}

/// When a source starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Start")]
pub(super) enum RawStart {
    /// With the first session.
    Lazy,
    /// With the broker.
    Eager,
}

/// Which era of the protocol is spoken with a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Era")]
pub(super) enum RawEra {
    /// With `initialize`.
    Legacy,
    /// Stateless.
    Modern,
}

/// Whether sessions follow the changes of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Discovery")]
pub(super) enum RawDiscovery {
    /// They do not.
    Snapshot,
    /// They do.
    Live,
}

/// Whether a connection outlives a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Lifecycle")]
pub(super) enum RawLifecycle {
    /// It does.
    Warm,
    /// Each call has its own.
    PerCall,
}

/// What a source may touch. A component has `read`, `write`, `network`, `memory`, `cpu`,
/// `instances` and `output`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Cell")]
pub(super) struct RawCell {
    /// Files and folders it may read.
    #[serde(default)]
    pub read: Vec<At<String>>,
    /// Files and folders it may read and write.
    #[serde(default)]
    pub write: Vec<At<String>>,
    /// `host:port` it may reach.
    #[serde(default)]
    pub network: Vec<At<String>>,
    /// Memory, such as "512MiB".
    pub memory: Option<At<String>>,
    /// Processes and threads.
    pub processes: Option<At<u32>>,
    /// Processors, such as 1.0 or 0.5. A component has that part of one for as long as its `timeout`; without it, 5 s a call.
    pub cpu: Option<At<f64>>,
    /// Open descriptors.
    pub files: Option<At<u32>>,
    /// What fits into its /tmp, such as "64MiB".
    pub tmp: Option<At<String>>,
    /// For a component: how many instances work at once, from 1 to 256. Default 128; further calls wait. Of one that keeps state,
    /// also how many sessions it keeps.
    pub instances: Option<At<u32>>,
    /// For a component: what may pass between it and the broker in one call, from "1KiB" to "1GiB". Default "8MiB"; of a program,
    /// what one message may have.
    pub output: Option<At<String>>,
    /// Accept a weaker cell where the platform has no full one.
    pub dangerous_allow_reduced: Option<At<bool>>,
}

/// A value written down, or the name of one kept by `portcullis secret`.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(rename = "Value", untagged)]
pub(super) enum RawValue {
    /// As written.
    Plain(String),
    /// Kept by `portcullis secret set NAME`.
    Secret(RawSecret),
}

/// The name of a secret.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Secret")]
pub(super) struct RawSecret {
    /// As given to `portcullis secret set NAME`.
    pub secret: String,
}

/// How tools are named.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(rename = "Names", untagged)]
pub(super) enum RawNames {
    /// One of the fixed styles.
    #[schemars(extend("enum" = ["source", "mcp", "plain"]))]
    Style(String),
    /// A prefix of one's own.
    Prefix(RawPrefix),
}

/// A prefix of one's own.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Prefix")]
pub(super) struct RawPrefix {
    /// Put before the source's name for the tool.
    pub prefix: String,
}

/// Program and arguments.
#[derive(Debug, Clone)]
pub(super) enum RawCommand {
    /// As it must be.
    Argv(Vec<At<String>>),
    /// One string, which is refused with the array as suggestion.
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

/// A string, or a table that `T` describes. Serde's own `untagged` would lose what is wrong inside the table.
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
