//! Plugins of third parties, named by path.

use std::fs;

use portcullis_test_support::guest;
use serde_json::{Value, json};

use crate::agent::{Agent, ERAS, Era};
use crate::test_dir::{TestDir, broker};

const FILES: &str =
    "[sources.files]\ncommand = [\"@source@\", \"plain\"]\n@cell@\n[profiles.default]\napprove = \"never\"\n";

#[test]
fn a_component_from_outside_the_workspace_changes_a_decision_without_a_rebuild() {
    let before = fs::metadata(broker()).unwrap().modified().unwrap();
    for era in ERAS {
        let dir = TestDir::new(FILES);
        let inside = json!({ "path": "/srv/project/a" });
        let outside = json!({ "path": "/etc/passwd" });
        let mut agent = Agent::start(&dir, era);
        assert!(agent.call("files__echo", &outside, None)["ok"].is_string());
        agent.leave();

        dir.configure(&format!(
            "{FILES}\n[[policies]]\nplugin = \"@outside@\"\nsettings = {{ under = \"/srv/project\" }}\n"
        ));
        let mut agent = Agent::start(&dir, era);
        assert!(agent.call("files__echo", &inside, None)["ok"].is_string());
        let denied = agent.call("files__echo", &outside, None);
        assert_eq!(denied["refused"], "outside", "{denied}");
        assert!(denied["message"].as_str().unwrap().contains("/etc/passwd is not under /srv/project"));
        agent.leave();
        dir.assert_nothing_left();
    }
    assert_eq!(fs::metadata(broker()).unwrap().modified().unwrap(), before);
}

#[test]
fn a_plugin_that_writes_to_the_log_cannot_forge_log_lines() {
    let dir = TestDir::new(&format!("{FILES}\n[[policies]]\nplugin = \"@guest:logger@\"\n"));
    let mut agent = Agent::start(&dir, Era::Modern);
    assert!(agent.call("files__echo", &json!({}), None)["ok"].is_string());
    let line = agent.running.says("saw ");
    assert!(!line.contains('\u{1b}') && line.contains("forged"), "one line, without escapes: {line:?}");
    agent.leave();
}

#[test]
fn notifications_during_a_call_pass_the_plugins_too() {
    let config = "[sources.far]\ncommand = [\"@source@\", \"full\"]\n[profiles.default]\napprove = \"never\"\n";
    let said = |dir: &TestDir, era: Era| {
        let mut agent = Agent::alone(dir, era);
        agent.list();
        let mut meta = json!({ "progressToken": "t" });
        if era == Era::Modern {
            meta = crate::agent::meta(&json!({}));
            meta["progressToken"] = json!("t");
            meta["io.modelcontextprotocol/logLevel"] = json!("debug");
        }
        let id =
            agent.send_raw("tools/call", &json!({ "name": "far__say", "arguments": {}, "_meta": meta }).to_string());
        let mut said = Vec::new();
        loop {
            let message = agent.next().unwrap();
            let answered = message["id"] == id;
            said.push(message);
            if answered {
                break;
            }
        }
        agent.leave();
        said
    };
    for era in ERAS {
        let plain = said(&TestDir::new(config), era);
        assert_eq!(plain.len(), 4, "{plain:?}");
        assert!(plain.iter().all(|message| message.to_string().contains("to ann@example.com")), "{plain:?}");

        let redact = "[[transforms]]\nplugin = \"builtin:redact\"\nsettings = { detect = [\"email\"] }\n";
        let redacted = said(&TestDir::new(&format!("{redact}{config}")), era);
        let methods = |said: &[Value]| said.iter().map(|message| message["method"].clone()).collect::<Vec<_>>();
        assert_eq!(methods(&redacted), methods(&plain), "all of it, in its order");
        assert_eq!(redacted[0]["params"]["progressToken"], "t");
        for message in &redacted {
            let text = message.to_string();
            assert!(!text.contains("ann@example.com") && text.contains("to "), "{text}");
        }

        let deny =
            "[[policies]]\nplugin = \"builtin:rules\"\non = [\"result\"]\nsettings = { deny = [\"far__say\"] }\n";
        let withheld = said(&TestDir::new(&format!("{deny}{config}")), era);
        assert_eq!(withheld.len(), 1, "notifications of a withheld result are withheld, too: {withheld:?}");
        assert!(!withheld[0].to_string().contains("ann@example.com"));

        // A notification that is not one of the protocol's is denied by its own method.
        let deny = deny.replace("\"far__say\"", "{ method = \"notifications/vendor\" }");
        let withheld = said(&TestDir::new(&format!("{deny}{config}")), era);
        assert_eq!(withheld.len(), 3, "{withheld:?}");
        assert!(withheld.iter().all(|message| message["method"] != "notifications/vendor"), "{withheld:?}");
    }
}

#[test]
fn sinks_get_every_record_in_order() {
    let dir = TestDir::new(&format!(
        "{FILES}\n[[sinks]]\nplugin = \"builtin:jsonl\"\n[[sinks]]\nplugin = \"@guest:scribe@\"\nfile = \"scribe.jsonl\"\n"
    ));
    let mut agent = Agent::start(&dir, Era::Legacy);
    for n in 0..20 {
        assert!(agent.call("files__echo", &json!({ "n": n }), None)["ok"].is_string());
    }
    agent.leave();
    let recorded: Vec<_> = dir.records().iter().map(|record| (record["seq"].clone(), record["kind"].clone())).collect();
    for file in [dir.data("audit.jsonl"), dir.path("scribe.jsonl")] {
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let got: Vec<_> = lines.iter().map(|line| (line["seq"].clone(), line["kind"].clone())).collect();
        // The last record, the end of the chain, is written after the sinks have finished.
        assert_eq!(got[..], recorded[..got.len()], "{}", file.display());
        let missed = &recorded[got.len()..];
        assert!(missed.iter().all(|(_, kind)| kind == "broker.stopped"), "{}: {missed:?}", file.display());
    }
}

/// The plugin fails for some calls of one agent, and its other calls continue.
#[test]
fn a_plugin_that_fails_on_one_call_does_not_affect_other_calls() {
    let dir = TestDir::new(&format!("{FILES}\n[[policies]]\nplugin = \"@guest:trap@\"\n"));
    let mut agent = Agent::start(&dir, Era::Modern);
    agent.list();
    let words = ["hello", "panic", "chatter", "recurse"];
    let ids: Vec<_> =
        (0..40).map(|n| (n, agent.send_call("files__echo", &json!({ "say": words[n % 4], "n": n })))).collect();
    let mut answers = std::collections::HashMap::new();
    while answers.len() < ids.len() {
        let message = agent.next().unwrap();
        answers.insert(message["id"].as_u64().unwrap(), crate::agent::outcome(&message));
    }
    for (n, id) in ids {
        let expected =
            [Value::Null, json!("plugin-trap"), json!("plugin-host-calls"), json!("plugin-trap")][n % 4].clone();
        assert_eq!(answers[&id]["refused"], expected, "call {n}: {}", answers[&id]);
    }
    agent.leave();
    dir.assert_nothing_left();
}

#[test]
fn a_policy_reads_what_is_left_of_the_budget() {
    let calc = "[sources.calc]\ncomponent = \"builtin:calculator\"\n[profiles.default]\nbudget = { calls = \"4/h\" }\n";
    let dir = TestDir::new(&format!("{calc}[[policies]]\nplugin = {:?}\n", guest("quota")));
    let mut agent = Agent::alone(&dir, Era::Legacy);
    for tool in ["calc__add", "calc__subtract", "calc__multiply", "calc__divide"] {
        let answer = agent.call(tool, &json!({ "a": 1, "b": 2 }), None);
        let expected = if tool == "calc__divide" { json!("reserve") } else { Value::Null };
        assert_eq!(answer["refused"], expected, "{tool}: {answer}");
        let is_told = answer["message"].as_str().is_some_and(|message| message.contains("1 of 4 calls are left"));
        assert_eq!(is_told, tool == "calc__divide", "{answer}");
    }
    agent.leave();
    let said: Value = serde_json::from_str(&dir.run(&["replay", "--json"]).out).unwrap();
    assert_eq!(said["notJudged"]["reads-session"], 4, "{said}");

    let policy = format!("[[policies]]\nplugin = {:?}\n", guest("quota"));
    let case = |expect: &str, left: u32| {
        let call = format!("tool = \"add\", budget = [{{ name = \"calls\", amount = 4, left = {left} }}]");
        format!("[[cases]]\nname = \"{left}\"\nexpect = \"{expect}\"\ncall = {{ {call} }}\n")
    };
    fs::write(dir.path("cases.toml"), policy + &case("pass", 2) + &case("deny", 1)).unwrap();
    let tested = dir.run(&["plugin", "test", "cases.toml"]);
    assert_eq!(tested.code, Some(0), "{}{}", tested.out, tested.err);
}

#[test]
fn a_policy_counts_the_calls_of_each_session() {
    let calc = "[sources.calc]\ncomponent = \"builtin:calculator\"\n";
    let dir = TestDir::new(&format!("{calc}[[policies]]\nplugin = {:?}\n", guest("quota")));
    let sum = json!({ "a": 1, "b": 2 });
    for _ in 0..2 {
        let mut agent = Agent::alone(&dir, Era::Legacy);
        agent.list();
        for tool in ["calc__add", "calc__subtract", "calc__add"] {
            assert!(!agent.call(tool, &sum, None)["ok"].is_null(), "{tool}");
        }
        let denied = agent.call("calc__add", &sum, None);
        assert_eq!(denied["refused"], "quota-used", "{denied}");
        assert!(denied["message"].as_str().unwrap().contains("2 of 3 calls"), "{denied}");
        agent.leave();
    }
    // The ledger has no such numbers, so that nothing is judged by them again.
    let ran = dir.run(&["replay", "--json"]);
    let said: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &said["notJudged"]["reads-session"]), (Some(2), &json!(8)), "{said}");
}
