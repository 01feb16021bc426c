//! Sources that fail in every way, over every transport: the outcome of the call, and of the next one.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use portcullis_test_support::source_program;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent::{Agent, Era, Running, outcome};
use crate::test_dir::{TestDir, signal, until};

const NEVER: &str = "[profiles.default]\napprove = \"never\"\n";

/// Returns the configuration of a source in its cell that follows its script.
fn local(more: &str) -> String {
    format!("[sources.files]\ncommand = [\"@source@\", \"faulty\", \"@dir@/open/script\"]\n@cell@\n{more}\n{NEVER}")
}

/// A server on this machine that follows its script. It is killed when this is dropped.
struct Remote {
    child: Child,
    port: u16,
}

impl Remote {
    /// Starts the server at a port that an earlier one had, or at any free port for 0.
    fn start(dir: &TestDir, port: u16) -> Self {
        let mut command = Command::new(source_program("portcullis-test-source"));
        command.args(["faulty-http", &port.to_string()]).arg(dir.path("open/script"));
        dir.prepare(&mut command);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, port: line.trim().parse().unwrap() }
    }

    fn source(&self, transport: &str) -> String {
        let (port, path) = (self.port, if transport == "sse" { "sse" } else { "mcp" });
        format!(
            "[sources.files]\nurl = \"http://127.0.0.1:{port}/{path}\"\ntransport = \"{transport}\"\ntimeout = \"20s\"\n\
             dangerous-allow-private = true\n{NEVER}"
        )
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns an agent whose subscription to changes of tools was just acknowledged.
fn subscribed(dir: &TestDir) -> Agent {
    let mut agent = Agent::start(dir, Era::Modern);
    agent.list();
    agent.send("subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } }));
    assert_eq!(agent.next().unwrap()["method"], "notifications/subscriptions/acknowledged");
    agent
}

fn script(dir: &TestDir, lines: &str) {
    write(dir, "script", lines);
}

/// Replaces a script atomically, because a source may be reading it.
pub(crate) fn write(dir: &TestDir, name: &str, lines: &str) {
    let next = dir.path(&format!("open/next-{name}"));
    fs::write(&next, lines).unwrap();
    fs::rename(next, dir.path(&format!("open/{name}"))).unwrap();
}

fn echo(agent: &mut Agent) -> Value {
    let said = agent.call("files__echo", &json!({ "n": 1 }), None);
    match said["ok"].as_str() {
        Some(text) => json!({ "ok": serde_json::from_str::<Value>(text).unwrap()["n"] }),
        None => said["refused"].clone(),
    }
}

/// Faults, each with the error code of a call to a source that has it, or `None` if the call succeeds.
const FAULTS: &[(&str, Option<&str>)] = &[
    ("drip", None),
    ("wrong-id", None),
    ("duplicate", None),
    ("restless", None),
    ("half", Some("outcome-unknown")),
    ("exit-in-call", Some("outcome-unknown")),
];

#[test]
fn every_fault_over_stdio_has_its_outcome_and_the_next_call_works() {
    for (fault, expected) in FAULTS {
        let dir = TestDir::new(&local(""));
        script(&dir, &format!("{fault}\nwell"));
        let mut agent = Agent::alone(&dir, Era::Modern);
        let first = echo(&mut agent);
        assert_eq!(first, expected.map_or(json!({ "ok": 1 }), |code| json!(code)), "{fault}");
        assert_eq!(echo(&mut agent), json!({ "ok": 1 }), "after {fault}");
        agent.leave();
        let states: Vec<_> = dir.records_of("source.state").iter().map(|record| record["body"]["to"].clone()).collect();
        let healed = json!(["starting", "ready", "backing-off", "starting", "ready", "stopped"]);
        let well = json!(["starting", "ready", "stopped"]);
        assert_eq!(json!(states), if expected.is_some() { healed } else { well }, "{fault}");
        dir.assert_nothing_left();
    }
}

#[test]
fn a_late_response_is_discarded() {
    let dir = TestDir::new(&local("timeout = \"1s\"\nrequired = true"));
    script(&dir, "late");
    let mut agent = Agent::start(&dir, Era::Modern);
    // The time of a call includes the start of its source.
    agent.list();
    for _ in 0..2 {
        assert_eq!(echo(&mut agent), "outcome-unknown");
    }
    agent.leave();
    dir.assert_nothing_left();
}

#[test]
fn every_fault_over_http_has_its_outcome_and_the_next_call_works() {
    let more = [("unavailable", Some("outcome-unknown")), ("redirect", Some("outcome-unknown")), ("forget", None)];
    for transport in ["http", "sse"] {
        for (fault, expected) in FAULTS.iter().chain(more.iter().filter(|_| transport == "http")) {
            let dir = TestDir::new("");
            script(&dir, &format!("{fault}\nwell"));
            let mut remote = Remote::start(&dir, 0);
            dir.configure(&remote.source(transport));
            let mut agent = Agent::start(&dir, Era::Modern);
            let first = echo(&mut agent);
            let what = format!("{fault} over {transport}");
            match expected {
                None => assert_eq!(first, json!({ "ok": 1 }), "{what}"),
                Some(code) => assert_eq!(first.to_string().trim_matches('"'), *code, "{what}"),
            }
            if *fault == "exit-in-call" {
                let port = remote.port;
                drop(remote);
                remote = Remote::start(&dir, port);
            }
            // A fault of the server lasts as long as the connection, so the next call works only if the fault has ended
            // it.
            if !matches!(*fault, "unavailable" | "redirect" | "half") || transport == "sse" {
                assert_eq!(echo(&mut agent), json!({ "ok": 1 }), "after {what}");
            }
            agent.leave();
            drop(remote);
            if *fault == "unavailable" {
                let failed = dir.records_of("tool.completed").remove(0);
                assert_eq!(failed["body"]["outcome"], "unknown", "{failed}");
                assert!(failed["body"]["error"].as_str().unwrap().contains("status 503"), "{failed}");
            }
            dir.assert_nothing_left();
        }
    }
}

#[test]
fn an_optional_source_that_fails_to_start_is_left_out_and_announced_once_it_is_ready() {
    let calc = "[sources.calc]\ncomponent = \"builtin:calculator\"\n";
    let dir = TestDir::new(&format!("{calc}{}", local("required = false")));
    script(&dir, "exit-at-start");
    let mut agent = Agent::start(&dir, Era::Modern);
    assert_eq!(agent.list()["tools"].as_array().unwrap().len(), 4);
    assert_eq!(agent.call("calc__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }));
    let stream = agent.send("subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } }));
    let acknowledged = agent.next().unwrap();
    assert_eq!(acknowledged["params"]["notifications"], json!({ "toolsListChanged": true }), "{acknowledged}");
    script(&dir, "well");
    let changed = agent.next().unwrap();
    assert_eq!(changed["method"], "notifications/tools/list_changed", "{changed}");
    assert_eq!(changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], stream);
    assert_eq!(agent.list()["tools"].as_array().unwrap().len(), 5);
    assert_eq!(echo(&mut agent), json!({ "ok": 1 }));
    agent.leave();
    dir.assert_nothing_left();
}

#[test]
fn a_subscription_is_acknowledged_once_its_sources_have_subscribed_and_none_holds_it_up() {
    let dir = TestDir::new(&local(""));
    script(&dir, "modern slow-to-listen\nmodern never-acknowledges");
    let agent = subscribed(&dir);
    assert!(dir.path("open/script.subscribed").exists(), "a change that the source makes now would be lost");
    agent.leave();
    subscribed(&dir).leave();
    dir.assert_nothing_left();
}

#[test]
fn a_subscribed_agent_gets_notifications_again_after_its_source_crashed() {
    let dir = TestDir::new(&local(""));
    script(&dir, "modern exit-in-call\nmodern");
    let mut agent = subscribed(&dir);
    assert_eq!(echo(&mut agent), "outcome-unknown");
    // The source comes back with the same tools, so a notification can only come from the source, which sends one with
    // each call.
    let mut heard = false;
    until("the source is heard", || {
        let id = agent.send_call("files__echo", &json!({ "n": 1 }));
        loop {
            let message = agent.next().unwrap();
            heard |= message["method"] == "notifications/tools/list_changed";
            if message["id"] == id {
                assert_eq!(outcome(&message), json!({ "ok": r#"{"n":1}"# }));
                return heard;
            }
        }
    });
    agent.leave();
    dir.assert_nothing_left();
}

#[test]
fn a_source_in_a_crash_loop_is_given_up_and_does_not_affect_the_others() {
    let calc = "[sources.calc]\ncomponent = \"builtin:calculator\"\n";
    let dir = TestDir::new(&format!("{calc}{}", local("")));
    script(&dir, "exit-in-call");
    let mut agent = Agent::alone(&dir, Era::Modern);
    // Each call waits for a new connection, as the one before has ended it, until the attempts are used up.
    for call in 1..=6 {
        assert_eq!(echo(&mut agent), "outcome-unknown", "call {call}");
    }
    let refused = agent.call("files__echo", &json!({ "n": 1 }), None);
    assert_eq!(refused["refused"], "not-sent", "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("5 attempts to reconnect have failed"), "{refused}");
    assert_eq!(agent.call("calc__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }));
    let said = dir.run(&["status"]);
    assert!(said.code == Some(1) && said.out.contains("files  command  failed"), "{}", said.out);
    agent.leave();
    assert_eq!(dir.records_of("source.started").iter().filter(|r| r["body"]["source"] == "files").count(), 6);
    assert_eq!(dir.records_of("source.state").last().unwrap()["body"]["to"], "stopped");
    dir.assert_nothing_left();
}

#[test]
fn with_the_per_call_lifecycle_no_process_outlives_its_call() {
    let dir = TestDir::new(&local("lifecycle = \"per-call\""));
    let mut agent = Agent::start(&dir, Era::Modern);
    for _ in 0..2 {
        assert_eq!(echo(&mut agent), json!({ "ok": 1 }));
    }
    until("the source has ended", || !dir.processes().iter().any(|process| process.contains("faulty")));
    agent.leave();
    assert_eq!(dir.records_of("source.started").len(), 3, "one discovery, two calls");
    dir.assert_nothing_left();
}

#[test]
fn an_idle_source_is_stopped_and_started_again_by_the_next_call() {
    let dir = TestDir::new(&local("idle = \"1s\""));
    let mut agent = Agent::alone(&dir, Era::Modern);
    assert_eq!(echo(&mut agent), json!({ "ok": 1 }));
    until("the source has ended", || !dir.processes().iter().any(|process| process.contains("faulty")));
    assert_eq!(echo(&mut agent), json!({ "ok": 1 }));
    agent.leave();
    dir.assert_nothing_left();
}

#[test]
fn status_shows_the_state_of_sources_and_watch_shows_each_change() {
    let dir = TestDir::new(&local(""));
    let mut agent = Agent::alone(&dir, Era::Modern);
    until("nobody has asked the source yet", || dir.run(&["status"]).out.contains("  tools not listed yet"));
    agent.list();
    let watch = Running::start(dir.command(&["status", "--watch", "--json"]));
    let next = || -> Value {
        let line = watch.out.recv_timeout(crate::test_dir::DEADLINE).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    let health = |brokers: &Value| {
        let source = &brokers[0]["sources"][0];
        assert_eq!(source["last_ping"], Value::Null, "no ping is sent over stdio");
        json!([source["state"], source["connected"], source["tools_available"], source["error_count"]])
    };
    let first = next();
    assert_eq!(health(&first), json!(["ready", true, 1, 0]), "{first}");
    assert!(first[0]["last_discovery"].is_u64() && first[0]["total_tools"] == 1, "{first}");
    let said = dir.run(&["status"]);
    assert_eq!(said.code, Some(0), "{}", said.out);
    assert!(said.out.contains("files  command  ready  1 tool "), "{}", said.out);

    // The source stays down, so that the test cannot miss its state.
    script(&dir, "exit-at-start");
    for process in dir.processes().iter().filter(|process| process.contains("faulty")) {
        signal(process.split(' ').next().unwrap().parse().unwrap(), Signal::KILL);
    }
    until("the watch tells it", || health(&next())[3].as_u64() > Some(0));
    let said = dir.run(&["status"]);
    assert_eq!(said.code, Some(1), "{}", said.out);
    drop(watch);
    agent.leave();
}

/// Waits for the response to a request and for the notification that the tools have changed, in either order. Returns
/// the response.
fn answered_and_told(agent: &Agent, id: u64) -> Value {
    let (mut answer, mut told) = (None, false);
    loop {
        let message = agent.next().unwrap();
        told |= message["method"] == "notifications/tools/list_changed";
        if message["id"] == id {
            answer = Some(message);
        }
        if let Some(answer) = answer.take_if(|_| told) {
            return answer;
        }
    }
}

#[test]
fn a_list_change_of_a_live_source_reaches_its_session_and_removed_tools_are_refused() {
    for (discovery, follows) in [("live", true), ("snapshot", false)] {
        let dir = TestDir::new(&local(&format!("discovery = \"{discovery}\"")));
        script(&dir, "restless");
        let mut agent = Agent::alone(&dir, Era::Legacy);
        assert_eq!(agent.list(), json!({ "tools": ["files__echo", "files__number-1"] }));
        // The source says that its tools have changed, and then answers.
        let id = agent.send_call("files__echo", &json!({ "n": 1 }));
        let answer = if follows { answered_and_told(&agent, id) } else { agent.answer(id, None) };
        assert_eq!(outcome(&answer)["ok"], r#"{"n":1}"#, "the call in flight goes on");
        let seen = if follows { "files__number-2" } else { "files__number-1" };
        assert_eq!(agent.list(), json!({ "tools": ["files__echo", seen] }));
        if follows {
            let gone = agent.call("files__number-1", &json!({}), None);
            assert_eq!(gone["refused"], "tool-removed", "{gone}");
        }
        agent.leave();
        let changes: Vec<_> = dir.records_of("list.changed").iter().map(|record| record["body"].clone()).collect();
        let change = json!({ "added": ["files__number-2"], "removed": ["files__number-1"], "changed": [] });
        assert_eq!(changes, if follows { vec![change] } else { Vec::new() });
        dir.assert_nothing_left();
    }
}

#[test]
fn lists_that_change_again_and_again_are_recorded_together() {
    let dir = TestDir::new(&local("discovery = \"live\""));
    script(&dir, "restless");
    let mut agent = Agent::alone(&dir, Era::Legacy);
    agent.list();
    for _ in 0..3 {
        let id = agent.send_call("files__echo", &json!({ "n": 1 }));
        answered_and_told(&agent, id);
    }
    agent.leave();
    let bodies = |kind| dir.records_of(kind).into_iter().map(|record| record["body"].clone()).collect::<Vec<_>>();
    let names = |numbers: [u8; 2]| numbers.map(|number| format!("files__number-{number}"));
    let together = json!({ "added": names([3, 4]), "removed": names([2, 3]), "changed": [], "repeats": 2 });
    assert_eq!(bodies("list.changed").get(1..), Some(&[together][..]), "{:?}", bodies("list.changed"));
    let connected = bodies("mcp.connected");
    assert_eq!((connected.len(), &connected[1]["repeats"]), (2, &json!(3)), "{connected:?}");
    dir.assert_nothing_left();
}

#[test]
fn a_live_source_that_is_slow_to_list_does_not_hold_back_changes_of_another() {
    let dir = TestDir::new(&format!(
        "{}\n[sources.slow]\ncommand = [\"@source@\", \"faulty\", \"@dir@/open/slow\"]\n@cell@\ndiscovery = \"live\"\n",
        local("discovery = \"live\"")
    ));
    script(&dir, "restless");
    write(&dir, "slow", "slow-pages");
    let mut agent = Agent::alone(&dir, Era::Legacy);
    let before = json!({ "tools": ["files__echo", "files__number-1", "slow__echo"] });
    assert_eq!(agent.list(), before);
    let id = agent.send_call("files__echo", &json!({ "n": 1 }));
    assert_eq!(outcome(&answered_and_told(&agent, id))["ok"], r#"{"n":1}"#);
    assert_eq!(agent.list(), json!({ "tools": ["files__echo", "files__number-2", "slow__echo"] }));
    agent.leave();
    dir.assert_nothing_left();
}

#[test]
fn a_flood_of_list_changes_is_passed_on_once_a_second() {
    let dir = TestDir::new(&local(""));
    script(&dir, "changes");
    let mut agent = Agent::alone(&dir, Era::Legacy);
    agent.list();
    let begun = Instant::now();
    let id = agent.send_call("files__echo", &json!({ "n": 1 }));
    let (mut told, mut answered) = (0, false);
    // The last change is passed on at the end of its second, usually after the response.
    while told < 2 || !answered {
        let message = agent.next().unwrap();
        answered |= message["id"] == id;
        told += u64::from(message["method"] == "notifications/resources/list_changed");
    }
    let (_, log) = agent.running.end();
    let (seconds, warned) = (begun.elapsed().as_secs(), log.matches("its tools have changed").count() as u64);
    assert!((1..=seconds + 2).contains(&warned), "{warned} lines of log in {seconds} s");
    assert!(told <= seconds + 2, "{told} times in {seconds} s");
    dir.assert_nothing_left();
}
