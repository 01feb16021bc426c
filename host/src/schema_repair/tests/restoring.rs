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

// Each of the following arguments takes minutes, or gigabytes, if nothing counts the steps.

/// Returns an object with this many members that no schema here names.
fn unnamed(count: usize) -> Value {
    (0..count).map(|n| (format!("n{n}"), json!("1"))).collect::<Members>().into()
}

/// Sends an array as the property `x`, and returns the items that the source gets.
fn restored_items(repaired: &Repaired, items: Vec<Value>) -> Vec<Json> {
    let restored = repaired.repair.restore(&Json::of(&json!({ "x": items }))).unwrap();
    restored.unwrap().get("x").unwrap().items().unwrap()
}

#[test]
fn a_key_of_nothing_but_dots_stands_for_itself() {
    let dots = ".".repeat(1024 * 1024);
    nested().check(json!({ &dots: 1, "a__b__c": "7" }), json!({ dots: 1, "a": { "b": { "c": 7 } } }));
}

#[test]
fn keys_that_could_be_split_in_thousands_of_ways_are_kept_as_they_are() {
    let mut schema = json!({ "type": "string" });
    for _ in 0..5 {
        let members: Members =
            ["", ".", "..", "..."].map(|name| (name.to_owned(), schema.clone())).into_iter().collect();
        schema = json!({ "type": "object", "properties": members, "additionalProperties": false });
    }
    let repaired = Repaired::of(
        json!({ "type": "object", "properties": { "x": { "type": "array", "items": schema }, "y": { "type": "integer" } } }),
    );
    assert!(!repaired.kinds().contains(&"generic"), "a plan that keeps all values shows nothing");
    let keys: Members = (0..40_000).map(|n| (format!("{}{n}", ".".repeat(20)), json!(1))).collect();
    let restored = |keys: Value| repaired.repair.restore(&Json::of(&json!({ "x": [keys], "y": "7" }))).unwrap();
    assert_eq!(restored(json!({})).unwrap().get("y"), Some(Json::of(&7)));
    assert_eq!(restored(keys.into()), None, "nothing is restored once the steps are used up");
}

#[test]
fn arguments_of_many_members_are_restored_and_of_too_many_are_kept() {
    let restored = |count: usize| {
        let mut sent = unnamed(count);
        sent["a"] = json!({ "e": "true" });
        nested().repair.restore(&Json::of(&sent)).unwrap()
    };
    assert_eq!(restored(100_000).unwrap().get("a"), Some(Json::of(&json!({ "e": true }))));
    assert_eq!(restored(300_000), None);
}

#[test]
fn an_object_of_many_members_that_fits_none_of_many_alternatives_is_kept() {
    let either = |n: usize| json!({ "type": "object", "required": [format!("a{n}")], "properties": { format!("a{n}"): { "type": "integer" } } });
    let repaired = Repaired::of_property(json!({ "anyOf": (0..2_000).map(either).collect::<Vec<_>>() }));
    let sent = json!({ "x": unnamed(20_000) });
    assert_eq!(repaired.restored(&sent), sent);
    repaired.check(json!({ "x": { "a7": "7" } }), json!({ "x": { "a7": 7 } }));
}

#[test]
fn objects_that_are_made_for_what_was_not_sent_are_not_made_without_end() {
    let inner = json!({ "type": "object", "properties": { "p": { "type": "string" } } });
    let objects: Members = (0..1_000).map(|n| (format!("o{n}"), inner.clone())).collect();
    let names: Vec<_> = objects.keys().cloned().collect();
    let repaired = Repaired::of_property(
        json!({ "type": "array", "items": { "type": "object", "properties": objects, "required": names } }),
    );
    let items = restored_items(&repaired, vec![json!({}); 100_000]);
    assert!(items[0].get("o999").is_some(), "it is made as long as it can be");
    assert_eq!(items[99_999].as_str(), "{}");
}

#[test]
fn short_names_that_stand_for_long_ones_are_not_replaced_without_end() {
    let long = "y".repeat(100_000);
    let item = json!({ "type": "object", "properties": { &long: { "type": "string" } } });
    let repaired = Repaired::of_property(json!({ "type": "array", "items": item }));
    let name = repaired.property()["items"]["properties"].as_object().unwrap().keys().next().unwrap().clone();
    let sent = json!({ name: "a" });
    let items = restored_items(&repaired, vec![sent.clone(); 10_000]);
    assert_eq!((&items[0], &items[9_999]), (&Json::of(&json!({ long: "a" })), &Json::of(&sent)));
}
