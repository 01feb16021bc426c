//! Tests with their own collector, which decodes its input with OpenTelemetry's message types.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, Uri};
use futures_util::future::BoxFuture;
use opentelemetry_proto::tonic::metrics::v1::MetricsData;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::{Span, TracesData, span::SpanKind};
use portcullis_jail::Launcher;
use prost::Message as _;
use serde_json::json;
use tokio::sync::mpsc;

use crate::agent::{Agent, AgentPeer, Elicitation, NoAgent, TransportKind};
use crate::broker::Broker;
use crate::config::Config;
use crate::protocol::{Answer, Json, Notification};
use crate::session::Session;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// A request that the collector got.
struct Seen {
    path: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// Starts a collector that answers with `status`, and returns its address and the requests that it gets.
async fn collector(status: StatusCode) -> (SocketAddr, mpsc::UnboundedReceiver<Seen>) {
    let (tell, seen) = mpsc::unbounded_channel();
    let app = Router::new().fallback(move |uri: Uri, headers: HeaderMap, body: Bytes| {
        let _ = tell.send(Seen { path: uri.path().to_owned(), headers, body: body.to_vec() });
        async move { status }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, seen)
}

/// Starts a source with one tool, which speaks 2026-07-28, and returns its address.
async fn remote() -> SocketAddr {
    let app = Router::new().fallback(async |body: Bytes| {
        let message: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let result = match message["method"].as_str().unwrap() {
            "server/discover" => json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } }),
            "tools/list" => json!({ "tools": [{ "name": "look", "inputSchema": { "type": "object" } }] }),
            _ => json!({ "content": [] }),
        };
        let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
        ([("content-type", "application/json")], answer.to_string())
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// The peer of an agent's request with this id, as a front passes it on.
struct Numbered(&'static str);

impl AgentPeer for Numbered {
    fn notify(&self, _: Notification) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn request_id(&self) -> Option<Json> {
        Some(Json::parse(self.0.to_owned()).unwrap())
    }

    fn elicitation(&self) -> Elicitation {
        Elicitation::None
    }

    fn request<'a>(&'a self, _: &'a crate::protocol::Method, _: Option<Json>) -> BoxFuture<'a, Answer> {
        Box::pin(async move { panic!("nothing is asked") })
    }
}

async fn broker(folder: &std::path::Path, otlp: &str, approve: &str) -> Broker {
    configured(folder, otlp, approve, "").await
}

async fn configured(folder: &std::path::Path, otlp: &str, approve: &str, more: &str) -> Broker {
    let text = format!(
        "[telemetry]\notlp = \"{otlp}\"\nheaders = {{ X-Key = \"k\" }}\n[sources.calc]\ncomponent = \"builtin:calculator\"\n\
         [profiles.default]\napprove = \"{approve}\"\n{more}"
    );
    let config = Config::parse(&text, &folder.join("portcullis.toml")).unwrap();
    Broker::build(config, Launcher::SelfExec).await.unwrap()
}

async fn session(broker: &Broker) -> Arc<Session> {
    broker.open_session(&"default".parse().unwrap(), &"me".parse().unwrap(), "test").await.unwrap()
}

async fn call(session: &Session, tool: &str, meta: serde_json::Value) -> Answer {
    let params = json!({ "name": tool, "arguments": { "a": 7_340_032, "b": 0 }, "_meta": meta });
    session.request("tools/call", Json::of(&params), Arc::new(NoAgent)).await
}

fn attribute<'a>(span: &'a Span, key: &str) -> Option<&'a str> {
    use opentelemetry_proto::tonic::common::v1::any_value::Value::StringValue;
    let value = &span.attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value;
    match value {
        Some(StringValue(text)) => Some(text),
        other => panic!("{other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_and_its_call_are_spans_of_the_agents_trace_and_hold_no_payload() {
    let folder = tempfile::tempdir().unwrap();
    let (address, mut seen) = collector(StatusCode::OK).await;
    let broker = broker(folder.path(), &format!("http://{address}/base/"), "never").await;
    let session = session(&broker).await;
    let traced = json!({ "traceparent": format!("00-{TRACE}-b7ad6b7169203331-01") });
    call(&session, "calc__divide", traced).await;
    call(&session, "calc__unknown", json!({})).await;
    call(&session, "calc__add", json!({ "traceparent": format!("00-{TRACE}-b7ad6b7169203331-00") })).await;
    broker.shutdown().await;

    let sent = seen.recv().await.unwrap();
    assert_eq!(sent.path, "/base/v1/traces");
    assert_eq!(
        (&sent.headers["content-type"], &sent.headers["x-key"]),
        (&"application/x-protobuf".parse().unwrap(), &"k".parse().unwrap())
    );
    let data = TracesData::decode(&*sent.body).unwrap();
    let spans = &data.resource_spans[0].scope_spans[0].spans;
    let names: Vec<_> = spans.iter().map(|span| (span.name.as_str(), span.kind())).collect();
    let expected = [
        ("tools/call divide", SpanKind::Client),
        ("tools/call calc__divide", SpanKind::Server),
        ("tools/call calc__unknown", SpanKind::Server),
    ];
    assert_eq!(names, expected, "what is not wanted is not traced");
    let (client, server, other) = (&spans[0], &spans[1], &spans[2]);
    assert_eq!((hex(&server.trace_id), hex(&server.parent_span_id)), (TRACE.to_owned(), "b7ad6b7169203331".to_owned()));
    assert_eq!((&client.trace_id, &client.parent_span_id), (&server.trace_id, &server.span_id));
    assert!(other.parent_span_id.is_empty() && other.trace_id != server.trace_id);
    assert!(server.start_time_unix_nano <= client.start_time_unix_nano);
    assert!(client.start_time_unix_nano <= client.end_time_unix_nano);
    for (span, key, value) in [
        (server, "mcp.method.name", Some("tools/call")),
        (server, "gen_ai.operation.name", Some("execute_tool")),
        (server, "gen_ai.tool.name", Some("calc__divide")),
        (server, "mcp.session.id", Some(session.caller().session.as_str())),
        (server, "error.type", Some("tool_error")),
        (client, "gen_ai.tool.name", Some("divide")),
        (client, "portcullis.source", Some("calc")),
        (client, "error.type", Some("tool_error")),
        (other, "error.type", Some("-32602")),
    ] {
        assert_eq!(attribute(span, key), value, "{key}");
    }
    let payload = |text: &str| sent.body.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(payload("calc__divide") && !payload("7340032") && !payload("zero"), "no arguments and no results");
}

#[test]
fn only_a_number_is_the_code_of_an_error() {
    let of = |error: &serde_json::Value| super::error_type(&crate::protocol::Json::of(error));
    assert_eq!(of(&json!({ "code": -32602 })), "-32602");
    for other in
        [json!({ "code": "a secret" }), json!({ "code": "x".repeat(1 << 20) }), json!({ "code": 1e300 }), json!({})]
    {
        assert_eq!(of(&other), "error");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_span_names_the_transport_and_the_revision_of_each_side() {
    let folder = tempfile::tempdir().unwrap();
    let (address, mut seen) = collector(StatusCode::OK).await;
    let remote = format!("[sources.far]\nurl = \"http://{}/mcp\"\ndangerous-allow-private = true\n", remote().await);
    let broker = configured(folder.path(), &format!("http://{address}"), "never", &remote).await;
    let agent = Agent { revision: Some("2025-11-25"), transport: Some(TransportKind::Pipe), ..Agent::named("test") };
    let session = broker.open_session_of(&"default".parse().unwrap(), "me".parse().unwrap(), agent).await.unwrap();
    for (tool, id) in [("far__look", "\"seven\""), ("calc__add", "7")] {
        let params = json!({ "name": tool, "arguments": { "a": 1, "b": 2 } });
        let answer = session.request("tools/call", Json::of(&params), Arc::new(Numbered(id))).await;
        assert!(matches!(answer, Answer::Result(_)), "{answer:?}");
    }
    broker.shutdown().await;
    let data = TracesData::decode(&*seen.recv().await.unwrap().body).unwrap();
    let spans = &data.resource_spans[0].scope_spans[0].spans;
    let keys = ["network.transport", "mcp.protocol.version", "jsonrpc.request.id"];
    let said: Vec<_> = spans.iter().map(|span| keys.map(|key| attribute(span, key))).collect();
    let expected = [
        [Some("tcp"), Some("2026-07-28"), None],
        [Some("pipe"), Some("2025-11-25"), Some("seven")],
        [None, None, None],
        [Some("pipe"), Some("2025-11-25"), Some("7")],
    ];
    assert_eq!(said, expected, "a component is called in the same process");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_go_on_without_a_collector_and_what_is_lost_is_counted() {
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (unwell, _seen) = collector(StatusCode::SERVICE_UNAVAILABLE).await;
    let (elsewhere, _seen) = collector(StatusCode::TEMPORARY_REDIRECT).await;
    for address in [gone, unwell, elsewhere] {
        let folder = tempfile::tempdir().unwrap();
        let broker = broker(folder.path(), &format!("http://{address}"), "never").await;
        let session = session(&broker).await;
        assert!(matches!(call(&session, "calc__add", json!({})).await, Answer::Result(_)));
        broker.shutdown().await;
        let text = broker.metrics();
        assert!(text.contains("portcullis_spans_lost_total 2\n"), "{text}");
        assert!(text.contains("portcullis_spans_taken_total 0\n"), "{text}");
    }
}

/// Returns a broker that sends its metrics to a collector, at an interval that never comes and when it ends.
async fn measured(folder: &std::path::Path, address: SocketAddr) -> Broker {
    let text = format!(
        "[telemetry]\notlp = \"http://{address}\"\nheaders = {{ X-Key = \"k\" }}\nmetrics-interval = \"1h\"\n\
         [sources.calc]\ncomponent = \"builtin:calculator\"\n[profiles.default]\napprove = \"never\"\n"
    );
    let config = Config::parse(&text, &folder.join("portcullis.toml")).unwrap();
    Broker::build(config, Launcher::SelfExec).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_gets_the_metrics_that_prometheus_reads() {
    let folder = tempfile::tempdir().unwrap();
    let (address, mut seen) = collector(StatusCode::OK).await;
    let broker = measured(folder.path(), address).await;
    let session = session(&broker).await;
    for _ in 0..3 {
        assert!(matches!(call(&session, "calc__add", json!({})).await, Answer::Result(_)));
    }
    broker.shutdown().await;
    let sent = loop {
        let sent = seen.recv().await.unwrap();
        if sent.path == "/v1/metrics" {
            break sent;
        }
    };
    assert_eq!(sent.headers["x-key"], "k");
    let data = MetricsData::decode(&*sent.body).unwrap();
    let metrics = &data.resource_metrics[0].scope_metrics[0].metrics;
    let text = broker.metrics();
    for metric in metrics {
        let name = metric.name.replace('.', "_");
        assert!(text.contains(&format!("# HELP {name}")) && !metric.description.is_empty(), "{name} is not in\n{text}");
    }
    let calls = metrics.iter().find(|metric| metric.name == "mcp.client.operation.duration").unwrap();
    let Some(Data::Histogram(calls)) = &calls.data else { panic!("{calls:?}") };
    let point = calls.data_points.iter().find(|point| point.count == 3).unwrap();
    let said: Vec<_> = point.attributes.iter().map(|attribute| attribute.key.as_str()).collect();
    assert!(said.contains(&"source") && said.contains(&"outcome"), "{said:?}");
    assert_eq!(point.bucket_counts.iter().sum::<u64>(), 3);
    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1, "the last counts all longer ones");
    assert!(point.sum.unwrap() > 0.0 && point.start_time_unix_nano < point.time_unix_nano);
    assert!(metrics.iter().any(|metric| matches!(&metric.data, Some(Data::Sum(sum)) if sum.is_monotonic)));
    assert!(metrics.iter().any(|metric| matches!(&metric.data, Some(Data::Gauge(_)))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_takes_no_metrics_holds_up_nothing() {
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (unwell, _seen) = collector(StatusCode::SERVICE_UNAVAILABLE).await;
    // One that accepts and never answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    for address in [gone, unwell, silent.local_addr().unwrap()] {
        let folder = tempfile::tempdir().unwrap();
        let broker = measured(folder.path(), address).await;
        let session = session(&broker).await;
        assert!(matches!(call(&session, "calc__add", json!({})).await, Answer::Result(_)));
        broker.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_given_up_ends_its_spans() {
    let folder = tempfile::tempdir().unwrap();
    let (address, mut seen) = collector(StatusCode::OK).await;
    let broker = broker(folder.path(), &format!("http://{address}"), "always").await;
    let session = session(&broker).await;
    // The call waits for a person, who never answers.
    let mut given_up = Box::pin(call(&session, "calc__add", json!({})));
    assert!(futures_util::poll!(&mut given_up).is_pending());
    drop(given_up);
    broker.shutdown().await;
    let data = TracesData::decode(&*seen.recv().await.unwrap().body).unwrap();
    let spans = &data.resource_spans[0].scope_spans[0].spans;
    assert_eq!(spans.len(), 1);
    assert_eq!(attribute(&spans[0], "error.type"), Some("cancelled"));
}
