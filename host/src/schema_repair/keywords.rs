//! The keywords that models read, and what becomes of the others.

use serde_json::{Number, Value, json};

use super::types::Types;
use super::{Members, RepairKind, Repairs};
use crate::protocol::param_header;

/// The annotation that asks for a header. It is kept: agents follow it by the schema that they see.
pub(super) const HEADER: &str = param_header::ANNOTATION;

/// The most characters of one note in a description.
const MAX_NOTE: usize = 300;

/// Keywords that neither describe a value nor limit it.
const DROPPED: [&str; 10] = [
    "$schema",
    "$id",
    "$comment",
    "$anchor",
    "$vocabulary",
    "$defs",
    "definitions",
    "deprecated",
    "readOnly",
    "writeOnly",
];

/// Keywords that do not affect validity but inform a model.
const TOLD: [(&str, &str); 3] =
    [("examples", "Examples"), ("contentMediaType", "Media type"), ("contentEncoding", "Encoding")];

/// The words of a schema.
#[derive(Debug, Default)]
pub(super) struct Words {
    title: Option<Value>,
    description: Option<String>,
    pub(super) default: Option<Value>,
    notes: Vec<String>,
}

impl Words {
    /// Takes the words out of a schema.
    pub(super) fn of(members: &mut Members, at: &str, repairs: &mut Repairs) -> Self {
        let title = members.remove("title").filter(Value::is_string);
        let description = members.remove("description").and_then(|text| text.as_str().map(str::to_owned));
        let mut words = Self { title, description, default: None, notes: Vec::new() };
        match members.remove("default") {
            Some(Value::Null) | None => {}
            Some(default @ (Value::Array(_) | Value::Object(_))) => {
                repairs.add(RepairKind::Keyword, at, "default");
                words.note(&format!("Default: {default}"));
            }
            scalar => words.default = scalar,
        }
        for keyword in DROPPED {
            if members.remove(keyword).is_some() {
                repairs.add(RepairKind::Keyword, at, keyword);
            }
        }
        for (keyword, shown) in TOLD {
            if let Some(value) = members.remove(keyword) {
                repairs.add(RepairKind::Keyword, at, keyword);
                words.note(&format!("{shown}: {value}"));
            }
        }
        words
    }

    /// Adds a sentence to the description.
    pub(super) fn note(&mut self, note: &str) {
        let short: String = note.chars().take(MAX_NOTE).collect();
        let cut = if short.len() < note.len() { "…" } else { "" };
        self.notes.push(format!("{short}{cut}."));
    }

    /// Returns these words, and the others where these are missing.
    pub(super) fn or(self, others: Self) -> Self {
        Self {
            title: self.title.or(others.title),
            description: self.description.or(others.description),
            default: self.default.or(others.default),
            notes: self.notes.into_iter().chain(others.notes).collect(),
        }
    }

    /// Returns the description with the notes.
    fn text(&self) -> Option<String> {
        let parts: Vec<_> = self.description.iter().chain(&self.notes).map(String::as_str).collect();
        (!parts.is_empty()).then(|| parts.join("\n"))
    }

    /// Returns the description of a whole object, for those of its members.
    pub(super) fn summary(&self) -> Option<String> {
        self.text().or_else(|| self.title.as_ref()?.as_str().map(str::to_owned))
    }

    /// Writes the words into a schema.
    pub(super) fn write(self, schema: &mut Members) {
        let text = self.text();
        schema.extend(self.title.map(|title| ("title".to_owned(), title)));
        schema.extend(text.map(|text| ("description".to_owned(), text.into())));
        schema.extend(self.default.map(|default| ("default".to_owned(), default)));
    }
}

/// Returns a schema of one type with those keywords that are written as they are.
pub(super) fn written_keywords(
    types: Types,
    members: &Members,
    words: &mut Words,
    at: &str,
    repairs: &mut Repairs,
) -> Members {
    let name = types.names().first().copied().unwrap_or("object");
    let mut schema = Members::from_iter([("type".to_owned(), json!(name))]);
    for (keyword, value) in members {
        let about = about(keyword);
        if about.is_some_and(|about| about.and(types) == Types::NONE) {
            continue;
        }
        match keyword.as_str() {
            "type" | "enum" | "required" | "properties" => {}
            "minLength" | "maxLength" | "pattern" | "minimum" | "maximum" | "minItems" | "maxItems"
            | "minProperties" | "maxProperties" => {
                schema.insert(keyword.clone(), value.clone());
            }
            "exclusiveMinimum" | "exclusiveMaximum" => {}
            "format" if value == "date-time" => {
                schema.insert(keyword.clone(), value.clone());
            }
            "format" => {
                repairs.add(RepairKind::Keyword, at, keyword);
                words.note(&format!("Format: {}", value.as_str().unwrap_or_default()));
            }
            HEADER if [Types::STRING, Types::INTEGER, Types::BOOLEAN].contains(&types) => {
                schema.insert(keyword.clone(), value.clone());
            }
            "items" if !value.is_array() => {}
            "additionalProperties" if value.as_object().is_some_and(|value| !value.is_empty()) => {}
            "additionalProperties" | "unevaluatedProperties" | "uniqueItems" if *value == false => {
                repairs.add(RepairKind::Keyword, at, keyword);
            }
            "additionalProperties" => repairs.add(RepairKind::Keyword, at, keyword),
            _ if is_constraint(keyword) => {
                repairs.add(RepairKind::Loosened, at, keyword);
                words.note(&format!("It must satisfy `{keyword}`: {value}"));
            }
            _ => repairs.add(RepairKind::Keyword, at, keyword),
        }
    }
    write_bounds(types, members, &mut schema, words, at, repairs);
    schema
}

/// Writes exclusive bounds as inclusive ones.
fn write_bounds(
    types: Types,
    members: &Members,
    schema: &mut Members,
    words: &mut Words,
    at: &str,
    repairs: &mut Repairs,
) {
    for (exclusive, inclusive, sign) in [("exclusiveMinimum", "minimum", 1.0), ("exclusiveMaximum", "maximum", -1.0)] {
        if types.and(Types::NUMBER) == Types::NONE {
            continue;
        }
        let bound = match members.get(exclusive) {
            Some(Value::Bool(true)) => members.get(inclusive),
            Some(Value::Bool(false)) => {
                repairs.add(RepairKind::Keyword, at, exclusive);
                continue;
            }
            bound => bound,
        };
        let Some(bound) = bound.filter(|bound| bound.is_number()) else { continue };
        if types == Types::INTEGER {
            let Some(next) = next_integer(bound, sign) else { continue };
            repairs.add(RepairKind::Keyword, at, exclusive);
            let tighter = |other: &Value| (next.as_f64() > other.as_f64()) == (sign > 0.0);
            if schema.get(inclusive).is_none_or(tighter) {
                schema.insert(inclusive.to_owned(), next);
            }
        } else {
            repairs.add(RepairKind::Loosened, at, exclusive);
            schema.entry(inclusive).or_insert_with(|| bound.clone());
            words.note(&format!("It must be {} than {bound}", if sign > 0.0 { "greater" } else { "less" }));
        }
    }
}

/// Returns the integer that comes after a number in this direction.
fn next_integer(bound: &Value, sign: f64) -> Option<Value> {
    if let Some(whole) = bound.as_i64() {
        let next = if sign > 0.0 { whole.checked_add(1) } else { whole.checked_sub(1) };
        return next.map(Value::from);
    }
    let bound = bound.as_f64()?;
    let next = if sign > 0.0 { bound.floor() + 1.0 } else { bound.ceil() - 1.0 };
    Number::from_f64(next).map(Value::Number)
}

/// Returns the types of the values that a keyword is about, or `None` if it is about all.
fn about(keyword: &str) -> Option<Types> {
    Some(match keyword {
        "minLength" | "maxLength" | "pattern" | "format" => Types::STRING,
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => Types::NUMBER,
        "items" | "prefixItems" | "additionalItems" | "minItems" | "maxItems" | "uniqueItems" | "contains"
        | "minContains" | "maxContains" | "unevaluatedItems" => Types::ARRAY,
        "properties"
        | "required"
        | "additionalProperties"
        | "patternProperties"
        | "propertyNames"
        | "minProperties"
        | "maxProperties"
        | "dependentRequired"
        | "dependentSchemas"
        | "dependencies"
        | "unevaluatedProperties" => Types::OBJECT,
        _ => return None,
    })
}

/// Reports whether a keyword limits the valid values, and is not written.
fn is_constraint(keyword: &str) -> bool {
    about(keyword).is_some() || ["not", "if", "then", "else", "anyOf", "oneOf"].contains(&keyword)
}
