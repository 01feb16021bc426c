//! Measures what searching 10,000 tools of 50 sources costs: building the index, and queries.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, reason = "a bench")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use portcullis::catalog::{Index, ToolQuery, items_of};
use portcullis::config::Config;
use portcullis::item::{Item, ItemKind};
use portcullis::protocol::Json;
use serde_json::json;

const SOURCES: usize = 50;
const TOOLS: usize = 200;

/// The words that the tools' descriptions are made of. Most descriptions have most of these words, so that a query of
/// them finds nearly every tool.
const COMMON: [&str; 16] = [
    "issue", "branch", "merge", "customer", "invoice", "calendar", "message", "search", "file", "folder", "deploy",
    "metric", "alert", "ticket", "comment", "user",
];

/// The number of words that few tools have. Each tool has two of them.
const RARE: usize = 1_000;

fn tool(number: usize) -> Json {
    let word = |at: usize| COMMON[(number * 7 + at * number / 3) % COMMON.len()];
    let rare = |at: usize| format!("q{}", (number * 31 + at * 17) % RARE);
    let described = (1..30).map(word).collect::<Vec<_>>().join(" ");
    let property = |at| (format!("{}_{at}", word(at)), json!({ "type": "string", "description": described }));
    let properties: serde_json::Map<_, _> = (0..6).map(property).collect();
    Json::of(&json!({
        "name": format!("{}_{}_{number}", word(1), word(2)), "description": format!("{described} {} {}", rare(1), rare(2)),
        "inputSchema": { "type": "object", "properties": properties },
    }))
}

fn items() -> Vec<Arc<Item>> {
    let named = |n| format!("[sources.s{n}]\ncomponent = \"builtin:calculator\"\n");
    let config = Config::parse(&(0..SOURCES).map(named).collect::<String>(), "bench.toml".as_ref()).unwrap();
    let offered = config.sources.values().enumerate().map(|(at, source)| {
        let tools: Vec<_> = (at * TOOLS..(at + 1) * TOOLS).map(tool).collect();
        items_of(ItemKind::Tool, source, &tools).unwrap().items
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
    for (name, words) in
        [("query, few tools found", "the q42 of q4 and q711"), ("query, all found", "merge the branch of issue 4711")]
    {
        let wanted = ToolQuery { query: Some(words.to_owned()), ..ToolQuery::default() };
        group.bench_function(name, |b| b.iter(|| black_box(index.find(&wanted).unwrap().len())));
    }
    group.finish();
}

criterion_group!(benches, search);
criterion_main!(benches);
