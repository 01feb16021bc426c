//! What it costs to search 10,000 tools of 50 sources: making the index, and one query.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, reason = "a bench")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use portcullis::catalog::{Index, Item, Kind, Wanted, items_of};
use portcullis::config::Config;
use portcullis::message::Json;
use serde_json::json;

const SOURCES: usize = 50;
const TOOLS: usize = 200;

/// Of these, each description has some.
const WORDS: [&str; 16] = [
    "issue", "branch", "merge", "customer", "invoice", "calendar", "message", "search", "file", "folder", "deploy",
    "metric", "alert", "ticket", "comment", "user",
];

fn tool(number: usize) -> Json {
    let word = |at: usize| WORDS[(number * 7 + at * number / 3) % WORDS.len()];
    let described = (1..30).map(word).collect::<Vec<_>>().join(" ");
    let property = |at| (format!("{}_{at}", word(at)), json!({ "type": "string", "description": described }));
    let properties: serde_json::Map<_, _> = (0..6).map(property).collect();
    Json::of(&json!({
        "name": format!("{}_{}_{number}", word(1), word(2)), "description": described,
        "inputSchema": { "type": "object", "properties": properties },
    }))
}

fn items() -> Vec<Arc<Item>> {
    let named = |n| format!("[sources.s{n}]\ncomponent = \"builtin:calculator\"\n");
    let config = Config::parse(&(0..SOURCES).map(named).collect::<String>(), "bench.toml".as_ref()).unwrap();
    let offered = config.sources.values().enumerate().map(|(at, source)| {
        let tools: Vec<_> = (at * TOOLS..(at + 1) * TOOLS).map(tool).collect();
        items_of(Kind::Tool, source, &tools).unwrap()
    });
    offered.flatten().collect()
}

fn search(c: &mut Criterion) {
    let items = items();
    let mut group = c.benchmark_group("search of 10,000 tools");
    group.sample_size(20);
    group.bench_function("index", |b| {
        b.iter_batched(|| items.clone(), |items| Index::of(items).unwrap(), BatchSize::PerIteration);
    });
    let index = Index::of(items).unwrap();
    let query = Wanted { query: Some("merge the branch of issue 4711".to_owned()), ..Wanted::default() };
    group.bench_function("query", |b| b.iter(|| black_box(index.find(&query).unwrap().len())));
    group.finish();
}

criterion_group!(benches, search);
criterion_main!(benches);
