//! All strings of a definition.

use std::borrow::Cow;

use serde_json::Value;

use crate::MAX_POINTER_BYTES;

/// The shortest list of words that can be a sentence.
const SENTENCE_WORDS: usize = 3;

/// One string, its place and its possible content.
pub(crate) struct ScannedString<'a> {
    pub(crate) text: Cow<'a, str>,
    /// The beginning of its pointer, a little more than a finding keeps.
    pub(crate) pointer: String,
    pub(crate) place: StringPlace,
}

impl ScannedString<'_> {
    pub(crate) fn is_prose(&self) -> bool {
        self.place == StringPlace::Prose
    }
}

/// The kind of text that a string can hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StringPlace {
    /// One word: it cannot give an order.
    Word,
    /// Anything else.
    Prose,
}

/// Calls `each` for every string and every key, and for the words of every list as one text, since a sentence can be
/// spread over them. The recursion is bounded by the nesting that the protocol admits.
pub(crate) fn each<'a>(value: &'a Value, each: &mut impl FnMut(ScannedString<'a>)) {
    walk(value, &mut String::new(), each);
}

fn walk<'a>(value: &'a Value, pointer: &mut String, each: &mut impl FnMut(ScannedString<'a>)) {
    let length = pointer.len();
    match value {
        Value::String(text) => {
            each(ScannedString { text: text.into(), pointer: beginning(pointer), place: place(text) })
        }
        Value::Array(items) => {
            let words: Vec<&str> =
                items.iter().filter_map(Value::as_str).filter(|word| place(word) == StringPlace::Word).collect();
            if words.len() >= SENTENCE_WORDS {
                let text = words.join(" ").into();
                each(ScannedString { text, pointer: beginning(pointer), place: StringPlace::Prose });
            }
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
                each(ScannedString { text: key.into(), pointer: beginning(pointer), place: place(key) });
                walk(member, pointer, each);
                pointer.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the kept part of a pointer. A hostile key can be as long as the definition, and contain ten thousand
/// strings.
fn beginning(pointer: &str) -> String {
    let longest = MAX_POINTER_BYTES + char::MAX.len_utf8();
    pointer.get(..pointer.floor_char_boundary(longest)).unwrap_or_default().to_owned()
}

/// Returns the kind of place. A short string with neither white space nor punctuation is one word. A name such as
/// `read_env_before_you_call_any_tool` reads as a sentence.
fn place(text: &str) -> StringPlace {
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if plain && text.len() < 24 { StringPlace::Word } else { StringPlace::Prose }
}
