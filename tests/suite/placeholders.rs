//! Placeholders of `builtin:redact`: they carry no value past a policy, and no value goes where it is hidden.

use serde_json::{Value, json};

use crate::agent::{Agent, ERAS, Era, elicited};
use crate::flow::question_about;
use crate::test_dir::TestDir;

/// Sets up a source whose calls and results have their secrets hidden, and are recorded in full.
fn redacted(source: &str, kind: &str, policies: &str) -> TestDir {
    TestDir::new(&format!(
        "[profiles.default]\napprove = \"never\"\nrecord = \"full\"\n[sources.{source}]\ncommand = [\"@source@\", \"{kind}\"]\n@cell@\n\
         {policies}\n[[transforms]]\nplugin = \"builtin:redact\"\n"
    ))
}

#[test]
fn a_placeholder_carries_no_value_past_a_policy() {
    let deny = r#"{ tool = "*", arguments = { path = "*private*" }, message = "private is off limits" }"#;
    let policy = format!("[[policies]]\nplugin = \"builtin:rules\"\nsettings = {{ deny = [{deny}] }}");
    let dir = redacted("files", "plain", &policy);
    let mut agent = Agent::start(&dir, Era::Modern);
    // The agent has the source say what it wants to send, so that there is a placeholder for it.
    let said = agent.call("files__echo", &json!({ "text": "password: /X9-/../../private/salaries2031.md" }), None);
    let said = said["ok"].as_str().unwrap();
    let (from, to) = (said.find("[[secret:").unwrap(), said.find("]]").unwrap() + 2);
    let placeholder = &said[from..to];
    let denied = agent.call("files__echo", &json!({ "path": format!("/srv/public{placeholder}") }), None);
    assert!(denied["message"].as_str().unwrap().contains("private is off limits"), "{denied}");
    let passed = agent.call("files__echo", &json!({ "text": placeholder }), None);
    assert!(passed["ok"].is_string(), "another argument may have it: {passed}");
    agent.leave();
    let denials = dir.records_of("call.denied");
    let last = denials[0]["body"]["verdicts"].as_array().unwrap().last().unwrap();
    assert_eq!(last["revealed"], true, "{denials:?}");
    assert!(!denials[0].to_string().contains("salaries"), "the record has placeholders alone: {denials:?}");
}

#[test]
fn a_policy_of_results_knows_the_arguments_that_the_source_got() {
    let deny = r#"{ tool = "*", arguments = { to = "*@corp.example.org" } }"#;
    let policy =
        format!("[[policies]]\nplugin = \"builtin:rules\"\non = [\"result\"]\nsettings = {{ deny = [{deny}] }}");
    let dir = redacted("files", "plain", &policy);
    let mut agent = Agent::start(&dir, Era::Modern);
    for (to, refused) in [("ann@corp.example.org", json!("rule")), ("bob@example.com", Value::Null)] {
        let answer = agent.call("files__echo", &json!({ "to": to }), None);
        assert_eq!(answer["refused"], refused, "{answer}");
    }
    agent.leave();
    let withheld = &dir.records_of("tool.completed")[0]["body"];
    assert_eq!(withheld["verdicts"].as_array().unwrap().last().unwrap()["revealed"], true, "{withheld}");
}

/// A source's question shows the agent no value that is hidden from it, and the answer reaches the source as it was
/// given.
#[test]
fn a_question_of_a_source_has_placeholders_and_its_answer_has_values() {
    let dir = redacted("full", "full", "");
    let address = "ann@corp.example.org";
    for era in ERAS {
        let mut agent = Agent::start(&dir, era);
        let arguments = json!({ "about": address });
        let id = agent.send_call("full__elicit", &arguments);
        let asked = loop {
            let message = agent.next().unwrap();
            if message["method"] == "elicitation/create" || message["id"] == id {
                break message;
            }
        };
        let shown = asked.to_string();
        assert!(shown.contains("Your name? [[email:") && !shown.contains(address), "{shown}");
        let answer = Some("call eve@corp.example.org");
        if era == Era::Legacy {
            let response = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": elicited(answer) });
            agent.running.write(&response.to_string());
            agent.answer(id, None);
        } else {
            let requests = asked["result"]["inputRequests"].as_object().unwrap();
            let responses: serde_json::Map<_, _> = requests.keys().map(|key| (key.clone(), elicited(answer))).collect();
            let state = &asked["result"]["requestState"];
            let retry = json!({
                "name": "full__elicit", "arguments": arguments, "requestState": state, "inputResponses": responses,
            });
            agent.request("tools/call", retry);
        }
        agent.leave();
        let completed = dir.records_of("tool.completed");
        let heard = completed.iter().rfind(|record| record["body"]["tool"] == "full__elicit").unwrap();
        assert!(heard["body"]["result"].to_string().contains("call eve@corp.example.org"), "{heard}");
    }
}

/// The URI of a resource that no list names is the agent's own words, so that records have it as they have arguments.
#[test]
fn a_record_has_the_scheme_alone_of_a_uri_that_no_list_names() {
    for (record, whole) in [("shape", false), ("full", true)] {
        let dir = TestDir::new(&format!(
            "[profiles.default]\napprove = \"never\"\nrecord = \"{record}\"\n[sources.full]\ncommand = [\"@source@\", \"full\"]\n@cell@\n"
        ));
        let mut agent = Agent::start(&dir, Era::Legacy);
        for uri in ["portcullis://full/mem://t/password=Zq7kPw2xLm9v", "portcullis://full/mem://a"] {
            let read = agent.request("resources/read", json!({ "uri": uri }));
            assert!(read["result"].is_object(), "{read}");
        }
        agent.leave();
        let intents = dir.records_of("call.intent");
        let unlisted = &intents[0]["body"];
        let names = (&unlisted["resource"], &unlisted["name"]);
        assert_eq!(names, (&json!("portcullis://full/mem:…"), &json!("mem:…")), "{unlisted}");
        assert_eq!(unlisted["uri"]["body"] == "mem://t/password=Zq7kPw2xLm9v", whole, "{unlisted}");
        assert_eq!(dir.records().iter().any(|record| record.to_string().contains("Zq7kPw2xLm9v")), whole);
        assert_eq!(intents[1]["body"]["resource"], "portcullis://full/mem://a", "a listed one is named");
        let deny = "[[policies]]\nplugin = \"builtin:rules\"\nsettings = { deny = [\"*Zq7k*\"] }\n";
        std::fs::write(dir.path("deny.toml"), deny).unwrap();
        let ran = dir.run(&["replay", "--json", "--candidate", "deny.toml"]);
        let replayed: Value = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}", ran.err));
        let unknown = if whole { json!({}) } else { json!({ "reads-payload": 1 }) };
        assert_eq!(replayed["notJudged"], unknown, "{replayed}");
        assert_eq!(replayed["differences"].as_array().map(Vec::len), Some(usize::from(whole)), "{replayed}");
        let about = |uri: &str| json!({ "uri": uri });
        dir.configure(&format!("[profiles.default]\napprove = \"always\"\nrecord = \"{record}\"\n[sources.full]\ncommand = [\"@source@\", \"full\"]\n@cell@\n"));
        let mut agent = Agent::alone(&dir, Era::Legacy);
        let uri = "portcullis://full/mem://t/token=Hj5rTq8nWd2x";
        let shown = question_about(&dir, &mut agent, "resources/read", about(uri));
        assert!(shown.contains("Hj5rTq8nWd2x"), "the person reads it: {shown}");
        let refused = agent.request("resources/read", about("portcullis://nobody/mem://t/token=Hj5rTq8nWd2x"));
        assert_eq!(refused["error"]["data"]["uri"], "portcullis://nobody/mem://t/token=Hj5rTq8nWd2x", "{refused}");
        agent.leave();
        let told = dir.records().into_iter().filter(|record| record.to_string().contains("Hj5rTq8nWd2x")).count();
        assert_eq!(told > 0, whole, "the refused call alone has it, where the profile keeps payloads");
    }
}
