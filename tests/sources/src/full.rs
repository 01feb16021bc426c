//! A source with every feature: prompts, resources, subscriptions, completion, tasks and logging; it also asks the
//! agent.

use serde_json::{Value, json};

use crate::send;

/// A resource that changes whenever another one is watched.
const LOUD: &str = "mem://t/loud";

#[derive(Default)]
pub(crate) struct Full {
    /// The ids of the questions of this source, each with the id of the call that waits for its answer, or null for a
    /// call that is never answered.
    waiting: Vec<(Value, Value)>,
    /// The number of calls of the tool `page`; every second one succeeds.
    pages: usize,
    tasks: Vec<String>,
    /// True once somebody watches [`LOUD`].
    loud: bool,
    /// The log level that was set last.
    level: String,
}

impl Full {
    /// Handles a message. Returns false if the plain server must handle it.
    pub(crate) fn hear(&mut self, message: &Value) -> bool {
        let id = message.get("id").cloned().unwrap_or_default();
        let params = message.get("params").cloned().unwrap_or_default();
        let text = |key: &str| params.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let result = match message.get("method").and_then(Value::as_str).unwrap_or_default() {
            "" => return self.answered(message),
            "notifications/progress" | "notifications/tasks/status" => {
                let heard = json!({ "level": "info", "data": { "heard": params } });
                send(&json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": heard }));
                return true;
            }
            "initialize" => json!({
                "protocolVersion": params.get("protocolVersion"),
                "capabilities": {
                    "tools": {}, "prompts": {}, "resources": { "subscribe": true }, "completions": {}, "logging": {},
                    "tasks": { "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } },
                },
                "serverInfo": { "name": "full", "version": "1" },
            }),
            "tools/list" => {
                let tool = |name| json!({ "name": name, "inputSchema": { "type": "object" } });
                let tools = ["elicit", "linger", "secret", "sample", "page", "say", "level", "cancelled"].map(tool);
                json!({ "tools": tools })
            }
            "tools/call" if params.get("task").is_some() => {
                // The id is a time: processes in different cells have the same pid, but no two calls begin at the same
                // time.
                self.tasks
                    .push(format!("task-{}", std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos())));
                json!({ "task": { "taskId": self.tasks.last(), "status": "working" } })
            }
            "tasks/get" => json!({ "taskId": text("taskId"), "status": "completed" }),
            "tasks/result" => json!({ "content": [{ "type": "text", "text": text("taskId") }] }),
            "tasks/list" => {
                let all = self.tasks.iter().map(String::as_str).chain(["task-of-somebody-else"]);
                json!({ "tasks": all.map(|id| json!({ "taskId": id })).collect::<Vec<_>>() })
            }
            "tools/call" if text("name") == "page" => {
                self.pages += 1;
                if self.pages % 2 == 1 {
                    page(&id, self.pages);
                    return true;
                }
                json!({ "content": [{ "type": "text", "text": "opened" }] })
            }
            "tools/call" if text("name") == "say" => {
                say(&params);
                json!({ "content": [{ "type": "text", "text": "said to ann@example.com" }] })
            }
            "tools/call" if text("name") == "level" => json!({ "content": [{ "type": "text", "text": self.level }] }),
            "tools/call" if text("name") == "cancelled" => return false,
            "tools/call" => {
                self.ask(&text("name"), &params, id);
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
                let uri = text("uri");
                // A loud one continues, preceded by one that nobody watches.
                self.loud |= uri == LOUD;
                for uri in self.loud.then_some(["mem://t/stray", LOUD]).into_iter().flatten().chain([&*uri]) {
                    let uri = json!({ "uri": uri });
                    send(&json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": uri }));
                }
                json!({})
            }
            "logging/setLevel" => {
                self.level = text("level");
                json!({})
            }
            "resources/unsubscribe" => json!({}),
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

    fn ask(&mut self, tool: &str, params: &Value, call: Value) {
        let about = params.pointer("/arguments/about").and_then(Value::as_str).unwrap_or_default();
        let message = format!("Your name? {about}");
        let form = |field: &str| {
            let schema = json!({ "type": "object", "properties": { field: { "type": "string" } } });
            json!({ "message": message.trim_end(), "requestedSchema": schema, "_meta": { "progressToken": "asked" } })
        };
        let (method, params) = match tool {
            "elicit" | "linger" => ("elicitation/create", form("name")),
            "secret" => ("elicitation/create", form("password")),
            _ => ("sampling/createMessage", json!({ "messages": [], "maxTokens": 1 })),
        };
        let id = json!(format!("question {}", self.waiting.len()));
        send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        self.waiting.push((id, if tool == "linger" { Value::Null } else { call }));
    }

    /// Passes the answer to a question on as the response to the call for which it was asked.
    fn answered(&mut self, message: &Value) -> bool {
        let id = message.get("id").cloned().unwrap_or_default();
        let Some((_, call)) = self.waiting.iter().find(|(question, _)| *question == id) else { return false };
        if call.is_null() {
            send(&json!({ "jsonrpc": "2.0", "method": "vendor/answered" }));
            return true;
        }
        let said = message.get("result").or_else(|| message.get("error")).cloned().unwrap_or_default();
        let result = json!({ "content": [{ "type": "text", "text": said.to_string() }] });
        send(&json!({ "jsonrpc": "2.0", "id": call, "result": result }));
        true
    }
}

/// Refuses the call because a page must be opened first, and reports at once that the page was opened.
fn page(call: &Value, number: usize) {
    let page = json!({
        "mode": "url", "elicitationId": format!("page {number}"), "url": "https://pages.example/1", "message": "Sign in",
    });
    // The number has a spelling that no parser keeps.
    let data = format!(r#"{{ "elicitations":[{page}],"vendor":1.0e2}}"#);
    crate::line(&format!(
        r#"{{"jsonrpc":"2.0","id":{call},"error":{{"code":-32042,"message":"sign in first","data":{data}}}}}"#
    ));
    let id = json!({ "elicitationId": format!("page {number}") });
    send(&json!({ "jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": id }));
}

/// Sends every kind of notification that can accompany an answer.
fn say(params: &Value) {
    let mail = "to ann@example.com";
    let token = params.pointer("/_meta/progressToken");
    let progress = json!({ "progressToken": token, "progress": 1, "message": mail });
    for (method, params) in [
        ("notifications/progress", progress),
        // The token has no meaning here, and is text like any other.
        ("notifications/message", json!({ "level": "error", "data": mail, "progressToken": mail })),
        ("notifications/vendor", json!({ "text": mail })),
    ] {
        send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }
}
