//! `[[sinks]]`: audit plugins, and servers to which the broker itself sends records.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;

use super::build::{ProblemCollector, plugin};
use super::error::UnlocatedProblem;
use super::raw::{Located, RawValue};
use super::syslog::SyslogAddress;
use super::telemetry::TelemetryConfig;
use super::{PluginConfig, callers, source, value};

/// A receiver of the records of the ledger: an audit plugin, a syslog receiver or a collector. Each entry has one of
/// `plugin`, `syslog` and `otlp`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Sink")]
pub(super) struct RawSink {
    /// The plugin, which passes the records on: "builtin:NAME", the path of a .wasm file, or
    /// "oci://REGISTRY/NAME@sha256:…".
    pub plugin: Option<Located<String>>,
    /// Settings that the plugin receives when it is loaded.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub settings: Option<Located<toml::Table>>,
    /// Capabilities that the plugin may import in addition to those of its WIT world.
    #[serde(default)]
    pub grant: Vec<Located<String>>,
    /// The file to which the plugin's lines are written. Default: a file in the data folder.
    pub file: Option<Located<String>>,
    /// The address of a syslog receiver, to which each record is a message in the format of RFC 5424:
    /// "syslog+tls://logs.example.com:6514", "syslog+tcp://127.0.0.1:601" or "syslog+unix:/dev/log".
    pub syslog: Option<Located<String>>,
    /// The address of an OpenTelemetry collector, such as "http://127.0.0.1:4318". The end of each call is sent to
    /// `/v1/logs` below it as a log record, by OTLP over HTTP. Log records contain no payload.
    pub otlp: Option<Located<String>>,
    /// Headers that are sent with every request to the collector.
    #[serde(default)]
    pub headers: BTreeMap<Located<String>, Located<RawValue>>,
}

/// A server to which the broker itself sends records.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub enum RemoteSinkConfig {
    /// A syslog receiver, which gets every record.
    Syslog(SyslogAddress),
    /// A collector, which gets the end of each call as a log record.
    Otlp(TelemetryConfig),
}

/// Validates all sinks: those that are plugins, and those that are servers. Every problem is added to `problems`.
pub(super) fn sinks(
    raw: &[Located<RawSink>],
    base: &Path,
    problems: &mut ProblemCollector,
) -> (Vec<PluginConfig>, Vec<RemoteSinkConfig>) {
    let (mut plugins, mut remote) = (Vec::new(), Vec::new());
    for at in raw {
        let receivers = [("plugin", &at.plugin), ("syslog", &at.syslog), ("otlp", &at.otlp)];
        let named: Vec<&str> = receivers.iter().filter(|(_, named)| named.is_some()).map(|(key, _)| *key).collect();
        let [receiver] = named[..] else {
            let found = if named.is_empty() { "none".to_owned() } else { named.join(" and ") };
            let text = format!("a sink has one of `plugin`, `syslog` and `otlp`, and this one has {found}");
            let help = "write `plugin = \"builtin:jsonl\"`, or `syslog = \"syslog+tls://logs.example.com:6514\"`";
            problems.0.push(UnlocatedProblem::new(at.span(), text).help(help));
            continue;
        };
        let members = [
            ("settings", "plugin", at.settings.as_ref().map(Located::span)),
            ("grant", "plugin", at.grant.first().map(Located::span)),
            ("file", "plugin", at.file.as_ref().map(Located::span)),
            ("headers", "otlp", at.headers.keys().next().map(Located::span)),
        ];
        for (member, of, span) in members {
            if let Some(span) = span.filter(|_| of != receiver) {
                let text = format!("`{member}` belongs to a sink with `{of}`, and this one has `{receiver}`");
                problems.0.push(UnlocatedProblem::new(span, text).help("remove it"));
            }
        }
        if let Some(reference) = &at.plugin {
            let file = at.file.as_ref().and_then(|at| problems.keep(value::path(at, base)));
            let common = (reference, at.settings.as_ref(), &*at.grant);
            plugins.extend(plugin(common, base, problems).map(|plugin| PluginConfig { file, ..plugin }));
        }
        if let Some(address) = &at.syslog {
            remote.extend(problems.keep(SyslogAddress::parse(address, base)).map(RemoteSinkConfig::Syslog));
        }
        if let Some(otlp) = &at.otlp {
            let otlp = problems.keep(callers::web(otlp, "http://127.0.0.1:4318"));
            let headers = source::headers(&at.headers, problems);
            remote.extend(
                otlp.map(|otlp| RemoteSinkConfig::Otlp(TelemetryConfig { otlp, headers, metrics_interval: None })),
            );
        }
    }
    (plugins, remote)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::path::Path;

    use super::RemoteSinkConfig;
    use crate::Config;

    fn parsed(sinks: &str) -> Result<Config, String> {
        Config::parse(sinks, Path::new("/p/portcullis.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_sink_is_a_plugin_a_syslog_receiver_or_a_collector_and_nothing_else() {
        let config = parsed(
            "[[sinks]]\nplugin = \"builtin:jsonl\"\n[[sinks]]\nsyslog = \"syslog+unix:log\"\n\
             [[sinks]]\notlp = \"http://127.0.0.1:4318\"\nheaders = { X-Key = { secret = \"otlp\" } }\n",
        );
        let config = config.unwrap();
        assert_eq!((config.sinks.len(), config.remote_sinks.len()), (1, 2));
        assert!(matches!(&config.remote_sinks[..], [RemoteSinkConfig::Syslog(_), RemoteSinkConfig::Otlp(_)]));
        let two = "plugin = \"builtin:jsonl\"\nsyslog = \"syslog+unix:log\"";
        for (sink, says) in [
            ("file = \"x\"", "this one has none"),
            (two, "this one has plugin and syslog"),
            ("syslog = \"syslog+unix:log\"\nfile = \"x\"", "`file` belongs to a sink with `plugin`"),
            ("plugin = \"builtin:jsonl\"\nheaders = { a = \"b\" }", "`headers` belongs to a sink with `otlp`"),
            ("syslog = \"logs.example.com\"", "syslog+tls://logs.example.com:6514"),
            ("otlp = \"grpc://x\"", "http://127.0.0.1:4318"),
        ] {
            let refused = parsed(&format!("[[sinks]]\n{sink}\n")).unwrap_err();
            assert!(refused.contains(says), "{sink}: {refused}");
        }
    }
}
