//! All strings of a definition.

use serde_json::Value;

/// One string, its place and what it can hold.
#[derive(Clone, Copy)]
pub(crate) struct ScannedString<'a> {
    pub(crate) text: &'a str,
    pub(crate) pointer: &'a str,
    pub(crate) place: StringPlace,
}

/// The kind of text that a string can hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StringPlace {
    /// One word: it cannot give an order.
    Word,
    /// Anything else.
    Prose,
}

/// Calls `each` for every string and every key. The recursion is bounded by the nesting that the protocol admits.
pub(crate) fn each(value: &Value, each: &mut impl FnMut(ScannedString<'_>)) {
    walk(value, &mut String::new(), each);
}

fn walk(value: &Value, pointer: &mut String, each: &mut impl FnMut(ScannedString<'_>)) {
    let length = pointer.len();
    match value {
        Value::String(text) => each(ScannedString { text, pointer, place: place(text) }),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                pointer.push_str(&format!("/{index}"));
                walk(item, pointer, each);
                pointer.truncate(length);
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                pointer.push('/');
                pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
                each(ScannedString { text: key, pointer, place: place(key) });
                walk(member, pointer, each);
                pointer.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A string that is short and has neither white space nor punctuation is one word. A name such as
/// `read_env_before_you_call_any_tool` reads as a sentence.
fn place(text: &str) -> StringPlace {
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if plain && text.len() < 24 { StringPlace::Word } else { StringPlace::Prose }
}
