//! Text from a source, a client or a file, made safe to show to a person: nothing in it can move the cursor, colour a
//! line, reverse its direction or hide.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Reports whether a character acts on the terminal or on its neighbours, or cannot be seen: C0 and C1 controls,
/// bidirectional marks, zero-width and tag characters, line separators, letters that are blank. U+FE0F, which turns a
/// symbol into an emoji, is not among them.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0e}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns the text with every hidden character written as `\u{…}`, and newlines and tabs as `\n` and `\t`.
#[must_use]
pub fn escape_hidden(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            // Writing to a string cannot fail.
            c if is_hidden(c) => write!(shown, "\\u{{{:x}}}", u32::from(c)).unwrap_or_default(),
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Returns a text as one word of a shell's command line, to be copied: in single quotes, whatever it holds.
#[must_use]
pub fn shell_word(text: &str) -> String {
    format!("'{}'", escape_hidden(text).replace('\'', r"'\''"))
}

/// Returns a text as [`shell_word`] does, but without quotes if no shell would read the text in another way.
#[must_use]
pub fn plain_shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=+,%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) { text.to_owned() } else { shell_word(text) }
}

/// Returns a text as a string of TOML, to be copied into a configuration: in double quotes, whatever it holds.
#[must_use]
pub fn toml_string(text: &str) -> String {
    let mut string = String::with_capacity(text.len() + 2);
    string.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => string.extend(['\\', c]),
            '\n' => string.push_str("\\n"),
            '\t' => string.push_str("\\t"),
            // Writing to a string cannot fail.
            c if is_hidden(c) => write!(string, "\\U{:08X}", u32::from(c)).unwrap_or_default(),
            c => string.push(c),
        }
    }
    string.push('"');
    string
}

/// Returns JSON text with every hidden character escaped as `\uXXXX`, so that its value stays the same. White space
/// between values stays, except for carriage returns, which could overwrite a line on the terminal: they become spaces.
#[must_use]
pub fn escape_hidden_json(json: &str) -> Cow<'_, str> {
    let acts = |c: char| is_hidden(c) && !matches!(c, '\n' | '\t');
    if !json.contains(acts) {
        return Cow::Borrowed(json);
    }
    let mut shown = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match c {
            // A JSON string cannot contain a raw carriage return, so this one is white space.
            '\r' => shown.push(' '),
            c if acts(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a string cannot fail.
                    write!(shown, "\\u{unit:04x}").unwrap_or_default();
                }
            }
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_a_terminal_or_a_reader_would_be_fooled_by_is_written_out() {
        assert_eq!(escape_hidden("\u{1b}]8;;http://evil\u{7}x"), "\\u{1b}]8;;http://evil\\u{7}x");
        assert_eq!(escape_hidden("a\u{202e}b\u{200b}c\u{e0041}\u{9b}2J"), "a\\u{202e}b\\u{200b}c\\u{e0041}\\u{9b}2J");
        assert_eq!(escape_hidden("two\nlines"), "two\\nlines");
    }

    #[test]
    fn a_string_of_toml_is_one_value_whatever_it_holds() {
        for text in
            ["/srv/docs", "a\"], network = [\"evil:443", "back\\slash\\", "two\nlines\tand\u{202e}more", "", "é'"]
        {
            let line = format!("read = [{}]", toml_string(text));
            let read: toml::Table = toml::from_str(&line).unwrap();
            assert_eq!(read.get("read"), Some(&toml::Value::from(vec![text])), "{line}");
            assert_eq!(line.lines().count(), 1);
        }
    }

    #[test]
    fn a_word_of_a_command_ends_where_the_text_ends() {
        assert_eq!(shell_word("/srv/it's; rm -r ~"), r"'/srv/it'\''s; rm -r ~'");
        assert_eq!(shell_word("/srv/a"), "'/srv/a'");
        assert_eq!(plain_shell_word("/srv/a-b_c.d:1@2"), "/srv/a-b_c.d:1@2");
        for text in ["", "it's", "a b", "$(id)", "~", "a\nb", "*", "#", "!", "é", "`id`", "a;b", "\\"] {
            assert_eq!(plain_shell_word(text), shell_word(text));
        }
    }

    #[test]
    fn json_keeps_its_value_and_shows_what_hides_in_it() {
        let value = serde_json::json!({ "a\u{202e}": "x\u{9b}2J\u{200b}\u{e0041}\u{7f} naïve", "b": 1.0 });
        let text = serde_json::to_string_pretty(&value).unwrap_or_default();
        let shown = escape_hidden_json(&text);
        assert!(!shown.contains(|c: char| is_hidden(c) && c != '\n'), "{shown}");
        assert!(shown.contains("\\u202e") && shown.contains("\\udb40\\udc41") && shown.contains("naïve"), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).ok(), Some(value));
        assert_eq!(escape_hidden_json("{\"a\":1,\r\"b\":2}"), "{\"a\":1, \"b\":2}");
    }

    #[test]
    fn ordinary_text_of_any_script_stays() {
        let text = "naïve — 日本語 ✔\u{fe0f} `code`";
        assert!(matches!(escape_hidden(text), Cow::Borrowed(same) if same == text));
    }
}
