//! Components as sources: servers and functions of third parties, named by path.

use std::io::Write as _;
use std::process::Command;

use portcullis_test_support::guest;
use serde_json::{Value, json};

use crate::agent::{Agent, ERAS};
use crate::test_dir::{TestDir, broker};

#[test]
fn an_mcp_server_compiled_to_a_component_is_a_source_like_any_other() {
    for mode in ["", "modern"] {
        for era in ERAS {
            let dir = TestDir::new(&format!(
                "[sources.notes]\ncomponent = \"@guest:server@\"\nenv = {{ MODE = \"{mode}\" }}\ncell = {{ read = [\"open\"] }}\n"
            ));
            let note = dir.path("open/note.txt");
            std::fs::write(&note, "a note").unwrap();
            let mut agent = Agent::start(&dir, era);
            let read = agent.call("notes__read", &json!({ "path": note }), None);
            assert!(read["ok"].as_str().is_some_and(|text| text.contains("a note")), "{read}");
            let passwd = agent.call("notes__read", &json!({ "path": "/etc/passwd" }), None);
            assert!(passwd["ok"].as_str().is_some_and(|text| text.contains("os error")), "{passwd}");
            agent.leave();
            let started = dir.records_of("source.started");
            assert_eq!(
                (&started[0]["body"]["source"], &started[0]["body"]["kind"]),
                (&json!("notes"), &json!("command"))
            );
            assert_eq!(started[0]["body"]["harmless"], true);
            dir.assert_nothing_left();
        }
    }
}

#[test]
fn check_shows_what_serves_each_import_and_the_risk_follows_from_the_grants() {
    for (key, harmless) in [("read", true), ("write", false)] {
        let dir = TestDir::new(&format!(
            "[broker]\nask-timeout = \"1s\"\n[sources.notes]\ncomponent = \"@guest:server@\"\ncell.{key} = [\"open\"]\n"
        ));
        let ran = dir.run(&["check", "--json"]);
        let report: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}{}", ran.out, ran.err));
        let cell = &report["sources"][0]["cell"];
        assert_eq!((&cell["harmless"], &cell["isolation"]["tier"]), (&json!(harmless), &json!("wasm")), "{cell}");
        let files = cell["imports"].as_array().unwrap().iter().find(|i| i["package"] == "wasi:filesystem@0.2").unwrap();
        assert!(files["behind"].as_str().unwrap().contains(dir.path("open").to_str().unwrap()), "{files}");
        let said = dir.run(&["check", "--details"]).out;
        assert!(said.contains("wasi:filesystem@0.2") && said.contains("(command)"), "{said}");
        let ran = dir.run(&["call", "notes__echo", "{}"]);
        assert_eq!(ran.code == Some(0), harmless, "{}{}", ran.out, ran.err);
    }
}

#[test]
fn a_pinned_component_that_changed_does_not_start_until_it_is_accepted() {
    let dir = TestDir::new("[sources.pinned]\ncomponent = \"counter.wasm\"\n");
    let component = dir.path("counter.wasm");
    std::fs::copy(guest("counter"), &component).unwrap();
    let accept = || {
        let ran = dir.run(&["lock", "accept", "--components", "--json"]);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        serde_json::from_str::<Value>(&ran.out).unwrap()[0].clone()
    };
    let first = accept();
    assert_eq!((&first["component"], &first["before"]), (&json!("./counter.wasm"), &Value::Null));
    assert_eq!(dir.run(&["tools"]).code, Some(0));

    std::fs::copy(guest("shapes"), &component).unwrap();
    let refused = dir.run(&["tools"]);
    assert_eq!(refused.code, Some(1), "{}", refused.out);
    assert!(refused.err.contains(first["now"].as_str().unwrap()), "{}", refused.err);
    assert!(refused.err.contains("portcullis lock accept --components"), "{}", refused.err);

    let second = accept();
    assert_eq!(second["before"], first["now"]);
    assert!(refused.err.contains(second["now"].as_str().unwrap()), "{}", refused.err);
    assert_eq!(dir.run(&["tools"]).code, Some(0));
    let shown: Value = serde_json::from_str(&dir.run(&["lock", "show", "--json"]).out).unwrap();
    assert_eq!(shown["components"][0]["digest"], second["now"]);
    let accepted: Vec<_> = dir.records_of("lock.accepted").iter().map(|r| r["body"]["digest"].clone()).collect();
    assert_eq!(accepted, [first["now"].clone(), second["now"].clone()]);
    dir.assert_nothing_left();
}

#[test]
fn functions_of_a_third_party_component_are_tools() {
    let dir = TestDir::new("[sources.shapes]\ncomponent = \"@guest:shapes@\"\n");
    for era in ERAS {
        let mut agent = Agent::start(&dir, era);
        let answer = agent.call("shapes__greet", &json!({ "name": "you" }), None);
        assert!(answer["ok"].as_str().is_some_and(|text| text.contains("hello you")), "{answer}");
        agent.leave();
    }
    let ran = dir.run(&["call", "shapes__divide", r#"{"a":7,"b":0}"#]);
    assert!(format!("{}{}", ran.out, ran.err).contains("division by zero"), "{}{}", ran.out, ran.err);
}

#[test]
fn a_call_that_exceeds_a_component_limit_fails_and_names_the_setting_that_raises_it() {
    let dir = TestDir::new(
        "[sources.explorer]\ncomponent = \"@guest:explorer@\"\ntimeout = \"3s\"\n\
         cell = { memory = \"8MiB\", output = \"1KiB\", instances = 1, read = [\"open\"] }\n",
    );
    let large = dir.path("open/large.txt");
    std::fs::write(&large, "x".repeat(4096)).unwrap();
    let limits = serde_json::from_str::<Value>(&dir.run(&["check", "--json"]).out).unwrap();
    let limits = &limits["sources"][0]["cell"]["limits"];
    assert_eq!((&limits["output"], &limits["instances"]), (&json!(1024), &json!(1)), "{limits}");
    let mut agent = Agent::start(&dir, ERAS[0]);
    for (tool, path, line) in [
        ("explorer__grow", "", "cell = { memory = \"16MiB\" }"),
        ("explorer__sleep", "", "raise `timeout` in its source"),
        ("explorer__read", "/etc/passwd", "os error"),
        ("explorer__read", large.to_str().unwrap(), "cell = { output = \"1MiB\" }"),
    ] {
        let answer = agent.call(tool, &json!({ "path": path }), None);
        assert!(answer["failed"].as_str().is_some_and(|text| text.contains(line)), "{tool}: {answer}");
        let answer = agent.call("explorer__look", &json!({}), None);
        assert!(answer["ok"].as_str().is_some_and(|text| text.contains("\"environment\":{}")), "{answer}");
    }
    agent.leave();
}

#[test]
fn a_component_without_a_network_starts_and_is_shown_with_the_way_out() {
    let dir = TestDir::new("[sources.far]\ncomponent = \"@guest:dialer@\"\n");
    let ran = dir.run(&["check", "far"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("wasi:sockets@0.2") && ran.out.contains("cell = { network = "), "{}", ran.out);
}

#[test]
fn a_component_reaches_only_the_hosts_of_its_cell_and_each_attempt_is_recorded() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = server.accept() {
            let _ = stream.write_all(b"welcome");
        }
    });
    let dir = TestDir::new(&format!(
        "[sources.far]\ncomponent = \"@guest:dialer@\"\ncell = {{ network = [\"localhost:{port}\"] }}\n\
         dangerous-allow-private = true\n[profiles.default]\napprove = \"never\"\n"
    ));
    let said = dir.run(&["check", "far"]).out;
    assert!(said.contains(&format!("connections to localhost:{port}")), "{said}");
    let mut agent = Agent::start(&dir, ERAS[0]);
    let connect = |agent: &mut Agent, to: &str| agent.call("far__connect", &json!({ "address": to, "send": "" }), None);
    let answer = connect(&mut agent, &format!("localhost:{port}"));
    assert!(answer["ok"].as_str().is_some_and(|text| text.contains("welcome")), "{answer}");
    let answer = connect(&mut agent, "169.254.169.254:80");
    assert!(!answer.to_string().contains("welcome"), "{answer}");
    agent.leave();
    assert_eq!(dir.records_of("egress.allowed")[0]["body"]["host"], "localhost");
    assert_eq!(dir.records_of("egress.refused")[0]["body"]["host"], "169.254.169.254");
    dir.assert_nothing_left();
}

#[test]
fn the_broker_raises_its_descriptor_limit_to_what_the_system_allows() {
    let dir = TestDir::new("[sources.calc]\ncomponent = \"builtin:calculator\"\n");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "ulimit -S -n 300; exec \"$0\" serve --stdio"]).arg(broker());
    dir.prepare(&mut command);
    let mut agent = Agent::of(command, ERAS[0], json!({}));
    agent.list();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", agent.running.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let [now, most] = line.split_whitespace().skip(3).take(2).collect::<Vec<_>>().try_into().unwrap();
    assert!(now == most && now != "300", "{line}");
    agent.leave();
}

#[test]
fn a_source_that_cannot_list_its_tools_is_unavailable_and_says_why() {
    let dir = TestDir::new(
        "[sources.counter]\ncomponent = \"@guest:counter@\"\nsettings = { down = true }\n\
         [sources.calc]\ncomponent = \"builtin:calculator\"\n",
    );
    let ran = dir.run(&["check"]);
    assert!(ran.out.contains("1 of 2 sources: counter"), "{}", ran.out);
    assert!(ran.out.contains("lists no tools: plugin-error: the exchange is closed"), "{}", ran.out);
    let mut agent = Agent::start(&dir, ERAS[0]);
    let answer = agent.call("calc__add", &json!({ "a": 20, "b": 22 }), None);
    assert_eq!(answer["ok"], "42", "{answer}");
    agent.leave();
}

#[test]
fn a_session_that_a_component_cannot_open_is_a_failed_call_and_the_next_call_opens_it() {
    let dir = TestDir::new(
        "[sources.explorer]\ncomponent = \"@guest:explorer@\"\nenv = { NEEDS = \"@dir@/open/needed\" }\n\
         cell = { read = [\"open\"] }\n",
    );
    for era in ERAS {
        let mut agent = Agent::start(&dir, era);
        let answer = agent.call("explorer__look", &json!({}), None);
        let why = answer["failed"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(why.starts_with("the session could not be opened: ") && why.contains("os error"), "{why}");
        std::fs::write(dir.path("open/needed"), "").unwrap();
        let answer = agent.call("explorer__look", &json!({}), None);
        assert!(answer["ok"].as_str().is_some_and(|text| text.contains("\"calls\":1")), "{answer}");
        agent.leave();
        std::fs::remove_file(dir.path("open/needed")).unwrap();
    }
}

#[test]
fn a_component_learns_who_calls_only_if_the_configuration_grants_it() {
    let thief = |more: &str| TestDir::new(&format!("[sources.thief]\ncomponent = \"@guest:thief@\"\n{more}"));
    let ran = thief("").run(&["check"]);
    assert!(ran.code != Some(0) && ran.out.contains("add `grant = [\"caller\"]`"), "{}", ran.out);
    let dir = thief("grant = [\"caller\"]\nscan = \"off\"\n");
    let said = dir.run(&["check", "--details"]).out;
    assert!(said.contains("the caller's name, profile and session"), "{said}");
    for era in ERAS {
        let mut agent = Agent::start(&dir, era);
        let answer = agent.call("thief__meet", &json!({ "path": "" }), None);
        let learnt = answer["ok"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(learnt.contains(r#""principal":"local""#), "{learnt}");
        assert!(learnt.contains(r#""profile":"default""#), "{learnt}");
        agent.leave();
    }
    let dir = TestDir::new("[sources.greeter]\ncomponent = \"@guest:greeter@\"\ngrant = [\"caller\"]\n");
    assert_eq!(dir.run(&["call", "greeter__greet", "{}"]).out.trim(), "hello cli");
}
