#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod generated;
mod hostile;
mod invalid;
mod restoring;

use serde_json::{Value, json};

use super::*;

/// A schema, its repair, and the repaired schema, or the source's own if that needs none.
struct Repaired {
    own: Value,
    repair: Repair,
    shown: Value,
}

impl Repaired {
    fn of(own: Value) -> Self {
        let repair = Repair::of(&Json::of(&own));
        let shown = repair.schema().map_or_else(|| own.clone(), Json::to_value);
        Self { own, repair, shown }
    }

    /// Returns the repair of the schema of one property `x`, which is required.
    fn of_property(property: Value) -> Self {
        Self::of(json!({ "type": "object", "properties": { "x": property }, "required": ["x"] }))
    }

    fn property(&self) -> &Value {
        &self.shown["properties"]["x"]
    }

    fn kinds(&self) -> Vec<&'static str> {
        self.repair.counts().keys().map(|kind| kind.as_str()).collect()
    }

    fn restored(&self, sent: &Value) -> Value {
        let sent = Json::of(sent);
        self.repair.restore(&sent).unwrap().unwrap_or(sent).to_value()
    }

    /// Checks that arguments become these, and that those are valid by the source's own schema.
    fn check(&self, sent: Value, expected: Value) {
        assert_eq!(self.restored(&sent), expected, "{sent} by {}", self.shown);
        let valid = jsonschema::validator_for(&self.own).unwrap();
        assert!(valid.is_valid(&expected), "{expected} by {}", self.own);
    }
}

#[test]
fn a_schema_that_every_model_reads_keeps_its_bytes() {
    let simple = r#"{ "type":"object","properties":{"a":{"type":"string","minLength":1},"b":{"type":"object","properties":{"c":{"type":"integer"}}}},"required":["a"]}"#;
    let repair = Repair::of(&Json::parse(simple).unwrap());
    assert_eq!((repair.schema(), repair.steps()), (None, [].as_slice()));
    let definition = Json::parse(format!(r#"{{"name":"t", "inputSchema": {simple}}}"#)).unwrap();
    assert_eq!(repair.applied_to(definition.clone()).as_str(), definition.as_str());
    assert_eq!(repair.restore(&Json::parse(r#"{ "a": "x" }"#).unwrap()), Ok(None));
}

#[test]
fn the_rest_of_a_definition_keeps_its_bytes() {
    let text = r#"{"name":"t",  "v":1.0,"inputSchema":{"type":"object","properties":{"a":{"const":1}}},"x":"y"}"#;
    let definition = Json::parse(text).unwrap();
    let repair = Repair::of(&definition.get("inputSchema").unwrap());
    assert_eq!(
        repair.applied_to(definition).as_str(),
        r#"{"name":"t",  "v":1.0,"inputSchema":{"type":"object","properties":{"a":{"type":"string","enum":["1"]}}},"x":"y"}"#
    );
}

#[test]
fn an_object_of_depth_two_is_kept_and_a_deeper_one_is_flattened() {
    let two = json!({ "type": "object", "properties": { "a": { "type": "object", "properties": { "b": { "type": "string" } } } } });
    assert!(Repaired::of(two).repair.schema().is_none());
    let three = json!({ "type": "object", "required": ["a"], "properties": { "a": {
        "type": "object", "description": "Where to look", "required": ["b"], "properties": {
            "b": { "type": "object", "required": ["c"], "properties": { "c": { "type": "string" }, "d": { "type": "integer" } } },
        },
    } } });
    let repaired = Repaired::of(three);
    let properties = repaired.shown["properties"].as_object().unwrap();
    assert_eq!(properties.keys().collect::<Vec<_>>(), ["a__b__c", "a__b__d"]);
    assert_eq!(repaired.shown["required"], json!(["a__b__c"]));
    let told = properties["a__b__c"]["description"].as_str().unwrap();
    assert!(told.contains("`a`: Where to look") && told.contains("This is `a.b.c` of the tool"), "{told}");
    assert_eq!(repaired.kinds(), ["flattened"]);
    repaired.check(json!({ "a__b__d": 1, "a__b__c": "x" }), json!({ "a": { "b": { "d": 1, "c": "x" } } }));
}

#[test]
fn more_than_ten_leaves_are_flattened_and_ten_are_not() {
    let nested = |count: usize| {
        let inner: Members = (0..count).map(|n| (format!("p{n}"), json!({ "type": "string" }))).collect();
        Repaired::of(json!({ "type": "object", "properties": { "a": { "type": "object", "properties": inner } } }))
    };
    assert!(nested(10).repair.schema().is_none());
    let eleven = nested(11);
    assert_eq!(eleven.shown["properties"].as_object().unwrap().len(), 11);
    eleven.check(json!({ "a__p7": "x" }), json!({ "a": { "p7": "x" } }));
    let flat: Members = (0..30).map(|n| (format!("p{n}"), json!({ "type": "string" }))).collect();
    let flat = Repaired::of(json!({ "type": "object", "properties": flat }));
    assert!(flat.repair.schema().is_none(), "there is nothing to flatten");
}

#[test]
fn an_optional_object_that_needs_a_member_stays_one_and_a_required_empty_one_is_made() {
    let deep = |required: Value| {
        json!({ "type": "object", "properties": { "a": { "type": "object", "required": required, "properties": {
            "b": { "type": "object", "properties": { "c": { "type": "string" } } },
            "d": { "type": "string" },
        } } } })
    };
    let kept = Repaired::of(deep(json!(["d"])));
    assert_eq!(kept.shown["properties"]["a"]["required"], json!(["d"]), "{}", kept.shown);
    let moved = Repaired::of(deep(json!(["b"])));
    moved.check(json!({ "a__d": "x" }), json!({ "a": { "d": "x", "b": {} } }));
    moved.check(json!({}), json!({}));
}

#[test]
fn an_object_whose_members_belong_together_or_may_be_others_stays_one() {
    for limit in
        [json!({ "minProperties": 1 }), json!({ "additionalProperties": true }), json!({ "patternProperties": {} })]
    {
        let mut inner = json!({ "type": "object", "properties": { "c": { "type": "string" } } });
        inner.as_object_mut().unwrap().extend(limit.as_object().unwrap().clone());
        let own =
            json!({ "type": "object", "properties": { "a": { "type": "object", "properties": { "b": inner } } } });
        let repaired = Repaired::of(own);
        let names: Vec<_> = repaired.shown["properties"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["a__b"], "{limit}: {}", repaired.shown);
    }
}

#[test]
fn unusual_names_become_safe_ones_and_come_back() {
    let odd = ["a.b", "x-y", "1st", "$top", "名", "", "plain", &"l".repeat(70)];
    let properties: Members = odd.iter().map(|name| ((*name).to_owned(), json!({ "type": "integer" }))).collect();
    let repaired = Repaired::of(json!({ "type": "object", "properties": properties }));
    let shown: Vec<_> = repaired.shown["properties"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(shown[..7], ["a_b", "x_y", "_1st", "_top", "_", "__2", "plain"].map(str::to_owned));
    assert_eq!((shown[7].len(), shown[7].starts_with("lll")), (64, true));
    assert_eq!(repaired.kinds(), ["renamed"]);
    let numbered = |names: &[&str]| -> Value {
        names.iter().enumerate().map(|(n, name)| ((*name).to_owned(), json!(n))).collect::<Members>().into()
    };
    let sent: Vec<_> = shown.iter().map(String::as_str).collect();
    repaired.check(numbered(&sent), numbered(&odd));
    repaired.check(numbered(&odd), numbered(&odd));
}

#[test]
fn a_made_up_name_never_takes_the_place_of_a_real_one() {
    let repaired = Repaired::of(json!({ "type": "object", "required": ["a.b", "a_b"], "properties": {
        "a.b": { "type": "integer" }, "a_b": { "type": "integer" },
    } }));
    assert_eq!(repaired.shown["required"], json!(["a_b_2", "a_b"]));
    repaired.check(json!({ "a_b": 1, "a_b_2": 2 }), json!({ "a_b": 1, "a.b": 2 }));
}

#[test]
fn references_are_resolved_as_a_whole_and_circles_end_in_a_generic_object() {
    let repaired = Repaired::of(json!({
        "type": "object",
        "properties": {
            "from": { "$ref": "#/$defs/Place", "description": "Where it begins" },
            "by": { "$ref": "#way" },
            "tree": { "$ref": "#/$defs/Tree%20Node" },
        },
        "$defs": {
            "Place": { "type": "object", "description": "A place", "properties": { "lat": { "$ref": "#/$defs/Degree" } }, "required": ["lat"] },
            "Degree": { "type": "number", "minimum": -180, "maximum": 180 },
            "Way": { "$anchor": "way", "enum": ["road", "rail"] },
            "Tree Node": { "type": "object", "properties": { "name": { "type": "string" }, "children": { "type": "array", "items": { "$ref": "#/$defs/Tree%20Node" } } } },
        },
    }));
    let properties = &repaired.shown["properties"];
    assert_eq!(
        properties["from"],
        json!({ "type": "object", "properties": { "lat": { "type": "number", "minimum": -180, "maximum": 180 } }, "required": ["lat"], "description": "Where it begins" })
    );
    assert_eq!(properties["by"], json!({ "type": "string", "enum": ["road", "rail"] }));
    assert_eq!(properties["tree"]["properties"]["children"]["items"], json!({ "type": "object" }));
    let circle = repaired.repair.steps().iter().find(|step| step.kind == RepairKind::Generic).unwrap();
    assert_eq!(
        (&*circle.at, &*circle.what),
        ("/properties/tree/properties/children/items", "it refers to itself: #/$defs/Tree%20Node")
    );
    assert!(!repaired.shown.to_string().contains("$"), "{}", repaired.shown);
}

#[test]
fn what_is_not_in_the_schema_is_never_fetched_and_becomes_a_generic_object() {
    for reference in ["https://example.org/schema.json", "other.json#/a", "#/nowhere", "#nowhere"] {
        let repaired = Repaired::of_property(json!({ "$ref": reference, "description": "What" }));
        assert_eq!(repaired.property(), &json!({ "type": "object", "description": "What" }), "{reference}");
    }
}

#[test]
fn alternatives_and_types_become_what_every_model_reads() {
    for (own, shown) in [
        (
            json!({ "type": ["string", "null"] }),
            json!({ "type": "string", "nullable": true, "description": "It may be null." }),
        ),
        (
            json!({ "anyOf": [{ "type": "integer" }, { "type": "null" }] }),
            json!({ "type": "integer", "nullable": true, "description": "It may be null." }),
        ),
        (json!({ "oneOf": [{ "const": "a" }, { "const": "b" }] }), json!({ "type": "string", "enum": ["a", "b"] })),
        (json!({ "enum": [1, "x", true] }), json!({ "type": "string", "enum": ["1", "x", "true"] })),
        (json!({ "type": ["string", "integer"] }), json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] })),
        (
            json!({ "oneOf": [{ "type": "string" }, { "type": "integer" }] }),
            json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] }),
        ),
        (
            json!({ "type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 9.5 }),
            json!({ "type": "integer", "minimum": 1, "maximum": 9.0 }),
        ),
        (json!({ "type": "integer", "exclusiveMinimum": 1.5 }), json!({ "type": "integer", "minimum": 2.0 })),
        (
            json!({ "type": "string", "anyOf": [{ "minLength": 1 }, { "type": "null" }] }),
            json!({ "type": "string", "minLength": 1 }),
        ),
        (json!({ "type": "string", "format": "email" }), json!({ "type": "string", "description": "Format: email." })),
        (
            json!({ "allOf": [{ "type": "string", "minLength": 2 }, { "minLength": 1, "maxLength": 5 }] }),
            json!({ "type": "string", "minLength": 2, "maxLength": 5 }),
        ),
        (
            json!({ "type": "array" }),
            json!({ "type": "array", "items": { "anyOf": [{ "type": "string" }, { "type": "number" }, { "type": "boolean" }, { "type": "object" }] } }),
        ),
    ] {
        let repaired = Repaired::of_property(own.clone());
        let mut expected = shown;
        expected.sort_all_objects();
        let mut found = repaired.property().clone();
        found.sort_all_objects();
        assert_eq!(found, expected, "{own}");
        assert!(repaired.repair.counts().keys().all(|kind| kind.is_exact()), "{own}: {:?}", repaired.kinds());
    }
}

#[test]
fn a_constraint_that_no_keyword_expresses_is_told_and_recorded() {
    for (own, told) in [
        (json!({ "type": "number", "multipleOf": 0.5 }), "It must satisfy `multipleOf`: 0.5."),
        (json!({ "type": "number", "exclusiveMinimum": 0 }), "It must be greater than 0."),
        (json!({ "type": "string", "not": { "const": "root" } }), "It must satisfy `not`: {\"const\":\"root\"}."),
        (
            json!({ "oneOf": [{ "type": "integer" }, { "type": "number" }] }),
            "Exactly one of the alternatives must match.",
        ),
    ] {
        let repaired = Repaired::of_property(own.clone());
        assert_eq!(repaired.property()["description"], told, "{}", repaired.shown);
        assert!(repaired.kinds().contains(&"loosened"), "{own}: {:?}", repaired.kinds());
    }
}

#[test]
fn alternatives_at_the_root_become_one_object_that_tells_them() {
    let repaired = Repaired::of(json!({
        "type": "object", "description": "Finds", "properties": { "id": { "type": "integer" }, "name": { "type": "string" } },
        "anyOf": [{ "required": ["id"] }, { "required": ["name"] }],
    }));
    assert_eq!(
        repaired.shown,
        json!({ "type": "object", "properties": { "id": { "type": "integer" }, "name": { "type": "string" } },
            "description": "Finds\nThe arguments must include one of these sets: [\"id\"] or [\"name\"]." })
    );
    assert!(repaired.kinds().contains(&"loosened"));
}

#[test]
fn headers_that_a_schema_asks_for_stay_with_their_properties() {
    let repaired = Repaired::of(json!({ "type": "object", "additionalProperties": false, "properties": {
        "the.region": { "type": "string", "x-mcp-header": "Region", "x-vendor": 1 },
    } }));
    assert_eq!(repaired.shown["properties"]["the_region"]["x-mcp-header"], "Region");
    assert!(repaired.shown["properties"]["the_region"].get("x-vendor").is_none());
}
