//! A configuration that changes while the broker serves: the unchanged parts, the new ones, and requests in flight.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use portcullis_test_support::guest;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent::{Agent, ERAS, Era, Running, outcome};
use crate::endurance::sized;
use crate::recovery::write;
use crate::test_dir::{TestDir, until};
use crate::web::Server;

pub(crate) const NEVER: &str = "[profiles.default]\napprove = \"never\"\n";
pub(crate) const CALC: &str = "[sources.calc]\ncomponent = \"builtin:calculator\"\n";
const ADD: &str = r#"{ plugin = "builtin:rules", settings = { deny = ["calc__add"] } }"#;

/// Returns a source that follows the script of its name.
pub(crate) fn scripted(name: &str) -> String {
    format!("[sources.{name}]\ncommand = [\"@source@\", \"faulty\", \"@dir@/open/{name}\"]\n@cell@\n")
}

/// Starts a broker that reloads only when it is told to, with one agent.
pub(crate) fn unwatched(dir: &TestDir, era: Era) -> Agent {
    Agent::of(dir.command(&["serve", "--stdio", "--no-watch"]), era, json!({}))
}

/// Changes the configuration and tells the broker. Returns what the broker says of it.
pub(crate) fn reload(dir: &TestDir, broker: &Running, config: &str) -> String {
    dir.configure(config);
    broker.signal(Signal::HUP);
    broker.says("the configuration is ")
}

/// Returns the digests of the configurations that the records of a call name, in their order.
fn named_by(dir: &TestDir, kind: &str) -> Vec<String> {
    dir.records_of(kind).iter().map(|record| record["config"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_change_of_the_file_is_put_in_force_and_what_did_not_change_stays_connected() {
    let dir = TestDir::new(&format!("{NEVER}{}", scripted("stays")));
    write(&dir, "stays", "well");
    let mut agent = Agent::start(&dir, Era::Legacy);
    assert_eq!(agent.list(), json!({ "tools": ["stays__echo"] }));
    dir.configure(&format!("{NEVER}{}{CALC}", scripted("stays")));
    assert!(agent.running.says("the configuration is reloaded").ends_with("added calc"));
    assert_eq!(agent.next().unwrap()["method"], "notifications/tools/list_changed");
    assert_eq!(agent.call("calc__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }));
    assert_eq!(agent.call("stays__echo", &json!({}), None), json!({ "ok": "{}" }));

    dir.configure(&format!("{NEVER}{CALC}"));
    assert!(agent.running.says("the configuration is reloaded").ends_with("removed stays"));
    assert_eq!(agent.call("stays__echo", &json!({}), None)["refused"], -32602);
    // A source that is gone leaves no process behind, although the broker continues.
    until("the source has ended", || dir.processes().len() == 1);
    agent.leave();
    assert_eq!(dir.records_of("source.started").len(), 1, "the source was not started again");
    let reloads = dir.records_of("config.reloaded");
    assert_eq!(reloads.len(), 2);
    assert_eq!(reloads[0]["body"]["digest"], reloads[1]["body"]["before"]);
    assert_eq!(reloads[1]["config"], reloads[1]["body"]["digest"]);
    dir.assert_nothing_left();
}

#[test]
fn a_reload_names_the_tables_that_changed() {
    let dir = TestDir::new(&format!("policies = [{ADD}]\n{CALC}"));
    let mut agent = unwatched(&dir, Era::Modern);
    agent.list();
    let more = format!("{CALC}{NEVER}[profiles.ci]\n");
    for (config, tables) in [(CALC, "[[policies]]"), (&more, "[profiles.ci], [profiles.default]")] {
        let said = reload(&dir, &agent.running, config);
        assert!(said.ends_with(&format!("reloaded: changed tables: {tables}")), "{said}");
    }
    assert_eq!(dir.records_of("config.reloaded")[0]["body"]["changes"]["tables"], json!(["[[policies]]"]));
}

#[test]
fn a_plugin_whose_file_changes_is_put_in_force_and_a_broken_one_is_not() {
    let dir = TestDir::new("");
    let file = dir.path("policy.wasm");
    // As a compiler does, each writes a new file in place of the old one.
    let put = |bytes: &[u8]| {
        fs::write(dir.path("next"), bytes).unwrap();
        fs::rename(dir.path("next"), &file).unwrap();
    };
    put(&fs::read(guest("trap")).unwrap());
    dir.configure(&format!("{NEVER}[sources.files]\ncommand = [\"@source@\", \"plain\"]\n@cell@\n[[policies]]\nplugin = \"@dir@/policy.wasm\"\n"));
    let mut agent = Agent::start(&dir, Era::Modern);
    let panics = json!({ "a": "panic" });
    assert_eq!(agent.call("files__echo", &panics, None)["refused"], "plugin-trap");

    put(b"no component");
    assert!(agent.running.says("the configuration is not reloaded").contains("policy.wasm"));
    assert_eq!(agent.call("files__echo", &panics, None)["refused"], "plugin-trap");

    put(&fs::read(guest("plain")).unwrap());
    assert!(agent.running.says("the configuration is reloaded").ends_with("changed tables: [[policies]]"));
    assert!(agent.call("files__echo", &panics, None)["ok"].is_string());
    agent.leave();
    let verdicts = dir.records_of("config.reloaded");
    assert_eq!(verdicts.len(), 1, "{verdicts:?}");
    dir.assert_nothing_left();
}

#[test]
fn a_reload_says_what_changes_at_the_next_start_alone_and_refuses_a_sink_that_no_key_has_signed() {
    let rest = format!("{NEVER}{CALC}[[sinks]]\nplugin = \"./scribe.wasm\"\n");
    let dir = TestDir::new("");
    fs::copy(guest("scribe"), dir.path("scribe.wasm")).unwrap();
    fs::write(dir.path("team.pub"), rcgen::KeyPair::generate().unwrap().public_key_pem()).unwrap();
    dir.configure(&rest);
    let mut agent = unwatched(&dir, Era::Modern);
    agent.list();
    let more = "[broker]\nmax-message = \"1MiB\"\n[telemetry]\notlp = \"http://127.0.0.1:4318\"\n";
    let said = reload(&dir, &agent.running, &format!("{more}{rest}"));
    assert!(said.ends_with("at the next start: `max-message` of [broker], [telemetry]"), "{said}");
    dir.configure(&format!("[broker]\nplugin-keys = [\"team.pub\"]\n{rest}"));
    agent.running.signal(Signal::HUP);
    let said = agent.running.says("the configuration is not reloaded");
    assert!(said.contains("scribe.wasm") && said.contains("plugin sign"), "{said}");
    agent.leave();
}

#[test]
fn a_sink_is_added_while_the_broker_runs_and_follows_its_file() {
    let dir = TestDir::new(&format!("{NEVER}{CALC}"));
    let scribe = "[[sinks]]\nplugin = \"@dir@/scribe.wasm\"\nfile = \"@dir@/away.jsonl\"\n";
    let mut agent = Agent::start(&dir, Era::Modern);
    let sum = json!({ "a": 4711, "b": 2 });
    assert!(agent.call("calc__add", &sum, None)["ok"].is_string());
    fs::copy(guest("scribe"), dir.path("scribe.wasm")).unwrap();
    dir.configure(&format!("{NEVER}{CALC}{scribe}"));
    agent.running.says("the configuration is reloaded");
    assert!(agent.call("calc__subtract", &sum, None)["ok"].is_string());
    let written = || fs::read_to_string(dir.path("away.jsonl")).unwrap_or_default();
    until("the sink has the second call", || written().contains("calc__subtract"));
    assert!(!written().contains("calc__add"), "it gets the records from then on: {}", written());
    fs::write(dir.path("next"), b"no component").unwrap();
    fs::rename(dir.path("next"), dir.path("scribe.wasm")).unwrap();
    assert!(agent.running.says("the configuration is not reloaded").contains("scribe.wasm"));
    assert!(agent.call("calc__divide", &sum, None)["ok"].is_string());
    until("the sink goes on", || written().contains("calc__divide"));
    dir.configure(&format!("{NEVER}{CALC}"));
    agent.running.says("the configuration is reloaded");
    agent.leave();
}

#[test]
fn a_file_with_an_error_is_refused_and_the_one_before_stays() {
    let dir = TestDir::new(&format!("{NEVER}{CALC}"));
    let mut agent = Agent::start(&dir, Era::Modern);
    assert_eq!(agent.call("calc__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }));
    for (config, why) in [
        ("[sources.calc]\ncomponent = 7\n".to_owned(), "invalid type"),
        (
            format!("{CALC}required = true\n[sources.gone]\ncommand = [\"/no/such/program\"]\nrequired = true\n"),
            "/no/such/program",
        ),
        (format!("policies = [\"@dir@/gone.wasm\"]\n{CALC}"), "gone.wasm"),
        (format!("[broker]\ndata-dir = \"elsewhere\"\n{CALC}"), "data folder cannot change"),
        (String::new(), "no source is configured"),
    ] {
        dir.configure(&config);
        let said = agent.running.says("the configuration is not reloaded");
        assert!(said.contains(why), "{said}");
        let status = dir.run(&["status", "--data-dir", ".portcullis"]);
        assert_eq!(status.code, Some(1), "{}", status.out);
        assert!(status.out.contains(why) && status.out.contains("is not in force"), "{}", status.out);
        assert_eq!(agent.call("calc__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }));
    }
    assert_eq!(dir.records_of("config.refused").len(), 5);
    // The broker's data can be read meanwhile, whether the file has an error or is no longer trusted.
    for (config, why) in [("[sources.calc\n", "unclosed table"), ("# Changed.\n", "is not what you trusted")] {
        dir.write_configuration(config);
        agent.running.says("the configuration is not reloaded");
        for command in [&["status"][..], &["approvals", "list"], &["secret", "list"], &["audit", "verify"]] {
            let ran = dir.run(command);
            assert_eq!(ran.code, Some(i32::from(command == ["status"])), "{command:?} {}{}", ran.out, ran.err);
            assert!(ran.err.contains(why) && ran.err.contains("its data folder"), "{command:?} {}", ran.err);
        }
    }
    dir.configure(&format!("{NEVER}{CALC}"));
    agent.running.says("nothing is different");
    assert_eq!(dir.run(&["status"]).code, Some(0));
    agent.leave();
    dir.assert_nothing_left();
}

#[test]
fn a_file_that_was_found_is_not_put_in_force_before_it_is_trusted() {
    let dir = TestDir::new(&format!("{NEVER}{CALC}"));
    let mut agent = Agent::start(&dir, Era::Legacy);
    assert_eq!(agent.list()["tools"].as_array().unwrap().len(), 4);
    let changed = dir.write_configuration(&format!("{NEVER}{CALC}{}", scripted("planted")));
    write(&dir, "planted", "well");
    let said = agent.running.says("the configuration is not reloaded");
    assert!(said.contains("is not what you trusted") && said.contains("portcullis trust"), "{said}");
    assert_eq!(agent.list()["tools"].as_array().unwrap().len(), 4);
    dir.trust(&changed);
    assert!(agent.running.says("the configuration is reloaded").ends_with("added planted"));
    assert_eq!(agent.list()["tools"].as_array().unwrap().len(), 5);
    agent.leave();
    assert_eq!(dir.records_of("config.refused").len(), 1, "the change is not refused at each look");
    dir.assert_nothing_left();
}

#[test]
fn a_call_in_flight_finishes_under_the_configuration_that_admitted_it() {
    for era in ERAS {
        let dir = TestDir::new(&format!("{NEVER}{}{CALC}", scripted("slow")));
        write(&dir, "slow", "waits-in-call");
        let mut agent = unwatched(&dir, era);
        agent.list();
        let call = agent.send_call("slow__echo", &json!({ "n": 1 }));
        until("the call is admitted", || dir.records_of("call.intent").len() == 1);
        // Neither the source nor what it answers would be let through now.
        let deny = r#"{ plugin = "builtin:rules", settings = { deny = ["*"] }, on = ["call", "result"] }"#;
        assert!(reload(&dir, &agent.running, &format!("policies = [{deny}]\n{CALC}")).contains("removed slow"));
        assert_eq!(agent.call("calc__add", &json!({ "a": 1, "b": 2 }), None)["refused"], "rule");
        fs::write(dir.path("open/slow.go"), "").unwrap();
        assert_eq!(outcome(&agent.answer(call, None)), json!({ "ok": r#"{"n":1}"# }), "{era:?}");
        until("the source has ended", || dir.processes().len() == 1);
        agent.leave();
        let (intent, completed) = (named_by(&dir, "call.intent"), named_by(&dir, "tool.completed"));
        assert_eq!(intent, completed, "{era:?}: both records name the configuration of the call");
        assert_ne!(intent, named_by(&dir, "call.denied"), "{era:?}");
        dir.assert_nothing_left();
    }
}

#[test]
fn a_subscription_goes_on_under_the_next_configuration() {
    let dir = TestDir::new(&format!("{NEVER}{}", scripted("one")));
    write(&dir, "one", "modern");
    write(&dir, "two", "modern");
    let mut agent = unwatched(&dir, Era::Modern);
    agent.list();
    let stream = agent.send("subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } }));
    assert_eq!(agent.next().unwrap()["method"], "notifications/subscriptions/acknowledged");
    reload(&dir, &agent.running, &format!("{NEVER}{}{}", scripted("one"), scripted("two")));
    let changed = agent.next().unwrap();
    assert_eq!(changed["method"], "notifications/tools/list_changed", "{changed}");
    assert_eq!(changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], stream);
    // Each of these sources announces a change with every call, as soon as it is subscribed to.
    for tool in ["one__echo", "two__echo"] {
        let mut heard = false;
        until("the source is heard", || {
            let id = agent.send_call(tool, &json!({}));
            loop {
                let message = agent.next().unwrap();
                heard |= message["method"] == "notifications/tools/list_changed";
                assert_ne!(message["method"], "notifications/subscriptions/acknowledged", "it was acknowledged before");
                if message["id"] == id {
                    return heard;
                }
            }
        });
    }
    reload(&dir, &agent.running, &format!("{NEVER}{}", scripted("two")));
    until("the source has ended", || !dir.processes().iter().any(|process| process.contains("open/one")));
    agent.leave();
    dir.assert_nothing_left();
}

#[test]
fn what_a_source_keeps_for_a_session_ends_when_the_profile_no_longer_has_the_source() {
    let dir = TestDir::new(&format!("{NEVER}{}{CALC}", scripted("files")));
    write(&dir, "files", "well");
    // An agent that can be asked has a connection of its own.
    let command = dir.command(&["serve", "--stdio", "--no-watch"]);
    let mut agent = Agent::of(command, Era::Legacy, json!({ "elicitation": {} }));
    assert_eq!(agent.call("files__echo", &json!({}), None), json!({ "ok": "{}" }));
    let said = reload(&dir, &agent.running, &format!("{NEVER}sources = [\"calc\"]\n{}{CALC}", scripted("files")));
    assert!(said.ends_with("changed tables: [profiles.default]"), "{said}");
    until("the connection of the session has ended", || dir.processes().len() == 1);
    assert_eq!(agent.call("files__echo", &json!({}), None)["refused"], -32602);
    agent.leave();
    dir.assert_nothing_left();
}

#[test]
fn the_value_of_a_secret_counts_as_a_change_of_its_source() {
    let config = format!("{NEVER}{}env = {{ KEY = {{ secret = \"key\" }} }}\n", scripted("files"));
    let dir = TestDir::new(&config);
    write(&dir, "files", "well");
    let keep = |value: &str| {
        fs::write(dir.path("value"), value).unwrap();
        let mut command = dir.command(&["secret", "set", "key"]);
        command.stdin(fs::File::open(dir.path("value")).unwrap());
        assert!(command.status().unwrap().success());
    };
    keep("first");
    let mut agent = unwatched(&dir, Era::Legacy);
    assert_eq!(agent.call("files__echo", &json!({}), None), json!({ "ok": "{}" }));
    keep("second");
    assert!(reload(&dir, &agent.running, &config).ends_with("changed files"));
    assert_eq!(agent.call("files__echo", &json!({}), None), json!({ "ok": "{}" }));
    agent.leave();
    assert_eq!(dir.records_of("source.started").len(), 2);
    dir.assert_nothing_left();
}

/// With `PORTCULLIS_SOAK=600`, the reloads are spread over 600 seconds, and 16 agents call three times a second each.
#[test]
fn a_hundred_reloads_under_load_fail_no_call_and_none_is_judged_by_a_mix() {
    const RELOADS: u32 = 100;
    let lasts = std::env::var("PORTCULLIS_SOAK").ok().and_then(|seconds| seconds.parse().ok());
    let lasts = lasts.map(Duration::from_secs).unwrap_or_default();
    let (callers, pause) = (sized(4, 16), Duration::from_millis(sized(0, 330) as u64));
    let dir = TestDir::new(&format!("{NEVER}{CALC}{}", scripted("files")));
    write(&dir, "files", "well");
    let server = Server::of(dir.command(&["serve", "--listen", "127.0.0.1:0", "--no-watch"]), &dir);
    let stop = AtomicBool::new(false);
    // The second configuration has another policy, and another source in addition to the one that stays.
    let configurations = [
        format!("policies = [{}]\n{NEVER}{CALC}{}", ADD.replace("calc__add", "calc__divide"), scripted("files")),
        format!(
            "policies = [{}]\n{NEVER}{CALC}timeout = \"50s\"\n{}",
            ADD.replace("calc__add", "calc__multiply"),
            scripted("files")
        ),
    ];
    let made: usize = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..callers)
            .map(|caller| {
                let (endpoint, stop) = (server.endpoint.clone(), &stop);
                scope.spawn(move || {
                    let mut session = endpoint.session(&json!({}));
                    let mut made = 0;
                    while !stop.load(Ordering::SeqCst) {
                        let (tool, arguments) = match (caller + made) % 2 {
                            0 => ("calc__add", json!({ "a": 1, "b": 2 })),
                            _ => ("files__echo", json!({ "n": made })),
                        };
                        let answer = session.call(tool, &arguments).unwrap();
                        assert!(answer.get("ok").is_some(), "{answer}");
                        made += 1;
                        std::thread::sleep(pause);
                    }
                    made
                })
            })
            .collect();
        let began = Instant::now();
        for round in 1..=RELOADS {
            reload(&dir, &server.running, &configurations[(round % 2) as usize]);
            std::thread::sleep((lasts * round / RELOADS).saturating_sub(began.elapsed()));
        }
        stop.store(true, Ordering::SeqCst);
        callers.into_iter().map(|caller| caller.join().unwrap()).sum()
    });
    assert_eq!(server.running.end_by(Signal::TERM).0, Some(0));
    // Read once, as there are many.
    let records = dir.records();
    let count = |kind: &str| records.iter().filter(|record| record["kind"] == kind).count();
    assert_eq!(count("config.reloaded"), RELOADS as usize);
    assert_eq!(count("source.started"), 1, "the source that never changed was started once");
    let mut calls: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let mut judged: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for record in records {
        let config = record["config"].as_str().unwrap_or_default().to_owned();
        if record["kind"] == "call.intent" {
            judged.entry(config).or_default().insert(record["body"]["policies"].to_string());
        }
        if let Some(call) = record["call"].as_str() {
            calls.entry(call.to_owned()).or_default().push(record);
        }
    }
    assert_eq!(calls.len(), made);
    for (call, records) in &calls {
        let kinds: Vec<_> = records.iter().map(|record| record["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["call.intent", "tool.completed"], "{call}");
        assert_eq!(records[0]["config"], records[1]["config"], "{call}");
    }
    assert!(judged.len() > 1, "calls were made under one configuration only");
    assert!(judged.values().all(|policies| policies.len() == 1), "{judged:?}");
    dir.assert_nothing_left();
}
