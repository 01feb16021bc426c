//! Several agents at once, of different eras, in front of the same sources: nothing of one reaches another.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::agent::{Agent, Era};
use crate::place::Place;
use crate::web::Server;

const CONFIG: &str = r#"
[profiles.default]
approve = "never"
[sources.far]
command = ["@source@", "full"]
[sources.new]
command = ["@source@", "modern"]
[sources.old]
command = ["@source@", "echo"]
"#;

#[test]
fn progress_of_equal_tokens_reaches_the_agent_whose_it_is() {
    let place = Place::new(CONFIG);
    let server = Server::start(&place);
    let agents: Vec<_> = (1..=6)
        .map(|number| {
            let door = server.door.clone();
            // An era each, and two ways to be a legacy agent: shared connections, and one of its own.
            std::thread::spawn(move || {
                let source = ["new", "old"][number % 2];
                let arguments = json!({ "steps": number });
                let tool = format!("{source}__slow");
                let mut reply = if number % 3 == 0 {
                    let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": 1 } });
                    door.send_modern("tools/call", params).unwrap()
                } else {
                    let can = if number % 3 == 1 { json!({}) } else { json!({ "roots": {} }) };
                    door.session(&can).send_call(&tool, &arguments).unwrap()
                };
                let mut steps = Vec::new();
                loop {
                    let message = reply.next().unwrap();
                    if message["method"].is_null() {
                        assert_eq!(message["result"]["content"][0]["text"], "done", "{message}");
                        break;
                    }
                    assert_eq!(message["params"]["progressToken"], 1);
                    steps.push(message["params"]["progress"].as_u64().unwrap());
                }
                assert_eq!(steps, (1..=number as u64).collect::<Vec<_>>(), "its own, all of it, in order");
            })
        })
        .collect();
    agents.into_iter().for_each(|agent| agent.join().unwrap());
}

#[test]
fn what_belongs_to_no_call_reaches_the_session_that_it_is_for() {
    let place = Place::new(CONFIG);
    let server = Server::start(&place);
    let can = json!({ "elicitation": { "form": {}, "url": {} } });
    let (mut one, mut two) = (server.door.session(&can), server.door.session(&can));
    let (mut heard_by_one, mut heard_by_two) = (one.listen().unwrap(), two.listen().unwrap());
    let uri = json!({ "uri": "portcullis://far/mem://a" });
    one.send("resources/subscribe", uri).unwrap().answer().unwrap();
    let refused = two.send_call("far__page", &json!({})).unwrap().answer().unwrap();
    assert_eq!(refused["error"]["code"], -32042, "{refused}");
    let updated = heard_by_one.next().unwrap();
    assert_eq!(updated["method"], "notifications/resources/updated", "{updated}");
    let done = heard_by_two.next().unwrap();
    assert_eq!(done["method"], "notifications/elicitation/complete", "{done}");
    // Each has heard nothing but its own: what comes next is again its own.
    two.send("resources/subscribe", json!({ "uri": "portcullis://far/mem://a" })).unwrap().answer().unwrap();
    one.send_call("far__page", &json!({})).unwrap().answer().unwrap();
    assert_eq!(heard_by_one.next().unwrap()["method"], "notifications/elicitation/complete");
    assert_eq!(heard_by_two.next().unwrap()["method"], "notifications/resources/updated");
}

#[test]
fn a_task_is_known_to_the_session_that_began_it_and_to_no_other() {
    let place = Place::new(CONFIG);
    let server = Server::start(&place);
    let (mut one, mut two) = (server.door.session(&json!({})), server.door.session(&json!({})));
    let begin = json!({ "name": "far__say", "arguments": {}, "task": { "ttl": 1000 } });
    let begun = one.send("tools/call", begin.clone()).unwrap().answer().unwrap();
    let task = begun["result"]["task"]["taskId"].clone();
    assert!(task.is_string(), "{begun}");
    two.send("tools/call", begin).unwrap().answer().unwrap();
    for method in ["tasks/get", "tasks/result"] {
        let own = one.send(method, json!({ "taskId": task })).unwrap().answer().unwrap();
        assert!(own["result"].is_object(), "{own}");
        let foreign = two.send(method, json!({ "taskId": task })).unwrap().answer().unwrap();
        assert_eq!(foreign["error"]["code"], -32602, "{foreign}");
    }
    let listed = one.send("tasks/list", json!({})).unwrap().answer().unwrap();
    assert_eq!(listed["result"]["tasks"], json!([{ "taskId": task }]), "and nothing of somebody else: {listed}");
}

#[test]
fn many_ids_are_used_again_and_none_is_confused() {
    let place = Place::new(CONFIG);
    let mut agent = Agent::of(place.command(&["serve", "--stdio"]), Era::Legacy, json!({}));
    agent.list();
    // Strings and numbers that read alike are ids of their own, and each may be used again once it was answered.
    for round in 0..3 {
        let mut open = BTreeSet::new();
        for number in 0..60 {
            let id = if number % 2 == 0 { json!(format!("{number}")) } else { json!(number - 1) };
            let arguments = json!({ "round": round, "id": id });
            let params = json!({ "name": "old__echo", "arguments": arguments });
            let request = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
            agent.running.write(&request.to_string());
            open.insert(id.to_string());
        }
        while !open.is_empty() {
            let answer = agent.next().unwrap();
            let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
            let echoed: Value = serde_json::from_str(text).unwrap();
            assert_eq!((&echoed["id"], &echoed["round"]), (&answer["id"], &json!(round)));
            assert!(open.remove(&answer["id"].to_string()), "{answer}");
        }
    }
    agent.leave();
}

#[test]
fn ten_thousand_calls_at_once_are_each_answered_or_refused() {
    let place = Place::new(CONFIG);
    let mut agent = Agent::of(place.command(&["serve", "--stdio"]), Era::Legacy, json!({}));
    agent.list();
    let mut open = BTreeSet::new();
    for number in 0..10_000 {
        let id = json!(format!("call {number}"));
        let params = json!({ "name": "old__echo", "arguments": { "id": id } });
        agent
            .running
            .write(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string());
        open.insert(id.to_string());
    }
    let (mut answered, mut refused) = (0, 0);
    while !open.is_empty() {
        let answer = agent.next().unwrap();
        assert!(open.remove(&answer["id"].to_string()), "{answer}");
        if answer["error"].is_object() {
            assert!(answer["error"]["message"].as_str().unwrap().contains("64 requests"), "{answer}");
            refused += 1;
        } else {
            answered += 1;
        }
    }
    assert!(answered >= 64, "{answered} answered, {refused} refused");
    agent.leave();
}
