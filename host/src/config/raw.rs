//! `portcullis.toml` as it is written: strict, and with the place of every value that can be wrong. The doc comments are
//! the descriptions of the JSON Schema.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::{Deref, Range};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use toml::Spanned;

use super::{Approve, Detail, Exposure};
use crate::call::{Phase, Trust};

pub(super) use super::raw_source::*;

/// A value and where it stands in the file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At<T>(Spanned<T>);

impl<T> At<T> {
    /// A value that stands in no file.
    pub(super) fn nowhere(value: T) -> Self {
        Self(Spanned::new(0..0, value))
    }

    /// Byte offsets in the text.
    pub(super) fn span(&self) -> Range<usize> {
        self.0.span()
    }
}

impl At<String> {
    /// A part of the text, at the place of the whole.
    pub(super) fn part(&self, part: &str) -> Self {
        Self(Spanned::new(self.span(), part.to_owned()))
    }
}

impl<T> Deref for At<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.get_ref()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Spanned::deserialize(deserializer).map(Self)
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// The configuration of Portcullis, a deny-by-default broker for the Model Context Protocol. Relative paths are relative
/// to this file.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(title = "portcullis.toml", rename = "Configuration")]
pub(super) struct RawConfig {
    /// The broker itself.
    #[serde(default)]
    pub broker: RawBroker,
    /// The HTTP front of `portcullis serve`.
    #[serde(default)]
    pub serve: RawServe,
    /// Traces for a collector.
    pub telemetry: Option<RawTelemetry>,
    /// The sources by name: ASCII letters, digits, `-` and `_`, without `__`.
    #[serde(default)]
    pub sources: BTreeMap<At<String>, RawSource>,
    /// Groups of sources that stand in for each other, by name: as for sources.
    #[serde(default)]
    pub groups: BTreeMap<At<String>, RawGroup>,
    /// Policy plugins. Any deny denies, else any ask asks; their order changes no verdict.
    #[serde(default)]
    pub policies: Vec<RawPolicy>,
    /// Transform plugins, applied in the order written.
    #[serde(default)]
    pub transforms: Vec<RawTransform>,
    /// Approval plugins, which settle what policies ask.
    #[serde(default)]
    pub approvals: Vec<RawApproval>,
    /// Audit plugins, fed from the ledger.
    #[serde(default)]
    pub sinks: Vec<RawSink>,
    /// The profiles by name. `default` holds where a caller names none, and is made where it is not written.
    #[serde(default)]
    pub profiles: BTreeMap<At<String>, RawProfile>,
}

/// The broker itself.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Broker")]
pub(super) struct RawBroker {
    /// Ledger, lock, caches, sockets and secrets; created 0700. Default `.portcullis` beside this file.
    pub data_dir: Option<At<String>>,
    /// How long an ask waits for a person before it is denied, such as "5m" (the default).
    pub ask_timeout: Option<At<String>>,
    /// The largest message that is read, from "1MiB" to "1GiB". A larger one fails its call, and the error names its size. A
    /// result costs at most twice its size in memory. Default "64MiB".
    pub max_message: Option<At<String>>,
}

/// The HTTP front of `portcullis serve`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Serve")]
pub(super) struct RawServe {
    /// Address and port to listen on. Default "127.0.0.1:8765".
    pub listen: Option<At<String>>,
    /// The bearer token that callers need. Default: a generated one in the data folder.
    pub token: Option<At<RawValue>>,
    /// Host names, beside loopback and the listen address, that a request may carry in `Host`.
    #[serde(default)]
    pub hosts: Vec<At<String>>,
    /// Web origins that may call, such as "https://app.example.com".
    #[serde(default)]
    pub origins: Vec<At<String>>,
    /// Callers with a token and a profile of their own, by name.
    #[serde(default)]
    pub callers: BTreeMap<At<String>, RawCaller>,
    /// Whose tokens (JWT) count too.
    pub jwt: Option<At<RawJwt>>,
    /// The bearer token with which a monitoring system reads `/metrics`, and nothing else. Metrics name all sources and tools that
    /// were called, so no token of an agent reads them. Default: there is no `/metrics`.
    pub metrics_token: Option<At<RawValue>>,
    /// Ask callers for no token: whoever reaches the port may call.
    pub dangerous_no_token: Option<At<bool>>,
}

/// Traces for a collector.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Telemetry")]
pub(super) struct RawTelemetry {
    /// The collector's address, such as "http://127.0.0.1:4318": a span for each request and each call of a source is sent to
    /// `/v1/traces` below it, by OTLP over HTTP. No payload is in them.
    pub otlp: At<String>,
    /// Sent with every request to it.
    #[serde(default)]
    pub headers: BTreeMap<At<String>, At<RawValue>>,
}

/// A caller with a token of their own.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Caller")]
pub(super) struct RawCaller {
    /// What the caller brings.
    pub token: At<RawValue>,
    /// Under which profile the caller calls.
    pub profile: At<String>,
}

/// An issuer whose tokens count.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Jwt")]
pub(super) struct RawJwt {
    /// Who issues them, exactly as in their `iss`.
    pub issuer: At<String>,
    /// The address under which callers know this server, such as "https://broker.example.com/mcp". Clients that can log in are
    /// told of it.
    pub resource: At<String>,
    /// For whom they are, as in their `aud`. Default: `resource`.
    pub audience: Option<At<String>>,
    /// Where the issuer publishes its keys (JWKS).
    pub keys: At<String>,
    /// The claim that says who calls. Default "sub".
    pub principal_claim: Option<At<String>>,
    /// The claim whose values `profiles` lists, such as "groups" or "scope".
    pub profile_claim: Option<At<String>>,
    /// Profiles by value of that claim. A caller whom it leads to none, or to several, is refused.
    pub profiles: Option<At<BTreeMap<At<String>, At<String>>>>,
    /// The keys may be at a loopback or private address.
    pub dangerous_allow_private: Option<bool>,
}

/// Sources that offer the same tools, as `GROUP__tool`: a call goes to the best of them that is well, and to the next if it
/// surely did not reach that one. At least one of `sources` and `tags`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Group")]
pub(super) struct RawGroup {
    /// Its members by name. Of several with the same `priority`, the first that is well is called.
    #[serde(default)]
    pub sources: Vec<At<String>>,
    /// Every source with one of these tags is a member, too.
    #[serde(default)]
    pub tags: Vec<At<String>>,
}

/// A policy plugin.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Policy")]
pub(super) struct RawPolicy {
    /// "builtin:NAME" or the path of a .wasm file.
    pub plugin: At<String>,
    /// Given to the plugin when it loads.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub settings: Option<At<toml::Table>>,
    /// When the plugin is asked. Default: call.
    pub on: Option<At<Vec<At<Phase>>>>,
    /// "shadow" records verdicts without applying them. Default "enforce".
    pub mode: Option<RawMode>,
    /// Capabilities the plugin may import beside those of its world.
    #[serde(default)]
    pub grant: Vec<At<String>>,
}

/// Whether verdicts are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Mode")]
pub(super) enum RawMode {
    /// Verdicts hold.
    Enforce,
    /// Verdicts are recorded and never applied.
    Shadow,
}

/// A transform plugin.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Transform")]
pub(super) struct RawTransform {
    /// "builtin:NAME" or the path of a .wasm file.
    pub plugin: At<String>,
    /// Given to the plugin when it loads.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub settings: Option<At<toml::Table>>,
    /// When the plugin may rewrite: call, result. Default: both.
    pub on: Option<At<Vec<At<Phase>>>>,
    /// Capabilities the plugin may import beside those of its world.
    #[serde(default)]
    pub grant: Vec<At<String>>,
}

/// An approval plugin.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Approval")]
pub(super) struct RawApproval {
    /// "builtin:NAME" or the path of a .wasm file.
    pub plugin: At<String>,
    /// Given to the plugin when it loads.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub settings: Option<At<toml::Table>>,
    /// Capabilities the plugin may import beside those of its world.
    #[serde(default)]
    pub grant: Vec<At<String>>,
}

/// An audit plugin.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Sink")]
pub(super) struct RawSink {
    /// "builtin:NAME" or the path of a .wasm file.
    pub plugin: At<String>,
    /// Given to the plugin when it loads.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub settings: Option<At<toml::Table>>,
    /// Capabilities the plugin may import beside those of its world.
    #[serde(default)]
    pub grant: Vec<At<String>>,
    /// Where its lines go. Default: a file in the data folder.
    pub file: Option<At<String>>,
}

/// Who is asking.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Profile")]
pub(super) struct RawProfile {
    /// "sandbox" sees no source, "low" only what `allow` names, "medium" and "high" all that is not narrowed. Default
    /// "medium".
    pub trust: Option<Trust>,
    /// Globs over source names. Default all.
    pub sources: Option<Vec<At<String>>>,
    /// Globs over exposed tool names. Default all, as far as `trust` goes.
    pub allow: Option<Vec<At<String>>>,
    /// Globs over exposed tool names; wins over `allow`.
    #[serde(default)]
    pub deny: Vec<At<String>>,
    /// "listed": an agent is told every tool at once. "deferred": it is told `find_tools`, `describe_tool` and `call_tool`, and
    /// searches. Default "listed".
    pub tools: Option<Exposure>,
    /// When a person is asked although no policy says so. Default "risky".
    pub approve: Option<Approve>,
    /// Whether sources may use the agent's model (`sampling/createMessage`). Default false.
    pub sampling: Option<bool>,
    /// Whether an agent may read how its sources are, as the resource `portcullis://status`: connected or not, errors, tools that it
    /// sees. Default false.
    pub status: Option<bool>,
    /// How much of arguments and results the ledger keeps. Default "shape".
    pub record: Option<Detail>,
    /// What all who call under it may spend together. Default: no bound.
    pub budget: Option<At<RawBudget>>,
}

/// What all who call under a profile may spend together: an amount for each `s`, `m`, `h` or `d`, which may be spent at once and
/// comes back at an even rate. At least one of the three.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Budget")]
pub(super) struct RawBudget {
    /// Calls, such as "1000/h".
    pub calls: Option<At<String>>,
    /// Bytes of arguments and results, such as "100MiB/h".
    pub bytes: Option<At<String>>,
    /// Time that calls take at their sources, such as "30m/h".
    pub time: Option<At<String>>,
}
