#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod stopping;

use std::collections::BTreeSet;

use rmcp::model::{CallToolRequestParams, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, serve_client_with_lifecycle};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;

use super::*;
use crate::front::testing::{ECHO, Events, FakeBroker, meta, profile};

/// The agent's end of a stdio front.
struct Peer {
    input: WriteHalf<DuplexStream>,
    output: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    events: Events,
    fake: FakeBroker,
    served: JoinHandle<io::Result<()>>,
}

const MAX_LINE: usize = 4096;

fn front() -> (DuplexStream, FakeBroker, Events, JoinHandle<io::Result<()>>) {
    front_with_lines_of(MAX_LINE)
}

fn front_with_lines_of(max: usize) -> (DuplexStream, FakeBroker, Events, JoinHandle<io::Result<()>>) {
    let (fake, events) = FakeBroker::new();
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (input, output) = tokio::io::split(near);
    let served = tokio::spawn(serve(Arc::new(fake.clone()), profile(), input, output, max, std::future::pending()));
    (far, fake, events, served)
}

impl Peer {
    fn new() -> Self {
        Self::with_lines_of(MAX_LINE)
    }

    fn with_lines_of(max: usize) -> Self {
        let (far, fake, events, served) = front_with_lines_of(max);
        let (output, input) = tokio::io::split(far);
        Self { input, output: BufReader::new(output).lines(), events, fake, served }
    }

    async fn initialized(version: &str, capabilities: Value) -> Self {
        Self::new().initialize(version, capabilities).await
    }

    async fn initialize(self, version: &str, capabilities: Value) -> Self {
        let mut peer = self;
        let params = json!({ "protocolVersion": version, "capabilities": capabilities, "clientInfo": { "name": "t" } });
        let answer = peer.ask(0, "initialize", params).await;
        assert_eq!(answer["result"]["protocolVersion"], version);
        peer.events.expect("open default local t").await;
        peer.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        peer
    }

    async fn send(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn request(&mut self, id: impl Into<Value>, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params });
        self.send(&message.to_string()).await;
    }

    async fn line(&mut self) -> String {
        self.output.next_line().await.unwrap().expect("the front hung up")
    }

    async fn next(&mut self) -> Value {
        serde_json::from_str(&self.line().await).unwrap()
    }

    async fn ask(&mut self, id: impl Into<Value>, method: &str, params: Value) -> Value {
        let id = id.into();
        self.request(id.clone(), method, params).await;
        let answer = self.next().await;
        assert_eq!(answer["id"], id);
        answer
    }

    async fn close_input(self) -> Events {
        drop(self.input);
        drop(self.output);
        self.served.await.unwrap().unwrap();
        self.events
    }
}

#[tokio::test]
async fn a_legacy_conversation_keeps_every_byte() {
    let mut peer = Peer::initialized("2025-06-18", json!({})).await;
    peer.request("list", "tools/list", json!({})).await;
    let list = peer.line().await;
    assert!(list.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":"list","result":{{"tools":[{ECHO},"#)), "{list}");
    assert!(!list.contains("resultType"));
    let call =
        r#"{"jsonrpc":"2.0","id":1.0,"method":"tools/call","params":{"name":"echo","arguments":{"n":1e+2, "é":0}}}"#;
    peer.send(call).await;
    let result = r#"{ "content":[{"type":"text","text":"echoed"}], "x":{"n":1e+2, "é":0} }"#;
    assert_eq!(peer.line().await, format!(r#"{{"jsonrpc":"2.0","id":1.0,"result":{result}}}"#));
    assert_eq!(peer.ask(2, "ping", json!({})).await["result"], json!({}));
    peer.close_input().await.expect("close").await;
}

#[tokio::test]
async fn requests_before_and_after_initialize_follow_the_lifecycle() {
    let mut peer = Peer::new();
    assert_eq!(peer.ask(1, "tools/list", json!({})).await["error"]["code"], -32600);
    assert_eq!(peer.ask(2, "ping", json!({})).await["result"], json!({}));
    assert_eq!(peer.ask(3, "initialize", json!({})).await["error"]["code"], -32602);
    let hello = json!({ "protocolVersion": "1999-01-01", "capabilities": {} });
    let answer = peer.ask(4, "initialize", hello.clone()).await;
    assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(answer["result"]["serverInfo"]["name"], "portcullis");
    assert_eq!(answer["result"]["capabilities"], json!({ "tools": { "listChanged": false } }));
    assert_eq!(peer.ask(5, "initialize", hello).await["error"]["code"], -32600);
    assert_eq!(peer.ask(6, "resources/list", json!({})).await["result"], json!({ "resources": [] }));
    assert_eq!(peer.ask(6, "nonsense", json!({})).await["error"]["code"], -32601);
    assert_eq!(peer.ask(7, "tools/list", json!({ "cursor": "x" })).await["error"]["code"], -32602);
    peer.send(r#"{"jsonrpc":"2.0","id":8,"method":"tools/call"}"#).await;
    assert_eq!(peer.next().await["error"]["code"], -32602);
}

#[tokio::test]
async fn what_is_not_a_message_is_answered_with_an_error_and_the_connection_goes_on() {
    let mut peer = Peer::initialized("2025-11-25", json!({})).await;
    peer.send("{nonsense").await;
    assert_eq!(
        peer.next().await,
        json!({ "jsonrpc": "2.0", "id": null, "error": peer_error(-32700, "not valid JSON: key must be a string at line 1 column 2") })
    );
    peer.send("[]").await;
    assert_eq!(peer.next().await["error"]["code"], -32600);
    peer.send(r#"{"jsonrpc":"1.0","id":"mine","method":"ping"}"#).await;
    let answer = peer.next().await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("mine"), &json!(-32600)));
    peer.send(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":{}}}}}"#, "[".repeat(200))).await;
    assert!(peer.next().await["error"]["message"].as_str().unwrap().contains("nested"));
    peer.send(&"x".repeat(MAX_LINE + 1)).await;
    assert!(peer.next().await["error"]["message"].as_str().unwrap().contains("4097 bytes"));
    assert_eq!(peer.ask(9, "ping", json!({})).await["result"], json!({}));
}

fn peer_error(code: i64, message: &str) -> Value {
    json!({ "code": code, "message": message })
}

#[tokio::test]
async fn a_cancelled_call_is_dropped_and_not_answered() {
    let mut peer = Peer::initialized("2025-11-25", json!({})).await;
    peer.request(1, "tools/call", json!({ "name": "slow" })).await;
    peer.events.expect("slow").await;
    peer.request(1, "tools/call", json!({ "name": "echo" })).await;
    assert_eq!(peer.next().await["error"]["code"], -32600, "the id is in use");
    peer.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#).await;
    peer.events.expect("dropped").await;
    assert_eq!(peer.ask(2, "ping", json!({})).await["result"], json!({}));
    assert!(peer.ask(1, "tools/call", json!({ "name": "echo" })).await["result"].is_object());
}

#[tokio::test]
async fn requests_of_a_session_wait_for_their_turn_and_only_too_many_are_refused() {
    let mut peer = Peer::with_lines_of(40 << 20).initialize("2025-11-25", json!({})).await;
    for id in 1..=64 {
        peer.request(id, "tools/call", json!({ "name": "slow" })).await;
        peer.events.expect("slow").await;
    }
    // 960 more wait, but large ones only while they have 128 MiB together.
    let large = json!({ "name": "echo", "arguments": "x".repeat(33 << 20) });
    for id in 65..=67 {
        peer.request(id, "tools/call", large.clone()).await;
    }
    peer.request(68, "tools/call", large).await;
    peer.request("next", "ping", json!({})).await;
    let refused = peer.next().await;
    assert_eq!(refused["id"], 68, "it is not answered at once");
    assert_eq!(peer.next().await["id"], "next");
    assert!(refused["error"]["message"].as_str().unwrap().contains("too large to wait"), "{refused}");
    for id in 68..=1024 {
        peer.request(id, "tools/call", json!({ "name": "echo" })).await;
    }
    let refused = peer.ask(2000, "tools/call", json!({ "name": "echo" })).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("1024 requests"), "{refused}");
    // One that ends gives its turn to those that wait, one after the other.
    peer.fake.release.notify_one();
    peer.events.expect("released").await;
    let mut answered = BTreeSet::new();
    while answered.len() < 961 {
        let answer = peer.next().await;
        assert!(answer["result"].is_object(), "{answer}");
        answered.insert(answer["id"].as_i64().unwrap());
    }
    assert!(answered.range(65..).eq(&(65..=1024).collect::<BTreeSet<_>>()));
    assert!(peer.ask(2001, "tools/call", json!({ "name": "echo" })).await["result"].is_object());
}

#[tokio::test]
async fn answers_that_the_agent_does_not_read_have_a_limit_in_bytes() {
    const LINE: usize = 1 << 20;
    let mut peer = Peer::with_lines_of(LINE).initialize("2025-11-25", json!({})).await;
    let large = json!({ "name": "echo", "arguments": { "text": "x".repeat(LINE - 1024) } });
    for id in 1..=6 {
        peer.request(id, "tools/call", large.clone()).await;
    }
    // It is worked on after those.
    peer.request(7, "tools/call", json!({ "name": "slow" })).await;
    peer.events.expect("slow").await;
    let mut whole = 0;
    for _ in 1..=6 {
        let answer = peer.next().await;
        let dropped = &answer["error"]["data"]["code"];
        assert!(answer["result"].is_object() || dropped == "answer-dropped", "{answer}");
        whole += usize::from(answer["result"].is_object());
    }
    assert_eq!(whole, 4, "half of what eight of the longest lines take");
    assert!(peer.ask(8, "tools/call", large).await["result"].is_object(), "what was read leaves room");
}

#[tokio::test]
async fn progress_keeps_its_order_and_its_token() {
    let mut peer = Peer::initialized("2025-11-25", json!({})).await;
    peer.request(1, "tools/call", json!({ "name": "progress", "_meta": { "progressToken": "t" } })).await;
    for progress in 1..=3 {
        assert_eq!(peer.next().await["params"], json!({ "progress": progress, "progressToken": "t" }));
    }
    assert_eq!(peer.next().await["id"], 1);
}

#[tokio::test]
async fn a_question_reaches_the_person_and_the_answer_the_call() {
    let mut peer = Peer::initialized("2025-11-25", json!({ "elicitation": {} })).await;
    peer.request(1, "tools/call", json!({ "name": "ask" })).await;
    let question = peer.next().await;
    assert_eq!(question["method"], "elicitation/create");
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept" } });
    peer.send(&answer.to_string()).await;
    assert_eq!(peer.next().await["result"]["answer"], json!({ "action": "accept" }));

    // A refusal by the client, a withdrawn question, and an agent that has disconnected.
    peer.request(2, "tools/call", json!({ "name": "ask" })).await;
    let question = peer.next().await;
    let error = json!({ "jsonrpc": "2.0", "id": question["id"], "error": { "code": -32601, "message": "no" } });
    peer.send(&error.to_string()).await;
    assert_eq!(peer.next().await["error"], json!({ "code": -32601, "message": "no" }));

    peer.request(3, "tools/call", json!({ "name": "ask" })).await;
    let question = peer.next().await;
    peer.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#).await;
    let withdrawn = peer.next().await;
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);

    peer.request(4, "tools/call", json!({ "name": "ask" })).await;
    assert_eq!(peer.next().await["method"], "elicitation/create");
    tokio::io::AsyncWriteExt::shutdown(&mut peer.input).await.unwrap();
    let (mut last, mut lines) = (Value::Null, 0);
    while let Some(line) = peer.output.next_line().await.unwrap() {
        last = serde_json::from_str(&line).unwrap();
        lines += 1;
    }
    assert!(lines >= 1);
    assert!(last["error"]["message"].as_str().unwrap_or_default().contains("lost"), "{last}");
}

#[tokio::test]
async fn a_client_that_cannot_ask_is_not_asked() {
    let mut peer = Peer::initialized("2025-03-26", json!({ "elicitation": {} })).await;
    assert_eq!(peer.ask(1, "tools/call", json!({ "name": "ask" })).await["error"]["code"], -32011);
}

#[tokio::test]
async fn a_modern_conversation_needs_no_handshake() {
    let mut peer = Peer::new();
    let found = peer.ask(1, "server/discover", json!({ "_meta": meta(&json!({})) })).await;
    assert_eq!(found["result"]["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(found["result"]["resultType"], "complete");
    let list = peer.ask(2, "tools/list", json!({ "_meta": meta(&json!({})) })).await;
    peer.events.expect("open default local test/1").await;
    assert_eq!(
        (&list["result"]["resultType"], &list["result"]["ttlMs"], &list["result"]["cacheScope"]),
        (&json!("complete"), &json!(0), &json!("private"))
    );
    let call = json!({ "name": "echo", "_meta": meta(&json!({})) });
    assert_eq!(peer.ask(3, "tools/call", call).await["result"]["resultType"], "complete");
    let call = json!({ "name": "ask", "_meta": meta(&json!({ "elicitation": { "form": {} } })) });
    assert_eq!(peer.ask(4, "tools/call", call).await["result"]["resultType"], "input_required");
    // A client with other capabilities gets another session: what a source shows may depend on them.
    peer.events.expect("open default local test/1").await;
    assert_eq!(peer.ask(5, "tools/list", json!({})).await["error"]["code"], -32602);
    let mut other = meta(&json!({}));
    other["io.modelcontextprotocol/protocolVersion"] = json!("2031-01-01");
    let answer = peer.ask(6, "tools/list", json!({ "_meta": other })).await;
    assert_eq!(answer["error"]["code"], -32022);
    assert_eq!(answer["error"]["data"]["supported"], json!(["2026-07-28"]));
    peer.request(7, "tools/call", json!({ "name": "slow", "_meta": meta(&json!({})) })).await;
    peer.events.expect("slow").await;
    peer.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#).await;
    peer.events.expect("dropped").await;
    let again = json!({ "_meta": meta(&json!({})), "protocolVersion": "2025-11-25" });
    assert_eq!(peer.ask(8, "initialize", again).await["error"]["code"], -32601);
    peer.close_input().await.expect("close").await;
}

#[tokio::test]
async fn a_modern_session_that_has_ended_is_followed_by_another() {
    let mut peer = Peer::new();
    let call = |tool: &str| json!({ "name": tool, "_meta": meta(&json!({})) });
    assert!(peer.ask(1, "tools/call", call("end")).await["result"].is_object());
    peer.events.expect("open default local test/1").await;
    assert!(peer.ask(2, "tools/call", call("echo")).await["result"].is_object());
    peer.events.expect("open default local test/1").await;
    assert!(peer.ask(3, "tools/call", call("echo")).await["result"].is_object());
    peer.close_input().await.expect("close").await;
}

#[tokio::test]
async fn a_call_may_end_after_the_agent_closed_its_input() {
    let mut peer = Peer::initialized("2025-11-25", json!({})).await;
    peer.request(1, "tools/call", json!({ "name": "slow" })).await;
    peer.events.expect("slow").await;
    tokio::io::AsyncWriteExt::shutdown(&mut peer.input).await.unwrap();
    peer.fake.release.notify_one();
    assert_eq!(peer.next().await["id"], 1);
    peer.events.expect("released").await;
    peer.events.expect("close").await;
    peer.served.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_end_is_cut_with_an_error_and_the_session_closes() {
    let mut peer = Peer::initialized("2025-11-25", json!({})).await;
    peer.request(1, "tools/call", json!({ "name": "slow" })).await;
    peer.events.expect("slow").await;
    tokio::io::AsyncWriteExt::shutdown(&mut peer.input).await.unwrap();
    let answer = peer.next().await;
    assert_eq!((&answer["id"], &answer["error"]["data"]["code"]), (&json!(1), &json!("not-sent")), "{answer}");
    peer.events.expect("dropped").await;
    peer.events.expect("close").await;
    peer.served.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_gives_up_while_its_session_is_opened_is_noticed() {
    let mut peer = Peer::new();
    let stuck = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "stuck" } });
    peer.request(1, "initialize", stuck).await;
    peer.events.expect("open default local stuck").await;
    peer.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#).await;
    tokio::io::AsyncWriteExt::shutdown(&mut peer.input).await.unwrap();
    // The paused clock advances when all tasks wait.
    let noticed = tokio::time::timeout(DRAIN * 2, peer.events.expect("dropped")).await;
    assert!(noticed.is_ok(), "it is waited for for ever");
    peer.served.await.unwrap().unwrap();
}

#[tokio::test]
async fn what_is_sent_before_the_answer_to_the_first_request_is_answered_in_its_order() {
    let mut peer = Peer::new();
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t" } });
    peer.request(0, "initialize", hello).await;
    for id in 1..50 {
        peer.request(id, "ping", json!({})).await;
    }
    tokio::io::AsyncWriteExt::shutdown(&mut peer.input).await.unwrap();
    for id in 0..50 {
        assert_eq!(peer.next().await["id"], id);
    }
    peer.served.await.unwrap().unwrap();
}

#[tokio::test]
async fn rmcp_speaks_both_eras_with_it() {
    let modern = vec![ProtocolVersion::V_2026_07_28];
    for lifecycle in [
        ClientLifecycleMode::Initialize,
        ClientLifecycleMode::Discover { preferred_versions: modern.clone() },
        ClientLifecycleMode::Auto { preferred_versions: modern, legacy_version: None },
    ] {
        let (far, _fake, _events, served) = front();
        let (output, input) = tokio::io::split(far);
        let client = serve_client_with_lifecycle((), (output, input), lifecycle.clone()).await.unwrap();
        let tools = client.list_all_tools().await.unwrap();
        assert_eq!(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["echo", "slow"], "{lifecycle:?}");
        let result = client.call_tool(CallToolRequestParams::new("echo")).await.unwrap();
        assert_eq!(result.content.len(), 1);
        client.cancel().await.unwrap();
        served.await.unwrap().unwrap();
    }
}
