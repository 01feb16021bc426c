//! `portcullis.toml` as written: parsed strictly, with the place of every value that can be wrong. The doc comments of
//! these types are the descriptions in the JSON Schema.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::{Deref, Range};

use portcullis_core::call::Phase;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use toml::Spanned;

use super::Durability;
use super::sink::RawSink;

pub(super) use super::raw_profile::*;
pub(super) use super::raw_source::*;

/// A value and its place in the file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Located<T>(Spanned<T>);

impl<T> Located<T> {
    /// Wraps a value that comes from no file.
    pub(super) fn nowhere(value: T) -> Self {
        Self(Spanned::new(0..0, value))
    }

    /// Returns the place of the value, as byte offsets in the text.
    pub(super) fn span(&self) -> Range<usize> {
        self.0.span()
    }
}

impl Located<String> {
    /// Returns a part of the text that reports the place of the whole.
    pub(super) fn part(&self, part: &str) -> Self {
        Self(Spanned::new(self.span(), part.to_owned()))
    }
}

impl<T> Deref for Located<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.get_ref()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Located<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Spanned::deserialize(deserializer).map(Self)
    }
}

impl<T: JsonSchema> JsonSchema for Located<T> {
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

/// The configuration of Portcullis, a deny-by-default broker for the Model Context Protocol. Relative paths are
/// relative to the folder of this file.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(title = "portcullis.toml", rename = "Configuration")]
pub(super) struct RawConfig {
    /// Settings of the broker itself.
    #[serde(default)]
    pub broker: RawBroker,
    /// The HTTP front of `portcullis serve`.
    #[serde(default)]
    pub serve: RawServe,
    /// The ledger, the record of everything that the broker does.
    #[serde(default)]
    pub ledger: RawLedger,
    /// OpenTelemetry traces, which are sent to a collector.
    pub telemetry: Option<RawTelemetry>,
    /// The ways in which people are told of questions, in addition to the agent's own.
    #[serde(default)]
    pub questions: RawQuestions,
    /// The tool sources, by name. A name has ASCII letters, digits, `-` and `_`, and does not contain `__`.
    #[serde(default)]
    pub sources: BTreeMap<Located<String>, RawSource>,
    /// Groups of sources that stand in for each other, by name. A group's name follows the rules for a source's name.
    #[serde(default)]
    pub groups: BTreeMap<Located<String>, RawGroup>,
    /// Policy plugins. If any of them denies, the call is denied; otherwise, if any asks, a person is asked. Their
    /// order changes no verdict.
    #[serde(default)]
    pub policies: Vec<RawPolicy>,
    /// Transform plugins, applied in the order of this file.
    #[serde(default)]
    pub transforms: Vec<RawTransform>,
    /// Approval plugins, which remember the answers of people.
    #[serde(default)]
    pub approvals: Vec<RawApproval>,
    /// Receivers of the records of the ledger: audit plugins, syslog receivers and collectors.
    #[serde(default)]
    pub sinks: Vec<Located<RawSink>>,
    /// The profiles, by name. `default` applies to callers that name no profile, and exists even if it is not written
    /// here.
    #[serde(default)]
    pub profiles: BTreeMap<Located<String>, RawProfile>,
}

/// Settings of the broker itself.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Broker")]
pub(super) struct RawBroker {
    /// The data folder, with ledger, lock file, caches, sockets and secrets; created with mode 0700. Default:
    /// `.portcullis` next to this file.
    pub data_dir: Option<Located<String>>,
    /// The longest time that a question waits for a person before the call is denied, such as "5m" (the default).
    pub ask_timeout: Option<Located<String>>,
    /// The largest message that is read, from "1MiB" to "1GiB". A larger one fails its call, and the error states its
    /// size. A result takes at most twice its size in memory. A change takes effect at the next start. Default: "64MiB".
    pub max_message: Option<Located<String>>,
    /// The files with the public keys that sign plugins, in PEM, such as "keys/plugins.pub". If there are any, a plugin
    /// or component of a file or a registry is loaded only if one of them has signed it, by `portcullis plugin sign` or
    /// by cosign. Default: none, and no signature is asked for.
    #[serde(default)]
    pub plugin_keys: Vec<Located<String>>,
}

/// The ledger, the record of everything that the broker does.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Ledger")]
pub(super) struct RawLedger {
    /// The calls that wait until their intent is on disk. "effects": all but those of a source whose cell can neither
    /// write nor reach a network. Their intents are written within milliseconds, and a crash before that loses the
    /// record of such calls, never of others; "all": every call. Default: "effects".
    pub durability: Option<Durability>,
    /// The time for which records are kept, from "1d" to "100y". Brokers then remove older ones, in whole files: those
    /// of brokers that ended, and of one that runs all but the file that it writes, which is a month old at most. What
    /// is removed leaves its hashes, so that the rest can be verified as before. Default: records are kept for ever.
    pub retention: Option<Located<String>>,
    /// The places that get each signed checkpoint: files, to which it is added, such as
    /// "/mnt/backup/portcullis.checkpoints"; addresses to which it is posted,
    /// "https://witness.example.com/checkpoints"; git repositories, in which it is committed to the branch
    /// `portcullis`, "git:/srv/checkpoints.git"; and syslog receivers, "syslog+tls://logs.example.com:6514".
    #[serde(default)]
    pub witnesses: Vec<Located<String>>,
    /// The recipients for whom bodies are sealed under a profile with `record = "sealed"`: public keys of age, such as
    /// `portcullis audit keygen` and `age-keygen` print them. The broker does not need the private keys.
    #[serde(default)]
    pub recipients: Vec<Located<String>>,
}

/// The HTTP front of `portcullis serve`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Serve")]
pub(super) struct RawServe {
    /// The IP address and port to listen on. Default: "127.0.0.1:8765".
    pub listen: Option<Located<String>>,
    /// The bearer token that callers need. Default: a generated token in the data folder.
    pub token: Option<Located<RawValue>>,
    /// Host names that a request may carry in `Host`, in addition to loopback names and the listen address. Each with its
    /// port if that is not the one of `listen`, such as "localhost:9000" for a tunnel.
    #[serde(default)]
    pub hosts: Vec<Located<String>>,
    /// Web origins from which requests are accepted, such as "https://app.example.com". Their pages may read the answers,
    /// and are told so when they ask beforehand (CORS).
    #[serde(default)]
    pub origins: Vec<Located<String>>,
    /// Callers that have a token and a profile of their own, by name.
    #[serde(default)]
    pub callers: BTreeMap<Located<String>, RawCaller>,
    /// The issuer whose JSON Web Tokens (JWT) are also accepted as bearer tokens.
    pub jwt: Option<Located<RawJwt>>,
    /// The bearer token with which a monitoring system reads `/metrics` and nothing else. Metrics name all sources and
    /// tools that were called, so no agent's token can read them. Default: `/metrics` is not served.
    pub metrics_token: Option<Located<RawValue>>,
    /// People who read and answer questions at `/approvals` with a token of their own, by name. The token of an agent
    /// answers none, and a person's token makes no call.
    #[serde(default)]
    pub people: BTreeMap<Located<String>, RawPerson>,
    /// Accept callers without a token: everyone who can reach the port may call.
    pub dangerous_no_token: Option<Located<bool>>,
}

/// A person who may answer questions over HTTP.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Person")]
pub(super) struct RawPerson {
    /// The person's bearer token.
    pub token: Located<RawValue>,
}

/// The ways in which people are told of questions, in addition to the agent's own.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Questions")]
pub(super) struct RawQuestions {
    /// True if each question is a notification on this machine's desktop, which `notify-send` shows. Default: false.
    pub desktop: Option<bool>,
    /// A server that is told of each question and of each answer.
    pub webhook: Option<RawWebhook>,
}

/// A server that is told of questions, by messages that are signed as Standard Webhooks says.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Webhook")]
pub(super) struct RawWebhook {
    /// The address to which messages are posted, such as "https://hooks.example.com/portcullis".
    pub url: Located<String>,
    /// The key with which messages are signed: `whsec_` and base64, or any text of 24 characters or more.
    pub secret: Located<RawValue>,
    /// True if messages carry the arguments of calls. Default: false.
    pub arguments: Option<bool>,
}

/// OpenTelemetry traces, which are sent to a collector.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Telemetry")]
pub(super) struct RawTelemetry {
    /// The address of the collector, such as "http://127.0.0.1:4318". A span for each request and for each call of a
    /// source is sent to `/v1/traces` below it, by OTLP over HTTP. Spans contain no payload.
    pub otlp: Located<String>,
    /// Headers that are sent with every request to the collector.
    #[serde(default)]
    pub headers: BTreeMap<Located<String>, Located<RawValue>>,
    /// The interval at which metrics are sent to `/v1/metrics` below the address, by OTLP over HTTP: from "1s" to "1h",
    /// such as "60s". They are those that Prometheus can read at `/metrics`. Default: none are sent.
    pub metrics_interval: Option<Located<String>>,
}

/// A caller that has a token of its own.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Caller")]
pub(super) struct RawCaller {
    /// The bearer token of the caller.
    pub token: Located<RawValue>,
    /// The name of the profile under which the caller calls.
    pub profile: Located<String>,
}

/// An issuer whose JSON Web Tokens are accepted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Jwt")]
pub(super) struct RawJwt {
    /// The issuer, exactly as in the `iss` claim of its tokens.
    pub issuer: Located<String>,
    /// The address under which callers know this server, such as "https://broker.example.com/mcp". It is published for
    /// clients that can log in.
    pub resource: Located<String>,
    /// The audience that tokens must name in their `aud` claim. Default: `resource`.
    pub audience: Option<Located<String>>,
    /// The address at which the issuer publishes its keys (JWKS).
    pub keys: Located<String>,
    /// The claim that identifies the caller. Default: "sub".
    pub principal_claim: Option<Located<String>>,
    /// The claim whose values are the keys of `profiles`, such as "groups" or "scope".
    pub profile_claim: Option<Located<String>>,
    /// The profile for each value of `profile-claim`. A caller whose values lead to no profile, or to several, is
    /// refused.
    pub profiles: Option<Located<BTreeMap<Located<String>, Located<String>>>>,
    /// Allow a loopback or private address for `keys`. Default: false.
    pub dangerous_allow_private: Option<bool>,
}

/// Sources that offer the same tools, as `GROUP__tool`. A call goes to the best member that works, and to the next one
/// if it certainly did not reach the first. At least one of `sources` and `tags` is required.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Group")]
pub(super) struct RawGroup {
    /// The members, by name. Of members with the same `priority`, the first one that works is called.
    #[serde(default)]
    pub sources: Vec<Located<String>>,
    /// Tags: every source that has one of them is also a member.
    #[serde(default)]
    pub tags: Vec<Located<String>>,
}

/// A policy plugin, which decides whether a call passes, is asked about or is denied.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Policy")]
pub(super) struct RawPolicy {
    /// The plugin: "builtin:NAME", the path of a .wasm file, or "oci://REGISTRY/NAME@sha256:…".
    pub plugin: Located<String>,
    /// Settings that the plugin receives when it is loaded.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub settings: Option<Located<toml::Table>>,
    /// The phases in which the plugin is asked: "call", "result", "list". Default: only "call".
    pub on: Option<Located<Vec<Located<Phase>>>>,
    /// "enforce" applies the plugin's verdicts; "shadow" only records them. Default: "enforce".
    pub mode: Option<RawMode>,
    /// Capabilities that the plugin may import in addition to those of its WIT world.
    #[serde(default)]
    pub grant: Vec<Located<String>>,
}

/// The mode of a policy: whether its verdicts are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Mode")]
pub(super) enum RawMode {
    /// Verdicts are applied.
    Enforce,
    /// Verdicts are recorded and never applied.
    Shadow,
}

/// A transform plugin, which rewrites arguments and results.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Transform")]
pub(super) struct RawTransform {
    /// The plugin: "builtin:NAME", the path of a .wasm file, or "oci://REGISTRY/NAME@sha256:…".
    pub plugin: Located<String>,
    /// Settings that the plugin receives when it is loaded.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub settings: Option<Located<toml::Table>>,
    /// The phases in which the plugin may rewrite: "call", "result". Default: both.
    pub on: Option<Located<Vec<Located<Phase>>>>,
    /// Capabilities that the plugin may import in addition to those of its WIT world.
    #[serde(default)]
    pub grant: Vec<Located<String>>,
}

/// An approval plugin, which remembers the answers of people.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Approval")]
pub(super) struct RawApproval {
    /// The plugin: "builtin:NAME", the path of a .wasm file, or "oci://REGISTRY/NAME@sha256:…".
    pub plugin: Located<String>,
    /// Settings that the plugin receives when it is loaded.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub settings: Option<Located<toml::Table>>,
    /// Capabilities that the plugin may import in addition to those of its WIT world.
    #[serde(default)]
    pub grant: Vec<Located<String>>,
}
