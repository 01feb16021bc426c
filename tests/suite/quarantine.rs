//! Definitions that try to steer the model: their text reaches no agent until a person has released them.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent::{Agent, ERAS, Era, Running, outcome};
use crate::test_dir::{DEADLINE, TestDir, until};
use crate::web::Server;

/// Part of what the hostile definitions say.
const ORDER: &str = "id_rsa";

fn config(more: &str) -> String {
    format!(
        "[profiles.default]\napprove = \"never\"\n[sources.bad]\ncommand = [\"@source@\", \"poisoned\", \
         \"@dir@/open/changed\"]\n@cell@\n{more}\n"
    )
}

/// Returns the names, URIs or templates of one kind that the agent is shown.
fn listed(agent: &mut Agent, method: &str) -> Vec<String> {
    let answer = agent.request(method, json!({}));
    assert!(!answer.to_string().contains(ORDER), "{answer}");
    let lists = answer["result"].as_object().unwrap().values().filter_map(Value::as_array);
    let name =
        |item: &Value| ["uri", "uriTemplate", "name"].iter().find_map(|key| item[*key].as_str().map(str::to_owned));
    lists.flatten().filter_map(name).collect()
}

fn flagged(dir: &TestDir) -> Vec<Value> {
    let ran = dir.run(&["--json", "check"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    report["sources"][0]["flagged"].as_array().unwrap().clone()
}

/// Returns the pin of a flagged definition, which must be in this state.
fn pin(dir: &TestDir, name: &str, state: &str) -> String {
    let flagged = flagged(dir);
    let found = flagged.iter().find(|flagged| flagged["name"] == name).unwrap_or_else(|| panic!("{name}: {flagged:?}"));
    assert_eq!(found["state"], state, "{found}");
    found["pin"].as_str().unwrap().to_owned()
}

fn accept(dir: &TestDir, arguments: &[&str]) {
    let ran = dir.run(&[&["lock", "accept"], arguments].concat());
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
}

#[test]
fn a_definition_with_a_grave_finding_is_neither_shown_nor_usable() {
    for era in ERAS {
        let dir = TestDir::new(&config(""));
        let mut agent = Agent::alone(&dir, era);
        assert_eq!(listed(&mut agent, "tools/list"), ["bad__add", "bad__urgent", "bad__later"]);
        assert_eq!(listed(&mut agent, "prompts/list"), ["bad__greet"]);
        assert_eq!(listed(&mut agent, "resources/list"), ["portcullis://bad/mem://good"]);
        assert_eq!(listed(&mut agent, "resources/templates/list"), ["portcullis://bad/mem://good/{id}"]);
        assert_eq!(agent.call("bad__add", &json!({}), None), json!({ "ok": "called" }));

        // Each is refused in the words for an item that does not exist.
        for (method, key, quarantined, unknown) in [
            ("tools/call", "name", "bad__sum", "bad__no"),
            ("tools/call", "name", "bad__result", "bad__no"),
            ("prompts/get", "name", "bad__obey", "bad__no"),
            ("resources/read", "uri", "portcullis://bad/mem://bad", "portcullis://no/mem://no"),
        ] {
            let refused = agent.request(method, json!({ key: quarantined }));
            let missing = agent.request(method, json!({ key: unknown }));
            assert!(refused["error"].is_object(), "{refused}");
            assert_eq!(refused["error"].to_string().replace(quarantined, unknown), missing["error"].to_string());
        }
        agent.leave();
        // The next broker finds in storage what the first one found.
        let mut again = Agent::alone(&dir, era);
        assert_eq!(listed(&mut again, "tools/list"), ["bad__add", "bad__urgent", "bad__later"]);
        again.leave();
        let called = dir.records_of("call.intent").len();
        assert_eq!(called, 1, "no other call reached the source");
        dir.assert_nothing_left();
    }
}

#[test]
fn quarantined_instructions_reach_no_agent_until_a_person_accepts_them() {
    let dir = TestDir::new(&config(""));
    let told = |dir: &TestDir| {
        // A handshake waits for no source, so the broker must already know the source's text.
        assert_eq!(dir.run(&["tools"]).code, Some(0));
        let mut agent = Running::start(dir.command(&["serve", "--stdio"]));
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "suite", "version": "1" } });
        agent.write(&json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }).to_string());
        let answer = agent.out.recv_timeout(DEADLINE).unwrap();
        assert_eq!(agent.end().0, Some(0));
        answer
    };
    assert!(!told(&dir).contains(ORDER));
    accept(&dir, &[&pin(&dir, "bad (instructions)", "quarantined")]);
    assert!(told(&dir).contains(ORDER));
    let dir = TestDir::new(&config("scan = \"warn\""));
    assert!(told(&dir).contains(ORDER));
}

#[test]
fn a_quarantined_tool_is_not_found_where_tools_are_deferred() {
    let deferred = config("").replacen("approve", "tools = \"deferred\"\napprove", 1);
    let dir = TestDir::new(&deferred);
    let mut agent = Agent::alone(&dir, Era::Legacy);
    let found = agent.request("tools/call", json!({ "name": "find_tools", "arguments": {} })).to_string();
    assert!(found.contains("bad__add") && !found.contains("bad__sum") && !found.contains(ORDER), "{found}");
    for (name, arguments) in [
        ("describe_tool", json!({ "name": "bad__sum" })),
        ("call_tool", json!({ "name": "bad__sum", "arguments": {} })),
        ("bad__sum", json!({})),
    ] {
        let answer = agent.request("tools/call", json!({ "name": name, "arguments": arguments })).to_string();
        assert!(answer.contains("unknown tool") && !answer.contains(ORDER), "{answer}");
    }
    agent.leave();
    assert_eq!(dir.records_of("call.intent").len(), 0);
}

#[test]
fn a_member_of_a_group_whose_definition_is_quarantined_is_not_called() {
    let config = config("[sources.good]\ncommand = [\"@source@\", \"faulty\", \"@dir@/open/none\"]\n@cell@\n")
        + "[groups.both]\nsources = [\"bad\", \"good\"]\n";
    let dir = TestDir::new(&config);
    let mut agent = Agent::alone(&dir, Era::Legacy);
    assert_eq!(listed(&mut agent, "tools/list"), ["both__add", "both__urgent", "both__later", "both__echo"]);
    assert_eq!(agent.call("both__sum", &json!({}), None)["message"], "unknown tool \"both__sum\"");
    agent.leave();
}

#[test]
fn what_a_person_accepts_reaches_the_sessions_that_are_open() {
    let dir = TestDir::new(&config(""));
    let pinned = pin(&dir, "bad__obey", "quarantined");
    let mut agent = Agent::alone(&dir, Era::Legacy);
    assert_eq!(listed(&mut agent, "prompts/list"), ["bad__greet"]);
    accept(&dir, &[&pinned]);
    while agent.next().unwrap()["method"] != "notifications/prompts/list_changed" {}
    let prompts = agent.request("prompts/list", json!({}))["result"]["prompts"].clone();
    assert_eq!(prompts.as_array().unwrap().len(), 2, "{prompts}");
    let got = agent.request("prompts/get", json!({ "name": "bad__obey" }));
    assert!(got["result"].is_object(), "{got}");
    agent.leave();
}

#[test]
fn a_tool_that_is_quarantined_during_a_session_is_unknown_from_then_on() {
    let dir = TestDir::new(&config("discovery = \"live\""));
    let mut agent = Agent::alone(&dir, Era::Legacy);
    assert!(listed(&mut agent, "tools/list").contains(&"bad__later".to_owned()));
    fs::write(dir.path("open/changed"), "").unwrap();
    agent.send_call("bad__add", &json!({}));
    while agent.next().unwrap()["method"] != "notifications/tools/list_changed" {}
    assert_eq!(listed(&mut agent, "tools/list"), ["bad__add", "bad__urgent"]);
    assert_eq!(agent.call("bad__later", &json!({}), None)["message"], "unknown tool \"bad__later\"");
    agent.leave();
    dir.assert_nothing_left();
}

#[test]
fn with_warn_everything_is_shown_and_with_off_nothing_is_scanned() {
    for (mode, states) in [("warn", vec!["warned"; 7]), ("off", vec![])] {
        let dir = TestDir::new(&config(&format!("scan = \"{mode}\"")));
        let found = flagged(&dir);
        assert_eq!(found.iter().map(|flagged| flagged["state"].as_str().unwrap()).collect::<Vec<_>>(), states);
        let mut agent = Agent::alone(&dir, Era::Legacy);
        let shown = agent.list();
        assert_eq!(shown["tools"].as_array().unwrap().len(), 5, "{shown}");
        assert_eq!(agent.call("bad__sum", &json!({}), None), json!({ "ok": "called" }));
        agent.leave();
        let recorded = dir.records_of("definition.flagged");
        assert_eq!(recorded.len(), usize::from(mode == "warn"), "{recorded:?}");
    }
}

#[test]
fn exactly_the_accepted_definition_is_released_and_a_later_change_is_judged_anew() {
    let dir = TestDir::new(&config(""));
    let shown = |dir: &TestDir| {
        let mut agent = Agent::alone(dir, Era::Legacy);
        let shown = agent.list()["tools"].to_string();
        agent.leave();
        shown
    };
    // Nothing that is accepted together with others, or by its name, releases it.
    let ran = dir.run(&["lock", "accept"]);
    assert!(ran.code == Some(0) && ran.out.contains("bad__add") && !ran.out.contains("bad__sum"), "{}", ran.out);
    assert!(ran.err.contains("bad__sum") && ran.err.contains("bad__urgent"), "{}", ran.err);
    let pinned = pin(&dir, "bad__sum", "quarantined");
    for name in ["bad__sum", "bad__*"] {
        let ran = dir.run(&["lock", "accept", name]);
        assert_eq!(ran.code, Some(1), "{}", ran.out);
        let tells = name == "bad__*" || ran.err.contains(&format!("portcullis lock accept {pinned}"));
        assert!(tells && ran.err.contains("is quarantined"), "{}", ran.err);
    }
    assert!(!shown(&dir).contains("bad__sum"));

    accept(&dir, &[&pinned]);
    assert!(shown(&dir).contains("bad__sum") && !shown(&dir).contains("bad__result"));
    assert_eq!(pin(&dir, "bad__sum", "accepted"), pinned);

    fs::write(dir.path("open/changed"), "").unwrap();
    assert!(!shown(&dir).contains("bad__sum"));
    assert_ne!(pin(&dir, "bad__sum", "quarantined"), pinned);
    let ran = dir.run(&["lock", "accept", &pinned]);
    assert!(ran.code == Some(1) && ran.err.contains("lists no definition with the digest"), "{}", ran.err);
    dir.assert_nothing_left();
}

#[test]
fn check_status_and_the_ledger_name_what_is_quarantined() {
    let dir = TestDir::new(&config(""));
    let pinned = pin(&dir, "bad__sum", "quarantined");
    let checked = dir.run(&["check"]).out;
    let command = format!("to release it: portcullis lock accept {pinned}");
    for said in ["quarantined  tool bad__sum", "grave", "/description: <IMPORTANT>", "warned", &command] {
        assert!(checked.contains(said), "{said}: {checked}");
    }
    for kind in ["prompt bad__obey", "resource portcullis://bad/mem://bad", "template portcullis://bad/mem://bad/{id}"]
    {
        assert!(checked.contains(&format!("quarantined  {kind}")), "{kind}: {checked}");
    }

    let mut agent = Agent::alone(&dir, Era::Legacy);
    for method in ["tools/list", "tools/list", "prompts/list", "prompts/list", "resources/list"] {
        agent.request(method, json!({}));
    }
    let status = dir.run(&["status"]).out;
    assert!(status.contains("5 quarantined") && status.contains(&command), "{status}");
    let brokers: Value = serde_json::from_str(&dir.run(&["status", "--json"]).out).unwrap();
    assert_eq!((&brokers[0]["total_quarantined"], &brokers[0]["sources"][0]["quarantined"]), (&json!(5), &json!(5)));
    agent.leave();

    let recorded = dir.records_of("definition.flagged");
    let definitions: Vec<_> =
        recorded.iter().flat_map(|record| record["body"]["definitions"].as_array().unwrap()).collect();
    let of = |name: &str| definitions.iter().filter(|flagged| flagged["name"] == name).count();
    let names =
        ["bad__sum", "bad__result", "bad__urgent", "bad (instructions)", "bad__obey", "portcullis://bad/mem://bad"];
    assert_eq!(names.map(of), [1; 6], "{recorded:?}");
    let sum = definitions.iter().find(|flagged| flagged["name"] == "bad__sum").unwrap();
    assert_eq!(format!("bad@{}", sum["definition"].as_str().unwrap()), pinned);
    assert_eq!((&sum["state"], &sum["findings"][0]["severity"]), (&json!("quarantined"), &json!("grave")));
    assert!(!json!(recorded).to_string().contains(ORDER), "the text itself is not recorded: {recorded:?}");
    dir.assert_nothing_left();
}

#[test]
fn what_is_found_is_recorded_once_however_many_sessions_list_it() {
    let dir = TestDir::new(&config(""));
    let server = Server::start(&dir);
    for _ in 0..2 {
        let mut session = server.endpoint.session(&json!({ "elicitation": {} }));
        assert_eq!(session.call("bad__add", &json!({})), Some(json!({ "ok": "called" })));
    }
    server.running.signal(Signal::TERM);
    let (code, err) = server.running.end();
    assert_eq!((code, err.matches("is quarantined").count()), (Some(0), 3), "{err}");
    assert_eq!(dir.records_of("mcp.connected").len(), 2, "each session listed the tools");
    let recorded = dir.records_of("definition.flagged");
    assert_eq!(recorded.len(), 1, "{recorded:?}");
    dir.assert_nothing_left();
}

#[test]
fn an_accepted_prompt_or_resource_that_has_changed_asks_and_says_what_changed() {
    let dir = TestDir::new(&config(""));
    accept(&dir, &["--kind", "prompt", "bad__greet"]);
    accept(&dir, &["--kind", "resource", "*good"]);
    accept(&dir, &["--kind", "template", "portcullis://bad/mem://good/{id}"]);
    let shown: Value = serde_json::from_str(&dir.run(&["lock", "show", "--json"]).out).unwrap();
    let count = |kind: &str| shown[kind].as_array().unwrap().len();
    assert_eq!(["tools", "prompts", "resources", "templates"].map(count), [0, 1, 1, 1], "{shown}");

    let read = json!({ "uri": "portcullis://bad/mem://good" });
    let mut agent = Agent::alone(&dir, Era::Legacy);
    let got = agent.request("prompts/get", json!({ "name": "bad__greet" }));
    assert!(got["result"].is_object() && agent.request("resources/read", read.clone())["result"].is_object(), "{got}");
    agent.leave();

    fs::write(dir.path("open/changed"), "").unwrap();
    let checked = dir.run(&["check"]).out;
    let says = r#"is not what was accepted: description changed from "It is honest." to "It has changed.""#;
    for what in
        ["prompt bad__greet", "resource portcullis://bad/mem://good", "template portcullis://bad/mem://good/{id}"]
    {
        assert!(checked.contains(&format!("{what} {says}")), "{what}: {checked}");
    }
    let diff = dir.run(&["lock", "diff"]);
    assert!(diff.code == Some(1) && diff.out.contains("changed   bad__greet"), "{}", diff.out);

    let mut agent = Agent::alone(&dir, Era::Legacy);
    for (method, params, kind) in
        [("prompts/get", json!({ "name": "bad__greet" }), "prompt"), ("resources/read", read, "resource")]
    {
        let id = agent.send(method, params);
        let mut question = None;
        until("the question is open", || {
            let open: Value = serde_json::from_str(&dir.run(&["approvals", "--json"]).out).unwrap();
            question = open[0]["id"].as_str().map(str::to_owned);
            question.is_some()
        });
        let question = question.unwrap();
        let asked = dir.run(&["approvals", "show", &question]).out;
        assert!(
            asked.contains(&format!("the {kind} is not the one that was accepted: description changed from")),
            "{asked}"
        );
        assert_eq!(dir.run(&["approvals", "refuse", &question]).code, Some(0));
        assert_eq!(outcome(&agent.answer(id, None))["refused"], "approval-refused");
    }
    agent.leave();
    dir.assert_nothing_left();
}
