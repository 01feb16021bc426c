#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::sync::Arc;

use portcullis_jail::Launcher;
use serde_json::json;

use crate::broker::Broker;
use crate::config::Config;
use crate::ledger::{self, Filter, Reader, Verdict};
use crate::message::{Answer, Json};
use crate::session::{Nobody, Session};

const DENY: &str = r#"{ plugin = "builtin:rules", settings = { deny = ["calc__add"] } }"#;
const ASK: &str = r#"{ plugin = "builtin:rules", settings = { ask = ["calc__add"] } }"#;
const PASS: &str = r#"{ plugin = "builtin:rules", settings = { allow = ["calc__*"] } }"#;
const TRAP: &str = r#"{ plugin = "builtin:saboteur", settings = { trap = ["calc__add"] } }"#;
const LOOP: &str = r#"{ plugin = "builtin:saboteur", settings = { loop = ["calc__add"] } }"#;
const SHADOW: &str = r#"{ plugin = "builtin:rules", settings = { deny = ["calc__add"] }, mode = "shadow" }"#;

async fn broker(folder: &std::path::Path, policies: &[&str]) -> Broker {
    let text = format!(
        "policies = [{}]\n[broker]\nask-timeout = \"1s\"\n[sources.calc]\ncomponent = \"builtin:calculator\"",
        policies.join(", ")
    );
    let config = Config::parse(&text, &folder.join("portcullis.toml")).unwrap();
    Broker::build(config, Launcher::SelfExec).await.unwrap()
}

async fn session(broker: &Broker) -> Arc<Session> {
    broker.open_session(&"default".parse().unwrap(), "me", "test").await.unwrap()
}

/// `ok`, or the code of the refusal.
async fn add(session: &Arc<Session>, arguments: &str) -> String {
    let params = format!(r#"{{"name":"calc__add","arguments":{arguments}}}"#);
    match session.call_tool(Json::parse(params).unwrap(), Arc::new(Nobody)).await {
        Answer::Result(_) => "ok".to_owned(),
        Answer::Error(error) => error.get("data").and_then(|data| data.get_str("code")).unwrap_or_default(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_order_of_policies_never_changes_a_verdict() {
    let cases: [(&[&str], &str); 9] = [
        (&[PASS], "ok"),
        (&[DENY, ASK, PASS], "rule"),
        (&[PASS, ASK, DENY], "rule"),
        (&[ASK, PASS], "approval-expired"),
        (&[PASS, ASK], "approval-expired"),
        (&[PASS, TRAP], "plugin-trap"),
        (&[TRAP, PASS], "plugin-trap"),
        (&[ASK, LOOP], "plugin-deadline"),
        (&[SHADOW, PASS], "ok"),
    ];
    for (policies, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let broker = broker(folder.path(), policies).await;
        let found = add(&session(&broker).await, r#"{"a":1,"b":2}"#).await;
        broker.close().await;
        assert_eq!(found, expected, "{policies:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_is_in_the_ledger_before_and_after_it_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let broker = broker(folder.path(), &[PASS]).await;
    let data_dir = broker.config().data_dir.clone();
    let session = session(&broker).await;
    assert_eq!(add(&session, r#"{"a":1,"b":2}"#).await, "ok");
    // Two meanings for one name: a policy might read the first and a source the second.
    assert_eq!(add(&session, r#"{"a":1,"b":2,"a":3}"#).await, "arguments-ambiguous");
    session.close().await;
    broker.close().await;

    let entries = Reader::open(&data_dir).unwrap().tail(100, &Filter::default()).unwrap();
    let kinds: Vec<_> = entries.iter().map(|entry| serde_json::to_value(entry).unwrap()["kind"].clone()).collect();
    let expected = json!([
        "broker.started",
        "run.started",
        "mcp.connected",
        "call.intent",
        "tool.completed",
        "call.denied",
        "run.completed",
        "broker.stopped"
    ]);
    assert_eq!(json!(kinds), expected);
    let all = serde_json::to_string(&entries).unwrap();
    assert!(!all.contains(r#""a":1"#), "arguments are kept as shape and hash: {all}");
    assert_eq!(ledger::verify(&data_dir).unwrap().verdict, Verdict::Good);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_of_each_call_is_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let deny = r#"{ plugin = "builtin:rules", settings = { deny = ["calc__multiply"] } }"#;
    let broker = broker(folder.path(), &[deny, SHADOW]).await;
    let session = session(&broker).await;
    for (tool, b) in [("add", 2), ("add", 3), ("divide", 0), ("multiply", 1), ("power", 1)] {
        let params = json!({ "name": format!("calc__{tool}"), "arguments": { "a": 1, "b": b } });
        session.call_tool(Json::of(&params), Arc::new(Nobody)).await;
    }
    session.close().await;
    let text = broker.metrics();
    for line in [
        r#"mcp_client_operation_duration_seconds_count{source="calc",method="tools/call",tool="calc__add",outcome="ok"} 2"#,
        r#"mcp_client_operation_duration_seconds_count{source="calc",method="tools/call",tool="calc__divide",outcome="tool_error"} 1"#,
        r#"portcullis_calls_denied_total{source="calc",method="tools/call",tool="calc__multiply"} 1"#,
        r#"portcullis_calls_denied_total{source="calc",method="tools/call",tool="calc__add"} 0"#,
        r#"portcullis_plugin_decision_duration_seconds_count{role="policy",plugin="builtin:rules",place="1",verdict="deny"} 1"#,
        r#"portcullis_plugin_decision_duration_seconds_count{role="policy",plugin="builtin:rules",place="2",verdict="deny"} 2"#,
        r#"mcp_server_session_duration_seconds_count 1"#,
        r#"portcullis_source_tools{source="calc"} 4"#,
        r#"portcullis_source_state{source="calc",state="ready"} 1"#,
        r#"portcullis_source_state{source="calc",state="failed"} 0"#,
        r#"portcullis_open_approvals 0"#,
        r#"portcullis_sessions 0"#,
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("calc__power") && !text.contains(r#"method="tools/list""#), "{text}");
    let appended = text.lines().find_map(|line| line.strip_prefix("portcullis_ledger_append_duration_seconds_count "));
    assert!(appended.unwrap().parse::<u64>().unwrap() >= 4, "{text}");
    broker.close().await;
}
