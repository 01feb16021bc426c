#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod sources;
mod streams;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap as Headers, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value as Data, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use url::Url;

use super::super::testing::no_client;
use super::super::transport::{Transport, TransportError};
use super::*;
use crate::config::{HttpTransportKind, Naming};
use crate::protocol::{Answer, Id, Message, Request};
use crate::secret::{ConfigValue, SecretStore};
use crate::source::Source;

/// A request as the server saw it.
struct Seen {
    method: Method,
    path: String,
    headers: Headers,
    body: Data,
}

impl Seen {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    fn called(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }
}

/// Serves `answer`, and records the requests.
async fn serve(answer: impl Fn(&Seen) -> Response + Send + Sync + 'static) -> (SocketAddr, Arc<Mutex<Vec<Seen>>>) {
    let log = Arc::new(Mutex::new(Vec::new()));
    let (kept, answer) = (Arc::clone(&log), Arc::new(answer));
    let app = Router::new().fallback(move |method: Method, uri: axum::http::Uri, headers: Headers, body: Bytes| {
        let (kept, answer) = (Arc::clone(&kept), Arc::clone(&answer));
        async move {
            let (path, body) = (uri.path().to_owned(), serde_json::from_slice(&body).unwrap_or_default());
            let seen = Seen { method, path, headers, body };
            let response = answer(&seen);
            kept.lock().unwrap().push(seen);
            response
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (address, log)
}

fn connect_to(address: SocketAddr, limit: usize) -> HttpTransport {
    connect_with(address, limit, [("X-Key".to_owned(), SecretString::from("k"))])
}

fn connect_with(address: SocketAddr, limit: usize, listed: [(String, SecretString); 1]) -> HttpTransport {
    let url = Url::parse(&format!("http://{address}/mcp?key=s3cret")).unwrap();
    let client = Egress::new().client_for(&url, Reach::Private).unwrap();
    let name: SourceName = "web".parse().unwrap();
    let headers = secret_headers(&name, &listed).unwrap();
    HttpTransport::new(ServerAccess { source: name, url, client, headers, bearer: None }, limit)
}

fn request(id: u64, method: &str, params: Data) -> Message {
    Message::Request(Request {
        id: Id::number(id),
        method: method.into(),
        params: Some(crate::protocol::Json::of(&params)),
    })
}

fn note(method: &str, params: &Data) -> Message {
    Message::parse(json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()).unwrap()
}

fn json_answer(body: &Data) -> Response {
    ([("content-type", "application/json; charset=utf-8")], body.to_string()).into_response()
}

fn result(seen: &Seen, result: Data) -> Response {
    json_answer(&json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": result}))
}

fn events(text: String) -> Response {
    ([("content-type", "text/event-stream")], text).into_response()
}

fn streamed(chunks: impl futures_util::Stream<Item = Result<String, std::io::Error>> + Send + 'static) -> Response {
    ([("content-type", "text/event-stream")], Body::from_stream(chunks)).into_response()
}

async fn next(transport: &HttpTransport) -> String {
    String::from_utf8(transport.receive().await.unwrap().unwrap().message.to_line().to_vec()).unwrap()
}

/// Returns why the last request failed: the error of the server, or the reason why its outcome is unknown.
async fn error_of(transport: &HttpTransport) -> String {
    let message = match transport.receive().await.unwrap() {
        Ok(received) => received.message,
        Err(TransportError::Lost { reason, .. }) => return reason.to_string(),
        Err(other) => panic!("{other:?}"),
    };
    match message {
        Message::Response(response) => match response.answer {
            Answer::Error(error) => error.get_str("message").unwrap(),
            Answer::Result(_) => panic!("a result"),
        },
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_legacy_session_is_named_in_every_request_and_ended() {
    let (address, log) = serve(|seen| match seen.called() {
        "initialize" => ([("mcp-session-id", "s-1")], result(seen, json!({}))).into_response(),
        "notifications/initialized" => StatusCode::ACCEPTED.into_response(),
        "" => StatusCode::METHOD_NOT_ALLOWED.into_response(),
        _ => result(seen, json!({"big": 12_345_678_901_234_567_890_u64})),
    })
    .await;
    let transport = connect_to(address, 10_000);
    transport.send(&request(1, "initialize", json!({}))).await.unwrap();
    assert_eq!(next(&transport).await, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    transport.agreed("2025-06-18");
    transport.send(&note("notifications/initialized", &json!({}))).await.unwrap();
    transport.send(&request(2, "tools/call", json!({"name": "x"}))).await.unwrap();
    assert_eq!(next(&transport).await, r#"{"jsonrpc":"2.0","id":2,"result":{"big":12345678901234567890}}"#);
    transport.close().await;
    transport.close().await;
    assert!(transport.receive().await.is_none());

    let log = log.lock().unwrap();
    for seen in log.iter() {
        assert_eq!(seen.header("x-key"), Some("k"));
        let (session, version) =
            if seen.called() == "initialize" { (None, None) } else { (Some("s-1"), Some("2025-06-18")) };
        assert_eq!((seen.header("mcp-session-id"), seen.header("mcp-protocol-version")), (session, version));
        assert_eq!(seen.header("mcp-method"), None);
    }
    assert_eq!(log[0].header("accept"), Some("application/json, text/event-stream"));
    assert_eq!(log.iter().filter(|seen| seen.method == Method::DELETE).count(), 1);
    assert_eq!(log.last().unwrap().method, Method::DELETE);
}

#[tokio::test]
async fn progress_arrives_before_the_answer_and_while_the_stream_is_open() {
    let (go, wait) = oneshot::channel::<()>();
    let wait = Mutex::new(Some(wait));
    let (address, _) = serve(move |_| {
        let wait = wait.lock().unwrap().take().unwrap();
        let first = stream::iter([Ok(
            ": hi\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\r\n\r\n".to_owned(),
        )]);
        let second = stream::once(async move {
            wait.await.unwrap();
            Ok("data: {\"jsonrpc\":\"2.0\",\ndata: \"id\":7,\"result\":1}\n\n".to_owned())
        });
        streamed(first.chain(second))
    })
    .await;
    let transport = connect_to(address, 10_000);
    transport.send(&request(7, "tools/call", json!({}))).await.unwrap();
    assert_eq!(next(&transport).await, r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#);
    go.send(()).unwrap();
    assert_eq!(next(&transport).await, r#"{"jsonrpc":"2.0","id":7,"result":1}"#);
}

#[tokio::test]
async fn an_answer_over_the_limit_fails_its_request_with_the_size() {
    let (address, _) = serve(|seen| {
        let text = "x".repeat(5000);
        match seen.called() {
            "json" => result(seen, json!(text)),
            _ => events(format!("data: {text}\n\n")),
        }
    })
    .await;
    let transport = connect_to(address, 1000);
    for (id, method) in [(1, "json"), (2, "stream")] {
        transport.send(&request(id, method, json!({}))).await.unwrap();
        let error = error_of(&transport).await;
        assert!(error.contains("over the limit of 1000 bytes") && !error.contains("s3cret"), "{error}");
    }
    let sent = transport.send(&request(3, "x", json!({"text": "y".repeat(2000)}))).await;
    assert!(
        matches!(sent, Err(TransportError::NotSent(why)) if why.contains("2061 bytes") || why.contains("limit of 1000"))
    );
}

#[tokio::test]
async fn statuses_become_errors_that_say_what_to_do() {
    let (address, _) = serve(|seen| match seen.called() {
        "theirs" => {
            let body = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32022, "message": "theirs"}});
            (StatusCode::BAD_REQUEST, json_answer(&body)).into_response()
        }
        number => (StatusCode::from_u16(number.parse().unwrap()).unwrap(), "<html>no</html>").into_response(),
    })
    .await;
    let transport = connect_to(address, 10_000);
    for (method, expected) in [
        ("401", "see `headers` of source `web`"),
        ("403", "see `headers` of source `web`"),
        ("404", "is the path in `url` of source `web`"),
        ("500", "status 500 Internal Server Error"),
        ("theirs", "theirs"),
    ] {
        transport.send(&request(1, method, json!({}))).await.unwrap();
        let error = error_of(&transport).await;
        assert!(error.contains(expected) && !error.contains("s3cret"), "{error}");
    }
    for (value, expected) in
        [("t0ken", "is one word, without the word `Bearer` and a space"), ("Bearer t0ken", "is missing or wrong")]
    {
        let header = [("Authorization".to_owned(), SecretString::from(value))];
        let transport = connect_with(address, 10_000, header);
        transport.send(&request(1, "401", json!({}))).await.unwrap();
        let error = error_of(&transport).await;
        assert!(error.contains(expected) && !error.contains("t0ken"), "{error}");
    }
}

#[tokio::test]
async fn an_invalid_answer_leaves_a_call_unknown_with_its_cause() {
    let (address, _) = serve(|seen| match seen.body["params"]["name"].as_str().unwrap_or_default() {
        "page" => ([("content-type", "text/html")], "<html>").into_response(),
        "nonsense" => ([("content-type", "application/json")], "{").into_response(),
        "large" => result(seen, json!("x".repeat(20_000))),
        "theirs" => {
            let body = json!({"jsonrpc": "2.0", "id": seen.body["id"], "error": {"code": -32000, "message": "theirs"}});
            (StatusCode::INTERNAL_SERVER_ERROR, json_answer(&body)).into_response()
        }
        number => (StatusCode::from_u16(number.parse().unwrap()).unwrap(), "<html>no</html>").into_response(),
    })
    .await;
    let transport = connect_to(address, 10_000);
    for (name, cause) in [
        ("500", "status 500 Internal Server Error"),
        ("502", "status 502 Bad Gateway"),
        ("429", "status 429 Too Many Requests"),
        ("page", "`text/html` instead of JSON"),
        ("nonsense", "not a valid answer"),
        ("large", "over the limit of 10000 bytes"),
    ] {
        transport.send(&request(1, "tools/call", json!({"name": name}))).await.unwrap();
        match transport.receive().await.unwrap() {
            Err(TransportError::Lost { id, reason }) => {
                assert!(id == Id::number(1) && reason.contains(cause), "{name}: {reason}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    // An error that the server itself gives is its answer; and a server does not act on what it refuses for its token.
    for (name, said) in [("theirs", "theirs"), ("403", "status 403 Forbidden")] {
        transport.send(&request(1, "tools/call", json!({"name": name}))).await.unwrap();
        let answer = next(&transport).await;
        assert!(answer.contains(said), "{name}: {answer}");
    }
    // A request of the broker's own changes nothing.
    transport.send(&request(1, "tools/list", json!({"name": "500"}))).await.unwrap();
    assert!(transport.receive().await.unwrap().is_ok());
}

#[tokio::test]
async fn a_404_in_a_session_ends_the_connection() {
    let (address, _) = serve(|seen| match seen.called() {
        "initialize" => ([("mcp-session-id", "s-1")], result(seen, json!({}))).into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    })
    .await;
    let transport = connect_to(address, 10_000);
    transport.send(&request(1, "initialize", json!({}))).await.unwrap();
    next(&transport).await;
    transport.send(&request(2, "tools/call", json!({}))).await.unwrap();
    match transport.receive().await {
        Some(Err(TransportError::Expired { id, reason })) => {
            assert!(id == Some(Id::number(2)) && reason.contains("session expired"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert!(transport.receive().await.is_none());
    assert!(transport.exit_reason().unwrap().contains("session expired"));
    assert!(matches!(transport.send(&request(3, "x", json!({}))).await, Err(TransportError::Closed(_))));
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_gets_nothing_and_a_redirect_to_metadata_is_not_followed() {
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = unused.local_addr().unwrap();
    drop(unused);
    let sent = connect_to(address, 1000).send(&request(1, "x", json!({}))).await;
    assert!(matches!(&sent, Err(TransportError::Closed(why)) if why.contains("cannot connect")), "{sent:?}");

    let (address, _) =
        serve(|_| (StatusCode::TEMPORARY_REDIRECT, [("location", "http://169.254.169.254/")]).into_response()).await;
    let transport = connect_to(address, 1000);
    transport.send(&request(1, "x", json!({}))).await.unwrap();
    let lost = transport.receive().await.unwrap().unwrap_err().to_string();
    assert!(lost.contains("a cloud metadata address"), "{lost}");
}
