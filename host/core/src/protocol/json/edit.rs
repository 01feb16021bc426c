//! Copies of a value with changes: the rest keeps its bytes and its known facts.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use faststr::FastStr;

use super::super::buffer::MessageBuffer;
use super::inspect::TextFacts;
use super::{Json, last};

/// The largest number of keys that are looked up one after the other. An agent may send a hundred thousand.
const FEW: usize = 8;

/// The bytes that a copy may have more than the original before its buffer grows.
const ROOM: usize = 256;

impl Json {
    /// Returns a copy in which some parts are replaced; everything else keeps its bytes. Each part must be a value that
    /// [`Json::get`] or [`Json::items`] returned for this text. The text is copied once, however many parts there are.
    #[doc(hidden)]
    #[must_use]
    pub fn with_parts(&self, parts: &[(Self, Self)]) -> Self {
        let mut edits: Vec<_> = parts.iter().map(|(old, new)| (self.range_of(old.as_str()), new.as_str())).collect();
        edits.sort_by_key(|(range, _)| range.start);
        self.splice(&edits)
    }

    /// Returns this object with the member `key` replaced, or added at the end if it was missing; everything else keeps
    /// its bytes. Returns `None` if this is not an object.
    #[must_use]
    pub fn with(&self, key: &str, value: &Self) -> Option<Self> {
        self.edited(&[(key, Some(value))])
    }

    /// Returns this object with some members replaced, added at the end, or (for an edit without a value) removed;
    /// everything else keeps its bytes. Returns `None` if this is not an object.
    #[doc(hidden)]
    #[must_use]
    pub fn edited(&self, edits: &[(&str, Option<&Self>)]) -> Option<Self> {
        let removed: Vec<_> = edits.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| *key).collect();
        if !removed.is_empty() {
            let others: Vec<_> = edits.iter().filter(|(_, value)| value.is_some()).copied().collect();
            return self.without_all(&removed).edited(&others);
        }
        let members = self.member_texts()?;
        let table: Option<HashMap<&str, &str>> =
            (edits.len() > FEW).then(|| members.iter().map(|(name, part)| (&**name, *part)).collect());
        let (mut replaced, mut added) = (Vec::new(), String::new());
        let mut empty = members.is_empty();
        for (key, value) in edits {
            let there = table.as_ref().map_or_else(|| last(&members, key), |table| table.get(key).copied());
            match (there, value) {
                (_, None) => {}
                (Some(part), Some(value)) => replaced.push((self.range_of(part), value.as_str())),
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
            replaced.push((end..self.as_str().len(), &added));
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

    /// Works like [`Json::without`] for several keys in one pass.
    #[doc(hidden)]
    #[must_use]
    pub fn without_all(&self, keys: &[&str]) -> Self {
        let Some(members) = self.member_texts() else { return self.clone() };
        let table: Option<HashSet<&str>> = (keys.len() > FEW).then(|| keys.iter().copied().collect());
        let goes = |name: &str| table.as_ref().map_or_else(|| keys.contains(&name), |table| table.contains(name));
        if !members.iter().any(|(name, _)| goes(name)) {
            return self.clone();
        }
        let mut out = Copy::of(self);
        for (name, part) in members.iter().filter(|(name, _)| !goes(name)) {
            out.add(if out.text.is_empty() { "{" } else { "," });
            out.add(&serde_json::to_string(name).unwrap_or_default());
            out.add(":");
            out.keep(self.range_of(part));
        }
        out.add(if out.text.is_empty() { "{}" } else { "}" });
        out.into_json()
    }

    /// Returns the text with every line break replaced by a space, as line framing requires. The copy shares the buffer
    /// if there is no line break.
    #[doc(hidden)]
    #[must_use]
    pub fn on_one_line(&self) -> Self {
        // JSON strings cannot hold a raw line break, so each one found is between tokens.
        if memchr::memchr2(b'\n', b'\r', self.as_bytes()).is_none() {
            return self.clone();
        }
        Self::from_valid(self.as_str().replace(['\n', '\r'], " "))
    }

    /// Returns the place of a part in the text of this value.
    fn range_of(&self, part: &str) -> Range<usize> {
        super::range_of(self.as_str(), part)
    }

    fn splice(&self, edits: &[(Range<usize>, &str)]) -> Self {
        let mut out = Copy::of(self);
        let mut at = 0;
        for (range, new) in edits {
            out.keep(at..range.start);
            out.add(new);
            at = range.end;
        }
        out.keep(at..self.as_str().len());
        out.into_json()
    }
}

/// A text that is put together from parts of a value and from others.
struct Copy<'a> {
    from: &'a Json,
    text: MessageBuffer,
    findings: TextFacts,
}

impl<'a> Copy<'a> {
    fn of(from: &'a Json) -> Self {
        let findings = TextFacts { long: Vec::new(), paired: true };
        Self { from, text: MessageBuffer::with_capacity(from.as_str().len() + ROOM), findings }
    }

    /// Adds a part of the value, by its place in the text.
    fn keep(&mut self, range: Range<usize>) {
        let Some(part) = self.from.as_str().get(range.clone()) else { return };
        let start = self.from.range.start;
        let there = start + range.start..start + range.end;
        match &self.from.findings {
            Some(findings) => self.findings.add(findings, &there, self.text.len()),
            None => self.findings.paired = false,
        }
        self.put(part);
    }

    /// Adds another text.
    fn add(&mut self, text: &str) {
        self.findings.paired &= memchr::memmem::find(text.as_bytes(), b"\\u").is_none();
        self.put(text);
    }

    fn put(&mut self, text: &str) {
        let room = (self.from.as_str().len() + ROOM).max(self.text.len() + text.len());
        self.text.extend(text.as_bytes(), room);
    }

    fn into_json(self) -> Json {
        // All parts are text, and so is the whole.
        let text = FastStr::from_bytes(self.text.into_bytes()).unwrap_or_default();
        let range = 0..text.len();
        Json::new(text, range, self.findings)
    }
}
