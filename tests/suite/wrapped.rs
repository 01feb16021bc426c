//! `lock` for a wrapped server, which has a data folder and no configuration.

use std::fs;
use std::path::Path;

use portcullis_test_support::source_program;
use serde_json::{Value, json};

use crate::agent::{Agent, Era};
use crate::test_dir::{Ran, TestDir, finish};

/// Starts a wrapped server that offers other definitions once `open/changed` exists.
fn wrapped(dir: &TestDir, program: &Path) -> Agent {
    let (open, changed) = (dir.path("open"), dir.path("open/changed"));
    let words = ["wrap", "--data-dir", "wrapped", "--read", open.to_str().unwrap(), "--", program.to_str().unwrap()];
    let command = dir.command(&[&words[..], &["poisoned", changed.to_str().unwrap()]].concat());
    Agent::of(command, Era::Legacy, json!({}))
}

fn names(agent: &mut Agent) -> Value {
    agent.list()["tools"].clone()
}

fn lock(dir: &TestDir, arguments: &[&str]) -> Ran {
    dir.run(&[&["lock"], arguments, &["--data-dir", "wrapped"]].concat())
}

/// Returns the pins of the definitions under this name, as `lock diff` has them.
fn pins(dir: &TestDir, tool: &str) -> Vec<String> {
    let rows: Vec<Value> = serde_json::from_str(&lock(dir, &["diff", "--json"]).out).unwrap();
    let found = rows.iter().filter(|row| row["tool"] == tool);
    found.map(|row| row["pin"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_a_wrapped_server_changes_is_shown_and_accepted_while_its_session_is_open() {
    let dir = TestDir::new("");
    let mut agent = wrapped(&dir, &source_program("portcullis-test-source"));
    assert_eq!(names(&mut agent), json!(["add", "urgent", "later"]));
    let accepted = lock(&dir, &["accept"]);
    assert_eq!(accepted.code, Some(0), "{}", accepted.err);
    assert!(accepted.out.contains("accepted later") && !accepted.out.contains("urgent"), "{}", accepted.out);
    assert_eq!(lock(&dir, &["diff"]).code, Some(0));

    fs::write(dir.path("open/changed"), "").unwrap();
    agent.send_call("urgent", &json!({}));
    while agent.next().unwrap()["method"] != "notifications/tools/list_changed" {}
    assert_eq!(names(&mut agent), json!(["add", "urgent"]), "a changed definition with a grave finding is quarantined");
    let diff = lock(&dir, &["diff"]);
    let pin = pins(&dir, "later").remove(0);
    let release = format!("to release it: portcullis lock accept --data-dir wrapped {pin}");
    for shown in ["changed   later", "changed   add", "quarantined  tool later", "/description: <IMPORTANT>", &release]
    {
        assert!(diff.out.contains(shown), "{shown} in: {}", diff.out);
    }
    assert_eq!(diff.code, Some(1));
    let status = dir.run(&["status", "--data-dir", "wrapped"]).out;
    assert!(status.contains("lock accept --data-dir ") && status.contains(&pin), "{status}");
    let by_name = lock(&dir, &["accept", "later"]);
    assert!(by_name.code == Some(1) && by_name.err.contains(&pin), "{}{}", by_name.out, by_name.err);

    let released = lock(&dir, &["accept", &pin]);
    assert_eq!(released.code, Some(0), "{}", released.err);
    while agent.next().unwrap()["method"] != "notifications/tools/list_changed" {}
    assert_eq!(names(&mut agent), json!(["add", "urgent", "later"]), "the open session follows");
    assert_eq!(agent.call("later", &json!({}), None), json!({ "ok": "called" }));
    agent.leave();

    // Nobody knows its list when it does not run; the accepted items are known.
    for action in ["diff", "accept"] {
        let alone = lock(&dir, &[action]);
        assert!(alone.code == Some(1) && alone.err.contains("no broker runs in wrapped"), "{}", alone.err);
        assert!(alone.err.contains("`portcullis wrap --data-dir wrapped -- COMMAND`"), "{}", alone.err);
    }
    let shown: Value = serde_json::from_str(&lock(&dir, &["show", "--json"]).out).unwrap();
    let accepted = shown["tools"].as_array().unwrap();
    assert_eq!(accepted.iter().map(|tool| &tool["name"]).collect::<Vec<_>>(), ["add", "later"]);
    for (arguments, part) in
        [(["accept", "--packages"], "leave out --data-dir"), (["accept", "--components"], "--config")]
    {
        let refused = lock(&dir, &arguments);
        assert!(refused.code == Some(1) && refused.err.contains(part), "{}", refused.err);
    }
}

#[test]
fn of_two_wrapped_servers_with_the_same_tool_exactly_the_one_that_is_meant_is_accepted() {
    let dir = TestDir::new("");
    let program = source_program("portcullis-test-source");
    let other = dir.path("open/other");
    fs::copy(&program, &other).unwrap();
    let (mut one, mut two) = (wrapped(&dir, &program), wrapped(&dir, &other));
    // A second client that starts the same server does not make it two.
    let mut same = wrapped(&dir, &program);
    for agent in [&mut one, &mut two, &mut same] {
        names(agent);
    }
    let both = lock(&dir, &["accept", "add"]);
    let pins = pins(&dir, "add");
    assert_eq!(pins.len(), 2);
    assert!(both.code == Some(1) && pins.iter().all(|pin| both.err.contains(pin)), "{}{}", both.out, both.err);
    let accepted = lock(&dir, &["accept", &pins[1]]);
    assert_eq!(accepted.code, Some(0), "{}", accepted.err);
    let rows: Vec<Value> = serde_json::from_str(&lock(&dir, &["diff", "--json"]).out).unwrap();
    let states: Vec<_> =
        rows.iter().filter(|row| row["tool"] == "add").map(|row| (&row["pin"], &row["state"])).collect();
    for (pin, state) in states {
        assert_eq!(state, if *pin == *pins[1] { "accepted" } else { "new" }, "{rows:?}");
    }
    for agent in [one, two, same] {
        agent.leave();
    }
}

#[test]
fn without_a_configuration_lock_is_about_the_users_own_wrapped_servers() {
    let dir = TestDir::new("");
    let elsewhere = tempfile::tempdir().unwrap();
    let lock = |arguments: &[&str]| {
        let mut command = dir.command(&[&["lock"], arguments].concat());
        command.current_dir(elsewhere.path());
        finish(command)
    };
    let none = lock(&["show"]);
    assert!(none.code == Some(1) && none.err.contains("portcullis init"), "{}", none.err);
    let source = source_program("portcullis-test-source");
    let mut command = dir.command(&["wrap", "--", source.to_str().unwrap(), "plain"]);
    command.current_dir(elsewhere.path());
    let mut agent = Agent::of(command, Era::Legacy, json!({}));
    names(&mut agent);
    let accepted = lock(&["accept", "add"]);
    assert!(accepted.code == Some(0) && accepted.out.contains("accepted add"), "{}{}", accepted.out, accepted.err);
    assert!(dir.path("home/.local/share/portcullis/portcullis.lock").exists());
    agent.leave();
    assert_eq!(lock(&["show"]).code, Some(0));
}
