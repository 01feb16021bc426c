use super::*;

fn nested() -> Repaired {
    Repaired::of(json!({ "type": "object", "required": ["a"], "properties": {
        "a": { "type": "object", "properties": {
            "b": { "type": "object", "properties": { "c": { "type": "integer" }, "d": { "type": "string" } } },
            "e": { "type": "boolean" },
        } },
        "f": { "type": "array", "items": { "type": "object", "properties": { "n": { "type": "number" } } } },
    } }))
}

#[test]
fn paths_with_dots_nested_objects_and_flat_names_mean_the_same() {
    let repaired = nested();
    let whole = json!({ "a": { "b": { "c": 1, "d": "x" }, "e": true } });
    for sent in [
        json!({ "a__b__c": 1, "a__b__d": "x", "a__e": true }),
        json!({ "a.b.c": 1, "a.b.d": "x", "a.e": true }),
        json!({ "a": { "b.c": 1, "b.d": "x", "e": true } }),
        json!({ "a": { "b": { "c": 1 } }, "a__b__d": "x", "a.e": true }),
        json!({ "a.b": { "c": 1, "d": "x" }, "a__e": true }),
        whole.clone(),
    ] {
        repaired.check(sent, whole.clone());
    }
}

#[test]
fn types_are_corrected_at_every_depth() {
    nested().check(
        json!({ "a__b__c": "7", "a__b__d": 8, "a__e": "True", "f": { "n": "1.5" } }),
        json!({ "a": { "b": { "c": 7, "d": "8" }, "e": true }, "f": [{ "n": 1.5 }] }),
    );
    nested().check(
        json!({ "a": "{\"e\":\"false\"}", "f": "[{\"n\":\"2\"}]" }),
        json!({ "a": { "e": false }, "f": [{ "n": 2 }] }),
    );
}

#[test]
fn null_for_what_is_optional_is_left_out_unless_the_source_takes_it() {
    let repaired = Repaired::of(json!({ "type": "object", "required": ["c"], "properties": {
        "a": { "type": "string" }, "b": { "type": ["string", "null"] }, "c": { "type": ["integer", "null"] },
    } }));
    repaired.check(json!({ "a": null, "b": null, "c": null }), json!({ "b": null, "c": null }));
}

#[test]
fn values_that_are_chosen_by_text_come_back_in_their_own_type() {
    let repaired = Repaired::of_property(json!({ "enum": [1, "2", false, null] }));
    for (sent, expected) in [
        (json!("1"), json!(1)),
        (json!("2"), json!("2")),
        (json!("false"), json!(false)),
        (json!("null"), json!(null)),
        (json!(1), json!(1)),
    ] {
        repaired.check(json!({ "x": sent }), json!({ "x": expected }));
    }
}

#[test]
fn an_alternative_is_recognised_by_what_was_sent() {
    let either = |kind: &str, name: &str, types: &str| json!({ "type": "object", "required": ["kind", name], "properties": { "kind": { "const": kind }, name: { "type": types } } });
    let repaired = Repaired::of_property(
        json!({ "oneOf": [either("file", "the.path", "string"), either("line", "the.number", "integer")] }),
    );
    assert!(repaired.repair.counts().keys().all(|kind| kind.is_exact()), "{:?}", repaired.kinds());
    repaired.check(
        json!({ "x": { "kind": "line", "the_number": 5 } }),
        json!({ "x": { "kind": "line", "the.number": 5 } }),
    );
    repaired.check(
        json!({ "x": { "kind": "file", "the_path": "5" } }),
        json!({ "x": { "kind": "file", "the.path": "5" } }),
    );
}

#[test]
fn an_alternative_without_a_marker_is_recognised_by_what_it_needs_and_names() {
    let object =
        |members: Value, required: Value| json!({ "type": "object", "properties": members, "required": required });
    let closed =
        json!({ "type": "object", "properties": { "b": { "type": "string" } }, "additionalProperties": false });
    for other in [closed, object(json!({ "k": { "type": "string" }, "x.y": { "type": "integer" } }), json!(["k"]))] {
        let own = json!({ "anyOf": [other, object(json!({ "x-y": { "type": "integer" } }), json!([]))] });
        Repaired::of_property(own).check(json!({ "x": { "x_y": 1 } }), json!({ "x": { "x-y": 1 } }));
    }
}

#[test]
fn two_arguments_for_one_place_are_refused() {
    let repaired = nested();
    for sent in [
        r#"{"a__b__c":1,"a.b.c":2}"#,
        r#"{"a":{"b":{"c":1}},"a__b__c":1}"#,
        r#"{"a":5,"a__e":true}"#,
        r#"{"a":{"e":true},"a":{"e":false}}"#,
        r#"{"x":1,"x":2}"#,
    ] {
        let refused = repaired.repair.restore(&Json::parse(sent).unwrap()).unwrap_err();
        assert!(refused.to_string().contains("two arguments stand for `"), "{sent}: {refused}");
    }
}

#[test]
fn what_needs_no_change_keeps_its_bytes_and_its_place() {
    let sent = Json::parse(r#"{ "z": 1.50, "a__e": true, "f":[ {"n":1e2} ],"y":12345678901234567890123 }"#).unwrap();
    let restored = nested().repair.restore(&sent).unwrap().unwrap();
    assert_eq!(restored.as_str(), r#"{"z":1.50,"a":{"e":true},"f":[ {"n":1e2} ],"y":12345678901234567890123}"#);
    let same = Json::parse(r#"{ "a" : {"e" : true} }"#).unwrap();
    assert_eq!(nested().repair.restore(&same), Ok(None));
}

#[test]
fn members_that_a_source_leaves_open_are_corrected_and_never_read_as_paths() {
    let repaired = Repaired::of(json!({ "type": "object", "properties": {
        "labels": { "type": "object", "properties": { "a": { "type": "object", "properties": { "b": { "type": "integer" } } } },
            "additionalProperties": { "type": "integer" } },
    } }));
    repaired.check(json!({ "labels": { "a.b": "5", "q": 6 } }), json!({ "labels": { "a.b": 5, "q": 6 } }));
}
