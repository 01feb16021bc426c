//! Measures what parsing and writing a message costs: as raw slices; as a tree of values, as most proxies do; and as
//! typed models, as SDKs do.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench")]

use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use portcullis::protocol::Message;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Returns a small call, a typical call of an agent, and a result with a page of search hits.
fn messages() -> [(&'static str, Bytes); 3] {
    let small = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"a":"hello"}}}"#;
    let usual = json!({
        "jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": {
            "_meta": { "progressToken": 8 }, "name": "files__search",
            "arguments": {
                "path": "/srv/projects/portcullis/host/src/source/link", "pattern": "fn [a-z_]+\\(", "include": ["*.rs", "*.toml"],
                "exclude": ["target", ".git"], "limit": 100, "context": { "before": 2, "after": 4 }, "hidden": false,
            },
        },
    });
    let hit = |n: u32| json!({ "path": format!("src/{n}.rs"), "line": n, "text": "let x = \"y\";\n".repeat(12) });
    let hits: Vec<_> = (0..503).map(hit).collect();
    let large = json!({
        "jsonrpc": "2.0", "id": 9,
        "result": { "content": [{ "type": "text", "text": "503 hits" }], "structuredContent": { "hits": hits } },
    });
    let bytes = |value: Value| Bytes::from(value.to_string());
    [("97 B call", Bytes::from(small)), ("320 B call", bytes(usual)), ("118 KB result", bytes(large))]
}

fn typed<M: Serialize + DeserializeOwned>(text: &[u8]) -> Vec<u8> {
    serde_json::to_vec(&serde_json::from_slice::<M>(text).unwrap()).unwrap()
}

fn envelope(criterion: &mut Criterion) {
    for (name, text) in messages() {
        let mut group = criterion.benchmark_group(format!("envelope/{name}"));
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function("raw", |bencher| {
            bencher.iter(|| Message::parse(black_box(text.clone())).unwrap().to_line());
        });
        group.bench_function("tree", |bencher| {
            bencher.iter(|| serde_json::from_slice::<Value>(black_box(&text)).unwrap().to_string());
        });
        group.bench_function("typed", |bencher| match name {
            "118 KB result" => bencher.iter(|| typed::<ServerJsonRpcMessage>(black_box(&text))),
            _ => bencher.iter(|| typed::<ClientJsonRpcMessage>(black_box(&text))),
        });
        group.finish();
    }
}

criterion_group!(benches, envelope);
criterion_main!(benches);
