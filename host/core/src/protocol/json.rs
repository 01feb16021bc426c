//! One JSON value, kept as the bytes that were received.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::canonical::canonical;
use super::message::{MAX_NESTING, MessageError};

/// One valid JSON value as UTF-8 text, kept exactly as it was received. Cloning and slicing share the buffer.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Bytes);

impl Json {
    /// Parses text that holds exactly one JSON value, nested no deeper than [`MAX_NESTING`].
    ///
    /// # Errors
    /// [`MessageError`] if the text is not UTF-8, not JSON, or nested too deep.
    pub fn parse(text: impl Into<Bytes>) -> Result<Self, MessageError> {
        let text = text.into();
        check_nesting(&text)?;
        let raw: &RawValue = serde_json::from_slice(&text).map_err(MessageError::from_json)?;
        Ok(slice(&text, raw))
    }

    /// Serialises a value. Every type of this crate that is passed here serialises without error; a value that fails to
    /// serialise becomes `null`.
    #[must_use]
    pub fn of(value: &impl serde::Serialize) -> Self {
        serde_json::to_vec(value).map_or_else(|_| Self::null(), |text| Self(Bytes::from(text)))
    }

    /// Returns the value `null`.
    #[must_use]
    pub const fn null() -> Self {
        Self(Bytes::from_static(b"null"))
    }

    /// Returns the value `{}`.
    #[must_use]
    pub const fn empty_object() -> Self {
        Self(Bytes::from_static(b"{}"))
    }

    /// Returns the JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Constructors accept only UTF-8; checking again costs less than the line of `unsafe` it saves.
        std::str::from_utf8(&self.0).unwrap_or("null")
    }

    /// Returns the bytes of the JSON text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the buffer that holds the JSON text.
    pub(super) fn into_bytes(self) -> Bytes {
        self.0
    }

    /// Converts to a [`serde_json::Value`], faithfully or not at all: text that a `Value` cannot represent (`1e999`,
    /// more digits than a float holds, a duplicate key) becomes a string that holds the text. All code that shows
    /// payloads to people uses this function, so that they read what the source will read.
    #[must_use]
    pub fn to_value(&self) -> serde_json::Value {
        let parsed = self.read::<serde_json::Value>().ok();
        let same = |value: &serde_json::Value| canonical(&Self::of(value)) == canonical(self);
        parsed.filter(same).unwrap_or_else(|| serde_json::Value::String(self.as_str().to_owned()))
    }

    /// Parses into a typed value that may borrow from the text.
    ///
    /// # Errors
    /// The parser's error, with line and column within this value.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.0)
    }

    /// Returns the member `key` of an object without parsing the values of the others, or `None` if the key is missing
    /// or this is not an object. Of several members with that name, the last counts.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Self> {
        self.member(key).map(|raw| slice(&self.0, raw))
    }

    /// Returns the member `key` of an object if it is a string; otherwise like [`Json::get`].
    #[must_use]
    pub fn get_str(&self, key: &str) -> Option<String> {
        serde_json::from_str(self.member(key)?.get()).ok()
    }

    /// Returns the items of an array, or `None` for other values.
    #[must_use]
    pub fn items(&self) -> Option<Vec<Self>> {
        let items: Vec<&RawValue> = self.read().ok()?;
        Some(items.into_iter().map(|raw| slice(&self.0, raw)).collect())
    }

    /// Returns a copy in which some parts are replaced; everything else keeps its bytes. Each part must be a value that
    /// [`Json::get`] or [`Json::items`] returned for this text. The text is copied once, however many parts there are.
    #[must_use]
    pub fn with_parts(&self, parts: &[(Self, Self)]) -> Self {
        let mut edits: Vec<_> =
            parts.iter().map(|(old, new)| (range_of(&self.0, old.as_str()), new.as_str())).collect();
        edits.sort_by_key(|(range, _)| range.start);
        self.splice(&edits)
    }

    /// Returns the members of an object in order, or `None` for other values.
    #[must_use]
    pub fn members(&self) -> Option<Vec<(String, Self)>> {
        let members = self.read::<Members<'_>>().ok()?.0;
        Some(members.into_iter().map(|(key, raw)| (key.into_owned(), slice(&self.0, raw))).collect())
    }

    /// Returns several members of an object in one pass; each as [`Json::get`] would.
    #[must_use]
    pub fn get_all<const N: usize>(&self, keys: [&str; N]) -> [Option<Self>; N] {
        let members = self.read::<Members<'_>>().map(|members| members.0).unwrap_or_default();
        keys.map(|key| last(&members, key).map(|raw| slice(&self.0, raw)))
    }

    /// Returns this object with the member `key` replaced, or added at the end if it was missing; everything else keeps
    /// its bytes. Returns `None` if this is not an object.
    #[must_use]
    pub fn with(&self, key: &str, value: &Self) -> Option<Self> {
        self.edited(&[(key, Some(value))])
    }

    /// Returns this object with some members replaced, added at the end, or (for an edit without a value) removed;
    /// everything else keeps its bytes. Returns `None` if this is not an object.
    #[must_use]
    pub fn edited(&self, edits: &[(&str, Option<&Self>)]) -> Option<Self> {
        let members = self.read::<Members<'_>>().ok()?.0;
        let (mut replaced, mut added) = (Vec::new(), String::new());
        let mut empty = members.is_empty();
        for (key, value) in edits {
            match (last(&members, key), value) {
                (Some(_), None) => return self.without(key).edited(edits),
                (None, None) => {}
                (Some(raw), Some(value)) => replaced.push((range_of(&self.0, raw.get()), value.as_str())),
                (None, Some(value)) => {
                    added.push_str(if std::mem::take(&mut empty) { "" } else { "," });
                    added.push_str(&serde_json::to_string(key).ok()?);
                    added.push(':');
                    added.push_str(value.as_str());
                }
            }
        }
        if !added.is_empty() {
            // Insert before the closing brace and any white space in front of it.
            let end = self.as_str().trim_end().strip_suffix('}')?.trim_end().len();
            added.push('}');
            replaced.push((end..self.0.len(), &added));
        }
        if replaced.is_empty() {
            return Some(self.clone());
        }
        replaced.sort_by_key(|(range, _)| range.start);
        Some(self.splice(&replaced))
    }

    /// Returns this object without the member `key`; the other values keep their bytes. Returns any other value
    /// unchanged.
    #[must_use]
    pub fn without(&self, key: &str) -> Self {
        self.without_all(&[key])
    }

    /// Like [`Json::without`] for several keys in one pass.
    #[must_use]
    pub fn without_all(&self, keys: &[&str]) -> Self {
        let Ok(members) = self.read::<Members<'_>>() else { return self.clone() };
        let goes = |name: &str| keys.contains(&name);
        if !members.0.iter().any(|(name, _)| goes(name)) {
            return self.clone();
        }
        let mut text = String::with_capacity(self.0.len());
        for (name, raw) in members.0.iter().filter(|(name, _)| !goes(name)) {
            text.push(if text.is_empty() { '{' } else { ',' });
            text.push_str(&serde_json::to_string(name).unwrap_or_default());
            text.push(':');
            text.push_str(raw.get());
        }
        text.push_str(if text.is_empty() { "{}" } else { "}" });
        Self(Bytes::from(text))
    }

    /// Returns the text with every line break replaced by a space, as line framing requires. The copy shares the buffer
    /// if there is no line break.
    #[must_use]
    pub fn on_one_line(&self) -> Self {
        // JSON strings cannot hold a raw line break, so each one found is between tokens.
        if memchr::memchr2(b'\n', b'\r', &self.0).is_none() {
            return self.clone();
        }
        let text: Vec<u8> = self.0.iter().map(|&b| if b == b'\n' || b == b'\r' { b' ' } else { b }).collect();
        Self(Bytes::from(text))
    }

    fn member(&self, key: &str) -> Option<&RawValue> {
        last(&self.read::<Members<'_>>().ok()?.0, key)
    }

    fn splice(&self, edits: &[(Range<usize>, &str)]) -> Self {
        let text = self.as_str();
        let mut out = String::with_capacity(text.len() + edits.iter().map(|(_, new)| new.len()).sum::<usize>());
        let mut at = 0;
        for (range, new) in edits {
            out.push_str(text.get(at..range.start).unwrap_or_default());
            out.push_str(new);
            at = range.end;
        }
        out.push_str(text.get(at..).unwrap_or_default());
        Self(Bytes::from(out))
    }
}

impl fmt::Debug for Json {
    // Payloads must not reach logs through `{:?}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.0.len())
    }
}

impl serde::Serialize for Json {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = self.read().map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// The members of an object in order, each value a slice of the text.
pub struct Members<'a>(pub Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(Key(key)) = map.next_key::<Key<'de>>()? {
                    members.push((key, map.next_value()?));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] std::borrow::Cow<'a, str>);

pub(super) fn slice(text: &Bytes, raw: &RawValue) -> Json {
    Json(text.slice_ref(raw.get().as_bytes()))
}

/// Returns the last member with that name, which is the one that most parsers use.
fn last<'a>(members: &[(Cow<'a, str>, &'a RawValue)], key: &str) -> Option<&'a RawValue> {
    members.iter().rev().find(|(name, _)| name == key).map(|(_, raw)| *raw)
}

fn range_of(text: &[u8], part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - text.as_ptr() as usize;
    start..start + part.len()
}

/// Checks the nesting by counting brackets outside strings: one pass over the bytes and no recursion, as it runs before
/// every parser.
pub(super) fn check_nesting(text: &[u8]) -> Result<(), MessageError> {
    let mut depth = 0usize;
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_NESTING {
                    return Err(MessageError::TooDeep);
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => rest = after_string(rest),
            _ => {}
        }
    }
    Ok(())
}

/// Returns the text after the string whose opening quote was just read.
fn after_string(mut rest: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
        let escaped = rest.get(at) == Some(&b'\\');
        rest = rest.get(at + 1 + usize::from(escaped)..).unwrap_or_default();
        if !escaped {
            return rest;
        }
    }
    &[]
}
