//! One JSON value, kept as the text that was received.

mod blocks;
mod edit;
mod inspect;
mod members;
pub(super) mod scan;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use faststr::FastStr;
use serde::Deserialize;
use serde_json::value::RawValue;

use self::inspect::{LONG_BYTES, TextFacts};
use self::members::MemberTable;
pub use self::scan::string_end;
use self::scan::{ValuePlace, range_of};
use super::canonical::canonical;
use super::message::{MAX_NESTING, MAX_VALUES, MessageError};

/// The members of an object in order: each key, decoded, with the text of its value.
pub type MemberTexts<'a> = Vec<(Cow<'a, str>, &'a str)>;

/// One valid JSON value as UTF-8 text, kept exactly as received. Cloning and slicing share the buffer, and the findings
/// of its check.
#[derive(Clone)]
pub struct Json {
    /// A text that holds the value.
    text: FastStr,
    /// The place of the value in that text.
    range: Range<usize>,
    /// The facts that are known about that text, unless it is short.
    findings: Option<Arc<TextFacts>>,
    /// The positions of the members of a long object. Clones share them.
    members: MemberTable,
    /// The value that is dropped with the text, and not before.
    held: Option<Held>,
}

/// A value that is dropped with a text.
type Held = Arc<dyn Send + Sync>;

/// Bytes, and the value that is dropped with them.
struct BytesWith {
    bytes: Bytes,
    _held: Held,
}

impl AsRef<[u8]> for BytesWith {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The content of a long string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongString {
    /// The length in bytes of its text, with quotes and escapes.
    pub bytes: usize,
    /// The number of characters that it encodes.
    pub characters: usize,
}

impl Json {
    /// Parses text that holds exactly one JSON value, nested no deeper than 128 levels.
    ///
    /// # Errors
    /// [`MessageError`] if the text is not UTF-8, not JSON, nested too deep, or has more than 500,000 values.
    pub fn parse(text: impl Into<Bytes>) -> Result<Self, MessageError> {
        let bytes = text.into();
        // The fast check does not tell where the text is invalid.
        let text = FastStr::from_bytes(bytes.clone()).map_err(|_| not_utf8(&bytes))?;
        let findings = inspect::inspect(&text).ok_or_else(|| refusal(&text))?;
        let spaces = |text: &str| text.len() - text.trim_ascii_start().len();
        let range = spaces(&text)..text.trim_ascii_end().len();
        Ok(Self::new(text, range, findings))
    }

    /// Serialises a value. Every type of this crate that is passed here serialises without error; a value that fails to
    /// serialise becomes `null`.
    #[must_use]
    pub fn of(value: &impl serde::Serialize) -> Self {
        serde_json::to_string(value).map_or_else(|_| Self::null(), Self::from_valid)
    }

    /// Takes text that is known to be one JSON value.
    fn from_valid(text: String) -> Self {
        let range = 0..text.len();
        Self::new(FastStr::from_string(text), range, TextFacts::default())
    }

    fn new(text: FastStr, range: Range<usize>, findings: TextFacts) -> Self {
        let members = MemberTable::for_length(range.len());
        let findings = (text.len() >= LONG_BYTES).then(|| Arc::new(findings));
        Self { text, range, findings, members, held: None }
    }

    /// Returns the value `null`.
    #[must_use]
    pub const fn null() -> Self {
        Self::from_static("null")
    }

    /// Returns the value `{}`.
    #[must_use]
    pub const fn empty_object() -> Self {
        Self::from_static("{}")
    }

    const fn from_static(text: &'static str) -> Self {
        let range = 0..text.len();
        Self { text: FastStr::from_static_str(text), range, findings: None, members: MemberTable::none(), held: None }
    }

    /// Returns the JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.text.get(self.range.clone()).unwrap_or_default()
    }

    /// Returns the bytes of the JSON text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.as_str().as_bytes()
    }

    /// Reports whether the value is an object.
    ///
    /// # Example
    /// ```
    /// # use portcullis_core::protocol::Json;
    /// assert!(Json::empty_object().is_object());
    /// assert!(!Json::of(&["a"]).is_object());
    /// ```
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.as_bytes().starts_with(b"{")
    }

    /// Reports whether the value is `true`.
    ///
    /// # Example
    /// ```
    /// # use portcullis_core::protocol::Json;
    /// assert!(Json::of(&true).is_true());
    /// assert!(!Json::of(&"true").is_true());
    /// ```
    #[must_use]
    pub fn is_true(&self) -> bool {
        self.as_str() == "true"
    }

    /// Returns the value in a separate buffer, which holds nothing else.
    #[doc(hidden)]
    #[must_use]
    pub fn detached(&self) -> Self {
        let text = FastStr::from_string(self.as_str().to_owned());
        let findings = TextFacts { paired: self.surrogates_are_paired(), ..TextFacts::default() };
        Self::new(text, 0..self.range.len(), findings)
    }

    /// Makes the buffer keep something until it is released: after the last value that shares it, and after the bytes
    /// of the last message that was made from it.
    #[doc(hidden)]
    #[must_use]
    pub fn held_with(self, held: impl Send + Sync + 'static) -> Self {
        // It may hold something already.
        let held = (self.held, held);
        Self { held: Some(Arc::new(held)), ..self }
    }

    /// Returns the buffer that holds the JSON text.
    pub(super) fn into_bytes(self) -> Bytes {
        let bytes = self.text.into_bytes().slice(self.range);
        match self.held {
            Some(held) => Bytes::from_owner(BytesWith { bytes, _held: held }),
            None => bytes,
        }
    }

    /// Returns the place of the value, from which its parts are found.
    pub(super) fn place(&self) -> ValuePlace<'_> {
        ValuePlace::new(&self.text, &self.range, self.findings.as_deref())
    }

    /// Returns a part of the value, which must be a slice of its text and one JSON value. It shares the buffer.
    pub(super) fn slice(&self, part: &str) -> Self {
        let range = range_of(&self.text, part);
        let members = MemberTable::for_length(range.len());
        let (findings, held) = (self.findings.clone(), self.held.clone());
        Self { text: self.text.clone(), range, findings, members, held }
    }

    /// Reports whether it is known that no escape in the text encodes an unpaired surrogate.
    pub(super) fn surrogates_are_paired(&self) -> bool {
        self.findings.as_ref().is_some_and(|findings| findings.paired)
    }

    /// Returns the length of the string that begins at this byte of the text, if it is long and was found when the text
    /// was checked.
    #[doc(hidden)]
    #[must_use]
    pub fn long_string(&self, start: usize) -> Option<LongString> {
        let place = self.place();
        let (text, surplus) = place.scanner_at(start).known_string()?;
        // The quotes are not part of the content.
        let characters = text.chars().count().checked_sub(2 + surplus)?;
        Some(LongString { bytes: text.len(), characters })
    }

    /// Converts to a [`serde_json::Value`], either faithfully or as a string: text that a `Value` cannot represent
    /// (`1e999`, more digits than a float holds, a duplicate key) becomes a string with that text. All code that shows
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
        serde_json::from_str(self.as_str())
    }

    /// Returns the member `key` of an object without parsing the values of the others, or `None` if the key is missing
    /// or this is not an object. Of several members with that name, the last counts.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Self> {
        self.member(key).map(|part| self.slice(part))
    }

    /// Returns the member `key` of an object if it is a string; otherwise like [`Json::get`].
    #[must_use]
    pub fn get_str(&self, key: &str) -> Option<String> {
        serde_json::from_str(self.member(key)?).ok()
    }

    /// Returns the items of an array, or `None` for other values.
    #[must_use]
    pub fn items(&self) -> Option<Vec<Self>> {
        Some(self.place().items()?.into_iter().map(|part| self.slice(part)).collect())
    }

    /// Returns the members of an object in order, or `None` for other values.
    #[must_use]
    pub fn members(&self) -> Option<Vec<(String, Self)>> {
        let members = self.member_texts()?;
        Some(members.into_iter().map(|(key, part)| (key.into_owned(), self.slice(part))).collect())
    }

    /// Returns the members of an object in order, each key with the text of its value, or `None` for other values.
    #[doc(hidden)]
    #[must_use]
    pub fn member_texts(&self) -> Option<MemberTexts<'_>> {
        self.members.all(self.place())
    }

    /// Returns several members of an object in one pass; each as [`Json::get`] would.
    #[doc(hidden)]
    #[must_use]
    pub fn get_all<const N: usize>(&self, keys: [&str; N]) -> [Option<Self>; N] {
        let members = self.member_texts().unwrap_or_default();
        keys.map(|key| last(&members, key).map(|part| self.slice(part)))
    }

    fn member(&self, key: &str) -> Option<&str> {
        self.members.last(self.place(), key)
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Json {}

impl std::hash::Hash for Json {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for Json {
    // Payloads must not reach logs through `{:?}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.range.len())
    }
}

impl serde::Serialize for Json {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = self.read().map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// Returns the last member with that name, which is the one that most parsers use.
fn last<'a>(members: &[(Cow<'a, str>, &'a str)], key: &str) -> Option<&'a str> {
    members.iter().rev().find(|(name, _)| name == key).map(|(_, part)| *part)
}

/// Returns why bytes were refused that are not UTF-8.
pub(super) fn not_utf8(bytes: &[u8]) -> MessageError {
    let error = simdutf8::compat::from_utf8(bytes).err();
    MessageError::Json(error.map_or_else(String::new, |error| error.to_string()))
}

/// Returns why a text was refused that is not one JSON value, is nested too deep, or has too many values.
pub(super) fn refusal(text: &str) -> MessageError {
    let invalid = || match serde_json::from_str::<&RawValue>(text) {
        Err(error) => MessageError::from_json(error),
        Ok(_) => MessageError::Json("the text is not one JSON value".to_owned()),
    };
    check_structure(text.as_bytes()).err().unwrap_or_else(invalid)
}

/// Checks the nesting and the number of values of what may be no JSON by counting brackets and commas outside strings.
pub(super) fn check_structure(text: &[u8]) -> Result<(), MessageError> {
    let (mut depth, mut commas) = (0usize, 0usize);
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
            b',' => {
                commas += 1;
                if commas > MAX_VALUES {
                    return Err(MessageError::TooManyValues);
                }
            }
            b'"' => rest = scan::after_string(rest),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::protocol::{Answer, Id, Message, Response};

    #[test]
    fn what_is_held_is_released_with_the_last_bytes_and_a_detached_part_keeps_nothing() {
        let text = serde_json::json!({ "part": "p".repeat(100), "rest": "x".repeat(100_000) }).to_string();
        let parsed = || Json::parse(text.clone()).unwrap();
        let holding = |json: Json| {
            let held = Arc::new(());
            (Arc::downgrade(&held), json.held_with(held))
        };
        let (held, json) = holding(parsed());
        assert_eq!(json.as_str(), text);
        let part = json.get("part").unwrap();
        let own = part.detached();
        drop(json);
        assert!(held.upgrade().is_some(), "the part shares the buffer");
        drop(part);
        assert!(held.upgrade().is_none());
        assert_eq!(own.as_str(), format!("\"{}\"", "p".repeat(100)));

        // It holds two things now.
        let (first, json) = holding(parsed());
        let (held, json) = holding(json);
        let chunks = Message::Response(Response { id: Some(Id::number(1)), answer: Answer::Result(json) }).to_chunks();
        assert!(first.upgrade().is_some() && held.upgrade().is_some(), "it is still to be written");
        drop(chunks);
        assert!(first.upgrade().is_none() && held.upgrade().is_none());
    }
}
