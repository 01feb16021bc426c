//! The front, mounted under the HTTP server of a program that embeds the broker.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode};
use tokio::net::TcpListener;
use tower_service::Service as _;

use super::*;
use crate::config::{ProfileTable, SourceTable};
use crate::front::http::{AuthenticatedCaller, FrontError, HttpFront};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_front_is_mounted_under_the_programs_router_and_keeps_its_checks() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = Config::builder(folder.path())
        .source("calc", SourceTable::component("builtin:calculator"))
        .serve(json!({ "listen": address.to_string(), "token": "sesame" }))
        .build()
        .unwrap();
    let broker = Broker::build(config, Launcher::SelfExec).await.unwrap();
    let agents = HttpFront::service(&broker, "default".parse().unwrap()).unwrap();
    let own = axum::routing::get(|| async { "mine" });
    let app = Router::new().route("/", own).nest_service("/agents", agents);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    let served = tokio::spawn(axum::serve(listener, app).into_future());

    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let post = |host: Option<&str>, token: &str| {
        let request = client.post(format!("http://{address}/agents/mcp")).bearer_auth(token).body(INITIALIZE);
        let request = request.header("accept", "application/json, text/event-stream");
        let request = request.header("content-type", "application/json");
        host.into_iter().fold(request, |request, host| request.header("host", host)).send()
    };
    let own = client.get(format!("http://{address}/")).send().await.unwrap();
    assert_eq!(own.text().await.unwrap(), "mine");
    assert_eq!(post(None, "wrong").await.unwrap().status(), 401);
    assert_eq!(post(Some("evil.example"), "sesame").await.unwrap().status(), 403);
    let opened = post(None, "sesame").await.unwrap();
    assert_eq!(opened.status(), 200);
    assert!(opened.headers().contains_key("mcp-session-id"));
    broker.shutdown().await;
    served.abort();
    let rejected = natives::records(&broker, "front.rejected");
    let of: Vec<_> = rejected.iter().map(|record| (record["reason"].as_str(), record["peer"].as_str())).collect();
    assert_eq!(of, [(Some("token"), Some("127.0.0.1")), (Some("host"), Some("127.0.0.1"))], "{rejected:?}");
    let ended = natives::records(&broker, "run.completed");
    assert_eq!(ended.len(), 1, "the session that was opened ended with the broker: {ended:?}");
}

#[tokio::test]
async fn a_mounted_front_without_a_token_is_refused_where_others_can_reach_it() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::builder(folder.path())
        .source("calc", SourceTable::component("builtin:calculator"))
        .serve(json!({ "listen": "0.0.0.0:8080", "dangerous-no-token": true }))
        .build()
        .unwrap();
    let broker = Broker::build(config, Launcher::SelfExec).await.unwrap();
    let refused = HttpFront::service(&broker, "default".parse().unwrap());
    assert!(matches!(refused, Err(FrontError::Exposed(_))), "{refused:?}");
    broker.shutdown().await;
}

#[tokio::test]
async fn a_front_serves_no_profile_that_is_not_configured_and_is_mounted_at_no_port_that_nobody_can_name() {
    let front = async |serve: serde_json::Value, profile: &str| {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::builder(folder.path())
            .source("calc", SourceTable::component("builtin:calculator"))
            .serve(serve)
            .build()
            .unwrap();
        let broker = Broker::build(config, Launcher::SelfExec).await.unwrap();
        let mounted = HttpFront::service(&broker, profile.parse().unwrap()).map(drop);
        let bound = HttpFront::bind(&broker, profile.parse().unwrap()).await.map(drop);
        broker.shutdown().await;
        (mounted, bound)
    };
    let (mounted, bound) = front(json!({ "listen": "127.0.0.1:0", "hosts": ["agents.example"] }), "reviewer").await;
    for refused in [mounted, bound] {
        let text = refused.unwrap_err().to_string();
        assert_eq!(text, "no profile `reviewer` is configured; the configuration has default");
    }
    let (mounted, bound) = front(json!({ "listen": "127.0.0.1:0" }), "default").await;
    assert!(matches!(mounted, Err(FrontError::NoPort(_))), "{mounted:?}");
    assert!(bound.is_ok(), "{bound:?}");
    let (mounted, _) = front(json!({ "listen": "127.0.0.1:0", "hosts": ["agents.example"] }), "default").await;
    assert!(mounted.is_ok(), "{mounted:?}");
}

#[tokio::test]
async fn a_mounted_front_without_a_token_answers_nobody_of_whom_it_does_not_know_that_he_is_local() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::builder(folder.path())
        .source("calc", SourceTable::component("builtin:calculator"))
        .serve(json!({ "listen": "127.0.0.1:8080", "dangerous-no-token": true }))
        .build()
        .unwrap();
    let broker = Broker::build(config, Launcher::SelfExec).await.unwrap();
    let mut agents = HttpFront::service(&broker, "default".parse().unwrap()).unwrap();
    let known = || Some(AuthenticatedCaller::new("ada".parse().unwrap()));
    for (peer, caller, expected) in [
        (None, None, 403),
        (Some("192.0.2.7:5"), None, 403),
        (Some("127.0.0.1:5"), None, 200),
        (Some("192.0.2.7:5"), known(), 200),
    ] {
        let mut request = Request::get("/healthz").header("host", "localhost:8080").body(Body::empty()).unwrap();
        if let Some(peer) = peer {
            request.extensions_mut().insert(ConnectInfo::<SocketAddr>(peer.parse().unwrap()));
        }
        if let Some(caller) = caller {
            request.extensions_mut().insert(caller);
        }
        let answer = agents.call(request).await.unwrap();
        assert_eq!(answer.status(), expected, "{peer:?}");
    }
    broker.shutdown().await;
}

#[tokio::test]
async fn a_caller_whom_the_mounting_program_has_authenticated_needs_no_token() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::builder(folder.path())
        .source("calc", SourceTable::component("builtin:calculator"))
        .profile("default", ProfileTable::new())
        .profile("reviewer", ProfileTable::new())
        .serve(json!({ "listen": "127.0.0.1:8080", "token": "sesame" }))
        .build()
        .unwrap();
    let broker = Broker::build(config, Launcher::SelfExec).await.unwrap();
    let mut agents = HttpFront::service(&broker, "default".parse().unwrap()).unwrap();
    let mut post = async |host: &str, session: Option<&str>, caller: Option<AuthenticatedCaller>| {
        let request = Request::post("/mcp").header("host", host).header("content-type", "application/json");
        let request = request.header("accept", "application/json, text/event-stream");
        let request = session.into_iter().fold(request, |request, id| request.header("mcp-session-id", id));
        let ping = json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" }).to_string();
        let body = session.map_or(INITIALIZE.to_owned(), |_| ping);
        let mut request = request.body(Body::from(body)).unwrap();
        if let Some(caller) = caller {
            request.extensions_mut().insert(caller);
        }
        let answer = agents.call(request).await.unwrap();
        let session = answer.headers().get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
        (answer.status(), session)
    };
    let of = |name: &str| AuthenticatedCaller::new(name.parse().unwrap());
    let own = "localhost:8080";
    assert_eq!(post(own, None, None).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(post("evil.example", None, Some(of("ada"))).await.0, StatusCode::FORBIDDEN);
    let (status, session) = post(own, None, Some(of("ada").profile("reviewer".parse().unwrap()))).await;
    assert_eq!(status, StatusCode::OK);
    // The session is the caller's own.
    assert_eq!(post(own, session.as_deref(), Some(of("bob"))).await.0, StatusCode::NOT_FOUND);
    let unknown = of("ada").profile("nobody".parse().unwrap());
    assert_eq!(post(own, None, Some(unknown)).await.1, None, "a profile that is not configured opens no session");
    broker.shutdown().await;
    let started = natives::records(&broker, "run.started");
    let of: Vec<_> = started.iter().map(|run| (run["principal"].as_str(), run["profile"].as_str())).collect();
    assert_eq!(of, [(Some("ada"), Some("reviewer"))], "{started:?}");
}
