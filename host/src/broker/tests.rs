#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod continuations;
mod embedding;
mod interrupted;
mod mounted;
mod natives;
mod questions;
mod seen;
mod tasks;

use std::sync::Arc;
use std::time::Duration;

use portcullis_jail::Launcher;
use serde_json::json;

use crate::agent::NoAgent;
use crate::broker::{Broker, BuildError};
use crate::config::Config;
use crate::ledger::{self, ChainStatus, LedgerReader, RecordFilter};
use crate::protocol::{Answer, Json, RpcError};
use crate::session::Session;

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
    broker.open_session(&"default".parse().unwrap(), &"me".parse().unwrap(), "test").await.unwrap()
}

/// Calls the tool, and returns `ok` or the code of the refusal.
async fn add(session: &Arc<Session>, arguments: &str) -> String {
    let params = format!(r#"{{"name":"calc__add","arguments":{arguments}}}"#);
    match session.request("tools/call", Json::parse(params).unwrap(), Arc::new(NoAgent)).await {
        Answer::Result(_) => "ok".to_owned(),
        Answer::Error(error) => error.get("data").and_then(|data| data.get_str("code")).unwrap_or_default(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_removes_records_that_are_older_than_the_configuration_says() {
    let folder = tempfile::tempdir().unwrap();
    let first = broker(folder.path(), &[PASS]).await;
    first.shutdown().await;
    let mut config = Config::clone(&first.config());
    config.ledger.retention = Some(Duration::ZERO);
    let next = Broker::build(config, Launcher::SelfExec).await.unwrap();
    let filter = RecordFilter { kind: Some("records.removed".to_owned()), ..RecordFilter::default() };
    let mut removals = LedgerReader::open(&next.config().data_dir).unwrap().follow(0, filter);
    let removed = removals.next().await.unwrap();
    assert_eq!(removed[0].record.body["chain"], first.chain());
    next.shutdown().await;
    let found = ledger::verify(&next.config().data_dir).unwrap();
    assert_eq!(found.verdict, ChainStatus::Good);
    assert_eq!(found.chains[0].removed, found.chains[0].records);
}

#[cfg(feature = "process")]
#[tokio::test(flavor = "multi_thread")]
async fn a_program_beside_its_configuration_is_the_same_source_in_every_folder() {
    let identity = async |command: &'static str| {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("[sources.own]\ncommand = [\"{command}\"]\ncwd = \".\"\n");
        let config = Config::parse(&text, &folder.path().join("portcullis.toml")).unwrap();
        let broker = Broker::build(config, Launcher::SelfExec).await.unwrap();
        let identity = broker.identity(&"own".parse().unwrap()).unwrap();
        broker.shutdown().await;
        identity
    };
    let own = identity("./server").await;
    assert_eq!(own, identity("./server").await);
    for other in ["./other", "/srv/server", "server"] {
        assert_ne!(own, identity(other).await, "{other}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_writes_its_configuration_and_is_told_what_is_wrong_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let calc = json!({ "component": "builtin:calculator", "priority": 70 });
    let away = |name: &str| json!({ "url": format!("http://127.0.0.1:9/{name}"), "required": false, "dangerous-allow-private": true });
    let config = Config::builder(folder.path()).source("calc", calc).source("away", away("a"));
    let config = config.policy(json!({ "plugin": "builtin:rules", "settings": { "deny": ["calc__divide"] } }));
    let broker = Broker::build(config.build().unwrap(), Launcher::SelfExec).await.unwrap();
    assert_eq!(broker.config().data_dir, folder.path().join(".portcullis"));

    let failed = broker.connect_all().await.unwrap();
    assert_eq!(failed.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["away"]);
    assert_eq!(broker.state().total_tools, 4);
    let session = session(&broker).await;
    let tools = session.discover().await.unwrap();
    let add = tools.iter().find(|tool| tool.name == "calc__add").unwrap();
    assert_eq!((add.source.as_str(), add.priority, &add.group), ("calc", 70, &None));
    assert!(!add.description.is_empty() && add.input_schema.get("properties").is_some(), "{add:?}");
    let sum = session.call_tool("calc__add", &json!({ "a": 20, "b": 22 })).await.unwrap();
    assert!(sum.text().contains("42"), "{sum:?}");
    let denied = session.call_tool("calc__divide", &json!({ "a": 1, "b": 2 })).await.unwrap_err();
    assert_eq!((denied.code, &denied.data.unwrap()["code"]), (RpcError::DENIED, &json!("rule")));
    let unknown = session.call_tool("calc__none", &json!({})).await.unwrap_err();
    assert_eq!(unknown.code, RpcError::INVALID_PARAMS, "{unknown}");
    broker.shutdown().await;

    let config = Config::builder(folder.path()).source("one", away("1")).source("two", away("2"));
    let broker = Broker::build(config.build().unwrap(), Launcher::SelfExec).await.unwrap();
    let none = broker.connect_all().await.unwrap_err().to_string();
    assert!(none.contains("`one`: ") && none.contains("`two`: "), "{none}");
    broker.shutdown().await;

    let empty = Config::builder(folder.path()).build().unwrap();
    assert!(matches!(Broker::build(empty, Launcher::SelfExec).await, Err(BuildError::NoSources)));
    for (table, complaint) in [
        (json!({ "component": "builtin:calculator", "priority": 101 }), "`priority = 101` is out of range"),
        (json!({ "componet": "builtin:calculator" }), "componet"),
        (json!({ "component": null }), ""),
        (json!("calc"), "calc"),
    ] {
        let error = Config::builder(folder.path()).source("calc", table).build().unwrap_err().to_string();
        assert!(error.contains(complaint), "{error}");
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
        broker.shutdown().await;
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
    broker.shutdown().await;

    let entries = LedgerReader::open(&data_dir).unwrap().tail(100, &RecordFilter::default()).unwrap();
    let kinds: Vec<_> = entries.iter().map(|entry| serde_json::to_value(entry).unwrap()["kind"].clone()).collect();
    let expected = json!([
        "broker.started",
        "run.started",
        "mcp.connected",
        "definition.called",
        "call.intent",
        "tool.completed",
        "call.denied",
        "run.completed",
        "broker.stopped"
    ]);
    assert_eq!(json!(kinds), expected);
    let all = serde_json::to_string(&entries).unwrap();
    assert!(!all.contains(r#""a":1"#), "arguments are kept as shape and hash: {all}");
    assert_eq!(ledger::verify(&data_dir).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_of_each_call_is_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let deny = r#"{ plugin = "builtin:rules", settings = { deny = ["calc__multiply"] } }"#;
    let broker = broker(folder.path(), &[deny, SHADOW]).await;
    let session = session(&broker).await;
    for (tool, b) in [("add", 2), ("add", 3), ("divide", 0), ("multiply", 1), ("power", 1)] {
        let _ = session.call_tool(&format!("calc__{tool}"), &json!({ "a": 1, "b": b })).await;
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
    // The refusal was waited for, and no intent: the component can have no effect.
    assert!(appended.unwrap().parse::<u64>().unwrap() >= 1, "{text}");
    broker.shutdown().await;
}

/// This test's own program has no `main` that becomes the launcher, as a program that forgets `main_if_asked` has none.
#[cfg(all(feature = "process", target_os = "linux"))]
#[tokio::test(flavor = "multi_thread")]
async fn a_source_whose_launcher_forgets_its_task_says_what_main_must_call() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::builder(folder.path()).source("true", json!({ "command": ["/bin/true"] }));
    let broker = Broker::build(config.build().unwrap(), Launcher::SelfExec).await.unwrap();
    let why = broker.connect_all().await.unwrap_err().to_string();
    assert!(why.contains("portcullis::main_if_asked()"), "{why}");
    broker.shutdown().await;
}

/// The test executes its own program as the broker does with a launcher; the program then has this one test to run.
#[cfg(all(feature = "process", target_os = "linux"))]
#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "a test executes itself")]
async fn a_program_that_was_started_as_the_launcher_builds_no_broker() {
    let folder = tempfile::tempdir().unwrap();
    let build = async |launcher| broker_launched_by(folder.path(), launcher).await.map(drop);
    if portcullis_jail::was_asked() {
        let refused = build(Launcher::SelfExec).await.unwrap_err();
        assert!(matches!(refused, BuildError::LauncherForgotten), "{refused}");
        assert!(build(Launcher::Path("/usr/bin/portcullis-jail".into())).await.is_ok());
        return;
    }
    let mut again = tokio::process::Command::new(std::env::current_exe().unwrap());
    let name = "broker::tests::a_program_that_was_started_as_the_launcher_builds_no_broker";
    let ran = again.args(["__jail", name, "--exact"]).output().await.unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
    assert!(build(Launcher::SelfExec).await.is_ok());
}

async fn broker_launched_by(folder: &std::path::Path, launcher: Launcher) -> Result<Broker, BuildError> {
    let config = Config::parse("[sources.calc]\ncomponent = \"builtin:calculator\"", &folder.join("portcullis.toml"));
    Broker::build(config.unwrap(), launcher).await
}
