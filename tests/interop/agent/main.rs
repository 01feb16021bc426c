//! The broker's upstream side as the conformance suite's client: an agent that calls every tool of the suite's server by way
//! of `portcullis serve --stdio`. The suite starts this with the server's URL; the exit code says whether all was answered.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests"
)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

fn main() {
    let url = std::env::args().next_back().expect("the server's URL");
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let context: Value = std::env::var("MCP_CONFORMANCE_CONTEXT")
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    let place = tempfile::tempdir().unwrap();
    let configuration = format!(
        "[profiles.default]\napprove = \"never\"\nsampling = true\n\
         [sources.suite]\nurl = {}\ndangerous-allow-private = true\nnames = \"plain\"\ntimeout = \"20s\"\n",
        json!(url)
    );
    std::fs::write(place.path().join("portcullis.toml"), configuration).unwrap();
    let program = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("portcullis");
    let mut broker = Command::new(program)
        .args(["serve", "--stdio"])
        .current_dir(place.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut agent =
        Agent { out: broker.stdin.take().unwrap(), lines: BufReader::new(broker.stdout.take().unwrap()), last: 0 };
    agent.run(&scenario, &context);
    drop(agent);
    assert!(broker.wait().unwrap().success());
}

struct Agent {
    out: ChildStdin,
    lines: BufReader<ChildStdout>,
    last: u64,
}

impl Agent {
    fn run(&mut self, scenario: &str, context: &Value) {
        let capabilities = json!({ "elicitation": {}, "sampling": {}, "roots": {} });
        let client = json!({ "name": "conformance-agent", "version": "1" });
        self.request(
            "initialize",
            &json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": client }),
        );
        self.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        let listed = self.request("tools/list", &json!({}));
        let tools = listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{scenario}: {listed}")).clone();
        let wanted = context["toolCalls"].as_array().cloned().unwrap_or_else(|| tools.iter().map(call_of).collect());
        // There the list is all that the server has.
        let listed_only = scenario == "json-schema-ref-no-deref";
        for call in wanted.into_iter().filter(|_| !listed_only) {
            let answer = self.request("tools/call", &call);
            assert!(answer["result"].is_object(), "{scenario}: {call} was answered with {answer}");
        }
        for (list, read, key) in [("prompts", "prompts/get", "name"), ("resources", "resources/read", "uri")] {
            let listed = self.request(&format!("{list}/list"), &json!({}));
            for item in listed["result"][list].as_array().into_iter().flatten() {
                self.request(read, &json!({ key: item[key] }));
            }
        }
    }

    /// Sends a request and gives its answer; what is asked on the way is answered.
    fn request(&mut self, method: &str, params: &Value) -> Value {
        self.last += 1;
        let id = self.last;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the broker ended during {method}");
            let message: Value = serde_json::from_str(&line).unwrap();
            match message["method"].as_str() {
                Some(method) if !message["id"].is_null() => {
                    let result = answer(method, &message["params"]);
                    self.say(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }));
                }
                Some(_) => {}
                None if message["id"] == id => return message,
                None => {}
            }
        }
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.out, "{message}").unwrap();
    }
}

/// A call with a value for each argument.
fn call_of(tool: &Value) -> Value {
    let properties = tool["inputSchema"]["properties"].as_object().cloned().unwrap_or_default();
    let value = |schema: &Value| match schema["type"].as_str() {
        Some("number" | "integer") => json!(1),
        Some("boolean") => json!(true),
        Some("object") => json!({}),
        Some("array") => json!([]),
        _ => json!("value"),
    };
    let arguments: serde_json::Map<_, _> =
        properties.iter().map(|(name, schema)| (name.clone(), value(schema))).collect();
    json!({ "name": tool["name"], "arguments": arguments })
}

/// What an agent with a willing person and a model says.
fn answer(method: &str, params: &Value) -> Value {
    match method {
        "elicitation/create" => {
            let properties = params["requestedSchema"]["properties"].as_object().cloned().unwrap_or_default();
            let field = |(name, schema): (&String, &Value)| {
                let value = match (schema.get("default"), schema["type"].as_str()) {
                    (Some(default), _) => default.clone(),
                    (None, Some("boolean")) => json!(true),
                    (None, Some("number" | "integer")) => json!(1),
                    (None, _) => json!("value"),
                };
                (name.clone(), value)
            };
            let content: serde_json::Map<_, _> = properties.iter().map(field).collect();
            json!({ "action": "accept", "content": content })
        }
        "sampling/createMessage" => {
            json!({ "role": "assistant", "model": "none", "content": { "type": "text", "text": "words" } })
        }
        "roots/list" => json!({ "roots": [] }),
        _ => json!({}),
    }
}
