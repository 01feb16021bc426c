//! A quick check that a text is canonical JSON, for the texts that nearly all records have. Texts that it does not
//! recognise are judged by the parser.

/// The deepest nesting that is recognised. Records of calls have some ten levels.
const MAX_DEPTH: usize = 32;

/// Reports whether a text is canonical JSON, if its keys are plain ASCII and its strings have no escapes but the short
/// ones. `false` does not mean that the text is not canonical.
pub(super) fn is_canonical(text: &str) -> bool {
    value(text.as_bytes(), 0).is_some_and(<[u8]>::is_empty)
}

/// Passes over a value, and returns what follows it.
fn value(text: &[u8], depth: usize) -> Option<&[u8]> {
    match text {
        _ if depth > MAX_DEPTH => None,
        [b'{', rest @ ..] => object(rest, depth),
        [b'[', rest @ ..] => array(rest, depth),
        [b'"', rest @ ..] => string(rest),
        [b't', b'r', b'u', b'e', rest @ ..] | [b'n', b'u', b'l', b'l', rest @ ..] => Some(rest),
        [b'f', b'a', b'l', b's', b'e', rest @ ..] => Some(rest),
        number => self::number(number),
    }
}

/// Passes over the members of an object, whose keys must be in order.
fn object(text: &[u8], depth: usize) -> Option<&[u8]> {
    if let [b'}', rest @ ..] = text {
        return Some(rest);
    }
    let (mut text, mut before) = (text, None);
    loop {
        let [b'"', key @ ..] = text else { return None };
        let end = memchr::memchr(b'"', key)?;
        let (key, rest) = key.split_at_checked(end)?;
        // The order of bytes is the order of UTF-16 code units only in ASCII.
        let is_plain = key.iter().all(|byte| matches!(byte, b' '..=b'~') && *byte != b'\\');
        if !is_plain || before.is_some_and(|before| before >= key) {
            return None;
        }
        before = Some(key);
        let [b'"', b':', rest @ ..] = rest else { return None };
        match value(rest, depth + 1)? {
            [b',', rest @ ..] => text = rest,
            [b'}', rest @ ..] => return Some(rest),
            _ => return None,
        }
    }
}

/// Passes over the items of an array.
fn array(text: &[u8], depth: usize) -> Option<&[u8]> {
    if let [b']', rest @ ..] = text {
        return Some(rest);
    }
    let mut text = text;
    loop {
        match value(text, depth + 1)? {
            [b',', rest @ ..] => text = rest,
            [b']', rest @ ..] => return Some(rest),
            _ => return None,
        }
    }
}

/// Passes over the rest of a string after its first quote.
fn string(mut text: &[u8]) -> Option<&[u8]> {
    loop {
        let end = memchr::memchr2(b'"', b'\\', text)?;
        let (plain, rest) = text.split_at_checked(end)?;
        if plain.iter().any(|byte| *byte < b' ') {
            return None;
        }
        match rest {
            [b'"', rest @ ..] => return Some(rest),
            [b'\\', b'"' | b'\\' | b'n' | b't' | b'r' | b'b' | b'f', rest @ ..] => text = rest,
            _ => return None,
        }
    }
}

/// Passes over a whole number without a sign; others are left to the parser.
fn number(text: &[u8]) -> Option<&[u8]> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at_checked(digits)?;
    let is_plain = matches!(number, [b'0'] | [b'1'..=b'9', ..]) && !matches!(rest, [b'.' | b'e' | b'E', ..]);
    is_plain.then_some(rest)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use portcullis_core::protocol::{Json, canonical};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_records_contain_is_recognised() {
        for text in [
            r#"{"a":{},"b":[],"c":[1,0,"x\"\\\n",{"d":null}],"d":true,"e":false}"#,
            r#"{"at":1764000000000,"body":{"tool":"ü"},"v":1}"#,
            r#""""#,
        ] {
            assert!(is_canonical(text), "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 4000, ..ProptestConfig::default() })]

        /// Texts that are nearly JSON: any text that is recognised is canonical to the parser, too.
        #[test]
        fn nothing_is_recognised_that_the_parser_does_not_call_canonical(
            parts in proptest::collection::vec(
                proptest::sample::select(vec![
                    "{", "}", "[", "]", "\"", ":", ",", "\"a\":", "\"b\":", "\"\"", "\"a\\n\"", "\\", "\\/", "\\u0041", "\\u001f",
                    "0", "1", "01", "-", "-0", "1.0", "1e3", "true", "false", "null", " ", "\n", "\u{7f}", "é", "\"é\":", "\"\u{1}\"",
                    "{\"a\":1,\"b\":2}", "{\"b\":1,\"a\":2}", "{\"a\":1,\"a\":2}", "[1,2]", "[[]]", "{\"\":0}",
                ]),
                1..8,
            )
        ) {
            let text = parts.concat();
            if is_canonical(&text) {
                let json = Json::parse(text.clone());
                prop_assert!(json.is_ok_and(|json| canonical(&json).as_deref() == Ok(&text)), "{text:?}");
            }
        }
    }
}
