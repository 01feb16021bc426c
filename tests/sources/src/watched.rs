//! A modern source whose resources can be watched: it announces a change of each at once.

use serde_json::{Value, json};

use crate::send;

/// Handles a message. Returns false if the plain server must handle it.
pub(crate) fn hear(message: &Value) -> bool {
    let id = message.get("id").cloned().unwrap_or_default();
    let result = match message.get("method").and_then(Value::as_str).unwrap_or_default() {
        "server/discover" => json!({
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": { "tools": {}, "resources": { "subscribe": true } },
        }),
        "tools/list" => json!({ "tools": [] }),
        "resources/list" => {
            let resources = ["mem://b", "mem://c"].map(|uri| json!({ "uri": uri, "name": uri }));
            json!({ "resources": resources })
        }
        "resources/templates/list" => json!({ "resourceTemplates": [] }),
        "subscriptions/listen" => {
            let wanted = message.pointer("/params/notifications").cloned().unwrap_or_default();
            let of_stream = json!({ "io.modelcontextprotocol/subscriptionId": id });
            let say = |method: &str, params: Value| {
                send(&json!({ "jsonrpc": "2.0", "method": format!("notifications/{method}"), "params": params }));
            };
            say("subscriptions/acknowledged", json!({ "notifications": wanted, "_meta": of_stream }));
            for uri in wanted.get("resourceSubscriptions").and_then(Value::as_array).into_iter().flatten() {
                // Nobody watches the first.
                say("resources/updated", json!({ "uri": "mem://stray", "_meta": of_stream }));
                say("resources/updated", json!({ "uri": uri, "_meta": of_stream }));
            }
            return true;
        }
        _ => return false,
    };
    send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    true
}
