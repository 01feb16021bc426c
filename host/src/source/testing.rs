//! Helpers that the tests of sources share: clients that belong to no session or that record notifications, permits,
//! and the text of an answer.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, split};
use tokio::sync::Notify;

use super::{
    CallEventSender, ConcurrencyLimit, NativeSource, NoClient, ProgressToken, SourceClient, SupervisionConfig,
    nobody_to_ask,
};
use crate::call::{Call, Outcome, Params, SessionId};
use crate::config::ConnectionReuse;
use crate::digest::Digest;
use crate::gate::Permit;
use crate::item::Item;
use crate::plugin::NativeError;
use crate::protocol::{Answer, Era, Json, Method, Notification, Request};
use portcullis_core::testing::view;

pub(crate) fn no_client() -> Arc<dyn SourceClient> {
    Arc::new(NoClient)
}

pub(crate) fn silent() -> CallEventSender {
    CallEventSender::new(ProgressToken::default(), tokio::sync::mpsc::channel(1).0)
}

/// A session that declares no capabilities and records the methods of the notifications that it receives.
pub(crate) struct RecordingClient {
    pub(crate) session: SessionId,
    era: Option<Era>,
    received: Mutex<Vec<String>>,
    news: Notify,
}

impl RecordingClient {
    pub(crate) fn new() -> Arc<Self> {
        Self::of(None)
    }

    /// Returns a session whose agent speaks this era.
    pub(crate) fn of(era: Option<Era>) -> Arc<Self> {
        Arc::new(Self { session: SessionId::new(), era, received: Mutex::default(), news: Notify::new() })
    }

    /// Returns the session as the client of a source.
    pub(crate) fn client(self: &Arc<Self>) -> Arc<dyn SourceClient> {
        Arc::clone(self) as _
    }

    /// Returns the methods of all notifications received so far.
    pub(crate) fn received(&self) -> Vec<String> {
        self.received.lock().unwrap().clone()
    }

    /// Waits until a notification has been received, and returns all methods.
    pub(crate) async fn received_any(&self) -> Vec<String> {
        while self.received().is_empty() {
            self.news.notified().await;
        }
        self.received()
    }
}

impl SourceClient for RecordingClient {
    fn session(&self) -> Option<&SessionId> {
        Some(&self.session)
    }
    fn era(&self) -> Option<Era> {
        self.era
    }
    fn capabilities(&self) -> Json {
        Json::empty_object()
    }
    fn log_level(&self) -> Option<Json> {
        None
    }
    fn notify<'a>(&'a self, _: &'a str, notification: Notification) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.received.lock().unwrap().push(notification.method.to_string());
            self.news.notify_one();
        })
    }
    fn request<'a>(&'a self, _: &'a str, _: Request) -> BoxFuture<'a, Answer> {
        Box::pin(async move { nobody_to_ask() })
    }
}

/// Returns the configuration of a source `test` that is kept connected for a day and whose events are not recorded.
pub(crate) fn supervision(timeout: Duration) -> SupervisionConfig {
    SupervisionConfig {
        name: "test".parse().unwrap(),
        timeout,
        concurrency: ConcurrencyLimit::new(&"test".parse().unwrap(), None),
        lifecycle: ConnectionReuse::Warm,
        max_connections: 256,
        idle: Duration::from_secs(24 * 60 * 60),
        eager: false,
        era: None,
        remote: false,
        context: Arc::default(),
        record: Arc::new(|_| {}),
    }
}

/// Returns a permit for a tool of the source `test` that was shown with this definition.
pub(crate) fn permit(definition: &serde_json::Value, arguments: serde_json::Value) -> Permit {
    let name = definition["name"].as_str().unwrap_or_default();
    let definition = Json::of(definition);
    let call = Call::clone(&view("{}").call);
    let tool = Item {
        source: "test".parse().unwrap(),
        name: name.into(),
        exposed: format!("test__{name}").into(),
        digest: Digest::of_json(&definition).unwrap(),
        definition,
        ..Item::clone(&call.item)
    };
    let params = Json::of(&serde_json::json!({ "name": name, "arguments": arguments }));
    let params = Params::parse(&Method::ToolsCall, params);
    Permit::unchecked(Call { params, arguments: Json::of(&arguments), item: tool.into(), ..call }.into())
}

/// Returns the text that a tool answered.
pub(crate) fn text(outcome: Outcome) -> String {
    let Outcome::Answered(Answer::Result(result)) = outcome else { panic!("{outcome:?}") };
    let result: serde_json::Value = result.read().unwrap();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

/// A native server that answers each request with the messages that a function returns for it. `null` among them ends the
/// connection.
pub(crate) struct ScriptedServer<F>(pub(crate) F);

#[async_trait]
impl<F: Fn(&Value) -> Vec<Value> + Send + Sync + 'static> NativeSource for ScriptedServer<F> {
    fn version(&self) -> &str {
        "1"
    }

    async fn serve(&self, stream: DuplexStream) -> Result<(), NativeError> {
        let (input, mut output) = split(stream);
        let mut lines = BufReader::new(input).lines();
        while let Some(line) = lines.next_line().await? {
            for mut message in (self.0)(&serde_json::from_str(&line)?) {
                if message.is_null() {
                    return Ok(());
                }
                message["jsonrpc"] = "2.0".into();
                output.write_all(format!("{message}\n").as_bytes()).await?;
            }
        }
        Ok(())
    }
}

/// Returns the messages of a server that answers a request with a result, or, without one, gives no answer.
pub(crate) fn answering(request: &Value, result: Option<Value>) -> Vec<Value> {
    result.map(|result| serde_json::json!({ "id": request["id"], "result": result })).into_iter().collect()
}
