//! A session in a broker that already runs, for commands that would otherwise start one of their own.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use portcullis::agent::AgentPeer;
use portcullis::config::Config;
use portcullis::control;
use portcullis::name::ProfileName;
use portcullis::protocol::{Answer, Id, Json, Message, Method, Notification, Request, Response, revision};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::JoinSet;

use crate::output;

/// An agent's side of a session in a running broker.
pub(crate) struct RunningSession {
    input: BufReader<OwnedReadHalf>,
    output: OwnedWriteHalf,
    person: Arc<dyn AgentPeer>,
    requests: u64,
}

impl RunningSession {
    /// Opens a session in a broker that runs with this configuration. Returns `None` if there is none, so that the
    /// command must start its own. `person` answers the broker's questions.
    pub(crate) async fn open(
        config: &Config,
        profile: &ProfileName,
        person: Arc<dyn AgentPeer>,
    ) -> anyhow::Result<Option<Self>> {
        let stream = match control::open_session(&config.data_dir, profile, &config.digest()).await {
            Ok(Some(stream)) => stream,
            Ok(None) => return Ok(None),
            Err(error) => {
                output::message(&format!("a running broker cannot be used: {error}"));
                return Ok(None);
            }
        };
        let (input, output) = stream.into_split();
        let mut session = Self { input: BufReader::new(input), output, person, requests: 0 };
        let params = json!({
            "protocolVersion": revision::NEWEST_LEGACY,
            "capabilities": { "elicitation": {} },
            "clientInfo": { "name": "portcullis-cli", "version": env!("CARGO_PKG_VERSION") },
        });
        session.result(Method::Initialize, Json::of(&params)).await?;
        let ready = Notification { method: Method::NotificationsInitialized, params: None };
        session.send(&Message::Notification(ready)).await?;
        Ok(Some(session))
    }

    /// Returns the tools that the session sees.
    pub(crate) async fn tools(&mut self) -> anyhow::Result<Vec<Json>> {
        let (mut tools, mut cursors) = (Vec::new(), BTreeSet::new());
        let mut params = Json::empty_object();
        loop {
            let page = self.result(Method::ToolsList, params).await?;
            tools.extend(page.get("tools").and_then(|tools| tools.items()).unwrap_or_default());
            match page.get_str("nextCursor") {
                Some(cursor) if cursors.insert(cursor.clone()) => params = Json::of(&json!({ "cursor": cursor })),
                _ => return Ok(tools),
            }
        }
    }

    /// Makes one request and waits for its answer. Questions go to the person meanwhile.
    ///
    /// Dropping the future leaves the request open: [`RunningSession::cancel`] withdraws it.
    pub(crate) async fn request(&mut self, method: Method, params: Json) -> anyhow::Result<Answer> {
        self.requests += 1;
        let id = Id::number(self.requests);
        self.send(&Message::Request(Request { id: id.clone(), method, params: Some(params) })).await?;
        let mut questions = JoinSet::new();
        let mut line = Vec::new();
        loop {
            tokio::select! {
                read = self.input.read_until(b'\n', &mut line) => {
                    if read.context("the running broker cannot be read from")? == 0 {
                        bail!("the running broker has ended; `portcullis audit` says how far the call got");
                    }
                }
                Some(answered) = questions.join_next() => {
                    if let Ok(response) = answered {
                        self.send(&Message::Response(response)).await?;
                    }
                    continue;
                }
            }
            match Message::parse(std::mem::take(&mut line)).context("the running broker")? {
                Message::Response(response) if response.id.as_ref() == Some(&id) => return Ok(response.answer),
                Message::Response(_) => {}
                Message::Notification(notification) => self.person.notify(notification).await,
                Message::Request(Request { id, method, params }) => {
                    let person = Arc::clone(&self.person);
                    questions
                        .spawn(async move { Response { id: Some(id), answer: person.request(&method, params).await } });
                }
            }
        }
    }

    /// Withdraws the last request.
    pub(crate) async fn cancel(&mut self) -> anyhow::Result<()> {
        let params = Some(Json::of(&json!({ "requestId": self.requests })));
        self.send(&Message::Notification(Notification { method: Method::NotificationsCancelled, params })).await
    }

    async fn result(&mut self, method: Method, params: Json) -> anyhow::Result<Json> {
        match self.request(method, params).await? {
            Answer::Result(result) => Ok(result),
            Answer::Error(error) => bail!("{}", error.get_str("message").unwrap_or_else(|| error.as_str().to_owned())),
        }
    }

    async fn send(&mut self, message: &Message) -> anyhow::Result<()> {
        let mut line = message.to_line().to_vec();
        line.push(b'\n');
        self.output.write_all(&line).await.context("the running broker cannot be written to")
    }
}
