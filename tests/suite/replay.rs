//! Policies judge recorded calls again: their verdicts now, and the calls that they cannot judge.

use std::fs;

use portcullis_test_support::guest;
use serde_json::{Value, json};

use crate::agent::{Agent, Era};
use crate::test_dir::TestDir;

const SOURCES: &str = "[sources.calc]\ncomponent = \"builtin:calculator\"\ntags = [\"sums\"]\n\
                       [sources.files]\ncommand = [\"@source@\", \"plain\"]\n";

/// Returns a policy of rules with these settings.
fn rules(settings: &str) -> String {
    format!("[[policies]]\nplugin = \"builtin:rules\"\nsettings = {{ {settings} }}\n")
}

/// Returns a configuration with these policies, whose ledger keeps arguments.
fn whole(policies: &str) -> String {
    format!("{SOURCES}{policies}[profiles.default]\nrecord = \"full\"\napprove = \"never\"\n")
}

/// Lets an agent make four calls: two that add, one that divides by zero, one that divides.
fn make_calls(dir: &TestDir) {
    let mut agent = Agent::start(dir, Era::Modern);
    agent.list();
    for (tool, a, b) in [("add", 4711, 2), ("add", 1, 2), ("divide", 1, 0), ("divide", 8, 2)] {
        agent.call(&format!("calc__{tool}"), &json!({ "a": a, "b": b }), None);
    }
    agent.leave();
}

/// Runs `portcullis replay` with these arguments; the exit code must be 1 if a verdict became wider.
fn replay(dir: &TestDir, arguments: &[&str]) -> Value {
    let mut all = vec!["replay", "--json"];
    all.extend(arguments);
    let ran = dir.run(&all);
    let found: Value = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}{}", ran.out, ran.err));
    assert_eq!(ran.code, Some(i32::from(found["wider"] == true)), "{found:#}");
    found
}

/// Returns the differences as `then → now: count`.
fn differences(found: &Value) -> Vec<String> {
    let differences = found["differences"].as_array().unwrap().iter();
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    differences.map(|one| format!("{} → {}: {}", word(&one["then"]), word(&one["now"]), one["count"])).collect()
}

#[test]
fn unchanged_policies_decide_about_recorded_calls_as_they_did() {
    let cedar = "[[policies]]\nplugin = \"builtin:cedar\"\non = [\"call\", \"result\"]\n[policies.settings]\npolicies = '''\n\
                 permit (principal in Profile::\"default\", action in Action::\"call_tool\", resource in Source::\"calc\")\n\
                 unless { context.input.b == 0 };\n'''\n";
    let dir = TestDir::new(&whole(&(rules("deny = [{ tool = \"calc__add\", arguments = { a = 4711 } }]") + cedar)));
    make_calls(&dir);
    let before = dir.records().len();
    let found = replay(&dir, &[]);
    // Two calls are denied, and the results of the two others are judged too.
    assert_eq!((&found["calls"], &found["judged"]), (&json!(4), &json!(6)), "{found:#}");
    assert_eq!((&found["differences"], &found["notJudged"]), (&json!([]), &json!({})), "{found:#}");
    assert_eq!(dir.records().len(), before, "a replay records nothing");
}

#[test]
fn a_candidate_that_lets_more_pass_is_wider_and_named_with_examples() {
    let dir = TestDir::new(&whole(&rules("deny = [\"calc__divide\"]")));
    make_calls(&dir);
    fs::write(dir.path("wider.toml"), rules("ask = [{ tool = \"calc__divide\", arguments = { b = 0 } }]")).unwrap();
    let found = replay(&dir, &["--candidate", "wider.toml"]);
    assert_eq!(differences(&found), ["deny → pass: 1", "deny → ask: 1"], "{found:#}");
    let example = &found["differences"][1]["examples"][0];
    assert_eq!((&example["item"], &example["then"]["code"]), (&json!("calc__divide"), &json!("rule")), "{found:#}");
    assert_eq!(example["now"], json!({ "verdict": "ask", "plugin": "builtin:rules", "code": "rule" }));
    assert!(dir.run(&["audit", "show", example["call"].as_str().unwrap()]).out.contains("\"b\":0"), "{found:#}");

    fs::write(dir.path("narrower.toml"), rules("deny = [\"calc__*\"]")).unwrap();
    let found = replay(&dir, &["--candidate", "narrower.toml", "--examples", "1", "--tool", "calc__add"]);
    assert_eq!((differences(&found), &found["calls"]), (vec!["pass → deny: 2".to_owned()], &json!(2)), "{found:#}");
    assert_eq!(found["differences"][0]["examples"].as_array().map(Vec::len), Some(1), "{found:#}");
    let text = dir.run(&["replay", "--candidate", "narrower.toml"]);
    for expected in [
        "4 calls, 4 verdicts judged anew: 2 as they were, 2 differ",
        "pass → deny  2, narrower",
        "passed then, builtin:rules denied (rule) now",
    ] {
        assert!(text.out.contains(expected), "{expected:?} is not in:\n{}{}", text.out, text.err);
    }
}

#[test]
fn a_candidate_takes_the_place_of_the_policy_that_it_replaces() {
    let outside = "[[policies]]\nplugin = \"@outside@\"\nsettings = { under = \"/srv/project\" }\n";
    let dir = TestDir::new(&whole(outside));
    let mut agent = Agent::start(&dir, Era::Legacy);
    for path in ["/srv/project/a", "/etc/passwd"] {
        agent.call("files__echo", &json!({ "path": path }), None);
    }
    agent.leave();
    let candidate = portcullis_test_support::outside_policy().display().to_string();
    let found = replay(&dir, &["--candidate", &candidate]);
    assert_eq!(
        (&found["judged"], &found["differences"]),
        (&json!(2), &json!([])),
        "it has the other's settings: {found:#}"
    );

    fs::write(dir.path("all.cedar"), "permit (principal, action, resource);").unwrap();
    let found = replay(&dir, &["--candidate", "all.cedar"]);
    assert_eq!(found["differences"], json!([]), "the other policy still denies: {found:#}");
    let found = replay(&dir, &["--candidate", "all.cedar", "--replaces", &candidate]);
    assert_eq!(differences(&found), ["deny → pass: 1"], "{found:#}");
}

/// By default the ledger has no arguments. Decisions that do not depend on them can be judged, and nothing else is
/// guessed.
#[test]
fn what_was_not_recorded_is_not_guessed() {
    let dir = TestDir::new(&format!(
        "{SOURCES}{}[profiles.default]\napprove = \"never\"\n",
        rules("deny = [\"calc__divide\"]")
    ));
    make_calls(&dir);
    let found = replay(&dir, &[]);
    assert_eq!((&found["judged"], &found["differences"]), (&json!(4), &json!([])), "{found:#}");
    fs::write(dir.path("reads.toml"), rules("deny = [{ tool = \"calc__add\", arguments = { a = 4711 } }]")).unwrap();
    let found = replay(&dir, &["--candidate", "reads.toml"]);
    assert_eq!(differences(&found), ["deny → pass: 2"], "{found:#}");
    assert_eq!(found["notJudged"], json!({ "reads-payload": 2 }), "{found:#}");
    assert!(dir.run(&["replay", "--candidate", "reads.toml"]).out.contains("record = \"full\""));
}

/// A policy that reads a tool's description of itself, or the tags of its source, gets those at the time of the call.
#[test]
fn the_definition_and_the_tags_are_those_of_the_recorded_call() {
    let dir = TestDir::new(&whole(""));
    make_calls(&dir);
    let definitions = dir.records_of("definition.called");
    let names: Vec<&Value> = definitions.iter().map(|record| &record["body"]["tool"]).collect();
    assert_eq!(names, [&json!("calc__add"), &json!("calc__divide")], "each once");
    dir.configure(&whole("").replace("tags = [\"sums\"]\n", ""));
    fs::write(
        dir.path("hints.cedar"),
        "permit (principal, action, resource) when { resource.readOnly && resource.tags.contains(\"sums\") };",
    )
    .unwrap();
    let found = replay(&dir, &["--candidate", "hints.cedar"]);
    assert_eq!(
        (&found["judged"], &found["differences"], &found["notJudged"]),
        (&json!(4), &json!([]), &json!({})),
        "{found:#}"
    );
}

#[test]
fn a_policy_that_fails_denies_in_a_replay_too() {
    let dir = TestDir::new(&whole(""));
    let mut agent = Agent::start(&dir, Era::Modern);
    agent.call("files__echo", &json!({ "text": "panic" }), None);
    agent.leave();
    let trap = portcullis_test_support::guest("trap");
    let found = replay(&dir, &["--candidate", &trap.display().to_string()]);
    let code = found["differences"][0]["examples"][0]["now"]["code"].as_str();
    assert!(code.is_some_and(|code| code.starts_with("plugin-")), "{found:#}");
}

#[test]
fn a_configured_policy_that_the_broker_would_not_load_judges_no_replay() {
    let dir = TestDir::new(&whole("[[policies]]\nplugin = \"./policy.wasm\"\n"));
    fs::copy(guest("trap"), dir.path("policy.wasm")).unwrap();
    make_calls(&dir);
    let accepted = dir.run(&["lock", "accept", "--components"]);
    assert_eq!(accepted.code, Some(0), "{}", accepted.err);
    assert_eq!(replay(&dir, &[])["wider"], false);
    fs::copy(guest("loop"), dir.path("policy.wasm")).unwrap();
    let refused = dir.run(&["replay"]);
    assert_eq!(refused.code, Some(2), "{}{}", refused.out, refused.err);
    assert!(refused.err.contains("portcullis.lock says"), "{}", refused.err);
    // A candidate is pinned by nobody yet.
    fs::copy(guest("loop"), dir.path("new.wasm")).unwrap();
    let new = dir.path("new.wasm");
    assert_eq!(replay(&dir, &["--candidate", new.to_str().unwrap(), "--replaces", "policy.wasm"])["wider"], false);
}

#[test]
fn an_error_that_was_withheld_is_recorded_as_one() {
    let rules = "[[policies]]\nplugin = \"builtin:rules\"\non = [\"result\"]\nsettings = { deny = [{ method = \"vendor/*\" }] }\n";
    let dir = TestDir::new(&format!(
        "{rules}[sources.far]\ncommand = [\"@source@\", \"mirror\"]\n[profiles.default]\napprove = \"never\"\n"
    ));
    let mut agent = Agent::start(&dir, Era::Modern);
    agent.list();
    for method in ["vendor/fails", "vendor/do"] {
        let refused = agent.request(method, json!({}));
        assert_eq!(refused["error"]["data"]["code"], "rule", "{refused}");
    }
    agent.leave();
    let failed: Vec<_> =
        dir.records_of("tool.completed").iter().map(|record| record["body"]["failed"].clone()).collect();
    assert_eq!(failed, [json!(true), Value::Null]);
}

#[test]
fn a_replay_without_a_policy_or_with_a_bad_one_says_what_to_do() {
    let dir = TestDir::new(&whole(""));
    make_calls(&dir);
    fs::write(dir.path("bad.cedar"), "permit (").unwrap();
    for (arguments, expected) in [
        (&["replay"][..], "--candidate FILE"),
        (&["replay", "--candidate", "bad.cedar"], "policies"),
        (&["replay", "--candidate", "gone.wasm"], "gone.wasm"),
        (&["replay", "--replaces", "x"], "--candidate"),
    ] {
        let ran = dir.run(arguments);
        // A build that refuses what is wider does not take it for that.
        assert!(ran.code == Some(2) && ran.err.contains(expected), "{arguments:?}: {}{}", ran.out, ran.err);
    }
}

#[test]
fn recorded_calls_become_fixtures_that_the_policies_pass() {
    let policies = rules("deny = [\"calc__divide\"]");
    let dir = TestDir::new(&whole(&policies));
    make_calls(&dir);
    let ran = dir.run(&["audit", "export", "--fixtures", "-o", "calls.toml", "--tool", "calc__*"]);
    assert_eq!((ran.code, ran.err.contains("wrote 4 cases")), (Some(0), true), "{}", ran.err);
    let tested = dir.run(&["plugin", "test", "calls.toml"]);
    assert_eq!(
        (tested.code, tested.out.contains("4 of 4 cases are as expected")),
        (Some(0), true),
        "{}{}",
        tested.out,
        tested.err
    );
    let text = fs::read_to_string(dir.path("calls.toml")).unwrap();
    assert!(text.contains("code = \"rule\"") && text.contains("calc__divide"), "{text}");
    // Another policy is found to differ.
    fs::write(dir.path("other.toml"), text.replace("calc__divide\"]", "calc__add\"]")).unwrap();
    let tested = dir.run(&["plugin", "test", "other.toml"]);
    assert_eq!((tested.code, tested.out.contains("0 of 4 cases")), (Some(1), true), "{}{}", tested.out, tested.err);

    let again = dir.run(&["audit", "export", "--fixtures", "-o", "calls.toml"]);
    assert!(again.code != Some(0) && again.err.contains("exists"), "{}", again.err);
    dir.configure(&whole("").replace("full", "shape"));
    let none = dir.run(&["audit", "export", "--fixtures", "-o", "none.toml"]);
    assert!(none.code != Some(0) && none.err.contains("[[policies]]"), "{}", none.err);
}

/// Arguments that no JSON value stands for are judged as they were: with `-0`, and with more digits than a float holds.
#[test]
fn arguments_that_are_recorded_as_text_are_judged_again_too() {
    let policies = rules("deny = [{ tool = \"files__echo\", arguments = { a = 0 } }]");
    let dir = TestDir::new(&whole(&policies));
    for (arguments, code) in [(r#"{"a":-0}"#, 1), (r#"{"a":1.00000000000000000001}"#, 0)] {
        let called = dir.run(&["call", "files__echo", arguments]);
        assert_eq!(called.code, Some(code), "{arguments}: {}{}", called.out, called.err);
    }
    let found = replay(&dir, &[]);
    assert_eq!(
        (&found["judged"], &found["differences"], &found["notJudged"]),
        (&json!(2), &json!([]), &json!({})),
        "{found:#}"
    );
    let ran = dir.run(&["audit", "export", "--fixtures", "-o", "calls.toml"]);
    assert!(ran.err.contains("wrote 2 cases"), "{}", ran.err);
    let tested = dir.run(&["plugin", "test", "calls.toml"]);
    assert!(tested.out.contains("2 of 2 cases are as expected"), "{}{}", tested.out, tested.err);
}

#[test]
fn each_policy_explains_a_recorded_call_by_what_it_said_and_says_now() {
    let cedar = "[[policies]]\nplugin = \"builtin:cedar\"\n[policies.settings]\npolicies = '''\n\
                 permit (principal, action, resource);\n@id(\"no-zero\")\n\
                 forbid (principal, action == Action::\"calc__divide\", resource) when { context.input.b == 0 };\n'''\n";
    let dir = TestDir::new(&whole(&(rules("ask = [\"*__write\"]") + cedar)));
    make_calls(&dir);
    let denied = dir.records_of("call.denied").remove(0);
    let call = denied["call"].as_str().unwrap();
    let explained = dir.run(&["policy", "explain", call]);
    assert_eq!(explained.code, Some(0), "{}", explained.err);
    for expected in
        ["builtin:rules: pass then, pass now", "builtin:cedar: deny (forbidden) then, deny (forbidden) now", "no-zero"]
    {
        assert!(explained.out.contains(expected), "{expected:?} is not in:\n{}", explained.out);
    }
    assert!(!explained.out.contains("\\u{"), "{}", explained.out);
    dir.configure(&whole(&rules("deny = [\"calc__divide\"]")));
    let explained: Value = serde_json::from_str(&dir.run(&["policy", "explain", call, "--json"]).out).unwrap();
    let policy = &explained["policies"][0];
    assert_eq!((&policy["then"], &policy["now"]), (&json!("pass"), &json!("deny (rule)")), "{explained:#}");

    // A policy that the broker would not load explains nothing.
    fs::copy(guest("plain"), dir.path("plain.wasm")).unwrap();
    let key = rcgen::KeyPair::generate().unwrap().public_key_pem();
    fs::write(dir.path("team.pub"), key).unwrap();
    let keys = "[broker]\nplugin-keys = [\"team.pub\"]\n".to_owned();
    dir.configure(&(keys + &whole("[[policies]]\nplugin = \"./plain.wasm\"\n")));
    let unsigned = dir.run(&["policy", "explain", call]);
    assert!(unsigned.code == Some(1) && unsigned.err.contains("portcullis plugin sign"), "{}", unsigned.err);

    let unknown = dir.run(&["policy", "explain", "01ARZ3NDEKTSV4RRFFQ69G5FAV"]);
    assert!(unknown.code != Some(0) && unknown.err.contains("portcullis audit"), "{}", unknown.err);
}
