//! The ends of calls as OTLP log records, with the names that spans have. They contain nothing of any payload.

use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, LogsData, ResourceLogs, ScopeLogs, SeverityNumber};
use prost::Message as _;
use serde_json::Value;

use super::endpoint::{CollectorEndpoint, resource, scope, text};
use super::{MAX_NAME, now};
use crate::config::TelemetryConfig;
use crate::item::ItemKind;
use crate::secret::SecretStore;

/// The exporter of log records to one collector.
pub(super) struct LogExporter(CollectorEndpoint);

impl LogExporter {
    pub(super) fn new(config: &TelemetryConfig, secrets: &SecretStore) -> Result<Self, String> {
        CollectorEndpoint::new(config, "/v1/logs", "[[sinks]]", secrets).map(Self)
    }

    pub(super) async fn deliver(&self, records: &[String]) -> Result<(), String> {
        let logs: Vec<LogRecord> = records.iter().filter_map(|record| log_record(record)).collect();
        if logs.is_empty() { Ok(()) } else { self.0.post(encode(logs)).await }
    }

    pub(super) fn shown(&self) -> String {
        self.0.shown()
    }
}

/// Encodes an `ExportLogsServiceRequest`, which has the same form as `LogsData`.
fn encode(log_records: Vec<LogRecord>) -> Vec<u8> {
    let scope_logs = vec![ScopeLogs { scope: Some(scope()), log_records, ..ScopeLogs::default() }];
    let logs = ResourceLogs { resource: Some(resource()), scope_logs, ..ResourceLogs::default() };
    LogsData { resource_logs: vec![logs] }.encode_to_vec()
}

/// Returns the log record of a record with which a call ends; `None` for any other.
fn log_record(record: &str) -> Option<LogRecord> {
    let record: Value = serde_json::from_str(record).ok()?;
    let (kind, body) = (record.get("kind")?.as_str()?, record.get("body")?);
    let short = |of: &Value, key: &str| Some(of.get(key)?.as_str()?.chars().take(MAX_NAME).collect::<String>());
    let error = match kind {
        "tool.completed" => short(body, "outcome").filter(|outcome| !matches!(&**outcome, "ok" | "sent")),
        "call.denied" => Some(short(body, "code").unwrap_or_else(|| "denied".to_owned())),
        _ => return None,
    };
    let kinds = [ItemKind::Tool, ItemKind::Prompt, ItemKind::Resource, ItemKind::Template];
    let item = kinds.into_iter().find(|kind| body.get(kind.as_str()).is_some());
    // The addresses of resources may be payload, and are left out as in spans.
    let named = match item {
        Some(ItemKind::Tool) => Some("gen_ai.tool.name").zip(short(body, "tool")),
        Some(ItemKind::Prompt) => Some("gen_ai.prompt.name").zip(short(body, "prompt")),
        _ => None,
    };
    let method = short(body, "method").or_else(|| Some(item?.use_method().to_string()));
    let is_tool = item == Some(ItemKind::Tool);
    let summary = [method.as_deref(), named.as_ref().map(|(_, name)| name.as_str()), error.as_deref()];
    let summary = summary.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let texts = [
        ("mcp.method.name", method),
        ("gen_ai.operation.name", is_tool.then(|| "execute_tool".to_owned())),
        ("mcp.session.id", short(&record, "run")),
        ("portcullis.source", short(body, "source")),
        ("portcullis.profile", short(body, "profile")),
        ("portcullis.call.id", short(&record, "call")),
        ("error.type", error.clone()),
    ];
    let texts = texts.into_iter().chain(named.map(|(key, name)| (key, Some(name))));
    let mut attributes: Vec<KeyValue> = texts.filter_map(|(key, value)| Some(text(key, value?))).collect();
    if let Some(micros) = body.get("micros").and_then(Value::as_u64) {
        let value = Some(AnyValue { value: Some(Any::IntValue(micros.cast_signed())) });
        let key = "portcullis.call.duration_us".to_owned();
        attributes.push(KeyValue { key, value, ..KeyValue::default() });
    }
    let severity = if error.is_some() { SeverityNumber::Warn } else { SeverityNumber::Info };
    Some(LogRecord {
        time_unix_nano: record.get("at")?.as_u64()?.saturating_mul(1_000_000),
        observed_time_unix_nano: now(),
        severity_number: severity.into(),
        severity_text: if error.is_some() { "WARN" } else { "INFO" }.to_owned(),
        body: Some(AnyValue { value: Some(Any::StringValue(summary)) }),
        attributes,
        event_name: format!("portcullis.{kind}"),
        ..LogRecord::default()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

    use serde_json::json;

    use super::*;

    /// Returns the attributes of the log record of a record, as `KEY=VALUE`.
    fn attributes(kind: &str, body: &Value) -> Option<Vec<String>> {
        let record = json!({ "at": 1000, "body": body, "call": "C", "kind": kind, "run": "R", "seq": 3 });
        let data = LogsData::decode(&*encode(vec![log_record(&record.to_string())?])).unwrap();
        let log = data.resource_logs[0].scope_logs[0].log_records[0].clone();
        assert_eq!((log.time_unix_nano, &*log.event_name), (1_000_000_000, &*format!("portcullis.{kind}")));
        let shown = |at: &KeyValue| match at.value.clone().unwrap().value.unwrap() {
            Any::StringValue(text) => format!("{}={text}", at.key),
            Any::IntValue(number) => format!("{}={number}", at.key),
            other => panic!("{other:?}"),
        };
        let mut attributes: Vec<String> = log.attributes.iter().map(shown).collect();
        attributes.sort();
        assert!(!format!("{log:?}").contains("secret"), "{log:?}");
        Some(attributes)
    }

    #[test]
    fn the_end_of_a_call_is_a_log_record_with_the_names_of_spans_and_without_payloads() {
        let payload = json!({ "bytes": 6, "hash": "hmac", "body": "secret" });
        let body = json!({ "outcome": "ok", "micros": 42, "source": "calc", "tool": "calc__add", "result": payload });
        let expected = [
            "gen_ai.operation.name=execute_tool",
            "gen_ai.tool.name=calc__add",
            "mcp.method.name=tools/call",
            "mcp.session.id=R",
            "portcullis.call.duration_us=42",
            "portcullis.call.id=C",
            "portcullis.source=calc",
        ];
        assert_eq!(attributes("tool.completed", &body).unwrap(), expected);
        let body =
            json!({ "code": "rule", "message": "secret", "method": "resources/read", "resource": "file:///secret" });
        let expected =
            ["error.type=rule", "mcp.method.name=resources/read", "mcp.session.id=R", "portcullis.call.id=C"];
        assert_eq!(attributes("call.denied", &body).unwrap(), expected);
        assert_eq!(attributes("call.intent", &body), None);
    }
}
