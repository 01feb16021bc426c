//! Floods, deletions and crashes that could damage the ledger.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::sized;
use crate::agent::{Agent, Era, Running};
use crate::test_dir::{DEADLINE, Ran, TestDir, finish, frames, until};
use crate::web::{Endpoint, Server};

const FILES: &str =
    "[sources.files]\ncommand = [\"@source@\", \"plain\"]\n@cell@\n[profiles.default]\napprove = \"never\"\n";

/// The number of callers with the token, who call while others flood the front without one.
const CALLERS: usize = 16;

#[test]
fn a_flood_without_a_token_makes_few_records_and_every_call_has_one_outcome() {
    let dir = TestDir::new(FILES);
    let mut server = Server::start(&dir);
    let (flooding, refused) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let floods: Vec<_> = (0..4)
        .map(|_| {
            let (endpoint, flooding, refused) = (server.endpoint.clone(), flooding.clone(), refused.clone());
            thread::spawn(move || flood(&endpoint, &flooding, &refused))
        })
        .collect();
    until("the flood is there", || refused.load(Ordering::SeqCst) > 0);
    let calls = sized(20, 500);
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let endpoint = server.endpoint.clone();
            thread::spawn(move || {
                let mut session = endpoint.session(&json!({}));
                for n in 0..calls {
                    let seen = session.call("files__add", &json!({ "a": n, "b": 0 })).unwrap();
                    assert_eq!(seen, json!({ "ok": n.to_string() }));
                }
            })
        })
        .collect();
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    until("the flood is large", || refused.load(Ordering::SeqCst) >= sized(2_000, 100_000));
    flooding.store(false, Ordering::SeqCst);
    floods.into_iter().for_each(|flood| flood.join().unwrap());
    server.running.signal(Signal::TERM);
    assert_eq!(server.running.ended().0, Some(0));

    let rejected = dir.records_of("front.rejected");
    let counted: u64 = rejected.iter().filter_map(|record| record["body"]["count"].as_u64()).sum();
    assert_eq!(counted, refused.load(Ordering::SeqCst) as u64, "none is forgotten");
    assert!(rejected.len() <= 130, "{} records of a flood", rejected.len());
    let mut outcomes: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for end in dir.records_of("tool.completed") {
        outcomes.entry(end["call"].to_string()).or_default().push(end["body"]["outcome"].clone());
    }
    let intents = dir.records_of("call.intent");
    assert_eq!(intents.len(), CALLERS * calls);
    for intent in intents {
        assert_eq!(outcomes.get(&intent["call"].to_string()), Some(&vec![json!("ok")]), "{intent}");
    }
    dir.assert_nothing_left();
}

/// Sends requests without a token, one after the other over one connection.
fn flood(endpoint: &Endpoint, flooding: &AtomicBool, refused: &AtomicUsize) {
    let mut stream = TcpStream::connect(&endpoint.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let request = format!("POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\n\r\n", endpoint.address);
    let mut buffer = [0; 4096];
    while flooding.load(Ordering::SeqCst) {
        stream.write_all(request.as_bytes()).unwrap();
        // The response fits one packet, and the next request is sent only after it.
        let read = stream.read(&mut buffer).unwrap();
        assert!(buffer[..read].starts_with(b"HTTP/1.1 401"), "{}", String::from_utf8_lossy(&buffer[..read]));
        refused.fetch_add(1, Ordering::SeqCst);
    }
}

/// For each way in which the ledger can be damaged: the refusal of calls, the exit code of `verify`, and the next
/// broker.
#[test]
fn a_ledger_that_is_deleted_moved_replaced_or_truncated_stops_calls_and_lost_records_are_detected() {
    type Harm = fn(&TestDir);
    let harms: [(&str, i32, Harm); 5] = [
        ("deleted", 1, |dir| fs::remove_file(dir.segment()).unwrap()),
        ("moved", 1, |dir| fs::rename(dir.segment(), dir.path("elsewhere")).unwrap()),
        ("replaced", 0, |dir| {
            let (path, bytes) = (dir.segment(), fs::read(dir.segment()).unwrap());
            fs::remove_file(&path).unwrap();
            fs::write(&path, bytes).unwrap();
        }),
        ("cut", 1, |dir| OpenOptions::new().write(true).open(dir.segment()).unwrap().set_len(0).unwrap()),
        ("overwritten", 1, |dir| {
            let last = *frames(&dir.segment()).last().unwrap();
            OpenOptions::new().write(true).open(dir.segment()).unwrap().write_all_at(&[0; 32], last).unwrap();
        }),
    ];
    // A replacement with the same bytes holds all records, so `verify` accepts it, although the broker refuses to write
    // it.
    for (what, code, harm) in harms {
        let dir = TestDir::new(FILES);
        let mut server = Server::start(&dir);
        let mut session = server.endpoint.session(&json!({}));
        assert_eq!(session.call("files__add", &json!({ "a": 1, "b": 2 })), Some(json!({ "ok": "3" })), "{what}");
        assert_eq!(server.endpoint.get("/healthz").0, "200");
        // Waits for the outcome, so that no record is still to be written.
        until("the outcome is there", || !dir.records_of("tool.completed").is_empty());
        harm(&dir);
        for _ in 0..2 {
            let refused = session.call("files__add", &json!({ "a": 1, "b": 2 })).unwrap();
            assert_eq!(refused["refused"], "ledger-unavailable", "{what}: {refused}");
        }
        let line = server.running.says("calls are refused");
        assert!(line.contains(".records") && line.contains("portcullis"), "{what}: {line}");
        let (status, page) = server.endpoint.get("/healthz");
        assert_eq!(status, "503", "{what}: {page}");
        assert!(page.contains("calls are refused") && !page.contains(".records"), "{what}: {page}");
        let verified = dir.run(&["audit", "verify"]);
        assert_eq!(verified.code, Some(code), "{what}: {}{}", verified.out, verified.err);
        server.running.signal(Signal::TERM);
        server.running.ended();
        // The next broker works, and `verify` still finds the damage.
        let mut agent = Agent::start(&dir, Era::Modern);
        assert_eq!(agent.call("files__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }), "{what}");
        agent.leave();
        let verified = dir.run(&["audit", "verify"]);
        assert_eq!(verified.code, Some(code), "{what}: {}{}", verified.out, verified.err);
    }
}

#[test]
fn calls_resume_when_a_moved_ledger_is_back() {
    let dir = TestDir::new(FILES);
    let mut agent = Agent::start(&dir, Era::Modern);
    assert_eq!(agent.call("files__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }));
    let path = dir.segment();
    fs::rename(&path, dir.path("elsewhere")).unwrap();
    let refused = agent.call("files__add", &json!({ "a": 1, "b": 2 }), None);
    assert_eq!(refused["refused"], "ledger-unavailable", "{refused}");
    let status = dir.run(&["status"]);
    assert_eq!(status.code, Some(1), "{}", status.out);
    assert!(status.out.contains("calls are refused") && status.out.contains(".records"), "{}", status.out);
    fs::rename(dir.path("elsewhere"), &path).unwrap();
    assert_eq!(agent.call("files__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }));
    let status = dir.run(&["status"]);
    assert_eq!(status.code, Some(0), "{}", status.out);
    agent.leave();
    dir.assert_nothing_left();
}

#[test]
fn the_next_broker_seals_the_chain_of_a_killed_one_and_a_later_truncation_is_detected() {
    let dir = TestDir::new(FILES);
    let mut chains = Vec::new();
    for _ in 0..2 {
        let mut agent = Agent::start(&dir, Era::Modern);
        assert_eq!(agent.call("files__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }));
        agent.running.signal(Signal::KILL);
        agent.running.ended();
        dir.await_no_process();
        chains.push(dir.records().last().unwrap()["chain"].as_str().unwrap().to_owned());
        assert_eq!(dir.run(&["audit", "verify"]).code, Some(2), "the end of its chain is missing");
    }
    let mut agent = Agent::start(&dir, Era::Modern);
    agent.list();
    // A second broker seals no chain again, and does not seal the chain of a running broker.
    let mut beside = Agent::start(&dir, Era::Modern);
    beside.list();
    dir.assert_good();
    [agent, beside].into_iter().for_each(Agent::leave);
    dir.assert_good();
    let sealed = dir.records_of("chain.sealed");
    let of: Vec<_> = sealed.iter().map(|record| record["body"]["chain"].as_str().unwrap()).collect();
    assert_eq!(of, chains);

    for chain in &chains {
        let path = dir.data("records").join(format!("{chain}-000001.records"));
        let last = *frames(&path).last().unwrap();
        OpenOptions::new().write(true).open(path).unwrap().set_len(last).unwrap();
    }
    let Ran { code, out, .. } = dir.run(&["audit", "verify"]);
    assert_eq!(code, Some(1), "{out}");
    for chain in &chains {
        assert!(out.lines().any(|line| line.contains("tampered with") && line.contains(chain)), "{chain}: {out}");
    }
}

#[test]
fn a_broker_that_is_stopped_during_startup_leaves_a_ledger_that_the_next_one_repairs() {
    let dir = TestDir::new(FILES);
    for round in 0..sized(6, 60) {
        let mut starting = Running::start(dir.command(&["serve", "--stdio"]));
        let before = chains(&dir);
        // The earliest moment that can be observed here: its chain has a lock file.
        until("a chain is begun", || chains(&dir) > before || round % 2 == 1);
        starting.signal(Signal::TERM);
        starting.ended();
    }
    dir.await_no_process();
    let mut agent = Agent::start(&dir, Era::Modern);
    assert_eq!(agent.call("files__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }));
    agent.leave();
    dir.assert_good();
}

/// Returns the number of chains that were begun.
fn chains(dir: &TestDir) -> usize {
    let entries = fs::read_dir(dir.data("chains")).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().extension().is_some_and(|kind| kind != "new")).count()
}

#[test]
fn a_full_disk_is_logged_once_shown_in_status_and_health_and_recovered_from() {
    let dir = TestDir::new(FILES);
    dir.run(&["tools"]);
    let mut server = Server::of(crate::storage::cramped(&dir, 512, "serve --listen 127.0.0.1:0"), &dir);
    let mut session = server.endpoint.session(&json!({}));
    let padding: BTreeMap<String, u8> = (0..60).map(|n| (format!("{n:060}"), 0)).collect();
    let call = |session: &mut crate::web::Session| {
        let arguments = json!({ "a": 1, "b": 2, "padding": padding });
        session.call("files__add", &arguments).unwrap()
    };
    let mut answered = 0;
    let refused = loop {
        let seen = call(&mut session);
        if seen["ok"].is_null() {
            break seen;
        }
        answered += 1;
        assert!(answered < 10_000, "the limit has no effect");
    };
    assert_eq!(refused["refused"], "ledger-unavailable", "{refused}");
    let line = server.running.says("calls are refused");
    assert!(line.contains(".records"), "{line}");
    let (status, page) = server.endpoint.get("/healthz");
    assert_eq!(status, "503", "{page}");
    assert!(page.contains("calls are refused: "), "{page}");
    assert_eq!(dir.run(&["status"]).code, Some(1));
    for _ in 0..50 {
        assert_eq!(call(&mut session)["refused"], "ledger-unavailable");
    }
    server.running.signal(Signal::TERM);
    let (_, err) = server.running.ended();
    let lines =
        err.lines().filter(|line| line.contains("calls are refused") || line.contains("record was lost")).count();
    assert!(lines <= 2, "{lines} lines: {err}");

    // With space again, the next broker records what the last one could not.
    let mut agent = Agent::start(&dir, Era::Modern);
    assert_eq!(agent.call("files__add", &json!({ "a": 1, "b": 2 }), None), json!({ "ok": "3" }));
    agent.leave();
    dir.assert_good();
}

#[test]
fn texts_of_a_policy_about_a_call_are_recorded_like_its_payload() {
    for (record, kept) in [("shape", false), ("full", true)] {
        let dir = TestDir::new(&format!(
            "[sources.files]\ncommand = [\"@source@\", \"plain\"]\n@cell@\n\
             [profiles.default]\napprove = \"never\"\nrecord = \"{record}\"\n\
             [[policies]]\nplugin = \"@guest:plain@\"\nsettings = {{ refuse = \"hunter2-refuse\", ask = \"hunter2-ask\" }}\n\
             [[policies]]\nplugin = \"@guest:plain@\"\non = [\"result\"]\nsettings = {{ refuse = \"hunter2-late\" }}\n"
        ));
        let mut agent = Agent::start(&dir, Era::Legacy);
        let denied = agent.call("files__echo", &json!({ "say": "hunter2-refuse" }), None);
        assert_eq!(denied["refused"], "plain-refused");
        assert!(denied["message"].as_str().unwrap().contains("hunter2-refuse"), "the agent reads it: {denied}");
        let asked = agent.send_call("files__echo", &json!({ "say": "hunter2-ask" }));
        let question = agent.next().unwrap();
        assert_eq!(question["method"], "elicitation/create", "{question}");
        assert!(question["params"]["message"].as_str().unwrap().contains("holds \"hunter2-ask\""), "{question}");
        let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": crate::agent::elicited(Some("once")) });
        agent.running.write(&answer.to_string());
        assert!(agent.answer(asked, None)["result"].is_object());
        let withheld = agent.call("files__echo", &json!({ "say": "hunter2-late" }), None);
        assert!(withheld["message"].as_str().unwrap().contains("hunter2-late"), "{withheld}");
        let failed = agent.call("files__echo", &json!({ "say": "please fail" }), None);
        assert_eq!(failed["refused"], "plugin-error");
        agent.leave();
        let of = |kind: &str| dir.records_of(kind).remove(0)["body"].clone();
        assert_eq!(of("call.denied")["code"], "plain-refused", "codes stay readable");
        let texts = [
            &of("call.denied")["message"],
            &of("call.asked")["reasons"][0],
            &of("call.intent")["verdicts"][0]["verdict"]["ask"],
        ];
        let completed = dir.records_of("tool.completed");
        let withheld = &completed.iter().find(|end| end["body"]["outcome"] == "withheld").unwrap()["body"]["withheld"];
        assert_eq!(withheld["code"], "plain-refused");
        assert!(of("plugin.failed")["cause"]["hash"].is_string(), "a plugin's own words");
        for text in texts.into_iter().chain([&withheld["message"]]) {
            assert!(text["hash"].as_str().is_some_and(|hash| hash.starts_with("blake3:")), "{text}");
            assert_eq!(text["body"].as_str().is_some_and(|body| body.contains("hunter2")), kept, "{text}");
            assert_eq!(text["shape"].is_null(), kept, "{text}");
        }
        let found = dir.run(&["audit", "tail", "-n", "1000", "--json"]).out.contains("hunter2");
        assert_eq!(found, kept, "record = {record}");
        assert_eq!(finish(dir.command(&["audit", "verify"])).code, Some(0));
    }
}
