//! One JSON value, kept as the text that was received.

mod members;
pub(super) mod scan;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use bytestring::ByteString;
use serde::Deserialize;
use serde_json::value::RawValue;

use self::members::MemberTable;
use super::canonical::canonical;
use super::message::{MAX_NESTING, MessageError};

/// The members of an object in order: each key, decoded, with the text of its value.
pub type MemberTexts<'a> = Vec<(Cow<'a, str>, &'a str)>;

/// One valid JSON value as UTF-8 text, kept exactly as it was received. Cloning and slicing share the buffer.
#[derive(Clone)]
pub struct Json {
    text: ByteString,
    /// Where the members of a long object are, which clones share.
    members: MemberTable,
}

impl Json {
    /// Parses text that holds exactly one JSON value, nested no deeper than [`MAX_NESTING`].
    ///
    /// # Errors
    /// [`MessageError`] if the text is not UTF-8, not JSON, or nested too deep.
    pub fn parse(text: impl Into<Bytes>) -> Result<Self, MessageError> {
        let text = utf8(text.into())?;
        check_nesting(text.as_bytes())?;
        let raw: &RawValue = serde_json::from_str(&text).map_err(MessageError::from_json)?;
        Ok(slice(&text, raw.get()))
    }

    /// Serialises a value. Every type of this crate that is passed here serialises without error; a value that fails to
    /// serialise becomes `null`.
    #[must_use]
    pub fn of(value: &impl serde::Serialize) -> Self {
        serde_json::to_string(value).map_or_else(|_| Self::null(), Self::from_valid)
    }

    /// Takes text that is known to be one JSON value.
    fn from_valid(text: impl Into<ByteString>) -> Self {
        let text = text.into();
        let members = MemberTable::for_text(&text);
        Self { text, members }
    }

    /// Returns the value `null`.
    #[must_use]
    pub const fn null() -> Self {
        Self { text: ByteString::from_static("null"), members: MemberTable::none() }
    }

    /// Returns the value `{}`.
    #[must_use]
    pub const fn empty_object() -> Self {
        Self { text: ByteString::from_static("{}"), members: MemberTable::none() }
    }

    /// Returns the JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the bytes of the JSON text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }

    /// Returns the buffer that holds the JSON text.
    pub(super) fn into_bytes(self) -> Bytes {
        self.text.into_bytes()
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
        serde_json::from_str(&self.text)
    }

    /// Returns the member `key` of an object without parsing the values of the others, or `None` if the key is missing
    /// or this is not an object. Of several members with that name, the last counts.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Self> {
        self.member(key).map(|part| slice(&self.text, part))
    }

    /// Returns the member `key` of an object if it is a string; otherwise like [`Json::get`].
    #[must_use]
    pub fn get_str(&self, key: &str) -> Option<String> {
        serde_json::from_str(self.member(key)?).ok()
    }

    /// Returns the items of an array, or `None` for other values.
    #[must_use]
    pub fn items(&self) -> Option<Vec<Self>> {
        Some(scan::items(&self.text)?.into_iter().map(|part| slice(&self.text, part)).collect())
    }

    /// Returns a copy in which some parts are replaced; everything else keeps its bytes. Each part must be a value that
    /// [`Json::get`] or [`Json::items`] returned for this text. The text is copied once, however many parts there are.
    #[must_use]
    pub fn with_parts(&self, parts: &[(Self, Self)]) -> Self {
        let mut edits: Vec<_> =
            parts.iter().map(|(old, new)| (range_of(&self.text, old.as_str()), new.as_str())).collect();
        edits.sort_by_key(|(range, _)| range.start);
        self.splice(&edits)
    }

    /// Returns the members of an object in order, or `None` for other values.
    #[must_use]
    pub fn members(&self) -> Option<Vec<(String, Self)>> {
        let members = self.member_texts()?;
        Some(members.into_iter().map(|(key, part)| (key.into_owned(), slice(&self.text, part))).collect())
    }

    /// Returns the members of an object in order, each key with the text of its value, or `None` for other values.
    #[must_use]
    pub fn member_texts(&self) -> Option<MemberTexts<'_>> {
        self.members.all(&self.text)
    }

    /// Returns several members of an object in one pass; each as [`Json::get`] would.
    #[must_use]
    pub fn get_all<const N: usize>(&self, keys: [&str; N]) -> [Option<Self>; N] {
        let members = self.member_texts().unwrap_or_default();
        keys.map(|key| last(&members, key).map(|part| slice(&self.text, part)))
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
        let members = self.member_texts()?;
        let (mut replaced, mut added) = (Vec::new(), String::new());
        let mut empty = members.is_empty();
        for (key, value) in edits {
            match (last(&members, key), value) {
                (Some(_), None) => return self.without(key).edited(edits),
                (None, None) => {}
                (Some(part), Some(value)) => replaced.push((range_of(&self.text, part), value.as_str())),
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
            replaced.push((end..self.text.len(), &added));
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
        let Some(members) = self.member_texts() else { return self.clone() };
        let goes = |name: &str| keys.contains(&name);
        if !members.iter().any(|(name, _)| goes(name)) {
            return self.clone();
        }
        let mut text = String::with_capacity(self.text.len());
        for (name, part) in members.iter().filter(|(name, _)| !goes(name)) {
            text.push(if text.is_empty() { '{' } else { ',' });
            text.push_str(&serde_json::to_string(name).unwrap_or_default());
            text.push(':');
            text.push_str(part);
        }
        text.push_str(if text.is_empty() { "{}" } else { "}" });
        Self::from_valid(text)
    }

    /// Returns the text with every line break replaced by a space, as line framing requires. The copy shares the buffer
    /// if there is no line break.
    #[must_use]
    pub fn on_one_line(&self) -> Self {
        // JSON strings cannot hold a raw line break, so each one found is between tokens.
        if memchr::memchr2(b'\n', b'\r', self.as_bytes()).is_none() {
            return self.clone();
        }
        Self::from_valid(self.text.replace(['\n', '\r'], " "))
    }

    fn member(&self, key: &str) -> Option<&str> {
        self.members.last(&self.text, key)
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
        Self::from_valid(out)
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Json {}

impl std::hash::Hash for Json {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Debug for Json {
    // Payloads must not reach logs through `{:?}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.text.len())
    }
}

impl serde::Serialize for Json {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = self.read().map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// Returns bytes as text, which is checked once.
pub(super) fn utf8(text: Bytes) -> Result<ByteString, MessageError> {
    ByteString::try_from(text).map_err(|error| MessageError::Json(error.to_string()))
}

/// Returns a part of a text, which must be one JSON value. It shares the buffer.
pub(super) fn slice(text: &ByteString, part: &str) -> Json {
    Json::from_valid(text.slice_ref(part))
}

/// Returns the last member with that name, which is the one that most parsers use.
fn last<'a>(members: &[(Cow<'a, str>, &'a str)], key: &str) -> Option<&'a str> {
    members.iter().rev().find(|(name, _)| name == key).map(|(_, part)| *part)
}

fn range_of(text: &str, part: &str) -> Range<usize> {
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
            b'"' => rest = scan::after_string(rest),
            _ => {}
        }
    }
    Ok(())
}
