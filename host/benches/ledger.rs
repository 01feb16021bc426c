//! Measures what a durable record costs: with one caller, and when 64 callers share the disk.
#![allow(clippy::unwrap_used, missing_docs, reason = "a bench")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures_util::future::join_all;
use portcullis::digest::Digest;
use portcullis::ledger::{ChainStart, Event, EventKind, Ledger};
use serde_json::json;

/// As many agents as a busy team has.
const CALLERS: u64 = 64;

fn event() -> Event {
    Event::new(EventKind::CallIntent, json!({"tool": "files__read_file", "arguments": {"path": "string(42)"}}))
}

fn append(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let started = ChainStart { version: "bench".into(), config: Digest::of(b"") };
    let ledger = runtime.block_on(Ledger::open(dir.path(), started)).unwrap();
    let mut group = criterion.benchmark_group("ledger");
    group.throughput(Throughput::Elements(1));
    group.bench_function("append", |bencher| {
        bencher.iter(|| runtime.block_on(ledger.append(event())).unwrap());
    });
    group.throughput(Throughput::Elements(CALLERS));
    group.bench_function("append by 64 callers", |bencher| {
        bencher.iter(|| {
            let callers = (0..CALLERS).map(|_| {
                let ledger = ledger.clone();
                runtime.spawn(async move { ledger.append(event()).await.unwrap() })
            });
            runtime.block_on(join_all(callers.collect::<Vec<_>>()))
        });
    });
    group.finish();
    runtime.block_on(ledger.close());
}

criterion_group!(benches, append);
criterion_main!(benches);
