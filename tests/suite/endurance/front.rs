//! Connections, requests and bodies that would block the HTTP front for all other callers, and the shutdown of a front.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Barrier;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::sized;
use crate::agent::{Agent, ERAS, Era, outcome};
use crate::memory::resident;
use crate::test_dir::{TestDir, until};
use crate::web::{Endpoint, Server};

const CONFIG: &str = r#"
[serve.callers.ci]
token = "the-token-of-ci"
profile = "default"
[profiles.default]
approve = "never"
[profiles.asking]
approve = "always"
[sources.far]
command = ["@source@", "echo"]
required = true
timeout = "600s"
"#;

/// The timeout for an answer that nothing may delay: shorter than the time for which other requests hang meanwhile.
const PROMPT: Duration = Duration::from_secs(30);

/// Limits of the front: connections that wait without a request, and requests and streams that one caller may have
/// open.
const WAITING: usize = 512;
const REQUESTS: usize = 256;
const STREAMS: usize = 512;

/// A connection over which a test sends and receives bytes.
struct Raw(BufReader<TcpStream>);

impl Raw {
    fn open(endpoint: &Endpoint) -> Self {
        let stream = TcpStream::connect(&endpoint.address).unwrap();
        stream.set_read_timeout(Some(PROMPT)).unwrap();
        Self(BufReader::new(stream))
    }

    /// Sends bytes. The other side may have closed the connection.
    fn say(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.0.get_mut().write_all(bytes.as_ref());
    }

    /// Reads the head of a response. Returns the status line, and the whole head in lower case.
    fn head(&mut self) -> (String, String) {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(self.0.read_line(&mut head).expect("no answer"), 0, "closed after {head:?}");
        }
        (head.lines().next().unwrap().to_owned(), head.to_ascii_lowercase())
    }

    /// Requests `/healthz` and keeps the connection open.
    fn health(&mut self, endpoint: &Endpoint) {
        self.say(format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", endpoint.address));
        assert_eq!(self.head().0, "HTTP/1.1 200 OK");
        let mut body = [0; 3];
        self.0.read_exact(&mut body).unwrap();
        assert_eq!(&body, b"ok\n");
    }

    /// Announces a body of this many bytes and reads the response, which is `100 Continue` if the body may be sent.
    fn announce(&mut self, endpoint: &Endpoint, token: &str, bytes: usize) -> (String, String) {
        self.say(format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {bytes}\r\nExpect: 100-continue\r\n\r\n",
            endpoint.address
        ));
        self.head()
    }

    fn is_open(&mut self) -> bool {
        self.0.get_mut().set_nonblocking(true).unwrap();
        let read = self.0.get_mut().read(&mut [0]);
        self.0.get_mut().set_nonblocking(false).unwrap();
        matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }
}

fn echo(endpoint: &Endpoint) {
    let params = json!({ "name": "far__echo", "arguments": { "a": 1 } });
    let answer = endpoint.modern("tools/call", params).unwrap();
    assert_eq!(outcome(&answer)["ok"], json!({ "a": 1 }).to_string());
}

#[test]
fn idle_connections_do_not_block_other_callers() {
    let dir = TestDir::new(CONFIG);
    let server = Server::start(&dir);
    let endpoint = &server.endpoint;
    // Some send nothing, some half a head, and some stay idle after a request. None of them closes its connection.
    let count = sized(WAITING + 60, 10_000);
    let mut idle: Vec<Raw> = Vec::new();
    for at in 0..count {
        let mut raw = Raw::open(endpoint);
        match at % 3 {
            0 => {}
            1 => raw.say(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: "),
            _ => raw.health(endpoint),
        }
        idle.push(raw);
        if idle.len() > 2 * WAITING {
            idle.drain(..WAITING);
        }
    }
    let mut last = Raw::open(endpoint);
    last.health(endpoint);
    echo(endpoint);
    assert!(dir.run(&["status"]).out.contains("far"), "the operator is answered");
    assert!(last.is_open(), "room was made by others");
    assert!(!idle[0].is_open(), "the oldest made room");
}

#[test]
fn a_caller_that_uses_up_its_requests_does_not_affect_other_callers() {
    let dir = TestDir::new(CONFIG);
    let server = Server::start(&dir);
    let endpoint = &server.endpoint;
    let own = std::fs::read_to_string(dir.data("token")).unwrap().trim().to_owned();
    let invited = "HTTP/1.1 100 Continue";
    let mut open: Vec<Raw> = (0..REQUESTS).map(|_| Raw::open(endpoint)).collect();
    for raw in &mut open {
        assert_eq!(raw.announce(endpoint, &own, 10).0, invited);
    }
    let (status, head) = Raw::open(endpoint).announce(endpoint, &own, 10);
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
    assert!(head.contains("retry-after: 1"), "{head}");
    // Other callers are not affected.
    Raw::open(endpoint).health(endpoint);
    echo(&endpoint.with_token("the-token-of-ci"));
    drop(open);
    until("the share is free again", || Raw::open(endpoint).announce(endpoint, &own, 10).0 == invited);
}

#[test]
fn streams_do_not_count_against_requests() {
    let dir = TestDir::new(CONFIG);
    let server = Server::start(&dir);
    let endpoint = &server.endpoint;
    // One session may have at most 64 calls in flight; other capabilities make another session.
    let listen = |at: usize| {
        let capabilities = json!({ "experimental": { "number": at / 64 } });
        let wants = json!({ "notifications": { "toolsListChanged": true } });
        let mut reply = endpoint.say_modern(&capabilities, Some(1), "subscriptions/listen", wants).unwrap();
        assert_eq!(reply.next().unwrap()["method"], "notifications/subscriptions/acknowledged");
        reply
    };
    let streams: Vec<_> = (0..STREAMS + 20).map(listen).collect();
    echo(endpoint);
    Raw::open(endpoint).health(endpoint);
    // Streams over the limit for streams count as requests.
    let own = std::fs::read_to_string(dir.data("token")).unwrap().trim().to_owned();
    let mut open: Vec<Raw> = (0..REQUESTS - 20).map(|_| Raw::open(endpoint)).collect();
    for raw in &mut open {
        assert_eq!(raw.announce(endpoint, &own, 10).0, "HTTP/1.1 100 Continue");
    }
    assert_eq!(Raw::open(endpoint).announce(endpoint, &own, 10).0, "HTTP/1.1 503 Service Unavailable");
    drop(streams);
}

#[test]
fn large_bodies_wait_for_memory_and_small_ones_do_not() {
    let dir = TestDir::new(&format!("[broker]\nmax-message = \"1MiB\"\n{CONFIG}"));
    let server = Server::start(&dir);
    let endpoint = &server.endpoint;
    let own = std::fs::read_to_string(dir.data("token")).unwrap().trim().to_owned();
    // The source runs before anything waits.
    echo(endpoint);
    let [mut first, mut second, mut third] = [(); 3].map(|()| Raw::open(endpoint));
    for raw in [&mut first, &mut second] {
        assert_eq!(raw.announce(endpoint, &own, 1 << 20).0, "HTTP/1.1 100 Continue");
    }
    // The third is answered when it has waited for too long. Meanwhile all others are served.
    let waiting = std::thread::spawn({
        let (endpoint, own) = (endpoint.clone(), own.clone());
        move || match third.announce(&endpoint, &own, 1 << 20) {
            // The broker reads the rest of the body, so that a sender that does not wait for `100 Continue` gets the
            // response.
            (status, _) if status.contains("100") => third.head(),
            refused => refused,
        }
    });
    echo(endpoint);
    let mut other = Raw::open(endpoint);
    assert_eq!(other.announce(endpoint, "the-token-of-ci", 1 << 20).0, "HTTP/1.1 100 Continue");
    assert!(!waiting.is_finished());
    let (status, head) = waiting.join().unwrap();
    assert!(status.contains("503") && head.contains("retry-after: 1"), "{head}");
    drop((first, second));
    until("there is room again", || Raw::open(endpoint).announce(endpoint, &own, 1 << 20).0 == "HTTP/1.1 100 Continue");
}

/// The largest message of the memory test, in bytes; the memory budget for bodies that follows from it; and the memory
/// that the rest of the broker takes meanwhile.
const LARGEST: usize = 8 << 20;
const BUDGET: usize = 4 * LARGEST;
const REST: usize = 24 << 20;

#[test]
fn the_memory_of_large_bodies_is_bounded_and_released() {
    let dir = TestDir::new(&format!("[broker]\nmax-message = \"8MiB\"\n{CONFIG}"));
    let server = Server::start(&dir);
    let (endpoint, pid) = (&server.endpoint, server.running.pid());
    let own = std::fs::read_to_string(dir.data("token")).unwrap().trim().to_owned();
    echo(endpoint);
    let (before, _) = resident(pid);
    let count = 100;
    let [sent, go] = [(); 2].map(|()| Barrier::new(count + 1));
    let most = std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                let mut raw = Raw::open(endpoint);
                raw.say(format!(
                    "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {own}\r\nContent-Type: application/json\r\n\
                     Content-Length: {LARGEST}\r\n\r\n",
                    endpoint.address
                ));
                raw.say(vec![b' '; LARGEST - 1]);
                sent.wait();
                go.wait();
                raw.say(b" ");
                let (status, _) = raw.head();
                assert!(status.contains(" 400 ") || status.contains(" 503 "), "{status}");
            });
        }
        // All have sent all but their last byte: bodies within the budget are held, and the rest was read and dropped.
        sent.wait();
        let (_, most) = resident(pid);
        go.wait();
        most
    });
    assert!(most <= before + BUDGET + REST, "{most} bytes, from {before}");
    echo(endpoint);
    until("the memory is given back", || resident(pid).0 <= before + REST);
}

/// Returns the response to a call that hangs when the broker is shut down.
fn cut_over_stdio(dir: &TestDir, era: Era, by_signal: bool) -> Value {
    let mut agent = Agent::alone(dir, era);
    agent.list();
    let hanging = agent.send_call("far__hang", &json!({}));
    until("the source has the call", || dir.records_of("call.intent").len() == 1);
    if by_signal {
        agent.running.signal(Signal::TERM);
    } else {
        agent.running.close_input();
    }
    let answer = agent.answer(hanging, None);
    assert_eq!(agent.running.ended().0, Some(0));
    answer
}

#[test]
fn a_call_cut_off_by_shutdown_is_answered_with_its_outcome_over_stdio() {
    for era in ERAS {
        for by_signal in [true, false] {
            let dir = TestDir::new(CONFIG);
            let answer = cut_over_stdio(&dir, era, by_signal);
            assert_eq!(answer["error"]["data"]["code"], "outcome-unknown", "{era:?} {by_signal}: {answer}");
            assert!(answer["error"]["message"].as_str().unwrap().contains("the broker stopped"), "{answer}");
            assert_eq!(dir.records_of("tool.completed")[0]["body"]["outcome"], "unknown");
            dir.assert_nothing_left();
        }
    }
}

#[test]
fn a_call_that_waits_for_its_turn_at_shutdown_is_answered_as_its_record_says() {
    for era in ERAS {
        let dir = TestDir::new(&format!("{CONFIG}concurrency = 1\n"));
        let mut agent = Agent::alone(&dir, era);
        agent.list();
        let hanging = agent.send_call("far__hang", &json!({}));
        until("the source has the call", || dir.records_of("call.intent").len() == 1);
        let waiting = agent.send_call("far__echo", &json!({}));
        until("the second call waits", || dir.records_of("call.intent").len() == 2);
        agent.running.signal(Signal::TERM);
        let mut answers = [agent.next().unwrap(), agent.next().unwrap()];
        answers.sort_by_key(|answer| answer["id"].as_u64());
        for (answer, (id, expected)) in answers.iter().zip([(hanging, "outcome-unknown"), (waiting, "not-sent")]) {
            assert_eq!((&answer["id"], &answer["error"]["data"]["code"]), (&json!(id), &json!(expected)), "{answer}");
        }
        assert_eq!(agent.running.ended().0, Some(0));
        let mut outcomes: Vec<_> =
            dir.records_of("tool.completed").iter().map(|record| record["body"]["outcome"].clone()).collect();
        outcomes.sort_by_key(Value::to_string);
        assert_eq!(outcomes, ["not-sent", "unknown"]);
        dir.assert_nothing_left();
    }
}

#[test]
fn a_call_that_waits_for_approval_at_shutdown_is_answered_as_not_sent() {
    let dir = TestDir::new(CONFIG);
    let mut agent = Agent::of(dir.command(&["serve", "--stdio", "--profile", "asking"]), Era::Legacy, json!({}));
    let waiting = agent.send_call("far__echo", &json!({ "a": 1 }));
    agent.question();
    agent.running.signal(Signal::TERM);
    let answer = agent.answer(waiting, None);
    assert_eq!(answer["error"]["data"]["code"], "not-sent", "{answer}");
    assert_eq!(agent.running.ended().0, Some(0));
    dir.assert_nothing_left();
}

#[test]
fn a_call_cut_off_by_shutdown_is_answered_with_its_outcome_over_http() {
    let dir = TestDir::new(CONFIG);
    let mut server = Server::start(&dir);
    let mut session = server.endpoint.session(&json!({}));
    let endpoint = server.endpoint.clone();
    let modern = std::thread::spawn(move || endpoint.modern("tools/call", json!({ "name": "far__hang" })));
    let legacy = std::thread::spawn(move || session.send("tools/call", json!({ "name": "far__hang" }))?.answer());
    until("the source has both calls", || dir.records_of("call.intent").len() == 2);
    server.running.signal(Signal::TERM);
    for answer in [modern, legacy].map(|waiting| waiting.join().unwrap()) {
        let answer = answer.expect("the connection was dropped without an answer");
        assert_eq!(answer["error"]["data"]["code"], "outcome-unknown", "{answer}");
    }
    assert_eq!(server.running.ended().0, Some(0));
    dir.assert_nothing_left();
}

#[test]
fn a_subscription_does_not_delay_shutdown_and_ends_with_a_result() {
    let dir = TestDir::new(CONFIG);
    let mut server = Server::start(&dir);
    let wants = json!({ "notifications": { "toolsListChanged": true } });
    let mut stream = server.endpoint.send_modern("subscriptions/listen", wants).unwrap();
    assert_eq!(stream.next().unwrap()["method"], "notifications/subscriptions/acknowledged");
    server.running.signal(Signal::TERM);
    let last = stream.answer().unwrap();
    assert!(last["result"].is_object(), "{last}");
    assert_eq!(server.running.ended().0, Some(0));
}

#[test]
fn sighup_reloads_and_does_not_end_a_broker() {
    let dir = TestDir::new(CONFIG);
    let server = Server::start(&dir);
    for _ in 0..2 {
        server.running.signal(Signal::HUP);
        server.running.says("the configuration is reloaded: nothing is different");
    }
    echo(&server.endpoint);
    let mut agent = Agent::alone(&dir, Era::Modern);
    agent.list();
    agent.running.signal(Signal::HUP);
    agent.running.says("the configuration is reloaded");
    assert_eq!(agent.call("far__echo", &json!({ "a": 1 }), None)["ok"], json!({ "a": 1 }).to_string());
    agent.leave();
}

#[test]
fn answers_that_a_caller_does_not_read_have_a_limit_and_do_not_affect_other_callers() {
    let dir = TestDir::new(CONFIG);
    let server = Server::start(&dir);
    let endpoint = &server.endpoint;
    let big = || endpoint.send_modern("tools/call", json!({ "name": "far__big", "arguments": { "bytes": 16 << 20 } }));
    // The head of an answer is read once its call has ended, and nothing of the rest.
    let unread: Vec<_> = (0..24).map(|_| big().unwrap()).collect();
    echo(&endpoint.with_token("the-token-of-ci"));
    let read: Vec<_> = unread.into_iter().map(|mut reply| outcome(&reply.answer().unwrap())).collect();
    let dropped = read.iter().filter(|answer| answer["refused"] == "answer-dropped").count();
    let whole = read.iter().filter(|answer| answer["ok"].as_str().is_some_and(|text| text.len() == 16 << 20)).count();
    assert_eq!((whole, dropped), (15, 9), "as many are kept as fit into 256 MiB");
    assert!(outcome(&big().unwrap().answer().unwrap())["ok"].is_string(), "what was read leaves room");
}
