#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod limits;
mod questions;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Mutex as AsyncMutex;

use std::sync::atomic::Ordering;

use super::*;
use crate::call::SessionId;
use crate::protocol::{Answer, Era, Request};
use crate::source::ProgressToken;
use crate::source::testing::{RecordingClient, no_client, silent};
use crate::source::transport::ReceivedMessage;
use crate::source::transport::TransportError;

/// A transport whose other end is the test.
struct FakeTransport {
    out: mpsc::Sender<Value>,
    source: AsyncMutex<mpsc::Receiver<Result<Message, TransportError>>>,
}

#[async_trait::async_trait]
impl Transport for FakeTransport {
    async fn send(&self, message: &Message) -> Result<(), TransportError> {
        let value = serde_json::from_slice(&message.to_line()).unwrap();
        self.out.send(value).await.map_err(|_| TransportError::Closed("gone".into()))
    }
    async fn receive(&self) -> Option<Result<ReceivedMessage, TransportError>> {
        self.source.lock().await.recv().await.map(|received| received.map(ReceivedMessage::from))
    }
    async fn close(&self) {}
    fn exit_reason(&self) -> Option<Cause> {
        Some("it died".into())
    }
}

/// The source's end of the wire.
struct Far {
    heard: mpsc::Receiver<Value>,
    say: mpsc::Sender<Result<Message, TransportError>>,
}

impl Far {
    async fn hear(&mut self, method: &str) -> Value {
        let message = self.heard.recv().await.unwrap();
        assert_eq!(message["method"], method, "{message}");
        message
    }

    async fn say(&self, message: Value) {
        self.say.send(Ok(Message::parse(message.to_string()).unwrap())).await.unwrap();
    }

    async fn answer(&self, request: &Value, result: Value) {
        self.say(json!({ "jsonrpc": "2.0", "id": request["id"], "result": result })).await;
    }

    async fn refuse(&self, request: &Value) {
        self.say(json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "code": -32601, "message": "no" } })).await;
    }
}

fn fake_transport() -> (Arc<dyn Transport>, Far) {
    let (out, heard) = mpsc::channel(16);
    let (say, source) = mpsc::channel(16);
    (Arc::new(FakeTransport { out, source: AsyncMutex::new(source) }), Far { heard, say })
}

fn initialized(version: &str) -> Value {
    json!({ "protocolVersion": version, "capabilities": { "tools": {} }, "serverInfo": { "name": "far" } })
}

/// Returns the parameters of a shared connection.
fn config() -> McpConnectionConfig {
    let source = "far".parse().unwrap();
    McpConnectionConfig {
        source,
        era_choice: EraChoice::ModernFirst,
        capabilities: Json::empty_object(),
        context: ["x", "a", "vendor/y"].map(str::to_owned).into(),
        client: None,
        subscribers: Arc::default(),
    }
}

/// Opens a legacy link.
async fn linked() -> (Arc<McpConnection>, Far) {
    let (transport, mut far) = fake_transport();
    let open = McpConnection::open(transport, HandshakeDeadlines::default(), config());
    let serve = async {
        let probe = far.hear("server/discover").await;
        far.refuse(&probe).await;
        let request = far.hear("initialize").await;
        assert_eq!(request["params"]["capabilities"], json!({}), "a shared connection declares nothing");
        far.answer(&request, initialized("2024-11-05")).await;
        far.hear("notifications/initialized").await;
        let list = far.hear("tools/list").await;
        far.answer(&list, json!({ "tools": [{ "name": "a" }], "nextCursor": "2" })).await;
        let list = far.hear("tools/list").await;
        assert_eq!(list["params"], json!({ "cursor": "2" }));
        far.answer(&list, json!({ "tools": [{ "name": "b" }] })).await;
    };
    let (opened, ()) = tokio::join!(open, serve);
    let (link, discovery) = opened.unwrap();
    assert_eq!((discovery.tools.items.len(), discovery.protocol.as_str()), (2, "2024-11-05"));
    (Arc::new(link), far)
}

/// A session whose agent answers each request with its method, or never.
struct Agent {
    session: SessionId,
    answers: bool,
}

impl Agent {
    fn answering() -> Self {
        Self { session: SessionId::new(), answers: true }
    }

    fn thinking() -> Self {
        Self { answers: false, ..Self::answering() }
    }
}

impl SourceClient for Agent {
    fn session(&self) -> Option<&SessionId> {
        Some(&self.session)
    }
    fn capabilities(&self) -> Json {
        Json::empty_object()
    }
    fn log_level(&self) -> Option<Json> {
        None
    }
    fn notify<'a>(&'a self, _: &'a str, _: Notification) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
    fn request<'a>(&'a self, _: &'a str, request: Request) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            if !self.answers {
                std::future::pending::<()>().await;
            }
            Answer::Result(Json::of(&json!({ "of the session": request.method.to_string() })))
        })
    }
}

/// Opens a link that one session owns, so that the source may send requests.
async fn owned(client: &Arc<dyn SourceClient>) -> (McpConnection, Far) {
    let (transport, mut far) = fake_transport();
    let client = Some(Arc::downgrade(client));
    let config = McpConnectionConfig { capabilities: Json::of(&json!({ "elicitation": {} })), client, ..config() };
    let serve = async {
        let request = far.hear("initialize").await;
        far.answer(&request, initialized("2025-06-18")).await;
        far.hear("notifications/initialized").await;
        let list = far.hear("tools/list").await;
        far.answer(&list, json!({ "tools": [] })).await;
    };
    let deadlines = HandshakeDeadlines { probe: None, ..HandshakeDeadlines::default() };
    let (opened, ()) = tokio::join!(McpConnection::open(transport, deadlines, config), serve);
    (opened.unwrap().0, far)
}

fn call(link: &Arc<McpConnection>, params: &str) -> JoinHandle<Outcome> {
    let (link, params) = (Arc::clone(link), Json::parse(params.to_owned()).unwrap());
    tokio::spawn(async move {
        link.call(
            &crate::protocol::Method::ToolsCall,
            &params,
            &no_client(),
            silent(),
            CallDeadline::of(Duration::from_secs(60)),
        )
        .await
    })
}

#[tokio::test]
async fn an_unknown_revision_is_refused_naming_both() {
    let (transport, mut far) = fake_transport();
    let serve = async {
        let request = far.hear("initialize").await;
        far.answer(&request, initialized("1999-01-01")).await;
    };
    let (opened, ()) = tokio::join!(
        McpConnection::open(transport, HandshakeDeadlines { probe: None, ..HandshakeDeadlines::default() }, config()),
        serve
    );
    let why = opened.err().unwrap().to_string();
    assert!(why.contains("1999-01-01") && why.contains("2025-11-25"), "{why}");
}

#[tokio::test]
async fn a_list_that_repeats_its_cursor_is_refused() {
    let (link, mut far) = linked().await;
    let serve = async {
        for _ in 0..2 {
            let list = far.hear("tools/list").await;
            far.answer(&list, json!({ "tools": [], "nextCursor": "again" })).await;
        }
    };
    let (listed, ()) = tokio::join!(link.discover(), serve);
    assert!(listed.unwrap_err().to_string().contains("never ends"));
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_to_the_probe_counts_when_initialize_is_refused() {
    let (transport, mut far) = fake_transport();
    let serve = async {
        let probe = far.hear("server/discover").await;
        let request = far.hear("initialize").await;
        far.answer(&probe, json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } })).await;
        far.refuse(&request).await;
        let list = far.hear("tools/list").await;
        let meta = &list["params"]["_meta"];
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        far.answer(&list, json!({ "tools": [] })).await;
    };
    let (opened, ()) = tokio::join!(McpConnection::open(transport, HandshakeDeadlines::default(), config()), serve);
    assert!(opened.unwrap().0.is_modern());
}

#[tokio::test]
async fn wrong_and_repeated_ids_change_nothing() {
    let (link, mut far) = linked().await;
    let waiting = call(&link, r#"{"name":"a"}"#);
    let request = far.hear("tools/call").await;
    far.say(json!({ "jsonrpc": "2.0", "id": 9999, "result": "wrong" })).await;
    far.say(json!({ "jsonrpc": "2.0", "id": request["id"].to_string(), "result": "a string" })).await;
    far.answer(&request, json!("right")).await;
    far.answer(&request, json!("again")).await;
    assert!(matches!(waiting.await.unwrap(), Outcome::Answered(Answer::Result(r)) if r.as_str() == r#""right""#));
    let waiting = call(&link, r#"{"name":"a"}"#);
    let request = far.hear("tools/call").await;
    far.answer(&request, json!("next")).await;
    assert!(matches!(waiting.await.unwrap(), Outcome::Answered(_)));
    assert_eq!(link.shared.strays.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_ping_of_the_source_is_answered_and_its_request_on_a_shared_connection_is_refused() {
    let (_link, mut far) = linked().await;
    far.say(json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" })).await;
    assert_eq!(far.heard.recv().await.unwrap(), json!({ "jsonrpc": "2.0", "id": "p", "result": {} }));
    far.say(json!({ "jsonrpc": "2.0", "id": "s", "method": "sampling/createMessage", "params": {} })).await;
    assert_eq!(far.heard.recv().await.unwrap()["error"]["code"], -32601);
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_and_frees_its_slot() {
    let (link, mut far) = linked().await;
    let waiting = call(&link, r#"{"name":"a"}"#);
    let request = far.hear("tools/call").await;
    waiting.abort();
    let cancelled = far.hear("notifications/cancelled").await;
    assert_eq!(cancelled["params"]["requestId"], request["id"]);
    assert!(link.shared.pending().requests.is_empty());
}

#[tokio::test]
async fn the_end_of_the_connection_makes_every_call_unknown() {
    let (link, mut far) = linked().await;
    let waiting = call(&link, r#"{"name":"a"}"#);
    far.hear("tools/call").await;
    drop(far.say);
    assert!(matches!(waiting.await.unwrap(), Outcome::Unknown(why) if why == "it died".into()));
    assert!(!link.is_open());
    assert!(matches!(call(&link, "{}").await.unwrap(), Outcome::NotSent(why) if why == "it died".into()));
}

#[test]
fn meta_is_spliced_and_all_else_keeps_its_bytes() {
    let params = Json::parse(
        &br#"{ "name":"a", "n": 1.0,"_meta":{"x":1e2,"progressToken":7,"io.modelcontextprotocol/logLevel":"debug","io.modelcontextprotocol/related-task":{"taskId":"t"}} }"#[..],
    )
    .unwrap();
    let context = ["x".to_owned(), "a".to_owned()];
    let facts = |era| RequestFacts { context: &context, ..RequestFacts::of_broker(era) };
    let legacy = meta::with_facts(&params, &facts(Era::Legacy), None);
    assert_eq!(
        legacy.as_str(),
        r#"{ "name":"a", "n": 1.0,"_meta":{"x":1e2,"io.modelcontextprotocol/related-task":{"taskId":"t"}} }"#
    );
    let modern = meta::with_facts(&params, &facts(Era::Modern), None);
    assert!(
        modern.as_str().starts_with(
            r#"{ "name":"a", "n": 1.0,"_meta":{"x":1e2,"io.modelcontextprotocol/related-task":{"taskId":"t"},"io.modelcontextprotocol/protocolVersion":"2026-07-28","#
        ),
        "{}",
        modern.as_str()
    );
    assert!(modern.as_str().ends_with(r#""io.modelcontextprotocol/logLevel":"debug"} }"#), "{}", modern.as_str());
    let relayed = meta::with_facts(&Json::empty_object(), &RequestFacts::of_broker(Era::Legacy), Some(5));
    assert_eq!(relayed.as_str(), r#"{"_meta":{"progressToken":5}}"#);
    let untouched = Json::parse(&br#"{"_meta":{"a":1}, "b":2}"#[..]).unwrap();
    assert_eq!(meta::with_facts(&untouched, &facts(Era::Legacy), None), untouched);
    let level = br#"{"_meta":{"io.modelcontextprotocol/logLevel":"a text for the source"}}"#;
    let level = meta::with_facts(&Json::parse(&level[..]).unwrap(), &facts(Era::Modern), None);
    assert!(!level.as_str().contains("logLevel"), "what is no level is dropped: {}", level.as_str());
}

#[test]
fn of_an_agents_meta_only_the_listed_members_are_passed_on() {
    let said = r#"{"name":"a","_meta":{"deps":{"user_context":{"id": 1.0},"request_id":"r","cookie":"c"},"traceparent":"t","baggage":"b","user_context":"u","com.example/x":1,"io.modelcontextprotocol/related-task":{}}}"#;
    let params = Json::parse(said).unwrap();
    let passed = |context: &[&str]| {
        let context: Vec<_> = context.iter().map(|&key| key.to_owned()).collect();
        let with_facts = meta::with_facts(
            &params,
            &RequestFacts { context: &context, ..RequestFacts::of_broker(Era::Legacy) },
            None,
        );
        with_facts.get("_meta").unwrap().as_str().to_owned()
    };
    let task = r#""io.modelcontextprotocol/related-task":{}"#;
    assert_eq!(passed(&[]), format!("{{{task}}}"), "the protocol's own words alone");
    assert_eq!(passed(&["user_context"]), format!(r#"{{"deps":{{"user_context":{{"id": 1.0}}}},{task}}}"#));
    let some = ["request_id", "traceparent", "com.example/x", "never-said"];
    assert_eq!(passed(&some), format!(r#"{{"deps":{{"request_id":"r"}},"traceparent":"t","com.example/x":1,{task}}}"#));
    assert_eq!(passed(&["cookie", "deps"]), format!("{{{task}}}"), "parts are listed, not the whole");
    for odd in
        [r#"{"_meta":{"deps":"user_context"}}"#, r#"{"_meta":{"deps":["user_context"]}}"#, r#"{"_meta":{"deps":{}}}"#]
    {
        let context = ["user_context".to_owned()];
        let with_facts = meta::with_facts(
            &Json::parse(odd).unwrap(),
            &RequestFacts { context: &context, ..RequestFacts::of_broker(Era::Legacy) },
            None,
        );
        assert_eq!(with_facts.as_str(), r#"{"_meta":{}}"#, "{odd}");
    }
}

#[tokio::test]
async fn a_notification_without_a_call_on_a_shared_connection_goes_to_the_only_session_that_ever_used_it() {
    let (link, mut far) = linked().await;
    let subscribers = Arc::clone(&link.shared.config.subscribers);
    let (first, second) = (RecordingClient::new(), RecordingClient::new());
    let (one, two) = (first.client(), second.client());
    let notice = |method: &str| json!({ "jsonrpc": "2.0", "method": method, "params": {} });
    subscribers.join(&one);
    subscribers.join(&one);
    far.say(notice("vendor/first")).await;
    assert_eq!(first.received_any().await, ["vendor/first"]);

    // It may concern the session that has left.
    subscribers.join(&two);
    subscribers.leave(one.session().unwrap());
    let (out, mut said) = mpsc::channel(4);
    let params = Json::parse(r#"{"name":"a"}"#).unwrap();
    let (shared, client) = (Arc::clone(&link), Arc::clone(&two));
    let events = CallEventSender::new(ProgressToken::default(), out);
    let waiting = tokio::spawn(async move {
        shared
            .call(
                &crate::protocol::Method::ToolsCall,
                &params,
                &client,
                events,
                CallDeadline::of(Duration::from_secs(60)),
            )
            .await
    });
    let request = far.hear("tools/call").await;
    far.say(notice("vendor/second")).await;
    far.say(notice("notifications/message")).await;
    far.say(notice("notifications/tools/list_changed")).await;
    far.answer(&request, json!({})).await;
    assert!(matches!(waiting.await.unwrap(), Outcome::Answered(_)));
    assert!(said.try_recv().is_err(), "no notification certainly belongs to this call");
    assert_eq!(second.received_any().await, ["notifications/tools/list_changed"], "a change concerns all sessions");
    assert_eq!(first.received(), ["vendor/first"]);
    assert_eq!(link.shared.strays.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_notification_carries_the_same_meta_as_a_request() {
    let (link, mut far) = linked().await;
    let params =
        Json::parse(r#"{"x":1,"_meta":{"io.modelcontextprotocol/clientCapabilities":{},"vendor/y":2}}"#).unwrap();
    link.notify(&"vendor/notice".into(), &params, &no_client(), Duration::from_secs(60)).await.unwrap();
    assert_eq!(far.hear("vendor/notice").await["params"], json!({ "x": 1, "_meta": { "vendor/y": 2 } }));
    drop(far.heard);
    let refused =
        link.notify(&"vendor/notice".into(), &params, &no_client(), Duration::from_secs(60)).await.unwrap_err();
    assert!(matches!(refused, SourceError::Closed(why) if why == "gone".into()));
    assert!(!link.is_open());
}
