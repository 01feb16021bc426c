//! The canonical form of JSON. Definitions and arguments are digested and compared in this form.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::json::{Json, Members};
use super::message::MAX_NESTING;

/// The initial capacity in bytes: the facts of a ledger record usually fit.
const VALUE_BYTES: usize = 1536;

/// The reason why a JSON value has no canonical form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CanonicalError {
    /// An object holds the same key twice: readers disagree about which one counts.
    #[error("key {0:?} appears twice in one object")]
    DuplicateKey(String),
    /// A string holds an unpaired surrogate, or the value is nested beyond the parser's limit.
    #[error("not canonical JSON: {0}")]
    Json(String),
}

/// Returns the canonical form: RFC 8785 (no white space, keys sorted by UTF-16 code units, minimal escapes), with two
/// changes. Duplicate keys are refused; and numbers keep their exact spelling, because RFC 8785 rounds integers beyond
/// 2^53, and two different arguments could then share a grant.
///
/// # Errors
/// [`CanonicalError`] if no unambiguous form exists.
pub fn canonical(json: &Json) -> Result<String, CanonicalError> {
    let mut out = Vec::with_capacity(json.as_bytes().len());
    write_canonical(json.as_str(), &mut out)?;
    finish(out)
}

/// Returns the canonical form of a value that was never text and therefore cannot hold a key twice.
///
/// # Errors
/// [`CanonicalError::Json`] if it is nested deeper than [`MAX_NESTING`].
pub fn canonical_value(value: &Value) -> Result<String, CanonicalError> {
    let mut out = Vec::with_capacity(VALUE_BYTES);
    write_value(value, 0, &mut out)?;
    finish(out)
}

// Recursion is bounded: `Json` is never nested deeper than `MAX_NESTING`.
fn write_canonical(text: &str, out: &mut Vec<u8>) -> Result<(), CanonicalError> {
    match text.as_bytes().first() {
        Some(b'{') => {
            let Members(mut members) = read(text)?;
            members.sort_by(|a, b| by_utf16(&a.0, &b.0));
            if let Some(pair) = members.windows(2).find(|pair| matches!(pair, [a, b] if a.0 == b.0)) {
                return Err(CanonicalError::DuplicateKey(pair.first().map(|m| m.0.to_string()).unwrap_or_default()));
            }
            write_all(b"{}", &members, out, |(key, raw), out| {
                write_scalar(key, out)?;
                out.push(b':');
                write_canonical(raw.get(), out)
            })
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = read(text)?;
            write_all(b"[]", &items, out, |raw, out| write_canonical(raw.get(), out))
        }
        // A string without an escape is its own canonical form.
        Some(b'"') if memchr::memchr(b'\\', text.as_bytes()).is_some() => write_scalar(&read::<Text<'_>>(text)?.0, out),
        _ => {
            out.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
}

fn write_value(value: &Value, depth: usize, out: &mut Vec<u8>) -> Result<(), CanonicalError> {
    if depth > MAX_NESTING {
        return Err(CanonicalError::Json(format!("nested deeper than the limit of {MAX_NESTING} levels")));
    }
    match value {
        Value::Object(map) => {
            let mut members: Vec<_> = map.iter().collect();
            members.sort_by(|a, b| by_utf16(a.0, b.0));
            write_all(b"{}", &members, out, |(key, value), out| {
                write_scalar(key, out)?;
                out.push(b':');
                write_value(value, depth + 1, out)
            })
        }
        Value::Array(items) => write_all(b"[]", items, out, |item, out| write_value(item, depth + 1, out)),
        scalar => write_scalar(scalar, out),
    }
}

fn write_all<T>(
    [open, close]: &[u8; 2],
    items: &[T],
    out: &mut Vec<u8>,
    mut write: impl FnMut(&T, &mut Vec<u8>) -> Result<(), CanonicalError>,
) -> Result<(), CanonicalError> {
    out.push(*open);
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write(item, out)?;
    }
    out.push(*close);
    Ok(())
}

/// Compares keys by their UTF-16 code units, as RFC 8785 orders them.
fn by_utf16(a: &str, b: &str) -> Ordering {
    // For ASCII, which nearly all keys are, that is the order of the bytes.
    if a.is_ascii() && b.is_ascii() { a.cmp(b) } else { a.encode_utf16().cmp(b.encode_utf16()) }
}

fn finish(out: Vec<u8>) -> Result<String, CanonicalError> {
    String::from_utf8(out).map_err(|error| CanonicalError::Json(error.to_string()))
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, CanonicalError> {
    serde_json::from_str(text).map_err(|error| CanonicalError::Json(error.to_string()))
}

// serde_json escapes exactly as RFC 8785 section 3.2.2.2 requires: short forms, \u00xx for other controls, nothing
// else.
fn write_scalar(scalar: &(impl Serialize + ?Sized), out: &mut Vec<u8>) -> Result<(), CanonicalError> {
    serde_json::to_writer(out, scalar).map_err(|error| CanonicalError::Json(error.to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn form(text: &'static str) -> Result<String, CanonicalError> {
        canonical(&Json::parse(text).unwrap())
    }

    #[test]
    fn keys_are_sorted_by_utf16_and_white_space_is_removed() {
        // U+1F600 is a surrogate pair (D83D…) and sorts before U+FB33, unlike by code point. From RFC 8785, 3.2.3.
        let sorted = form("{ \"\u{fb33}\":1, \"\u{1f600}\" : [ 1 , {} ], \"a\\u0062\":null}").unwrap();
        assert_eq!(sorted, "{\"ab\":null,\"\u{1f600}\":[1,{}],\"\u{fb33}\":1}");
    }

    #[test]
    fn strings_are_escaped_minimally() {
        assert_eq!(form(r#""\u20ac\/\u000a\u0001""#).unwrap(), "\"€/\\n\\u0001\"");
    }

    #[test]
    fn numbers_keep_their_spelling() {
        assert_ne!(form("9007199254740993"), form("9007199254740992"));
        assert_eq!(form("[1.0,1e2]").unwrap(), "[1.0,1e2]");
    }

    #[test]
    fn duplicate_keys_are_refused_even_if_spelled_differently() {
        assert_eq!(form(r#"{"a":1,"\u0061":2}"#), Err(CanonicalError::DuplicateKey("a".into())));
    }

    #[test]
    fn a_value_has_the_form_of_its_text() {
        for text in
            [r#"{"b":[1.50,-0.0,"\u00e9\n"],"\ufb33":1,"\ud83d\ude00":{},"a":{"y":null,"x":true}}"#, "[]", "\"x\""]
        {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(canonical_value(&value), canonical(&Json::parse(value.to_string()).unwrap()));
        }
        let deep = |levels| (0..levels).fold(Value::Null, |inner, _| Value::from(vec![inner]));
        assert!(canonical_value(&deep(MAX_NESTING)).is_ok());
        assert!(canonical_value(&deep(MAX_NESTING + 1)).is_err());
    }
}
