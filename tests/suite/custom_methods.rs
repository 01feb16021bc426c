//! Methods and notifications that are not the protocol's, in both directions, through the gate.

use serde_json::{Value, json};

use crate::agent::{Agent, ERAS, Era};
use crate::test_dir::{TestDir, until};
use crate::web::Server;

const CONFIG: &str = r#"
[profiles.default]
approve = "never"
[sources.far]
command = ["@source@", "mirror"]
required = true
[sources.near]
command = ["@source@", "mirror"]
required = true
"#;

/// Returns parameters that name the source that they are for.
fn to(source: &str) -> Value {
    json!({ "said": "by the agent", "_meta": { "portcullis/source": source } })
}

/// Returns the notifications that a source has received.
fn heard(agent: &mut Agent, source: &str) -> Value {
    agent.request("vendor/heard", to(source))["result"]["heard"].clone()
}

fn await_heard(agent: &mut Agent, source: &str, all: &Value) {
    until("the source hears it", || heard(agent, source) == *all);
}

#[test]
fn a_notification_reaches_only_the_source_that_it_names() {
    let dir = TestDir::new(CONFIG);
    for era in ERAS {
        let mut agent = Agent::of(dir.command(&["serve", "--stdio"]), era, json!({}));
        agent.list();
        agent.notify("vendor/lost", json!({ "said": "to nobody" }));
        agent.notify("vendor/lost", to("nobody"));
        agent.notify("vendor/notice", to("far"));
        await_heard(&mut agent, "far", &json!(["vendor/notice"]));
        assert_eq!(heard(&mut agent, "near"), json!([]));
        agent.leave();
    }
    let told = dir.records_of("call.intent");
    let told: Vec<_> = told.iter().filter(|record| record["body"]["method"] == "vendor/notice").collect();
    assert_eq!(told.len(), 2, "once in each era");
    let ended = dir.records_of("tool.completed");
    let sent = |call: &Value| ended.iter().any(|record| record["call"] == *call && record["body"]["outcome"] == "sent");
    assert!(told.iter().all(|record| sent(&record["call"])));
    let denied = dir.records_of("call.denied");
    let codes: Vec<_> = denied.iter().map(|record| record["body"]["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["unknown-method", "unknown-source", "unknown-method", "unknown-source"]);
}

#[test]
fn a_notification_of_a_source_outside_a_call_reaches_its_agent() {
    let dir = TestDir::new(CONFIG);
    let mut agent = Agent::of(dir.command(&["serve", "--stdio"]), Era::Legacy, json!({}));
    agent.list();
    agent.notify("vendor/notice", to("far"));
    let echo = agent.next().unwrap();
    // The broker removes the name of the source, which only the broker needs.
    let told = json!({ "said": "by the agent", "_meta": {} });
    assert_eq!((&echo["method"], &echo["params"]), (&json!("vendor/echo"), &told));
    agent.leave();
}

#[test]
fn policies_decide_on_notifications_in_both_directions_by_their_method() {
    let deny = |on: &str, method: &str| {
        let settings = format!("{{ deny = [{{ method = \"{method}\" }}] }}");
        format!("[[policies]]\nplugin = \"builtin:rules\"\non = [\"{on}\"]\nsettings = {settings}\n")
    };
    let dir = TestDir::new(&format!("{}{}{CONFIG}", deny("call", "vendor/secret"), deny("result", "vendor/echo")));
    let mut agent = Agent::of(dir.command(&["serve", "--stdio"]), Era::Legacy, json!({}));
    agent.list();
    agent.notify("vendor/secret", to("far"));
    agent.notify("vendor/notice", to("far"));
    // Every message is a response: notifications of the source are withheld.
    let mut notices = 0;
    until("the source hears it", || {
        let id = agent.send("vendor/heard", to("far"));
        let answer = agent.next().unwrap();
        notices += usize::from(answer["id"] != id);
        answer["result"]["heard"] == json!(["vendor/notice"])
    });
    assert_eq!(notices, 0);
    agent.leave();
    let denied = dir.records_of("call.denied");
    assert_eq!(denied.len(), 1);
    assert_eq!((&denied[0]["body"]["method"], &denied[0]["body"]["code"]), (&json!("vendor/secret"), &json!("rule")));
}

#[test]
fn a_notification_with_a_method_of_the_protocol_reaches_no_source() {
    let dir = TestDir::new(CONFIG);
    for era in ERAS {
        let mut agent = Agent::of(dir.command(&["serve", "--stdio"]), era, json!({}));
        agent.list();
        for method in ["tools/call", "Tools/Call", "resources/subscribe", "ping"] {
            let mut params = to("far");
            params["name"] = json!("mirror");
            agent.notify(method, params);
        }
        agent.notify("vendor/notice", to("far"));
        await_heard(&mut agent, "far", &json!(["vendor/notice"]));
        agent.leave();
    }
}

#[test]
fn a_notification_needs_approval_like_a_call() {
    let dir = TestDir::new(&CONFIG.replace("\"never\"", "\"always\""));
    let mut agent = Agent::start(&dir, Era::Legacy);
    for (answer, all) in [("refuse", json!([])), ("once", json!(["vendor/notice"]))] {
        agent.notify("vendor/notice", to("far"));
        let asked = agent.next().unwrap();
        assert_eq!(asked["method"], "elicitation/create", "{asked}");
        let result = json!({ "action": "accept", "content": { "answer": answer } });
        agent.running.write(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result }).to_string());
        if all != json!([]) {
            let echo = agent.next().unwrap();
            assert_eq!(echo["method"], "vendor/echo", "{echo}");
        }
        let id = agent.send("vendor/heard", to("far"));
        assert_eq!(agent.answer(id, Some("once"))["result"]["heard"], all);
    }
    agent.leave();
}

#[test]
fn notifications_reach_their_source_over_http_in_both_eras() {
    let dir = TestDir::new(CONFIG);
    let server = Server::start(&dir);
    let mut legacy = server.endpoint.session(&json!({}));
    legacy.notify("vendor/legacy", &to("far"));
    let all = |source: &str| server.endpoint.modern("vendor/heard", to(source)).unwrap()["result"]["heard"].clone();
    until("the source hears it", || all("far") == json!(["vendor/legacy"]));
    server.endpoint.say_modern(&json!({}), None, "vendor/modern", to("far")).unwrap();
    until("the source hears it", || all("far") == json!(["vendor/legacy", "vendor/modern"]));
    assert_eq!(all("near"), json!([]));
    let answer = legacy.send("vendor/heard", to("near")).unwrap().answer().unwrap();
    assert_eq!(answer["result"]["heard"], json!([]));
}

#[test]
fn the_last_notification_of_an_agent_still_reaches_its_source() {
    let dir = TestDir::new(CONFIG);
    for era in ERAS {
        let mut agent = Agent::of(dir.command(&["serve", "--stdio"]), era, json!({}));
        agent.list();
        agent.notify("vendor/goodbye", to("far"));
        agent.leave();
    }
    let ended = dir.records_of("tool.completed");
    assert_eq!(ended.iter().filter(|record| record["body"]["outcome"] == "sent").count(), 2, "{ended:?}");
}

#[test]
fn notifications_of_an_agent_that_wait_are_limited() {
    let dir = TestDir::new(&CONFIG.replace("\"never\"", "\"always\""));
    let mut agent = Agent::alone(&dir, Era::Legacy);
    agent.list();
    // The first waits for a person, who does not answer.
    for _ in 0..80 {
        agent.notify("vendor/notice", to("far"));
    }
    agent.leave();
    let denied = dir.records_of("call.denied");
    let refused = denied.iter().filter(|record| record["body"]["code"] == "too-many-notifications").count();
    assert!((15..=16).contains(&refused), "{refused}: one is being handled, or will be, and 64 wait");
}

#[test]
fn a_source_s_own_method_is_never_asked_about_by_a_result_that_the_protocol_does_not_have_for_it() {
    let dir = TestDir::new(&CONFIG.replace("never", "always"));
    let mut agent = Agent::start(&dir, Era::Modern);
    let waiting = agent.send("vendor/erase", to("far"));
    until("it waits for a person", || dir.run(&["approvals", "--json"]).out.contains("vendor/erase"));
    let open: Value = serde_json::from_str(&dir.run(&["approvals", "--json"]).out).unwrap();
    assert_eq!(dir.run(&["approvals", "approve", open[0]["id"].as_str().unwrap()]).code, Some(0));
    let answer = agent.answer(waiting, None);
    let echo = &answer["result"]["echo"];
    assert!(echo.is_object() && echo.get("requestState").is_none(), "{answer}");
    assert_eq!(dir.records_of("call.asked").len(), 1);
    agent.leave();
}
