//! Finds what is invalid in an input schema, for people who configure its source.

use std::collections::HashSet;

use serde_json::Value;

use super::document::Document;
use super::types::Types;
use super::{Members, pointer};
use crate::protocol::Json;

/// The largest number of problems of one schema that are reported: a person corrects them one after the other.
const MAX_PROBLEMS: usize = 8;

/// One thing that makes a schema invalid.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SchemaProblem {
    /// The JSON Pointer to the part of the schema, or to one around it if that would take more than 4 KiB. Escape it
    /// before showing it.
    pub at: String,
    /// The problem at that place. Escape it before showing it.
    pub what: String,
}

/// Returns at most 8 problems of a tool's input schema.
#[must_use]
pub fn schema_problems(schema: &Json) -> Vec<SchemaProblem> {
    let own = schema.read::<Value>().unwrap_or_default();
    let mut found = Vec::new();
    if own.is_object() && own.get("type").is_none_or(|types| types != "object") {
        report(&mut found, "", "the arguments of a tool are an object: `type` must be \"object\"");
    }
    let mut checker = Checker { document: Document::new(&own), found };
    checker.schema(&own, "");
    checker.found.truncate(MAX_PROBLEMS);
    checker.found
}

struct Checker<'a> {
    document: Document<'a>,
    found: Vec<SchemaProblem>,
}

fn report(found: &mut Vec<SchemaProblem>, at: &str, what: impl Into<String>) {
    found.push(SchemaProblem { at: at.to_owned(), what: what.into() });
}

impl Checker<'_> {
    fn schema(&mut self, schema: &Value, at: &str) {
        if self.found.len() >= MAX_PROBLEMS {
            return;
        }
        match schema {
            Value::Bool(_) => {}
            Value::Object(members) => self.members(members, at),
            other => self.wrong(at, "a schema must be an object or a boolean", other),
        }
    }

    fn wrong(&mut self, at: &str, what: &str, value: &Value) {
        let shown: String = value.to_string().chars().take(60).collect();
        report(&mut self.found, at, format!("{what}, not {shown}"));
    }

    fn members(&mut self, members: &Members, at: &str) {
        for (keyword, value) in members {
            let here = pointer(at, keyword);
            match keyword.as_str() {
                "type" => self.types(value, &here),
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
                    self.each(value, &here);
                }
                "allOf" | "anyOf" | "oneOf" | "prefixItems" => self.list(value, &here),
                "items" if value.is_array() => self.list(value, &here),
                "items"
                | "not"
                | "if"
                | "then"
                | "else"
                | "contains"
                | "additionalProperties"
                | "propertyNames"
                | "unevaluatedItems"
                | "unevaluatedProperties" => self.schema(value, &here),
                "required" => self.names(value, &here),
                "enum" if !value.is_array() => self.wrong(&here, "it must be a list of values", value),
                "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
                    if !is_count(value) =>
                {
                    self.wrong(&here, "it must be a number of at least 0, without a fraction", value);
                }
                "minimum" | "maximum" if !value.is_number() => self.wrong(&here, "it must be a number", value),
                "exclusiveMinimum" | "exclusiveMaximum" if !value.is_number() && !value.is_boolean() => {
                    self.wrong(&here, "it must be a number", value);
                }
                "multipleOf" if value.as_f64().is_none_or(|number| number <= 0.0) => {
                    self.wrong(&here, "it must be a number greater than 0", value);
                }
                "uniqueItems" if !value.is_boolean() => self.wrong(&here, "it must be true or false", value),
                "pattern" | "format" | "title" | "description" if !value.is_string() => {
                    self.wrong(&here, "it must be a text", value);
                }
                "$ref" => self.reference(value, &here),
                _ => {}
            }
        }
    }

    fn types(&mut self, value: &Value, at: &str) {
        let names: &[Value] = match value {
            Value::Array(names) => names,
            one => std::slice::from_ref(one),
        };
        let unknown = names.iter().find(|name| name.as_str().and_then(Types::named).is_none());
        let known = "it must be one of `string`, `number`, `integer`, `boolean`, `array`, `object` and `null`, or a list of these";
        if let Some(unknown) = unknown {
            self.wrong(at, known, unknown);
        } else if names.is_empty() || (1..names.len()).any(|n| names.iter().take(n).any(|it| Some(it) == names.get(n)))
        {
            self.wrong(at, "it must name at least one type, and none twice", value);
        }
    }

    fn each(&mut self, value: &Value, at: &str) {
        match value {
            Value::Object(schemas) => schemas.iter().for_each(|(name, schema)| self.schema(schema, &pointer(at, name))),
            other => self.wrong(at, "it must be an object that holds schemas by name", other),
        }
    }

    fn list(&mut self, value: &Value, at: &str) {
        match value.as_array().filter(|list| !list.is_empty()) {
            Some(list) => {
                list.iter().enumerate().for_each(|(n, schema)| self.schema(schema, &pointer(at, &n.to_string())));
            }
            None => self.wrong(at, "it must be a list of schemas that is not empty", value),
        }
    }

    fn names(&mut self, value: &Value, at: &str) {
        let mut seen = HashSet::new();
        let mut is_name = |name: &Value| name.as_str().is_some_and(|name| seen.insert(name.to_owned()));
        if value.as_array().is_none_or(|names| !names.iter().all(&mut is_name)) {
            self.wrong(at, "it must be a list of the names of properties, none twice, beside `properties`", value);
        }
    }

    fn reference(&mut self, value: &Value, at: &str) {
        match value.as_str() {
            None => self.wrong(at, "it must be a text", value),
            Some(reference) if self.document.find(reference).is_none() => {
                self.wrong(at, "it must lead to a part of this schema, as no other document is fetched", value);
            }
            Some(_) => {}
        }
    }
}

fn is_count(value: &Value) -> bool {
    value.as_u64().is_some() || value.as_f64().is_some_and(|number| number >= 0.0 && number.fract() == 0.0)
}
