//! Lists that change while an agent is there: it gets them when it lists again, and calls what it was shown.

use serde_json::{Value, json};

use crate::agent::{Agent, Era, outcome};
use crate::recovery::write;
use crate::reload::{CALC, NEVER, reload, scripted, unwatched};
use crate::test_dir::{TestDir, until};
use crate::web::{Endpoint, Server};

/// Returns the configuration of a source that follows its script.
fn config(more: &str) -> String {
    format!(
        "[profiles.default]\napprove = \"never\"\n[sources.files]\ncommand = [\"@source@\", \"faulty\", \
         \"@dir@/open/files\"]\n@cell@\n{more}\n"
    )
}

/// Returns the properties of the arguments of the only tool that is listed.
fn shown(endpoint: &Endpoint) -> Value {
    let listed = endpoint.modern("tools/list", json!({})).unwrap();
    listed["result"]["tools"][0]["inputSchema"]["properties"].clone()
}

fn call(endpoint: &Endpoint) -> Value {
    let params = json!({ "name": "files__echo", "arguments": {} });
    outcome(&endpoint.modern("tools/call", params).unwrap())
}

#[test]
fn a_modern_agent_that_lists_again_calls_what_a_source_that_came_back_offers() {
    let dir = TestDir::new(&config(""));
    write(&dir, "files", "exit-in-call\nother-schema");
    let server = Server::start(&dir);
    assert_eq!(shown(&server.endpoint), Value::Null);
    assert_eq!(call(&server.endpoint)["refused"], "outcome-unknown");
    let refused = call(&server.endpoint);
    assert_eq!(refused["refused"], "not-sent", "it was not shown this: {refused}");
    assert!(refused["message"].as_str().unwrap().contains("list again"), "{refused}");
    assert!(shown(&server.endpoint)["q"].is_object());
    assert_eq!(call(&server.endpoint), json!({ "ok": "{}" }));
    assert_eq!(server.running.end_by(rustix::process::Signal::TERM).0, Some(0));
}

/// Such a source announces nothing: each process lists once, and is asked once.
#[test]
fn a_modern_agent_that_lists_again_calls_what_a_source_offers_that_is_started_for_each_call() {
    for (more, shown_in) in [("", "tools/list"), ("tools = \"deferred\"\n", "describe_tool")] {
        let config = config("lifecycle = \"per-call\"").replacen("approve", &format!("{more}approve"), 1);
        let dir = TestDir::new(&config);
        write(&dir, "files", "well\nother-schema");
        let server = Server::start(&dir);
        let listed = || match shown_in {
            "tools/list" => server.endpoint.modern("tools/list", json!({})).unwrap().to_string(),
            tool => {
                let params = json!({ "name": tool, "arguments": { "name": "files__echo" } });
                server.endpoint.modern("tools/call", params).unwrap().to_string()
            }
        };
        let first = listed();
        assert!(first.contains("files__echo") && !first.contains("\"q\""), "{first}");
        assert_eq!(call(&server.endpoint)["refused"], "not-sent", "{shown_in}");
        assert_eq!(call(&server.endpoint)["refused"], "not-sent", "{shown_in}: it was not shown the other yet");
        assert!(listed().contains("\"q\"") || listed().contains("\\\"q\\\""), "{shown_in}");
        assert_eq!(call(&server.endpoint), json!({ "ok": "{}" }), "{shown_in}");
    }
}

#[test]
fn a_source_that_arrives_after_an_agent_has_subscribed_is_heard_from_then_on() {
    for era in [Era::Legacy, Era::Modern] {
        // It would speak the legacy era with a legacy agent, and needs no subscription there.
        let dir = TestDir::new(&format!("{CALC}{}", config("era = \"modern\"")));
        write(&dir, "files", "exit-at-start");
        let mut agent = Agent::alone(&dir, era);
        assert_eq!(agent.list()["tools"].as_array().unwrap().len(), 4);
        let wanted = json!({ "toolsListChanged": true, "promptsListChanged": true });
        if era == Era::Modern {
            agent.send("subscriptions/listen", json!({ "notifications": wanted }));
            let acknowledged = agent.next().unwrap();
            assert_eq!(acknowledged["params"]["notifications"], wanted, "the broker can announce both: {acknowledged}");
        }
        write(&dir, "files", "modern prompts");
        let mut unheard = vec!["notifications/prompts/list_changed", "notifications/tools/list_changed"];
        while !unheard.is_empty() {
            let message = agent.next().unwrap();
            unheard.retain(|method| message["method"] != *method);
        }
        // The source announces a change with each call, as soon as it is subscribed to.
        let mut heard = 0;
        until("the source is heard, and not the broker alone", || {
            let id = agent.send_call("files__echo", &json!({}));
            loop {
                let message = agent.next().unwrap();
                heard += usize::from(message["method"] == "notifications/prompts/list_changed");
                if message["id"] == id {
                    return heard > 2;
                }
            }
        });
        agent.leave();
        dir.assert_nothing_left();
    }
}

fn prompt(agent: &mut Agent) -> Value {
    agent.request("prompts/list", json!({}))["result"]["prompts"][0]["description"].clone()
}

#[test]
fn a_prompt_that_is_another_after_a_restart_is_announced_and_can_be_had() {
    let dir = TestDir::new(&config(""));
    write(&dir, "files", "prompts exit-in-call\nprompts other-prompt");
    let mut agent = Agent::alone(&dir, Era::Legacy);
    agent.list();
    assert_eq!(prompt(&mut agent), "a prompt");
    agent.send_call("files__echo", &json!({}));
    while agent.next().unwrap()["method"] != "notifications/prompts/list_changed" {}
    assert_eq!(prompt(&mut agent), "another");
    let got = agent.request("prompts/get", json!({ "name": "files__greet" }));
    assert!(got["result"]["messages"].is_array(), "{got}");
    agent.leave();
    dir.assert_nothing_left();
}

#[test]
fn a_prompt_that_changes_unannounced_is_refused_once_and_can_be_had_when_it_is_listed_again() {
    let dir = TestDir::new(&config("lifecycle = \"per-call\""));
    write(&dir, "files", "prompts\nprompts\nprompts other-prompt");
    let mut agent = Agent::alone(&dir, Era::Legacy);
    agent.list();
    assert_eq!(prompt(&mut agent), "a prompt");
    let refused = outcome(&agent.request("prompts/get", json!({ "name": "files__greet" })));
    assert!(refused["message"].as_str().unwrap().contains("list again"), "{refused}");
    assert_eq!(prompt(&mut agent), "another");
    let got = agent.request("prompts/get", json!({ "name": "files__greet" }));
    assert!(got["result"]["messages"].is_array(), "{got}");
    agent.leave();
    dir.assert_nothing_left();
}

#[test]
fn a_list_whose_changes_nobody_announces_is_taken_anew_when_the_agent_lists_again() {
    let dir = TestDir::new(&config(""));
    write(&dir, "files", "grows");
    let mut agent = Agent::alone(&dir, Era::Legacy);
    let mut count = || agent.request("resources/list", json!({}))["result"]["resources"].as_array().unwrap().len();
    let first = count();
    until("the list has grown", || count() > first);
    agent.leave();
    dir.assert_nothing_left();
}

#[test]
fn a_subscription_that_could_announce_more_ends_so_that_the_agent_listens_again() {
    let dir = TestDir::new(&format!("{NEVER}{}", scripted("one")));
    write(&dir, "one", "modern");
    write(&dir, "two", "modern prompts");
    let mut agent = unwatched(&dir, Era::Modern);
    agent.list();
    let wanted = json!({ "toolsListChanged": true, "promptsListChanged": true });
    let stream = agent.send("subscriptions/listen", json!({ "notifications": wanted }));
    assert_eq!(agent.next().unwrap()["params"]["notifications"], json!({ "toolsListChanged": true }));
    reload(&dir, &agent.running, &format!("{NEVER}{}{}", scripted("one"), scripted("two")));
    loop {
        let message = agent.next().unwrap();
        assert_ne!(message["method"], "notifications/prompts/list_changed", "it was not acknowledged: {message}");
        if message["id"] == stream {
            assert_eq!(message["result"]["resultType"], "complete", "{message}");
            break;
        }
    }
    agent.send("subscriptions/listen", json!({ "notifications": wanted }));
    assert_eq!(agent.next().unwrap()["params"]["notifications"], wanted);
    agent.leave();
    dir.assert_nothing_left();
}
