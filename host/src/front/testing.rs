//! A fake broker with a few tools, which reports what happens to it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, Notify, mpsc};

use super::backend::{Backend, FrontSession};
use crate::agent::{Agent, AgentPeer, Elicitation, NoAgent};
use crate::gate::{AnswerResult, GivenAnswer, InboxError};
use crate::item::ItemKind;
use crate::name::ProfileName;
use crate::principal::Principal;
use crate::protocol::{Answer, Json, Method, Notification, RpcError};
use crate::session::{AdvertisedCapabilities, ListPage};

/// The events that a fake broker reports, in order.
pub(crate) struct Events(Mutex<mpsc::UnboundedReceiver<String>>);

impl Events {
    /// Waits for the next event and compares it.
    pub(crate) async fn expect(&self, expected: &str) {
        let event = self.0.lock().await.recv().await;
        assert_eq!(event.as_deref(), Some(expected));
    }
}

/// A fake broker whose sessions have the tools `echo`, `slow`, `progress`, `ask` and `end`, with which the session
/// ends. The session of a client named `stuck` never tells what it offers.
#[derive(Clone)]
pub(crate) struct FakeBroker {
    events: mpsc::UnboundedSender<String>,
    /// Lets `slow` end.
    pub(crate) release: Arc<Notify>,
    /// The reasons for which requests were turned away.
    pub(crate) rejected: Arc<std::sync::Mutex<Vec<&'static str>>>,
    /// True if the session never tells what it offers.
    stuck: bool,
    /// True once the session has ended on its own.
    ended: Arc<AtomicBool>,
}

impl FakeBroker {
    pub(crate) fn new() -> (Self, Events) {
        let (events, seen) = mpsc::unbounded_channel();
        let fake =
            Self { events, release: Arc::default(), rejected: Arc::default(), stuck: false, ended: Arc::default() };
        (fake, Events(Mutex::new(seen)))
    }

    fn say(&self, event: impl Into<String>) {
        let _ = self.events.send(event.into());
    }
}

impl Backend for FakeBroker {
    fn open<'a>(
        &'a self,
        profile: &'a ProfileName,
        principal: &'a Principal,
        agent: Agent,
    ) -> BoxFuture<'a, Result<Arc<dyn FrontSession>, RpcError>> {
        Box::pin(async move {
            self.say(format!("open {profile} {principal} {}", agent.name));
            let stuck = &*agent.name == "stuck";
            let session: Arc<dyn FrontSession> = Arc::new(Self { stuck, ended: Arc::default(), ..self.clone() });
            Ok(session)
        })
    }

    fn rejected(&self, reason: &'static str, _: IpAddr) {
        self.rejected.lock().unwrap().push(reason);
    }

    fn metrics(&self) -> String {
        "calls_total 7\n# EOF\n".to_owned()
    }

    fn answer<'a>(
        &'a self,
        id: &'a str,
        answer: &'a GivenAnswer,
        by: &'a str,
    ) -> BoxFuture<'a, Result<AnswerResult, InboxError>> {
        Box::pin(async move {
            self.say(format!("answer {id} {} {:?} {by}", answer.approve, answer.scope));
            Err(InboxError::Unknown(id.to_owned()))
        })
    }
}

/// A tool as the fake lists it, with a field and a spelling that a typed model would lose.
pub(crate) const ECHO: &str = r#"{"name":"echo", "inputSchema":{"type":"object"},"x-vendor":1E+40}"#;

impl FrontSession for FakeBroker {
    fn offers(&self) -> BoxFuture<'_, AdvertisedCapabilities> {
        Box::pin(async move {
            if self.stuck {
                let _dropped = SayOnDrop(Some((self.clone(), "dropped")));
                std::future::pending::<()>().await;
            }
            AdvertisedCapabilities::default()
        })
    }

    fn list<'a>(
        &'a self,
        kind: ItemKind,
        _: &'a Json,
        _: Arc<dyn AgentPeer>,
    ) -> BoxFuture<'a, Result<ListPage, RpcError>> {
        Box::pin(async move {
            if kind != ItemKind::Tool {
                return Ok(ListPage { items: Arc::new([]), ttl_ms: 0, public: false, other_members: None });
            }
            let slow = r#"{"name":"slow","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}"#;
            let items = [ECHO, slow].into_iter().map(|tool| Json::parse(tool).unwrap()).collect();
            Ok(ListPage { items, ttl_ms: 0, public: false, other_members: None })
        })
    }

    fn listed_tools(&self) -> BoxFuture<'_, Result<Arc<[Json]>, RpcError>> {
        Box::pin(async move { Ok(self.list(ItemKind::Tool, &Json::empty_object(), Arc::new(NoAgent)).await?.items) })
    }

    fn notified(&self, notification: &Notification) {
        self.say(notification.method.as_str());
    }

    fn attach(&self, _: Arc<dyn AgentPeer>) {}

    fn request<'a>(&'a self, method: &'a Method, params: Json, peer: Arc<dyn AgentPeer>) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            if method != "tools/call" {
                return Answer::from(RpcError::new(RpcError::METHOD_NOT_FOUND, "no such method"));
            }
            match params.get_str("name").as_deref() {
                Some("echo") => {
                    let arguments = params.get("arguments").unwrap_or_else(Json::empty_object);
                    let text =
                        format!(r#"{{ "content":[{{"type":"text","text":"echoed"}}], "x":{} }}"#, arguments.as_str());
                    Answer::Result(Json::parse(text).unwrap())
                }
                Some("slow") => {
                    let dropped = SayOnDrop(Some((self.clone(), "dropped")));
                    self.say("slow");
                    self.release.notified().await;
                    dropped.forget();
                    self.say("released");
                    Answer::Result(Json::parse(r#"{"content":[]}"#).unwrap())
                }
                Some("progress") => {
                    let token =
                        params.get("_meta").and_then(|meta| meta.get("progressToken")).unwrap_or_else(Json::null);
                    for progress in 1..=3 {
                        let params = Json::of(&serde_json::json!({ "progress": progress }));
                        let params = params.with("progressToken", &token);
                        peer.notify(Notification { method: "notifications/progress".into(), params }).await;
                    }
                    Answer::Result(Json::parse(r#"{"content":[]}"#).unwrap())
                }
                Some("ask") => ask(&*peer).await,
                Some("end") => {
                    self.ended.store(true, Ordering::SeqCst);
                    Answer::Result(Json::parse(r#"{"content":[]}"#).unwrap())
                }
                _ => Answer::from(RpcError::new(RpcError::INVALID_PARAMS, "unknown tool")),
            }
        })
    }

    fn ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.say("close");
        })
    }
}

async fn ask(peer: &dyn AgentPeer) -> Answer {
    match peer.elicitation() {
        Elicitation::None => Answer::from(RpcError::new(RpcError::PENDING, "nobody to ask")),
        Elicitation::InputRequired => {
            Answer::Result(Json::parse(r#"{"resultType":"input_required","requestState":"sealed"}"#).unwrap())
        }
        Elicitation::Request => {
            let schema = serde_json::json!({ "type": "object", "properties": {} });
            let params = Json::of(&serde_json::json!({ "message": "may it?", "requestedSchema": schema }));
            match peer.request(&Method::ElicitationCreate, Some(params)).await {
                Answer::Result(answer) => {
                    Answer::Result(Json::parse(format!(r#"{{"content":[],"answer":{}}}"#, answer.as_str())).unwrap())
                }
                error => error,
            }
        }
    }
}

struct SayOnDrop(Option<(FakeBroker, &'static str)>);

impl SayOnDrop {
    fn forget(mut self) {
        self.0 = None;
    }
}

impl Drop for SayOnDrop {
    fn drop(&mut self) {
        if let Some((fake, event)) = self.0.take() {
            fake.say(event);
        }
    }
}

/// Returns the profile of the tests.
pub(crate) fn profile() -> ProfileName {
    "default".parse().unwrap()
}

/// Returns the `_meta` of a modern request.
pub(crate) fn meta(capabilities: &serde_json::Value) -> serde_json::Value {
    serde_json::json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}
