//! Pages that a person must open (URL elicitation), from sources of either era to agents of either era.

use serde_json::{Value, json};

use crate::agent::{Agent, ERAS, Era};
use crate::test_dir::TestDir;

const CONFIG: &str = r#"
[profiles.default]
approve = "never"
[sources.far]
command = ["@source@", "full"]
required = true
[sources.new]
command = ["@source@", "modern"]
required = true
"#;

fn agent(dir: &TestDir, era: Era, elicitation: &Value) -> Agent {
    Agent::of(dir.command(&["serve", "--stdio"]), era, json!({ "elicitation": elicitation }))
}

#[test]
fn a_url_elicitation_error_and_its_completion_reach_a_legacy_agent_unchanged() {
    let dir = TestDir::new(CONFIG);
    let mut legacy = agent(&dir, Era::Legacy, &json!({ "form": {}, "url": {} }));
    legacy.list();
    let id = legacy.send_call("far__page", &json!({}));
    let (mut refused, mut done) = (None, None);
    while refused.is_none() || done.is_none() {
        let line = legacy.running.out.recv_timeout(crate::test_dir::DEADLINE).unwrap();
        if line.contains("notifications/elicitation/complete") {
            done = Some(line);
        } else if line.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"#)) {
            refused = Some(line);
        }
    }
    let (refused, done) = (refused.unwrap(), done.unwrap());
    assert!(refused.contains(r#""code":-32042"#) && refused.contains(r#""vendor":1.0e2}"#), "{refused}");
    assert!(refused.contains(r#""url":"https://pages.example/1""#), "{refused}");
    assert!(done.contains(r#"{"elicitationId":"page 1"}"#), "{done}");
    assert_eq!(legacy.call("far__page", &json!({}), None)["ok"], "opened");
    legacy.leave();
}

#[test]
fn a_modern_agent_is_asked_to_open_the_page_of_a_legacy_source_and_retries() {
    let dir = TestDir::new(CONFIG);
    let mut modern = agent(&dir, Era::Modern, &json!({ "url": {} }));
    let ask = |modern: &mut Agent| {
        let asked = modern.request("tools/call", json!({ "name": "far__page", "arguments": {} }));
        let page = &asked["result"]["inputRequests"]["page-0"];
        assert_eq!(
            (&page["method"], &page["params"]["mode"]),
            (&json!("elicitation/create"), &json!("url")),
            "{asked}"
        );
        let message = page["params"]["message"].as_str().unwrap();
        assert_eq!(message, "Source `far` asks: Sign in (opens a page of `pages.example`)");
        asked["result"]["requestState"].clone()
    };
    let come_back = |modern: &mut Agent, state: Value, action: &str| {
        let answers = json!({ "page-0": { "action": action } });
        let retry = json!({ "name": "far__page", "arguments": {}, "requestState": state, "inputResponses": answers });
        modern.request("tools/call", retry)
    };
    let state = ask(&mut modern);
    let answer = come_back(&mut modern, state, "accept");
    assert_eq!(answer["result"]["content"][0]["text"], "opened", "{answer}");
    let state = ask(&mut modern);
    let answer = come_back(&mut modern, state, "decline");
    assert_eq!(answer["error"]["code"], -32042, "{answer}");
    modern.leave();

    // An agent that cannot open pages gets the error of the source.
    let mut modern = agent(&dir, Era::Modern, &json!({}));
    let answer = modern.request("tools/call", json!({ "name": "far__page", "arguments": {} }));
    assert_eq!(answer["error"]["code"], -32042, "{answer}");
    modern.leave();
}

#[test]
fn a_modern_source_asks_agents_of_both_eras_to_open_a_page() {
    let dir = TestDir::new(CONFIG);
    let accept = json!({ "action": "accept" });
    let mut legacy = agent(&dir, Era::Legacy, &json!({ "form": {}, "url": {} }));
    let id = legacy.send_call("new__page", &json!({}));
    let asked = legacy.next().unwrap();
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    assert_eq!(asked["params"]["elicitationId"], "new page", "{asked}");
    legacy.running.write(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": accept }).to_string());
    assert_eq!(legacy.answer(id, None)["result"]["content"][0]["text"], accept.to_string());
    legacy.leave();

    let mut modern = agent(&dir, Era::Modern, &json!({ "url": {} }));
    let asked = modern.request("tools/call", json!({ "name": "new__page", "arguments": {} }));
    assert_eq!(asked["result"]["inputRequests"]["page"]["params"]["url"], "https://pages.example/2", "{asked}");
    modern.leave();

    for era in ERAS {
        let mut agent = agent(&dir, era, &json!({}));
        let answer = agent.request("tools/call", json!({ "name": "new__page", "arguments": {} }));
        let said = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(said.contains("did not declare `elicitation.url`"), "{said}");
        agent.leave();
    }
}

#[test]
fn a_result_with_a_crowd_of_questions_is_refused_and_none_of_them_is_recorded() {
    let dir = TestDir::new(CONFIG);
    for era in ERAS {
        let mut agent = agent(&dir, era, &json!({ "form": {} }));
        let answer = agent.request("tools/call", json!({ "name": "new__crowd", "arguments": {} }));
        let said = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(said.contains("asks 1000 questions in one result; at most 64"), "{said}");
        agent.leave();
    }
    assert!(dir.records_of("call.intent").len() < 10);
}

#[test]
fn an_answer_sent_with_the_first_request_is_used_only_once_its_question_has_passed() {
    let dir = TestDir::new(CONFIG);
    let accept = json!({ "action": "accept" });
    let call = |answers: Value| json!({ "name": "new__page", "arguments": {}, "inputResponses": answers });
    let mut modern = agent(&dir, Era::Modern, &json!({ "url": {} }));
    let answer = modern.request("tools/call", call(json!({ "page": accept, "unknown": accept })));
    assert_eq!(answer["result"]["content"][0]["text"], accept.to_string(), "{answer}");
    for without in [json!({ "unknown": accept }), json!({}), Value::Null] {
        let asked = modern.request("tools/call", call(without));
        assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    }
    modern.leave();

    // If the question is refused, the answer to it is not used.
    let mut modern = agent(&dir, Era::Modern, &json!({}));
    let refused = modern.request("tools/call", call(json!({ "page": accept })));
    assert!(refused["error"].is_object(), "{refused}");
    modern.leave();
}
