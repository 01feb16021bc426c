//! A source that has everything: prompts, resources, subscriptions, completion; and that asks.

use serde_json::{Value, json};

use crate::send;

/// The requests of the agent that wait for what this source has asked, by the id of the question.
#[derive(Default)]
pub(crate) struct Full {
    waiting: Vec<(Value, Value)>,
}

impl Full {
    /// Takes a message. True if it was one for this source.
    pub(crate) fn hear(&mut self, message: &Value) -> bool {
        let id = message.get("id").cloned().unwrap_or_default();
        let params = message.get("params").cloned().unwrap_or_default();
        let text = |key: &str| params.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let result = match message.get("method").and_then(Value::as_str).unwrap_or_default() {
            "" => return self.answered(message),
            "initialize" => json!({
                "protocolVersion": params.get("protocolVersion"),
                "capabilities": {
                    "tools": {}, "prompts": {}, "resources": { "subscribe": true }, "completions": {}, "logging": {},
                },
                "serverInfo": { "name": "full", "version": "1" },
            }),
            "tools/list" => {
                let tool = |name| json!({ "name": name, "inputSchema": { "type": "object" } });
                let tools = ["elicit", "secret", "sample"].map(tool);
                json!({ "tools": tools })
            }
            "tools/call" => {
                self.ask(&text("name"), id);
                return true;
            }
            "prompts/list" => json!({ "prompts": [{ "name": "greet", "arguments": [{ "name": "who" }] }] }),
            "prompts/get" => {
                let said = format!("{} {}", text("name"), params.get("arguments").unwrap_or(&Value::Null));
                json!({ "messages": [
                    { "role": "user", "content": { "type": "text", "text": said } },
                    { "role": "user", "content": { "type": "resource", "resource": { "uri": "mem://a", "text": "" } } },
                ] })
            }
            "resources/list" => json!({ "resources": [{ "uri": "mem://a", "name": "a" }] }),
            "resources/templates/list" => {
                json!({ "resourceTemplates": [{ "uriTemplate": "mem://t/{id}", "name": "t" }] })
            }
            "resources/read" => json!({ "contents": [{ "uri": text("uri"), "text": "content" }] }),
            "resources/subscribe" => {
                let uri = json!({ "uri": text("uri") });
                send(&json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": uri }));
                json!({})
            }
            "resources/unsubscribe" | "logging/setLevel" => json!({}),
            "completion/complete" => {
                let about = params.get("ref").cloned().unwrap_or_default();
                let name = about.get("name").or_else(|| about.get("uri")).cloned().unwrap_or_default();
                json!({ "completion": { "values": [name] } })
            }
            _ => return false,
        };
        send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
        true
    }

    fn ask(&mut self, tool: &str, call: Value) {
        let form = |field: &str| {
            let schema = json!({ "type": "object", "properties": { field: { "type": "string" } } });
            json!({ "message": "Your name?", "requestedSchema": schema })
        };
        let (method, params) = match tool {
            "elicit" => ("elicitation/create", form("name")),
            "secret" => ("elicitation/create", form("password")),
            _ => ("sampling/createMessage", json!({ "messages": [], "maxTokens": 1 })),
        };
        let id = json!(format!("question {}", self.waiting.len()));
        send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        self.waiting.push((id, call));
    }

    /// Gives the answer to a question as the answer to the call that it was asked for.
    fn answered(&mut self, message: &Value) -> bool {
        let id = message.get("id").cloned().unwrap_or_default();
        let Some((_, call)) = self.waiting.iter().find(|(question, _)| *question == id) else { return false };
        let said = message.get("result").or_else(|| message.get("error")).cloned().unwrap_or_default();
        let result = json!({ "content": [{ "type": "text", "text": said.to_string() }] });
        send(&json!({ "jsonrpc": "2.0", "id": call, "result": result }));
        true
    }
}
