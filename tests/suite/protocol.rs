//! The whole protocol through the broker, in both eras, to a source that speaks the older revisions.

use portcullis_test_support::source_program;
use serde_json::{Value, json};

use crate::agent::{Agent, ERAS, Era};
use crate::test_dir::{TestDir, until};

pub(crate) const CONFIG: &str = r#"
[profiles.default]
approve = "never"
[profiles.modelled]
approve = "never"
sampling = true
[sources.far]
command = ["@source@", "full"]
[sources.calc]
component = "builtin:calculator"
"#;

fn all() -> Value {
    json!({ "elicitation": {}, "sampling": {}, "roots": {} })
}

pub(crate) fn agent(dir: &TestDir, era: Era) -> Agent {
    Agent::of(dir.command(&["serve", "--stdio"]), era, all())
}

#[test]
fn prompts_and_resources_lead_back_to_their_source() {
    let dir = TestDir::new(CONFIG);
    for era in ERAS {
        let mut agent = agent(&dir, era);
        let prompts = agent.request("prompts/list", json!({}));
        assert_eq!(prompts["result"]["prompts"][0]["name"], "far__greet", "{prompts}");
        let got = agent.request("prompts/get", json!({ "name": "far__greet", "arguments": { "who": "you" } }));
        let messages = &got["result"]["messages"];
        assert_eq!(messages[0]["content"]["text"], r#"greet {"who":"you"}"#, "the source's own name: {got}");
        assert_eq!(messages[1]["content"]["resource"]["uri"], "portcullis://far/mem://a", "{got}");

        let listed = agent.request("resources/list", json!({}));
        assert_eq!(listed["result"]["resources"][0]["uri"], "portcullis://far/mem://a", "{listed}");
        let templates = agent.request("resources/templates/list", json!({}));
        let template = &templates["result"]["resourceTemplates"][0]["uriTemplate"];
        assert_eq!(template, "portcullis://far/mem://t/{id}", "{templates}");
        for uri in ["portcullis://far/mem://a", "portcullis://far/mem://t/7"] {
            let read = agent.request("resources/read", json!({ "uri": uri }));
            assert_eq!(read["result"]["contents"][0], json!({ "uri": uri, "text": "content" }), "{read}");
        }
        for unknown in ["mem://a", "portcullis://calc/mem://a", "portcullis://nobody/mem://a"] {
            let read = agent.request("resources/read", json!({ "uri": unknown }));
            let code = if era == Era::Legacy { -32002 } else { -32602 };
            assert_eq!(read["error"]["code"], code, "{unknown}: {read}");
        }
        let argument = json!({ "name": "id", "value": "" });
        for (about, own) in [
            (json!({ "type": "ref/prompt", "name": "far__greet" }), "greet"),
            (json!({ "type": "ref/resource", "uri": "portcullis://far/mem://t/{id}" }), "mem://t/{id}"),
        ] {
            let completed = agent.request("completion/complete", json!({ "ref": about, "argument": argument }));
            assert_eq!(completed["result"]["completion"]["values"], json!([own]), "{completed}");
        }
        agent.leave();
    }
}

#[test]
fn a_policy_decides_on_every_method() {
    let deny = r#"
policies = [{ plugin = "builtin:rules", settings = { deny = [{ method = "prompts/get" }, { tool = "*mem://a*" }] } }]
"#;
    let dir = TestDir::new(&format!("{deny}{CONFIG}"));
    for era in ERAS {
        let mut agent = agent(&dir, era);
        let got = agent.request("prompts/get", json!({ "name": "far__greet" }));
        assert_eq!(got["error"]["data"]["code"], "rule", "{got}");
        let read = agent.request("resources/read", json!({ "uri": "portcullis://far/mem://a" }));
        assert_eq!(read["error"]["data"]["code"], "rule", "{read}");
        let read = agent.request("resources/read", json!({ "uri": "portcullis://far/mem://t/7" }));
        assert!(read["result"].is_object(), "{read}");
        agent.leave();
    }
}

#[test]
fn a_question_of_a_source_reaches_the_agent_and_names_the_source() {
    let dir = TestDir::new(CONFIG);
    let person = json!({ "action": "accept", "content": { "name": "Ann" } });

    let mut legacy = agent(&dir, Era::Legacy);
    let id = legacy.send_call("far__elicit", &json!({}));
    let asked = legacy.next().unwrap();
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    assert_eq!(asked["params"]["message"], "Source `far` asks: Your name?");
    legacy.running.write(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": person }).to_string());
    let answer = legacy.answer(id, None);
    assert_eq!(answer["result"]["content"][0]["text"], person.to_string());
    legacy.leave();

    // A modern agent is asked by a result, and the call to the source waits meanwhile.
    let mut modern = agent(&dir, Era::Modern);
    let asked = modern.request("tools/call", json!({ "name": "far__elicit", "arguments": {} }));
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let (key, request) = asked["result"]["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(request["params"]["message"], "Source `far` asks: Your name?");
    let retry = |arguments: Value| {
        json!({
            "name": "far__elicit",
            "arguments": arguments,
            "requestState": asked["result"]["requestState"],
            "inputResponses": { key: person },
        })
    };
    let answer = modern.request("tools/call", retry(json!({})));
    assert_eq!(answer["result"]["content"][0]["text"], person.to_string(), "{answer}");
    let again = modern.request("tools/call", retry(json!({})));
    assert!(again["error"].is_object(), "a request state is valid once: {again}");
    modern.leave();
}

#[test]
fn a_request_state_is_valid_only_for_the_request_that_it_was_issued_for() {
    let dir = TestDir::new(CONFIG);
    let mut modern = agent(&dir, Era::Modern);
    let asked = modern.request("tools/call", json!({ "name": "far__elicit", "arguments": {} }));
    let other =
        json!({ "name": "far__elicit", "arguments": { "other": 1 }, "requestState": asked["result"]["requestState"] });
    let refused = modern.request("tools/call", other);
    assert!(refused["error"]["message"].as_str().unwrap().contains("another request"), "{refused}");
    modern.leave();
}

#[test]
fn a_source_cannot_ask_a_person_for_a_secret() {
    let dir = TestDir::new(CONFIG);
    for era in ERAS {
        let mut agent = agent(&dir, era);
        let answer = agent.call("far__secret", &json!({}), None);
        assert!(answer["ok"].as_str().unwrap().contains("asks a person for a secret"), "{answer}");
        agent.leave();
    }
}

#[test]
fn a_source_may_use_sampling_only_if_the_profile_allows_it() {
    let dir = TestDir::new(CONFIG);
    let mut agent = agent(&dir, Era::Legacy);
    let answer = agent.call("far__sample", &json!({}), None);
    assert!(answer["ok"].as_str().unwrap().contains("`sampling = true`"), "{answer}");
    agent.leave();

    let command = dir.command(&["serve", "--stdio", "--profile", "modelled"]);
    let mut agent = Agent::of(command, Era::Legacy, all());
    let id = agent.send_call("far__sample", &json!({}));
    let asked = agent.next().unwrap();
    assert_eq!(asked["method"], "sampling/createMessage", "{asked}");
    let said = json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": "Paris" } });
    agent.running.write(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": said }).to_string());
    assert_eq!(agent.answer(id, None)["result"]["content"][0]["text"], said.to_string());
    agent.leave();

    // `wrap` does the same without a configuration file.
    let source = source_program("portcullis-test-source").display().to_string();
    for sampling in [&["--sampling"][..], &[]] {
        let wrap = [&["wrap", "--approve", "never", "--data-dir", "data"], sampling, &["--", &source, "full"]].concat();
        let mut agent = Agent::of(dir.command(&wrap), Era::Legacy, all());
        agent.send_call("sample", &json!({}));
        let next = agent.next().unwrap();
        assert_eq!(next["method"] == "sampling/createMessage", !sampling.is_empty(), "{next}");
        agent.leave();
    }
}

#[test]
fn a_list_is_cacheable_as_public_only_if_every_agent_gets_the_same() {
    let alone = "[sources.new]\ncommand = [\"@source@\", \"modern\"]\n";
    let beside = format!("{alone}[sources.calc]\ncomponent = \"builtin:calculator\"\n");
    let profiles = format!("[profiles.default]\n[profiles.other]\n{alone}");
    let policies = format!("policies = [{{ plugin = \"builtin:rules\", settings = {{}} }}]\n{alone}");
    for (config, scope, ttl) in [
        (alone, "public", 60_000),
        (&*beside, "private", 0),
        (&*profiles, "private", 60_000),
        (&*policies, "private", 60_000),
    ] {
        let dir = TestDir::new(config);
        let mut modern = agent(&dir, Era::Modern);
        let listed = modern.request("tools/list", json!({}));
        let said = (&listed["result"]["cacheScope"], &listed["result"]["ttlMs"]);
        assert_eq!(said, (&json!(scope), &json!(ttl)), "{config}");
        modern.leave();
    }
}

#[test]
fn cancelling_a_call_withdraws_its_open_question() {
    let dir = TestDir::new(&format!("{CONFIG}[sources.new]\ncommand = [\"@source@\", \"modern\"]\n"));
    let pages = json!({ "elicitation": { "form": {}, "url": {} } });
    let mut legacy = Agent::of(dir.command(&["serve", "--stdio"]), Era::Legacy, pages);
    for tool in ["new__page", "far__elicit"] {
        let id = legacy.send_call(tool, &json!({}));
        let asked = legacy.next().unwrap();
        assert_eq!(asked["method"], "elicitation/create", "{asked}");
        legacy.notify("notifications/cancelled", json!({ "requestId": id }));
        let withdrawn = legacy.next().unwrap();
        assert_eq!(withdrawn["method"], "notifications/cancelled", "{withdrawn}");
        assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
        // An answer of the person is too late now, and the call stays unanswered.
        let late = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "accept", "content": {} } });
        legacy.running.write(&late.to_string());
        let next = legacy.send("ping", json!({}));
        assert_eq!(legacy.next().unwrap()["id"], next, "{tool}");
    }
    legacy.leave();
}

#[test]
fn a_call_cancelled_after_its_question_was_answered_is_cancelled_at_the_source() {
    let dir = TestDir::new(CONFIG);
    let mut modern = agent(&dir, Era::Modern);
    let asked = modern.request("tools/call", json!({ "name": "far__linger", "arguments": {} }));
    let key = asked["result"]["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let id = modern.send(
        "tools/call",
        json!({
            "name": "far__linger",
            "arguments": {},
            "requestState": asked["result"]["requestState"],
            "inputResponses": { key: { "action": "accept", "content": { "name": "Ann" } } },
        }),
    );
    assert_eq!(modern.next().unwrap()["method"], "vendor/answered");
    modern.notify("notifications/cancelled", json!({ "requestId": id }));
    until("the source hears that the call is cancelled", || {
        let cancelled = modern.call("far__cancelled", &json!({}), None);
        cancelled["ok"].as_str().is_some_and(|ids| ids != "[]")
    });
    modern.leave();
}

#[test]
fn a_task_status_reaches_the_source_whose_question_became_the_task() {
    let dir = TestDir::new(CONFIG);
    let mut legacy = agent(&dir, Era::Legacy);
    let id = legacy.send_call("far__elicit", &json!({}));
    let asked = legacy.next().unwrap();
    let task = json!({ "taskId": "mine", "status": "working" });
    let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "task": task } });
    legacy.running.write(&answer.to_string());
    legacy.answer(id, None);
    for task in ["of nobody", "mine"] {
        legacy.notify("notifications/tasks/status", json!({ "taskId": task, "status": "completed" }));
    }
    let heard = legacy.next().unwrap();
    let told = json!({ "taskId": "mine", "status": "completed" });
    assert_eq!(heard["params"]["data"]["heard"], told, "{heard}");
    legacy.leave();
    let told = dir.records_of("call.intent");
    let told = told.iter().filter(|record| record["body"]["method"] == "notifications/tasks/status").count();
    assert_eq!(told, 1, "the status of an unknown task reaches no source");
}

#[test]
fn progress_on_an_answer_reaches_the_source_that_asked() {
    let dir = TestDir::new(CONFIG);
    let mut legacy = agent(&dir, Era::Legacy);
    let id = legacy.send_call("far__elicit", &json!({}));
    let asked = legacy.next().unwrap();
    let token = &asked["params"]["_meta"]["progressToken"];
    for (progress, token) in [(1, &json!("of nothing")), (2, token)] {
        legacy.notify("notifications/progress", json!({ "progressToken": token, "progress": progress }));
    }
    let heard = legacy.next().unwrap();
    assert_eq!(heard["params"]["data"]["heard"], json!({ "progressToken": token, "progress": 2 }), "{heard}");
    let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "decline" } });
    legacy.running.write(&answer.to_string());
    legacy.answer(id, None);
    legacy.notify("notifications/progress", json!({ "progressToken": token, "progress": 3 }));
    legacy.leave();
    let told = dir.records_of("call.intent");
    let told = told.iter().filter(|record| record["body"]["method"] == "notifications/progress").count();
    assert_eq!(told, 1, "progress with an unknown or expired token reaches no source");
}

#[test]
fn a_method_that_looks_like_one_of_the_protocol_reaches_no_source() {
    let dir =
        TestDir::new("[profiles.default]\napprove = \"never\"\n[sources.far]\ncommand = [\"@source@\", \"mirror\"]\n");
    for era in ERAS {
        let mut agent = agent(&dir, era);
        // The source answers every method that reaches it; this one does.
        assert!(agent.request("vendor/do", json!({ "x": 1 }))["result"].is_object());
        for method in [
            "Tools/call",
            "tools/call ",
            " tools/call",
            "tools//call",
            "tools/call/",
            "/tools/call",
            "./tools/call",
            "vendor/../tools/call",
            "TOOLS/CALL",
            r"tools\\call",
            "tools%2fcall",
            "tools/call\u{200b}",
            "tools/other",
            "sampling/createMessage",
        ] {
            let answer = agent.request(method, json!({ "name": "mirror", "arguments": {} }));
            assert_eq!(answer["error"]["code"], -32601, "{era:?}: {method:?}: {answer}");
        }
        agent.leave();
    }
    assert_eq!(dir.records_of("call.intent").len(), 2, "only the source's own method, once in each era");
}
