//! Several agents of different eras at once, with the same sources: nothing of one agent reaches another.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::agent::{Agent, Era};
use crate::test_dir::{TestDir, until};
use crate::web::Server;

const CONFIG: &str = r#"
[profiles.default]
approve = "never"
[sources.far]
command = ["@source@", "full"]
required = true
[sources.new]
command = ["@source@", "modern"]
required = true
[sources.old]
command = ["@source@", "echo"]
required = true
"#;

#[test]
fn progress_with_equal_tokens_reaches_only_the_agent_of_its_call() {
    let dir = TestDir::new(CONFIG);
    let server = Server::start(&dir);
    let agents: Vec<_> = (1..=6)
        .map(|number| {
            let endpoint = server.endpoint.clone();
            // Modern agents, and two kinds of legacy agents: with shared connections, and with a connection of their
            // own.
            std::thread::spawn(move || {
                let source = ["new", "old"][number % 2];
                let arguments = json!({ "steps": number });
                let tool = format!("{source}__slow");
                let mut reply = if number % 3 == 0 {
                    let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": 1 } });
                    endpoint.send_modern("tools/call", params).unwrap()
                } else {
                    let can = if number % 3 == 1 { json!({}) } else { json!({ "roots": {} }) };
                    endpoint.session(&can).send_call(&tool, &arguments).unwrap()
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
fn notifications_outside_a_call_reach_only_their_session() {
    let dir = TestDir::new(CONFIG);
    let server = Server::start(&dir);
    let can = json!({ "elicitation": { "form": {}, "url": {} } });
    let (mut one, mut two) = (server.endpoint.session(&can), server.endpoint.session(&can));
    let (mut heard_by_one, mut heard_by_two) = (one.listen().unwrap(), two.listen().unwrap());
    let uri = json!({ "uri": "portcullis://far/mem://a" });
    one.send("resources/subscribe", uri).unwrap().answer().unwrap();
    let refused = two.send_call("far__page", &json!({})).unwrap().answer().unwrap();
    assert_eq!(refused["error"]["code"], -32042, "{refused}");
    let updated = heard_by_one.next().unwrap();
    assert_eq!(updated["method"], "notifications/resources/updated", "{updated}");
    let done = heard_by_two.next().unwrap();
    assert_eq!(done["method"], "notifications/elicitation/complete", "{done}");
    // Each has received only its own notifications: the next one is its own again.
    two.send("resources/subscribe", json!({ "uri": "portcullis://far/mem://a" })).unwrap().answer().unwrap();
    one.send_call("far__page", &json!({})).unwrap().answer().unwrap();
    assert_eq!(heard_by_one.next().unwrap()["method"], "notifications/elicitation/complete");
    assert_eq!(heard_by_two.next().unwrap()["method"], "notifications/resources/updated");
}

#[test]
fn a_task_is_visible_only_to_the_session_that_created_it() {
    let dir = TestDir::new(CONFIG);
    let server = Server::start(&dir);
    let (mut one, mut two) = (server.endpoint.session(&json!({})), server.endpoint.session(&json!({})));
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
    assert_eq!(listed["result"]["tasks"], json!([{ "taskId": task }]), "and no task of another session: {listed}");
}

#[test]
fn a_modern_agent_finds_its_tasks_and_questions_again_with_other_capabilities() {
    let dir =
        TestDir::new(&format!("{CONFIG}[serve.callers.ci]\ntoken = \"the-token-of-ci\"\nprofile = \"default\"\n"));
    let server = Server::start(&dir);
    let tasks = |more: &str| json!({ "extensions": { "io.modelcontextprotocol/tasks": {} }, more: {} });
    let call = |name: &str| json!({ "name": name, "arguments": {} });
    let begun = server.endpoint.modern_with(&tasks("roots"), "tools/call", call("new__later")).unwrap();
    let id = begun["result"]["taskId"].clone();
    assert!(id.is_string(), "{begun}");
    let found = server.endpoint.modern_with(&tasks("sampling"), "tasks/get", json!({ "taskId": id })).unwrap();
    assert_eq!(found["result"]["status"], "completed", "{found}");
    let ci = server.endpoint.with_token("the-token-of-ci");
    let foreign = ci.modern_with(&tasks("sampling"), "tasks/get", json!({ "taskId": id })).unwrap();
    assert_eq!(foreign["error"]["code"], -32602, "another caller does not find it: {foreign}");

    let opens = |more: &str| json!({ "elicitation": { "url": {} }, more: {} });
    let asked = server.endpoint.modern_with(&opens("roots"), "tools/call", call("new__page")).unwrap();
    let mut retry = call("new__page");
    retry["requestState"] = asked["result"]["requestState"].clone();
    retry["inputResponses"] = json!({ "page": { "action": "accept" } });
    let answer = server.endpoint.modern_with(&opens("sampling"), "tools/call", retry).unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], r#"{"action":"accept"}"#, "{answer}");
}

#[test]
fn a_source_cannot_take_over_a_task_of_another_source() {
    let dir = TestDir::new(&format!("{CONFIG}[sources.twin]\ncommand = [\"@source@\", \"modern\"]\n"));
    let server = Server::start(&dir);
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let begin = |source: &str| {
        let call = json!({ "name": format!("{source}__later"), "arguments": {} });
        server.endpoint.modern_with(&tasks, "tools/call", call).unwrap()
    };
    let begun = begin("new");
    let id = begun["result"]["taskId"].clone();
    assert!(id.is_string(), "{begun}");
    let same = begin("twin");
    assert!(same["error"]["message"].as_str().is_some_and(|text| text.contains("another source")), "{same}");
    let again = begin("new");
    assert_eq!(again["result"]["taskId"], id, "its own source may use the id again: {again}");
    server.endpoint.modern_with(&tasks, "tasks/get", json!({ "taskId": id })).unwrap();
    let asked = dir.records_of("call.intent");
    let got: Vec<_> = asked.iter().filter(|record| record["body"]["method"] == "tasks/get").collect();
    assert!(!got.is_empty() && got.iter().all(|record| record["body"]["source"] == "new"), "{got:?}");
}

#[test]
fn each_agent_gets_the_log_level_that_it_asked_for() {
    let dir = TestDir::new(CONFIG);
    let server = Server::start(&dir);
    let mut sessions = [(); 3].map(|()| server.endpoint.session(&json!({})));
    for (session, level) in sessions.iter_mut().zip(["debug", "error"]) {
        session.send("logging/setLevel", json!({ "level": level })).unwrap().answer().unwrap();
    }
    for (session, level) in sessions.iter_mut().zip(["debug", "error", ""]) {
        assert_eq!(
            session.call("far__level", &json!({})).unwrap(),
            json!({ "ok": level }),
            "a source that keeps the level"
        );
        // A source that gets the level with each request.
        let meta = session.call("new__meta", &json!({})).unwrap();
        let meta: Value = serde_json::from_str(meta["ok"].as_str().unwrap()).unwrap();
        assert_eq!(meta["io.modelcontextprotocol/logLevel"].as_str().unwrap_or_default(), level);
    }
    for level in [json!("debug"), json!("error"), Value::Null] {
        let mut params = json!({ "name": "new__meta", "arguments": {} });
        if level.is_string() {
            params["_meta"] = json!({ "io.modelcontextprotocol/logLevel": level });
        }
        let answer = server.endpoint.modern("tools/call", params).unwrap();
        let meta: Value = serde_json::from_str(answer["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(meta["io.modelcontextprotocol/logLevel"], level);
    }
    // Messages below the requested level are not passed on, whatever a source sends: here one with the level `error`.
    for (level, messages) in [("debug", 1), ("error", 1), ("critical", 0), ("", 0)] {
        let mut params = json!({ "name": "far__say", "arguments": {} });
        if !level.is_empty() {
            params["_meta"] = json!({ "io.modelcontextprotocol/logLevel": level });
        }
        let mut reply = server.endpoint.send_modern("tools/call", params).unwrap();
        let mut told = 0;
        while let Some(message) = reply.next() {
            told += usize::from(message["method"] == "notifications/message");
            if message["method"].is_null() {
                break;
            }
        }
        assert_eq!(told, messages, "{level:?}");
    }
}

#[test]
fn tasks_of_several_sources_are_merged_into_one_list() {
    let dir = TestDir::new(&format!("{CONFIG}[sources.third]\ncommand = [\"@source@\", \"full\"]\n"));
    let server = Server::start(&dir);
    let mut session = server.endpoint.session(&json!({}));
    let begun = ["far", "third"].map(|source| {
        let begin = json!({ "name": format!("{source}__say"), "arguments": {}, "task": { "ttl": 1000 } });
        session.send("tools/call", begin).unwrap().answer().unwrap()["result"]["task"]["taskId"].clone()
    });
    let listed = session.send("tasks/list", json!({})).unwrap().answer().unwrap();
    let ids = begun.each_ref().map(|id| json!({ "taskId": id }));
    assert_eq!(listed["result"]["tasks"], json!(ids), "{listed}");
    let only = json!({ "_meta": { "portcullis/source": "third" } });
    let listed = session.send("tasks/list", only).unwrap().answer().unwrap();
    assert_eq!(listed["result"]["tasks"], json!([ids[1]]), "{listed}");
    let unknown = session.send("tasks/get", json!({ "taskId": "nobody's" })).unwrap().answer().unwrap();
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
}

#[test]
fn a_task_of_a_source_that_a_reload_removed_reaches_nothing_and_keeps_nothing_running() {
    let source = |name: &str| format!("[sources.{name}]\ncommand = [\"@source@\", \"full\"]\n");
    let profile = "[profiles.default]\napprove = \"never\"\n";
    let dir = TestDir::new(&format!("{profile}{}{}", source("stays"), source("goes")));
    let mut agent = Agent::start(&dir, Era::Legacy);
    agent.list();
    let begin = json!({ "name": "goes__say", "arguments": {}, "task": { "ttl": 60_000 } });
    let begun = agent.request("tools/call", begin);
    let task = json!({ "taskId": begun["result"]["task"]["taskId"] });
    assert!(task["taskId"].is_string(), "{begun}");
    let found = agent.request("tasks/get", task.clone());
    assert!(found["result"].is_object(), "{found}");
    // The broker, and as many processes of each source.
    let without_one = dir.processes().len().div_ceil(2);
    dir.configure(&format!("{profile}{}", source("stays")));
    agent.running.says("the configuration is reloaded");
    until("the source has ended", || dir.processes().len() == without_one);
    let intents = dir.records_of("call.intent").len();
    for method in ["tasks/get", "tasks/cancel"] {
        let gone = agent.request(method, task.clone());
        assert_eq!(gone["error"]["code"], -32602, "{method}: {gone}");
    }
    assert_eq!((dir.records_of("call.intent").len(), dir.processes().len()), (intents, without_one));
}

#[test]
fn request_ids_can_be_reused_and_are_never_confused() {
    let dir = TestDir::new(CONFIG);
    let mut agent = Agent::of(dir.command(&["serve", "--stdio"]), Era::Legacy, json!({}));
    agent.list();
    // A string and a number that look alike are different ids, and each may be used again once it was answered.
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
    let dir = TestDir::new(CONFIG);
    let mut agent = Agent::of(dir.command(&["serve", "--stdio"]), Era::Legacy, json!({}));
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
            assert!(answer["error"]["message"].as_str().unwrap().contains("1024 requests"), "{answer}");
            refused += 1;
        } else {
            answered += 1;
        }
    }
    assert!(answered >= 1024, "{answered} answered, {refused} refused");
    agent.leave();
}

#[test]
fn a_caller_who_is_removed_from_the_file_is_refused_and_its_streams_end() {
    let caller =
        |name: &str| format!("[serve.callers.{name}]\ntoken = \"the-token-of-{name}\"\nprofile = \"default\"\n");
    let person = "[serve.people.eve]\ntoken = \"the-token-of-eve\"\n[serve.people.max]\ntoken = \"the-token-of-max\"\n";
    let dir = TestDir::new(&format!("{CONFIG}{}{}{person}", caller("ann"), caller("bob")));
    let server = Server::start(&dir);
    let [ann, bob] = ["ann", "bob"].map(|name| server.endpoint.with_token(&format!("the-token-of-{name}")));
    let [mut of_ann, of_bob] = [&ann, &bob].map(|endpoint| endpoint.session(&json!({})));
    let mut stream = of_bob.listen().unwrap();
    let subscribed = json!({ "notifications": { "toolsListChanged": true } });
    let mut changes = bob.send_modern("subscriptions/listen", subscribed).unwrap();
    assert!(changes.next().is_some(), "the stream of changes begins");
    // They are admitted now, and send their bodies later.
    let listed = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let listed = listed.to_string();
    let held = bob.begin_post("/mcp", listed.len());
    let answer = r#"{"approve":true}"#;
    let eve = server.endpoint.with_token("the-token-of-eve");
    let held_answer = eve.begin_post("/approvals/01ARZ3NDEKTSV4RRFFQ69G5FAV", answer.len());

    let person = person.split_once("[serve.people.max]").unwrap().1;
    dir.configure(&format!("{CONFIG}{}[serve.people.max]{person}", caller("ann")));
    let said = server.running.says("the configuration is reloaded");
    assert!(!said.contains("next start"), "{said}");
    // The ends of both streams are awaited; whatever came before is read.
    while stream.next().is_some() {}
    while changes.next().is_some() {}
    assert_eq!(bob.get("/mcp").0, "401");
    let (late, text) = held.finish(&listed);
    assert_eq!(late, "401", "{text}");
    let (late, text) = held_answer.finish(answer);
    assert_eq!(late, "401", "{text}");
    assert!(of_ann.send("ping", json!({})).unwrap().answer().unwrap()["result"].is_object(), "ann is as before");
    assert_eq!(server.running.end_by(rustix::process::Signal::TERM).0, Some(0));
}
