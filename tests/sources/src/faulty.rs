//! A source that fails as a script says, over stdio, streamable HTTP or HTTP with SSE.
//!
//! The script is a file. Each connection takes its first line; the last line holds for all connections that follow. A
//! line consists of words; each is a fault, or `well`. Without a script there are no faults. The tool is `echo`.

pub(crate) mod web;

use std::fs::File;
use std::io::{BufRead, Read as _, Seek as _, SeekFrom, Write};
use std::process::exit;
use std::time::Duration;

use serde_json::{Value, json};

pub(crate) use web::serve;

/// The delay of each page of an endless list after the first: short enough for the timeout of a page, and too long for
/// that of the whole list.
const SLOW_PAGE: Duration = Duration::from_secs(16);

/// The delay before a source acknowledges a subscription: shorter than the broker waits for it, and long enough that a
/// broker that does not wait is ahead of it. Nothing that the test could await tells that the broker waits.
const SLOW_TO_LISTEN: Duration = Duration::from_millis(50);

/// The interval at which a source that waits for a file looks for it.
const LOOK: Duration = Duration::from_millis(10);

/// The faults of one connection.
pub(crate) struct Faults {
    words: String,
    /// The path of the script. The files that some faults wait for are next to it.
    script: String,
    lists: usize,
    /// The id of the request by which the other side subscribed to changes.
    listener: Option<Value>,
}

/// The reaction to a message.
pub(crate) enum Reaction {
    /// Sends these messages, in this order.
    Say(Vec<Value>),
    /// Sends the message one byte at a time.
    Drip(Value),
    /// Sends the first half of the message and ends the connection.
    Half(Value),
    /// Sends nothing.
    Silence,
    /// Ends the process.
    Exit,
    /// Answers with an HTTP status.
    Status(u16),
}

impl Faults {
    /// Takes the faults of the next connection from the script.
    pub(crate) fn next(script: &str) -> Self {
        // A script that may only be read is never used up.
        let words = take(script).or_else(|_| std::fs::read_to_string(script)).unwrap_or_default();
        Self { words, script: script.to_owned(), lists: 0, listener: None }
    }

    pub(crate) fn has(&self, fault: &str) -> bool {
        self.words.split(' ').any(|word| word == fault)
    }

    pub(crate) fn hear(&mut self, message: &Value) -> Reaction {
        let id = message.get("id");
        let params = message.get("params").unwrap_or(&Value::Null);
        let answer = |result: Value| json!({ "jsonrpc": "2.0", "id": id, "result": result });
        if self.has("mute") && self.lists > 0 {
            return Reaction::Silence;
        }
        match message.get("method").and_then(Value::as_str).unwrap_or_default() {
            "notifications/cancelled" if self.has("late") => {
                let said = json!({ "content": [{ "type": "text", "text": "too late" }] });
                Reaction::Say(vec![json!({ "jsonrpc": "2.0", "id": params.get("requestId"), "result": said })])
            }
            "server/discover" if self.has("modern") => Reaction::Say(vec![answer(json!({
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": self.capabilities(),
            }))]),
            "subscriptions/listen" if self.has("never-acknowledges") => Reaction::Silence,
            "subscriptions/listen" if self.has("modern") => {
                if self.has("slow-to-listen") {
                    std::thread::sleep(SLOW_TO_LISTEN);
                    // A failure shows in the test that looks for the file.
                    let _ = File::create(format!("{}.subscribed", self.script));
                }
                self.listener = id.cloned();
                let acknowledged =
                    json!({ "notifications": params.get("notifications"), "_meta": self.subscription() });
                let method = "notifications/subscriptions/acknowledged";
                Reaction::Say(vec![json!({ "jsonrpc": "2.0", "method": method, "params": acknowledged })])
            }
            "initialize" if self.has("hang-initialize") => Reaction::Silence,
            "initialize" => {
                self.wait_if("waits");
                let mut result = json!({
                    "protocolVersion": params.get("protocolVersion"),
                    "capabilities": self.capabilities(),
                    "serverInfo": { "name": "faulty", "version": "1" },
                });
                if let Some(result) = result.as_object_mut().filter(|_| self.has("instructs")) {
                    result.insert("instructions".to_owned(), json!("be brief"));
                }
                Reaction::Say(vec![answer(result)])
            }
            "tools/list" if self.has("slow-pages") && self.lists > 0 => {
                self.lists += 1;
                std::thread::sleep(SLOW_PAGE);
                Reaction::Say(vec![answer(json!({ "tools": [], "nextCursor": self.lists.to_string() }))])
            }
            "tools/list" => {
                self.lists += 1;
                let schema = match self.has("other-schema") {
                    true => json!({ "type": "object", "properties": { "q": { "type": "string" } } }),
                    false => json!({ "type": "object" }),
                };
                let hints = if self.has("idempotent") { json!({ "idempotentHint": true }) } else { json!({}) };
                let tool = |name| json!({ "name": name, "inputSchema": schema, "annotations": hints });
                let mut tools = vec![tool("echo".to_owned())];
                if self.has("erases") {
                    let erases = json!({ "destructiveHint": true });
                    tools.push(json!({ "name": "erase", "inputSchema": schema, "annotations": erases }));
                }
                if self.has("wanders") {
                    let wanders = json!({ "openWorldHint": true });
                    tools.push(json!({ "name": "wander", "inputSchema": schema, "annotations": wanders }));
                }
                if self.has("restless") {
                    tools.push(tool(format!("number-{}", self.lists)));
                }
                Reaction::Say(vec![answer(json!({ "tools": tools }))])
            }
            "prompts/list" if self.has("prompts") => {
                let said = if self.has("other-prompt") { "another" } else { "a prompt" };
                Reaction::Say(vec![answer(json!({ "prompts": [{ "name": "greet", "description": said }] }))])
            }
            "prompts/get" if self.has("prompts") => {
                let said = json!({ "role": "user", "content": { "type": "text", "text": "Hello" } });
                Reaction::Say(vec![answer(json!({ "messages": [said] }))])
            }
            "resources/list" if self.has("grows") => {
                self.lists += 1;
                let resource = |number| json!({ "uri": format!("mem://{number}"), "name": "a page" });
                let resources: Vec<_> = (0..self.lists).map(resource).collect();
                Reaction::Say(vec![answer(json!({ "resources": resources }))])
            }
            "tools/call" => self.call(id, params),
            _ if id.is_none() => Reaction::Say(Vec::new()),
            "ping" => Reaction::Say(vec![answer(json!({}))]),
            _ => {
                let error = json!({ "code": -32601, "message": "method not found" });
                Reaction::Say(vec![json!({ "jsonrpc": "2.0", "id": id, "error": error })])
            }
        }
    }

    /// Returns what the source declares.
    fn capabilities(&self) -> Value {
        let mut all = json!({ "tools": { "listChanged": true } });
        let more = [
            ("logs", "logging", json!({})),
            ("prompts", "prompts", json!({ "listChanged": true })),
            ("grows", "resources", json!({})),
        ];
        if let Some(all) = all.as_object_mut() {
            all.extend(more.into_iter().filter(|(word, ..)| self.has(word)).map(|(_, key, of)| (key.to_owned(), of)));
        }
        all
    }

    /// Waits for the file next to the script that ends in `.go`, if the connection has this fault.
    fn wait_if(&self, fault: &str) {
        while self.has(fault) && !std::fs::exists(format!("{}.go", self.script)).unwrap_or(false) {
            std::thread::sleep(LOOK);
        }
    }

    fn call(&self, id: Option<&Value>, params: &Value) -> Reaction {
        self.wait_if("waits-in-call");
        let text = params.get("arguments").map(ToString::to_string);
        let result = json!({ "content": [{ "type": "text", "text": text }] });
        let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        for (fault, reaction) in [
            ("exit-in-call", Reaction::Exit),
            ("hang-call", Reaction::Silence),
            ("late", Reaction::Silence),
            ("drip", Reaction::Drip(answer.clone())),
            ("half", Reaction::Half(answer.clone())),
            ("unavailable", Reaction::Status(503)),
            ("forget", Reaction::Status(404)),
            ("redirect", Reaction::Status(307)),
        ] {
            if self.has(fault) {
                return reaction;
            }
        }
        if self.has("asks") && params.get("requestState").is_none() {
            let form = json!({ "type": "object", "properties": {} });
            let asked = json!({ "mode": "form", "message": "Which?", "requestedSchema": form });
            let result = json!({
                "resultType": "input_required",
                "inputRequests": { "which": { "method": "elicitation/create", "params": asked } },
                "requestState": "begun",
            });
            return Reaction::Say(vec![json!({ "jsonrpc": "2.0", "id": id, "result": result })]);
        }
        if self.has("tool-error") {
            let result = json!({ "content": [{ "type": "text", "text": "no" }], "isError": true });
            return Reaction::Say(vec![json!({ "jsonrpc": "2.0", "id": id, "result": result })]);
        }
        if self.has("rpc-error") {
            let error = json!({ "code": -32602, "message": "no" });
            return Reaction::Say(vec![json!({ "jsonrpc": "2.0", "id": id, "error": error })]);
        }
        let mut said = vec![answer.clone()];
        if self.has("wrong-id") {
            said.insert(0, json!({ "jsonrpc": "2.0", "id": 1_000_000, "result": {} }));
        }
        if self.has("duplicate") {
            said.push(answer);
        }
        if self.has("changes") {
            let changed = |list| json!({ "jsonrpc": "2.0", "method": format!("notifications/{list}/list_changed") });
            said.splice(0..0, (0..10_000).flat_map(|_| [changed("tools"), changed("resources")]));
        }
        if self.has("restless") || self.listener.is_some() {
            let params = json!({ "_meta": self.subscription() });
            let method =
                format!("notifications/{}/list_changed", if self.has("prompts") { "prompts" } else { "tools" });
            said.insert(0, json!({ "jsonrpc": "2.0", "method": method, "params": params }));
        }
        Reaction::Say(said)
    }

    /// Returns the `_meta` of messages on the stream for changes.
    fn subscription(&self) -> Value {
        self.listener.as_ref().map_or(json!({}), |id| json!({ "io.modelcontextprotocol/subscriptionId": id }))
    }
}

/// Takes the first line of the script; the last line stays. The file is locked, because the rest is written back.
fn take(script: &str) -> std::io::Result<String> {
    let mut file = File::options().read(true).write(true).open(script)?;
    file.lock()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let Some((first, rest)) = text.split_once('\n') else { return Ok(text) };
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(rest.as_bytes())?;
    Ok(first.to_owned())
}

/// Serves over standard input and output.
pub(crate) fn pipe(script: &str) -> ! {
    let mut faults = Faults::next(script);
    if faults.has("exit-at-start") {
        eprintln!("not today");
        exit(3);
    }
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        let mut out = std::io::stdout().lock();
        // A failed write means that the reader is gone; then the input ends, too.
        let _ = match faults.hear(&message) {
            Reaction::Say(all) => all.iter().try_for_each(|said| writeln!(out, "{said}")).and_then(|()| out.flush()),
            Reaction::Drip(said) => drip(&mut out, format!("{said}\n").as_bytes()),
            Reaction::Half(said) => {
                let text = said.to_string();
                let _ =
                    out.write_all(text.as_bytes().get(..text.len() / 2).unwrap_or_default()).and_then(|()| out.flush());
                exit(4)
            }
            Reaction::Silence | Reaction::Status(_) => Ok(()),
            Reaction::Exit => exit(5),
        };
    }
    exit(0)
}

fn drip(out: &mut impl Write, bytes: &[u8]) -> std::io::Result<()> {
    for byte in bytes {
        out.write_all(&[*byte])?;
        out.flush()?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
