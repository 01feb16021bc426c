//! Measures how long it takes until a call succeeds again after its source was killed, and after the source has
//! forgotten the session; compared with a call that needs no recovery.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a bench")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use portcullis::agent::NoAgent;
use portcullis::broker::Broker;
use portcullis::config::Config;
use portcullis::protocol::{Answer, Json};
use portcullis::session::Session;
use portcullis_jail::Launcher;
use portcullis_test_support::source_program;
use serde_json::{Value, json};

const SESSION: &str = "mcp-session-id";

/// Serves as a legacy server that knows a single session: the one with the current number.
async fn serve(State(current): State<Arc<AtomicUsize>>, headers: HeaderMap, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let now = current.load(Ordering::SeqCst).to_string();
    let method = request["method"].as_str().unwrap_or_default();
    let result = match method {
        "initialize" => json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} } }),
        _ if headers.get(SESSION).is_none_or(|session| session.as_bytes() != now.as_bytes()) => {
            return StatusCode::NOT_FOUND.into_response();
        }
        "tools/list" => json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] }),
        "tools/call" => json!({ "content": [{ "type": "text", "text": "done" }] }),
        _ if request["id"].is_null() => return StatusCode::ACCEPTED.into_response(),
        _ => return StatusCode::BAD_REQUEST.into_response(),
    };
    let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
    ([("content-type", "application/json"), (SESSION, &now)], answer.to_string()).into_response()
}

async fn call(session: &Session, tool: &str) -> Answer {
    let params = json!({ "name": tool, "arguments": { "a": 1, "b": 2 } });
    session.request("tools/call", Json::of(&params), Arc::new(NoAgent)).await
}

async fn well(session: &Session, tool: &str) {
    match call(session, tool).await {
        Answer::Result(_) => {}
        Answer::Error(error) => panic!("the call was not answered: {}", error.as_str()),
    }
}

fn heal(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let current = Arc::new(AtomicUsize::new(0));
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new().fallback(serve).with_state(Arc::clone(&current));
    runtime.spawn(async move { axum::serve(listener, app).await.unwrap() });

    let source = source_program("portcullis-test-source");
    let config = format!(
        "[profiles.default]\napprove = \"never\"\n[sources.local]\ncommand = [{source:?}, \"plain\"]\n\
         [sources.web]\nurl = \"http://{address}/\"\ndangerous-allow-private = true\n"
    );
    let config = Config::parse(&config, &dir.path().join("portcullis.toml")).unwrap();
    // The test source can become a source's process, as `portcullis` can.
    let broker = runtime.block_on(Broker::build(config, Launcher::Path(source))).unwrap();
    let session =
        runtime.block_on(broker.open_session(&"default".parse().unwrap(), &"me".parse().unwrap(), "bench")).unwrap();

    let mut group = criterion.benchmark_group("heal");
    group.sample_size(10);
    group.bench_function("nothing", |bencher| bencher.iter(|| runtime.block_on(well(&session, "web__t"))));
    // A session that expires soon after the one before counts as a failure.
    let expired = [(); 3].map(|()| {
        std::thread::sleep(Duration::from_secs(6));
        current.fetch_add(1, Ordering::SeqCst);
        let begun = Instant::now();
        runtime.block_on(well(&session, "web__t"));
        begun.elapsed()
    });
    println!("an expired session: {expired:?}");
    // The attempts are renewed after a stable minute, which this bench does not wait for: so it kills as often as there
    // are attempts.
    let mut took = Vec::new();
    for _ in 0..3 {
        runtime.block_on(well(&session, "local__add"));
        runtime.block_on(call(&session, "local__exit"));
        let begun = Instant::now();
        runtime.block_on(well(&session, "local__add"));
        took.push(begun.elapsed());
    }
    let pauses = [500, 1000, 2000].map(Duration::from_millis);
    println!("a kill: {took:?}, of which at most {pauses:?} is the pause before the attempt");
    group.finish();
    runtime.block_on(broker.shutdown());
}

criterion_group!(benches, heal);
criterion_main!(benches);
