//! Measures what a durable record costs: with one caller, when 64 callers share the disk, and beside the disk itself.
#![allow(clippy::unwrap_used, missing_docs, reason = "a bench")]

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures_util::future::join_all;
use portcullis::call::{CallId, SessionId};
use portcullis::digest::Digest;
use portcullis::ledger::{ChainStart, Event, EventKind, IntentDurability, Ledger};
use serde_json::json;

/// As many agents as a busy team has.
const CALLERS: u64 = 64;

/// About as many bytes as the records of one call take on the disk.
const CALL_BYTES: usize = 450;

/// The space that is written to in a circle, in bytes.
const RESERVED: usize = 4 << 20;

/// Records the intent of a call, waits for the disk, and records the outcome: what the gate does for each call.
async fn call(ledger: &Ledger, run: &SessionId) {
    let (call, digest) = (CallId::new(), Digest::of(b"definition"));
    let payload = |shape| json!({"bytes": 42, "hash": ledger.fingerprint(call.as_str().as_bytes()), "shape": shape});
    let intent = json!({
        "arguments": payload(json!({"path": "string(42)"})), "client": "bench", "definition": digest, "identity": digest,
        "method": "tools/call", "name": "read_file", "policies": digest, "principal": "cli", "profile": "default",
        "risk": "risky", "source": "files", "tool": "files__read_file", "trust": "medium", "verdicts": [],
    });
    let outcome = json!({
        "micros": 1234, "outcome": "ok", "result": payload(json!({"content": ["array(1)", {"text": "string(42)"}]})),
        "source": "files", "tool": "files__read_file", "verdicts": [],
    });
    let intent = Event::new(EventKind::CallIntent, intent).in_run(run).to_call(&call);
    let (pending, slot) = ledger.intent(intent, None, IntentDurability::BeforeCall).await.unwrap();
    pending.unwrap().durable().await.unwrap();
    slot.record(Event::new(EventKind::ToolCompleted, outcome).in_run(run).to_call(&call));
}

fn append(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let started = ChainStart { version: "bench".into(), config: Digest::of(b""), key: None };
    let ledger = runtime.block_on(Ledger::open(dir.path(), started)).unwrap();
    let run = SessionId::new();
    let mut group = criterion.benchmark_group("ledger");
    group.throughput(Throughput::Elements(1));
    group.bench_function("a call", |bencher| {
        bencher.iter(|| runtime.block_on(call(&ledger, &run)));
    });
    group.throughput(Throughput::Elements(CALLERS));
    group.bench_function("a call of each of 64 callers", |bencher| {
        bencher.iter(|| {
            let callers = (0..CALLERS).map(|_| {
                let (ledger, run) = (ledger.clone(), run.clone());
                runtime.spawn(async move { call(&ledger, &run).await })
            });
            runtime.block_on(join_all(callers.collect::<Vec<_>>()))
        });
    });
    group.throughput(Throughput::Elements(1));
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(dir.path().join("raw")).unwrap();
    file.write_all_at(&vec![0; RESERVED], 0).unwrap();
    file.sync_all().unwrap();
    let mut at = 0;
    group.bench_function("the disk: a write over zeros and fdatasync", |bencher| {
        bencher.iter(|| {
            file.write_all_at(&[7; CALL_BYTES], at).unwrap();
            file.sync_data().unwrap();
            at = (at + CALL_BYTES as u64) % (RESERVED - CALL_BYTES) as u64;
        });
    });
    let mut end = RESERVED as u64;
    group.bench_function("the disk: a write at the end and fdatasync", |bencher| {
        bencher.iter(|| {
            file.write_all_at(&[7; CALL_BYTES], end).unwrap();
            file.sync_data().unwrap();
            end += CALL_BYTES as u64;
        });
    });
    group.finish();
    runtime.block_on(ledger.close());
}

criterion_group!(benches, append);
criterion_main!(benches);
