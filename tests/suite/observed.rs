//! Tests of what an operator sees of a running broker, and others do not.

use std::io::Write as _;
use std::net::TcpListener;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent::{Agent, ERAS, Era, Running};
use crate::questions::webhook_at;
use crate::test_dir::{TestDir, files, until};
use crate::web::Server;

#[test]
fn metrics_count_calls_and_need_the_metrics_token() {
    let dir = TestDir::new(
        "serve = { metrics-token = \"scrape\" }\n[profiles.default]\napprove = \"never\"\n\
         [sources.calc]\ncomponent = \"builtin:calculator\"\n[sources.old]\ncommand = [\"@source@\", \"echo\"]",
    );
    let server = Server::start(&dir);
    let mut session = server.endpoint.session(&json!({}));
    for _ in 0..3 {
        session.call("calc__add", &json!({ "a": 1, "b": 2 })).unwrap();
    }
    session.call("calc__divide", &json!({ "a": 1, "b": 0 })).unwrap();
    let (status, text) = server.endpoint.with_token("scrape").get("/metrics");
    assert_eq!(status, "200", "{text}");
    let count = "mcp_client_operation_duration_seconds_count{source=\"calc\",method=\"tools/call\"";
    for (series, value) in [
        (format!("{count},tool=\"calc__add\",outcome=\"ok\"}}"), 3),
        (format!("{count},tool=\"calc__divide\",outcome=\"tool_error\"}}"), 1),
        ("portcullis_source_state{source=\"old\",state=\"ready\"}".to_owned(), 1),
        ("portcullis_sessions".to_owned(), 1),
    ] {
        let line = format!("{series} {value}");
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
    }
    assert_eq!(server.endpoint.get("/metrics").0, "401");
    assert_eq!(server.endpoint.with_token("scrape").get("/mcp").0, "401");

    let brokers: Value = serde_json::from_str(&dir.run(&["status", "--json"]).out).unwrap();
    let calc = brokers[0]["sources"].as_array().unwrap().iter().find(|source| source["name"] == "calc").unwrap();
    assert_eq!(calc["calls"], json!({ "ok": 3, "tool_error": 1, "denied": 0 }), "{brokers}");
}

/// Returns the names of the receivers whose last delivery failed, with their kinds, as `status --json` shows them.
fn failing(dir: &TestDir) -> Vec<String> {
    let brokers: Value = serde_json::from_str(&dir.run(&["status", "--json"]).out).unwrap();
    let receivers = brokers[0]["receivers"].as_array().unwrap().iter();
    let failing = receivers.filter(|receiver| receiver["failing"] == true);
    failing.map(|of| format!("{} {}", of["kind"].as_str().unwrap(), of["name"].as_str().unwrap())).collect()
}

#[test]
fn what_does_not_take_what_it_is_sent_is_named_until_it_takes_it_again() {
    let nothing = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (collector, hook) = (nothing(), nothing());
    let dir = TestDir::new(&format!(
        "ledger.witnesses = [\"away/kept\"]\n[[sinks]]\notlp = \"http://{collector}\"\n[[sinks]]\nplugin = \
         \"builtin:jsonl\"\n[telemetry]\notlp = \"http://{collector}\"\nmetrics-interval = \"1s\"\n\
         [questions.webhook]\nurl = \"http://{hook}/q\"\nsecret = \"a-key-that-is-long-enough-for-a-signature\"\n\
         [serve]\nmetrics-token = \"scrape\"\n[sources.calc]\ncomponent = \"builtin:calculator\"\n\
         [profiles.default]\napprove = \"never\"\n\
         [[policies]]\nplugin = \"builtin:rules\"\nsettings = {{ ask = [\"calc__divide\"] }}\n"
    ));
    let server = Server::start(&dir);
    let (good, doctor) = (dir.run(&["status"]), dir.run(&["doctor"]).out);
    assert!(good.code == Some(0) && !good.out.contains("failed"), "{}{}", good.out, good.err);
    assert!(doctor.contains("all is well") && !doctor.contains("receivers"), "{doctor}");

    let mut session = server.endpoint.session(&json!({}));
    let mut calls = || (0..500).for_each(|_| drop(session.call("calc__add", &json!({ "a": 1, "b": 2 })).unwrap()));
    // A checkpoint is signed after a thousand records.
    calls();
    let mut asking = server.endpoint.session(&json!({}));
    let asked = std::thread::spawn(move || asking.call("calc__divide", &json!({ "a": 4, "b": 2 })));
    let kept = dir.path("away/kept").display().to_string();
    let all = [
        format!("spans http://{collector}/v1/traces"),
        format!("metrics http://{collector}/v1/metrics"),
        format!("questions http://{hook}/q"),
        format!("sink http://{collector}/v1/logs"),
        format!("witness {kept}"),
    ];
    until("all of them fail", || failing(&dir) == all);
    let status = dir.run(&["status"]);
    assert_eq!(status.code, Some(1), "{}", status.out);
    let doctor = dir.run(&["doctor"]).out;
    for name in &all {
        for said in [&status.out, &doctor] {
            let line = said.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name}: {said}"));
            assert!(line.contains("has failed since 20") && line.contains(" so far: "), "{line}");
        }
    }
    assert!(status.out.contains("No such file or directory"), "{}", status.out);
    assert!(!status.out.contains("jsonl") && doctor.contains("not all is well"), "{}{doctor}", status.out);
    let metrics = server.endpoint.with_token("scrape").get("/metrics").1;
    for (series, value) in [
        (format!("portcullis_receiver_failing{{kind=\"witness\",receiver=\"{kept}\"}}"), 1),
        ("portcullis_receiver_failing{kind=\"sink\",receiver=\"builtin:jsonl\"}".to_owned(), 0),
        (format!("portcullis_receiver_failures_total{{kind=\"witness\",receiver=\"{kept}\"}}"), 1),
    ] {
        let line = format!("{series} {value}");
        assert!(metrics.lines().any(|other| other == line), "{line} is not in\n{metrics}");
    }

    std::fs::create_dir(dir.path("away")).unwrap();
    let _collected = webhook_at(TcpListener::bind(collector).unwrap(), vec![]);
    let _told = webhook_at(TcpListener::bind(hook).unwrap(), vec![]);
    let questions: Value = serde_json::from_str(&dir.run(&["approvals", "list", "--json"]).out).unwrap();
    let id = questions[0]["id"].as_str().unwrap_or_else(|| panic!("{questions}"));
    assert_eq!(dir.run(&["approvals", "approve", id]).code, Some(0));
    assert_eq!(asked.join().unwrap(), Some(json!({ "ok": "2" })));
    calls();
    until("all of them work again", || failing(&dir).is_empty());
    let status = dir.run(&["status"]);
    assert_eq!(status.code, Some(0), "{}", status.out);
    for name in &all {
        let line = status.out.lines().find(|line| line.contains(name)).unwrap();
        assert!(line.contains("works again since 20") && line.contains("failed, the last ones from 20"), "{line}");
    }
    let doctor = dir.run(&["doctor"]).out;
    assert!(doctor.contains("all is well") && !doctor.contains("receivers"), "{doctor}");
}

#[test]
fn caller_context_reaches_only_the_sources_that_are_configured_for_it() {
    let source =
        |name: &str, context: &str| format!("[sources.{name}]\ncommand = [\"@source@\", \"modern\"]\n{context}\n");
    let dir = TestDir::new(&format!(
        "profiles.default.approve = \"never\"\n{}{}",
        source("trusted", "context = [\"user_context\", \"request_id\", \"traceparent\"]"),
        source("other", ""),
    ));
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let said = json!({
        "deps": { "user_context": { "user": "ann" }, "request_id": "r-1", "session_cookie": "c" },
        "traceparent": trace,
        "tracestate": "v=1",
        "example.com/secret": "s",
    });
    for era in ERAS {
        let mut agent = Agent::alone(&dir, era);
        let mut told = |source: &str| -> Value {
            let params = json!({ "name": format!("{source}__meta"), "arguments": {}, "_meta": said });
            let answer = agent.request("tools/call", params);
            let meta = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
            let mut meta: Value = serde_json::from_str(meta).unwrap();
            meta.as_object_mut().unwrap().retain(|key, _| key != "progressToken" && !key.starts_with("io.model"));
            meta
        };
        let deps = json!({ "user_context": { "user": "ann" }, "request_id": "r-1" });
        assert_eq!(told("trusted"), json!({ "deps": deps, "traceparent": trace }), "{era:?}");
        assert_eq!(told("other"), json!({}), "{era:?}");
    }
}

/// Any other id would be a text that no policy judges and no person reads.
#[test]
fn a_task_that_the_source_did_not_begin_is_not_named_to_it() {
    let dir =
        TestDir::new("profiles.default.approve = \"never\"\nsources.mirror.command = [\"@source@\", \"mirror\"]\n");
    let mut agent = Agent::alone(&dir, Era::Legacy);
    agent.list();
    let meta = json!({ "io.modelcontextprotocol/related-task": { "taskId": "a text for the source" } });
    let answer =
        agent.request("tools/call", json!({ "name": "mirror__mirror", "arguments": { "a": 1 }, "_meta": meta }));
    let got = &answer["result"]["echo"];
    assert_eq!(got["arguments"], json!({ "a": 1 }), "{answer}");
    assert!(!got.to_string().contains("a text for the source"), "{got}");
    agent.leave();
}

#[test]
fn a_source_gets_the_traceparent_of_its_own_call() {
    // Nothing listens at this address, which does not affect calls.
    let dir = TestDir::new(
        "telemetry.otlp = \"http://127.0.0.1:9\"\nprofiles.default.approve = \"never\"\n\
         [sources.new]\ncommand = [\"@source@\", \"modern\"]\ncontext = [\"traceparent\"]\n\
         [sources.other]\ncommand = [\"@source@\", \"modern\"]\n",
    );
    let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let mut agent = Agent::alone(&dir, Era::Modern);
    let mut told = |source: &str, flags: &str| -> Value {
        let meta = json!({ "traceparent": format!("00-{trace}-{span}-{flags}") });
        let params = json!({ "name": format!("{source}__meta"), "arguments": {}, "_meta": meta });
        let answer = agent.request("tools/call", params);
        let meta: Value = serde_json::from_str(answer["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
        meta["traceparent"].clone()
    };
    let place_of_call = told("new", "01");
    let parts: Vec<_> = place_of_call.as_str().unwrap().split('-').collect();
    assert!(parts.len() == 4 && parts[1] == trace && parts[2] != span && parts[3] == "01", "{place_of_call}");
    assert_eq!(told("new", "00"), format!("00-{trace}-{span}-00"), "an unsampled context passes unchanged");
    assert_eq!(told("other", "01"), Value::Null);
}

#[test]
fn an_agent_can_read_the_status_of_its_sources_if_its_profile_allows_it() {
    let dir = TestDir::new(
        "[profiles.default]\napprove = \"never\"\n\
         [profiles.watcher]\nsources = [\"calc\", \"gone\"]\ndeny = [\"calc__divide\"]\nstatus = true\n\
         [sources.calc]\ncomponent = \"builtin:calculator\"\n[sources.old]\ncommand = [\"@source@\", \"echo\"]\n\
         [sources.gone]\ncommand = [\"@dir@/absent\"]\nrequired = false\n",
    );
    for era in ERAS {
        let mut agent = Agent::under(&dir, "watcher", era);
        let listed = agent.request("resources/list", json!({}));
        assert_eq!(listed["result"]["resources"][0]["uri"], "portcullis://status", "{listed}");
        let read = agent.request("resources/read", json!({ "uri": "portcullis://status" }));
        let content = &read["result"]["contents"][0];
        assert_eq!(
            (&content["uri"], &content["mimeType"]),
            (&json!("portcullis://status"), &json!("application/json"))
        );
        assert!(!read.to_string().contains("absent"), "no causes: {read}");
        let state: Value = serde_json::from_str(content["text"].as_str().unwrap()).unwrap();
        let sources: Vec<_> = state["sources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|source| {
                (
                    source["name"].as_str().unwrap(),
                    source["connected"].as_bool().unwrap(),
                    source["tools_available"].as_u64().unwrap(),
                )
            })
            .collect();
        assert_eq!(sources, [("calc", true, 3), ("gone", false, 0)], "its own sources, and the tools that it sees");
        assert!(state["total_tools"] == 3 && state["last_discovery"].is_u64(), "{state}");
        agent.leave();

        let mut other = Agent::under(&dir, "default", era);
        assert_eq!(other.request("resources/list", json!({}))["result"]["resources"], json!([]));
        let read = other.request("resources/read", json!({ "uri": "portcullis://status" }));
        assert!(read["error"]["code"].is_i64(), "{read}");
        other.leave();
    }
}

#[test]
fn the_log_of_a_source_is_shown_with_control_characters_escaped() {
    let dir = TestDir::new(
        "[sources.loud]\ncommand = [\"@source@\", \"exit-now\"]\nrequired = false\n\
         [sources.far]\nurl = \"http://127.0.0.1:9/mcp\"\ndangerous-allow-private = true\nrequired = false\n[sources.quiet]\ncommand = [\"@source@\", \"echo\"]\n",
    );
    dir.run(&["tools"]);
    let ran = dir.run(&["logs", "loud", "--lines", "1"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let line = "fatal: no \\u{1b}[31mdatabase\\u{1b}[0m";
    assert!(ran.out.ends_with(&format!("Z {line}\n")) && ran.out.lines().count() == 1, "{}", ran.out);
    let ran = dir.run(&["logs", "loud", "--json"]);
    let first: Value = serde_json::from_str(ran.out.lines().next().unwrap()).unwrap();
    assert_eq!(first["text"], line, "{}", ran.out);
    assert!(first["at"].as_str().unwrap().ends_with('Z'), "{}", ran.out);

    let ran = dir.run(&["logs", "lout"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("no source \"lout\" is known here; the known ones are far, loud, quiet"), "{}", ran.err);
    assert!(dir.run(&["logs", "../token"]).err.contains("no source"));
    assert!(dir.run(&["logs", "far"]).err.contains("what it writes stays where it runs"));
    let ran = dir.run(&["logs", "quiet"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), ""), "{}", ran.err);
    assert!(ran.err.contains("has written nothing"), "{}", ran.err);

    // Lines that are written from now on are shown, also those in a new file.
    let following = Running::start(dir.command(&["logs", "loud", "--follow", "--lines", "0"]));
    let log = dir.data("logs/loud.log");
    let mut seen = String::new();
    for (round, line) in ["now", "after it was rotated"].into_iter().enumerate() {
        if round == 1 {
            std::fs::rename(&log, dir.data("logs/loud.log.1")).unwrap();
        }
        // A follower that starts late skips lines written before, so the line is written until it is shown.
        until("the line is shown", || {
            let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
            writeln!(file, "2026-01-01T00:00:00Z {line}").unwrap();
            seen.extend(following.out.try_iter());
            seen.contains(line)
        });
    }
}

#[test]
fn payloads_appear_in_no_log_at_any_level() {
    let dir = TestDir::new(
        "policies = [{ plugin = \"builtin:rules\", settings = { deny = [\"old__add\"] } }]\n\
         profiles.default.approve = \"never\"\n[sources.old]\ncommand = [\"@source@\", \"echo\"]\n\
         [sources.new]\ncommand = [\"@source@\", \"modern\"]\ncontext = [\"user_context\"]\n",
    );
    let mut command = dir.command(&["serve", "--listen", "127.0.0.1:0"]);
    // The compiler crates are silenced: they log what they compile, and nothing of any call.
    command.env("PORTCULLIS_LOG", "trace,cranelift_codegen=off,cranelift_frontend=off,regalloc2=off");
    let server = Server::of(command, &dir);
    let marked = "m4rked";
    let mut session = server.endpoint.session(&json!({}));
    for tool in ["old__echo", "new__echo", "old__add", "old__absent"] {
        let echoed = session.call(tool, &json!({ "text": marked })).unwrap();
        assert!(!tool.ends_with("echo") || echoed.to_string().contains(marked), "{tool}: {echoed}");
    }
    let meta = json!({ "deps": { "user_context": marked } });
    server.endpoint.modern("tools/call", json!({ "name": "new__meta", "arguments": {}, "_meta": meta })).unwrap();
    server.running.signal(Signal::TERM);
    let (_, log) = { server.running }.ended();
    assert!(log.contains("TRACE") && log.contains("request{"), "it logs: {log}");
    assert!(!log.contains(marked), "{}", log.lines().find(|line| line.contains(marked)).unwrap_or_default());
    for file in files(&dir.data("")) {
        let bytes = std::fs::read(&file).unwrap();
        let found = bytes.windows(marked.len()).any(|window| window == marked.as_bytes());
        assert!(!found, "a payload is in {}", file.display());
    }
}
