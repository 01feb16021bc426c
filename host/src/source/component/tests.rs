#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use portcullis_test_support::guest;
use serde_json::json;

use super::*;
use crate::plugin::testing::{plugins, view};

fn source(settings: serde_json::Value) -> ComponentSource {
    ComponentSource::new(plugins().clone(), PluginRef::Path(guest("counter")), settings, vec![])
}

fn permit(params: serde_json::Value) -> Permit {
    Permit { call: view("{}").call, source_params: Json::of(&params) }
}

async fn call(source: &ComponentSource, tool: &str) -> Answer {
    match source.call(permit(json!({ "name": tool, "arguments": {} })), None).await {
        Outcome::Answered(answer) => answer,
        other => panic!("{other:?}"),
    }
}

fn text(answer: &Answer) -> (bool, String) {
    let Answer::Result(result) = answer else { panic!("{answer:?}") };
    let result: serde_json::Value = result.read().unwrap();
    (result["isError"] == true, result["content"][0]["text"].as_str().unwrap().to_owned())
}

fn code(answer: &Answer) -> i64 {
    let Answer::Error(error) = answer else { panic!("{answer:?}") };
    error.read::<serde_json::Value>().unwrap()["code"].as_i64().unwrap()
}

#[tokio::test]
async fn its_tools_are_discovered() {
    let found = source(json!({})).discover().await.unwrap();
    assert_eq!(found.protocol, "component");
    assert_eq!(found.tools.len(), 5);
    assert_eq!(found.tools[0].get_str("name").unwrap(), "count");
}

#[tokio::test]
async fn its_answers_become_what_mcp_says() {
    let source = source(json!({}));
    assert_eq!(text(&call(&source, "count").await), (false, "1".into()));
    assert_eq!(text(&call(&source, "fail").await), (true, "told to".into()));
    assert_eq!(code(&call(&source, "missing").await), RpcError::INVALID_PARAMS);
    let wrong = source.call(permit(json!({ "name": "count", "arguments": { "by": 2 } })), None).await;
    let Outcome::Answered(wrong) = wrong else { panic!("{wrong:?}") };
    assert_eq!(code(&wrong), RpcError::INVALID_PARAMS);
}

#[tokio::test]
async fn a_failure_is_a_result_that_names_it_and_the_next_call_works() {
    let source = source(json!({}));
    for (tool, named) in [("spin", "plugin-deadline"), ("panic", "plugin-trap"), ("lie", "plugin-output")] {
        let (is_error, text) = text(&call(&source, tool).await);
        assert!(is_error && text.contains(named), "{tool}: {text}");
    }
    assert_eq!(text(&call(&source, "count").await), (false, "1".into()));
}

#[tokio::test]
async fn a_component_that_cannot_be_loaded_says_why() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let reference = PluginRef::Path(file.path().to_owned());
    let source = ComponentSource::new(plugins().clone(), reference, json!({}), vec![]);
    let error = source.discover().await.unwrap_err().to_string();
    assert!(error.contains("is not a WebAssembly component"), "{error}");
    let outcome = source.call(permit(json!({ "name": "count" })), None).await;
    assert!(matches!(outcome, Outcome::NotSent(_)), "{outcome:?}");
}

#[tokio::test]
async fn closing_ends_what_sessions_kept() {
    let source = source(json!({ "state": true }));
    let call_of = permit(json!({ "name": "count" })).call;
    let again = || async {
        let permit = Permit { call: call_of.clone(), source_params: Json::of(&json!({ "name": "count" })) };
        let Outcome::Answered(answer) = source.call(permit, None).await else { panic!() };
        text(&answer).1
    };
    assert_eq!((again().await, again().await), ("1".into(), "2".into()));
    source.end_session(&call_of.caller.session);
    assert_eq!((again().await, again().await), ("1".into(), "2".into()));
    source.close().await;
    assert_eq!(again().await, "1");
}
