//! A source in memory with scripted behaviour, and the bench that calls it.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value as Data, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::gate::Permit;
use crate::protocol::{Message, Request};
use crate::source::supervised::*;
use crate::source::testing::{permit, silent, supervision};
use crate::source::transport::{ReceivedMessage, Transport, TransportError};

/// The behaviour of a source over one connection.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Mood {
    /// It cannot be reached.
    Absent,
    /// It can be reached after 4 s, and answers all calls.
    Late,
    /// It answers all calls.
    Well,
    /// It answers all calls, with another description of its tool.
    Changed,
    /// It ends in the middle of the first call.
    Dies,
    /// It refuses the first request after those that open the connection, because it has forgotten the session.
    Forgets,
    /// It takes no notification after the one that opens the connection.
    Deaf,
    /// It answers only the messages that open the connection.
    Mute,
    /// It answers what opens the connection and pings, but no call.
    Busy,
    /// It answers all calls, and keeps a log level and subscriptions for each of its clients.
    Keeps,
    /// It keeps the same for its clients, but answers no tool call.
    KeepsBusy,
    /// It answers a call after a second.
    Slow,
    /// It speaks both eras, and keeps nothing for its clients.
    Both,
    /// It speaks both eras, and keeps a log level for each legacy client.
    BothWithLogs,
    /// It speaks only the modern era.
    Modern,
}

impl Mood {
    fn speaks_modern(self) -> bool {
        matches!(self, Self::Both | Self::BothWithLogs | Self::Modern)
    }
}

/// The behaviour of the source for each connection, the last of which is used for all further ones; and a record of
/// what happened.
#[derive(Default)]
pub(super) struct World {
    pub(super) moods: Mutex<VecDeque<Mood>>,
    /// The times at which connections were tried, since the start.
    pub(super) tried: Mutex<Vec<Duration>>,
    /// The methods by which connections were begun.
    pub(super) begun: Mutex<Vec<String>>,
    /// The number of calls that the source received.
    pub(super) calls: AtomicU64,
    /// The number of notifications that the source took, after those that open a connection.
    pub(super) told: AtomicU64,
    /// The number of open connections.
    pub(super) open: AtomicU64,
    pub(super) records: Mutex<Vec<Data>>,
    /// The methods of the requests that the source received, after those that open a connection.
    pub(super) asked: Mutex<Vec<String>>,
}

impl World {
    pub(super) fn states(&self) -> Vec<String> {
        let records = self.records.lock().unwrap();
        records.iter().map(|body| body["to"].as_str().unwrap().to_owned()).collect()
    }

    pub(super) fn tried(&self) -> Vec<u128> {
        let tried = self.tried.lock().unwrap();
        tried.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect()
    }
}

#[derive(Debug)]
pub(super) struct Fake(#[allow(dead_code, reason = "its own text")] &'static str, Handle);

/// A world whose debug output is a constant.
struct Handle(Arc<World>, Instant);

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("world")
    }
}

#[async_trait]
impl Connector for Fake {
    async fn connect(
        &self,
        deadlines: HandshakeDeadlines,
        config: McpConnectionConfig,
    ) -> Result<(McpConnection, Discovery), SourceError> {
        let Handle(world, start) = &self.1;
        world.tried.lock().unwrap().push(start.elapsed());
        let mood = {
            let mut moods = world.moods.lock().unwrap();
            if moods.len() > 1 { moods.pop_front().unwrap() } else { moods[0] }
        };
        if mood == Mood::Absent {
            return Err(SourceError::Start("nobody is there".into()));
        }
        if mood == Mood::Late {
            tokio::time::sleep(Duration::from_secs(4)).await;
        }
        world.open.fetch_add(1, Ordering::SeqCst);
        let (say, heard) = mpsc::channel(16);
        let (say, world) = (Mutex::new(Some(say)), Arc::clone(world));
        let wire = FakeTransport { world, mood, opened: AtomicBool::new(false), say, heard: heard.into() };
        let probe = deadlines.probe.filter(|_| mood.speaks_modern());
        McpConnection::open(Arc::new(wire), HandshakeDeadlines { probe, ..deadlines }, config).await
    }
}

type ReceiveResult = Result<ReceivedMessage, TransportError>;

struct FakeTransport {
    world: Arc<World>,
    mood: Mood,
    /// True once the source has listed its tools.
    opened: AtomicBool,
    say: Mutex<Option<mpsc::Sender<ReceiveResult>>>,
    heard: tokio::sync::Mutex<mpsc::Receiver<ReceiveResult>>,
}

impl FakeTransport {
    fn end(&self) {
        if self.say.lock().unwrap().take().is_some() {
            self.world.open.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[async_trait]
impl Transport for FakeTransport {
    async fn send(&self, message: &Message) -> Result<(), TransportError> {
        let Some(say) = self.say.lock().unwrap().clone() else {
            return Err(TransportError::Closed("it has ended".into()));
        };
        let opened = self.opened.load(Ordering::SeqCst);
        let Message::Request(Request { id, method, .. }) = message else {
            if opened && self.mood == Mood::Deaf {
                self.end();
                return Err(TransportError::Closed("it has ended".into()));
            }
            self.world.told.fetch_add(u64::from(opened), Ordering::SeqCst);
            return Ok(());
        };
        if opened && self.mood == Mood::Forgets {
            let expired = TransportError::Expired { id: Some(id.clone()), reason: "session expired".into() };
            say.send(Err(expired)).await.unwrap();
            self.end();
            return Ok(());
        }
        if matches!(method.as_str(), "initialize" | "server/discover") && !opened {
            self.world.begun.lock().unwrap().push(method.to_string());
        } else if opened {
            self.world.asked.lock().unwrap().push(method.to_string());
        }
        let described = if self.mood == Mood::Changed { "another" } else { "a tool" };
        let tools = json!({ "tools": [{ "name": "echo", "description": described }] });
        let keeps = json!({ "tools": {}, "logging": {}, "resources": { "subscribe": true } });
        let result = match (method.as_str(), self.mood) {
            ("initialize", Mood::Keeps | Mood::KeepsBusy) => {
                json!({ "protocolVersion": "2025-06-18", "capabilities": keeps })
            }
            ("initialize", Mood::Modern) => {
                let error = json!({ "code": -32022, "message": "no" });
                let answer = json!({ "jsonrpc": "2.0", "id": id.as_number(), "error": error });
                let _ = say.send(Ok(Message::parse(answer.to_string()).unwrap().into())).await;
                return Ok(());
            }
            ("initialize", Mood::BothWithLogs) => {
                json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": {}, "logging": {} } })
            }
            ("server/discover", mood) if mood.speaks_modern() => {
                json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } })
            }
            ("initialize", _) => json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": {} } }),
            ("tools/list", _) => {
                self.opened.store(true, Ordering::SeqCst);
                tools
            }
            ("tools/call", Mood::Busy | Mood::KeepsBusy) => {
                self.world.calls.fetch_add(1, Ordering::SeqCst);
                return Ok(());
            }
            (method, Mood::Mute) => {
                self.world.calls.fetch_add(u64::from(method == "tools/call"), Ordering::SeqCst);
                return Ok(());
            }
            ("tools/call", Mood::Dies) => {
                self.world.calls.fetch_add(1, Ordering::SeqCst);
                self.end();
                return Ok(());
            }
            ("tools/call", mood) => {
                self.world.calls.fetch_add(1, Ordering::SeqCst);
                if mood == Mood::Slow {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                json!({ "content": [{ "type": "text", "text": "ok" }] })
            }
            _ => json!({}),
        };
        let answer = json!({ "jsonrpc": "2.0", "id": id.as_number(), "result": result });
        let _ = say.send(Ok(Message::parse(answer.to_string()).unwrap().into())).await;
        Ok(())
    }

    async fn receive(&self) -> Option<ReceiveResult> {
        self.heard.lock().await.recv().await
    }

    async fn close(&self) {
        self.end();
    }

    fn exit_reason(&self) -> Option<crate::call::Cause> {
        None
    }
}

impl Drop for FakeTransport {
    fn drop(&mut self) {
        self.end();
    }
}

pub(super) struct Bench {
    pub(super) source: SupervisedSource<Fake>,
    pub(super) world: Arc<World>,
}

impl Bench {
    pub(super) fn new(moods: &[Mood]) -> Self {
        Self::with(moods, |_| {})
    }

    pub(super) fn with(moods: &[Mood], change: impl FnOnce(&mut SupervisionConfig)) -> Self {
        let world = Arc::new(World { moods: Mutex::new(moods.iter().copied().collect()), ..World::default() });
        let records = Arc::clone(&world);
        let mut supervision = supervision(Duration::from_secs(60));
        supervision.record = Arc::new(move |event| records.records.lock().unwrap().push(event.body.into()));
        change(&mut supervision);
        let connector = Fake("source", Handle(Arc::clone(&world), Instant::now()));
        Self { source: SupervisedSource::of(supervision, connector), world }
    }

    pub(super) async fn call(&self, client: &Arc<dyn SourceClient>) -> Outcome {
        self.source.call(shown("a tool"), client, silent()).await
    }

    pub(super) fn status(&self) -> SourceStatus {
        self.source.health().status
    }

    /// Waits until the recorded states are these.
    pub(super) async fn comes_to(&self, states: &[&str]) {
        let there = async {
            while self.world.states() != states {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let limit = Duration::from_secs(3600);
        assert!(tokio::time::timeout(limit, there).await.is_ok(), "{:?}", self.world.states());
    }
}

pub(super) fn shown(described: &str) -> Permit {
    permit(&json!({ "name": "echo", "description": described }), json!({}))
}
