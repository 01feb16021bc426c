#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::super::{Json, check_structure};
use super::*;
use crate::protocol::MessageError;

/// Reports whether a parser that reads byte after byte takes the text, and the text is not nested too deep.
fn valid(text: &str) -> bool {
    check_structure(text.as_bytes()).is_ok() && serde_json::from_str::<&RawValue>(text).is_ok()
}

/// Checks the verdict about a text, and that the findings lead to the same parts as a search.
fn check(text: &str) {
    let found = inspect(text);
    assert_eq!(found.is_some(), valid(text), "{text:?}");
    let Some(found) = found else { return };
    assert!(found.long.is_sorted_by_key(|value| value.start));
    for value in &found.long {
        let part = &text[value.start..value.end];
        assert!(part.len() >= LONG_BYTES && valid(part), "{part}");
    }
    let read = serde_json::from_str::<serde_json::Value>(text);
    let unpaired = read.is_err_and(|error| error.to_string().contains("hex escape"));
    assert!(!(found.paired && unpaired), "{text:?}");
    same_parts(&Json::parse(text.to_owned()).unwrap());
}

/// Compares the parts of a value with those of the same text with nothing known about it.
fn same_parts(json: &Json) {
    let plain = Json::from_valid(json.as_str().to_owned());
    assert_eq!(json.members(), plain.members());
    assert_eq!(json.items(), plain.items());
    let parts = json.members().into_iter().flatten().map(|(_, part)| part);
    for part in parts.chain(json.items().into_iter().flatten()) {
        same_parts(&part);
    }
    if let Some(string) = json.long_string(0) {
        assert_eq!(string.bytes, json.as_str().len());
        if let Ok(text) = serde_json::from_str::<String>(json.as_str()) {
            assert_eq!(string.characters, text.chars().count());
        }
    }
}

#[test]
fn a_text_is_valid_if_a_parser_says_so() {
    let values = [
        "null",
        "true",
        "false",
        "nul",
        "truex",
        "0",
        "-0",
        "01",
        "-",
        "1.",
        "1.5",
        ".5",
        "1e5",
        "1e",
        "1E+5",
        "1e-",
        "1e999",
        "+1",
        "\"x\"",
        "\"x",
        "x\"",
        "[]",
        "[1]",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[",
        "]",
        "{}",
        "{\"a\":1}",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "{\"a\":}",
        "{a:1}",
        "{1:1}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":1]",
        "[1}",
        "{,}",
        "",
        "\u{feff}1",
        "\"\u{0}\"",
        "\"\t\"",
        "\"\\u12\"",
        "\"\\ud800\"",
        "\u{b}1",
        "\u{c}1",
        "é",
        "1 1",
        "NaN",
    ];
    for value in values {
        for around in ["$", " $\n", "[$]", "{\"k\":$}", "{\"k\" : [ $ , $ ] }", "[[$],{\"\":$}]"] {
            check(&around.replace('$', value));
        }
    }
}

#[test]
fn nesting_is_limited_to_what_parsers_survive() {
    for levels in [MAX_NESTING - 1, MAX_NESTING, MAX_NESTING + 1, 10 * MAX_NESTING] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":", "}]")] {
            let levels = levels / open.matches(['[', '{']).count();
            check(&format!("{}1{}", open.repeat(levels), close.repeat(levels)));
        }
    }
}

#[test]
fn the_values_of_a_message_are_counted_but_not_what_stands_in_texts() {
    let list = |commas: usize| format!("[{}0]", "0,".repeat(commas));
    let object = |commas: usize| format!("{{{}\"\":0}}", "\"\":0,".repeat(commas));
    for text in
        [list(MAX_VALUES), object(MAX_VALUES), format!("[{},{}]", list(MAX_VALUES / 2), object(MAX_VALUES / 2 - 1))]
    {
        assert!(Json::parse(text).is_ok());
    }
    assert!(Json::parse(format!("[\"{}\"]", ",".repeat(MAX_VALUES + 1))).is_ok());
    for text in
        [list(MAX_VALUES + 1), object(MAX_VALUES + 1), format!("[{},{}]", list(MAX_VALUES / 2), object(MAX_VALUES / 2))]
    {
        assert_eq!(Json::parse(text), Err(MessageError::TooManyValues));
    }
}

#[test]
fn long_values_are_found_and_edits_keep_what_is_known() {
    let long = "x\\n\\u00e9\u{e9}".repeat(200);
    let text = format!(r#" {{"a":"{long}","b":{{"c":["{long}",1,"{long}"],"d":2}} , "e":[3,"{long}"]}} "#);
    check(&text);
    let json = Json::parse(text).unwrap();
    let expected = |value: serde_json::Value| serde_json::to_string(&value).unwrap();
    for (key, value) in [("d", "4"), ("a", "5"), ("b", "[]"), ("e", "{}")] {
        let value = Json::parse(value).unwrap();
        let edited = json.with(key, &value).unwrap();
        same_parts(&edited);
        let mut same: serde_json::Value = json.read().unwrap();
        same.as_object_mut().unwrap().insert(key.to_owned(), value.read().unwrap());
        assert_eq!(expected(edited.read().unwrap()), expected(same));
        let without = edited.without("a");
        same_parts(&without);
        assert!(without.get("a").is_none() && without.get("b").is_some());
    }
    let inner = json.get("b").unwrap().with("d", &Json::of(&"new")).unwrap();
    same_parts(&inner);
    let strings = inner.get("c").unwrap();
    assert!(strings.long_string(1).is_some(), "what is not changed stays known");
}

fn json() -> impl Strategy<Value = String> {
    let string = prop_oneof![
        "\"[a-z\\[\\]{}:,é]{0,8}\"",
        (
            0..900usize,
            prop_oneof![Just("x"), Just("\\\\"), Just("\\\""), Just("é"), Just("\\ud83d\\ude00"), Just("\\ud83d")]
        )
            .prop_map(|(length, part)| format!("\"{}\"", part.repeat(length))),
    ];
    let leaf =
        prop_oneof![Just("null".to_owned()), Just("-1.5e3".to_owned()), Just("1e999".to_owned()), string.clone()];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        let space = prop_oneof![Just(""), Just(" "), Just("\n\t")];
        let member = (prop_oneof![Just("\"k\"".to_owned()), string.clone()], space.clone(), inner.clone())
            .prop_map(|(key, space, value)| format!("{key}{space}:{space}{value}{space}"));
        prop_oneof![
            proptest::collection::vec(inner, 0..6).prop_map(|items| format!("[{}]", items.join(" ,"))),
            proptest::collection::vec(member, 0..6).prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    })
}

proptest! {
    #[test]
    fn any_json_is_taken_and_its_parts_are_found(text in json()) {
        check(&text);
    }

    #[test]
    fn damaged_json_is_judged_as_a_parser_judges_it(text in json(), at in any::<prop::sample::Index>(), with in "[\\[\\]{}:,\"\\\\ 0-9a-e]?") {
        let at = text.floor_char_boundary(at.index(text.len().max(1)));
        let end = text.ceil_char_boundary((at + 1).min(text.len()));
        check(&format!("{}{with}{}", &text[..at], &text[end..]));
    }
}
