//! `call` and `tools` in a broker that already runs, and what they start without one.

use serde_json::{Value, json};

use crate::agent::{Agent, Era, Running};
use crate::test_dir::{TestDir, until};

const CONFIG: &str = "[sources.files]\ncommand = [\"@source@\", \"plain\"]\n@cell@\n\
                      [sources.other]\ncommand = [\"@source@\", \"plain\"]\n@cell@\n[profiles.default]\napprove = \"never\"\n";

/// Returns the number of chains in the ledger: one for each broker so far.
fn brokers(dir: &TestDir) -> usize {
    dir.records_of("broker.started").len()
}

#[test]
fn a_call_of_the_command_line_is_made_by_the_broker_that_runs() {
    let dir = TestDir::new(CONFIG);
    let mut agent = Agent::start(&dir, Era::Legacy);
    agent.list();
    let ran = dir.run(&["call", "files__add", "{\"a\":1,\"b\":2}"]);
    assert_eq!((ran.code, ran.out.trim()), (Some(0), "3"), "{}", ran.err);
    let listed: Vec<Value> = serde_json::from_str(&dir.run(&["tools", "--json"]).out).unwrap();
    let names: Value = listed.into_iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, agent.list()["tools"]);
    let unknown = dir.run(&["call", "files__ad"]);
    assert!(unknown.code == Some(1) && unknown.err.contains("did you mean `files__add`?"), "{}", unknown.err);
    assert_eq!(dir.run(&["call", "files__add", "{\"a\":1,\"b\":2}", "--profile", "none"]).code, Some(1));
    assert_eq!(brokers(&dir), 2, "the agent's, and the one that was asked for a profile that there is not");
    let calls = dir.records_of("call.intent");
    assert_eq!(calls.len(), 1);
    agent.leave();
    dir.assert_good();
    dir.assert_nothing_left();
}

#[test]
fn a_broker_with_another_configuration_is_not_asked() {
    let dir = TestDir::new(CONFIG);
    let mut command = dir.command(&["serve", "--stdio", "--no-watch"]);
    dir.prepare(&mut command);
    let mut agent = Agent::of(command, Era::Legacy, json!({}));
    agent.list();
    dir.configure(&format!("{CONFIG}deny = [\"files__add\"]\n"));
    let ran = dir.run(&["call", "files__add", "{\"a\":1,\"b\":2}"]);
    assert_eq!(ran.code, Some(1), "what the file denies is denied, whatever the broker that runs allows: {}", ran.out);
    assert_eq!(brokers(&dir), 2);
    agent.leave();
}

#[test]
fn a_call_without_a_broker_starts_only_the_source_that_has_the_tool() {
    let dir = TestDir::new(CONFIG);
    let ran = dir.run(&["call", "files__add", "{\"a\":1,\"b\":2}"]);
    assert_eq!((ran.code, ran.out.trim()), (Some(0), "3"), "{}", ran.err);
    let started = dir.records_of("source.started");
    assert_eq!(started.len(), 1, "{started:?}");
}

#[test]
fn a_call_that_the_person_interrupts_is_withdrawn_in_the_broker_that_runs() {
    let dir = TestDir::new(CONFIG);
    let mut agent = Agent::start(&dir, Era::Legacy);
    agent.list();
    let call = Running::start(dir.command(&["call", "files__hang"]));
    until("the call", || !dir.records_of("call.intent").is_empty());
    let (code, said) = call.end_by(rustix::process::Signal::INT);
    assert!(code == Some(130) && said.contains("interrupted"), "{code:?} {said}");
    until("its outcome", || !dir.records_of("tool.completed").is_empty());
    let outcome = &dir.records_of("tool.completed")[0]["body"];
    assert!(outcome["error"].as_str().unwrap().starts_with("the caller went away"), "{outcome}");
    let (code, said) = agent.running.end();
    assert_eq!(code, Some(0), "{said}");
    // The broker says so when it has waited for a call whose caller is gone and has not withdrawn it.
    assert!(!said.contains("still open are cut"), "{said}");
}

#[test]
fn a_command_that_the_person_interrupts_ends_its_broker_in_order() {
    let arguments: [&[&str]; 7] = [
        &["check"],
        &["learn", "silent", "--yes"],
        &["tools"],
        &["call", "silent__echo"],
        &["lock", "diff"],
        &["policy", "schema"],
        &["policy", "prove", "builtin:rules", "builtin:rules"],
    ];
    for arguments in arguments {
        for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
            let dir = TestDir::new("[sources.silent]\ncommand = [\"@source@\", \"hang\"]\nrequired = true\n@cell@\n");
            let command = Running::start(dir.command(arguments));
            until("the source runs", || dir.processes().iter().any(|process| process.contains(" hang")));
            let (code, said) = command.end_by(signal);
            assert!(code == Some(130) && said.contains("interrupted"), "{arguments:?} {code:?} {said}");
            dir.await_no_process();
            dir.assert_good();
        }
    }
}

#[test]
fn an_address_that_other_machines_reach_is_warned_about() {
    let dir = TestDir::new(CONFIG);
    for (address, is_warned) in [("0.0.0.0:0", true), ("127.0.0.1:0", false)] {
        let broker = Running::start(dir.command(&["serve", "--listen", address]));
        broker.says("the bearer token is in");
        let (code, said) = broker.end_by(rustix::process::Signal::TERM);
        assert_eq!((code, said.contains("nothing encrypts tokens")), (Some(0), is_warned), "{said}");
    }
    dir.assert_good();
}

#[test]
fn a_second_broker_at_the_same_address_names_the_first() {
    let dir = TestDir::new(CONFIG);
    let first = Running::start(dir.command(&["serve", "--listen", "127.0.0.1:0"]));
    let said = first.says("serving http://");
    let address = said.split("http://").nth(1).unwrap().trim_end_matches("/mcp").to_owned();
    let second = dir.run(&["serve", "--listen", &address]);
    let names = second.err.contains(&format!("pid {}", first.pid())) && second.err.contains("portcullis status");
    assert!(second.code == Some(1) && names, "{}", second.err);
    assert_eq!(first.end_by(rustix::process::Signal::TERM).0, Some(0));
    dir.assert_good();
}
