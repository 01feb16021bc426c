//! A source of both eras, as today's SDKs build them: the first request of a process decides which era it speaks, and
//! from then on it refuses the other. Its tools ask questions and log only in the legacy era.

use std::io::BufRead as _;
use std::process::exit;

use serde_json::{Value, json};

use crate::{line, send};

/// The era that this process speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Era {
    Legacy,
    Modern,
}

/// The tool lists of the two eras: the same tools, with different bytes and descriptions.
const LEGACY_TOOLS: &str = r#"{ "tools":[{"inputSchema":{"properties":{},"type":"object"},"name":"elicit","description":"asks"},{"name":"log","inputSchema":{"type":"object"}},{"name":"which","inputSchema":{"type":"object"}},{"name":"gone","inputSchema":{"type":"object"}}] ,"vendor":1.0,"_meta":{"vendor.example/a":1.50}}"#;
const MODERN_TOOLS: &str = r#"{"tools":[{"name":"elicit","description":"asks by its result","inputSchema":{"type":"object","properties":{}}},{"name":"log","inputSchema":{"type":"object"}},{"name":"which","inputSchema":{"type":"object"}},{"name":"gone","inputSchema":{"type":"object"}}],"resultType":"complete","ttlMs":0,"cacheScope":"private","vendor":2.0,"_meta":{"vendor.example/a":2.50}}"#;

/// Serves over standard input and output. `variant` is `quiet` for a source without log messages, and otherwise empty.
pub(crate) fn run(variant: &str) -> ! {
    let mut era = None;
    let mut asked = None;
    for text in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str::<Value>(&text) else { continue };
        let Some(method) = message.get("method").and_then(Value::as_str) else {
            // The answer to the question becomes the answer to the call.
            if let Some(call) = asked.take() {
                let said = message.get("result").or_else(|| message.get("error")).cloned().unwrap_or_default();
                say(&call, &said.to_string(), false);
            }
            continue;
        };
        let Some(id) = message.get("id") else { continue };
        let params = message.get("params").unwrap_or(&Value::Null);
        let opens = if method == "initialize" { Era::Legacy } else { Era::Modern };
        let era = *era.get_or_insert(opens);
        let modern = params.pointer("/_meta/io.modelcontextprotocol~1protocolVersion").is_some();
        if (era == Era::Modern) != modern {
            let data = json!({ "supported": ["2026-07-28"], "requested": params.get("protocolVersion") });
            let error = json!({ "code": -32022, "message": "this process speaks the other era", "data": data });
            send(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
            continue;
        }
        match (method, params.get("name").and_then(Value::as_str), era) {
            ("initialize", ..) => answer(id, &initialized(variant, params)),
            ("server/discover", ..) => answer(id, &discovered()),
            ("tools/list", _, Era::Legacy) => {
                line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{LEGACY_TOOLS}}}"#))
            }
            ("tools/list", _, Era::Modern) => {
                line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{MODERN_TOOLS}}}"#))
            }
            ("tools/call", Some("elicit"), Era::Legacy) => {
                let form = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
                let params = json!({ "message": "Your name?", "requestedSchema": form });
                send(&json!({ "jsonrpc": "2.0", "id": "question", "method": "elicitation/create", "params": params }));
                asked = Some(id.clone());
            }
            ("tools/call", Some("elicit"), Era::Modern) => say(id, "nobody can be asked on this connection", true),
            ("tools/call", Some("log"), _) => {
                if era == Era::Legacy {
                    let params = json!({ "level": "info", "data": "a line of the log" });
                    send(&json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": params }));
                }
                say(id, "logged", false);
            }
            ("tools/call", Some("which"), _) => {
                let name = if era == Era::Legacy { "legacy" } else { "modern" };
                say(id, &format!("{name} {}", crate::born()), false);
            }
            ("tools/call", Some("gone"), _) => refuse(id, -32002, "there is no such thing"),
            ("ping", _, Era::Legacy) => answer(id, &json!({})),
            _ => refuse(id, -32601, "method not found"),
        }
    }
    exit(0)
}

fn initialized(variant: &str, params: &Value) -> Value {
    let capabilities = if variant == "quiet" { json!({ "tools": {} }) } else { json!({ "tools": {}, "logging": {} }) };
    json!({
        "protocolVersion": params.get("protocolVersion"),
        "capabilities": capabilities,
        "serverInfo": { "name": "dual", "version": "1" },
    })
}

fn discovered() -> Value {
    json!({
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": { "tools": {}, "logging": {} },
        "ttlMs": 0,
        "cacheScope": "private",
    })
}

fn answer(id: &Value, result: &Value) {
    send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
}

fn refuse(id: &Value, code: i32, why: &str) {
    send(&json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": why } }));
}

fn say(call: &Value, text: &str, failed: bool) {
    answer(call, &json!({ "content": [{ "type": "text", "text": text }], "isError": failed }));
}
