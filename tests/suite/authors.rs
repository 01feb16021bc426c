//! The work of plugin authors: begin with a template, test with fixtures, run and measure a single decision.

use std::fs;
use std::path::Path;

use portcullis_test_support::{guest, new_plugin as build_plugin};
use serde_json::{Value, json};

use crate::test_dir::{Ran, TestDir, finish};

/// Makes a plugin of this kind in `dir`, builds it, and puts the component where its configuration expects it.
fn new_plugin(dir: &TestDir, kind: &str) -> String {
    let name = format!("my-{kind}");
    let made = dir.run(&["plugin", "new", &name, "--kind", kind]);
    assert_eq!(made.code, Some(0), "{}", made.err);
    assert!(made.err.contains("src/lib.rs") && made.err.contains("cargo build --release"), "{}", made.err);
    let built = build_plugin(&dir.path(&name));
    let place = dir.path(&name).join("target/wasm32-unknown-unknown/release");
    fs::create_dir_all(&place).unwrap();
    fs::copy(&built, place.join(built.file_name().unwrap())).unwrap();
    name
}

/// Runs `portcullis` in a folder of a plugin.
fn run_in(dir: &TestDir, folder: &str, arguments: &[&str]) -> Ran {
    let mut command = dir.command(arguments);
    command.current_dir(dir.path(folder));
    finish(command)
}

fn assert_fixtures_pass(dir: &TestDir, folder: &str) {
    let tested = run_in(dir, folder, &["plugin", "test"]);
    let passed = tested.code == Some(0) && tested.out.contains("2 of 2 cases are as expected");
    assert!(passed, "{}{}", tested.out, tested.err);
}

#[test]
fn a_new_plugin_of_each_kind_builds_and_works_as_its_readme_says() {
    let dir = TestDir::new("");
    let sum = ["call", "calculator__add", r#"{"a":1,"b":2,"token":"abc"}"#];
    let quotient = ["call", "calculator__divide", r#"{"a":1,"b":2}"#];

    let policy = new_plugin(&dir, "policy");
    assert_fixtures_pass(&dir, &policy);
    let denied = run_in(&dir, &policy, &quotient);
    assert!(denied.code != Some(0) && denied.err.contains("the tool divide is not allowed here"), "{}", denied.err);

    let transform = new_plugin(&dir, "transform");
    assert_fixtures_pass(&dir, &transform);
    // Without the transform, the calculator refuses the member that it does not know.
    assert_eq!(run_in(&dir, &transform, &sum).out.trim(), "3");

    let tools = new_plugin(&dir, "tools");
    let counted = run_in(&dir, &tools, &["call", "my-tools__count", r#"{"text":"one two three"}"#]);
    assert_eq!(counted.out.trim(), "3", "{}", counted.err);

    let audit = new_plugin(&dir, "audit");
    run_in(&dir, &audit, &quotient);
    let line: Value = serde_json::from_str(&fs::read_to_string(dir.path("my-audit/denied.jsonl")).unwrap()).unwrap();
    assert_eq!(line["tool"], "calculator__divide");
    assert!(line["at"].is_u64() && line["code"] == "rule", "{line}");

    let approval = new_plugin(&dir, "approval");
    let wasm = "target/wasm32-unknown-unknown/release/my_approval.wasm";
    let checked = run_in(&dir, &approval, &["plugin", "check", wasm]);
    assert!(checked.code == Some(0) && checked.out.contains("`approval`"), "{}{}", checked.out, checked.err);
    assert_eq!(run_in(&dir, &approval, &["check"]).code, Some(0));
}

#[test]
fn a_new_plugin_changes_nothing_that_is_there_and_needs_a_name() {
    let dir = TestDir::new("");
    fs::create_dir(dir.path("mine")).unwrap();
    for (arguments, expected) in [
        (["plugin", "new", "mine", "--kind", "policy", "--lang", "rust"], "exists already"),
        (["plugin", "new", "My Plugin", "--kind", "policy", "--lang", "rust"], "lower-case letters"),
    ] {
        let refused = dir.run(&arguments);
        assert!(refused.code == Some(1) && refused.err.contains(expected), "{}", refused.err);
    }
    assert_eq!(fs::read_dir(dir.path("mine")).unwrap().count(), 0);
    assert!(!dir.path("sink").exists());
}

/// Writes a fixture with one case for a guest.
fn fixture(dir: &TestDir, plugin: &Path, table: &str, case: &str) -> String {
    let text = format!(
        "[[policies]]\nplugin = {:?}\n{table}\n[[cases]]\nname = \"one\"\n{case}\n",
        plugin.display().to_string()
    );
    fs::write(dir.path("case.toml"), text).unwrap();
    dir.path("case.toml").display().to_string()
}

#[test]
fn a_test_has_the_limits_and_permissions_of_production() {
    let dir = TestDir::new("");
    let call = |word: &str| format!("call = {{ tool = \"read\", arguments = {{ a = {word:?} }} }}\n");
    for (name, word, code) in
        [("trap", "panic", "plugin-trap"), ("loop", "", "plugin-deadline"), ("grow", "", "plugin-memory")]
    {
        let case = format!("{}expect = \"deny\"\ncode = {code:?}", call(word));
        let file = fixture(&dir, &guest(name), "", &case);
        let tested = dir.run(&["plugin", "test", &file]);
        assert_eq!(tested.code, Some(0), "{name}: {}{}", tested.out, tested.err);
    }
    // A fact that a broker does not give a plugin is refused.
    let case = format!("{}expect = \"pass\"", call(""));
    let refused = dir.run(&["plugin", "test", &fixture(&dir, &guest("wasi-env"), "", &case)]);
    assert!(refused.code == Some(1) && refused.err.contains("no grant exists for it"), "{}", refused.err);
    let granted = dir.run(&["plugin", "test", &fixture(&dir, &guest("logger"), "", &case)]);
    assert_eq!(granted.code, Some(0), "{}{}", granted.out, granted.err);
}

#[test]
fn a_test_decides_in_each_phase_as_the_gate_does() {
    let dir = TestDir::new("");
    let table = "settings = { ask = \"odd\" }";
    for (case, expected) in [
        ("call = { tool = \"read\", arguments = { a = \"odd\" } }", "expect = \"ask\"\ncode = \"odd\""),
        // Nobody is asked about the result of a call that has been made.
        (
            "call = { tool = \"read\", arguments = { a = \"odd\" }, outcome = { content = [] } }",
            "expect = \"deny\"\ncode = \"result-asked\"",
        ),
        // An item with the verdict `ask` is listed.
        ("call = { tool = \"read\", arguments = { a = \"odd\" }, phase = \"list\" }", "expect = \"pass\""),
        // One key twice reaches no policy.
        (
            "call = { tool = \"read\", arguments = '{\"a\":\"odd\",\"a\":1}' }",
            "expect = \"deny\"\ncode = \"arguments-ambiguous\"",
        ),
    ] {
        let table = format!("{table}\non = [\"call\", \"result\", \"list\"]");
        let file = fixture(&dir, &guest("plain"), &table, &format!("{case}\n{expected}"));
        let tested = dir.run(&["plugin", "test", &file]);
        assert_eq!(tested.code, Some(0), "{case}: {}{}", tested.out, tested.err);
    }
}

#[test]
fn a_description_is_written_into_a_plugin_shown_and_enforced() {
    let dir = TestDir::new("");
    fs::copy(guest("plain"), dir.path("plain.wasm")).unwrap();
    let settings = json!({ "properties": { "refuse": { "type": "string" } }, "additionalProperties": false });
    let description = json!({ "name": "plain", "version": "1.0.0", "settings": settings });
    fs::write(dir.path("plain.json"), description.to_string()).unwrap();
    let described = dir.run(&["plugin", "describe", "plain.wasm", "plain.json"]);
    assert!(described.code == Some(0) && described.out.contains("sha256:"), "{}{}", described.out, described.err);
    let shown: Value = serde_json::from_str(&dir.run(&["plugin", "inspect", "./plain.wasm", "--json"]).out).unwrap();
    assert_eq!(shown["description"], description);
    let shown = dir.run(&["plugin", "inspect", "./plain.wasm"]).out;
    assert!(shown.contains("version   1.0.0") && shown.contains("\"additionalProperties\": false"), "{shown}");
    let checked = dir.run(&["plugin", "check", "./plain.wasm"]);
    assert!(checked.out.contains("is plain 1.0.0 by its own description"), "{}{}", checked.out, checked.err);
    let refused = dir.run(&["plugin", "check", "./plain.wasm", "--settings", r#"{"refuse":7}"#]);
    assert!(refused.code == Some(1) && refused.err.contains("`settings.refuse`: 7 is not of type"), "{}", refused.err);
    let refused = dir.run(&["plugin", "describe", "plain.json", "plain.json"]);
    assert!(refused.code == Some(1) && refused.err.contains("does not begin as WebAssembly"), "{}", refused.err);
}

#[test]
fn the_text_and_place_of_a_panic_reach_the_operator() {
    let dir = TestDir::new("");
    let settings = r#"{"trap":["files__read"]}"#;
    let ran = dir.run(&["plugin", "run", "builtin:saboteur", "files__read", "--settings", settings]);
    assert!(ran.out.contains("deny (plugin-trap)"), "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("src/lib.rs:") && ran.err.contains("told to panic"), "{}{}", ran.out, ran.err);
}

#[test]
fn a_case_that_differs_fails_the_test_and_says_how() {
    let dir = TestDir::new("");
    let table = "settings = { refuse = \"evil\", ask = \"odd\" }";
    let differs = |case: &str, expected: &str| {
        let file = fixture(&dir, &guest("plain"), table, case);
        let tested = dir.run(&["plugin", "test", &file]);
        assert!(tested.code == Some(1) && tested.out.contains(expected), "{case}: {}{}", tested.out, tested.err);
        let line: Value = serde_json::from_str(&dir.run(&["plugin", "test", &file, "--json"]).out).unwrap();
        assert!(line["ok"] == json!(false) && line["case"] == "one", "{line}");
    };
    differs("call = { tool = \"read\", arguments = { a = \"evil\" } }\nexpect = \"pass\"", "denied it (plain-refused)");
    differs("call = { tool = \"read\", arguments = { a = \"odd\" } }\nexpect = \"deny\"", "expected deny, and");
    differs("call = { tool = \"read\" }\nexpect = \"ask\"", "every plugin passed it");
    let no_phase = "call = { tool = \"read\", phase = \"result\" }\nexpect = \"pass\"";
    let file = fixture(&dir, &guest("plain"), table, no_phase);
    let refused = dir.run(&["plugin", "test", &file]);
    assert!(
        refused.code == Some(1) && refused.err.contains("a call has an `outcome` in the phase `result`"),
        "{}",
        refused.err
    );
    let unbuilt = dir.run(&["plugin", "test", &fixture(&dir, &dir.path("gone.wasm"), "", no_phase)]);
    assert!(unbuilt.code == Some(1) && unbuilt.err.contains("build the plugin first"), "{}", unbuilt.err);
    let missing = dir.run(&["plugin", "test"]);
    assert!(missing.code == Some(1) && missing.err.contains("the folder `fixtures` cannot be read"), "{}", missing.err);
}

#[test]
fn one_decision_is_shown_with_what_the_plugin_asked_for() {
    let dir = TestDir::new("");
    let plain = guest("plain").display().to_string();
    let settings = r#"{"refuse":"evil"}"#;
    let ran = dir.run(&["plugin", "run", &plain, "files__read", r#"{"a":"evil"}"#, "--settings", settings, "--json"]);
    let decision: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&decision["verdict"], &decision["code"]), (&json!("deny"), &json!("plain-refused")));
    assert_eq!(decision["asked"], json!(["arguments", "exposed-name", "phase"]), "{decision}");
    assert!(decision["memory"].as_u64().unwrap() > 0);

    fs::write(dir.path("call.json"), r#"{"tool":"read","outcome":{"content":[],"isError":true}}"#).unwrap();
    let from_file = dir.run(&["plugin", "run", &plain, "--call", "call.json", "--settings", settings]);
    assert!(
        from_file.code == Some(0) && from_file.out.contains("verdict   pass"),
        "{}{}",
        from_file.out,
        from_file.err
    );

    let measured = |arguments: &str| -> Value {
        let command = ["plugin", "bench", &plain, "files__read", arguments, "--settings", settings, "--json"];
        serde_json::from_str(&dir.run(&command).out).unwrap()
    };
    let figures = measured("{}");
    assert!(
        figures["decisions"].as_u64().unwrap() >= 20 && figures["host_calls"] == 1 && figures["verdict"] == "pass",
        "{figures}"
    );
    // The number of instructions depends on nothing but the call.
    let (few, many) = (figures["instructions"].as_u64().unwrap(), json!({ "a": "x".repeat(10_000) }).to_string());
    assert_eq!(measured("{}")["instructions"], few);
    assert!(few > 100 && measured(&many)["instructions"].as_u64().unwrap() > few + 1000, "{figures}");

    let sink = guest("scribe").display().to_string();
    let refused = dir.run(&["plugin", "run", &sink, "files__read"]);
    assert!(refused.err.contains("a plugin of the kind `audit`"), "{}", refused.err);
}

/// Makes a key in `dir`: `NAME.pem`, and `NAME.pub` with its public part.
fn new_key(dir: &TestDir, name: &str) {
    let pair = rcgen::KeyPair::generate().unwrap();
    fs::write(dir.path(&format!("{name}.pem")), pair.serialize_pem()).unwrap();
    fs::write(dir.path(&format!("{name}.pub")), pair.public_key_pem()).unwrap();
}

#[test]
fn a_plugin_is_loaded_only_with_a_signature_of_a_configured_key() {
    let config = "[broker]\nplugin-keys = [\"team.pub\"]\n[sources.calc]\ncomponent = \"builtin:calculator\"\n\
        [[policies]]\nplugin = \"./plain.wasm\"\n";
    let dir = TestDir::new(config);
    for key in ["team", "stranger"] {
        new_key(&dir, key);
    }
    fs::copy(guest("plain"), dir.path("plain.wasm")).unwrap();
    let (file, signature) = (dir.path("plain.wasm"), dir.path("plain.wasm.sig"));
    let refused = |why: &str| {
        let checked = dir.run(&["tools"]);
        let parts = [&*file.display().to_string(), "team.pub", "portcullis plugin sign", why];
        assert!(checked.code == Some(1) && parts.iter().all(|part| checked.err.contains(part)), "{}", checked.err);
    };
    refused("plain.wasm.sig: No such file");
    let sign = |key: &str| {
        let signed = dir.run(&["plugin", "sign", "./plain.wasm", "--key", key]);
        assert!(signed.code == Some(0) && signed.out.contains("plain.wasm.sig"), "{}{}", signed.out, signed.err);
    };
    sign("stranger.pem");
    refused("is not a signature of these bytes by them");
    fs::write(&signature, "not base64!").unwrap();
    refused("plain.wasm.sig is not base64");
    sign("team.pem");
    let accepted = dir.run(&["tools"]);
    assert!(accepted.code == Some(0) && accepted.out.contains("calc__add"), "{}{}", accepted.out, accepted.err);
    // The signature is one of these bytes.
    fs::copy(guest("loop"), &file).unwrap();
    refused("is not a signature of these bytes by them");

    let no_key = dir.run(&["plugin", "sign", "./plain.wasm", "--key", "team.pub"]);
    assert!(no_key.code == Some(1) && no_key.err.contains("team.pub: it is no private key"), "{}", no_key.err);
    fs::copy(dir.path("team.pem"), dir.path("team.pub")).unwrap();
    let no_key = dir.run(&["tools"]);
    assert!(no_key.code == Some(1) && no_key.err.contains("team.pub of `plugin-keys`"), "{}", no_key.err);
}
