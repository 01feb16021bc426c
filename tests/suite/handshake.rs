//! An agent's handshake is answered whatever the sources do, and says what they offer as far as that is known.

use std::fs;

use serde_json::{Value, json};

use crate::agent::Running;
use crate::recovery::write;
use crate::test_dir::{DEADLINE, TestDir, until};

/// Returns a folder with a source that follows a script.
fn scripted(more: &str) -> TestDir {
    TestDir::new(&format!(
        "[sources.slow]\ncommand = [\"@source@\", \"faulty\", \"@dir@/open/slow\"]\n@cell@\n{more}\n"
    ))
}

/// Makes the source answer from now on.
fn release(dir: &TestDir) {
    fs::write(dir.path("open/slow.go"), "").unwrap();
}

/// Starts a broker and begins a session. Returns the broker and the result of `initialize`.
fn initialized(dir: &TestDir) -> (Running, Value) {
    let mut broker = Running::start(dir.command(&["serve", "--stdio"]));
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "suite" } });
    let result = ask(&mut broker, "initialize", &params);
    broker.write(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    (broker, result)
}

/// Sends a request and returns its result.
fn ask(broker: &mut Running, method: &str, params: &Value) -> Value {
    broker.write(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string());
    loop {
        let message: Value = serde_json::from_str(&broker.out.recv_timeout(DEADLINE).unwrap()).unwrap();
        if message["id"] == 1 {
            return message["result"].clone();
        }
    }
}

fn tools(broker: &mut Running) -> Value {
    ask(broker, "tools/list", &json!({}))["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect()
}

#[test]
fn a_handshake_waits_for_no_source_that_connected_before_even_if_it_is_required() {
    let dir = scripted("required = true");
    write(&dir, "slow", "instructs logs\nwaits instructs logs");
    let (mut broker, _) = initialized(&dir);
    tools(&mut broker);
    until("what the source says is kept", || dir.path(".portcullis/announcements/slow.json").exists());
    broker.end();

    // The source waits for the file, which comes only after the answer.
    let (mut broker, offered) = initialized(&dir);
    assert!(offered["instructions"].as_str().unwrap().contains("slow: be brief"), "{offered}");
    assert_eq!(offered["capabilities"]["logging"], json!({}), "{offered}");
    assert!(offered["capabilities"].get("prompts").is_none(), "{offered}");
    assert_eq!(offered["capabilities"]["tools"]["listChanged"], true, "{offered}");
    release(&dir);
    assert_eq!(tools(&mut broker), json!(["slow__echo"]), "the list waits for a required source");
    broker.end();
    dir.assert_nothing_left();
}

#[test]
fn a_handshake_before_the_first_start_of_a_source_announces_all_that_it_may_offer() {
    // The only source is not waited for either.
    for more in ["", "required = true", "[sources.calc]\ncomponent = \"builtin:calculator\""] {
        let dir = scripted(more);
        write(&dir, "slow", "waits");
        let (mut broker, offered) = initialized(&dir);
        for capability in ["tools", "prompts", "resources"] {
            assert_eq!(offered["capabilities"][capability]["listChanged"], true, "{offered}");
        }
        assert!(offered["instructions"].as_str().unwrap().contains("`slow`"), "{offered}");
        release(&dir);
        // A list does not wait long for a source that is not required.
        until("the source has listed", || {
            let listed = ask(&mut broker, "tools/list", &json!({}));
            listed["tools"].as_array().into_iter().flatten().any(|tool| tool["name"] == "slow__echo")
        });
        assert_eq!(ask(&mut broker, "prompts/list", &json!({}))["prompts"], json!([]));
        broker.end();
    }
}

#[test]
fn what_another_program_said_under_the_same_name_is_not_repeated() {
    let dir = scripted("");
    write(&dir, "slow", "instructs\nwaits");
    let (mut broker, _) = initialized(&dir);
    tools(&mut broker);
    until("what the source says is kept", || dir.path(".portcullis/announcements/slow.json").exists());
    broker.end();
    let configuration = fs::read_to_string(dir.path("portcullis.toml")).unwrap();
    dir.configure(&configuration.replace("open/slow\"]", "open/slow\", \"more\"]"));
    let (broker, offered) = initialized(&dir);
    assert!(!offered["instructions"].as_str().unwrap().contains("be brief"), "{offered}");
    release(&dir);
    broker.end();
}

#[test]
fn a_session_that_ends_during_its_handshake_leaves_nothing_behind() {
    let dir = scripted("");
    write(&dir, "slow", "waits");
    let (broker, _) = initialized(&dir);
    let (code, err) = broker.end();
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(dir.records_of("run.completed").len(), 1);
    dir.assert_nothing_left();
}
