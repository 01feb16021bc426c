//! Groups: sources that can replace each other.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent::{Agent, Era, outcome};
use crate::recovery::write;
use crate::test_dir::{TestDir, signal, until};

pub(crate) const NEVER: &str = "[profiles.default]\napprove = \"never\"\n";
const GROUP: &str = "[groups.search]\nsources = [\"a\", \"b\"]\n";

/// Returns the configuration of the sources `a` and `b`, which follow their scripts.
pub(crate) fn members(more: &str) -> String {
    let member = |name: &str| {
        format!("[sources.{name}]\ncommand = [\"@source@\", \"faulty\", \"@dir@/open/{name}\"]\n@cell@\n{more}\n")
    };
    format!("{}{}", member("a"), member("b"))
}

fn grouped(more: &str, a: &str, b: &str) -> TestDir {
    scripted(&format!("{}{GROUP}{NEVER}", members(more)), a, b)
}

pub(crate) fn scripted(config: &str, a: &str, b: &str) -> TestDir {
    let dir = TestDir::new(config);
    write(&dir, "a", a);
    write(&dir, "b", b);
    dir
}

fn echo(agent: &mut Agent) -> Value {
    agent.call("search__echo", &json!({ "n": 1 }), None)
}

fn echoed() -> Value {
    json!({ "ok": r#"{"n":1}"# })
}

/// Returns for each call the member that was called and the number of the attempt.
fn attempts(dir: &TestDir) -> Value {
    let intents = dir.records_of("call.intent");
    intents.iter().map(|record| json!([record["body"]["source"], record["body"]["attempt"]])).collect()
}

fn state(dir: &TestDir, source: &str) -> String {
    let brokers: Value = serde_json::from_str(&dir.run(&["status", "--json"]).out).unwrap();
    let sources = brokers[0]["sources"].as_array().unwrap();
    let found = sources.iter().find(|known| known["name"] == source).unwrap();
    assert_eq!(found["group"], "search");
    found["state"].as_str().unwrap().to_owned()
}

fn kill(dir: &TestDir, source: &str) {
    for process in dir.processes().iter().filter(|process| process.contains(&format!("open/{source}"))) {
        signal(process.split(' ').next().unwrap().parse().unwrap(), Signal::KILL);
    }
}

/// Waits until all members are idle, so that none has a process.
fn all_rest(dir: &TestDir) {
    until("all rest", || ["a", "b"].iter().all(|source| state(dir, source) == "idle"));
}

#[test]
fn a_call_to_a_group_goes_to_its_first_healthy_member() {
    let dir = grouped("", "well", "well");
    let mut agent = Agent::alone(&dir, Era::Legacy);
    assert_eq!(agent.list(), json!({ "tools": ["search__echo"] }));
    assert_eq!(echo(&mut agent), echoed());
    write(&dir, "a", "exit-at-start");
    kill(&dir, "a");
    until("the end of a is known", || state(&dir, "a") != "ready");
    assert_eq!(echo(&mut agent), echoed());
    write(&dir, "a", "well");
    until("a is back", || state(&dir, "a") == "ready");
    assert_eq!(echo(&mut agent), echoed());
    agent.leave();
    assert_eq!(attempts(&dir), json!([["a", 1], ["b", 1], ["a", 1]]));
    assert!(dir.records_of("call.intent").iter().all(|record| record["body"]["group"] == "search"));
    dir.assert_nothing_left();
}

#[test]
fn a_higher_priority_takes_precedence_over_the_list_order() {
    let config = members("").replacen("[sources.b]", "[sources.b]\npriority = 51", 1);
    let dir = scripted(
        &format!("{config}[groups.search]\ntags = [\"x\"]\n{NEVER}").replace("@cell@", "@cell@\ntags = [\"x\"]"),
        "well",
        "well",
    );
    let mut agent = Agent::alone(&dir, Era::Modern);
    assert_eq!(echo(&mut agent), echoed());
    agent.leave();
    assert_eq!(attempts(&dir), json!([["b", 1]]));
    dir.assert_nothing_left();
}

#[test]
fn an_unsent_call_goes_to_the_next_member_and_the_error_names_each_cause_if_all_fail() {
    let dir = grouped("idle = \"1s\"\ntimeout = \"5s\"", "well\nexit-at-start", "well\nwell\nexit-at-start");
    let mut agent = Agent::alone(&dir, Era::Modern);
    agent.list();
    all_rest(&dir);
    assert_eq!(echo(&mut agent), echoed());
    until("b rests", || state(&dir, "b") == "idle");
    let failed = echo(&mut agent);
    assert_eq!(failed["refused"], "not-sent", "{failed}");
    let text = failed["message"].as_str().unwrap();
    assert!(text.starts_with("no member of group `search` answered: ") && text.contains("`a`: "), "{text}");
    assert!(text.contains("`b`: ") && text.contains("not today"), "{text}");
    agent.leave();
    let seen = attempts(&dir);
    assert_eq!(seen.as_array().unwrap()[..2], [json!(["a", 1]), json!(["b", 2])], "{seen}");
    assert_eq!(seen.as_array().unwrap().len(), 4, "each member once: {seen}");
    dir.assert_nothing_left();
}

#[test]
fn a_call_with_an_unknown_outcome_is_retried_only_if_its_tool_is_known_to_be_idempotent() {
    let unknown = json!("outcome-unknown");
    for (more, hint, accepted, goes_on) in [
        ("", "idempotent", false, false),
        ("", "idempotent", true, true),
        ("", "well", true, false),
        ("trust-annotations = true", "idempotent", false, true),
        ("trust-annotations = true", "well", false, false),
    ] {
        let dir = grouped(more, hint, hint);
        if accepted {
            let ran = dir.run(&["lock", "accept", "search__*"]);
            assert_eq!(ran.code, Some(0), "{}", ran.err);
        }
        write(&dir, "a", &format!("exit-in-call {hint}"));
        let mut agent = Agent::alone(&dir, Era::Modern);
        let said = echo(&mut agent);
        agent.leave();
        let what = format!("{more} {hint} {accepted}: {said}");
        match goes_on {
            true => assert_eq!(said, echoed(), "{what}"),
            false => assert_eq!(said["refused"], unknown, "{what}"),
        }
        let expected = if goes_on { json!([["a", 1], ["b", 2]]) } else { json!([["a", 1]]) };
        assert_eq!(attempts(&dir), expected, "{what}");
        dir.assert_nothing_left();
    }
}

#[test]
fn an_error_result_or_a_denial_is_not_retried_with_another_member() {
    for (script, expected) in
        [("tool-error", json!({ "failed": "no" })), ("rpc-error", json!({ "refused": -32602, "message": "no" }))]
    {
        let dir = grouped("", script, "well");
        let mut agent = Agent::alone(&dir, Era::Modern);
        assert_eq!(echo(&mut agent), expected);
        agent.leave();
        assert_eq!(attempts(&dir), json!([["a", 1]]));
        dir.assert_nothing_left();
    }
    let rule = "[[policies]]\nplugin = \"builtin:rules\"\nsettings = { deny = [\"search__*\"] }\n";
    let dir = scripted(&format!("{}{GROUP}{NEVER}{rule}", members("")), "well", "well");
    let mut agent = Agent::alone(&dir, Era::Modern);
    assert!(echo(&mut agent)["refused"].is_string());
    agent.leave();
    let denied = dir.records_of("call.denied");
    assert_eq!((denied.len(), &denied[0]["body"]["source"]), (1, &json!("a")), "{denied:?}");
    dir.assert_nothing_left();
}

#[test]
fn each_member_of_a_group_needs_its_own_approval() {
    let always = "[profiles.default]\napprove = \"always\"\n";
    let config = format!("{}{GROUP}{always}", members("idle = \"1s\""));
    let dir = scripted(&config, "well\nexit-at-start", "well");
    let mut agent = Agent::alone(&dir, Era::Modern);
    agent.list();
    all_rest(&dir);
    let id = agent.send_call("search__echo", &json!({ "n": 1 }));
    for _ in 0..2 {
        let question = agent.question();
        assert_eq!(dir.run(&["approvals", "approve", &question]).code, Some(0));
    }
    assert_eq!(outcome(&agent.answer(id, None)), echoed());
    agent.leave();
    let asked: Value = dir.records_of("call.asked").iter().map(|record| record["body"]["source"].clone()).collect();
    assert_eq!(asked, json!(["a", "b"]));
    dir.assert_nothing_left();
}

#[test]
fn a_retry_with_an_answer_goes_to_the_member_that_asked() {
    let dir = grouped("", "modern asks", "modern asks");
    let mut agent = Agent::start(&dir, Era::Modern);
    agent.list();
    write(&dir, "a", "exit-at-start");
    kill(&dir, "a");
    until("the end of a is known", || state(&dir, "a") != "ready");
    let call = json!({ "name": "search__echo", "arguments": { "n": 1 } });
    let first = agent.request("tools/call", call.clone());
    assert_eq!(first["result"]["resultType"], "input_required", "{first}");
    write(&dir, "a", "modern asks");
    until("a is back", || {
        // Without a subscription, only a request of a modern agent makes its source connect.
        agent.list();
        state(&dir, "a") == "ready"
    });
    let mut retry = call;
    retry["requestState"] = first["result"]["requestState"].clone();
    retry["inputResponses"] = json!({ "which": { "action": "accept", "content": {} } });
    assert_eq!(outcome(&agent.request("tools/call", retry)), echoed());
    agent.leave();
    let called: Value = dir.records_of("call.intent").iter().map(|record| record["body"]["source"].clone()).collect();
    assert!(!called.as_array().unwrap().contains(&json!("a")), "{called}");
    dir.assert_nothing_left();
}

#[test]
fn a_member_that_takes_other_arguments_is_never_called_in_place_of_the_shown_one() {
    let dir = grouped("timeout = \"3s\"", "well", "other-schema");
    let check = dir.run(&["check", "--json"]);
    let report: Value = serde_json::from_str(&check.out).unwrap();
    let group = json!({
        "name": "search",
        "sources": ["a", "b"],
        "tools": 1,
        "mismatched": [{ "tool": "search__echo", "source": "b", "shownSource": "a" }],
    });
    assert_eq!(report["groups"], json!([group]));
    assert!(
        dir.run(&["check"])
            .out
            .contains("search__echo of source b is never called: its arguments differ from those of source a")
    );

    let mut agent = Agent::alone(&dir, Era::Legacy);
    agent.list();
    write(&dir, "a", "exit-at-start");
    kill(&dir, "a");
    until("the end of a is known", || state(&dir, "a") != "ready");
    let failed = echo(&mut agent);
    assert_eq!(failed["refused"], "not-sent", "{failed}");
    assert!(failed["message"].as_str().unwrap().contains("`b`: its tool takes other arguments"), "{failed}");
    agent.leave();
    let differs = dir.records_of("group.differs");
    assert_eq!(differs.len(), 1, "{differs:?}");
    assert_eq!(differs[0]["body"]["source"], "b");
    dir.assert_nothing_left();
}

#[test]
fn a_tool_search_finds_the_group_and_not_its_members() {
    let deferred = "tools = \"deferred\"\n";
    let dir = scripted(&format!("{}{GROUP}{NEVER}{deferred}", members("")), "well", "well");
    let mut agent = Agent::alone(&dir, Era::Modern);
    let found = agent.request("tools/call", json!({ "name": "find_tools", "arguments": { "source": "search" } }));
    let found = &found["result"]["structuredContent"]["tools"];
    assert_eq!((found[0]["name"].as_str(), found[0]["source"].as_str()), (Some("search__echo"), Some("search")));
    assert_eq!(found.as_array().unwrap().len(), 1);
    let inner = json!({ "name": "search__echo", "arguments": { "n": 1 } });
    assert_eq!(agent.call("call_tool", &inner, None), echoed());
    agent.leave();
    assert_eq!(attempts(&dir), json!([["a", 1]]));
    dir.assert_nothing_left();
}

#[test]
fn the_call_command_takes_named_fallback_sources() {
    let call = |dir: &TestDir, fallback: &[&str]| {
        let mut arguments = vec!["call", "a__echo", r#"{"n":1}"#];
        fallback.iter().for_each(|source| arguments.extend(["--fallback", source]));
        dir.run(&arguments)
    };
    let dir = scripted(&format!("{}{NEVER}", members("")), "exit-at-start", "well");
    assert_eq!(call(&dir, &[]).code, Some(1), "without a fallback it fails");
    let ran = call(&dir, &["b"]);
    assert_eq!((ran.code, ran.out.trim()), (Some(0), r#"{"n":1}"#), "{}", ran.err);
    let ran = call(&dir, &["c"]);
    assert!(ran.code == Some(1) && ran.err.contains("no source is called \"c\""), "{}", ran.err);
    write(&dir, "b", "exit-at-start");
    let ran = call(&dir, &["b"]);
    assert_eq!(ran.code, Some(1));
    let told = ran.err.contains("source `a`: ") && ran.err.contains("source `b`: ");
    assert!(told && ran.err.contains("no member of group `a` is there"), "{}", ran.err);
    dir.assert_nothing_left();
}
