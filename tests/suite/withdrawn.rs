//! Open calls of a caller that may have nothing any more: its token or its profile leaves the configuration.

use std::net::TcpListener;
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};

use crate::agent::{Agent, Era, outcome};
use crate::recovery::write;
use crate::reload::{CALC, NEVER, reload};
use crate::test_dir::{TestDir, until};
use crate::web::{Endpoint, Server};

const SOURCE: &str = "[sources.s]\ncommand = [\"@source@\", \"plain\"]\n";

/// Begins a modern call whose answer is awaited by a thread.
fn begin(endpoint: &Endpoint, tool: &str) -> JoinHandle<Value> {
    let (endpoint, call) = (endpoint.clone(), json!({ "name": tool, "arguments": {} }));
    thread::spawn(move || outcome(&endpoint.modern("tools/call", call).unwrap()))
}

fn questions(dir: &TestDir) -> usize {
    serde_json::from_str::<Vec<Value>>(&dir.run(&["approvals", "--json"]).out).unwrap().len()
}

fn assert_ended(call: JoinHandle<Value>) {
    let answer = call.join().unwrap();
    assert!(answer.to_string().contains("this session has ended, and its open requests with it"), "{answer}");
}

#[test]
fn the_calls_of_a_caller_whose_token_is_withdrawn_end_with_its_session_also_those_that_wait_for_a_person() {
    let caller = |name: &str, profile: &str| {
        format!("[serve.callers.{name}]\ntoken = \"the-token-of-{name}\"\nprofile = \"{profile}\"\n")
    };
    let profiles = "[profiles.default]\napprove = \"never\"\n[profiles.careful]\napprove = \"always\"\n";
    let before = format!("{SOURCE}{profiles}{}{}", caller("bob", "default"), caller("eve", "careful"));
    let dir = TestDir::new(&before);
    let server = Server::start(&dir);
    let [bob, eve] = ["bob", "eve"].map(|name| server.endpoint.with_token(&format!("the-token-of-{name}")));
    let (running, waiting) = (begin(&bob, "s__hang"), begin(&eve, "s__echo"));
    until("the call and the question", || dir.records_of("call.intent").len() == 1 && questions(&dir) == 1);

    dir.configure(&format!("{SOURCE}{profiles}"));
    server.running.says("the configuration is reloaded");
    assert_ended(running);
    assert_ended(waiting);
    let asked = dir.records_of("call.asked")[0]["body"]["question"].as_str().unwrap().to_owned();
    assert_eq!(dir.run(&["approvals", "approve", &asked]).code, Some(0));
    assert_eq!(bob.get("/mcp").0, "401");
    assert_eq!(server.running.end_by(rustix::process::Signal::TERM).0, Some(0));
    let completed = dir.records_of("tool.completed");
    let outcomes: Vec<_> = completed.iter().map(|record| &record["body"]["outcome"]).collect();
    assert_eq!(outcomes, ["unknown"], "what was approved too late does not run: {completed:?}");
}

#[test]
fn the_call_of_a_withdrawn_caller_ends_although_it_holds_no_connection() {
    let careful = "[profiles.careful]\napprove = \"always\"\n";
    let eve = "[serve.callers.eve]\ntoken = \"the-token-of-eve\"\nprofile = \"careful\"\n";
    let dir = TestDir::new(&format!("{SOURCE}{careful}{eve}"));
    let server = Server::start(&dir);
    let mut session = server.endpoint.with_token("the-token-of-eve").session(&json!({}));
    // The call continues without its stream, and a person is asked about it.
    drop(session.send_call("s__echo", &json!({})));
    until("the question", || questions(&dir) == 1);

    dir.configure(&format!("{SOURCE}{careful}"));
    server.running.says("the configuration is reloaded");
    until("the end of the session", || dir.records_of("run.completed").len() == 1);
    let asked = dir.records_of("call.asked")[0]["body"]["question"].as_str().unwrap().to_owned();
    assert_eq!(dir.run(&["approvals", "approve", &asked]).code, Some(0));
    assert_eq!(server.running.end_by(rustix::process::Signal::TERM).0, Some(0));
    let intents = dir.records_of("call.intent");
    assert!(intents.is_empty(), "what was approved too late does not run: {intents:?}");
}

#[test]
fn a_list_that_a_withdrawn_caller_waits_for_is_not_answered() {
    let slow = "[sources.slow]\ncommand = [\"@source@\", \"faulty\", \"@dir@/open/slow\"]\n@cell@\nrequired = true\n";
    let bob = "[serve.callers.bob]\ntoken = \"the-token-of-bob\"\nprofile = \"default\"\n";
    let dir = TestDir::new(&format!("{slow}{bob}"));
    write(&dir, "slow", "waits");
    let server = Server::start(&dir);
    let endpoint = server.endpoint.with_token("the-token-of-bob");
    let listed = thread::spawn(move || endpoint.modern("tools/list", json!({})).unwrap());
    until("the source is asked", || !dir.records_of("source.started").is_empty());
    dir.configure(slow);
    server.running.says("the configuration is reloaded");
    let answer = listed.join().unwrap().to_string();
    assert!(answer.contains("this session has ended, and its open requests with it"), "{answer}");
    assert_eq!(server.running.end_by(rustix::process::Signal::TERM).0, Some(0));
}

#[test]
fn the_calls_under_a_profile_that_is_removed_end_with_it() {
    let profile = "[profiles.rev]\napprove = \"never\"\n";
    let dir = TestDir::new(&format!("{SOURCE}{profile}"));
    let server = Server::of(dir.command(&["serve", "--listen", "127.0.0.1:0", "--profile", "rev"]), &dir);
    let modern = begin(&server.endpoint, "s__hang");
    let mut session = server.endpoint.session(&json!({}));
    let mut listening = session.listen().unwrap();
    let legacy = thread::spawn(move || session.call("s__hang", &json!({})).unwrap());
    until("both calls", || dir.records_of("call.intent").len() == 2);

    dir.configure(SOURCE);
    server.running.says("the configuration is reloaded");
    assert_ended(modern);
    assert_ended(legacy);
    assert_eq!(listening.next(), None, "its stream ends, too");
    assert_eq!(server.running.end_by(rustix::process::Signal::TERM).0, Some(0));
}

#[test]
fn what_a_user_takes_back_is_in_force_although_what_was_added_before_is_still_loading() {
    // Takes connections, and never answers.
    let registry = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = registry.local_addr().unwrap();
    let bob = "[serve.callers.bob]\ntoken = \"the-token-of-bob\"\nprofile = \"default\"\n";
    let dir = TestDir::new(&format!("{SOURCE}{bob}"));
    let server = Server::start(&dir);
    let digest = "0".repeat(64);
    let slow = format!("[sources.slow]\ncomponent = \"oci://{address}/slow@sha256:{digest}\"\n");
    dir.configure(&format!("{SOURCE}{bob}{slow}"));
    let asked = registry.accept().unwrap();

    dir.configure(SOURCE);
    server.running.says("the newer one is loaded instead");
    server.running.says("the configuration is reloaded");
    let of_bob = server.endpoint.with_token("the-token-of-bob");
    until("the token is withdrawn", || of_bob.get("/mcp").0 == "401");
    drop(asked);
    assert_eq!(server.running.end_by(rustix::process::Signal::TERM).0, Some(0));
}

#[test]
fn what_a_person_approves_is_not_sent_if_the_configuration_denies_it_by_then() {
    let rules =
        |list: &str| format!("{SOURCE}[[policies]]\nplugin = \"builtin:rules\"\nsettings.{list} = [\"s__echo\"]\n");
    let dir = TestDir::new(&rules("ask"));
    let server = Server::start(&dir);
    let denied = begin(&server.endpoint, "s__echo");
    until("the question", || questions(&dir) == 1);
    dir.configure(&rules("deny"));
    server.running.says("the configuration is reloaded");
    approve_last(&dir, 1);
    let answer = denied.join().unwrap().to_string();
    assert!(answer.contains("denied by the rule"), "{answer}");

    dir.configure(&rules("ask"));
    server.running.says("the configuration is reloaded");
    let removed = begin(&server.endpoint, "s__echo");
    until("the question", || questions(&dir) == 1);
    dir.configure("[sources.t]\ncommand = [\"@source@\", \"plain\"]\n");
    server.running.says("the configuration is reloaded");
    approve_last(&dir, 2);
    let answer = removed.join().unwrap().to_string();
    assert!(answer.contains("does not offer this any more"), "{answer}");
    assert_eq!(server.running.end_by(rustix::process::Signal::TERM).0, Some(0));
    assert!(dir.records_of("call.intent").is_empty());
}

#[test]
fn the_last_source_of_a_broker_that_runs_can_be_disabled() {
    let dir = TestDir::new(&format!("{SOURCE}[profiles.default]\napprove = \"never\"\n"));
    let server = Server::start(&dir);
    let mut session = server.endpoint.session(&json!({}));
    assert!(session.call("s__echo", &json!({})).unwrap()["ok"].is_string());
    assert_eq!(dir.run(&["disable", "s"]).code, Some(0));
    server.running.says("the configuration is reloaded");
    let answer = session.call("s__echo", &json!({})).unwrap();
    assert!(answer["ok"].is_null(), "{answer}");
    assert_eq!(server.running.end_by(rustix::process::Signal::TERM).0, Some(0));
}

/// Approves the last of this many questions.
fn approve_last(dir: &TestDir, asked: usize) {
    let questions = dir.records_of("call.asked");
    assert_eq!(questions.len(), asked);
    let last = questions[asked - 1]["body"]["question"].as_str().unwrap();
    assert_eq!(dir.run(&["approvals", "approve", last]).code, Some(0));
}

#[test]
fn a_session_whose_profile_is_removed_ends() {
    let dir = TestDir::new(&format!("{NEVER}[profiles.other]\napprove = \"never\"\n{CALC}"));
    let command = dir.command(&["serve", "--stdio", "--no-watch", "--profile", "other"]);
    let mut agent = Agent::of(command, Era::Legacy, json!({}));
    assert_eq!(agent.call("calc__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }));
    reload(&dir, &agent.running, &format!("{NEVER}{CALC}"));
    let answer = agent.call("calc__add", &json!({ "a": 1, "b": 2 }), None);
    assert_eq!(answer["message"], "this session has ended", "{answer}");
    for method in ["tools/list", "prompts/list", "resources/templates/list", "tasks/list"] {
        let answer = agent.request(method, json!({}));
        assert_eq!(answer["error"]["message"], "this session has ended", "{method}: {answer}");
    }
    agent.leave();
    let ended = dir.records_of("run.completed").remove(0);
    assert_eq!(ended["body"]["error"], "profile `other` was removed from the configuration", "{ended}");
    assert_eq!(ended["body"]["status"], "interrupted", "{ended}");
    dir.assert_nothing_left();
}
