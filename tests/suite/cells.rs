//! Cells, from the configuration to the source, and how they are reported.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent::{Agent, Era, Running};
use crate::test_dir::{TestDir, signal, until};

const PLAIN: &str = "[broker]\nask-timeout = \"1s\"\n[sources.files]\ncommand = [\"@source@\", \"plain\"]\n";

fn checked(dir: &TestDir) -> Value {
    let ran = dir.run(&["check", "--json"]);
    serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}{}", ran.out, ran.err))
}

#[test]
fn a_confined_source_runs_without_asking_only_if_it_can_neither_write_nor_reach_a_network() {
    for (cell, harmless) in [
        ("", true),
        ("cell.read = [\"open\"]", true),
        ("cell.write = [\"open\"]", false),
        ("cell.network = [\"nowhere.invalid:443\"]", false),
    ] {
        let dir = TestDir::new(&format!("{PLAIN}{cell}\n"));
        let ran = dir.run(&["call", "files__add", r#"{"a":1,"b":2}"#]);
        assert_eq!(ran.code == Some(0), harmless, "{cell}: {}{}", ran.out, ran.err);
        let intents = dir.records_of("call.intent");
        assert_eq!(intents.len(), usize::from(harmless), "{cell}");
        assert_eq!(dir.records_of("call.asked").len(), usize::from(!harmless), "{cell}");
    }
}

#[test]
fn check_status_and_the_ledger_report_what_a_cell_enforces() {
    let dir = TestDir::new(&format!("{PLAIN}cell.read = [\"open\"]\n"));
    let report = checked(&dir);
    let cell = &report["sources"][0]["cell"];
    assert_eq!(cell["isolation"]["tier"], "full", "{report}");
    assert_eq!(cell["read"], json!([dir.path("open")]));
    let subjects: Vec<_> =
        cell["isolation"]["aspects"].as_array().unwrap().iter().map(|a| a["subject"].clone()).collect();
    let expected = ["environment", "descriptors", "files", "network", "memory", "processes", "cpu", "kill-tree"];
    assert_eq!(subjects, expected);
    assert!(!cell["isolation"]["leaks"].as_array().unwrap().is_empty());

    let mut agent = Agent::start(&dir, Era::Modern);
    agent.list();
    let status: Value = serde_json::from_str(&dir.run(&["status", "--json"]).out).unwrap();
    assert_eq!(status[0]["sources"][0]["cell"]["isolation"], cell["isolation"]);
    let said = dir.run(&["status"]).out;
    assert!(said.contains("full cell (memory best-effort, cpu none)"), "{said}");
    agent.leave();

    let started = dir.records_of("source.started");
    assert_eq!(started.len(), 2, "by check and by serve");
    assert_eq!(started[0]["body"]["isolation"], cell["isolation"]);
    assert_eq!(started[0]["body"]["source"], "files");
}

#[test]
fn a_grant_that_cannot_be_given_stops_the_start_and_says_why() {
    let dir = TestDir::new(&format!("{PLAIN}cell.read = [\"absent\"]\n"));
    let ran = dir.run(&["check"]);
    assert_eq!(ran.code, Some(1));
    let why = "`read` names";
    assert!(ran.out.contains(why) && ran.out.contains("does not exist; create it"), "{}", ran.out);
    assert!(ran.out.contains("none was built, and no code of the source has run"), "{}", ran.out);
    assert!(dir.records_of("source.started").is_empty());
}

/// Returns the children of a process.
fn children(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    // A thread may have ended meanwhile.
    let listed = threads.map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    listed.collect::<String>().split_whitespace().map(|child| child.parse().unwrap()).collect()
}

#[test]
fn a_launcher_that_was_killed_is_replaced_when_the_next_source_starts() {
    let dir = TestDir::new(&format!("{PLAIN}lifecycle = \"per-call\"\n"));
    let mut agent = Agent::start(&dir, Era::Modern);
    let broker = agent.running.pid();
    for _ in 0..2 {
        assert_eq!(agent.call("files__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }));
        until("the launcher alone is left", || children(broker).len() == 1);
        signal(children(broker)[0], Signal::KILL);
    }
    agent.leave();
    dir.assert_nothing_left();
}

#[test]
fn serve_says_at_its_start_what_cells_lack_once_and_what_a_program_will_not_find() {
    let dir = TestDir::new("");
    fs::write(dir.path("server.py"), "").unwrap();
    let second = "[sources.second]\ncommand = [\"@source@\", \"plain\", \"./server.py\"]\n";
    dir.configure(&format!("{PLAIN}{second}"));
    let (code, said) = Running::start(dir.command(&["serve", "--stdio"])).end();
    assert_eq!(code, Some(0), "{said}");
    for name in ["files", "second"] {
        assert_eq!(said.matches(&format!("{name}: full cell; reads nothing")).count(), 1, "{said}");
    }
    // Where the machine has a control group for the broker, nothing is lacking.
    assert!(said.matches("memory best-effort").count() <= 1, "{said}");
    assert!(!said.contains("no limit was asked for"), "{said}");
    assert!(said.contains("source `second`: \"./server.py\" stands beside the configuration"), "{said}");
    assert!(said.contains("add `cwd = \".\"` to the source"), "{said}");
}
