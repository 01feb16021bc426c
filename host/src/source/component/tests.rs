#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod files;

use portcullis_test_support::guest;
use serde_json::json;

use std::sync::Arc;

use super::*;
use crate::call::{Call, Params};
use crate::config::PluginRef;
use crate::item::Item;
use crate::plugin::ComponentAccess;
use crate::plugin::testing::{plugins, tools};
use crate::source::testing::{no_client, silent};
use portcullis_core::testing::view;

async fn source(settings: serde_json::Value) -> ComponentSource {
    let tools = tools(plugins(), &PluginRef::Path(guest("counter")), &settings).await.unwrap();
    ComponentSource::new(tools, &of(Duration::from_secs(60)))
}

/// Loads the guest `explorer` with this access.
async fn explorer(access: ComponentAccess) -> ComponentSource {
    let plugin = PluginRef::Path(guest("explorer"));
    match plugins().component(&plugin, &json!({}), &[], access).await.unwrap().kind {
        crate::plugin::ComponentKind::Tools(tools) => ComponentSource::new(tools, &of(Duration::from_secs(600))),
        other => panic!("{other:?}"),
    }
}

/// Returns a permit for this tool in the session of `call`.
fn permit_in(call: &Call, tool: &str, arguments: serde_json::Value) -> Permit {
    let item = Arc::new(Item { name: tool.into(), ..Item::clone(&call.item) });
    let params = Params::parse(&Method::ToolsCall, Json::of(&json!({ "name": "exposed", "arguments": arguments })));
    Permit::unchecked(Arc::new(Call { item, params, arguments: Json::of(&arguments), ..call.clone() }))
}

fn permit(tool: &str, arguments: serde_json::Value) -> Permit {
    permit_in(&view("{}").call, tool, arguments)
}

async fn call(source: &ComponentSource, tool: &str) -> Answer {
    match source.call(permit(tool, json!({})), &no_client(), silent()).await {
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

fn of(timeout: Duration) -> crate::config::SourceConfig {
    crate::config::SourceConfig { timeout, ..crate::catalog::testing::source("test", crate::config::Naming::Source) }
}

#[tokio::test]
async fn its_tools_are_discovered() {
    let found = source(json!({})).await.discover(&no_client()).await.unwrap();
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
    let wrong = source.call(permit("count", json!({ "by": 2 })), &no_client(), silent()).await;
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
        let Outcome::Answered(answer) =
            source.call(permit_in(&call_of, "count", json!({})), &no_client(), silent()).await
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

#[tokio::test]
async fn tools_on_a_standard_library_have_what_is_granted_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (env, args) = (vec![("MODE".into(), "quiet".into())], vec!["notes".into(), "--fast".into()]);
    let mut access = ComponentAccess { env, args, ..ComponentAccess::default() };
    for (name, list) in [("open", &mut access.grant.read), ("drop", &mut access.grant.write)] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
        list.push(dir.path().join(name));
    }
    std::fs::write(dir.path().join("open/note.txt"), "a note").unwrap();
    let source = explorer(access).await;
    let call = async |tool: &str, arguments| {
        let Outcome::Answered(answer) = source.call(permit(tool, arguments), &no_client(), silent()).await else {
            panic!("{tool}")
        };
        text(&answer)
    };
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let seen: serde_json::Value = serde_json::from_str(&call("look", json!({})).await.1).unwrap();
    assert_eq!((&seen["environment"], &seen["arguments"]), (&json!({ "MODE": "quiet" }), &json!(["notes", "--fast"])));
    assert_eq!(call("read", json!({ "path": path("open/note.txt") })).await, (false, "a note".into()));
    let wrote = call("write", json!({ "path": path("drop/new.txt"), "text": "mine" })).await;
    assert_eq!((wrote.0, std::fs::read_to_string(dir.path().join("drop/new.txt")).unwrap()), (false, "mine".into()));
    for (tool, path) in [("read", "/etc/passwd"), ("read", &path("open/../secret")), ("write", &path("open/note.txt"))]
    {
        let (is_error, said) = call(tool, json!({ "path": path, "text": "theirs" })).await;
        assert!(is_error && said.contains("os error"), "{tool} {path}: {said}");
    }
}

#[tokio::test]
async fn what_is_neither_a_file_nor_a_folder_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let (pipe, link) = (dir.path().join("pipe"), dir.path().join("link"));
    let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, mode, 0).unwrap();
    std::os::unix::fs::symlink("pipe", &link).unwrap();
    let mut access = ComponentAccess::default();
    access.grant.write.push(dir.path().to_owned());
    let source = explorer(access).await;
    for (tool, path) in [("read", &pipe), ("write", &pipe), ("read", &link)] {
        let arguments = json!({ "path": path, "text": "" });
        let Outcome::Answered(answer) = source.call(permit(tool, arguments), &no_client(), silent()).await else {
            panic!()
        };
        let (is_error, said) = text(&answer);
        assert!(is_error && said.contains("os error 63"), "{tool}: {said}");
    }
}

#[tokio::test]
async fn a_component_that_does_not_say_what_it_offers_is_given_up() {
    let access = ComponentAccess { env: vec![("SLOW".into(), "1".into())], ..ComponentAccess::default() };
    let plugin = PluginRef::Path(guest("explorer"));
    let component = plugins().component(&plugin, &json!({}), &[], access).await.unwrap();
    let crate::plugin::ComponentKind::Tools(tools) = component.kind else { panic!() };
    let source = ComponentSource::new(tools, &of(Duration::from_millis(50)));
    let error = source.discover(&no_client()).await.unwrap_err();
    assert!(matches!(&error, SourceError::Timeout { method, .. } if method == "tools/list"), "{error}");
}

#[tokio::test]
async fn a_failure_names_the_setting_that_raises_the_limit_and_the_next_call_works() {
    let mut access = ComponentAccess { timeout: Duration::from_secs(2), ..ComponentAccess::default() };
    access.grant.limits.memory = 8 << 20;
    access.grant.limits.cpu = Some(0.5);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("note.txt"), "").unwrap();
    access.env.push(("HOARD".into(), dir.path().join("note.txt").to_str().unwrap().to_owned()));
    access.grant.read.push(dir.path().to_owned());
    let source = explorer(access).await;
    for (tool, code, hint) in [
        (
            "spin",
            "plugin-deadline",
            "1 s of processor time; to give it a whole processor for as long as its `timeout`, write `cell = { cpu = 1.0 }`",
        ),
        ("grow", "plugin-memory", "more than 8 MiB of memory; to give it more, write `cell = { memory = \"16MiB\" }`"),
        ("hoard", "plugin-memory", "too many handles at once; at most there are 256"),
        ("recurse", "plugin-trap", "wasm trap"),
        ("flood", "plugin-memory", "more than 8 MiB of memory"),
    ] {
        let (is_error, text) = text(&call(&source, tool).await);
        assert!(is_error && text.contains(code) && text.contains(hint), "{tool}: {text}");
        assert!(!self::text(&call(&source, "look").await).0, "after {tool}");
    }
}

#[tokio::test]
async fn no_more_instances_work_at_once_than_the_source_may_have_and_further_calls_wait() {
    let access = ComponentAccess { instances: 2, timeout: Duration::from_secs(600), ..ComponentAccess::default() };
    let source = explorer(access.clone()).await;
    let crowd = (0..200).map(|_| call(&source, "look"));
    for answer in futures_util::future::join_all(crowd).await {
        assert!(!text(&answer).0, "{answer:?}");
    }

    let source = explorer(ComponentAccess { timeout: Duration::from_millis(50), ..access }).await;
    let sleepers = futures_util::future::join(call(&source, "sleep"), call(&source, "sleep"));
    let refused = tokio::select! {
        biased;
        slept = sleepers => panic!("{slept:?}"),
        refused = call(&source, "look") => text(&refused),
    };
    let words = "all 2 instances that it may have are at work; to let it have more, write `cell = { instances = 4 }`";
    assert!(refused.0 && refused.1.contains("plugin-busy") && refused.1.contains(words), "{refused:?}");
    assert!(!text(&call(&source, "look").await).0);
}

#[tokio::test]
async fn what_passes_in_one_call_has_a_limit_that_the_source_can_raise() {
    let flood = async |output| {
        let mut access = ComponentAccess { output, ..ComponentAccess::default() };
        access.grant.limits.memory = 256 << 20;
        text(&call(&explorer(access).await, "flood").await)
    };
    let words = "passed more than 12 MiB in one call; to let it pass more, write `cell = { output = \"24MiB\" }`";
    let (is_error, said) = flood(12 << 20).await;
    assert!(is_error && said.contains("plugin-output") && said.contains(words), "{said}");
    let (is_error, said) = flood(24 << 20).await;
    assert!(!is_error && said.len() == 16 << 20, "{} bytes", said.len());
}

#[tokio::test]
async fn a_call_that_waits_too_long_names_its_timeout() {
    let plugin = PluginRef::Path(guest("explorer"));
    let Ok(crate::plugin::ComponentKind::Tools(tools)) =
        plugins().component(&plugin, &json!({}), &[], ComponentAccess::default()).await.map(|component| component.kind)
    else {
        panic!()
    };
    let source = ComponentSource::new(tools, &of(Duration::from_millis(50)));
    let (is_error, said) = text(&call(&source, "sleep").await);
    assert!(is_error && said.contains("within 0.05 s; to wait longer, raise `timeout` in its source"), "{said}");
}

#[tokio::test]
async fn a_store_is_the_profiles_own_and_outlives_the_source() {
    let dir = tempfile::tempdir().unwrap();
    let load = async || {
        let stores = crate::key_value::KeyValue::new(dir.path(), &"memory".parse().unwrap());
        // The last of the calls below waits until the disk has what most of the others write.
        let timeout = Duration::from_secs(600);
        let access = ComponentAccess { key_value: Some(Arc::new(stores)), timeout, ..ComponentAccess::default() };
        let (plugin, grant) = (PluginRef::Builtin("memory".into()), ["key-value".to_owned()]);
        let loaded = plugins().component(&plugin, &json!({}), &grant, access).await.unwrap();
        assert!(loaded.has_store);
        match loaded.kind {
            crate::plugin::ComponentKind::Tools(tools) => ComponentSource::new(tools, &of(Duration::from_secs(600))),
            other => panic!("{other:?}"),
        }
    };
    let permit_of = |profile: &str, method: &str, params: serde_json::Value| {
        let call = view("{}").call;
        let caller =
            crate::call::Caller { profile: profile.parse().unwrap(), ..crate::call::Caller::clone(&call.caller) };
        let name = params["name"].as_str().or(params["uri"].as_str()).unwrap_or_default();
        let item = Arc::new(Item { name: name.into(), ..Item::clone(&call.item) });
        let arguments = params.get("arguments").map_or_else(|| Json::empty_object().clone(), Json::of);
        let (caller, method) = (Arc::new(caller), Method::from(method));
        let params = Params::parse(&method, Json::of(&params));
        Permit::unchecked(Arc::new(Call { caller, item, method, params, arguments, ..Call::clone(&call) }))
    };
    let say = async |source: &ComponentSource, profile: &str, tool: &str, arguments: serde_json::Value| {
        let params = json!({ "name": tool, "arguments": arguments });
        let Outcome::Answered(answer) =
            source.call(permit_of(profile, "tools/call", params), &no_client(), silent()).await
        else {
            panic!("{tool}")
        };
        answer
    };
    let source = load().await;
    // 200 calls at once, each in its own instance, and no write is lost.
    let calls =
        (0..200).map(|n| say(&source, "mine", "remember", json!({ "entity": "it", "observations": [format!("{n}")] })));
    for answer in futures_util::future::join_all(calls).await {
        assert!(!text(&answer).0, "{answer:?}");
    }
    drop(source);
    let source = load().await;
    let known = text(&say(&source, "mine", "recall", json!({ "entity": "it" })).await).1;
    assert_eq!(known.lines().count(), 201, "{known}");
    assert_eq!(text(&say(&source, "yours", "recall", json!({})).await).1, "nothing is known");
    for (profile, there) in [("mine", true), ("yours", false)] {
        let permit = permit_of(profile, "resources/read", json!({ "uri": "memory:///it" }));
        let Outcome::Answered(read) = source.call(permit, &no_client(), silent()).await else { panic!() };
        assert_eq!(matches!(&read, Answer::Result(result) if result.as_str().contains("- 199")), there, "{read:?}");
    }
    let found = source.discover(&no_client()).await.unwrap();
    assert!(found.capabilities.get("resources").is_some());
}

#[tokio::test]
async fn a_store_that_is_not_granted_is_refused_with_the_line_to_add() {
    let plugin = PluginRef::Builtin("memory".into());
    let error =
        plugins().component(&plugin, &json!({}), &[], ComponentAccess::default()).await.unwrap_err().to_string();
    assert!(error.contains("key-value@0.1.0, which it is not granted: add `grant = [\"key-value\"]`"), "{error}");
}
