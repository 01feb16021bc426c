//! `Mcp-Param-*` headers: the arguments that a tool's schema asks to be repeated in headers (`x-mcp-header`), so that
//! intermediaries can route on them, and the encoding of a value in a header.
//!
//! Specification: MCP 2026-07-28, "Custom Headers from Tool Parameters".

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

/// The annotation in a schema that asks for a header.
pub const ANNOTATION: &str = "x-mcp-header";

/// The integers that every JSON parser represents exactly.
const SAFE: std::ops::RangeInclusive<i64> = -(1 << 53) + 1..=(1 << 53) - 1;

/// The most bytes in the names of properties that lead to the arguments of one tool. One long name may contain
/// thousands of others.
const MAX_PATH_BYTES: usize = 64 * 1024;

/// The keywords of a schema whose values are plain values and not schemas.
const VALUES: [&str; 4] = ["default", "examples", "const", "enum"];

/// An argument that is repeated in a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirroredArgument {
    /// The name of the header, in lower case.
    pub header: String,
    /// The names of the properties that lead to the argument.
    path: Vec<String>,
}

impl MirroredArgument {
    /// Returns the text of the argument before it is encoded for the header, or `None` if there is no such argument or
    /// its type cannot be repeated.
    pub fn value(&self, arguments: &Value) -> Option<String> {
        let value = self.path.iter().try_fold(arguments, |value, name| value.get(name))?;
        match value {
            Value::String(text) => Some(text.clone()),
            Value::Bool(truth) => Some(truth.to_string()),
            Value::Number(number) => number.as_i64().filter(|n| SAFE.contains(n)).map(|n| n.to_string()),
            _ => None,
        }
    }
}

/// Returns the arguments that a tool's input schema asks to be repeated in headers.
///
/// # Errors
/// A text that names the rule of the protocol that the schema breaks; such a tool cannot be offered over HTTP.
pub fn mirrored_arguments(schema: &Value) -> Result<Vec<MirroredArgument>, String> {
    let mut found = Vec::new();
    if schema.get(ANNOTATION).is_some() {
        return Err(format!("`{ANNOTATION}` at the root names no parameter"));
    }
    walk(schema, &mut Vec::new(), &mut FoundArguments { found: &mut found, bytes: 0 })?;
    let mut seen = HashSet::new();
    match found.iter().find(|mirrored| !seen.insert(&mirrored.header)) {
        Some(twice) => Err(format!("header `{}` is requested by two parameters", twice.header)),
        None => Ok(found),
    }
}

/// The arguments that were found so far, and the bytes of their paths.
struct FoundArguments<'a> {
    found: &'a mut Vec<MirroredArgument>,
    bytes: usize,
}

impl FoundArguments<'_> {
    fn add(&mut self, header: String, path: &[String]) -> Result<(), String> {
        self.bytes += path.iter().map(String::len).sum::<usize>();
        if self.bytes > MAX_PATH_BYTES {
            return Err(format!("the names that lead to its `{ANNOTATION}` have more than {MAX_PATH_BYTES} bytes"));
        }
        self.found.push(MirroredArgument { header, path: path.to_vec() });
        Ok(())
    }
}

// Recursion is bounded: messages are never nested deeper than `MAX_NESTING`.
fn walk(schema: &Value, path: &mut Vec<String>, found: &mut FoundArguments<'_>) -> Result<(), String> {
    let Some(members) = schema.as_object() else { return Ok(()) };
    for (key, value) in members {
        match (key.as_str(), value.as_object()) {
            ("properties", Some(properties)) => {
                for (name, property) in properties {
                    path.push(name.clone());
                    if let Some(header) = property.get(ANNOTATION) {
                        found.add(header_of(header, property)?, path)?;
                    }
                    walk(property, path, found)?;
                    path.pop();
                }
            }
            (ANNOTATION, _) => {}
            (key, _) if VALUES.contains(&key) => {}
            _ if annotates(value) => {
                return Err(format!("`{ANNOTATION}` under `{key}`, which does not lead to one parameter"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn annotates(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.contains_key(ANNOTATION) || members.values().any(annotates),
        Value::Array(items) => items.iter().any(annotates),
        _ => false,
    }
}

fn header_of(name: &Value, property: &Value) -> Result<String, String> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let name = name.as_str().filter(|name| !name.is_empty() && name.bytes().all(token));
    let name = name.ok_or_else(|| format!("`{ANNOTATION}` must be a valid header name"))?;
    match property.get("type").and_then(Value::as_str) {
        Some("string" | "integer" | "boolean") => Ok(format!("mcp-param-{}", name.to_ascii_lowercase())),
        _ => Err(format!("`{ANNOTATION}` {name:?} is on a parameter that is not a string, integer or boolean")),
    }
}

/// Encodes a value for a header: unchanged, or as `=?base64?…?=` if it holds characters other than visible ASCII and
/// space, begins or ends with a space, or looks encoded already.
pub fn encode(value: &str) -> String {
    let plain = value.bytes().all(|byte| (0x20..=0x7e).contains(&byte)) && value.trim() == value;
    if plain && !(value.starts_with("=?base64?") && value.ends_with("?=")) {
        value.to_owned()
    } else {
        format!("=?base64?{}?=", BASE64.encode(value))
    }
}

/// Decodes the value of a header. Returns `None` if it is marked as base64 and does not decode to UTF-8 text.
pub fn decode(value: &str) -> Option<String> {
    match value.strip_prefix("=?base64?").and_then(|value| value.strip_suffix("?=")) {
        Some(wrapped) => String::from_utf8(BASE64.decode(wrapped).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    #[test]
    fn annotated_parameters_are_found_with_their_values() {
        let schema = json!({ "type": "object", "default": { "x-mcp-header": 1 }, "properties": {
            "region": { "type": "string", "x-mcp-header": "Region" },
            "deep": { "type": "object", "properties": { "n": { "type": "integer", "x-mcp-header": "N" } } },
        } });
        let found = mirrored_arguments(&schema).unwrap();
        let values =
            |arguments: Value| found.iter().map(|r| (r.header.clone(), r.value(&arguments))).collect::<Vec<_>>();
        let name = |header: &str| format!("mcp-param-{header}");
        let all = values(json!({ "region": "eu", "deep": { "n": -7 } }));
        assert_eq!(all, [(name("region"), Some("eu".into())), (name("n"), Some("-7".into()))]);
        assert_eq!(values(json!({ "region": null })), [(name("region"), None), (name("n"), None)]);
    }

    /// The paths together would be 250 MiB.
    #[test]
    fn a_long_name_above_many_annotations_is_an_error() {
        let leaf = |n: usize| (format!("a{n}"), json!({ "type": "string", "x-mcp-header": format!("h{n}") }));
        let leaves: serde_json::Map<_, _> = (0..2_000).map(leaf).collect();
        let schema = |name: String| json!({ "properties": { name: { "type": "object", "properties": leaves } } });
        assert_eq!(mirrored_arguments(&schema("k".to_owned())).unwrap().len(), 2_000);
        let why = mirrored_arguments(&schema("k".repeat(128 << 10))).unwrap_err();
        assert!(why.contains("more than 65536 bytes"), "{why}");
    }

    #[test]
    fn an_annotation_that_the_protocol_forbids_is_an_error() {
        for property in [
            json!({ "type": "string", "x-mcp-header": "" }),
            json!({ "type": "string", "x-mcp-header": "a b" }),
            json!({ "type": "string", "x-mcp-header": "a\r\nb" }),
            json!({ "type": "string", "x-mcp-header": 1 }),
            json!({ "type": "number", "x-mcp-header": "N" }),
            json!({ "type": "object", "x-mcp-header": "O" }),
            json!({ "type": "array", "items": { "type": "string", "x-mcp-header": "I" } }),
            json!({ "oneOf": [{ "type": "string", "x-mcp-header": "I" }] }),
        ] {
            assert!(mirrored_arguments(&json!({ "properties": { "p": property } })).is_err(), "{property}");
        }
        let twice = json!({ "type": "string", "x-mcp-header": "A" });
        let other = json!({ "type": "string", "x-mcp-header": "a" });
        assert!(mirrored_arguments(&json!({ "properties": { "p": twice, "q": other } })).is_err());
        assert!(mirrored_arguments(&json!({ "$defs": { "d": twice } })).is_err());
    }

    #[test]
    fn an_encoded_value_decodes_to_itself() {
        for value in ["us-west1", "größe", " a", "a\r\nX-Evil: 1", "=?base64?YQ==?=", ""] {
            assert_eq!(decode(&encode(value)).as_deref(), Some(value));
            assert!(encode(value).bytes().all(|b| (0x20..=0x7e).contains(&b)));
        }
        assert_eq!(decode("=?base64?!?="), None);
    }
}
