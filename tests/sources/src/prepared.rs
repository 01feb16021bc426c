//! A source whose lists and results are prepared: the second argument is a JSON object with `tools` and, by the name of
//! a tool, `results` and the messages of `errors`. A call of a tool without a prepared result is answered with its
//! arguments.

use std::io::BufRead as _;
use std::process::exit;

use serde_json::{Value, json};

use crate::{argument, send};

pub(crate) fn run() -> ! {
    let prepared: Value = serde_json::from_str(&argument(2)).unwrap_or_default();
    for text in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str::<Value>(&text) else { continue };
        let Some(id) = message.get("id") else { continue };
        let params = message.get("params").cloned().unwrap_or_default();
        let answer = match message.get("method").and_then(Value::as_str).unwrap_or_default() {
            "initialize" => Some(json!({
                "protocolVersion": params.get("protocolVersion"),
                "capabilities": { "tools": {}, "resources": {} },
                "serverInfo": { "name": "prepared", "version": "1" },
            })),
            "tools/list" => Some(json!({ "tools": prepared.get("tools") })),
            "resources/list" => Some(json!({ "resources": [] })),
            "resources/read" => {
                let uri = params.get("uri");
                Some(json!({ "contents": [{ "uri": uri, "text": "from the source" }] }))
            }
            "tools/call" => {
                let name = params.get("name").and_then(Value::as_str).unwrap_or_default();
                let echo = || {
                    let text = params.get("arguments").map(Value::to_string);
                    json!({ "content": [{ "type": "text", "text": text }] })
                };
                Some(prepared.pointer(&format!("/results/{name}")).cloned().unwrap_or_else(echo))
            }
            _ => None,
        };
        let named = params.get("name").and_then(Value::as_str).unwrap_or_default();
        let prepared_error = prepared.pointer(&format!("/errors/{named}"));
        let error = || match prepared_error {
            Some(message) => json!({ "code": -32000, "message": message }),
            None => json!({ "code": -32601, "message": "no such method" }),
        };
        match answer.filter(|_| prepared_error.is_none()) {
            Some(result) => send(&json!({ "jsonrpc": "2.0", "id": id, "result": result })),
            None => send(&json!({ "jsonrpc": "2.0", "id": id, "error": error() })),
        }
    }
    exit(0)
}
