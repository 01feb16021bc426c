#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use portcullis_test_support::guest;
use serde_json::json;

use std::sync::Arc;

use super::*;
use crate::call::Call;
use crate::catalog::Item;
use crate::config::PluginRef;
use crate::plugin::testing::{plugins, tools, view};
use crate::source::testing::{nobody, silent};

async fn source(settings: serde_json::Value) -> ComponentSource {
    let tools = tools(plugins(), &PluginRef::Path(guest("counter")), &settings).await.unwrap();
    ComponentSource::new(tools, Duration::from_secs(60))
}

/// A permit for this tool in this session.
fn permit_in(call: &Call, tool: &str, arguments: serde_json::Value) -> Permit {
    let item = Arc::new(Item { name: tool.into(), ..Item::clone(&call.item) });
    let params = Json::of(&json!({ "name": "exposed", "arguments": arguments }));
    Permit::unchecked(Arc::new(Call { item, params, arguments: Json::of(&arguments), ..call.clone() }))
}

fn permit(tool: &str, arguments: serde_json::Value) -> Permit {
    permit_in(&view("{}").call, tool, arguments)
}

async fn call(source: &ComponentSource, tool: &str) -> Answer {
    match source.call(permit(tool, json!({})), &nobody(), silent()).await {
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
    let found = source(json!({})).await.discover(&nobody()).await.unwrap();
    assert_eq!(found.protocol, "component");
    assert_eq!(found.tools.items.len(), 5);
    assert_eq!(found.tools.items[0].get_str("name").unwrap(), "count");
}

#[tokio::test]
async fn its_answers_become_what_mcp_says() {
    let source = source(json!({})).await;
    assert_eq!(text(&call(&source, "count").await), (false, "1".into()));
    assert_eq!(text(&call(&source, "fail").await), (true, "told to".into()));
    assert_eq!(code(&call(&source, "missing").await), RpcError::INVALID_PARAMS);
    let wrong = source.call(permit("count", json!({ "by": 2 })), &nobody(), silent()).await;
    let Outcome::Answered(wrong) = wrong else { panic!("{wrong:?}") };
    assert_eq!(code(&wrong), RpcError::INVALID_PARAMS);
}

#[tokio::test]
async fn a_failure_is_a_result_that_names_it_and_the_next_call_works() {
    let source = source(json!({})).await;
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
    let error = tools(plugins(), &reference, &json!({})).await.unwrap_err().to_string();
    assert!(error.contains("is not a WebAssembly component"), "{error}");
}

#[tokio::test]
async fn closing_ends_what_sessions_kept() {
    let source = source(json!({ "state": true })).await;
    let call_of = view("{}").call;
    let again = || async {
        let Outcome::Answered(answer) = source.call(permit_in(&call_of, "count", json!({})), &nobody(), silent()).await
        else {
            panic!()
        };
        text(&answer).1
    };
    assert_eq!((again().await, again().await), ("1".into(), "2".into()));
    source.end_session(&call_of.caller.session);
    assert_eq!((again().await, again().await), ("1".into(), "2".into()));
    source.close().await;
    assert_eq!(again().await, "1");
}
