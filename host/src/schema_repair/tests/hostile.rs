//! Schemas that are made to take much memory, time or stack. Without the limits, one of them takes minutes, or more
//! memory than a machine has.

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

/// Returns an object with this many properties.
fn many(count: usize, property: &Value) -> Value {
    (0..count).map(|n| (format!("p{n}"), property.clone())).collect::<Members>().into()
}

/// Checks that a generic object stands for a part because it is too large, and for nothing else.
fn check_too_large(repaired: &Repaired, at: &str) {
    let generic: Vec<_> = repaired.repair.steps().iter().filter(|step| step.kind == RepairKind::Generic).collect();
    assert!(!generic.is_empty() && generic.iter().all(|step| step.at == at), "{generic:?}");
    assert!(generic.iter().all(|step| step.what == super::super::resolve::TOO_LARGE), "{generic:?}");
}

#[test]
fn a_schema_of_other_members_is_not_copied_for_thousands_of_properties() {
    let merged = |keyword: &str, properties: usize, values: usize| {
        let others = json!({ "additionalProperties": { "enum": vec![0; values] } });
        json!({ "type": "object", "properties": many(properties, &json!({})), keyword: [others] })
    };
    for keyword in ["allOf", "anyOf"] {
        let repaired = Repaired::of(merged(keyword, 15_000, 30_000));
        assert_eq!(repaired.shown, json!({ "type": "object", "properties": {} }), "{keyword}");
        check_too_large(&repaired, "");
        let repaired = Repaired::of_property(merged(keyword, 15_000, 30_000));
        assert_eq!(repaired.property(), &json!({ "type": "object" }), "{keyword}");
        check_too_large(&repaired, "/properties/x");
        let repaired = Repaired::of(merged(keyword, 20, 3));
        assert_eq!(repaired.shown["properties"]["p7"], json!({ "type": "string", "enum": ["0"] }), "{keyword}");
    }
}

#[test]
fn a_schema_of_other_members_is_not_copied_for_thousands_of_required_ones() {
    let required = |count: usize, values: usize| {
        let names: Vec<_> = (0..count).map(|n| n.to_string()).collect();
        json!({ "type": "object", "required": names, "additionalProperties": { "enum": vec![0; values] } })
    };
    let repaired = Repaired::of_property(required(18_000, 30_000));
    assert_eq!(repaired.property(), &json!({ "type": "object" }));
    check_too_large(&repaired, "/properties/x");
    let repaired = Repaired::of_property(required(20, 3));
    assert_eq!(repaired.property()["properties"]["_7"]["enum"], json!(["0"]));
}

#[test]
fn what_is_merged_with_thousands_of_small_parts_is_not_read_for_each_without_end() {
    let names: Vec<_> = (0..20_000).map(|n| n.to_string()).collect();
    for (large, small) in [
        (json!({ "required": names }), json!({ "required": ["a"] })),
        (json!({ "enum": vec![0; 20_000] }), json!({ "enum": [0] })),
        (json!({ "type": vec!["object"; 20_000] }), json!({ "minProperties": 0 })),
        (json!({ "properties": many(15_000, &json!({})) }), json!({ "additionalProperties": false })),
    ] {
        let parts: Vec<_> = std::iter::once(large).chain(vec![small; 8_000]).collect();
        let repaired = Repaired::of_property(json!({ "allOf": parts }));
        assert_eq!(repaired.property(), &json!({ "type": "object" }));
        check_too_large(&repaired, "/properties/x");
    }
}

#[test]
fn a_long_name_is_not_copied_for_each_member_that_could_be_moved_out() {
    let (long, inner) =
        ("x".repeat(128 * 1024), json!({ "type": "object", "properties": many(5_000, &json!({ "type": "string" })) }));
    let repaired = Repaired::of(json!({ "type": "object", "properties": { long.clone(): inner } }));
    assert_eq!(repaired.kinds(), ["renamed"]);
    let (name, shown) = repaired.shown["properties"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(shown["properties"].as_object().unwrap().len(), 5_000);
    assert_eq!(repaired.restored(&json!({ name: { "p7": 8 } })), json!({ long: { "p7": "8" } }));
}

#[test]
fn names_that_become_the_same_safe_name_are_numbered_without_a_search_for_each() {
    let names = (0x4e00..0x4e00 + 15_000).filter_map(char::from_u32).map(|name| (name.to_string(), json!({})));
    let repaired = Repaired::of(json!({ "type": "object", "properties": names.collect::<Members>() }));
    let [step] = repaired.repair.steps() else { panic!("{:?}", repaired.repair.steps()) };
    assert!(step.what.starts_with("the repaired schema would take more than"), "{step:?}");
}

#[test]
fn thousands_of_references_to_anchors_do_not_search_the_schema_each() {
    let lists = |reference: &str| {
        let own = json!({ "type": "object", "properties": { "x": { "anyOf": vec![json!({ "$ref": reference }); 17_000] } },
            "$defs": { "end": { "$anchor": "end", "type": "string" } } });
        Repaired::of(own)
    };
    let found = lists("#end");
    assert_eq!(found.property(), &json!({ "type": "string" }));
    assert_eq!(schema_problems(&Json::of(&found.own)), []);
    let missing = lists("#nowhere");
    assert_eq!(missing.property(), &json!({ "type": "object" }));
    assert_eq!(missing.repair.counts()[&RepairKind::Generic], 17_000);
}

#[test]
fn references_that_stay_open_are_not_compared_with_each_further_one_without_end() {
    let references = |to: &str| vec![json!({ "$ref": to }); 10_000];
    let properties: Members =
        references("#/$defs/b").into_iter().enumerate().map(|(n, it)| (n.to_string(), it)).collect();
    let own = json!({ "type": "object", "allOf": references("#/$defs/a"), "properties": properties,
        "$defs": { "a": {}, "b": {} } });
    let (_, generic) = generic_kinds(own);
    assert!(generic > 0);
}

#[test]
fn thousands_of_alternatives_are_not_all_compared_with_each_other() {
    let either: Vec<_> = (0..7_000).map(|n| json!({ "const": n, "x": 1 })).collect();
    let repaired = Repaired::of_property(json!({ "oneOf": either }));
    assert_eq!(repaired.property()["anyOf"].as_array().unwrap().len(), 7_000);
    assert_eq!(repaired.property()["description"], "Exactly one of the alternatives must match.");
    assert!(repaired.kinds().contains(&"loosened"), "what was not compared is not called exact");
    repaired.check(json!({ "x": "6999" }), json!({ "x": 6999 }));
}

#[test]
fn a_kept_step_takes_little_memory_whatever_the_source_calls_its_parts() {
    let long = "x".repeat(100_000);
    let mut inner = json!({ "type": "object", "properties": many(100, &json!({ "const": 1 })) });
    inner["properties"]["p0"][&*long] = json!(1);
    let repaired = Repaired::of(json!({ "type": "object", "properties": { long: inner } }));
    assert_eq!(repaired.repair.steps().len(), MAX_STEPS);
    for step in repaired.repair.steps() {
        assert!(step.at.len() < MAX_POINTER && step.what.chars().count() <= MAX_DETAIL + 1, "{}", step.kind.as_str());
    }
}
