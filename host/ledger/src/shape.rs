//! The shape of a payload: its structure without its content.

use std::borrow::Cow;

use portcullis_core::protocol::{Json, LongString, string_end};
use serde_json::{Map, Value};

/// The largest number of levels in a shape: enough for the arguments of real tools.
const MAX_DEPTH: usize = 6;

/// The largest number of keys of an object that are listed; an object with more is a table of data, and its keys are
/// data too.
const MAX_KEYS: usize = 64;

/// The longest key that is kept, in bytes; a longer one is data.
const MAX_KEY_BYTES: usize = 64;

/// The most text of a whole shape, in bytes; beyond it only types and numbers of keys are given. A record has room for
/// several shapes, and as a tree one takes some twenty times its text.
const MAX_BYTES: usize = 64 * 1024;

/// The text of a value in a shape besides its key, in bytes, as [`MAX_BYTES`] counts it.
const VALUE_BYTES: usize = 24;

/// Returns the redacted shape of a payload: `"string(12)"` with the length in characters, `"number"`, `"boolean"`,
/// `"null"`; `["array(3)", shape of the first item]`; objects by key. Below six levels, and once the shape has about
/// 64 KiB, only the type is given; beyond 64 keys of an object, and once the shape has that size, only how many more
/// there are. Keys are kept, since they name parameters; a key over 64 bytes is cut.
#[must_use]
pub fn shape(json: &Json) -> Value {
    Scan { json, rest: json.as_str(), room: MAX_BYTES }.shape(0)
}

/// The unread rest of a text that is known to be JSON. Payloads are large, so each byte is read once.
struct Scan<'a> {
    json: &'a Json,
    rest: &'a str,
    /// The text that the shape may still have, in bytes.
    room: usize,
}

impl<'a> Scan<'a> {
    fn shape(&mut self, depth: usize) -> Value {
        match self.peek() {
            Some(b'"') => {
                let known = self.long_string();
                let length = known.map_or_else(|| characters(self.string()), |known| known.characters);
                Value::String(format!("string({length})"))
            }
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            first => {
                self.skip();
                match first {
                    Some(b't' | b'f') => "boolean".into(),
                    Some(b'n') => "null".into(),
                    _ => "number".into(),
                }
            }
        }
    }

    fn object(&mut self, depth: usize) -> Value {
        if depth >= MAX_DEPTH {
            self.skip();
            return "object".into();
        }
        let (mut out, mut listed, mut keys) = (Map::new(), 0, 0);
        self.advance(1);
        while self.peek() == Some(b'"') {
            let key = self.string();
            self.take(b':');
            // As written, a key is no shorter than in a record.
            if listed < MAX_KEYS && self.takes_room(key.len().min(6 * MAX_KEY_BYTES)) {
                out.insert(truncated(&decoded(key)), self.shape(depth + 1));
                listed += 1;
            } else {
                self.skip();
            }
            keys += 1;
            self.take(b',');
        }
        self.take(b'}');
        let more = keys - listed;
        if more > 0 {
            out.insert("…".into(), format!("{more} more keys").into());
        }
        Value::Object(out)
    }

    fn array(&mut self, depth: usize) -> Value {
        let (mut first, mut items) = (None, 0);
        self.advance(1);
        while !matches!(self.peek(), None | Some(b']')) {
            if items == 0 && depth < MAX_DEPTH && self.takes_room(0) {
                first = Some(self.shape(depth + 1));
            } else {
                self.skip();
            }
            items += 1;
            self.take(b',');
        }
        self.take(b']');
        let length = Value::from(format!("array({items})"));
        std::iter::once(length).chain(first).collect()
    }

    /// Takes the room of a value with a key of this length, or returns false if there is not enough.
    fn takes_room(&mut self, key: usize) -> bool {
        let left = self.room.checked_sub(key + VALUE_BYTES);
        self.room = left.unwrap_or(0);
        left.is_some()
    }

    /// Skips one value.
    fn skip(&mut self) {
        let mut open = 0usize;
        loop {
            match self.peek() {
                Some(b'"') => {
                    if self.long_string().is_none() {
                        self.string();
                    }
                }
                Some(b'{' | b'[') => {
                    open += 1;
                    self.advance(1);
                }
                Some(b'}' | b']') => {
                    open = open.saturating_sub(1);
                    self.advance(1);
                }
                Some(b',' | b':') => self.advance(1),
                Some(_) => {
                    let word = self.rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b));
                    self.advance(word.count().max(1));
                }
                None => return,
            }
            if open == 0 {
                return;
            }
        }
    }

    /// Passes over the string that begins here, if it is long and its place is known.
    fn long_string(&mut self) -> Option<LongString> {
        let known = self.json.long_string(self.json.as_bytes().len() - self.rest.len())?;
        self.advance(known.bytes);
        Some(known)
    }

    /// Returns the content of the string that begins here, with its escapes.
    fn string(&mut self) -> &'a str {
        let end = string_end(self.rest);
        let content = self.rest.get(1..end.saturating_sub(1)).unwrap_or_default();
        self.advance(end);
        content
    }

    fn take(&mut self, byte: u8) {
        if self.peek() == Some(byte) {
            self.advance(1);
        }
    }

    /// Skips white space and returns the next byte without taking it.
    fn peek(&mut self) -> Option<u8> {
        self.rest = self.rest.trim_start_matches([' ', '\n', '\r', '\t']);
        self.rest.as_bytes().first().copied()
    }

    fn advance(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }
}

/// Counts the characters that the content of a JSON string encodes. The text is valid, so every escape is complete.
fn characters(content: &str) -> usize {
    // All written characters, less the excess of each escape over the one character that it encodes.
    let mut count = content.chars().count();
    let mut rest = content.as_bytes();
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let escape = rest.get(at + 1..).unwrap_or_default();
        let (length, surplus) = match escape {
            // The second half of a surrogate pair is not a separate character.
            [b'u', b'd' | b'D', b'c'..=b'f' | b'C'..=b'F', ..] => (5, 6),
            [b'u', ..] => (5, 5),
            _ => (1, 1),
        };
        count -= surplus;
        rest = escape.get(length..).unwrap_or_default();
    }
    count
}

fn decoded(inside: &str) -> Cow<'_, str> {
    if !inside.contains('\\') {
        return inside.into();
    }
    serde_json::from_str::<String>(&format!("\"{inside}\"")).map_or_else(|_| inside.into(), Cow::from)
}

fn truncated(key: &str) -> String {
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
    fn a_shape_keeps_structure_and_drops_values() {
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

        let table: Vec<_> = (0..100).map(|i| json!({"a": [i, "]\"}"], "b": {}})).collect();
        assert_eq!(
            shape_of(Value::from(table).to_string()),
            json!(["array(100)", {"a": ["array(2)", "number"], "b": {}}])
        );

        let level = |inner: &str| {
            let members: Vec<_> = (0..MAX_KEYS).map(|at| format!("\"{at}\":{inner}")).collect();
            format!("{{{}}}", members.join(","))
        };
        let shown = shape_of(level(&level(&level("[]")))).to_string();
        assert!(shown.len() < 100 * 1024, "{}", shown.len());
        assert!(shown.contains(r#"{"0":["array(0)"],"1":["array(0)"],"#) && shown.contains(" more keys"));
        let lists = level(&level(&format!("{}0{}", "[".repeat(9), "]".repeat(9))));
        assert!(shape_of(lists).to_string().len() < 100 * 1024);

        let long = format!("{{\"{}\":1}}", "é".repeat(100));
        let shown = shape_of(long);
        let key = shown.as_object().unwrap().keys().next().unwrap();
        assert_eq!(key, &format!("{}…", "é".repeat(32)));
    }
}
