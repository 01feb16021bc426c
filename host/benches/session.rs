//! Measures what a session costs besides the gate: listing 1,000 tools, and 64 concurrent calls that each report
//! progress, with a source over HTTP in the same process; and the memory of 1,000 idle sessions.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a bench")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::Uri;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use futures_util::future::{BoxFuture, join_all};
use portcullis::agent::{Agent, AgentPeer, Elicitation};
use portcullis::broker::Broker;
use portcullis::config::Config;
use portcullis::item::ItemKind;
use portcullis::protocol::{Answer, Era, Json, Notification};
use portcullis::session::Session;
use portcullis_jail::Launcher;
use serde_json::{Value, json};

/// As many tools as a source may have.
const TOOLS: u64 = 1_000;

/// As many tools as a server of usual size has.
const FEW: u64 = 10;

/// The number of idle sessions.
const IDLE: usize = 1_000;

/// As many calls as a session may have open.
const CALLS: u64 = 64;

/// The progress notifications of each call.
const STEPS: usize = 10;

async fn serve(uri: Uri, body: Bytes) -> Response {
    let tools = if uri.path() == "/few" { FEW } else { TOOLS };
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let answer = |result: Value| json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
    let tool = |n: u64| {
        let properties: serde_json::Map<_, _> = (0..6)
            .map(|at| (format!("argument{at}"), json!({ "type": "string", "description": "What it is" })))
            .collect();
        json!({
            "name": format!("tool{n}"), "description": "Does something useful with what it is given",
            "inputSchema": { "type": "object", "properties": properties, "required": ["argument0"] },
        })
    };
    let result = match request["method"].as_str().unwrap_or_default() {
        "server/discover" => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} },
        }),
        "tools/list" => json!({ "tools": (0..tools).map(tool).collect::<Vec<_>>() }),
        _ => {
            let token = &request["params"]["_meta"]["progressToken"];
            let progress = |n| {
                let params = json!({ "progressToken": token, "progress": n, "total": STEPS });
                json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
            };
            let last = answer(json!({ "resultType": "complete", "content": [{ "type": "text", "text": "done" }] }));
            let events: String =
                (0..STEPS).map(progress).chain([last]).map(|event| format!("data: {event}\n\n")).collect();
            return ([("content-type", "text/event-stream")], events).into_response();
        }
    };
    ([("content-type", "application/json")], answer(result).to_string()).into_response()
}

/// An agent that counts its notifications.
#[derive(Default)]
struct CountingAgent(AtomicUsize);

impl AgentPeer for CountingAgent {
    fn notify(&self, _: Notification) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.0.fetch_add(1, Ordering::Relaxed);
        })
    }

    fn elicitation(&self) -> Elicitation {
        Elicitation::None
    }

    fn request<'a>(&'a self, _: &'a portcullis::protocol::Method, _: Option<Json>) -> BoxFuture<'a, Answer> {
        Box::pin(async move { Answer::Error(Json::null()) })
    }
}

async fn open(broker: &Broker) -> Arc<Session> {
    let agent = Agent { era: Era::Modern, ..Agent::named("bench/1") };
    broker.open_session_of(&"default".parse().unwrap(), "bench".parse().unwrap(), agent).await.unwrap()
}

/// Builds a broker in front of the source that answers at this path, with its data in `dir`.
async fn build(address: SocketAddr, path: &str, dir: &Path) -> Broker {
    let config = format!(
        "[profiles.default]\napprove = \"never\"\n[sources.web]\nurl = \"http://{address}/{path}\"\n\
         dangerous-allow-private = true\n"
    );
    let config = Config::parse(&config, &dir.join("portcullis.toml")).unwrap();
    Broker::build(config, Launcher::SelfExec).await.unwrap()
}

/// Returns the resident memory of this process in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Prints how much memory idle sessions take after they have listed their tools.
async fn idle(address: SocketAddr, path: &str, tools: u64) {
    let dir = tempfile::tempdir().unwrap();
    let broker = build(address, path, dir.path()).await;
    let listed = async || {
        let session = open(&broker).await;
        assert_eq!(session.list(ItemKind::Tool).await.unwrap().items.len() as u64, tools);
        session
    };
    let _first = listed().await;
    let before = resident();
    let mut sessions = Vec::with_capacity(IDLE);
    for _ in 0..IDLE {
        sessions.push(listed().await);
    }
    let each = resident().saturating_sub(before) / IDLE;
    println!("session/{IDLE} idle sessions, {tools} tools: {each} KiB each");
    broker.shutdown().await;
}

fn session(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move { axum::serve(listener, Router::new().fallback(serve)).await });
    runtime.block_on(idle(address, "few", FEW));
    runtime.block_on(idle(address, "mcp", TOOLS));
    let dir = tempfile::tempdir().unwrap();
    let broker = runtime.block_on(build(address, "mcp", dir.path()));
    let known = runtime.block_on(open(&broker));

    let mut group = criterion.benchmark_group("session");
    group.throughput(Throughput::Elements(TOOLS));
    let list =
        async |session: Arc<Session>| assert_eq!(session.list(ItemKind::Tool).await.unwrap().items.len() as u64, TOOLS);
    group.bench_function("1,000 tools, first listing", |bencher| {
        let fresh = || runtime.block_on(open(&broker));
        bencher.iter_batched(fresh, |session| runtime.block_on(list(session)), BatchSize::SmallInput);
    });
    group
        .bench_function("1,000 tools, listed before", |bencher| bencher.iter(|| runtime.block_on(list(known.clone()))));
    group.throughput(Throughput::Elements(CALLS));
    group.bench_function("64 calls with progress", |bencher| {
        bencher.iter(|| {
            let calls = (0..CALLS).map(|n| {
                let session = known.clone();
                runtime.spawn(async move {
                    let params = json!({ "name": format!("web__tool{n}"), "_meta": { "progressToken": n } });
                    let agent = Arc::new(CountingAgent::default());
                    match session.request("tools/call", Json::of(&params), agent.clone()).await {
                        Answer::Result(_) => assert_eq!(agent.0.load(Ordering::Relaxed), STEPS),
                        Answer::Error(error) => panic!("the call was not answered: {}", error.as_str()),
                    }
                })
            });
            let calls: Vec<_> = calls.collect();
            runtime.block_on(join_all(calls)).into_iter().for_each(Result::unwrap);
        });
    });
    group.finish();
    runtime.block_on(broker.shutdown());
}

criterion_group!(benches, session);
criterion_main!(benches);
