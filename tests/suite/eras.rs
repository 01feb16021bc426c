//! Sources that speak both eras, or one: an agent gets the same from them as without the broker.

use std::process::Command;

use portcullis_test_support::source_program;
use serde_json::{Value, json};

use crate::agent::{Agent, ERAS, Era};
use crate::test_dir::{DEADLINE, TestDir};
use crate::web::Server;

const BOTH: &str = r#"
[profiles.default]
approve = "never"
[sources.both]
command = ["@source@", "dual"]
names = "plain"
"#;

/// A second source, so that the front speaks both eras whatever the first one speaks.
const BESIDE: &str = "[sources.calc]\ncomponent = \"builtin:calculator\"\n";

#[test]
fn a_source_of_both_eras_can_ask_a_legacy_agent() {
    let dir = TestDir::new(BOTH);
    let mut agent = Agent::start(&dir, Era::Legacy);
    let id = agent.send_call("elicit", &json!({}));
    let answer = agent.answer(id, Some("once"));
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
    assert_eq!((&answer["result"]["isError"], text.contains("accept")), (&json!(false), true), "{answer}");
    agent.leave();
}

#[test]
fn a_legacy_agent_without_a_log_level_gets_the_log_messages_of_a_source_of_both_eras() {
    let dir = TestDir::new(BOTH);
    let mut agent = Agent::alone(&dir, Era::Legacy);
    let id = agent.send_call("log", &json!({}));
    let said = agent.next().unwrap();
    assert_eq!(said["params"], json!({ "level": "info", "data": "a line of the log" }), "{said}");
    assert_eq!(agent.answer(id, None)["result"]["content"][0]["text"], "logged");
    agent.leave();
}

#[test]
fn a_legacy_agent_gets_the_tool_list_of_a_source_of_both_eras_byte_for_byte() {
    let dir = TestDir::new(BOTH);
    let mut direct = Command::new(source_program("portcullis-test-source"));
    direct.arg("dual");
    dir.prepare(&mut direct);
    let listed = |agent: &mut Agent| {
        agent.send_raw("tools/list", "{}");
        agent.running.out.recv_timeout(DEADLINE).expect("a list")
    };
    let mut direct = Agent::of(direct, Era::Legacy, json!({}));
    let expected = listed(&mut direct);
    for variant in ["", ", \"quiet\""] {
        dir.configure(&BOTH.replace("\"dual\"", &format!("\"dual\"{variant}")));
        let mut agent = Agent::alone(&dir, Era::Legacy);
        assert_eq!(listed(&mut agent), expected, "{variant}");
        agent.leave();
    }
}

/// Returns the answer of the tool `which`: the era that its process speaks, and an id of the process.
fn which(answer: &Value) -> (String, String) {
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
    let (era, process) = text.split_once(' ').unwrap();
    (era.to_owned(), process.to_owned())
}

#[test]
fn a_connection_to_a_source_uses_the_era_of_its_agent() {
    for (variant, own) in [("", true), (", \"quiet\"", false)] {
        let dir = TestDir::new(&BOTH.replace("\"dual\"", &format!("\"dual\"{variant}")));
        let server = Server::start(&dir);
        let modern = || server.endpoint.modern("tools/call", json!({ "name": "which", "arguments": {} })).unwrap();
        let legacy = || {
            let mut session = server.endpoint.session(&json!({}));
            session.send_call("which", &json!({})).unwrap().answer().unwrap()
        };
        let (first, one, two, second) = (which(&modern()), which(&legacy()), which(&legacy()), which(&modern()));
        assert_eq!((&*first.0, &*one.0, &*two.0), ("modern", "legacy", "legacy"), "{variant}");
        assert_eq!(first, second, "modern agents share a connection");
        assert_eq!(one != two, own, "a source that keeps no state for each client is shared: {variant}");
    }
}

#[test]
fn the_configured_era_of_a_source_overrides_the_era_of_its_agents() {
    for (era, agents) in [("legacy", Era::Modern), ("modern", Era::Legacy)] {
        let dir = TestDir::new(&format!("{BOTH}era = \"{era}\"\n{BESIDE}"));
        let mut agent = Agent::alone(&dir, agents);
        let id = agent.send_call("which", &json!({}));
        assert_eq!(which(&agent.answer(id, None)).0, era);
        agent.leave();
    }
}

/// Starts `portcullis wrap` in front of one fake source, with an agent that negotiates the era.
fn wrapped(dir: &TestDir, mode: &str) -> Agent {
    let source = source_program("portcullis-test-source").display().to_string();
    let wrap = ["wrap", "--approve", "never", "--data-dir", "data", "--", &source, mode];
    Agent::of(dir.command(&wrap), Era::Modern, json!({}))
}

fn initialize() -> Value {
    json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "suite", "version": "1" } })
}

#[test]
fn an_agent_that_negotiates_falls_back_to_the_legacy_era_of_the_only_source() {
    let dir = TestDir::new("");
    let mut agent = wrapped(&dir, "full");
    let discovered = agent.request("server/discover", json!({}));
    assert_eq!(discovered["error"]["code"], -32601, "{discovered}");
    let id = agent.send_raw("initialize", &initialize().to_string());
    let opened = agent.answer(id, None);
    let capabilities = &opened["result"]["capabilities"];
    assert!(capabilities["logging"].is_object() && capabilities["resources"]["subscribe"] == true, "{opened}");
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    agent.running.write(&initialized.to_string());
    for (method, params) in
        [("logging/setLevel", r#"{"level":"error"}"#), ("resources/subscribe", r#"{"uri":"mem://a"}"#)]
    {
        let id = agent.send_raw(method, params);
        assert_eq!(agent.answer(id, None)["result"], json!({}), "{method}");
    }
    agent.leave();
}

#[test]
fn a_legacy_agent_reaches_a_modern_source() {
    let dir = TestDir::new("");
    let mut agent = wrapped(&dir, "modern");
    let id = agent.send_raw("initialize", &initialize().to_string());
    let opened = agent.answer(id, None);
    assert_eq!(opened["result"]["protocolVersion"], "2025-11-25", "{opened}");
    let id = agent.send_raw("tools/list", "{}");
    assert!(agent.answer(id, None)["result"]["tools"].is_array());
    agent.leave();
}

#[test]
fn the_front_speaks_both_eras_for_several_sources_or_one_of_both_eras() {
    let old = "[sources.old]\ncommand = [\"@source@\", \"full\"]\n";
    for config in [BOTH.to_owned(), format!("{old}{BESIDE}")] {
        let dir = TestDir::new(&config);
        let mut modern = Agent::alone(&dir, Era::Modern);
        let discovered = modern.request("server/discover", json!({}));
        assert_eq!(discovered["result"]["supportedVersions"], json!(["2026-07-28"]), "{discovered}");
        modern.leave();
        let mut legacy = Agent::alone(&dir, Era::Legacy);
        assert!(legacy.list()["tools"].is_array());
        legacy.leave();
    }
}

#[test]
fn an_agent_that_negotiates_over_http_finds_the_era_of_the_only_source() {
    let one = |mode: &str| {
        let dir = TestDir::new(&format!("[sources.one]\ncommand = [\"@source@\", \"{mode}\"]\n"));
        let server = Server::start(&dir);
        (dir, server)
    };
    let (_place, server) = one("full");
    let discovered = server.endpoint.modern("server/discover", json!({})).unwrap();
    assert_eq!(discovered["error"]["code"], -32601, "{discovered}");
    let mut session = server.endpoint.session(&json!({}));
    let level = session.send("logging/setLevel", json!({ "level": "error" })).unwrap().answer().unwrap();
    assert_eq!(level["result"], json!({}), "{level}");
    let (_place, server) = one("modern");
    assert!(server.endpoint.modern("server/discover", json!({})).unwrap()["result"].is_object());
}

#[test]
fn extra_members_of_a_list_result_pass_only_from_a_single_source() {
    for (config, kept) in [(BOTH.to_owned(), true), (format!("{BOTH}{BESIDE}"), false)] {
        let dir = TestDir::new(&config);
        for (era, vendor) in [(Era::Legacy, 1.0), (Era::Modern, 2.0)] {
            let mut agent = Agent::alone(&dir, era);
            let listed = agent.request("tools/list", json!({}));
            let beside = (&listed["result"]["vendor"], &listed["result"]["_meta"]["vendor.example/a"]);
            let expected = if kept { (json!(vendor), json!(vendor + 0.5)) } else { (Value::Null, Value::Null) };
            assert_eq!(beside, (&expected.0, &expected.1), "{era:?}: {listed}");
            agent.leave();
        }
    }
}

#[test]
fn an_error_code_of_a_source_reaches_agents_of_both_eras_unchanged() {
    let dir = TestDir::new(BOTH);
    for era in ERAS {
        let mut agent = Agent::alone(&dir, era);
        let id = agent.send_call("gone", &json!({}));
        let answer = agent.answer(id, None);
        assert_eq!(answer["error"], json!({ "code": -32002, "message": "there is no such thing" }), "{era:?}");
        agent.leave();
    }
}
