//! An agent over stdio that speaks raw JSON-RPC, in either era.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::test_dir::{DEADLINE, TestDir, signal};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

pub(crate) const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];

/// The name of the broker's question in an `InputRequiredResult`.
pub(crate) const QUESTION: &str = "portcullis-approval";

/// A running `portcullis` with its streams. It is killed when this is dropped.
pub(crate) struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    pub(crate) out: Receiver<String>,
    pub(crate) err: Receiver<String>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let out = lines(child.stdout.take().unwrap());
        let err = child.stderr.take().map_or_else(|| mpsc::channel().1, lines);
        let stdin = child.stdin.take();
        Self { child, stdin, out, err }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn write(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        // A broker that was killed does not read; only what it answered counts.
        let _ = writeln!(stdin, "{line}");
    }

    /// Waits for a line on standard error that contains the text, and returns it.
    pub(crate) fn says(&self, text: &str) -> String {
        loop {
            let line = self.err.recv_timeout(DEADLINE);
            let line = line.unwrap_or_else(|_| panic!("{text:?} did not appear on standard error"));
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Closes the standard input of the broker.
    pub(crate) fn close_input(&mut self) {
        drop(self.stdin.take());
    }

    /// Closes the standard input and waits for the end. Returns the exit code and the unread rest of standard error.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        drop(self.stdin.take());
        self.ended()
    }

    /// Sends a signal and waits for the end. Returns the same as [`end`](Self::end).
    pub(crate) fn end_by(mut self, number: Signal) -> (Option<i32>, String) {
        self.signal(number);
        self.ended()
    }

    pub(crate) fn ended(&mut self) -> (Option<i32>, String) {
        // Its output ends when the process does.
        loop {
            match self.out.recv_timeout(DEADLINE) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("the broker does not end"),
            }
        }
        let status = self.child.wait().unwrap();
        (status.code(), self.err.iter().collect::<Vec<_>>().join("\n"))
    }

    pub(crate) fn signal(&self, number: Signal) {
        signal(self.pid(), number);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

pub(crate) struct Agent {
    pub(crate) running: Running,
    era: Era,
    capabilities: Value,
    last: u64,
}

impl Agent {
    /// Starts `portcullis serve --stdio` and an agent that supports elicitation.
    pub(crate) fn start(dir: &TestDir, era: Era) -> Self {
        Self::of(dir.command(&["serve", "--stdio"]), era, json!({ "elicitation": {} }))
    }

    /// Starts the same as [`start`](Self::start), with a profile.
    pub(crate) fn under(dir: &TestDir, profile: &str, era: Era) -> Self {
        let command = dir.command(&["serve", "--stdio", "--profile", profile]);
        Self::of(command, era, json!({ "elicitation": {} }))
    }

    /// Starts an agent that does not support elicitation.
    pub(crate) fn alone(dir: &TestDir, era: Era) -> Self {
        Self::of(dir.command(&["serve", "--stdio"]), era, json!({}))
    }

    pub(crate) fn of(command: Command, era: Era, capabilities: Value) -> Self {
        let mut agent = Self { running: Running::start(command), era, capabilities, last: 0 };
        if era == Era::Legacy {
            let params = json!({
                "protocolVersion": "2025-11-25",
                "capabilities": agent.capabilities,
                "clientInfo": { "name": "suite", "version": "1" },
            });
            let id = agent.send("initialize", params);
            if agent.try_answer(id, None).is_some() {
                let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
                agent.running.write(&initialized.to_string());
            }
        }
        agent
    }

    /// Sends a request and returns its id.
    pub(crate) fn send(&mut self, method: &str, mut params: Value) -> u64 {
        self.sign(&mut params);
        if method == "tools/call" {
            params["_meta"]["progressToken"] = json!(self.last + 1);
        }
        self.send_raw(method, &params.to_string())
    }

    /// Sends a request with the progress token that its parameters have. Returns its id.
    pub(crate) fn send_as_is(&mut self, method: &str, mut params: Value) -> u64 {
        self.sign(&mut params);
        self.send_raw(method, &params.to_string())
    }

    /// Sends a notification.
    pub(crate) fn notify(&mut self, method: &str, mut params: Value) {
        self.sign(&mut params);
        self.running.write(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
    }

    /// Adds the `_meta` with which a modern agent describes itself in each request.
    fn sign(&self, params: &mut Value) {
        if self.era == Era::Modern {
            let facts = meta(&self.capabilities);
            facts.as_object().unwrap().iter().for_each(|(key, fact)| params["_meta"][key] = fact.clone());
        }
    }

    pub(crate) fn send_raw(&mut self, method: &str, params: &str) -> u64 {
        self.last += 1;
        let id = self.last;
        self.running.write(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#));
        id
    }

    pub(crate) fn send_call(&mut self, tool: &str, arguments: &Value) -> u64 {
        self.send("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// Returns the next message of the broker, or `None` once the broker has ended.
    pub(crate) fn next(&self) -> Option<Value> {
        match self.running.out.recv_timeout(DEADLINE) {
            Ok(line) => Some(serde_json::from_str(&line).unwrap()),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the broker sends nothing"),
        }
    }

    /// Waits for the response to a request. Questions that come before it are answered with `answer`.
    pub(crate) fn answer(&mut self, id: u64, answer: Option<&str>) -> Value {
        self.try_answer(id, answer).expect("the broker ended")
    }

    fn try_answer(&mut self, id: u64, answer: Option<&str>) -> Option<Value> {
        loop {
            let message = self.next()?;
            if message["method"] == "elicitation/create" {
                let response = json!({ "jsonrpc": "2.0", "id": message["id"], "result": elicited(answer) });
                self.running.write(&response.to_string());
            } else if message["id"] == id {
                return Some(message);
            }
        }
    }

    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id, None)
    }

    /// Returns the names of the tools, or the error.
    pub(crate) fn list(&mut self) -> Value {
        let answer = self.request("tools/list", json!({}));
        match answer["result"]["tools"].as_array() {
            Some(tools) => json!({ "tools": tools.iter().map(|tool| &tool["name"]).collect::<Vec<_>>() }),
            None => outcome(&answer),
        }
    }

    /// Calls a tool and returns the [`outcome`]. A question is answered in the way of the era.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value, answer: Option<&str>) -> Value {
        let id = self.send_call(tool, arguments);
        let first = self.answer(id, answer);
        if answer.is_none() || first["result"]["resultType"] != "input_required" {
            return outcome(&first);
        }
        let retry = json!({
            "name": tool,
            "arguments": arguments,
            "requestState": first["result"]["requestState"],
            "inputResponses": { QUESTION: elicited(answer) },
        });
        outcome(&self.request("tools/call", retry))
    }

    /// Waits until the broker reports that a call waits for a person at another terminal. Returns the id of the
    /// question.
    pub(crate) fn question(&self) -> String {
        loop {
            let message = self.next().expect("the broker ended");
            assert_ne!(message["method"], "elicitation/create", "this must not be asked on the agent's own channel");
            if let Some(id) = question_in(&message) {
                return id;
            }
        }
    }

    /// Ends the broker as an agent that disconnects does: by closing its input.
    pub(crate) fn leave(self) {
        let (code, err) = self.running.end();
        assert_eq!(code, Some(0), "{err}");
    }
}

/// Returns the `_meta` of a modern request.
pub(crate) fn meta(capabilities: &Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "suite", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}

/// Returns the result of an elicitation in which a person gives this answer.
pub(crate) fn elicited(answer: Option<&str>) -> Value {
    match answer {
        None => json!({ "action": "cancel" }),
        Some("decline") => json!({ "action": "decline" }),
        Some(answer) => json!({ "action": "accept", "content": { "answer": answer } }),
    }
}

/// Summarises a response: `ok`, `failed` (the tool's own error), `asked`, or the `refused` code and message of an
/// error.
pub(crate) fn outcome(answer: &Value) -> Value {
    let result = &answer["result"];
    if result["resultType"] == "input_required" {
        return json!({ "asked": true });
    }
    if result.is_object() {
        let texts = result["content"].as_array().into_iter().flatten().filter_map(|block| block["text"].as_str());
        let text = texts.collect::<Vec<_>>().join("\n");
        return if result["isError"] == true { json!({ "failed": text }) } else { json!({ "ok": text }) };
    }
    let error = &answer["error"];
    let code = error["data"].get("code").unwrap_or(&error["code"]);
    json!({ "refused": code, "message": error["message"] })
}

/// Returns the id of the question if the message reports that a call waits for a person at another terminal.
pub(crate) fn question_in(message: &Value) -> Option<String> {
    let text = message["params"]["message"].as_str()?;
    Some(text.strip_prefix("waiting for a person: portcullis approvals approve ")?.to_owned())
}
