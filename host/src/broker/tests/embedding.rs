//! The library in the hands of a program that embeds it: tools, progress, and answers to questions.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tokio::io::DuplexStream;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::sync::mpsc;

use super::*;
use crate::config::{PluginTable, ProfileTable, SourceTable};
use crate::control::ListedDefinition;
use crate::gate::{AnswerRoute, GivenAnswer, InboxError, QuestionEvent};
use crate::item::ItemKind;
use crate::plugin::NativeError;
use crate::session::Progress;
use crate::source::NativeSource;
use crate::source::testing::ScriptedServer;

/// A native server that counts the connections whose end it has seen.
struct Orderly(Arc<AtomicUsize>);

#[async_trait]
impl NativeSource for Orderly {
    fn version(&self) -> &str {
        "1"
    }

    async fn serve(&self, stream: DuplexStream) -> Result<(), NativeError> {
        ScriptedServer(answers).serve(stream).await?;
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// Returns the messages of a legacy server with one tool, which reports its progress before it answers, and a prompt with
/// the same definition.
fn answers(request: &serde_json::Value) -> Vec<serde_json::Value> {
    let id = &request["id"];
    let answer = |result: serde_json::Value| json!({ "id": id, "result": result });
    match request["method"].as_str().unwrap_or_default() {
        "initialize" => vec![answer(json!({
            "protocolVersion": "2025-11-25", "capabilities": { "tools": {}, "prompts": {} }, "serverInfo": { "name": "oven", "version": "1" }
        }))],
        list @ ("tools/list" | "prompts/list") => vec![answer(json!({ list.trim_end_matches("/list"): [{
            "name": "bake", "title": "Bake bread", "inputSchema": { "type": "object" },
            "outputSchema": { "type": "object" }, "annotations": { "readOnlyHint": true }
        }] }))],
        "tools/call" => {
            let token = &request["params"]["_meta"]["progressToken"];
            let report = |done: u32, rest: serde_json::Value| {
                let mut params = json!({ "progressToken": token, "progress": done });
                params.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
                json!({ "method": "notifications/progress", "params": params })
            };
            let reports = match token.is_null() {
                true => Vec::new(),
                false => vec![report(1, json!({})), report(2, json!({ "total": 2, "message": "crisp" }))],
            };
            let result =
                json!({ "content": [{ "type": "text", "text": "bread" }], "structuredContent": { "loaves": 2 } });
            reports.into_iter().chain([answer(result)]).collect()
        }
        _ if id.is_null() => Vec::new(),
        _ => vec![json!({ "id": id, "error": { "code": -32601, "message": "no" } })],
    }
}

pub(super) async fn oven(folder: &std::path::Path, approve: &str) -> Broker {
    let config = Config::builder(folder)
        .profile("default", ProfileTable::new().key("approve", approve))
        .source("oven", SourceTable::native("oven"))
        .build()
        .unwrap();
    Broker::builder(config, Launcher::SelfExec).source("oven", ScriptedServer(answers)).build().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_accepts_a_prompt_accepts_no_tool_with_the_same_definition() {
    let folder = tempfile::tempdir().unwrap();
    let broker = oven(folder.path(), "never").await;
    let compared = async || {
        let compared = crate::broker::lock_comparison::compare(&broker.inner, ItemKind::Prompt).await.unwrap();
        let of = |kind: &str| {
            let mut all = compared["definitions"].as_array().unwrap().iter();
            all.find(|definition| definition["kind"] == kind).unwrap().clone()
        };
        [of("tool"), of("prompt")]
    };
    let [tool, prompt] = compared().await;
    assert_eq!(tool["digest"], prompt["digest"]);
    let digest = prompt["digest"].as_str().unwrap().parse().unwrap();
    let accepted = [ListedDefinition { kind: ItemKind::Prompt, digest }];
    broker.accept_listed(&"oven".parse().unwrap(), ItemKind::Prompt, &accepted, "me").await.unwrap();
    let [tool, prompt] = compared().await;
    assert_eq!((&tool["state"], &prompt["state"]), (&json!("new"), &json!("accepted")));
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_reads_what_a_tool_is_and_how_far_a_call_is() {
    let folder = tempfile::tempdir().unwrap();
    let broker = oven(folder.path(), "never").await;
    let session = session(&broker).await;
    let tool = session.discover().await.unwrap().remove(0);
    assert_eq!((tool.name.as_str(), tool.title.as_deref()), ("oven__bake", Some("Bake bread")));
    assert_eq!(tool.output_schema.unwrap().to_value(), json!({ "type": "object" }));
    assert_eq!(tool.annotations.unwrap().to_value(), json!({ "readOnlyHint": true }));

    let (reports, mut reported) = mpsc::unbounded_channel::<Progress>();
    let baked = session.call_tool_with("oven__bake", &json!({}), move |progress| reports.send(progress).unwrap()).await;
    let baked = baked.unwrap();
    assert_eq!((baked.text().as_str(), baked.is_error()), ("bread", false));
    assert_eq!(baked.structured(), Some(json!({ "loaves": 2 })));
    let (first, second) = (reported.recv().await.unwrap(), reported.recv().await.unwrap());
    assert_eq!((first.progress, first.total, first.message), (1.0, None, None));
    assert_eq!((second.progress, second.total, second.message.as_deref()), (2.0, Some(2.0), Some("crisp")));
    assert!(reported.recv().await.is_none(), "nothing holds on to the callback after the call");

    assert_eq!(session.call_tool("oven__bake", &json!({})).await.unwrap().text(), "bread");
    let called = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&called);
    let burn = move |_: Progress| assert_ne!(counted.fetch_add(1, Ordering::SeqCst), 0, "it burns");
    assert_eq!(session.call_tool_with("oven__bake", &json!({}), burn).await.unwrap().text(), "bread");
    assert_eq!(called.load(Ordering::SeqCst), 1, "a callback that has panicked is not called again");
    let unknown = session.call_tool("oven__fry", &json!({})).await.unwrap_err();
    assert_eq!((unknown.code, unknown.reason()), (RpcError::INVALID_PARAMS, None), "{unknown:?}");
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_of_the_program_sees_the_end_of_its_stream_at_a_reload_and_at_the_shutdown() {
    let folder = tempfile::tempdir().unwrap();
    let ended = Arc::<AtomicUsize>::default();
    let config = |timeout: &str| {
        let oven = SourceTable::native("oven").key("timeout", timeout);
        Config::builder(folder.path()).source("oven", oven).build().unwrap()
    };
    let broker = Broker::builder(config("10s"), Launcher::SelfExec).source("oven", Orderly(Arc::clone(&ended)));
    let broker = broker.build().await.unwrap();
    broker.connect_all().await.unwrap();
    broker.reload(config("20s")).await.unwrap();
    broker.connect_all().await.unwrap();
    broker.shutdown().await;
    assert_eq!(ended.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_has_shut_down_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let broker = oven(folder.path(), "never").await;
    assert_eq!(broker.refuses_calls(), None);
    broker.shutdown().await;
    let late = broker.open_session(&"default".parse().unwrap(), &"me".parse().unwrap(), "late").await;
    let refused = late.err().unwrap().to_string();
    assert!(refused.contains("the broker has shut down"), "{refused}");
    assert_eq!(broker.refuses_calls(), Some("the broker has shut down"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_connecting_names_each_source_once() {
    let folder = tempfile::tempdir().unwrap();
    let away = SourceTable::component("./away.wasm");
    let config = Config::builder(folder.path()).source("x", away).build().unwrap();
    let broker = Broker::build(config, Launcher::SelfExec).await.unwrap();
    let failed = broker.connect_all().await.unwrap_err().to_string();
    assert!(failed.starts_with("no source could be connected: `x`: "), "{failed}");
    assert!(!failed.contains("source `x`") && failed.contains("away.wasm"), "{failed}");
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_answers_questions_as_they_arise() {
    let folder = tempfile::tempdir().unwrap();
    let broker = oven(folder.path(), "always").await;
    let mut events = broker.inbox().subscribe();
    let session = session(&broker).await;
    let call = tokio::spawn(async move { session.call_tool("oven__bake", &json!({})).await });
    let QuestionEvent::Asked(question) = events.recv().await.unwrap() else { panic!("it was answered by itself") };
    assert_eq!((question.tool.as_str(), question.principal.as_str()), ("oven__bake", "me"));
    let always = GivenAnswer::yes().scope("always");
    let through_agent = broker.inbox().answer(&question.id, &always, "agent", AnswerRoute::Agent).await;
    assert!(matches!(through_agent, Err(InboxError::Scope { .. })), "{through_agent:?}");
    let yes = GivenAnswer::yes();
    broker.inbox().answer(&question.id, &yes, "my-program", AnswerRoute::Person).await.unwrap();
    assert_eq!(call.await.unwrap().unwrap().text(), "bread");
    assert!(matches!(events.recv().await, Ok(QuestionEvent::Answered { approved: true, .. })));
    broker.shutdown().await;
    assert_eq!(events.try_recv().unwrap_err(), TryRecvError::Closed, "the stream ends with the broker");
}

#[tokio::test]
async fn a_table_that_is_written_with_methods_is_checked_like_one_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let config = |source: SourceTable, plugin: PluginTable| {
        Config::builder(folder.path()).source("s", source).policy(plugin).build()
    };
    let rules = || PluginTable::new("builtin:rules");
    let good = config(
        SourceTable::command(["cat"]).read("/usr/share").network("a.example:443").env("A", "b"),
        rules().shadow(),
    );
    let good = good.unwrap();
    let source = good.sources.values().next().unwrap();
    assert_eq!(source.cell.read, [std::path::PathBuf::from("/usr/share")]);
    assert_eq!(source.cell.network.len(), 1);
    let unknown = config(SourceTable::command(["cat"]).key("tmeout", "1s"), rules()).unwrap_err().to_string();
    assert!(unknown.contains("tmeout"), "{unknown}");
    let odd = config(SourceTable::command(["cat"]).key("cell", 1).read("/usr"), rules()).unwrap_err().to_string();
    assert!(odd.contains("cell") || odd.contains("invalid type"), "{odd}");
    let settings = config(SourceTable::command(["cat"]), rules().settings(7)).unwrap_err().to_string();
    assert!(settings.contains("settings") || settings.contains("invalid type"), "{settings}");
}
