//! Rewrites the strings within a result and leaves every other byte as it is.

use crate::protocol::Json;

/// A string in a result.
pub(super) struct PlacedString<'a> {
    /// What the string says. Half of a surrogate pair is a replacement character.
    pub(super) text: &'a str,
    /// True if it is the address of an icon, which clients fetch.
    pub(super) is_icon: bool,
}

/// Returns a value in which `rewrite` has replaced strings; `None` if it replaced none. Keys are no strings of it.
pub(super) fn rewritten(json: &Json, mut rewrite: impl FnMut(&PlacedString<'_>) -> Option<String>) -> Option<Json> {
    let text = json.as_str();
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    // The last key, and for each list and object around this place whether it is a part of `icons`.
    let (mut key, mut in_icons) = ("", Vec::new());
    while let Some(b) = text.as_bytes().get(at) {
        match b {
            b'{' | b'[' => in_icons.push(in_icons.last() == Some(&true) || key == "icons"),
            b'}' | b']' => drop(in_icons.pop()),
            b'"' => {
                let end = at + literal_bytes(text.get(at..)?);
                let literal = text.get(at..end)?;
                if text.get(end..)?.trim_ascii_start().starts_with(':') {
                    key = literal.get(1..literal.len() - 1)?;
                } else {
                    let is_icon = key == "src" && in_icons.last() == Some(&true);
                    if let Some(new) = rewrite(&PlacedString { text: &decoded(literal), is_icon }) {
                        out.push_str(text.get(copied..at)?);
                        out.push_str(&serde_json::to_string(&new).ok()?);
                        copied = end;
                    }
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    if copied == 0 {
        return None;
    }
    out.push_str(text.get(copied..)?);
    Json::parse(out).ok()
}

/// Returns the length of the string at the beginning, with its quotation marks.
fn literal_bytes(text: &str) -> usize {
    let mut escaped = false;
    let end = text.bytes().skip(1).position(|b| {
        let ends = b == b'"' && !escaped;
        escaped = b == b'\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |end| end + 2)
}

fn decoded(literal: &str) -> String {
    serde_json::from_str(literal).unwrap_or_else(|_| {
        let (mut whole, mut rest) = (String::with_capacity(literal.len()), literal);
        while let Some(at) = rest.find('\\') {
            let (before, escape) = rest.split_at(at);
            whole.push_str(before);
            let is_surrogate = escape.get(..4).is_some_and(|start| {
                start.starts_with("\\u")
                    && start.get(2..3).is_some_and(|digit| digit.eq_ignore_ascii_case("d"))
                    && start.get(3..).is_some_and(|digit| {
                        digit.bytes().all(|b| matches!(b, b'8' | b'9' | b'a'..=b'f' | b'A'..=b'F'))
                    })
            });
            let length = if is_surrogate { 6 } else { 2 };
            whole.push_str(if is_surrogate { "\\ufffd" } else { escape.get(..2).unwrap_or_default() });
            rest = escape.get(length..).unwrap_or_default();
        }
        whole.push_str(rest);
        serde_json::from_str(&whole).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn only_strings_that_are_replaced_change_and_keys_never_do() {
        let json =
            Json::parse(r#"{ "a" : "x", "x":["x\"\\", {"x" :1.50}], "big":9007199254740993,"y":"\u0078" }"#.to_owned())
                .unwrap();
        let new = rewritten(&json, |string| (string.text == "x").then(|| "\"".to_owned())).unwrap();
        assert_eq!(new.as_str(), r#"{ "a" : "\"", "x":["x\"\\", {"x" :1.50}], "big":9007199254740993,"y":"\"" }"#);
        assert!(rewritten(&json, |_| None).is_none());
    }

    #[test]
    fn a_string_that_no_text_can_hold_is_read_as_far_as_it_can_be() {
        let json = Json::parse(r#"["\ud800](\uDFFFa\\ud800\n\u0041"]"#.to_owned()).unwrap();
        let mut read = String::new();
        rewritten(&json, |string| {
            read = string.text.to_owned();
            None
        });
        assert_eq!(read, "\u{fffd}](\u{fffd}a\\ud800\nA");
    }

    #[test]
    fn the_address_of_an_icon_is_told_from_others() {
        let json =
            Json::parse(r#"{"src":"1","icons":[{"src":"2","sizes":["3"]},{"src":"4"}],"x":{"src":"5"}}"#.to_owned())
                .unwrap();
        let mut icons = String::new();
        rewritten(&json, |string| {
            if string.is_icon {
                icons.push_str(string.text);
            }
            None
        });
        assert_eq!(icons, "24");
    }
}
