//! The canonical form of JSON. Definitions and arguments are digested and compared in this form.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json::Json;
use super::json::scan::{JsonScanner, ValuePlace};
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
    let mut out = String::with_capacity(json.as_bytes().len());
    write_canonical(json.place(), &mut out)?;
    Ok(out)
}

/// Checks that a value has a canonical form, in one pass and without making it.
///
/// # Errors
/// As [`canonical`].
pub fn check_canonical(json: &Json) -> Result<(), CanonicalError> {
    check(&mut json.place().scanner(), json.surrogates_are_paired()).ok_or_else(unreadable)?
}

/// Returns the canonical form of a value that was never text and therefore cannot hold a key twice.
///
/// # Errors
/// [`CanonicalError::Json`] if it is nested deeper than [`MAX_NESTING`].
pub fn canonical_value(value: &Value) -> Result<String, CanonicalError> {
    let mut out = String::with_capacity(VALUE_BYTES);
    write_canonical_value(value, 0, &mut out)?;
    Ok(out)
}

/// Appends the canonical form of a value, as [`canonical_value`] returns it. `depth` is the number of levels around the
/// value. After an error a part of the form was appended.
///
/// # Errors
/// As [`canonical_value`].
pub fn write_canonical_value(value: &Value, depth: usize, out: &mut String) -> Result<(), CanonicalError> {
    if depth > MAX_NESTING {
        return Err(CanonicalError::Json(format!("nested deeper than the limit of {MAX_NESTING} levels")));
    }
    match value {
        Value::Object(map) => {
            let mut members: Vec<_> = map.iter().collect();
            members.sort_by(|a, b| compare_keys(a.0, b.0));
            write_all(["{", "}"], &members, out, |(key, value), out| {
                write_canonical_text(key, out)?;
                out.push(':');
                write_canonical_value(value, depth + 1, out)
            })
        }
        Value::Array(items) => {
            write_all(["[", "]"], items, out, |item, out| write_canonical_value(item, depth + 1, out))
        }
        Value::String(text) => write_canonical_text(text, out),
        scalar => write_scalar(scalar, out),
    }
}

/// Appends the canonical form of a string.
///
/// # Errors
/// [`CanonicalError::Json`] if the text cannot be written, for which no cause is known.
pub fn write_canonical_text(text: &str, out: &mut String) -> Result<(), CanonicalError> {
    if text.bytes().any(|byte| matches!(byte, 0..=0x1f | b'"' | b'\\')) {
        return write_scalar(text, out);
    }
    out.push('"');
    out.push_str(text);
    out.push('"');
    Ok(())
}

/// Compares two keys of an object, as the canonical form orders them: by their UTF-16 code units.
#[must_use]
pub fn compare_keys(a: &str, b: &str) -> Ordering {
    // For ASCII, which nearly all keys are, that is the order of the bytes.
    if a.is_ascii() && b.is_ascii() { a.cmp(b) } else { a.encode_utf16().cmp(b.encode_utf16()) }
}

// Recursion is bounded: `Json` is never nested deeper than `MAX_NESTING`.
fn write_canonical(place: ValuePlace<'_>, out: &mut String) -> Result<(), CanonicalError> {
    let text = place.as_str();
    match text.as_bytes().first() {
        Some(b'{') => {
            let mut members = place.members().ok_or_else(unpaired)?;
            members.sort_by(|a, b| compare_keys(&a.0, &b.0));
            refuse_duplicate_keys(&members)?;
            write_all(["{", "}"], &members, out, |(key, value), out| {
                write_canonical_text(key, out)?;
                out.push(':');
                write_canonical(place.part(value), out)
            })
        }
        Some(b'[') => {
            let items = place.items().unwrap_or_default();
            write_all(["[", "]"], &items, out, |item, out| write_canonical(place.part(item), out))
        }
        Some(b'"') => write_string(text, out),
        _ => {
            out.push_str(text);
            Ok(())
        }
    }
}

/// Checks the value that begins at the scanner, which passes over it. `paired` is true if it is known that all
/// surrogates are. Returns `None` if the text is not valid.
// Recursion is bounded: `Json` is never nested deeper than `MAX_NESTING`.
fn check(scanner: &mut JsonScanner<'_>, paired: bool) -> Option<Result<(), CanonicalError>> {
    match scanner.begin()? {
        b'{' => {
            scanner.enter(b'{')?;
            let mut keys = Vec::new();
            while !scanner.leaves(b'}')? {
                let Some(key) = scanner.key() else { return Some(Err(unpaired())) };
                keys.push((key, ""));
                if let Err(error) = check(scanner, paired)? {
                    return Some(Err(error));
                }
            }
            keys.sort_unstable();
            Some(refuse_duplicate_keys(&keys))
        }
        b'[' => {
            scanner.enter(b'[')?;
            while !scanner.leaves(b']')? {
                if let Err(error) = check(scanner, paired)? {
                    return Some(Err(error));
                }
            }
            Some(Ok(()))
        }
        b'"' => {
            let text = scanner.string()?;
            // Only an escape can encode half of a surrogate pair.
            let unknown = !paired && memchr::memmem::find(text.as_bytes(), b"\\u").is_some();
            Some(if unknown { read::<Text<'_>>(text).map(drop) } else { Ok(()) })
        }
        _ => scanner.value().map(|_| Ok(())),
    }
}

/// Refuses sorted members if two have the same key.
fn refuse_duplicate_keys(members: &[(Cow<'_, str>, &str)]) -> Result<(), CanonicalError> {
    let twins = members.windows(2).find(|pair| matches!(pair, [a, b] if a.0 == b.0));
    let key = twins.and_then(|pair| pair.first()).map(|(key, _)| key.to_string());
    key.map_or(Ok(()), |key| Err(CanonicalError::DuplicateKey(key)))
}

/// Writes a string, given with its quotes, with minimal escapes. The parts between escapes are copied unchanged.
fn write_string(quoted: &str, out: &mut String) -> Result<(), CanonicalError> {
    // The short forms are canonical; `\u` and `\/` may not be.
    let mut rest = quoted;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        match rest.as_bytes().get(at + 1) {
            Some(b'u' | b'/') => {
                return write_canonical_text(&read::<Text<'_>>(quoted)?.0, out);
            }
            _ => rest = rest.get(at + 2..).unwrap_or_default(),
        }
    }
    out.push_str(quoted);
    Ok(())
}

/// Returns the error for invalid text, which never becomes a [`Json`].
fn unreadable() -> CanonicalError {
    CanonicalError::Json("the text cannot be read".to_owned())
}

fn unpaired() -> CanonicalError {
    CanonicalError::Json("a key holds half of a surrogate pair".to_owned())
}

fn write_all<T>(
    [open, close]: [&str; 2],
    items: &[T],
    out: &mut String,
    mut write: impl FnMut(&T, &mut String) -> Result<(), CanonicalError>,
) -> Result<(), CanonicalError> {
    out.push_str(open);
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        write(item, out)?;
    }
    out.push_str(close);
    Ok(())
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, CanonicalError> {
    serde_json::from_str(text).map_err(|error| CanonicalError::Json(error.to_string()))
}

// serde_json escapes exactly as RFC 8785 section 3.2.2.2 requires: short forms, \u00xx for other controls, nothing
// else.
fn write_scalar(scalar: &(impl Serialize + ?Sized), out: &mut String) -> Result<(), CanonicalError> {
    let text = serde_json::to_string(scalar).map_err(|error| CanonicalError::Json(error.to_string()))?;
    out.push_str(&text);
    Ok(())
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
    fn the_check_refuses_what_has_no_canonical_form_and_nothing_else() {
        for text in [
            r#"{"b":[{"x":"\u00e9\n"},"\ud83d\ude00"],"a":{}}"#,
            r#"{"a":{"k":1,"\u006b":2}}"#,
            r#"[{"k":1,"k":1}]"#,
            r#"["\ud800"]"#,
            r#"{"\ud800":1}"#,
            r#"{"a":"\\ud800"}"#,
        ] {
            let json = Json::parse(text).unwrap();
            assert_eq!(check_canonical(&json).is_ok(), canonical(&json).is_ok(), "{text}");
        }
        assert!(check_canonical(&Json::parse(r#"[{"k":1,"k":1}]"#).unwrap()).is_err());
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
