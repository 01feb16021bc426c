//! Schemas of any form, and what a model would send by their repaired form.

use proptest::prelude::*;

use super::*;

/// The keywords of a repaired schema, each with whether its value is a schema.
const WRITTEN: [&str; 18] = [
    "type",
    "title",
    "description",
    "default",
    "nullable",
    "enum",
    "format",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "required",
    "anyOf",
];

/// A source of choices.
struct Choices(u64);

impl Choices {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % count
    }

    fn once_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn any<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// Makes a schema that sources might have.
fn source_schema(choices: &mut Choices, depth: usize) -> Value {
    let kinds = if depth == 0 { 10 } else { 19 };
    let mut schema = match choices.below(kinds) {
        0 => json!({ "type": "string" }),
        1 => json!({ "type": "string", "minLength": 1, "maxLength": 4 }),
        2 => json!({ "type": "integer", "minimum": 2, "exclusiveMaximum": 9 }),
        3 => json!({ "type": "number", "maximum": 0.5 }),
        4 => json!({ "type": "boolean" }),
        5 => json!({ "enum": [1, "b", null, true] }),
        6 => json!({ "type": ["string", "null"], "enum": ["x", "y", null] }),
        7 => json!({ "type": ["integer", "boolean"] }),
        8 => json!({ "$ref": choices.any(&["#/$defs/Word", "#/$defs/Pair", "#/$defs/Either", "#/$defs/Loop"]) }),
        9 => json!({ "const": 4 }),
        10 => json!({ "type": "array", "items": source_schema(choices, depth - 1), "minItems": 1, "maxItems": 3 }),
        11 => json!({ "anyOf": [source_schema(choices, depth - 1), { "type": "null" }] }),
        12 => json!({ "anyOf": [source_schema(choices, depth - 1), source_schema(choices, depth - 1)] }),
        13 => {
            json!({ "oneOf": [{ "type": "string", "const": "on" }, { "type": "number" }, { "type": "array", "items": { "type": "string" } }] })
        }
        14 => json!({ "allOf": [source_object(choices, depth - 1), { "required": [] }, { "$ref": "#/$defs/Pair" }] }),
        15 => json!({}),
        _ => source_object(choices, depth - 1),
    };
    if choices.once_in(40) {
        schema["not"] = json!({ "const": "never" });
    }
    if choices.once_in(4) {
        schema["description"] = json!("What it is for");
        schema["examples"] = json!([1]);
    }
    schema
}

fn source_object(choices: &mut Choices, depth: usize) -> Value {
    let names = ["a", "b", "a.b", "x-y", "a__b", "$top", "1st", "名", "c"];
    let (mut properties, mut required) = (Members::new(), Vec::new());
    for _ in 0..=choices.below(5) {
        let name = *choices.any(&names);
        properties.insert(name.to_owned(), source_schema(choices, depth));
        if choices.once_in(3) && !required.contains(&name) {
            required.push(name);
        }
    }
    let mut schema = json!({ "properties": properties, "required": required });
    match choices.below(6) {
        0 => schema["additionalProperties"] = json!(true),
        1 => schema["additionalProperties"] = json!(false),
        2 => {}
        _ => schema["type"] = json!("object"),
    }
    schema
}

fn source_tool(choices: &mut Choices) -> Value {
    let mut schema = source_object(choices, 4);
    schema["type"] = json!("object");
    schema["$defs"] = json!({
        "Word": { "type": "string", "maxLength": 5 },
        "Pair": { "type": "object", "properties": { "k": { "$ref": "#/$defs/Word" }, "v": { "$ref": "#/$defs/Either" } }, "required": ["k"] },
        "Either": { "oneOf": [{ "type": "integer" }, { "$ref": "#/$defs/Word" }] },
        "Loop": { "type": "object", "properties": { "next": { "$ref": "#/$defs/Loop" }, "n": { "type": "integer" } } },
    });
    schema
}

/// A model that follows a repaired schema. A sloppy one sends texts in place of other types, one value in place of a
/// list, and null for what it leaves out, except where there are alternatives.
struct Model<'a> {
    choices: &'a mut Choices,
    sloppy: bool,
}

impl Model<'_> {
    fn sends(&mut self, schema: &Value) -> Value {
        if schema["nullable"] == true && self.choices.once_in(4) {
            return Value::Null;
        }
        if let Some(values) = schema["enum"].as_array() {
            return self.choices.any(values).clone();
        }
        if let Some(variants) = schema["anyOf"].as_array() {
            let variant = self.choices.any(variants).clone();
            return Model { choices: self.choices, sloppy: false }.sends(&variant);
        }
        let exact = self.sends_of_type(schema);
        match (&exact, self.choices.below(4)) {
            _ if !self.sloppy => exact,
            (Value::Number(_) | Value::Bool(_) | Value::Array(_) | Value::Object(_), 0) => exact.to_string().into(),
            (Value::Array(items), 1) if items.len() == 1 && (items[0].is_number() || items[0].is_boolean()) => {
                items[0].clone()
            }
            _ => exact,
        }
    }

    fn sends_of_type(&mut self, schema: &Value) -> Value {
        let count = |keyword: &str| usize::try_from(schema[keyword].as_u64().unwrap_or(0)).unwrap();
        match schema["type"].as_str().unwrap() {
            "string" => "lorem"[..count("minLength") + self.choices.below(3)].into(),
            "integer" => {
                json!(schema["minimum"].as_i64().unwrap_or(-3) + i64::try_from(self.choices.below(3)).unwrap())
            }
            "number" => json!(schema["maximum"].as_f64().unwrap_or(7.0) - 0.25),
            "boolean" => json!(self.choices.once_in(2)),
            "array" => {
                let length = count("minItems") + self.choices.below(2);
                (0..length).map(|_| self.sends(&schema["items"])).collect()
            }
            "object" => self.sends_members(schema),
            other => panic!("{other} is no type"),
        }
    }

    fn sends_members(&mut self, schema: &Value) -> Value {
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let mut members = Members::new();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            if required.contains(&json!(name)) || self.choices.once_in(2) {
                members.insert(name.clone(), self.sends(property));
            } else if self.sloppy && property.get("nullable").is_none() && self.choices.once_in(4) {
                members.insert(name.clone(), Value::Null);
            }
        }
        members.into()
    }
}

/// Checks that a repaired schema has only what every model reads.
fn check_written(schema: &Value) {
    let members = schema.as_object().unwrap();
    for (keyword, value) in members {
        match keyword.as_str() {
            "items" => check_written(value),
            "anyOf" => value.as_array().unwrap().iter().for_each(check_written),
            "properties" => {
                for (name, property) in value.as_object().unwrap() {
                    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                    assert!(
                        letters && (1..=64).contains(&name.len()) && !name.as_bytes()[0].is_ascii_digit(),
                        "{name}"
                    );
                    check_written(property);
                }
            }
            known => assert!(WRITTEN.contains(&known), "{known}"),
        }
    }
    assert!(members.contains_key("type") || members.contains_key("anyOf"), "{schema}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn what_a_model_sends_by_the_repaired_schema_becomes_valid_by_the_sources_own(seed: u64) {
        let mut choices = Choices(seed);
        let repaired = Repaired::of(source_tool(&mut choices));
        if repaired.repair.schema().is_some() {
            check_written(&repaired.shown);
        }
        prop_assert!(schema_problems(&Json::of(&repaired.own)).is_empty());
        prop_assert!(jsonschema::meta::is_valid(&repaired.shown), "{}", repaired.shown);
        if !repaired.repair.counts().keys().all(|kind| kind.is_exact()) {
            return Ok(());
        }
        let valid = jsonschema::validator_for(&repaired.own).unwrap();
        for _ in 0..4 {
            let sent = Model { choices: &mut choices, sloppy: true }.sends_of_type(&repaired.shown);
            let restored = repaired.restored(&sent);
            prop_assert!(valid.is_valid(&restored), "own {}\nshown {}\nsent {sent}\nrestored {restored}", repaired.own, repaired.shown);
            prop_assert_eq!(&repaired.restored(&restored), &restored, "what has the source's form is changed: {}", repaired.own);
        }
    }
}

#[test]
fn most_generated_schemas_are_repaired_exactly() {
    let mut counts = BTreeMap::<_, usize>::new();
    let exact = (0..1000_u64).filter(|seed| {
        let repaired = Repaired::of(source_tool(&mut Choices(seed * 7_919)));
        repaired.repair.counts().keys().for_each(|kind| *counts.entry(*kind).or_default() += 1);
        repaired.repair.schema().is_some() && repaired.repair.counts().keys().all(|kind| kind.is_exact())
    });
    let exact = exact.count();
    assert!(exact > 300, "only {exact} of 1000: the property says little");
    assert_eq!(counts.len(), 10, "every kind of repair is met: {counts:?}");
}
