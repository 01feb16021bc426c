//! Remembers where the members of a long object are, since a payload is asked for its members many times on its way.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::scan::{Member, ValuePlace, range_of};

/// The length in bytes from which on a table is kept. A shorter text is scanned in less time than a table takes.
const LONG: usize = 1024;

/// The members of one text, found when they are first asked for; or nothing, for a short text.
#[derive(Clone)]
pub(super) struct MemberTable(Option<Arc<OnceLock<Option<Vec<Entry>>>>>);

struct Entry {
    key: Key,
    value: Range<usize>,
}

enum Key {
    /// The place of a key without escapes.
    Plain(Range<usize>),
    Decoded(Box<str>),
}

impl Entry {
    fn key<'a>(&'a self, text: &'a str) -> &'a str {
        match &self.key {
            Key::Plain(range) => text.get(range.clone()).unwrap_or_default(),
            Key::Decoded(key) => key,
        }
    }

    fn value<'a>(&self, text: &'a str) -> &'a str {
        text.get(self.value.clone()).unwrap_or_default()
    }
}

impl MemberTable {
    pub(super) const fn none() -> Self {
        Self(None)
    }

    pub(super) fn for_length(length: usize) -> Self {
        Self((length >= LONG).then(Arc::default))
    }

    /// Returns all members in order, or `None` if the value is not an object. The place must always be the same.
    pub(super) fn all<'a>(&'a self, place: ValuePlace<'a>) -> Option<Vec<Member<'a>>> {
        let Some(table) = &self.0 else { return place.members() };
        let (entries, text) = (table.get_or_init(|| entries(place)).as_ref()?, place.as_str());
        Some(entries.iter().map(|entry| (Cow::Borrowed(entry.key(text)), entry.value(text))).collect())
    }

    /// Returns the value of the last member with this key. The place must always be the same.
    pub(super) fn last<'a>(&self, place: ValuePlace<'a>, key: &str) -> Option<&'a str> {
        let Some(table) = &self.0 else { return place.member(key) };
        let (entries, text) = (table.get_or_init(|| entries(place)).as_ref()?, place.as_str());
        entries.iter().rev().find(|entry| entry.key(text) == key).map(|entry| entry.value(text))
    }
}

fn entries(place: ValuePlace<'_>) -> Option<Vec<Entry>> {
    let range = |part: &str| range_of(place.as_str(), part);
    let entry = |(key, value): Member<'_>| {
        let key = match key {
            Cow::Borrowed(key) => Key::Plain(range(key)),
            Cow::Owned(key) => Key::Decoded(key.into()),
        };
        Entry { key, value: range(value) }
    };
    Some(place.members()?.into_iter().map(entry).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_table_gives_what_a_scan_gives() {
        let long = "x".repeat(LONG);
        for text in [
            format!(r#"{{"a": 1, "\u0061" :[2], "b":"{long}", "a":{{"c":3}} }}"#),
            format!(r#"["{long}"]"#),
            format!(r#"{{"\ud800":"{long}"}}"#),
            format!("{{{}}}", " ".repeat(LONG)),
        ] {
            let (table, place) = (MemberTable::for_length(text.len()), ValuePlace::whole(&text));
            assert!(table.0.is_some());
            assert_eq!(table.all(place), place.members(), "{text}");
            for key in ["a", "b", "c", ""] {
                assert_eq!(table.last(place, key), place.member(key), "{text}");
            }
        }
    }
}
