//! Questions outside the agent's own channel: on the desktop, at a webhook's server, and answered over HTTP.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex, mpsc};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::agent::{Agent, Era, outcome};
use crate::test_dir::{DEADLINE, TestDir, until};
use crate::web::Server;

const KEY: &str = "a-key-that-is-long-enough-for-a-signature";

const CALC: &str = "[sources.calc]\ncomponent = \"builtin:calculator\"\n[profiles.default]\napprove = \"always\"\n\
                    [[approvals]]\nplugin = \"builtin:approval-memory\"\n";

/// A message as the webhook's server received it.
pub(crate) struct Received {
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// Starts a webhook's server that answers with these status codes in turn, and then with 204.
pub(crate) fn webhook(answers: Vec<u16>) -> (String, mpsc::Receiver<Received>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    (url, webhook_at(listener, answers))
}

/// Does the same, at an address of the caller's.
pub(crate) fn webhook_at(listener: TcpListener, answers: Vec<u16>) -> mpsc::Receiver<Received> {
    let (out, received) = mpsc::channel();
    let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (out, answers) = (out.clone(), Arc::clone(&answers));
            // A kept connection carries several messages.
            std::thread::spawn(move || {
                while let Some(message) = receive(&mut stream) {
                    let status = answers.lock().unwrap().pop_front();
                    let answer = format!("HTTP/1.1 {} x\r\nContent-Length: 0\r\n\r\n", status.unwrap_or(204));
                    // The sender may have gone.
                    if stream.get_mut().write_all(answer.as_bytes()).is_err() || out.send(message).is_err() {
                        return;
                    }
                }
            });
        }
    });
    received
}

fn receive(stream: &mut BufReader<std::net::TcpStream>) -> Option<Received> {
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_owned(), value.to_owned())),
            None if line.trim().is_empty() => break,
            None => {}
        }
    }
    let mut received = Received { headers, body: String::new() };
    let mut body = vec![0; received.header("content-length").parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    received.body = String::from_utf8_lossy(&body).into_owned();
    Some(received)
}

/// Checks what a receiver of Standard Webhooks checks.
fn assert_signed(message: &Received) {
    let (id, time) = (message.header("webhook-id"), message.header("webhook-timestamp"));
    let mut mac = Hmac::<Sha256>::new_from_slice(KEY.as_bytes()).unwrap();
    mac.update(format!("{id}.{time}.{}", message.body).as_bytes());
    let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    assert_eq!(message.header("webhook-signature"), expected);
}

#[test]
fn a_webhook_is_told_of_a_question_and_a_person_answers_it_with_a_token_of_their_own() {
    let (url, received) = webhook(vec![503]);
    let dir = TestDir::new(&format!(
        "[questions.webhook]\nurl = \"{url}\"\nsecret = \"{KEY}\"\n[serve.people.alice]\ntoken = \"alices\"\n{CALC}"
    ));
    let server = Server::start(&dir);
    let mut session = server.endpoint.session(&json!({}));
    let call = std::thread::spawn(move || session.call("calc__add", &json!({ "a": 1, "b": 2 })));

    // A message that was not accepted is sent again, under the same id. The time that is signed is that of the attempt.
    let refused = received.recv_timeout(DEADLINE).unwrap();
    let asked = received.recv_timeout(DEADLINE).unwrap();
    assert_eq!(refused.header("webhook-id"), asked.header("webhook-id"));
    assert_signed(&asked);
    let [first, second] = [&refused, &asked].map(|said| said.header("webhook-timestamp").parse::<u64>().unwrap());
    assert!(second > first, "{first} and {second}");
    assert_eq!(refused.json()["timestamp"], asked.json()["timestamp"]);
    let message = asked.json();
    assert_eq!((&message["type"], &message["data"]["tool"]), (&json!("question.asked"), &json!("calc__add")));
    assert!(message["data"]["arguments"].is_null(), "arguments leave the machine only if the configuration says so");
    let id = message["data"]["id"].as_str().unwrap();
    assert_eq!(asked.header("webhook-id"), format!("{id}-asked"));

    // The agent's own token answers nothing, and a person's token calls nothing.
    let path = format!("/approvals/{id}");
    assert_eq!(server.endpoint.get("/approvals").0, "401");
    assert_eq!(server.endpoint.post_to(&path, "{\"approve\":true}").0, "401");
    let alice = server.endpoint.with_token("alices");
    assert_eq!(alice.post_to("/mcp", "{}").0, "401");
    let (status, listed) = alice.get("/approvals");
    assert!(status == "200" && listed.contains(id), "{listed}");
    let (status, whole) = alice.get(&path);
    let whole: serde_json::Value = serde_json::from_str(whole.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(
        (status.as_str(), &whole["arguments"], &whole["cut"]),
        ("200", &json!({ "a": 1, "b": 2 }), &json!(false))
    );
    for (path, body, status) in [
        ("/approvals/nothing", "{\"approve\":true}", "404"),
        (&*path, "{\"approve\":true,\"scope\":\"ever\"}", "400"),
        (&path, "{\"approved\":true}", "400"),
        (&path, "{\"approve\":true,\"until\":\"18:00\"}", "400"),
        (&path, "{\"approve\":true,\"until\":\"2001-01-01T00:00:00Z\"}", "400"),
        (&path, "{\"approve\":true,\"until\":\"9999-01-01T00:00:00Z\"}", "400"),
        (&path, "{\"approve\":true,\"scope\":\"hour\"}", "200"),
        (&path, "{\"approve\":true}", "404"),
    ] {
        let (got, text) = alice.post_to(path, body);
        assert_eq!(got, status, "{body}: {text}");
    }
    assert_eq!(call.join().unwrap(), Some(json!({ "ok": "3" })));
    let answered = received.recv_timeout(DEADLINE).unwrap();
    assert_signed(&answered);
    let message = answered.json();
    assert_eq!(message["type"], "question.answered");
    assert_eq!((&message["data"]["approved"], &message["data"]["by"]), (&json!(true), &json!("person:alice")));
    server.running.end_by(rustix::process::Signal::TERM);
    assert_eq!(dir.records_of("call.answered")[0]["body"]["by"], "person:alice");
    assert!(dir.records_of("front.rejected").len() >= 2, "refused answers are recorded");
}

#[test]
fn questions_over_http_hide_nothing_and_act_on_no_terminal() {
    let dir = TestDir::new(&format!("[serve.people.alice]\ntoken = \"alices\"\n{CALC}"));
    let server = Server::start(&dir);
    let mut session = server.endpoint.session(&json!({}));
    let hidden = json!({ "a": 1, "b": 2, "note\u{202e}": "\u{9b}2J\u{200b}\u{e0041}" });
    let arguments = hidden.clone();
    let call = std::thread::spawn(move || session.call("calc__add", &arguments));
    let alice = server.endpoint.with_token("alices");
    let body = |path: &str| alice.get(path).1.split_once("\r\n\r\n").unwrap().1.to_owned();
    until("the question is listed", || body("/approvals").contains("calc__add"));
    let listed = body("/approvals");
    let id = serde_json::from_str::<Value>(&listed).unwrap()[0]["id"].as_str().unwrap().to_owned();
    let whole = body(&format!("/approvals/{id}"));
    let (status, _) = alice.post_to(&format!("/approvals/{id}"), "{\"approve\":false}");
    assert_eq!(status, "200");
    assert!(call.join().unwrap().is_some());
    for text in [&listed, &whole] {
        assert!(text.is_ascii(), "{text:?}");
        assert!(text.contains("\\u009b2J\\u200b\\udb40\\udc41") || text == &listed, "{text}");
    }
    assert_eq!(serde_json::from_str::<Value>(&whole).unwrap()["arguments"], hidden, "its value is the same");
}

#[test]
fn a_question_is_shown_on_the_desktop_and_its_text_is_only_text() {
    let dir = TestDir::new(&format!("[questions]\ndesktop = true\n{CALC}"));
    let shown = dir.path("shown");
    let notify = dir.path("notify-send");
    std::fs::write(&notify, format!("#!/bin/sh\nprintf '%s\\n' \"$@\" > '{}'\n", shown.display())).unwrap();
    std::fs::set_permissions(&notify, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = dir.command(&["serve", "--stdio"]);
    let path = format!("{}:{}", notify.parent().unwrap().display(), std::env::var("PATH").unwrap());
    command.env("PATH", path);
    let mut agent = Agent::of(command, Era::Legacy, json!({}));
    let id = agent.send_call("calc__add", &json!({ "a": 1, "b": 2 }));
    until("the notification", || std::fs::read_to_string(&shown).is_ok_and(|text| text.contains("--watch")));
    let text = std::fs::read_to_string(&shown).unwrap();
    assert!(text.contains("--\nMay calc__add be called?\n") && !text.contains('<'), "{text}");
    let question = agent.question();
    assert_eq!(dir.run(&["approvals", "approve", &question]).code, Some(0));
    assert_eq!(outcome(&agent.answer(id, None)), json!({ "ok": "3" }));
    agent.leave();
}

#[test]
fn what_a_webhook_or_a_person_lacks_is_an_error_that_says_the_way_out() {
    for (config, expected) in [
        ("[questions.webhook]\nurl = \"http://127.0.0.1:9/\"\nsecret = \"short\"\n", "openssl rand -hex 32"),
        ("[questions.webhook]\nurl = \"ftp://127.0.0.1/\"\nsecret = \"short\"\n", "https://hooks.example.com/"),
        ("[serve]\ntoken = \"same\"\n[serve.people.alice]\ntoken = \"same\"\n", "give each their own"),
        ("[serve]\ndangerous-no-token = true\n[serve.people.alice]\ntoken = \"a\"\n", "exclude each other"),
    ] {
        let dir = TestDir::new(&format!("{config}{CALC}"));
        let ran = dir.run(&["serve", "--listen", "127.0.0.1:0"]);
        assert!(ran.code == Some(1) && ran.err.contains(expected), "{config}: {:?} {}", ran.code, ran.err);
    }
}

#[test]
fn calls_that_wait_for_an_answer_count_among_its_uses() {
    let dir = TestDir::new(&format!("{CALC}settings.uses = 1\n"));
    let server = Server::start(&dir);
    let calls: Vec<_> = (0..3)
        .map(|_| {
            let endpoint = server.endpoint.clone();
            let call = json!({ "name": "calc__add", "arguments": { "a": 1, "b": 2 } });
            std::thread::spawn(move || outcome(&endpoint.modern("tools/call", call).unwrap()))
        })
        .collect();
    let open = || serde_json::from_str::<Value>(&dir.run(&["approvals", "--json"]).out).unwrap();
    until("three calls wait", || open()[0]["waiting"] == 3);
    let id = open()[0]["id"].as_str().unwrap().to_owned();
    let ran = dir.run(&["approvals", "approve", &id, "--scope", "session"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let outcomes: Vec<_> = calls.into_iter().map(|call| call.join().unwrap()).collect();
    let passed = outcomes.iter().filter(|outcome| **outcome == json!({ "ok": "3" })).count();
    assert_eq!(passed, 1, "{outcomes:?}");
    assert_eq!(server.running.end_by(rustix::process::Signal::TERM).0, Some(0));
}
