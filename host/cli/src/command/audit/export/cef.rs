//! Calls as lines of the Common Event Format, version 0.

use portcullis::ledger::{CallEntry, RecordedOutcome};

use crate::output::escape_hidden;

/// Returns a call as a line, without its end. Labels name the fields that the format does not know.
pub(super) fn line(entry: &CallEntry) -> String {
    let severity = match entry.outcome {
        RecordedOutcome::Ok | RecordedOutcome::Running | RecordedOutcome::Asked | RecordedOutcome::Deferred => 1,
        RecordedOutcome::Unknown | RecordedOutcome::Withheld => 6,
        _ => 3,
    };
    let outcome = entry.outcome.as_str();
    let named = |label: &'static str, text: Option<&str>| [Some(label.to_owned()), text.map(value)];
    let micros = entry.micros.map(|micros| micros.to_string());
    // The identifier comes before every text that somebody else chose.
    let fields = [
        ("externalId", Some(value(&entry.call))),
        ("rt", Some(entry.started.to_string())),
        ("outcome", Some(outcome.to_owned())),
        ("suser", entry.principal.as_deref().map(value)),
        ("requestClientApplication", entry.client.as_deref().map(value)),
        ("requestMethod", entry.method.as_deref().map(value)),
        ("destinationServiceName", entry.source.as_deref().map(value)),
        ("reason", entry.reason.as_deref().map(value)),
    ];
    let custom = [
        ("cs1", named("item", entry.item.as_deref())),
        ("cs2", named("profile", entry.profile.as_deref())),
        ("cs3", named("run", entry.run.as_deref())),
        ("cs4", named("answeredBy", entry.answered_by.as_deref())),
        ("cn1", named("microseconds", micros.as_deref())),
    ];
    let fields = fields.into_iter().filter_map(|(key, text)| Some(format!("{key}={}", text?)));
    let custom =
        custom.into_iter().filter_map(|(key, [label, text])| Some(format!("{key}Label={} {key}={}", label?, text?)));
    let extension: Vec<String> = fields.chain(custom).collect();
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "CEF:0|Portcullis|Portcullis|{version}|call.{outcome}|MCP call {outcome}|{severity}|{}",
        extension.join(" ")
    )
}

/// Returns a text as a value of the extension.
fn value(text: &str) -> String {
    escape_hidden(text).replace('\\', "\\\\").replace('=', "\\=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_cannot_begin_another_field_or_line() {
        let item = Some("a\\ b=c|d\nsuser=root".to_owned());
        let line = line(&CallEntry { item, ..super::super::tests::entry() });
        assert!(line.starts_with("CEF:0|Portcullis|Portcullis|"), "{line}");
        assert!(
            line.contains("|call.denied|MCP call denied|3|externalId=01M7WN5Q1GEFB10ZKY19G6B2W8 rt=1795000000123 ")
        );
        assert!(line.contains(" suser=me ") && line.contains(" cn1Label=microseconds cn1=1500"), "{line}");
        assert!(!line.contains(" suser=root") && !line.contains('\n') && line.contains("b\\=c|d"), "{line}");
    }
}
