#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use super::*;

/// Texts that this parser and serde_json must both accept, with the same value, or both refuse.
const SAME: &[&str] = &[
    "{}",
    "[]",
    "\"\"",
    "0",
    "-0",
    "1.5e-3",
    "1E+2",
    "01",
    "1.",
    ".5",
    "-",
    "+1",
    "1e",
    "nul",
    "null",
    "nulll",
    "true",
    "tru",
    "[1,]",
    "[,1]",
    "{\"a\":1,}",
    "{a:1}",
    "{\"a\" 1}",
    "{\"a\":}",
    "[1 2]",
    " [ 1 , { \"a\" : [ ] } ] \n",
    "\"\\u00e9\\n\\/\\\"\"",
    "\"\\ud83d\\ude00\"",
    "\"\\ud83d\"",
    "\"\\ude00\"",
    "\"\\ud83dx\"",
    "\"\\ud83d\\u0041\"",
    "\"\\ud83d\\n\"",
    "\"\\x\"",
    "\"\\u12g4\"",
    "\"\\u12",
    "\"a\nb\"",
    "\"a\u{7f}é😀\"",
    "\"open",
    "[",
    "{",
    "",
    " ",
    "1 1",
    "\"a\"\"b\"",
    "[\"\\\\\"]",
    "\u{feff}1",
    "[1]\u{a0}",
    "'a'",
    "{\"a\":{\"b\":[null,false,\"c\"]}}",
    "-1.0E-7",
    "\"\\u0000\"",
];

#[test]
fn it_reads_what_serde_json_reads() {
    for text in SAME {
        let theirs: Result<serde_json::Value, _> = serde_json::from_str(text);
        let ours = Json::parse(text);
        assert_eq!(ours.is_ok(), theirs.is_ok(), "{text:?}: {ours:?} against {theirs:?}");
        if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
            assert_eq!(plain(&ours), theirs, "{text:?}");
            assert_eq!(&text[ours.span.clone()], text.trim(), "{text:?}");
        }
    }
}

#[test]
fn a_key_given_twice_is_an_error_however_it_is_spelled() {
    assert!(Json::parse(r#"{"a":{"path":1,"\u0070ath":2}}"#).unwrap_err().to_string().contains("same key twice"));
    assert!(Json::parse(r#"{"a":1,"b":{"a":2}}"#).is_ok());
}

#[test]
fn numbers_keep_their_spelling() {
    let json = Json::parse("[9007199254740993, 1.10, 1e2]").unwrap();
    let Value::Array(items) = json.value else { panic!("an array") };
    let spelled: Vec<_> = items.iter().map(|item| item.value.clone()).collect();
    assert_eq!(spelled, [Value::Number("9007199254740993"), Value::Number("1.10"), Value::Number("1e2")]);
}

#[test]
fn nesting_is_bounded() {
    let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    assert!(Json::parse(&deep(MAX_NESTING)).is_ok());
    assert_eq!(Json::parse(&deep(MAX_NESTING + 1)).unwrap_err().what, "nested too deep");
}

#[test]
fn what_is_quoted_reads_back() {
    let text = "a\"b\\c\n\r\t\u{0}\u{1f}\u{7f}é😀/";
    assert_eq!(Json::parse(&quote(text)).unwrap().as_str(), Some(text));
}

fn plain(json: &Json<'_>) -> serde_json::Value {
    match &json.value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(b) => (*b).into(),
        Value::Number(text) => serde_json::from_str(text).unwrap(),
        Value::String(text) => text.as_ref().into(),
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(members) => {
            serde_json::Value::Object(members.iter().map(|(k, v)| (k.to_string(), plain(v))).collect())
        }
    }
}
