//! Tests of the modern era, which is stateless.

use super::*;
use crate::front::testing::meta;

/// Longer than anything takes on a slow machine.
const ANSWER_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(120);

impl Server {
    fn modern(&self, method: &str, mut params: Value, capabilities: &Value) -> reqwest::RequestBuilder {
        let name = params["name"].as_str().map(str::to_owned);
        params["_meta"] = meta(capabilities);
        let request = self.post(call(1, method, params)).header("mcp-protocol-version", "2026-07-28");
        let request = request.header("mcp-method", method);
        if let Some(name) = name { request.header("mcp-name", name) } else { request }
    }
}

async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    assert!(!response.headers().contains_key("mcp-session-id"));
    (response.status().as_u16(), response.json().await.unwrap())
}

#[tokio::test]
async fn modern_requests_need_no_handshake_and_no_session_id() {
    let server = Server::new().await;
    let none = json!({});
    let (status, found) = answer(server.modern("server/discover", json!({}), &none)).await;
    assert_eq!((status, &found["result"]["supportedVersions"]), (200, &json!(["2026-07-28"])));
    let (_, list) = answer(server.modern("tools/list", json!({}), &none)).await;
    server.events.expect("open default token test/1").await;
    assert_eq!(list["result"]["cacheScope"], "private");
    let (_, echo) = answer(server.modern("tools/call", json!({ "name": "echo" }), &none)).await;
    assert_eq!(echo["result"]["resultType"], "complete");
    let forms = json!({ "elicitation": {} });
    let (_, asked) = answer(server.modern("tools/call", json!({ "name": "ask" }), &forms)).await;
    assert_eq!(asked["result"]["resultType"], "input_required");
    // A client with other capabilities gets another session: what a source shows may depend on them.
    server.events.expect("open default token test/1").await;
    let (status, unknown) = answer(server.modern("nonsense", json!({}), &none)).await;
    assert_eq!((status, &unknown["error"]["code"]), (404, &json!(-32601)));
    let say = async |method: &str, params: serde_json::Value| {
        let said = json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string();
        let said = server.post(said).header("mcp-protocol-version", "2026-07-28").header("mcp-method", method);
        said.send().await.unwrap().status().as_u16()
    };
    // A notification of the protocol's own is ignored; any other goes to the session of the client that it names.
    assert_eq!(say("notifications/cancelled", json!({ "requestId": 1 })).await, 202);
    assert_eq!(say("notifications/x", json!({ "_meta": meta(&none) })).await, 202);
    server.events.expect("notifications/x").await;
    let other = json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "2030-01-01" } });
    assert_eq!(say("notifications/x", other).await, 400);
    for method in [reqwest::Method::GET, reqwest::Method::DELETE] {
        let refused = server.request(method).header("mcp-protocol-version", "2026-07-28").send().await.unwrap();
        assert_eq!((refused.status().as_u16(), &refused.headers()["allow"]), (405, &"POST".parse().unwrap()));
    }
    // No request opened a session beyond these two.
    server.stop().await.expect("close").await;
}

#[tokio::test]
async fn a_method_that_the_modern_revision_removed_is_not_found_whatever_its_headers() {
    let server = Server::new().await;
    for method in ["resources/subscribe", "resources/unsubscribe", "logging/setLevel", "tasks/result"] {
        let body = call(1, method, json!({ "uri": "mem://x", "_meta": meta(&json!({})) }));
        let bare = server.post(body.clone()).header("mcp-protocol-version", "2026-07-28");
        let whole = server.post(body).header("mcp-protocol-version", "2026-07-28").header("mcp-method", method);
        for request in [bare, whole.header("mcp-name", "mem://x")] {
            let (status, answer) = answer(request).await;
            assert_eq!((status, &answer["error"]["code"]), (404, &json!(-32601)), "{method}");
            assert_eq!(answer["id"], 1);
        }
    }
}

#[tokio::test]
async fn headers_that_disagree_with_the_body_are_refused() {
    let server = Server::new().await;
    let body =
        |meta: Value| call(5, "tools/call", json!({ "name": "slow", "arguments": { "region": "eu" }, "_meta": meta }));
    let good = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "slow"),
        ("mcp-param-region", "eu"),
    ];
    let refused = async |body: String, name: &str, value: Option<&str>| {
        let mut request = server.post(body);
        for (header, usual) in good {
            let value = if header == name { value } else { Some(usual) };
            request = value.into_iter().fold(request, |request, value| request.header(header, value));
        }
        let (status, answer) = answer(request).await;
        assert_eq!((status, &answer["id"]), (400, &json!(5)), "{name} {value:?}");
        answer["error"]["code"].as_i64().unwrap()
    };
    for (name, _) in good {
        assert_eq!(refused(body(meta(&json!({}))), name, None).await, -32020, "{name}");
    }
    for (name, value) in [("mcp-method", "tools/list"), ("mcp-name", "echo"), ("mcp-param-region", "us")] {
        assert_eq!(refused(body(meta(&json!({}))), name, Some(value)).await, -32020, "{name}");
    }
    let mut other = meta(&json!({}));
    other["io.modelcontextprotocol/protocolVersion"] = json!("2031-01-01");
    assert_eq!(refused(body(other.clone()), "", None).await, -32020);
    assert_eq!(refused(body(other), "mcp-protocol-version", Some("2031-01-01")).await, -32022);
    assert_eq!(refused(body(json!({})), "", None).await, -32602);
}

#[tokio::test]
async fn disconnecting_cancels_a_modern_call() {
    let server = Server::new().await;
    let slow = server.modern("tools/call", json!({ "name": "slow" }), &json!({}));
    let left = tokio::spawn(slow.send());
    server.events.expect("open default token test/1").await;
    server.events.expect("slow").await;
    left.abort();
    let dropped = server.events.expect("dropped");
    tokio::time::timeout(ANSWER_TIMEOUT, dropped).await.expect("nobody cancelled it");
}

#[tokio::test]
async fn progress_makes_the_answer_a_stream() {
    let server = Server::new().await;
    let request = server.modern("tools/call", json!({ "name": "progress" }), &json!({}));
    let mut response = request.send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut held = String::new();
    for progress in 1..=3 {
        assert_eq!(event(&mut response, &mut held).await.unwrap()["params"]["progress"], progress);
    }
    assert_eq!(event(&mut response, &mut held).await.unwrap()["result"]["resultType"], "complete");
}
