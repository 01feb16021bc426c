//! Sources that are silent, slow or failing, and sessions that are abandoned.

use std::fs;

use serde_json::{Value, json};

use super::sized;
use crate::agent::{Agent, Era, Running};
use crate::recovery::write;
use crate::test_dir::{DEADLINE, TestDir, until};
use crate::web::{Server, Session};

const NEVER: &str = "[profiles.default]\napprove = \"never\"\n";
const CALC: &str = "[sources.calc]\ncomponent = \"builtin:calculator\"\n";
const CHANGED: &str = "notifications/tools/list_changed";

/// Returns the configuration of a source in its cell that follows the script of its name.
fn source(name: &str, more: &str) -> String {
    format!("[sources.{name}]\ncommand = [\"@source@\", \"faulty\", \"@dir@/open/{name}\"]\n@cell@\n{more}\n")
}

fn tools(session: &mut Session) -> Value {
    let answer = session.send("tools/list", json!({})).unwrap().answer().unwrap();
    match answer["result"]["tools"].as_array() {
        Some(tools) => tools.iter().map(|tool| tool["name"].clone()).collect(),
        None => answer,
    }
}

#[test]
fn a_silent_source_is_restarted_and_no_session_waits_for_it() {
    let dir = TestDir::new(&format!("{}{NEVER}", source("files", "timeout = \"2s\"")));
    write(&dir, "files", "mute\nwell");
    let server = Server::start(&dir);
    let mut first = server.endpoint.session(&json!({}));
    for call in 1..=3 {
        let said = first.call("files__echo", &json!({ "n": 1 })).unwrap();
        assert_eq!(said["refused"], "outcome-unknown", "call {call}: {said}");
    }
    // The source still runs, and the broker is checking it with `ping`.
    let mut second = server.endpoint.session(&json!({}));
    assert_eq!(tools(&mut second), json!(["files__echo"]));
    until("the source is there again", || second.call("files__echo", &json!({ "n": 2 })).unwrap()["ok"].is_string());
    let (code, err) = server.running.end_by(rustix::process::Signal::TERM);
    assert_eq!(code, Some(0), "{err}");
    let causes: Vec<_> = dir.records_of("source.state").iter().map(|record| record["body"]["cause"].clone()).collect();
    let told = |part: &str| causes.iter().any(|cause| cause.as_str().unwrap().contains(part));
    assert!(told("3 requests in a row had no answer in time; no answer to `ping`"), "{causes:?}");
    assert_eq!(dir.records_of("source.started").len(), 2);
    dir.assert_nothing_left();
}

#[test]
fn a_silent_optional_source_is_left_out_and_delays_no_session() {
    let dir = TestDir::new(&format!("{CALC}{}{NEVER}", source("slow", "required = false")));
    // It never answers the handshake.
    write(&dir, "slow", "hang-initialize");
    let server = Server::start(&dir);
    for session in 0..2 {
        let mut agent = server.endpoint.session(&json!({}));
        assert_eq!(agent.call("calc__add", &json!({ "a": 1, "b": 2 })), Some(json!({ "ok": "3" })));
        if session == 0 {
            let states = dir.records_of("source.state");
            assert!(states.iter().all(|record| record["body"]["to"] == "starting"), "it still hangs: {states:?}");
        }
    }
    assert!(dir.records_of("run.error").is_empty());
    drop(server);
}

#[test]
fn a_slow_optional_source_is_added_when_it_is_ready_and_the_agent_is_notified() {
    for era in [Era::Legacy, Era::Modern] {
        let dir = TestDir::new(&format!("{CALC}{}{NEVER}", source("slow", "required = false")));
        write(&dir, "slow", "waits");
        let mut agent = Agent::alone(&dir, era);
        let before = agent.list();
        assert!(before["tools"].as_array().unwrap().iter().all(|name| name.as_str().unwrap().starts_with("calc__")));
        if era == Era::Modern {
            let offers = agent.request("server/discover", json!({}));
            assert_eq!(offers["result"]["capabilities"]["tools"]["listChanged"], true, "{offers}");
            agent.send("subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } }));
            let acknowledged = agent.next().unwrap();
            assert_eq!(acknowledged["params"]["notifications"]["toolsListChanged"], true, "{acknowledged}");
        }
        fs::write(dir.path("open/slow.go"), "").unwrap();
        let told = agent.next().unwrap();
        assert_eq!(told["method"], CHANGED, "{told}");
        assert!(agent.list()["tools"].as_array().unwrap().contains(&json!("slow__echo")));
        assert!(agent.call("slow__echo", &json!({ "n": 1 }), None)["ok"].is_string());
        agent.leave();
        let changes = dir.records_of("list.changed");
        assert_eq!(changes[0]["body"], json!({ "added": ["slow__echo"], "removed": [], "changed": [] }));
        dir.assert_nothing_left();
    }
}

#[test]
fn initialize_declares_list_changes_while_an_optional_source_is_starting() {
    let dir = TestDir::new(&format!("{CALC}{}{NEVER}", source("slow", "required = false")));
    write(&dir, "slow", "waits");
    let mut broker = Running::start(dir.command(&["serve", "--stdio"]));
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "suite" } });
    broker.write(&json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }).to_string());
    let answer: Value = serde_json::from_str(&broker.out.recv_timeout(DEADLINE).unwrap()).unwrap();
    assert_eq!(answer["result"]["capabilities"]["tools"]["listChanged"], true, "{answer}");
    fs::write(dir.path("open/slow.go"), "").unwrap();
    broker.end();
}

#[test]
fn a_list_change_of_one_source_does_not_wait_for_a_silent_one() {
    let live = "discovery = \"live\"";
    let dir = TestDir::new(&format!("{}{}{NEVER}", source("files", live), source("silent", live)));
    write(&dir, "files", "restless");
    write(&dir, "silent", "mute");
    let mut agent = Agent::alone(&dir, Era::Legacy);
    assert_eq!(agent.list(), json!({ "tools": ["files__echo", "files__number-1", "silent__echo"] }));
    assert!(agent.call("files__echo", &json!({ "n": 1 }), None)["ok"].is_string());
    let told = agent.next().unwrap();
    assert_eq!(told["method"], CHANGED, "{told}");
    assert_eq!(agent.list(), json!({ "tools": ["files__echo", "files__number-2", "silent__echo"] }));
    let waited: Vec<_> =
        agent.running.err.try_iter().filter(|line| line.contains("did not list its tools again")).collect();
    assert!(waited.is_empty(), "{waited:?}");
    agent.leave();
    dir.assert_nothing_left();
}

#[test]
fn abandoned_http_sessions_do_not_lock_out_new_ones() {
    let dir = TestDir::new(&format!("{}{NEVER}", source("files", "")));
    write(&dir, "files", "logs");
    let server = Server::start(&dir);
    for capabilities in [json!({}), json!({ "elicitation": {} })] {
        for _ in 0..sized(150, 5_000) {
            let _abandoned = server.endpoint.session(&capabilities);
        }
    }
    for capabilities in [json!({}), json!({ "elicitation": {} })] {
        let mut next = server.endpoint.session(&capabilities);
        assert_eq!(tools(&mut next), json!(["files__echo"]));
        assert!(next.call("files__echo", &json!({ "n": 1 })).unwrap()["ok"].is_string());
    }
    let processes = dir.processes().iter().filter(|process| process.contains("faulty")).count();
    assert!(processes < 100, "{processes} processes for sessions of which two were used");
    drop(server);
}

#[test]
fn the_operator_restarts_a_source_of_a_running_broker() {
    let dir = TestDir::new(&format!("{CALC}{}{NEVER}", source("files", "")));
    assert!(dir.run(&["restart", "files"]).err.contains("no broker runs here"));
    let mut agent = Agent::alone(&dir, Era::Modern);
    assert!(agent.call("files__echo", &json!({ "n": 1 }), None)["ok"].is_string());
    let ran = dir.run(&["restart", "files"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    assert!(ran.out.starts_with("files  broker ") && ran.out.trim_end().ends_with("ready"), "{}", ran.out);
    assert!(agent.call("files__echo", &json!({ "n": 2 }), None)["ok"].is_string());
    let unknown = dir.run(&["restart", "fles"]);
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.err.contains("its sources are `calc`, `files`"), "{}", unknown.err);
    assert!(dir.run(&["restart", "calc"]).out.contains("nothing to restart"));
    agent.leave();
    let states = dir.records_of("source.state");
    assert!(
        states.iter().any(|record| record["body"]["cause"].as_str().unwrap().starts_with("restarted by cli (uid "))
    );
    let of_files = dir.records_of("source.started").into_iter().filter(|record| record["body"]["source"] == "files");
    assert_eq!(of_files.count(), 2);
    dir.assert_nothing_left();
}
