//! The transport of messages to an evaluated server and back: over the standard streams of its process, or over HTTP.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use portcullis::cell::{CellProcess, ChildStreams};
use portcullis::protocol::{Answer, Json, MAX_ID_BYTES, Message, Notification, Request, Response};
use portcullis::source::HttpConnection;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The longest time for a server that does not start to end.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// The longest message that is read, in bytes.
pub(in super::super) const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// The number of bytes of standard error that are kept, from the end.
const KEPT_BYTES: usize = 2048;

/// The text for an error without a message.
const UNEXPLAINED: &str = "an error without a message";

/// A connection to a server.
pub(in super::super) enum ServerConnection {
    Pipe(ServerPipe),
    Http(HttpConnection),
}

impl ServerConnection {
    pub(super) async fn send(&mut self, message: &Value) -> anyhow::Result<()> {
        match self {
            Self::Pipe(pipe) => {
                let sent = pipe.input.write_all(format!("{message}\n").as_bytes()).await;
                sent.context("it no longer reads")
            }
            Self::Http(http) => {
                let message = Message::parse(message.to_string())?;
                http.send(&message).await.map_err(|error| anyhow!("{error}"))
            }
        }
    }

    /// Returns the next message. A wait that is cut short loses nothing.
    pub(super) async fn receive(&mut self) -> anyhow::Result<ServerMessage> {
        match self {
            Self::Pipe(pipe) => pipe.receive().await,
            Self::Http(http) => http.receive().await.map(ServerMessage::from).map_err(|error| anyhow!("{error}")),
        }
    }

    /// Notes the agreed revision and the tools that the server lists, on which the headers of HTTP depend.
    pub(super) fn agreed(&self, protocol: &str, tools: &[Value]) {
        if let Self::Http(http) = self {
            http.agreed(protocol, tools.iter().map(Json::of).collect());
        }
    }

    /// Ends the connection. A process is ended by the code that started it.
    pub(super) async fn close(&self) {
        if let Self::Http(http) = self {
            http.close().await;
        }
    }
}

/// The standard streams of a process.
pub(in super::super) struct ServerPipe {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: Vec<u8>,
}

impl ServerPipe {
    /// Takes the streams of a process. Its standard error is kept apart.
    pub(in super::super) fn of(streams: ChildStreams) -> anyhow::Result<(Self, ServerStderr)> {
        let said = Arc::new(Mutex::new(Vec::new()));
        let listener = tokio::spawn(listen(ChildStderr::from_std(streams.error)?, Arc::clone(&said)));
        let input = ChildStdin::from_std(streams.input)?;
        let output = BufReader::new(ChildStdout::from_std(streams.output)?);
        Ok((Self { input, output, line: Vec::new() }, ServerStderr { said, listener }))
    }

    async fn receive(&mut self) -> anyhow::Result<ServerMessage> {
        loop {
            let room = (MAX_MESSAGE_BYTES as u64).saturating_sub(self.line.len() as u64);
            let read = (&mut self.output).take(room).read_until(b'\n', &mut self.line).await?;
            if !self.line.ends_with(b"\n") {
                bail!(if read == 0 && room > 0 {
                    "it closed its output"
                } else {
                    "it sent a message that is too long"
                });
            }
            let line = std::mem::take(&mut self.line);
            // A line that is not a message belongs to a log.
            if let Some(received) = ServerMessage::of(&line) {
                return Ok(received);
            }
        }
    }
}

/// The end of a process's standard error.
pub(in super::super) struct ServerStderr {
    said: Arc<Mutex<Vec<u8>>>,
    listener: JoinHandle<()>,
}

impl ServerStderr {
    /// Explains why a process did not begin to talk.
    pub(in super::super) async fn explain(self, child: &CellProcess, error: anyhow::Error) -> anyhow::Error {
        // A process that has ended says why; one that still runs is not waited for.
        let _ = timeout(END_TIMEOUT, async { tokio::join!(child.wait(), self.listener) }).await;
        let why = child
            .exit_description()
            .map_or_else(|| format!("{error:#}"), |exit_description| format!("it {exit_description}"));
        let said = last_lines(&locked(&self.said));
        anyhow::Error::msg(if said.is_empty() { why } else { format!("{why}: {said}") })
    }
}

/// Returns the last lines of a text, where errors are.
fn last_lines(said: &[u8]) -> String {
    const LINES: usize = 3;
    let said = String::from_utf8_lossy(said).into_owned();
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default().join("; ")
}

/// A message of the server.
pub(super) enum ServerMessage {
    /// A request, or a notification, whose `id` is null. `params` is JSON text, which is empty if there are none.
    Request {
        method: String,
        id: Value,
        params: String,
    },
    Answer {
        id: String,
        result: Result<String, String>,
    },
}

impl ServerMessage {
    /// Returns the message on a line, if it is one. Its content is not parsed further: that takes much more memory.
    fn of(line: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Message<'a> {
            #[serde(borrow)]
            id: Option<&'a RawValue>,
            #[serde(borrow)]
            method: Option<Cow<'a, str>>,
            #[serde(borrow)]
            params: Option<&'a RawValue>,
            #[serde(borrow)]
            result: Option<&'a RawValue>,
            #[serde(borrow)]
            error: Option<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct Described {
            message: String,
        }
        line.trim_ascii_start().starts_with(b"{").then_some(())?;
        let Message { id, method, params, result, error } = serde_json::from_slice(line).ok()?;
        let id = id.map(RawValue::get).filter(|id| id.len() <= MAX_ID_BYTES).unwrap_or_default();
        if let Some(method) = method {
            return Some(Self::Request {
                method: method.into_owned(),
                id: serde_json::from_str(id).unwrap_or_default(),
                params: params.map(RawValue::get).unwrap_or_default().to_owned(),
            });
        }
        let described = |error: &RawValue| {
            let text = serde_json::from_str(error.get()).map(|Described { message }| message);
            text.unwrap_or_else(|_| UNEXPLAINED.to_owned())
        };
        let result = match error {
            Some(error) => Err(described(error)),
            None => Ok(result.map_or("null", RawValue::get).to_owned()),
        };
        Some(Self::Answer { id: id.to_owned(), result })
    }
}

/// Keeps the end of the server's standard error.
async fn listen(mut error: ChildStderr, said: Arc<Mutex<Vec<u8>>>) {
    let mut chunk = [0; 4096];
    while let Ok(read @ 1..) = error.read(&mut chunk).await {
        let mut said = locked(&said);
        said.extend_from_slice(chunk.get(..read).unwrap_or_default());
        let over = said.len().saturating_sub(KEPT_BYTES);
        said.drain(..over);
    }
}

fn locked(said: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    said.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns parameters as JSON text, which is empty if there are none.
fn text_of(params: Option<Json>) -> String {
    params.map(|params| params.as_str().to_owned()).unwrap_or_default()
}

impl From<Message> for ServerMessage {
    fn from(message: Message) -> Self {
        match message {
            Message::Request(Request { id, method, params }) => {
                let id = serde_json::from_str(id.as_json()).unwrap_or_default();
                Self::Request { method: method.to_string(), id, params: text_of(params) }
            }
            Message::Notification(Notification { method, params }) => {
                Self::Request { method: method.to_string(), id: Value::Null, params: text_of(params) }
            }
            Message::Response(Response { id, answer }) => {
                let id = id.map(|id| id.as_json().to_owned()).unwrap_or_default();
                let result = match answer {
                    Answer::Result(result) => Ok(result.as_str().to_owned()),
                    Answer::Error(error) => Err(error.get_str("message").unwrap_or_else(|| UNEXPLAINED.to_owned())),
                };
                Self::Answer { id, result }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "tests")]

    use super::*;

    #[test]
    fn a_line_is_an_answer_a_request_or_no_message() {
        let answer = |line: &str| match ServerMessage::of(line.as_bytes()) {
            Some(ServerMessage::Answer { id, result }) => (id, result),
            _ => panic!("{line}"),
        };
        let of =
            |id: &str, result: Result<&str, &str>| (id.to_owned(), result.map(str::to_owned).map_err(str::to_owned));
        assert_eq!(answer(r#" {"id":7,"result":{"a":[0, 0]}}"#), of("7", Ok(r#"{"a":[0, 0]}"#)));
        assert_eq!(answer(r#"{"id":7}"#), of("7", Ok("null")));
        assert_eq!(answer(r#"{"id":7,"error":{"code":1,"message":"no"}}"#), of("7", Err("no")));
        assert_eq!(answer(r#"{"id":7,"error":3}"#), of("7", Err("an error without a message")));
        let request = |line: &str| match ServerMessage::of(line.as_bytes()) {
            Some(ServerMessage::Request { method, id, params }) => (method, id, params),
            _ => panic!("{line}"),
        };
        assert_eq!(request(r#"{"id":"x","method":"ping"}"#), ("ping".to_owned(), Value::from("x"), String::new()));
        let (method, id, params) = request(r#"{"method":"notifications/message","params":{"data":"a"}}"#);
        assert_eq!((method.as_str(), id, params.as_str()), ("notifications/message", Value::Null, r#"{"data":"a"}"#));
        assert!(
            ["", "a log", "[1,\"a\",null,null]", "3"].iter().all(|line| ServerMessage::of(line.as_bytes()).is_none())
        );
    }
}
