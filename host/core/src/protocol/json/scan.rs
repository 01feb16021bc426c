//! Finds the parts of JSON text that is known to be valid, several times faster than a parser that checks it again.
//!
//! Strings are passed over by a vectorised search for their end, everything else byte by byte. On text that is not
//! valid the result is unspecified, but never a panic.

use std::borrow::Cow;

/// A member of an object: the key, decoded, and the text of the value.
pub(in crate::protocol) type Member<'a> = (Cow<'a, str>, &'a str);

/// Returns the members of an object in order, or `None` for any other value, and for a key with an unpaired surrogate.
pub(in crate::protocol) fn members(text: &str) -> Option<Vec<Member<'_>>> {
    let mut members = Vec::new();
    each_member(text, |member| members.push(member))?;
    Some(members)
}

/// Returns the value of the last member with this key, as [`members`] would.
pub(super) fn member<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut found = None;
    each_member(text, |(name, value)| {
        if name == key {
            found = Some(value);
        }
    })?;
    found
}

fn each_member<'a>(text: &'a str, mut each: impl FnMut(Member<'a>)) -> Option<()> {
    let mut scanner = Scanner { text, at: 0 };
    scanner.enter(b'{')?;
    while !scanner.leaves(b'}')? {
        let key = decoded(scanner.string()?)?;
        scanner.enter(b':')?;
        scanner.skip_space();
        each((key, scanner.value()?));
    }
    Some(())
}

/// Returns the items of an array in order, or `None` for any other value.
pub(in crate::protocol) fn items(text: &str) -> Option<Vec<&str>> {
    let mut scanner = Scanner { text, at: 0 };
    scanner.enter(b'[')?;
    let mut items = Vec::new();
    while !scanner.leaves(b']')? {
        items.push(scanner.value()?);
    }
    Some(items)
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

/// Returns what a string with its quotes stands for.
fn decoded(quoted: &str) -> Option<Cow<'_, str>> {
    match quoted.contains('\\') {
        true => serde_json::from_str(quoted).ok().map(Cow::Owned),
        false => quoted.get(1..quoted.len().checked_sub(1)?).map(Cow::Borrowed),
    }
}

/// A position in a text.
struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.byte(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    /// Passes over white space and this byte.
    fn enter(&mut self, byte: u8) -> Option<()> {
        self.skip_space();
        (self.byte()? == byte).then(|| self.at += 1)
    }

    /// Passes over what separates two parts, and reports whether the end of the whole was passed instead.
    fn leaves(&mut self, end: u8) -> Option<bool> {
        self.skip_space();
        let byte = self.byte()?;
        if byte == end || byte == b',' {
            self.at += 1;
            self.skip_space();
        }
        Some(byte == end)
    }

    /// Passes over a string and returns it with its quotes.
    fn string(&mut self) -> Option<&'a str> {
        let start = self.at;
        let rest = self.text.as_bytes().get(start + 1..).filter(|_| self.byte() == Some(b'"'))?;
        self.at = self.text.len() - after_string(rest).len();
        self.text.get(start..self.at)
    }

    /// Passes over a value and returns its text.
    fn value(&mut self) -> Option<&'a str> {
        let start = self.at;
        match self.byte()? {
            b'"' => return self.string(),
            b'{' | b'[' => self.skip_nested()?,
            _ => {
                let ends = |byte: &u8| matches!(byte, b',' | b']' | b'}' | b' ' | b'\n' | b'\r' | b'\t');
                let rest = self.text.as_bytes().get(start..)?;
                self.at = start + rest.iter().position(ends).unwrap_or(rest.len());
                // Nothing is no value; without this a text that is not valid could be scanned for ever.
                (self.at > start).then_some(())?;
            }
        }
        self.text.get(start..self.at)
    }

    /// Passes over an object or array.
    fn skip_nested(&mut self) -> Option<()> {
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

    /// What a parser that checks everything finds.
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
            assert_eq!(members(text), parsed, "{text}");
            let parsed = serde_json::from_str::<Vec<&RawValue>>(text).ok();
            let parsed = parsed.map(|all| all.into_iter().map(RawValue::get).collect::<Vec<_>>());
            assert_eq!(items(text), parsed, "{text}");
        }
    }

    #[test]
    fn a_text_that_is_cut_anywhere_ends_the_scan() {
        for text in TEXTS {
            for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
                let cut = text.get(..end).unwrap();
                // Whatever is found lies within the text.
                let found = members(cut).map_or(0, |all| all.len()) + items(cut).map_or(0, |all| all.len());
                assert!(found <= end, "{cut}");
            }
        }
    }

    #[test]
    fn of_several_members_the_last_counts() {
        assert_eq!(member("{\"a\":1,\"b\":2,\"\\u0061\":3}", "a"), Some("3"));
        assert_eq!(member("{\"a\":1}", "b"), None);
        assert_eq!(member("[1]", "a"), None);
    }
}
