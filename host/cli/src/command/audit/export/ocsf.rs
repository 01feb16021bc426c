//! Calls as events of the Open Cybersecurity Schema Framework, version 1.3.0: class API Activity (6003).

use portcullis::ledger::{CallEntry, RecordedOutcome};
use serde_json::{Map, Value, json};

/// The class, and its category Application Activity.
const CLASS: u32 = 6003;
const CATEGORY: u32 = 6;

/// The activity "Other": a tool's name does not reveal its activity.
const OTHER: u32 = 99;

/// Returns a call as an event.
pub(super) fn event(entry: &CallEntry) -> Value {
    let (status, status_id) = match entry.outcome {
        RecordedOutcome::Ok => ("Success", 1),
        RecordedOutcome::Unknown
        | RecordedOutcome::Abandoned
        | RecordedOutcome::Running
        | RecordedOutcome::Asked
        | RecordedOutcome::Deferred => ("Unknown", 0),
        _ => ("Failure", 2),
    };
    let (severity, severity_id) = match entry.outcome {
        RecordedOutcome::Ok | RecordedOutcome::Running | RecordedOutcome::Asked | RecordedOutcome::Deferred => {
            ("Informational", 1)
        }
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
    #![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

    use super::*;

    /// The part of OCSF's schema, version 1.3.0, about the class API Activity and of the objects that are in it:
    /// attributes with their types and enumerations, without those of profiles.
    const SCHEMA: &str = include_str!("ocsf-1.3.0.json");

    /// Asserts that an object conforms to the schema.
    fn check(schema: &Value, name: &str, object: &Value) {
        let expected = &schema["objects"][name];
        let members = object.as_object().unwrap_or_else(|| panic!("{name} is no object: {object}"));
        for (member, value) in members {
            let attribute = expected["attributes"].get(member).unwrap_or_else(|| panic!("{name} has no {member}"));
            let kind = attribute["type"].as_str().unwrap();
            let is_as_expected = match schema["types"].get(kind).and_then(Value::as_str) {
                _ if attribute["array"] == true => value.is_array(),
                Some("string_t") => value.is_string(),
                Some("integer_t" | "long_t") => value.is_i64() || value.is_u64(),
                Some("boolean_t") => value.is_boolean(),
                Some(other) => panic!("{name} has a {other}"),
                None if kind == "object" => value.is_object(),
                None => {
                    check(schema, kind, value);
                    true
                }
            };
            let listed = attribute["enum"].as_array();
            assert!(is_as_expected && listed.is_none_or(|listed| listed.contains(value)), "{name}.{member}: {value}");
        }
        for (attribute, facts) in expected["attributes"].as_object().unwrap() {
            assert!(facts["required"] != true || members.contains_key(attribute), "{name} lacks {attribute}: {object}");
        }
        let one_of = expected["at_least_one"].as_array().unwrap();
        let has = |attribute: &Value| members.contains_key(attribute.as_str().unwrap());
        assert!(one_of.is_empty() || one_of.iter().any(has), "{name} has none of {one_of:?}: {object}");
    }

    #[test]
    fn an_event_is_as_the_schema_says() {
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        let whole = super::super::tests::entry();
        let bare = CallEntry {
            run: None,
            principal: None,
            profile: None,
            client: None,
            method: None,
            kind: None,
            item: None,
            source: None,
            reason: None,
            answered_by: None,
            micros: None,
            ..whole.clone()
        };
        for entry in [whole, bare] {
            for outcome in RecordedOutcome::ALL {
                let event = event(&CallEntry { outcome, ..entry.clone() });
                check(&schema, "api_activity", &event);
                assert_eq!(event["type_uid"], json!(event["class_uid"].as_u64().unwrap() * 100 + 99));
            }
        }
    }

    #[test]
    fn an_event_says_what_the_call_was() {
        let denied = event(&super::super::tests::entry());
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
