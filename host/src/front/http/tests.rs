//! Tests over real sockets on the loopback: raw bytes where HTTP is tested, `reqwest` and rmcp where the protocol is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod jwt;
mod legacy;
mod modern;
mod peers;

use std::time::Duration;

use axum::http::HeaderMap;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::token::AccessTokens;
use super::*;
use crate::front::testing::{Events, FakeBroker, profile};

const TOKEN: &str = "s3cret";
const METRICS: &str = "scr4pe";
const MAX_BODY: usize = 4096;

/// The longest time that a head may take, and a little more.
const HEAD_DEADLINE: Duration = Duration::from_secs(6);

/// A front that serves on the loopback.
struct Server {
    address: SocketAddr,
    shared: Arc<FrontShared>,
    fake: FakeBroker,
    events: Events,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
    client: reqwest::Client,
}

fn config(listen: &str) -> ServeConfig {
    ServeConfig {
        listen: listen.parse().unwrap(),
        token: None,
        hosts: vec!["broker.example".to_owned()],
        origins: vec!["https://app.example".to_owned()],
        callers: std::collections::BTreeMap::new(),
        people: std::collections::BTreeMap::new(),
        jwt: None,
        metrics_token: None,
        dangerous_no_token: false,
    }
}

impl Server {
    async fn new() -> Self {
        Self::serving(config("127.0.0.1:0")).await
    }

    async fn serving(serve: ServeConfig) -> Self {
        let (fake, events) = FakeBroker::new();
        let tokens = AccessTokens::one(TOKEN.into());
        let tokens = if serve.metrics_token.is_some() { tokens.with_metrics(METRICS.into()) } else { tokens };
        let settings = FrontSettings::new(&serve, profile(), || Ok(CurrentTokens::fixed(tokens)), MAX_BODY).unwrap();
        let front = HttpFront::bind_with(Arc::new(fake.clone()), &serve, settings).await.unwrap();
        let (address, shared) = (front.address(), Arc::clone(&front.shared));
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(front.serve(async {
            let _ = stopped.await;
        }));
        Self {
            address,
            shared,
            fake,
            events,
            stop,
            served,
            client: reqwest::Client::builder().no_proxy().build().unwrap(),
        }
    }

    fn url(&self) -> String {
        format!("http://{}{MCP_PATH}", self.address)
    }

    /// Returns a request with the headers that every request needs.
    fn request(&self, method: reqwest::Method) -> reqwest::RequestBuilder {
        let request = self.client.request(method, self.url()).bearer_auth(TOKEN);
        request.header("accept", "application/json, text/event-stream").header("content-type", "application/json")
    }

    fn post(&self, body: impl Into<reqwest::Body>) -> reqwest::RequestBuilder {
        self.request(reqwest::Method::POST).body(body)
    }

    /// Initialises a legacy session and returns its id.
    async fn initialize(&self, capabilities: Value) -> String {
        let params =
            json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": { "name": "t" } });
        let response = self.post(call(0, "initialize", params)).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let session = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        assert_eq!(response.json::<Value>().await.unwrap()["result"]["protocolVersion"], "2025-11-25");
        self.events.expect("open default token t").await;
        session
    }

    async fn stop(self) -> Events {
        self.stop.send(()).unwrap();
        self.served.await.unwrap();
        self.events
    }
}

fn call(id: impl Into<Value>, method: &str, params: Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params }).to_string()
}

/// Returns the next event of a stream that has data, or `None` at the stream's end.
async fn event(response: &mut reqwest::Response, held: &mut String) -> Option<Value> {
    Some(event_with_id(response, held).await?.1)
}

/// Returns the next event of a stream that has data, with its id, or `None` at the stream's end.
async fn event_with_id(response: &mut reqwest::Response, held: &mut String) -> Option<(Option<String>, Value)> {
    loop {
        if let Some(at) = held.find("\n\n") {
            let event: String = held.drain(..at + 2).collect();
            let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            match field("data:").filter(|data| !data.is_empty()) {
                Some(data) => return Some((field("id:").map(str::to_owned), serde_json::from_str(data).unwrap())),
                None => continue,
            }
        }
        let chunk = response.chunk().await.unwrap()?;
        held.push_str(std::str::from_utf8(&chunk).unwrap());
    }
}

#[tokio::test]
async fn each_thing_that_is_wrong_with_a_request_has_its_status() {
    let server = Server::new().await;
    let ping = || call(1, "ping", json!({}));
    let status = async |request: reqwest::RequestBuilder| request.send().await.unwrap().status().as_u16();
    let with = |name: &str, value: &str| {
        let headers: HeaderMap = [(name.parse().unwrap(), value.parse().unwrap())].into_iter().collect();
        server.post(ping()).headers(headers)
    };
    assert_eq!(status(with("host", "evil.example")).await, 403);
    assert_eq!(status(with("origin", "https://evil.example")).await, 403);
    let nobody = server.client.post(server.url()).body(ping()).send().await.unwrap();
    assert_eq!((nobody.status().as_u16(), &nobody.headers()["www-authenticate"]), (401, &"Bearer".parse().unwrap()));
    assert_eq!(status(with("authorization", "Bearer guess")).await, 401);
    assert_eq!(*server.fake.rejected.lock().unwrap(), ["host", "origin", "token", "token"]);

    assert_eq!(status(server.request(reqwest::Method::PUT)).await, 405);
    assert_eq!(status(with("content-type", "text/plain")).await, 415);
    assert_eq!(status(with("accept", "application/json")).await, 406);
    assert_eq!(status(server.post(vec![b' '; MAX_BODY + 1])).await, 413);
    let chunks = futures_util::stream::iter((0..5).map(|_| Ok::<_, io::Error>(vec![b' '; 1000])));
    assert_eq!(status(server.post(reqwest::Body::wrap_stream(chunks))).await, 413);
    assert_eq!(status(server.post("{nonsense")).await, 400);
    assert_eq!(status(server.post("[]")).await, 400);
    assert_eq!(status(server.post(ping())).await, 400, "no session");
    assert_eq!(status(with("mcp-session-id", "guess")).await, 404);
    assert_eq!(status(server.client.get(format!("http://{}/other", server.address))).await, 404);
    assert_eq!(
        *server.fake.rejected.lock().unwrap(),
        ["host", "origin", "token", "token", "malformed", "malformed", "malformed", "malformed"]
    );

    let health = server.client.get(format!("http://{}{HEALTH_PATH}", server.address)).send().await.unwrap();
    assert_eq!((health.status().as_u16(), health.text().await.unwrap().as_str()), (200, "ok\n"));
    for (name, value) in [("host", "broker.example"), ("origin", "https://app.example"), ("accept", "*/*")] {
        assert_eq!(status(with(name, value)).await, 400, "past the guard, and without a session: {name}");
    }
}

#[tokio::test]
async fn a_page_of_a_listed_origin_may_ask_beforehand_and_read_the_answer() {
    let server = Server::new().await;
    let ask = async |origin: &str| {
        let request = server.client.request(reqwest::Method::OPTIONS, server.url()).header("origin", origin);
        let request = request.header("access-control-request-method", "POST");
        request.header("access-control-request-headers", "authorization, mcp-method").send().await.unwrap()
    };
    let allowed = ask("https://app.example").await;
    assert_eq!(allowed.status(), 204);
    let header = |answer: &reqwest::Response, name: &str| {
        answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
    };
    for (name, value) in [
        ("access-control-allow-origin", "https://app.example"),
        ("access-control-allow-methods", "GET, POST, DELETE"),
        ("access-control-allow-headers", "authorization, mcp-method"),
        ("vary", "Origin"),
    ] {
        assert_eq!(header(&allowed, name).as_deref(), Some(value), "{name}");
    }
    let refused = ask("https://evil.example").await;
    assert_eq!((refused.status().as_u16(), header(&refused, "access-control-allow-origin")), (403, None));

    let post = async |origin: &str, token: &str| {
        let request = server.client.post(server.url()).bearer_auth(token).header("origin", origin);
        request.body(call(1, "ping", json!({}))).send().await.unwrap()
    };
    // The page can read why it was refused.
    let answered = post("https://app.example", "guess").await;
    assert_eq!(answered.status(), 401);
    assert_eq!(header(&answered, "access-control-allow-origin").as_deref(), Some("https://app.example"));
    let exposed = header(&answered, "access-control-expose-headers").unwrap();
    assert_eq!(exposed, "Mcp-Session-Id, WWW-Authenticate");
    let refused = post("https://evil.example", TOKEN).await;
    assert_eq!((refused.status().as_u16(), header(&refused, "access-control-allow-origin")), (403, None));
}

#[tokio::test]
async fn metrics_are_for_the_holder_of_their_own_token_who_may_do_nothing_else() {
    let closed = Server::new().await;
    let at = |server: &Server| format!("http://{}{METRICS_PATH}", server.address);
    let get = |server: &Server, token: &str| server.client.get(at(server)).bearer_auth(token);
    let status = async |request: reqwest::RequestBuilder| request.send().await.unwrap().status().as_u16();
    assert_eq!(status(get(&closed, TOKEN)).await, 404, "there are none unless somebody wants them");
    assert_eq!(status(get(&closed, "")).await, 404);

    let token = Some(crate::secret::ConfigValue::Plain(METRICS.to_owned()));
    let server = Server::serving(ServeConfig { metrics_token: token, ..config("127.0.0.1:0") }).await;
    let read = get(&server, METRICS).send().await.unwrap();
    assert_eq!(read.headers()["content-type"], METRICS_TYPE);
    assert_eq!((read.status().as_u16(), read.text().await.unwrap().as_str()), (200, "calls_total 7\n# EOF\n"));
    for other in [TOKEN, "", "guess"] {
        assert_eq!(status(get(&server, other)).await, 401, "{other:?}");
    }
    assert_eq!(status(server.client.get(at(&server))).await, 401);
    assert_eq!(status(get(&server, METRICS).header("host", "evil.example")).await, 403);
    assert_eq!(status(get(&server, METRICS).header("origin", "https://evil.example")).await, 403);
    assert_eq!(status(server.client.post(at(&server)).bearer_auth(METRICS)).await, 405);
    assert_eq!(status(server.client.get(server.url()).bearer_auth(METRICS)).await, 401, "it calls no tool");
}

#[tokio::test]
async fn a_malformed_body_is_answered_with_its_id() {
    let server = Server::new().await;
    let answer = server.post(r#"{"jsonrpc":"1.0","id":"mine","method":"ping"}"#).send().await.unwrap();
    assert_eq!(answer.status(), 400);
    let answer: Value = answer.json().await.unwrap();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("mine"), &json!(-32600)));
    assert_eq!(*server.fake.rejected.lock().unwrap(), ["malformed"]);
}

#[tokio::test]
async fn binding_says_what_is_wrong_and_the_way_out() {
    let bind = async |serve: &ServeConfig, token: &str| {
        let (fake, _events) = FakeBroker::new();
        let tokens = || Ok(CurrentTokens::fixed(AccessTokens::one(token.into())));
        let settings = FrontSettings::new(serve, profile(), tokens, MAX_BODY)?;
        HttpFront::bind_with(Arc::new(fake), serve, settings).await
    };
    let taken = bind(&config("127.0.0.1:0"), TOKEN).await.unwrap();
    let address = taken.address().to_string();
    let error = bind(&config(&address), TOKEN).await.unwrap_err();
    assert!(matches!(error, FrontError::InUse(_)) && error.to_string().contains(&address), "{error}");
    assert!(matches!(bind(&config("127.0.0.1:0"), "").await, Err(FrontError::NoToken)));
    let open = |listen| ServeConfig { dangerous_no_token: true, ..config(listen) };
    assert!(matches!(bind(&open("0.0.0.0:0"), TOKEN).await, Err(FrontError::Exposed(_))));
    assert!(bind(&open("127.0.0.1:0"), "").await.is_ok());
    assert!(matches!(bind(&config("192.0.2.1:1"), TOKEN).await, Err(FrontError::Listen { .. })));
}

#[tokio::test]
async fn a_head_that_dribbles_is_not_waited_for_either() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = Server::new().await;
    for first in ["", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
        let mut peer = tokio::net::TcpStream::connect(server.address).await.unwrap();
        peer.write_all(first.as_bytes()).await.unwrap();
        if !first.is_empty() {
            assert!(peer.read(&mut [0; 1024]).await.unwrap() > 0);
        }
        // Measured by a paused clock, which advances when nothing else happens. The answer must come before that.
        tokio::time::pause();
        let begun = tokio::time::Instant::now();
        while peer.write_all(b"G").await.is_ok() && begun.elapsed() < HEAD_DEADLINE * 2 {
            let mut end = [0; 1024];
            if let Ok(Ok(0) | Err(_)) = tokio::time::timeout(Duration::from_secs(1), peer.read(&mut end)).await {
                break;
            }
        }
        assert!(begun.elapsed() < HEAD_DEADLINE * 2, "after {first:?}");
        tokio::time::resume();
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_never_ends_is_not_waited_for() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = Server::new().await;
    let mut peer = tokio::net::TcpStream::connect(server.address).await.unwrap();
    peer.write_all(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: ").await.unwrap();
    let mut answer = Vec::new();
    peer.read_to_end(&mut answer).await.unwrap();
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
}
