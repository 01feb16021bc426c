//! A client that keeps the bytes: lines of JSON-RPC over a program's standard streams.

use std::process::Stdio;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines as TokioLines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::broker::DEADLINE;

/// The era that the client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

/// A started server, ready for requests.
pub(crate) struct Lines {
    era: Era,
    child: Child,
    input: ChildStdin,
    output: TokioLines<BufReader<ChildStdout>>,
    next: u64,
}

/// A response whose result or error is kept as the bytes that were received.
#[derive(Deserialize)]
struct Answer {
    id: Option<u64>,
    result: Option<Box<RawValue>>,
    error: Option<Box<RawValue>>,
}

impl Lines {
    /// Starts the program, as a client without any capability.
    pub(crate) async fn start(mut command: Command, era: Era) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = Self { era, child, input, output, next: 0 };
        match era {
            Era::Legacy => {
                let client = json!({ "name": "interop", "version": "1" });
                let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
                lines.ask("initialize", params).await;
                lines.send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
            }
            Era::Modern => drop(lines.ask("server/discover", json!({})).await),
        }
        lines
    }

    /// Sends a request. Returns the bytes of the `result` or of the `error`.
    pub(crate) async fn ask(&mut self, method: &str, mut params: Value) -> String {
        if self.era == Era::Modern {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": { "name": "interop", "version": "1" },
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        self.next += 1;
        let id = self.next;
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        let answer = timeout(DEADLINE, async {
            loop {
                let line = self.output.next_line().await.unwrap().expect("it answers before it ends");
                let answer: Answer = serde_json::from_str(&line).unwrap();
                if answer.id == Some(id) {
                    return answer;
                }
            }
        });
        let answer = answer.await.unwrap_or_else(|_| panic!("no answer to {method}"));
        answer.result.or(answer.error).expect("an answer has a result or an error").get().to_owned()
    }

    /// Closes the input of the server, as a client that disconnects does, and waits for its end.
    pub(crate) async fn end(mut self) {
        drop(self.input);
        timeout(DEADLINE, self.child.wait()).await.expect("it ends with its input").unwrap();
    }

    async fn send(&mut self, message: Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        self.input.flush().await.unwrap();
    }
}
