//! Speaks MCP with the server in its cell, as plainly as a client can.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Error, anyhow, bail};
use portcullis::cell::{Child, ChildStreams};
use portcullis::protocol::{MAX_ID_BYTES, Method, RpcError, revision};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::timeout;

/// The longest time for the server to start, and to answer a call.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const CALL_TIMEOUT: Duration = Duration::from_secs(8);

/// The longest time for a server that does not start to end.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// The longest message that is read, in bytes.
const MAX_MESSAGE_BYTES: u64 = 16 << 20;

/// The largest number of pages of a list that are fetched.
const MAX_PAGES: usize = 20;

/// The largest size of everything that is listed at one time, in bytes, and the largest number of values in it: each takes
/// much more memory than its text.
const MAX_LISTED_BYTES: usize = 8 << 20;
const MAX_LISTED_VALUES: usize = 250_000;

/// The longest answer to the first message, in bytes.
const MAX_MET_BYTES: usize = 256 * 1024;

/// The longest cursor that is sent back, in bytes.
const MAX_CURSOR_BYTES: usize = 64 * 1024;

/// The number of bytes of standard error that are kept, from the end.
const KEPT_BYTES: usize = 2048;

/// A running server.
pub(super) struct Server {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: Vec<u8>,
    next_id: u64,
    said: Arc<Mutex<Vec<u8>>>,
    /// The server's description of itself.
    met: Value,
}

impl Server {
    /// Begins the conversation as this client.
    pub(super) async fn meet(streams: ChildStreams, child: &Child, client: &str) -> anyhow::Result<Self> {
        let said = Arc::new(Mutex::new(Vec::new()));
        let listener = tokio::spawn(listen(ChildStderr::from_std(streams.error)?, Arc::clone(&said)));
        let mut server = Self {
            input: ChildStdin::from_std(streams.input)?,
            output: BufReader::new(ChildStdout::from_std(streams.output)?),
            line: Vec::new(),
            next_id: 1,
            said,
            met: Value::Null,
        };
        let newest = revision::LEGACY.last().copied().unwrap_or_default();
        let params = json!({
            "protocolVersion": newest,
            "capabilities": {},
            "clientInfo": { "name": client, "version": "1.0.0" },
        });
        server.met = match server.request(&Method::Initialize, params, START_TIMEOUT).await {
            Ok(met) if met.len() > MAX_MET_BYTES => {
                bail!("its answer to `initialize` is longer than {MAX_MET_BYTES} bytes")
            }
            Ok(met) => serde_json::from_str(&met)?,
            Err(error) => {
                // One that has ended says why; one that goes on is not waited for.
                let _ = timeout(END_TIMEOUT, async { tokio::join!(child.wait(), listener) }).await;
                let why = child.fate().map_or_else(|| format!("{error:#}"), |fate| format!("it {fate}"));
                let said = server.said();
                bail!(if said.is_empty() { why } else { format!("{why}: {said}") });
            }
        };
        server.send(&json!({ "jsonrpc": "2.0", "method": Method::NotificationsInitialized.as_str() })).await?;
        Ok(server)
    }

    /// Returns the server's name and version, as it gives them.
    pub(super) fn name(&self) -> String {
        let text =
            |key: &str| self.met.pointer(&format!("/serverInfo/{key}")).and_then(Value::as_str).unwrap_or_default();
        format!("{} {}", text("name"), text("version")).trim().to_owned()
    }

    /// Calls a tool. The answer is the result or the error, as JSON text.
    pub(super) async fn call(&mut self, tool: &str, arguments: &Value) -> (String, bool) {
        #[derive(Deserialize)]
        struct Flagged {
            #[serde(rename = "isError", default)]
            is_error: bool,
        }
        let params = json!({ "name": tool, "arguments": arguments });
        match self.request(&Method::ToolsCall, params, CALL_TIMEOUT).await {
            Ok(result) => {
                let failed = serde_json::from_str(&result).is_ok_and(|Flagged { is_error }| is_error);
                (result, failed)
            }
            Err(error) => (json!({ "error": format!("{error:#}") }).to_string(), true),
        }
    }

    /// Returns everything that the server offers, each with its kind. Adds to `unseen` what is left out.
    pub(super) async fn definitions(
        &mut self,
        unseen: &mut BTreeMap<&'static str, u64>,
    ) -> anyhow::Result<Vec<(&'static str, Value)>> {
        let (mut all, mut room) = (Vec::new(), Room { bytes: MAX_LISTED_BYTES, values: MAX_LISTED_VALUES });
        if let Some(instructions) = self.met.get("instructions") {
            all.push(("instructions", json!({ "instructions": instructions })));
        }
        let lists = [
            (Method::ToolsList, "tools", "tools", "tool"),
            (Method::PromptsList, "prompts", "prompts", "prompt"),
            (Method::ResourcesList, "resources", "resources", "resource"),
            (Method::ResourcesTemplatesList, "resources", "resourceTemplates", "template"),
        ];
        for (method, capability, key, kind) in lists {
            if self.met.pointer(&format!("/capabilities/{capability}")).is_none() {
                continue;
            }
            match self.list(&method, key, &mut room, unseen).await {
                Ok(listed) => all.extend(listed.into_iter().map(|definition| (kind, definition))),
                // What is no tool may be missing although it is announced.
                Err(error) if kind == "tool" => return Err(error),
                Err(_) => *unseen.entry("lists of prompts or resources that could not be fetched").or_default() += 1,
            }
        }
        Ok(all)
    }

    async fn list(
        &mut self,
        method: &Method,
        key: &str,
        room: &mut Room,
        unseen: &mut BTreeMap<&'static str, u64>,
    ) -> anyhow::Result<Vec<Value>> {
        let (mut all, mut params) = (Vec::new(), json!({}));
        for _ in 0..MAX_PAGES {
            let page = self.request(method, params, CALL_TIMEOUT).await?;
            room.take_up(&page)?;
            let mut page: Value = serde_json::from_str(&page)?;
            if let Some(Value::Array(items)) = page.get_mut(key).map(Value::take) {
                all.extend(items);
            }
            match page.get("nextCursor") {
                Some(Value::String(cursor)) if cursor.len() > MAX_CURSOR_BYTES => {
                    bail!("the cursor of its next page is longer than {MAX_CURSOR_BYTES} bytes")
                }
                Some(Value::String(cursor)) => params = json!({ "cursor": cursor }),
                _ => return Ok(all),
            }
        }
        *unseen.entry("lists with more pages than were fetched").or_default() += 1;
        Ok(all)
    }

    /// Sends a request and waits for the result, which is JSON text. Requests of the server are refused meanwhile.
    async fn request(&mut self, method: &Method, params: Value, limit: Duration) -> anyhow::Result<String> {
        let id = self.next_id;
        self.next_id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method.as_str(), "params": params });
        let answer = async {
            // One that does not read keeps nobody waiting longer than one that does not answer.
            self.send(&request).await?;
            loop {
                match self.receive().await? {
                    Received::Request { method, id } => self.refuse(&method, &id).await?,
                    Received::Answer { id: of, result } if of == id.to_string() => return result.map_err(Error::msg),
                    Received::Answer { .. } => {}
                }
            }
        };
        timeout(limit, answer).await.unwrap_or_else(|_| Err(anyhow!("no answer within {} s", limit.as_secs())))
    }

    async fn refuse(&mut self, method: &str, id: &Value) -> anyhow::Result<()> {
        if id.is_null() {
            return Ok(());
        }
        let answer = match Method::from(method) {
            Method::Ping => json!({ "jsonrpc": "2.0", "id": id, "result": {} }),
            _ => {
                let error = json!({ "code": RpcError::METHOD_NOT_FOUND, "message": "not supported" });
                json!({ "jsonrpc": "2.0", "id": id, "error": error })
            }
        };
        self.send(&answer).await
    }

    async fn send(&mut self, message: &Value) -> anyhow::Result<()> {
        let sent = self.input.write_all(format!("{message}\n").as_bytes()).await;
        sent.context("it no longer reads")
    }

    /// Returns the next message. A wait that is cut short loses nothing.
    async fn receive(&mut self) -> anyhow::Result<Received> {
        loop {
            let room = MAX_MESSAGE_BYTES.saturating_sub(self.line.len() as u64);
            let read = (&mut self.output).take(room).read_until(b'\n', &mut self.line).await?;
            if !self.line.ends_with(b"\n") {
                bail!(if read == 0 && room > 0 {
                    "it closed its output"
                } else {
                    "it sent a message that is too long"
                });
            }
            let line = std::mem::take(&mut self.line);
            // What is no message is a line of a log.
            if let Some(received) = Received::of(&line) {
                return Ok(received);
            }
        }
    }

    /// Returns the last lines of what the server said on standard error, where errors are.
    fn said(&self) -> String {
        const LINES: usize = 3;
        let said = String::from_utf8_lossy(&locked(&self.said)).into_owned();
        let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default().join("; ")
    }
}

/// The room that is left for what is listed.
struct Room {
    bytes: usize,
    values: usize,
}

impl Room {
    fn take_up(&mut self, page: &str) -> anyhow::Result<()> {
        let values = page.bytes().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
        let left = self.bytes.checked_sub(page.len()).zip(self.values.checked_sub(values));
        let (bytes, values) = left.with_context(|| {
            format!("it lists more than {} MiB or {MAX_LISTED_VALUES} values", MAX_LISTED_BYTES >> 20)
        })?;
        *self = Self { bytes, values };
        Ok(())
    }
}

/// A message of the server.
enum Received {
    Request { method: String, id: Value },
    Answer { id: String, result: Result<String, String> },
}

impl Received {
    /// Returns the message on a line, if it is one. What it holds is not taken apart: that takes much more memory.
    fn of(line: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Message<'a> {
            #[serde(borrow)]
            id: Option<&'a RawValue>,
            #[serde(borrow)]
            method: Option<Cow<'a, str>>,
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
        let Message { id, method, result, error } = serde_json::from_slice(line).ok()?;
        let id = id.map(RawValue::get).filter(|id| id.len() <= MAX_ID_BYTES).unwrap_or_default();
        if let Some(method) = method {
            return Some(Self::Request {
                method: method.into_owned(),
                id: serde_json::from_str(id).unwrap_or_default(),
            });
        }
        let described = |error: &RawValue| {
            let text = serde_json::from_str(error.get()).map(|Described { message }| message);
            text.unwrap_or_else(|_| "an error without a message".to_owned())
        };
        let result = match error {
            Some(error) => Err(described(error)),
            None => Ok(result.map_or("null", RawValue::get).to_owned()),
        };
        Some(Self::Answer { id: id.to_owned(), result })
    }
}

/// Keeps the end of what the server says on standard error.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

    use super::*;

    #[test]
    fn what_a_server_lists_has_a_bound_in_bytes_and_in_values() {
        let mut room = Room { bytes: MAX_LISTED_BYTES, values: MAX_LISTED_VALUES };
        room.take_up(&"a".repeat(MAX_LISTED_BYTES / 2)).unwrap();
        assert!(room.take_up(&"a".repeat(MAX_LISTED_BYTES / 2 + 1)).unwrap_err().to_string().contains("8 MiB"));
        room.take_up(&"0,".repeat(MAX_LISTED_VALUES)).unwrap();
        assert!(room.take_up("{}").is_err(), "values that are short in text are long in memory");
    }

    #[test]
    fn a_line_is_an_answer_a_request_or_no_message() {
        let answer = |line: &str| match Received::of(line.as_bytes()) {
            Some(Received::Answer { id, result }) => (id, result),
            _ => panic!("{line}"),
        };
        let of =
            |id: &str, result: Result<&str, &str>| (id.to_owned(), result.map(str::to_owned).map_err(str::to_owned));
        assert_eq!(answer(r#" {"id":7,"result":{"a":[0, 0]}}"#), of("7", Ok(r#"{"a":[0, 0]}"#)));
        assert_eq!(answer(r#"{"id":7}"#), of("7", Ok("null")));
        assert_eq!(answer(r#"{"id":7,"error":{"code":1,"message":"no"}}"#), of("7", Err("no")));
        assert_eq!(answer(r#"{"id":7,"error":3}"#), of("7", Err("an error without a message")));
        let request = Received::of(br#"{"id":"x","method":"ping"}"#);
        assert!(matches!(request, Some(Received::Request { method, id }) if method == "ping" && id == "x"));
        assert!(["", "a log", "[1,\"a\",null,null]", "3"].iter().all(|line| Received::of(line.as_bytes()).is_none()));
    }
}
