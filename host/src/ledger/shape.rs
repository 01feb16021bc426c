//! What a payload looked like, without what it said.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::message::{Json, Members};

/// How deep a shape goes: enough for the arguments of real tools.
const MAX_DEPTH: usize = 6;

/// How many keys of one object are named; more is a table of data, whose keys are data too.
const MAX_KEYS: usize = 64;

/// The longest key, in bytes; a longer one is data.
const MAX_KEY_BYTES: usize = 64;

/// The redacted shape of a payload: `"string(12)"` with the length in characters, `"number"`, `"boolean"`, `"null"`;
/// `["array(3)", shape of the first]`; objects by key. Deeper than six levels only the type is told; over 64 keys, how many
/// more there are. Keys are kept, as they name parameters; those over 64 bytes are cut.
#[must_use]
pub fn shape(json: &Json) -> Value {
    of(json.as_str(), 0)
}

fn of(text: &str, depth: usize) -> Value {
    match text.trim_start().as_bytes().first() {
        Some(b'"') => Value::String(format!("string({})", characters(text))),
        Some(b'{') => object(text, depth),
        Some(b'[') => array(text, depth),
        Some(b't' | b'f') => "boolean".into(),
        Some(b'n') => "null".into(),
        _ => "number".into(),
    }
}

/// How many characters a JSON string stands for. The text is valid, so every escape is whole.
fn characters(text: &str) -> usize {
    let text = text.trim();
    let mut rest = text.get(1..text.len() - 1).unwrap_or_default();
    let mut count = 0;
    while let Some((before, escape)) = rest.split_once('\\') {
        let code = escape.strip_prefix('u');
        // The second half of a surrogate pair is no character of its own.
        let half = code.is_some_and(|code| matches!(code.as_bytes(), [b'd' | b'D', b'c'..=b'f' | b'C'..=b'F', ..]));
        count += before.chars().count() + usize::from(!half);
        rest = escape.get(if code.is_some() { 5 } else { 1 }..).unwrap_or_default();
    }
    count + rest.chars().count()
}

fn object(text: &str, depth: usize) -> Value {
    let Ok(Members(members)) = serde_json::from_str(text) else { return "object".into() };
    if depth >= MAX_DEPTH {
        return "object".into();
    }
    let mut out = Map::new();
    for (key, value) in members.iter().take(MAX_KEYS) {
        out.insert(cut(key), of(value.get(), depth + 1));
    }
    if let Some(more) = members.len().checked_sub(MAX_KEYS).filter(|more| *more > 0) {
        out.insert("…".into(), format!("{more} more keys").into());
    }
    Value::Object(out)
}

fn array(text: &str, depth: usize) -> Value {
    let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(text) else { return "array".into() };
    let length = format!("array({})", items.len());
    match items.first() {
        Some(first) if depth < MAX_DEPTH => vec![length.into(), of(first.get(), depth + 1)].into(),
        _ => vec![Value::from(length)].into(),
    }
}

fn cut(key: &str) -> String {
    if key.len() <= MAX_KEY_BYTES {
        return key.to_owned();
    }
    let end = (0..=MAX_KEY_BYTES).rev().find(|at| key.is_char_boundary(*at)).unwrap_or(0);
    format!("{}…", key.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use serde_json::json;

    use super::*;

    fn shape_of(text: impl Into<bytes::Bytes>) -> Value {
        shape(&Json::parse(text).unwrap())
    }

    #[test]
    fn values_go_and_structure_stays() {
        let text =
            r#"{"path":"/h\u00e9","n":12345678901234567890,"on":true,"no":null,"list":[{"k":"secret"},2],"e":[]}"#;
        let expected = json!({"path": "string(3)", "n": "number", "on": "boolean", "no": "null",
            "list": ["array(2)", {"k": "string(6)"}], "e": ["array(0)"]});
        assert_eq!(shape_of(text), expected);
    }

    #[test]
    fn characters_are_counted_as_they_are_read() {
        for text in ["", "h\u{e9}\u{1f600}", "\"\\/\n\u{1}", "\\u0041", "\\\\"] {
            assert_eq!(shape_of(serde_json::to_string(text).unwrap()), format!("string({})", text.chars().count()));
        }
        assert_eq!(shape_of(r#""\u00e9\uD83D\uDE00\/""#), "string(3)");
    }

    #[test]
    fn shapes_are_bounded() {
        let deep = format!("{}1{}", r#"{"a":"#.repeat(20), "}".repeat(20));
        let shown = shape_of(deep).to_string();
        assert_eq!(shown.matches("\"a\"").count(), MAX_DEPTH);
        assert!(shown.contains("\"object\""));

        let wide: Map<String, Value> = (0..100).map(|i| (format!("k{i}"), json!(1))).collect();
        let shown = shape_of(Value::Object(wide).to_string());
        assert_eq!(shown.as_object().unwrap().len(), MAX_KEYS + 1);
        assert_eq!(shown["…"], "36 more keys");

        let long = format!("{{\"{}\":1}}", "é".repeat(100));
        let shown = shape_of(long);
        let key = shown.as_object().unwrap().keys().next().unwrap();
        assert_eq!(key, &format!("{}…", "é".repeat(32)));
    }
}
