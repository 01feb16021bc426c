//! Sources that fail, and brokers that end, while calls are in flight.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent::{Agent, ERAS, Era, outcome};
use crate::test_dir::{TestDir, finish, until};
use crate::web::Server;

const NEVER: &str = "[profiles.default]\napprove = \"never\"\n";

fn files(mode: &str, more: &str) -> String {
    format!("[sources.files]\ncommand = [\"@source@\", \"{mode}\"]\n@cell@\n{more}\n{NEVER}")
}

/// Creates a named pipe that keeps a call of the tool `gate` in flight until it is written.
pub(crate) fn gate(dir: &TestDir) -> PathBuf {
    let path = dir.path("open/gate");
    let mut command = Command::new("mkfifo");
    command.arg(&path);
    dir.prepare(&mut command);
    assert_eq!(finish(command).code, Some(0));
    path
}

/// Opens the pipe for writing, which waits until the call is at the source.
pub(crate) fn arrived(gate: &PathBuf) -> fs::File {
    OpenOptions::new().write(true).open(gate).unwrap()
}

#[test]
fn a_source_that_crashes_during_a_call_leaves_an_unknown_outcome_and_is_restarted() {
    for era in ERAS {
        let dir = TestDir::new(&files("plain", ""));
        let mut agent = Agent::start(&dir, era);
        let lost = agent.call("files__exit", &json!({}), None);
        assert_eq!(lost["refused"], "outcome-unknown", "{lost}");
        let next = agent.call("files__add", &json!({ "a": 1, "b": 2 }), None);
        assert_eq!(next, json!({ "ok": "3" }), "the next call starts it again");
        agent.leave();
        let intents = dir.records_of("call.intent");
        assert_eq!(dir.state_of(&intents[0]["call"]), "unknown");
        assert_eq!(dir.state_of(&intents[1]["call"]), "done");
        dir.assert_nothing_left();
    }
}

#[test]
fn the_error_of_a_crashed_source_quotes_its_stderr() {
    let dir = TestDir::new(&files("exit-mid-call", ""));
    let mut agent = Agent::start(&dir, Era::Modern);
    for _ in 0..2 {
        let lost = agent.call("files__echo", &json!({}), None);
        assert_eq!(lost["refused"], "outcome-unknown", "{lost}");
        assert!(lost["message"].as_str().unwrap().contains("the worst moment"), "{lost}");
    }
    agent.leave();
    dir.assert_nothing_left();
}

#[test]
fn a_call_that_hangs_ends_at_its_timeout_and_does_not_delay_others() {
    let dir = TestDir::new(&files("plain", "timeout = \"3s\""));
    let mut agent = Agent::start(&dir, Era::Modern);
    // The time of a call includes the start of its source.
    agent.list();
    let hanging = agent.send_call("files__hang", &json!({}));
    let quick = agent.send_call("files__add", &json!({ "a": 1, "b": 2 }));
    assert_eq!(outcome(&agent.answer(quick, None)), json!({ "ok": "3" }));
    let hung = outcome(&agent.answer(hanging, None));
    assert_eq!(hung["refused"], "outcome-unknown", "{hung}");
    // The source got the cancellation.
    let cancelled = agent.call("files__cancelled", &json!({}), None);
    assert_ne!(cancelled, json!({ "ok": "[]" }), "{cancelled}");
    agent.leave();
    dir.assert_nothing_left();
}

#[test]
fn a_program_that_floods_before_the_handshake_fails_discovery() {
    let dir = TestDir::new(&files("flood", "required = true"));
    let mut agent = Agent::start(&dir, Era::Legacy);
    let listed = agent.list();
    assert_eq!(listed["refused"], "discovery-failed", "{listed}");
    agent.leave();
    dir.assert_nothing_left();
}

#[test]
fn a_line_over_the_limit_fails_the_call_and_the_broker_goes_on() {
    let dir = TestDir::new(&files("plain", ""));
    let mut agent = Agent::start(&dir, Era::Modern);
    let whole = agent.call("files__big", &json!({ "bytes": 1 << 20 }), None);
    assert_eq!(whole["ok"].as_str().unwrap().len(), 1 << 20);
    let over = agent.call("files__big", &json!({ "bytes": (64 << 20) + 1 }), None);
    assert!(over["refused"].is_string(), "{over}");
    assert_eq!(agent.call("files__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }));
    agent.leave();
    dir.assert_nothing_left();
}

#[test]
fn a_source_inherits_neither_environment_nor_descriptors_of_the_broker() {
    let dir = TestDir::new(&files("plain", "env = { LISTED = \"yes\" }"));
    let mut command = dir.command(&["serve", "--stdio"]);
    command.env("SECRET_OF_THE_SHELL", "hunter2");
    let mut agent = Agent::of(command, Era::Modern, json!({}));
    let seen = agent.call("files__look", &json!({}), None);
    let seen: Value = serde_json::from_str(seen["ok"].as_str().unwrap()).unwrap();
    let names: Vec<_> = seen["environment"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(names, ["HOME", "LANG", "LISTED", "PATH", "TMPDIR"]);
    assert_eq!(seen["descriptors"], json!([0, 1, 2]));
    assert_eq!(seen["group"], seen["pid"], "a process group of its own");
    agent.leave();
}

#[test]
fn sigterm_lets_calls_in_flight_finish_over_http() {
    let dir = TestDir::new(&files("plain", ""));
    let gate = gate(&dir);
    let server = Server::start(&dir);
    let mut session = server.endpoint.session(&json!({}));
    let path = gate.display().to_string();
    let call = std::thread::spawn(move || session.call("files__gate", &json!({ "path": path })));
    let mut open = arrived(&gate);
    server.running.signal(Signal::TERM);
    until("it listens no more", || TcpStream::connect(&server.endpoint.address).is_err());
    open.write_all(b"at last").unwrap();
    drop(open);
    assert_eq!(call.join().unwrap(), Some(json!({ "ok": "at last" })));
    let (code, err) = server.running.end();
    assert_eq!(code, Some(0), "{err}");
    dir.assert_nothing_left();
    assert_eq!(dir.state_of(&dir.records_of("call.intent")[0]["call"]), "done");
}

#[test]
fn sigterm_ends_a_broker_over_stdio_and_a_source_that_ignores_it() {
    let dir = TestDir::new("");
    let child = dir.path("open/child");
    dir.configure(&format!(
        "[sources.stubborn]\ncommand = [\"@source@\", \"ignores-term\", \"{}\"]\n@cell@\n{NEVER}",
        child.display()
    ));
    let mut agent = Agent::start(&dir, Era::Modern);
    assert_eq!(agent.call("stubborn__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }));
    agent.running.signal(Signal::TERM);
    let (code, err) = agent.running.ended();
    assert_eq!(code, Some(0), "{err}");
    dir.assert_nothing_left();
}

/// Each agent has a broker of its own; the ledger, the inbox and the status are shared.
#[test]
fn two_brokers_share_a_data_folder() {
    let dir = TestDir::new("[sources.files]\ncommand = [\"@source@\", \"plain\"]\n@cell@\n");
    let mut agents = [Agent::alone(&dir, Era::Legacy), Agent::alone(&dir, Era::Modern)];
    let ids: Vec<_> = agents
        .iter_mut()
        .enumerate()
        .map(|(n, agent)| agent.send_call("files__add", &json!({ "a": n, "b": 1 })))
        .collect();
    let questions: Vec<_> = agents.iter().map(Agent::question).collect();
    let status: Value = serde_json::from_str(&dir.run(&["status", "--json"]).out).unwrap();
    assert_eq!(status.as_array().unwrap().len(), 2);
    let listed: Value = serde_json::from_str(&dir.run(&["approvals", "list", "--json"]).out).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    for (n, (agent, id)) in agents.iter_mut().zip(ids).enumerate() {
        let ran = dir.run(&["approvals", "approve", &questions[n]]);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        assert_eq!(outcome(&agent.answer(id, None)), json!({ "ok": (n + 1).to_string() }));
    }
    dir.assert_good();
    agents.into_iter().for_each(Agent::leave);
    dir.assert_nothing_left();
    let mut chains: Vec<_> = dir.records().iter().map(|record| record["chain"].to_string()).collect();
    chains.sort();
    chains.dedup();
    assert_eq!(chains.len(), 2, "each wrote its own chain");
}
