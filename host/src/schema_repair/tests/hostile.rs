//! Schemas that are made to take much memory, time or stack.

use super::*;

fn generic_kinds(own: Value) -> (usize, usize) {
    let text = Json::of(&own);
    let repair = Repair::of(&text);
    (repair.schema().map_or(0, |schema| schema.as_bytes().len()), repair.counts()[&RepairKind::Generic])
}

#[test]
fn references_that_multiply_end_in_generic_objects() {
    let level = |n: usize| {
        let next = format!("#/$defs/l{}", n + 1);
        let properties: Members = (0..10).map(|m| (format!("p{m}"), json!({ "$ref": next }))).collect();
        (format!("l{n}"), json!({ "type": "object", "properties": properties }))
    };
    let levels: Members = (0..12).map(level).collect();
    let (bytes, generic) =
        generic_kinds(json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/l0" } }, "$defs": levels }));
    assert!(bytes <= MAX_DEFINITION_BYTES && generic > 0, "{bytes} {generic}");
}

#[test]
fn a_long_text_that_is_referred_to_often_is_not_repeated_without_end() {
    let properties: Members = (0..2_000).map(|n| (format!("p{n}"), json!({ "$ref": "#/$defs/a" }))).collect();
    let long = json!({ "type": "string", "description": "x".repeat(100_000) });
    let (bytes, _) = generic_kinds(json!({ "type": "object", "properties": properties, "$defs": { "a": long } }));
    assert!(bytes <= MAX_DEFINITION_BYTES, "{bytes}");
}

#[test]
fn a_chain_of_references_is_followed_only_so_far() {
    for keyword in ["$ref", "allOf", "properties", "anyOf"] {
        let link = |n: usize| {
            let next = json!({ "$ref": format!("#/$defs/l{}", n + 1) });
            let schema = match keyword {
                "$ref" => next,
                "properties" => json!({ "type": "object", "properties": { "a": next } }),
                _ => json!({ keyword: [next, { "type": "object" }] }),
            };
            (format!("l{n}"), schema)
        };
        let links: Members = (0..5_000).map(link).collect();
        let (_, generic) =
            generic_kinds(json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/l0" } }, "$defs": links }));
        assert!(generic > 0, "{keyword}");
    }
}

#[test]
fn many_parts_that_are_merged_do_not_get_deeper_with_their_number() {
    let parts: Vec<_> =
        (0..3_000).map(|n| json!({ "properties": { "a": { "type": "string", "maxLength": n } } })).collect();
    let repaired = Repaired::of(json!({ "type": "object", "allOf": parts }));
    assert_eq!(repaired.shown["properties"]["a"]["maxLength"], 0);
}

#[test]
fn alternatives_in_alternatives_end_the_search_for_the_one_that_fits() {
    let mut schema = json!({ "type": "object", "properties": { "deep": { "type": "integer" } }, "required": ["deep"] });
    for _ in 0..12 {
        let own = json!({ "type": "object", "required": ["a"], "properties": { "a": schema } });
        schema = json!({ "anyOf": [own.clone(), { "allOf": [own, { "properties": { "b": { "type": "string" } } }] }] });
    }
    let repaired = Repaired::of_property(schema);
    let sent = (0..12).fold(json!({ "deep": "no number" }), |inner, _| json!({ "a": inner }));
    assert_eq!(repaired.restored(&json!({ "x": sent })), json!({ "x": sent }));
}
