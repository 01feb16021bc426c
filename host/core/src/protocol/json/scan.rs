//! Finds the parts of JSON text that is known to be valid, several times faster than a parser that checks it again.
//!
//! Values whose places are known are stepped over. Other strings are passed over by a vectorised search for their end,
//! everything else byte by byte. On text that is not valid the result is unspecified, but never a panic.

use std::borrow::Cow;
use std::ops::Range;

use super::inspect::{LongValue, TextFacts};

/// A member of an object: the key, decoded, and the text of the value.
pub(in crate::protocol) type Member<'a> = (Cow<'a, str>, &'a str);

/// The place of a value in a text, with what is known about that text.
#[derive(Clone, Copy)]
pub(in crate::protocol) struct ValuePlace<'a> {
    /// The text up to the end of the value.
    text: &'a str,
    start: usize,
    findings: Option<&'a TextFacts>,
}

impl<'a> ValuePlace<'a> {
    pub(super) fn new(text: &'a str, range: &Range<usize>, findings: Option<&'a TextFacts>) -> Self {
        Self { text: text.get(..range.end).unwrap_or_default(), start: range.start, findings }
    }

    /// Returns the place of a whole text about which nothing is known.
    #[cfg(test)]
    pub(super) fn whole(text: &'a str) -> Self {
        Self { text, start: 0, findings: None }
    }

    /// Returns the place of a part of this value, which must be a slice of it.
    pub(in crate::protocol) fn part(self, part: &str) -> Self {
        let range = range_of(self.text, part);
        Self { text: self.text.get(..range.end).unwrap_or_default(), start: range.start, ..self }
    }

    /// Returns the text of the value.
    pub(in crate::protocol) fn as_str(self) -> &'a str {
        self.text.get(self.start..).unwrap_or_default()
    }

    /// Returns the members of an object in order, or `None` for any other value, and for a key with an unpaired
    /// surrogate.
    pub(in crate::protocol) fn members(self) -> Option<Vec<Member<'a>>> {
        let mut members = Vec::new();
        self.each_member(|member| members.push(member))?;
        Some(members)
    }

    /// Returns the value of the last member with this key, as [`ValuePlace::members`] would.
    pub(super) fn member(self, key: &str) -> Option<&'a str> {
        let mut found = None;
        self.each_member(|(name, value)| {
            if name == key {
                found = Some(value);
            }
        })?;
        found
    }

    fn each_member(self, mut each: impl FnMut(Member<'a>)) -> Option<()> {
        let mut scanner = self.scanner();
        scanner.enter(b'{')?;
        while !scanner.leaves(b'}')? {
            each((scanner.key()?, scanner.value()?));
        }
        Some(())
    }

    /// Returns the items of an array in order, or `None` for any other value.
    pub(in crate::protocol) fn items(self) -> Option<Vec<&'a str>> {
        let mut scanner = self.scanner();
        scanner.enter(b'[')?;
        let mut items = Vec::new();
        while !scanner.leaves(b']')? {
            items.push(scanner.value()?);
        }
        Some(items)
    }

    /// Returns a scanner at the start of the value.
    pub(in crate::protocol) fn scanner(self) -> JsonScanner<'a> {
        self.scanner_at(0)
    }

    /// Returns a scanner at this byte of the value.
    pub(super) fn scanner_at(self, offset: usize) -> JsonScanner<'a> {
        let at = self.start + offset;
        let next = self.findings.map_or(0, |findings| findings.long.partition_point(|value| value.start < at));
        JsonScanner { text: self.text, at, findings: self.findings, next }
    }
}

/// Returns the place of a part, which must be a slice of the text.
pub(super) fn range_of(text: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - text.as_ptr() as usize;
    start..start + part.len()
}

/// Returns the text after the string whose opening quote was just read.
pub(super) fn after_string(mut rest: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
        let escaped = rest.get(at) == Some(&b'\\');
        rest = rest.get(at + 1 + usize::from(escaped)..).unwrap_or_default();
        if !escaped {
            return rest;
        }
    }
    &[]
}

/// Returns the position after the closing quote of the JSON string that a text begins with, or the text's length if the
/// string does not end.
#[must_use]
pub fn string_end(text: &str) -> usize {
    text.len() - after_string(text.as_bytes().get(1..).unwrap_or_default()).len()
}

/// Returns the decoded content of a string with its quotes.
fn decoded(quoted: &str) -> Option<Cow<'_, str>> {
    match memchr::memchr(b'\\', quoted.as_bytes()) {
        Some(_) => serde_json::from_str(quoted).ok().map(Cow::Owned),
        None => quoted.get(1..quoted.len().checked_sub(1)?).map(Cow::Borrowed),
    }
}

/// A position in a text.
pub(in crate::protocol) struct JsonScanner<'a> {
    text: &'a str,
    at: usize,
    findings: Option<&'a TextFacts>,
    /// The number of the first long value that does not start before the position.
    next: usize,
}

impl<'a> JsonScanner<'a> {
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.byte(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    /// Passes over white space and returns the first byte of the value that follows.
    pub(in crate::protocol) fn begin(&mut self) -> Option<u8> {
        self.skip_space();
        self.byte()
    }

    /// Passes over white space and this byte.
    pub(in crate::protocol) fn enter(&mut self, byte: u8) -> Option<()> {
        self.skip_space();
        (self.byte()? == byte).then(|| self.at += 1)
    }

    /// Passes over what separates two parts, and reports whether the end of the whole was passed instead.
    pub(in crate::protocol) fn leaves(&mut self, end: u8) -> Option<bool> {
        self.skip_space();
        let byte = self.byte()?;
        if byte == end || byte == b',' {
            self.at += 1;
            self.skip_space();
        }
        Some(byte == end)
    }

    /// Passes over a key and its colon, and returns the key. `None` if it has an unpaired surrogate.
    pub(in crate::protocol) fn key(&mut self) -> Option<Cow<'a, str>> {
        let key = decoded(self.string()?)?;
        self.enter(b':')?;
        self.skip_space();
        Some(key)
    }

    /// Returns the long value that begins at the position, if its place is known.
    fn known(&mut self) -> Option<LongValue> {
        let found = self.findings?.at(self.at, &mut self.next)?;
        // Beyond the end of the text there is nothing, whatever is known of a longer one.
        (found.end <= self.text.len()).then_some(found)
    }

    /// Passes over a long string whose place is known. Returns it with its quotes, and the bytes by which its escapes
    /// are longer than the characters that they encode.
    pub(super) fn known_string(&mut self) -> Option<(&'a str, usize)> {
        let start = self.at;
        let known = self.known().filter(|_| self.byte() == Some(b'"'))?;
        self.at = known.end;
        Some((self.text.get(start..known.end)?, known.surplus))
    }

    /// Passes over a string and returns it with its quotes.
    pub(in crate::protocol) fn string(&mut self) -> Option<&'a str> {
        let start = self.at;
        let rest = self.text.as_bytes().get(start + 1..).filter(|_| self.byte() == Some(b'"'))?;
        self.at = match self.known() {
            Some(known) => known.end,
            None => self.text.len() - after_string(rest).len(),
        };
        self.text.get(start..self.at)
    }

    /// Passes over a value and returns its text.
    pub(in crate::protocol) fn value(&mut self) -> Option<&'a str> {
        let start = self.at;
        match self.byte()? {
            b'"' => return self.string(),
            b'{' | b'[' => self.skip_nested()?,
            _ => {
                let ends = |byte: &u8| matches!(byte, b',' | b']' | b'}' | b' ' | b'\n' | b'\r' | b'\t');
                let rest = self.text.as_bytes().get(start..)?;
                self.at = start + rest.iter().position(ends).unwrap_or(rest.len());
                // An empty text is not a value; without this check an invalid text could be scanned for ever.
                (self.at > start).then_some(())?;
            }
        }
        self.text.get(start..self.at)
    }

    /// Passes over an object or array.
    fn skip_nested(&mut self) -> Option<()> {
        if let Some(known) = self.known() {
            self.at = known.end;
            return Some(());
        }
        let mut depth = 0_usize;
        loop {
            match self.byte()? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::value::RawValue;

    use serde::Deserialize;

    use super::*;

    /// The members that a fully checking parser finds.
    struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

    impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Visitor;
            impl<'de> serde::de::Visitor<'de> for Visitor {
                type Value = Members<'de>;

                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
    struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

    /// Texts of every kind of value, with white space, escapes, duplicate and escaped keys.
    const TEXTS: [&str; 22] = [
        "{}",
        " { } ",
        "[]",
        "[ ]",
        "null",
        "\"{\"",
        "1e5",
        "{\"a\":1}",
        "{\"a\" : \"b\\\"}\" , \"c\" : [ 1 , {\"d\":\"]\"} ] }",
        "{\"a\":1,\"a\":2,\"\\u0061\":3}",
        "{\"\\\\\":{\"x\":[[[]]]},\"\":null}",
        "{\"\\ud83d\\ude00\":true,\"\u{1f600}\":false}",
        "{\"\\ud800\":1}",
        "[1,2.5e-3,\"x\",null,true,{\"a\":[]}]",
        "[\"\\\\\",\"\\\\\\\"\",\"a\\u0022b\"]",
        "\n{\n\t\"key\"\r\n:\n\"value\"\n}\n",
        "{\"a\":{}}",
        "{\"a\":-0.0,\"b\":[[],[1],[{}]]}",
        "[[[[\"deep\"]]]]",
        "{\"text\":\"\u{7f}é漢\"}",
        "[true , false]",
        "{\"a\":\"\"}",
    ];

    #[test]
    fn parts_are_those_that_a_parser_finds() {
        for text in TEXTS {
            let parsed = serde_json::from_str::<Members<'_>>(text).ok().map(|members| members.0);
            let parsed = parsed.map(|all| all.into_iter().map(|(key, raw)| (key, raw.get())).collect::<Vec<_>>());
            assert_eq!(ValuePlace::whole(text).members(), parsed, "{text}");
            let parsed = serde_json::from_str::<Vec<&RawValue>>(text).ok();
            let parsed = parsed.map(|all| all.into_iter().map(RawValue::get).collect::<Vec<_>>());
            assert_eq!(ValuePlace::whole(text).items(), parsed, "{text}");
        }
    }

    #[test]
    fn a_text_that_is_cut_anywhere_ends_the_scan() {
        for text in TEXTS {
            for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
                let cut = text.get(..end).unwrap();
                // Whatever is found lies within the text.
                let place = ValuePlace::whole(cut);
                let found = place.members().map_or(0, |all| all.len()) + place.items().map_or(0, |all| all.len());
                assert!(found <= end, "{cut}");
            }
        }
    }

    #[test]
    fn a_string_ends_after_its_closing_quote_or_with_the_text() {
        for (string, rest) in [(r#""""#, "\"x\""), (r#""a""#, ", 1"), (r#""é\\""#, "\\\""), (r#""a\"\u0022b""#, "")] {
            assert_eq!(string_end(&format!("{string}{rest}")), string.len(), "{string}");
        }
        for open in ["", "\"", "\"é", r#""a\"#, r#""a\""#] {
            assert_eq!(string_end(open), open.len(), "{open}");
        }
    }

    #[test]
    fn of_several_members_the_last_counts() {
        let member = |text, key| ValuePlace::whole(text).member(key);
        assert_eq!(member("{\"a\":1,\"b\":2,\"\\u0061\":3}", "a"), Some("3"));
        assert_eq!(member("{\"a\":1}", "b"), None);
        assert_eq!(member("[1]", "a"), None);
    }
}
