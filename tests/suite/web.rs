//! An agent over HTTP that writes requests as bytes and reads messages as they arrive.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use serde_json::{Value, json};

use crate::agent::{Running, meta, outcome};
use crate::test_dir::{DEADLINE, TestDir};

/// A running `portcullis serve` on a free port.
pub(crate) struct Server {
    pub(crate) running: Running,
    pub(crate) endpoint: Endpoint,
}

/// The address of a server, and the token for it.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) address: String,
    token: String,
}

/// A request whose body has not been sent.
pub(crate) struct HeldPost(BufReader<TcpStream>);

impl HeldPost {
    /// Sends the body. Returns the status code, and the whole response.
    pub(crate) fn finish(mut self, body: &str) -> (String, String) {
        self.0.get_mut().write_all(body.as_bytes()).unwrap();
        let mut answer = String::new();
        self.0.read_to_string(&mut answer).unwrap();
        (answer.split(' ').nth(1).unwrap_or_default().to_owned(), answer)
    }
}

/// A session of the legacy era.
pub(crate) struct Session {
    endpoint: Endpoint,
    id: String,
    last: u64,
}

/// A response: the session that its head names, and the messages in its body.
pub(crate) struct Reply {
    session: String,
    body: BufReader<TcpStream>,
    events: bool,
}

impl Server {
    pub(crate) fn start(dir: &TestDir) -> Self {
        Self::of(dir.command(&["serve", "--listen", "127.0.0.1:0"]), dir)
    }

    /// Starts a server with this command.
    pub(crate) fn of(command: Command, dir: &TestDir) -> Self {
        let running = Running::start(command);
        let line = running.says("serving http://");
        let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
        let token = std::fs::read_to_string(dir.data("token")).unwrap().trim().to_owned();
        Self { running, endpoint: Endpoint { address, token } }
    }
}

impl Endpoint {
    /// Returns the same address with another token.
    pub(crate) fn with_token(&self, token: &str) -> Self {
        Self { address: self.address.clone(), token: token.to_owned() }
    }

    /// Sends a POST request to `/mcp`. Returns `None` if the broker is not running.
    pub(crate) fn post(&self, body: &str, headers: &[(&str, &str)]) -> Option<Reply> {
        self.send("POST", body, headers)
    }

    /// Gets a path. Returns the status code, and the whole response.
    pub(crate) fn get(&self, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let (host, token) = (&self.address, &self.token);
        let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (answer.split(' ').nth(1).unwrap().to_owned(), answer)
    }

    /// Posts to a path. Returns the status code, and the whole response.
    pub(crate) fn post_to(&self, path: &str, body: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let (host, token, length) = (&self.address, &self.token, body.len());
        let request = format!(
            "POST {path} HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nContent-Type: \
             application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (answer.split(' ').nth(1).unwrap().to_owned(), answer)
    }

    /// Posts the head of a request, and returns once the broker wants its body: the caller is admitted then.
    pub(crate) fn begin_post(&self, path: &str, length: usize) -> HeldPost {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let (host, token) = (&self.address, &self.token);
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {length}\r\nConnection: close\r\n\
             Expect: 100-continue\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 100"), "{line}");
        stream.read_line(&mut line).unwrap();
        HeldPost(stream)
    }

    fn send(&self, method: &str, body: &str, headers: &[(&str, &str)]) -> Option<Reply> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        // HTTP/1.0: the body ends with the connection, and needs no decoding.
        let mut request = format!(
            "{method} /mcp HTTP/1.0\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n",
            self.address,
            self.token,
            body.len()
        );
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{request}\r\n{body}").as_bytes()).ok()?;
        Reply::read(BufReader::new(stream))
    }

    /// Opens a session whose agent has these capabilities.
    pub(crate) fn session(&self, capabilities: &Value) -> Session {
        let mut session = Session { endpoint: self.clone(), id: String::new(), last: 0 };
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": { "name": "suite", "version": "1" },
        });
        session.id = session.send("initialize", params).unwrap().session;
        assert!(!session.id.is_empty());
        session
    }

    /// Sends a modern request and returns its response.
    pub(crate) fn modern(&self, method: &str, params: Value) -> Option<Value> {
        self.send_modern(method, params)?.answer()
    }

    /// Sends a modern request of an agent with these capabilities and returns its response.
    pub(crate) fn modern_with(&self, capabilities: &Value, method: &str, params: Value) -> Option<Value> {
        self.say_modern(capabilities, Some(1), method, params)?.answer()
    }

    /// Sends a modern request.
    pub(crate) fn send_modern(&self, method: &str, params: Value) -> Option<Reply> {
        self.say_modern(&json!({}), Some(1), method, params)
    }

    /// Sends a modern request, or a notification if there is no id.
    pub(crate) fn say_modern(
        &self,
        capabilities: &Value,
        id: Option<u64>,
        method: &str,
        mut params: Value,
    ) -> Option<Reply> {
        let named = match method.split('/').next() {
            Some("tasks") => "taskId",
            Some("resources") => "uri",
            _ => "name",
        };
        let name = params[named].as_str().unwrap_or_default().to_owned();
        for (key, fact) in meta(capabilities).as_object().unwrap() {
            params["_meta"][key] = fact.clone();
        }
        let mut message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        if let Some(id) = id {
            message["id"] = json!(id);
        }
        let body = message.to_string();
        let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
        if !name.is_empty() {
            headers.push(("mcp-name", &name));
        }
        self.post(&body, &headers)
    }
}

impl Session {
    /// Sends a request. Returns `None` if the broker is not running.
    pub(crate) fn send(&mut self, method: &str, params: Value) -> Option<Reply> {
        self.last += 1;
        let body = json!({ "jsonrpc": "2.0", "id": self.last, "method": method, "params": params }).to_string();
        let id = self.id.clone();
        let headers = [("mcp-session-id", &*id), ("mcp-protocol-version", "2025-11-25")];
        self.endpoint.post(&body, if id.is_empty() { &[] } else { &headers })
    }

    /// Sends a notification.
    pub(crate) fn notify(&self, method: &str, params: &Value) {
        let body = json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string();
        let headers = [("mcp-session-id", &*self.id), ("mcp-protocol-version", "2025-11-25")];
        self.endpoint.post(&body, &headers).unwrap();
    }

    /// Opens the stream for messages that belong to no request.
    pub(crate) fn listen(&self) -> Option<Reply> {
        self.endpoint.send("GET", "", &[("mcp-session-id", &*self.id), ("mcp-protocol-version", "2025-11-25")])
    }

    pub(crate) fn send_call(&mut self, tool: &str, arguments: &Value) -> Option<Reply> {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": 1 } });
        self.send("tools/call", params)
    }

    /// Calls a tool and returns the [`outcome`], or `None` if the broker is not running.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Option<Value> {
        self.send_call(tool, arguments)?.answer().map(|answer| outcome(&answer))
    }
}

impl Reply {
    fn read(mut body: BufReader<TcpStream>) -> Option<Self> {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            body.read_line(&mut line).ok().filter(|read| *read > 0)?;
            if line.trim().is_empty() {
                break;
            }
            head.push(line.trim().to_owned());
        }
        let header = |name: &str| {
            let found = head.iter().filter_map(|line| line.split_once(": "));
            found.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).next()
        };
        let events = header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        Some(Self { session: header("mcp-session-id").unwrap_or_default(), body, events })
    }

    /// Returns the next message, or `None` at the end of the body or of the broker.
    pub(crate) fn next(&mut self) -> Option<Value> {
        if !self.events {
            let mut text = String::new();
            self.body.read_to_string(&mut text).ok()?;
            return serde_json::from_str(&text).ok();
        }
        loop {
            let mut line = String::new();
            self.body.read_line(&mut line).ok().filter(|read| *read > 0)?;
            if let Some(message) = line.strip_prefix("data:").and_then(|data| serde_json::from_str(data).ok()) {
                return Some(message);
            }
        }
    }

    /// Returns the response, after skipping all messages before it.
    pub(crate) fn answer(&mut self) -> Option<Value> {
        loop {
            let message = self.next()?;
            if message["method"].is_null() {
                return Some(message);
            }
        }
    }
}
