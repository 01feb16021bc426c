//! The facts of an event, which are written as canonical text while they are put together. As a tree of values, the
//! records of a call would cost more than everything else that is done to them.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use portcullis_core::digest::Digest;
use portcullis_core::protocol::{CanonicalError, Json, compare_keys, write_canonical_text, write_canonical_value};
use serde_json::Value;

/// The initial capacity for the values, in bytes: the facts of most events fit.
const INITIAL_BYTES: usize = 1024;

/// The initial capacity for members: the facts of most events fit.
const INITIAL_MEMBERS: usize = 24;

/// The most levels around a tree of values that is a fact: the record, its body, and objects and lists in that. Readers
/// of records read 127 levels in all, so a tree has 120.
const LEVELS: usize = 8;

/// The longest text of a member, in bytes, that a reduced body keeps. A body has some 30 members.
const MAX_KEPT_BYTES: usize = 4096;

/// A value that can be a fact of an event.
pub trait Fact {
    /// Appends the canonical text of the value.
    ///
    /// # Errors
    /// [`CanonicalError`] if it has none. The appended text is still a value, with `null` in each missing place.
    fn write(&self, out: &mut String) -> Result<(), CanonicalError>;
}

/// The facts of an event: an object, whose members can be set in any order.
///
/// ```
/// use portcullis_ledger::EventBody;
///
/// let body = EventBody::new().with("source", "files").with("micros", 7u64).with("error", None::<&str>);
/// assert_eq!(body.to_string(), r#"{"error":null,"micros":7,"source":"files"}"#);
/// ```
#[derive(Clone, Default)]
pub struct EventBody {
    /// The values of the members, one after the other, in the order in which they were set.
    values: String,
    members: Vec<(Cow<'static, str>, Range<usize>)>,
    /// The error of the first value that has no canonical text.
    error: Option<CanonicalError>,
}

impl EventBody {
    /// Creates a body without facts.
    #[must_use]
    pub fn new() -> Self {
        Self { values: String::with_capacity(INITIAL_BYTES), members: Vec::with_capacity(INITIAL_MEMBERS), error: None }
    }

    /// Sets a fact, replacing an earlier one with this key.
    pub fn set(&mut self, key: impl Into<Cow<'static, str>>, fact: impl Fact) {
        let start = self.values.len();
        if let Err(error) = fact.write(&mut self.values) {
            self.error.get_or_insert(error);
        }
        let (key, value) = (key.into(), start..self.values.len());
        match self.members.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => self.members.push((key, value)),
        }
    }

    /// Sets a fact, and returns the body.
    #[must_use]
    pub fn with(mut self, key: impl Into<Cow<'static, str>>, fact: impl Fact) -> Self {
        self.set(key, fact);
        self
    }

    /// Returns the body with the long members and those without a canonical text reduced to their size in bytes and, if
    /// they have one, their hash: so a call is recorded whatever its payloads are. The member `reduced` says so.
    pub(super) fn reduced(&self) -> Self {
        #[derive(serde::Deserialize)]
        struct Payload {
            bytes: usize,
            hash: String,
        }

        let members = self.members.iter().map(|(key, value)| (key, self.values.get(value.clone()).unwrap_or_default()));
        let reduced = members.fold(Self::new(), |mut body, (key, text)| {
            if text.len() <= MAX_KEPT_BYTES {
                body.set(key.clone(), Written(text));
            } else {
                let payload = serde_json::from_str::<Payload>(text).ok();
                let bytes = payload.as_ref().map_or(text.len(), |payload| payload.bytes);
                let reduced = Self::new().with("bytes", bytes);
                let reduced = payload.into_iter().fold(reduced, |reduced, payload| reduced.with("hash", payload.hash));
                body.set(key.clone(), reduced);
            }
            body
        });
        reduced.with("reduced", true)
    }

    /// Returns the canonical text.
    ///
    /// # Errors
    /// [`CanonicalError`] if a fact has none.
    pub(super) fn to_text(&self) -> Result<String, CanonicalError> {
        let mut out = String::with_capacity(self.values.len() + 16 * self.members.len());
        self.write(&mut out)?;
        Ok(out)
    }
}

/// Canonical text that was written before.
struct Written<'a>(&'a str);

impl Fact for Written<'_> {
    fn write(&self, out: &mut String) -> Result<(), CanonicalError> {
        out.push_str(self.0);
        Ok(())
    }
}

impl Fact for EventBody {
    fn write(&self, out: &mut String) -> Result<(), CanonicalError> {
        let mut members: Vec<_> = self.members.iter().collect();
        members.sort_unstable_by(|a, b| compare_keys(&a.0, &b.0));
        out.push('{');
        for (at, (key, value)) in members.into_iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            write_canonical_text(key, out)?;
            out.push(':');
            out.push_str(self.values.get(value.clone()).unwrap_or_default());
        }
        out.push('}');
        self.error.clone().map_or(Ok(()), Err)
    }
}

/// Shows the canonical text, or why there is none.
impl fmt::Display for EventBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_text() {
            Ok(text) => f.write_str(&text),
            Err(error) => write!(f, "{error}"),
        }
    }
}

impl fmt::Debug for EventBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Takes the members of an object. A body made from any other value cannot be recorded.
impl From<Value> for EventBody {
    fn from(value: Value) -> Self {
        let Value::Object(members) = value else {
            let error = CanonicalError::Json("the facts of an event are an object".to_owned());
            return Self { error: Some(error), ..Self::default() };
        };
        members.into_iter().fold(Self::default(), |body, (key, value)| body.with(key, value))
    }
}

/// Reads the facts back, as an object.
impl From<EventBody> for Value {
    fn from(body: EventBody) -> Self {
        body.to_text().ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }
}

impl Fact for Value {
    fn write(&self, out: &mut String) -> Result<(), CanonicalError> {
        let start = out.len();
        write_canonical_value(self, LEVELS, out).inspect_err(|_| {
            out.truncate(start);
            out.push_str("null");
        })
    }
}

/// A value as people read it ([`Json::to_value`]). One that is nested too deep for a record is a text.
impl Fact for Json {
    fn write(&self, out: &mut String) -> Result<(), CanonicalError> {
        let start = out.len();
        self.to_value().write(out).or_else(|_| {
            out.truncate(start);
            self.as_str().write(out)
        })
    }
}

impl Fact for str {
    fn write(&self, out: &mut String) -> Result<(), CanonicalError> {
        write_canonical_text(self, out)
    }
}

impl Fact for String {
    fn write(&self, out: &mut String) -> Result<(), CanonicalError> {
        self.as_str().write(out)
    }
}

macro_rules! facts_as_they_are_shown {
    ($quote:literal: $($type:ty),*) => {$(
        impl Fact for $type {
            fn write(&self, out: &mut String) -> Result<(), CanonicalError> {
                // Writing to a `String` does not fail.
                let _ = fmt::Write::write_fmt(out, format_args!(concat!($quote, "{}", $quote), self));
                Ok(())
            }
        }
    )*};
}

facts_as_they_are_shown!("": bool, u32, u64, usize);
// Letters, digits and a colon, which need no escapes.
facts_as_they_are_shown!("\"": Digest);

impl<T: Fact + ?Sized> Fact for &T {
    fn write(&self, out: &mut String) -> Result<(), CanonicalError> {
        (**self).write(out)
    }
}

impl<T: Fact + ?Sized> Fact for Arc<T> {
    fn write(&self, out: &mut String) -> Result<(), CanonicalError> {
        (**self).write(out)
    }
}

impl<T: Fact> Fact for Option<T> {
    fn write(&self, out: &mut String) -> Result<(), CanonicalError> {
        match self {
            Some(fact) => fact.write(out),
            None => {
                out.push_str("null");
                Ok(())
            }
        }
    }
}

impl<T: Fact> Fact for [T] {
    fn write(&self, out: &mut String) -> Result<(), CanonicalError> {
        let mut written = Ok(());
        out.push('[');
        for (at, fact) in self.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            written = written.and(fact.write(out));
        }
        out.push(']');
        written
    }
}

impl<T: Fact> Fact for Vec<T> {
    fn write(&self, out: &mut String) -> Result<(), CanonicalError> {
        self.as_slice().write(out)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use portcullis_core::protocol::canonical_value;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_body_has_the_text_of_the_same_tree() {
        let digest = Digest::of(b"x");
        let inner = json!({ "z": [1, { "b": null, "a": "é\n" }], "\u{1f600}": {} });
        let body = EventBody::new()
            .with("micros", 7u64)
            .with("tree", &inner)
            .with("name", "a \"name\"\u{1}")
            .with("on", true)
            .with("digest", digest)
            .with("list", vec![EventBody::new().with("b", 1u32), EventBody::new()])
            .with("none", None::<String>)
            .with("micros", 8u64);
        let tree = json!({
            "micros": 8, "tree": inner, "name": "a \"name\"\u{1}", "on": true, "digest": digest.to_string(),
            "list": [{ "b": 1 }, {}], "none": null,
        });
        assert_eq!(body.to_text().unwrap(), canonical_value(&tree).unwrap());
        assert_eq!(Value::from(body), tree);
    }

    #[test]
    fn a_fact_without_a_canonical_text_is_an_error() {
        let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
        let inner = EventBody::new().with("deep", deep);
        assert!(inner.to_text().is_err());
        assert!(EventBody::new().with("inner", inner).with("other", 1u32).to_text().is_err());
        assert!(EventBody::from(json!("a text")).to_text().is_err(), "its text would be lost");
    }

    #[test]
    fn a_reduced_body_keeps_the_size_and_the_hash_of_what_is_too_large_or_has_no_text() {
        let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
        let payload = |body: Value| EventBody::new().with("bytes", 7u64).with("body", body).with("hash", "h");
        let body = EventBody::new()
            .with("code", "x")
            .with("deep", payload(deep))
            .with("large", payload(json!("é".repeat(MAX_KEPT_BYTES))))
            .with("list", vec!["y".repeat(MAX_KEPT_BYTES)]);
        assert!(body.to_text().is_err());
        let expected = json!({
            "code": "x", "deep": { "body": null, "bytes": 7, "hash": "h" }, "large": { "bytes": 7, "hash": "h" },
            "list": { "bytes": MAX_KEPT_BYTES + 4 }, "reduced": true,
        });
        assert_eq!(Value::from(body.reduced()), expected);
    }

    proptest! {
        #[test]
        fn keys_are_sorted_as_in_a_tree(keys in proptest::collection::vec("[a-c !\"é\u{fb33}\u{1f600}]{0,3}", 0..8)) {
            let mut body = EventBody::new();
            let mut tree = serde_json::Map::new();
            for (at, key) in keys.iter().enumerate() {
                body.set(key.clone(), at);
                tree.insert(key.clone(), json!(at));
            }
            prop_assert_eq!(body.to_text().unwrap(), canonical_value(&tree.into()).unwrap());
        }
    }
}
