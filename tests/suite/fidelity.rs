//! Tests that what the broker does not rewrite passes byte for byte in both directions. The messages are random, and
//! written as no JSON library would write them.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;

use crate::agent::{Agent, ERAS, Era};
use crate::test_dir::{DEADLINE, TestDir};

const CONFIG: &str = r#"
[profiles.default]
approve = "never"
[sources.far]
command = ["@source@", "mirror"]
context = ["vendor.example/f"]
"#;

#[test]
fn messages_that_are_not_rewritten_pass_byte_for_byte_in_both_directions() {
    let dir = TestDir::new(CONFIG);
    let mut agent = Agent::of(dir.command(&["serve", "--stdio"]), Era::Legacy, json!({}));
    agent.list();
    let agent = RefCell::new(agent);
    let requests = prop_oneof![
        (object(), space()).prop_map(|(arguments, space)| {
            let params = |name| format!(r#"{{{space}"name":{space}"{name}","arguments" :{arguments}{space}}}"#);
            ("tools/call", params("far__mirror"), params("mirror"))
        }),
        object().prop_map(|params| ("vendor/object", params.clone(), params)),
        prop::collection::vec(value(), 0..4).prop_map(|items| {
            let params = format!("[{}]", items.join(" ,"));
            ("vendor/positional", params.clone(), params)
        }),
        object().prop_map(|params| ("vendor/notice", params.clone(), params)),
    ];
    let mut runner = TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
    runner
        .run(&(requests, any::<bool>()), |((method, sent, received), fails)| {
            if method == "vendor/notice" {
                let mut agent = agent.borrow_mut();
                agent.running.write(&format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{sent}}}"#));
                let line = agent.running.out.recv_timeout(DEADLINE).expect("the broker says nothing");
                prop_assert_eq!(line, format!(r#"{{"jsonrpc":"2.0","method":"vendor/echo","params":{received}}}"#));
                return Ok(());
            }
            let method = if fails && method != "tools/call" { format!("{method}/fails") } else { method.to_owned() };
            let mut agent = agent.borrow_mut();
            let id = agent.send_raw(&method, &sent);
            let line = loop {
                let line = agent.running.out.recv_timeout(DEADLINE).expect("the broker says nothing");
                if !line.contains(r#""method":"#) || line.contains(r#""result""#) || line.contains(r#""error""#) {
                    break line;
                }
            };
            let answer = if method.ends_with("/fails") {
                format!(r#""error":{{"code": -1234567890123, "message":"no","data":{received}}}"#)
            } else {
                let meta = if method == "tools/call" { r#""_meta":{"vendor.example/e":5.50},"# } else { "" };
                format!(r#""result":{{ "content":[],{meta}"echo" : {received} }}"#)
            };
            prop_assert_eq!(line, format!(r#"{{"jsonrpc":"2.0","id":{id},{answer}}}"#));
            Ok(())
        })
        .unwrap();
    agent.into_inner().leave();
}

#[test]
fn unknown_members_beside_the_arguments_reach_no_source_and_are_recorded() {
    let dir = TestDir::new(CONFIG);
    for era in ERAS {
        let mut agent = Agent::of(dir.command(&["serve", "--stdio"]), era, json!({}));
        let smuggled = json!({ "name": "far__mirror", "arguments": { "a": 1 }, "vendor": "smuggled", "task.x": 1 });
        let called = agent.request("tools/call", smuggled);
        let echo = called["result"]["echo"].as_object().unwrap();
        assert!(!called.to_string().contains("smuggled") && !echo.contains_key("task.x"), "{era:?}: {called}");
        assert_eq!((&echo["name"], &echo["arguments"]), (&json!("mirror"), &json!({ "a": 1 })), "{era:?}: {called}");
        let smuggled = json!({ "name": "far__mirror", "who": "smuggled" });
        let got = agent.request("prompts/get", smuggled);
        assert!(!got.to_string().contains("smuggled"), "{era:?}: {got}");
        agent.leave();
        let dropped =
            |at: usize| dir.records_of("call.intent").into_iter().rev().nth(at).unwrap()["body"]["dropped"].clone();
        assert_eq!(dropped(0), json!({ "count": 1, "members": ["who"] }));
        assert_eq!(dropped(1), json!({ "count": 2, "members": ["vendor", "task.x"] }));
    }
}

#[test]
fn arguments_that_are_null_reach_the_source_as_they_are() {
    let dir = TestDir::new(CONFIG);
    for era in ERAS {
        let mut agent = Agent::of(dir.command(&["serve", "--stdio"]), era, json!({}));
        let called = agent.request("tools/call", json!({ "name": "far__mirror", "arguments": null }));
        let echo = called["result"]["echo"].as_object().unwrap();
        assert_eq!(echo.get("arguments"), Some(&json!(null)), "{era:?}: {called}");
        agent.leave();
    }
}

#[test]
fn icons_titles_and_meta_pass_unchanged_in_both_eras() {
    let dir = TestDir::new(CONFIG);
    for era in ERAS {
        let mut agent = Agent::of(dir.command(&["serve", "--stdio"]), era, json!({}));
        let mut line = |method: &str, params: serde_json::Value| {
            agent.send(method, params);
            agent.running.out.recv_timeout(DEADLINE).expect("the broker says nothing")
        };
        for (method, definition) in [
            (
                "tools/list",
                r#"{ "name":"far__mirror","title":"Spiegel \u2728","icons":[{"src":"data:image/png;base64,AA==","mimeType":"image/png","sizes":["48x48","any"],"theme":"dark"}],"inputSchema":{"type":"object","x-n":1.0e2},"outputSchema":{"type":"object"},"annotations":{"title":"M","x-hint":1},"execution":{"taskSupport":"forbidden"},"_meta":{"vendor.example/a":1.50},"vendor":[1.0]}"#,
            ),
            (
                "prompts/list",
                r#"{ "name":"far__mirror","title":"Prompt","icons":[{"src":"https://icons.example/p.svg"}],"arguments":[{"name":"a","title":"A","x":1e0}],"_meta":{"vendor.example/b":2.50}}"#,
            ),
            (
                "resources/list",
                r#"{ "uri":"portcullis://far/mem://a","name":"a","title":"Resource","icons":[{"src":"https://icons.example/r.svg"}],"size":1.0,"annotations":{"audience":["user"],"priority":0.50},"_meta":{"vendor.example/c":3.50}}"#,
            ),
            (
                "resources/templates/list",
                r#"{ "uriTemplate":"portcullis://far/mem://t/{id}","name":"t","title":"Template","icons":[{"src":"https://icons.example/t.svg"}],"_meta":{"vendor.example/d":4.50}}"#,
            ),
        ] {
            let listed = line(method, json!({}));
            assert!(listed.contains(&format!("[{definition}]")), "{era:?}: {listed}");
        }
        // Of the caller's `_meta`, only the keys that the configuration lists reach the source.
        let called = line("tools/call", json!({ "name": "far__mirror", "_meta": { "vendor.example/f": "\u{e9}" } }));
        assert!(called.contains(r#""_meta":{"vendor.example/e":5.50}"#), "{era:?}: {called}");
        assert!(called.contains("{\"vendor.example/f\":\"\u{e9}\""), "{era:?}: {called}");
        assert!(!called.contains("io.modelcontextprotocol/client"), "{era:?}: {called}");
        agent.leave();
    }
}

fn space() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just(""), Just(" "), Just("\t ")]
}

fn scalar() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?",
        // Strings with different escapes for the same character, and text of any script.
        "\"([a-z\u{e9}\u{65e5}\u{1f600} ]|\\\\u00[ef][0-9a-f]|\\\\/|\\\\n|\\\\\\\\|\\\\\")*\"",
    ]
}

fn value() -> impl Strategy<Value = String> {
    scalar().prop_recursive(4, 24, 4, |inner| {
        let items = prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[ {} ]", items.join(",")));
        prop_oneof![items, members(inner)]
    })
}

fn object() -> impl Strategy<Value = String> {
    members(value())
}

/// Returns objects whose keys all differ, even if a parser ignores their case.
fn members(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    (prop::collection::vec(value, 0..4), space()).prop_map(|(values, space)| {
        let members: Vec<_> =
            values.iter().enumerate().map(|(n, value)| format!(r#""k{n}é\u0041"{space}: {value}"#)).collect();
        format!("{{{space}{}}}", members.join(","))
    })
}
