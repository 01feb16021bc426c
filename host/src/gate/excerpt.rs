//! Shortens texts and JSON for people. Each omission is always marked in its place.

use std::borrow::Cow;

use serde_json::Value;

use crate::protocol::string_end;

/// Returns at most about `max` characters of a text: its two ends, and how much is missing between them.
pub(super) fn excerpt(text: &str, max: usize) -> Cow<'_, str> {
    let count = text.chars().count();
    if count <= max {
        return Cow::Borrowed(text);
    }
    let half = max / 2;
    let end_of = |characters: usize| text.char_indices().nth(characters).map_or(text.len(), |(at, _)| at);
    let head = text.get(..end_of(half)).unwrap_or_default();
    let tail = text.get(end_of(count - half)..).unwrap_or_default();
    Cow::Owned(format!("{head} …({} characters left out)… {tail}", count - half * 2))
}

/// Returns JSON text without white space, in which each string has at most about `max` characters, and whether
/// something was left out. Strings are cut one by one, in their middle, so that none of them can push another out of
/// sight. It works on the text, as a tree takes many times the memory.
pub(super) fn shorten_strings(json: &str, max: usize) -> (String, bool) {
    let (mut short, mut is_cut) = (String::new(), false);
    let mut rest = json;
    while let Some(start) = rest.find('"') {
        let (before, from_quote) = rest.split_at(start);
        short.extend(before.split_ascii_whitespace());
        let (string, tail) = from_quote.split_at(string_end(from_quote));
        // An escape for half of a surrogate pair has no text, and is shown as spelled.
        let decoded = serde_json::from_str::<String>(string);
        let text = decoded.as_deref().unwrap_or(string);
        let shown = excerpt(text, max);
        is_cut |= matches!(shown, Cow::Owned(_));
        match (&shown, &decoded) {
            (Cow::Borrowed(_), Err(_)) => short.push_str(string),
            _ => short.push_str(&Value::from(&*shown).to_string()),
        }
        rest = tail;
    }
    short.extend(rest.split_ascii_whitespace());
    (short, is_cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_strings_are_cut_in_their_middle_and_everything_else_stays() {
        let long = "é".repeat(50);
        let json = format!("{{ \"a\" : 1e999,\n\"{long}\": [\"\\u0072m \\\"\\\\\", \"{long}\"], \"b\": \"\\ud800\" }}");
        let cut = format!("{} …(40 characters left out)… {}", "é".repeat(5), "é".repeat(5));
        let expected = format!(r#"{{"a":1e999,"{cut}":["rm \"\\","{cut}"],"b":"\ud800"}}"#);
        assert_eq!(shorten_strings(&json, 10), (expected, true));
        assert_eq!(shorten_strings(" [ 1 , \"x\" ] ", 10), ("[1,\"x\"]".to_owned(), false));
        assert_eq!(shorten_strings("", 10), (String::new(), false));
    }
}
