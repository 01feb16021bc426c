#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use super::*;
use proptest::prelude::*;

fn request(text: &'static str) -> Request {
    match Message::parse(text) {
        Ok(Message::Request(request)) => request,
        other => panic!("{other:?}"),
    }
}

#[test]
fn unknown_members_keys_and_numbers_survive_byte_for_byte() {
    let text = r#"{"jsonrpc":"2.0","id":12345678901234567890,"method":"tools/call","params":{"z":1.0,"name":"x","a":[1e400,{"_meta":null}]}}"#;
    let message = Message::parse(text).unwrap();
    assert_eq!(message.to_line(), text);
    let text = r#"{"jsonrpc":"2.0","id":"A","error":{"code":-99999999999,"message":"m","data":[1],"x":2}}"#;
    assert_eq!(Message::parse(text).unwrap().to_line(), text);
}

#[test]
fn ids_come_back_as_they_were_sent() {
    for id in ["1", "1.0", "-3", "\"1\"", "\"\\u0061\"", "1e3"] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        assert_eq!(Message::parse(text.clone()).unwrap().to_line(), text);
    }
    assert_ne!(Id::from_json("1"), Id::from_json("\"1\""));
}

#[test]
fn a_null_result_is_a_result() {
    let message = Message::parse(r#"{"jsonrpc":"2.0","id":1,"result":null}"#).unwrap();
    assert!(
        matches!(message, Message::Response(Response { answer: Answer::Result(json), .. }) if json == Json::null())
    );
}

#[test]
fn an_invalid_message_is_refused_with_its_error_code() {
    let deep = format!(r#"{{"jsonrpc":"2.0","method":"x","params":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    let id = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"x"}}"#, "i".repeat(2000));
    let cases: &[(&str, i64)] = &[
        ("", RpcError::PARSE),
        ("{", RpcError::PARSE),
        ("nonsense", RpcError::PARSE),
        (r#"{"jsonrpc":"2.0","method":"a","method":"b"}"#, RpcError::PARSE),
        (r#"{"jsonrpc":"2.0","method":"a"} trailing"#, RpcError::PARSE),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"a"}]"#, RpcError::INVALID_REQUEST),
        (r#"{"jsonrpc":"1.0","id":1,"method":"a"}"#, RpcError::INVALID_REQUEST),
        (r#"{"id":1,"method":"a"}"#, RpcError::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#, RpcError::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":{},"method":"a"}"#, RpcError::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"method":"a","params":3}"#, RpcError::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1}"#, RpcError::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#, RpcError::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","result":1}"#, RpcError::INVALID_REQUEST),
        (&deep, RpcError::INVALID_REQUEST),
        (&id, RpcError::INVALID_REQUEST),
    ];
    for (text, code) in cases {
        let error = Message::parse((*text).to_owned()).unwrap_err();
        assert_eq!(error.code(), *code, "{text}: {error}");
    }
}

#[test]
fn a_message_that_is_large_outside_its_payload_is_refused() {
    let long = "x".repeat(MAX_ENVELOPE_BYTES);
    for text in [
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{}},"other":"{long}"}}"#),
        format!(r#"{{"jsonrpc":"2.0","method":"{long}","params":{{}}}}"#),
        format!("{}{}", r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#, " ".repeat(MAX_ENVELOPE_BYTES)),
    ] {
        assert_eq!(Message::parse(text).unwrap_err(), MessageError::Envelope);
    }
    let large = format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{}","other":"{}"}}"#, long.repeat(3), "x".repeat(60_000));
    assert!(Message::parse(large).is_ok());
}

#[test]
fn brackets_in_strings_do_not_nest() {
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":["{}\\\"["]}}"#, "[".repeat(500));
    assert!(Message::parse(text).is_ok());
}

#[test]
fn invalid_utf8_is_refused() {
    let mut text = br#"{"jsonrpc":"2.0","id":1,"method":"x","params":["?"]}"#.to_vec();
    let at = text.iter().position(|&b| b == b'?').unwrap();
    text.splice(at..=at, [0xff, 0xfe]);
    assert!(Message::parse(text).is_err());
}

#[test]
fn members_are_replaced_added_and_removed_in_place() {
    let params =
        request(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{ "name" : "a__b" ,"k":[1, 2]}}"#).params.unwrap();
    assert_eq!(params.with("name", &Json::of(&"b")).unwrap().as_str(), r#"{ "name" : "b" ,"k":[1, 2]}"#);
    assert_eq!(params.with("new", &Json::null()).unwrap().as_str(), r#"{ "name" : "a__b" ,"k":[1, 2],"new":null}"#);
    assert_eq!(Json::empty_object().with("a", &Json::null()).unwrap().as_str(), r#"{"a":null}"#);
    assert_eq!(params.without("name").as_str(), r#"{"k":[1, 2]}"#);
    assert_eq!(params.without("k").without("name").as_str(), "{}");
    assert_eq!(Json::of(&[1]).with("a", &Json::null()), None);
}

#[test]
fn several_members_are_edited_at_once() {
    let object = Json::parse(r#"{ "a":1, "b" :2 ,"a":3 }"#).unwrap();
    let [b, missing, a] = object.get_all(["b", "c", "a"]).map(|json| json.map(|json| json.as_str().to_owned()));
    assert_eq!((a.as_deref(), b.as_deref(), missing), (Some("3"), Some("2"), None));
    let (x, y) = (Json::of(&"x"), Json::of(&"y"));
    let edited = |edits: &[(&str, Option<&Json>)]| object.edited(edits).unwrap().as_str().to_owned();
    assert_eq!(edited(&[("b", Some(&x)), ("c", None), ("a", Some(&y))]), r#"{ "a":1, "b" :"x" ,"a":"y" }"#);
    assert_eq!(edited(&[("c", Some(&x)), ("d", Some(&y))]), r#"{ "a":1, "b" :2 ,"a":3,"c":"x","d":"y"}"#);
    assert_eq!(edited(&[("b", Some(&x)), ("a", None), ("c", Some(&y))]), r#"{"b":"x","c":"y"}"#);
    assert_eq!(edited(&[("c", None)]), object.as_str());
    let empty = Json::empty_object().edited(&[("a", Some(&x)), ("b", Some(&y))]).unwrap();
    assert_eq!(empty.as_str(), r#"{"a":"x","b":"y"}"#);
}

#[test]
fn a_message_is_written_without_line_breaks() {
    let message =
        Message::parse("{\n\"jsonrpc\":\"2.0\",\r\n\"id\":1,\"method\":\"m\",\"params\":{\n\"a\":\"\\n\"}}").unwrap();
    let line = message.to_line();
    assert!(!line.contains(&b'\n') && !line.contains(&b'\r'));
    assert!(std::str::from_utf8(&line).unwrap().contains(r#""a":"\n""#));
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(|f| serde_json::json!(f)),
        ".*".prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
            proptest::collection::vec((".*", inner), 0..6)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_valid_envelope_survives(params in json(), id in prop_oneof![any::<i64>().prop_map(|n| n.to_string()), ".*".prop_map(|s| serde_json::to_string(&s).unwrap())]) {
        prop_assume!(id.len() <= MAX_ID_BYTES);
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{params}}}"#);
        prop_assert_eq!(Message::parse(text.clone()).unwrap().to_line(), text);
    }

    #[test]
    fn arbitrary_bytes_never_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Message::parse(bytes);
    }

    #[test]
    fn replacing_a_member_changes_that_member_only(value in json(), key in "[a-z]{1,3}") {
        let object = serde_json::json!({ "before": [1, 2], "abc": "x", "after": { "abc": 3 } });
        let edited = Json::of(&object).with(&key, &Json::of(&value)).unwrap();
        let mut expected = object;
        expected[&key] = value;
        prop_assert_eq!(edited.as_str(), expected.to_string());
    }
}
