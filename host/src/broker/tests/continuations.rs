//! Limits on what sessions keep for an agent that comes back.

use super::*;
use crate::config::{ConfigBuilder, PluginTable, SourceTable};
use crate::gate::{AnswerRoute, GivenAnswer, QuestionEvent};
use crate::source::testing::{ScriptedServer, answering};

/// Returns the answers of a server whose tool `run` begins the task `t` and answers with a long text. The task asks a long
/// question.
fn talk(request: &serde_json::Value) -> Vec<serde_json::Value> {
    let text = "word ".repeat(10_000);
    let result = match request["method"].as_str().unwrap_or_default() {
        "initialize" => Some(json!({
            "protocolVersion": "2025-11-25", "serverInfo": { "name": "talker", "version": "1" },
            "capabilities": { "tools": {}, "tasks": {} }
        })),
        "tools/list" => Some(json!({ "tools": [{ "name": "run", "inputSchema": { "type": "object" } }] })),
        "tools/call" => Some(json!({ "content": [{ "type": "text", "text": text }], "task": { "taskId": "t" } })),
        "tasks/get" => {
            let question = json!({ "method": "x/ask", "params": { "text": text } });
            Some(json!({ "taskId": "t", "status": "input_required", "inputRequests": { "q": question } }))
        }
        "tasks/update" => Some(json!({ "answered": request["params"]["inputResponses"] })),
        _ => None,
    };
    answering(request, result)
}

/// Returns a broker before the talker, and a session that has called it once.
async fn begun(folder: &std::path::Path) -> (Broker, Arc<Session>, serde_json::Value) {
    begun_under(Config::builder(folder)).await
}

async fn begun_under(config: ConfigBuilder) -> (Broker, Arc<Session>, serde_json::Value) {
    let profile = json!({ "approve": "never", "max-result": "8KiB" });
    let config = config.source("talker", SourceTable::native("talker"));
    let config = config.profile("default", profile).build().unwrap();
    let broker =
        Broker::builder(config, Launcher::SelfExec).source("talker", ScriptedServer(talk)).build().await.unwrap();
    let session = session(&broker).await;
    let result = asked(&session, "tools/call", json!({ "name": "talker__run" })).await.unwrap();
    (broker, session, result)
}

async fn asked(
    session: &Session,
    method: &str,
    params: serde_json::Value,
) -> Result<serde_json::Value, serde_json::Value> {
    match session.request(method, Json::of(&params), Arc::new(NoAgent)).await {
        Answer::Result(result) => Ok(result.to_value()),
        Answer::Error(error) => Err(error.to_value()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_of_tasks_have_a_limit_in_bytes_for_all_sessions_of_a_caller() {
    let folder = tempfile::tempdir().unwrap();
    let (broker, session, _) = begun(folder.path()).await;
    // Another session of the same caller takes so much that less than the question's size remains.
    let limit = &broker.inner.continuations.limits().questions;
    let half = crate::session::MAX_QUESTION_BYTES / 2;
    let taken = limit.try_take(&session.caller().principal, half - 60_000).unwrap();
    let refused = asked(&session, "tasks/get", json!({ "taskId": "t" })).await.unwrap_err();
    let why = refused["message"].as_str().unwrap_or_default();
    assert!(why.contains("take more memory than it may have; answer some of them first"), "{refused}");
    drop(taken);
    let shown = asked(&session, "tasks/get", json!({ "taskId": "t" })).await.unwrap();
    assert_eq!(shown["inputRequests"]["q"]["method"], "x/ask", "{shown}");
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_its_source_begins_again_keeps_its_open_questions() {
    let folder = tempfile::tempdir().unwrap();
    let (broker, session, _) = begun(folder.path()).await;
    asked(&session, "tasks/get", json!({ "taskId": "t" })).await.unwrap();
    asked(&session, "tools/call", json!({ "name": "talker__run" })).await.unwrap();
    // The question takes more than this would leave.
    let limit = &broker.inner.continuations.limits().questions;
    let nearly_all = crate::session::MAX_QUESTION_BYTES / 2 - 60_000;
    assert!(limit.try_take(&session.caller().principal, nearly_all).is_none(), "the question is still open");
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_cleared_reads_no_further_part_of_an_earlier_result() {
    let folder = tempfile::tempdir().unwrap();
    let (broker, session, result) = begun(folder.path()).await;
    let links = |result: &serde_json::Value| result["content"][2]["uri"].as_str().unwrap_or_default().to_owned();
    let part = links(&result);
    assert!(asked(&session, "resources/read", json!({ "uri": part })).await.is_ok(), "{result}");
    session.clear_flow();
    let refused = asked(&session, "resources/read", json!({ "uri": part })).await.unwrap_err();
    assert_eq!(refused["data"]["uri"], part, "{refused}");
    let again = asked(&session, "tools/call", json!({ "name": "talker__run" })).await.unwrap();
    assert!(asked(&session, "resources/read", json!({ "uri": links(&again) })).await.is_ok());
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_questions_of_a_task_stay_open_until_the_request_that_answers_them_may_go() {
    let folder = tempfile::tempdir().unwrap();
    let rules = PluginTable::new("builtin:rules").settings(json!({ "ask": [{ "method": "tasks/update" }] }));
    let (broker, session, _) = begun_under(Config::builder(folder.path()).policy(rules)).await;
    asked(&session, "tasks/get", json!({ "taskId": "t" })).await.unwrap();
    let mut events = broker.inbox().subscribe();
    let answers = json!({ "taskId": "t", "inputResponses": { "q": { "text": "yes" }, "nobody-asked": {} } });
    // The agent gives up while a person is being asked, and comes back when that one has answered.
    let given_up = {
        let (session, answers) = (Arc::clone(&session), answers.clone());
        tokio::spawn(async move { asked(&session, "tasks/update", answers).await })
    };
    let QuestionEvent::Asked(question) = events.recv().await.unwrap() else { panic!("nobody has answered") };
    given_up.abort();
    assert!(given_up.await.unwrap_err().is_cancelled());
    broker.inbox().answer(&question.id, &GivenAnswer::yes(), "me", AnswerRoute::Person).await.unwrap();
    let updated = asked(&session, "tasks/update", answers.clone()).await.unwrap();
    assert_eq!(updated["answered"], json!({ "q": { "text": "yes" } }));
    broker.shutdown().await;
}
