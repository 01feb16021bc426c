//! Calls as events of the Open Cybersecurity Schema Framework, version 1.3.0: class API Activity (6003).

use portcullis::ledger::{CallEntry, RecordedOutcome};
use serde_json::{Map, Value, json};

/// The class, and its category Application Activity.
const CLASS: u32 = 6003;
const CATEGORY: u32 = 6;

/// The activity "Other": what a tool does is not known by its name.
const OTHER: u32 = 99;

/// Returns a call as an event.
pub(super) fn event(entry: &CallEntry) -> Value {
    let (status, status_id) = match entry.outcome {
        RecordedOutcome::Ok => ("Success", 1),
        RecordedOutcome::Unknown | RecordedOutcome::Abandoned | RecordedOutcome::Running | RecordedOutcome::Asked => {
            ("Unknown", 0)
        }
        _ => ("Failure", 2),
    };
    let (severity, severity_id) = match entry.outcome {
        RecordedOutcome::Ok | RecordedOutcome::Running | RecordedOutcome::Asked => ("Informational", 1),
        RecordedOutcome::Unknown | RecordedOutcome::Withheld => ("Medium", 3),
        _ => ("Low", 2),
    };
    let method = entry.method.as_deref().unwrap_or("unknown");
    let known = |members: &[(&str, Option<&str>)]| -> Map<String, Value> {
        members.iter().filter_map(|(key, value)| Some(((*key).to_owned(), (*value)?.into()))).collect()
    };
    let service = entry.source.as_deref().map(|name| json!({ "name": name }));
    let mut event = json!({
        "activity_id": OTHER,
        "activity_name": method,
        "actor": {
            "user": { "name": entry.principal.as_deref().unwrap_or("unknown") },
            "session": entry.run.as_deref().map(|run| json!({ "uid": run })),
            "app_name": entry.client,
        },
        "api": { "operation": entry.item.as_deref().unwrap_or(method), "service": service },
        "category_uid": CATEGORY,
        "class_uid": CLASS,
        "metadata": {
            "uid": entry.call,
            "version": "1.3.0",
            "product": {
                "name": "Portcullis",
                "vendor_name": "Portcullis",
                "version": env!("CARGO_PKG_VERSION"),
            },
        },
        "severity": severity,
        "severity_id": severity_id,
        "src_endpoint": { "name": entry.client.as_deref().unwrap_or("unknown") },
        "status": status,
        "status_id": status_id,
        "status_code": entry.outcome.as_str(),
        "status_detail": entry.reason,
        "duration": entry.micros.map(|micros| micros / 1000),
        "time": entry.started,
        "type_uid": CLASS * 100 + OTHER,
        "unmapped": known(&[
            ("answered_by", entry.answered_by.as_deref()),
            ("item_kind", entry.kind),
            ("profile", entry.profile.as_deref()),
        ]),
    });
    remove_nulls(&mut event);
    event
}

/// Takes out members without a value: the schema has no null.
fn remove_nulls(value: &mut Value) {
    if let Value::Object(members) = value {
        members.values_mut().for_each(remove_nulls);
        members.retain(|_, value| !value.is_null());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_what_the_class_requires() {
        let denied = event(&super::super::tests::entry());
        let required = [
            "activity_id",
            "actor",
            "api",
            "category_uid",
            "class_uid",
            "metadata",
            "severity_id",
            "src_endpoint",
            "time",
            "type_uid",
        ];
        for member in required {
            assert!(denied.get(member).is_some(), "{member}: {denied}");
        }
        let at = |path: &str| denied.pointer(path).cloned().unwrap_or_default();
        assert_eq!((at("/type_uid"), at("/status_id"), at("/severity_id")), (600_399.into(), 2.into(), 2.into()));
        assert_eq!((at("/actor/user/name"), at("/api/operation")), ("me".into(), "files__read".into()));
        assert_eq!((at("/api/service/name"), at("/duration")), ("files".into(), 1.into()));
        assert_eq!((at("/status_code"), at("/status_detail")), ("denied".into(), "rule".into()));
        assert_eq!(denied.pointer("/unmapped/answered_by"), None, "nothing is null: {denied}");
        let done = CallEntry { outcome: RecordedOutcome::Ok, ..super::super::tests::entry() };
        assert_eq!(event(&done).pointer("/status_id"), Some(&1.into()));
    }
}
