use super::*;

fn problems(property: Value) -> Vec<String> {
    let schema = json!({ "type": "object", "properties": { "x": property } });
    schema_problems(&Json::of(&schema)).into_iter().map(|found| format!("{}: {}", found.at, found.what)).collect()
}

#[test]
fn each_invalid_schema_is_diagnosed_with_its_place() {
    for (property, expected) in [
        (json!({ "type": "strin" }), "/properties/x/type: it must be one of `string`"),
        (json!({ "type": ["string", "string"] }), "/properties/x/type: it must name at least one type, and none twice"),
        (json!({ "type": "string", "required": true }), "/properties/x/required: it must be a list of the names"),
        (json!({ "enum": "a" }), "/properties/x/enum: it must be a list of values, not \"a\""),
        (json!({ "minLength": -1 }), "/properties/x/minLength: it must be a number of at least 0"),
        (json!({ "minimum": "0" }), "/properties/x/minimum: it must be a number, not \"0\""),
        (json!({ "anyOf": [] }), "/properties/x/anyOf: it must be a list of schemas that is not empty"),
        (json!({ "items": 5 }), "/properties/x/items: a schema must be an object or a boolean, not 5"),
        (json!({ "properties": ["a"] }), "/properties/x/properties: it must be an object that holds schemas by name"),
        (json!({ "$ref": "#/$defs/a" }), "/properties/x/$ref: it must lead to a part of this schema"),
        (json!({ "$ref": "https://a.example/b" }), "/properties/x/$ref: it must lead to a part of this schema"),
        (
            json!({ "allOf": [{ "properties": { "a/b": { "pattern": 1 } } }] }),
            "/properties/x/allOf/0/properties/a~1b/pattern: it must be a text",
        ),
    ] {
        let found = problems(property.clone());
        assert!(found.len() == 1 && found[0].starts_with(expected), "{property}: {found:?}");
    }
    let root = schema_problems(&Json::of(&json!({ "type": "string" })));
    assert_eq!(root[0].what, "the arguments of a tool are an object: `type` must be \"object\"");
    assert_eq!(schema_problems(&Json::of(&json!([]))).len(), 1);
    let many: Members = (0..100).map(|n| (n.to_string(), json!({ "type": 1 }))).collect();
    assert_eq!(problems(json!({ "properties": many })).len(), 8);
}

#[test]
fn a_valid_schema_has_no_problem_and_an_invalid_one_is_repaired_as_far_as_it_can_be_read() {
    let valid = json!({ "type": ["object", "null"], "required": [], "properties": { "a": true, "b": { "$ref": "#" } },
        "items": [{ "type": "integer" }], "exclusiveMinimum": true, "uniqueItems": true, "multipleOf": 0.1 });
    assert_eq!(problems(valid), [""; 0]);
    let repaired = Repaired::of(
        json!({ "properties": { "a": { "type": "strin", "enum": ["x"] }, "b": 7, "c": { "type": "integer" } } }),
    );
    assert_eq!(
        repaired.shown,
        json!({ "type": "object", "properties": { "a": { "type": "string", "enum": ["x"] }, "b": { "type": "object" }, "c": { "type": "integer" } } })
    );
    for no_object in [json!(null), json!([1]), json!({ "type": "string" }), json!(false), json!({ "$ref": "#" })] {
        assert_eq!(Repaired::of(no_object).shown, json!({ "type": "object", "properties": {} }));
    }
}
