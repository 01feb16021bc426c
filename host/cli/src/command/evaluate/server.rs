//! Speaks MCP with the server in its cell, as plainly as a client can.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use portcullis::cell::{Child, ChildStreams};
use portcullis::protocol::{Method, RpcError, revision};
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
            Ok(met) => met,
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

    /// Calls a tool. The answer is the result or the error.
    pub(super) async fn call(&mut self, tool: &str, arguments: &Value) -> (Value, bool) {
        let params = json!({ "name": tool, "arguments": arguments });
        match self.request(&Method::ToolsCall, params, CALL_TIMEOUT).await {
            Ok(result) => {
                let failed = result.get("isError").and_then(Value::as_bool).unwrap_or(false);
                (result, failed)
            }
            Err(error) => (json!({ "error": format!("{error:#}") }), true),
        }
    }

    /// Returns everything that the server offers, each with its kind.
    pub(super) async fn definitions(&mut self) -> anyhow::Result<Vec<(&'static str, Value)>> {
        let mut all = Vec::new();
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
            match self.list(&method, key).await {
                Ok(listed) => all.extend(listed.into_iter().map(|definition| (kind, definition))),
                // What is no tool may be missing although it is announced.
                Err(error) if kind == "tool" => return Err(error),
                Err(_) => {}
            }
        }
        Ok(all)
    }

    async fn list(&mut self, method: &Method, key: &str) -> anyhow::Result<Vec<Value>> {
        let (mut all, mut params) = (Vec::new(), json!({}));
        for _ in 0..MAX_PAGES {
            let mut page = self.request(method, params, CALL_TIMEOUT).await?;
            if let Some(Value::Array(items)) = page.get_mut(key).map(Value::take) {
                all.extend(items);
            }
            match page.get("nextCursor") {
                Some(Value::String(cursor)) if cursor.len() > MAX_CURSOR_BYTES => {
                    bail!("the cursor of its next page is longer than {MAX_CURSOR_BYTES} bytes")
                }
                Some(Value::String(cursor)) => params = json!({ "cursor": cursor }),
                _ => break,
            }
        }
        Ok(all)
    }

    /// Sends a request and waits for its answer. Requests of the server are refused meanwhile.
    async fn request(&mut self, method: &Method, params: Value, limit: Duration) -> anyhow::Result<Value> {
        let id = self.next_id;
        self.next_id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method.as_str(), "params": params });
        let answer = async {
            // One that does not read keeps nobody waiting longer than one that does not answer.
            self.send(&request).await?;
            loop {
                let message = self.receive().await?;
                let of = message.get("id").cloned().unwrap_or_default();
                if let Some(asked) = message.get("method").and_then(Value::as_str) {
                    self.refuse(asked, &of).await?;
                } else if of == json!(id) {
                    return match message.get("error") {
                        Some(error) => {
                            bail!(
                                "{}",
                                error.get("message").and_then(Value::as_str).unwrap_or("an error without a message")
                            )
                        }
                        None => Ok(message.get("result").cloned().unwrap_or_default()),
                    };
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
    async fn receive(&mut self) -> anyhow::Result<Value> {
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
            if let Ok(message @ Value::Object(_)) = serde_json::from_slice(&line) {
                return Ok(message);
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
