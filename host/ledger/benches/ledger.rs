//! Measures what a durable record costs: with one caller, when 64 callers share the disk, and compared with the disk
//! itself.
#![allow(clippy::unwrap_used, missing_docs, reason = "a bench")]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures_util::future::join_all;
use portcullis_core::call::{CallId, SessionId};
use portcullis_core::digest::Digest;
use portcullis_ledger::{ChainStart, Event, EventBody, EventKind, IntentDurability, Ledger};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// As many agents as a busy team has.
const CALLERS: u64 = 64;

/// About as many bytes as the records of one call take on the disk.
const CALL_BYTES: usize = 450;

/// The space that is written to in a circle, in bytes.
const RESERVED: usize = 4 << 20;

/// Records the intent of a call, waits for the disk, and records the outcome: what the gate does for each call.
async fn call(ledger: &Ledger, run: &SessionId) {
    let (call, digest) = (CallId::new(), Digest::of(b"definition"));
    let payload = |shape: Value| {
        EventBody::new()
            .with("bytes", 42usize)
            .with("hash", ledger.fingerprint(call.as_str().as_bytes()))
            .with("shape", shape)
    };
    // As the gate puts them together.
    let intent = EventBody::new()
        .with("arguments", payload(json!({"path": "string(42)"})))
        .with("client", "bench")
        .with("definition", digest)
        .with("identity", digest)
        .with("method", "tools/call")
        .with("name", "read_file")
        .with("policies", digest)
        .with("principal", "cli")
        .with("profile", "default")
        .with("risk", "risky")
        .with("source", "files")
        .with("tool", "files__read_file")
        .with("trust", "medium")
        .with("verdicts", Vec::<EventBody>::new());
    let outcome = EventBody::new()
        .with("micros", 1234u64)
        .with("outcome", "ok")
        .with("result", payload(json!({"content": ["array(1)", {"text": "string(42)"}]})))
        .with("source", "files")
        .with("tool", "files__read_file")
        .with("verdicts", Vec::<EventBody>::new());
    let intent = Event::new(EventKind::CallIntent, intent).in_run(run).to_call(&call);
    let (pending, slot) = ledger.intent(intent, None, IntentDurability::BeforeCall).await.unwrap();
    pending.unwrap().durable().await.unwrap();
    slot.record(Event::new(EventKind::ToolCompleted, outcome).in_run(run).to_call(&call));
}

/// The number of calls whose processor time is measured.
const MEASURED: u32 = 20_000;

/// Returns the time that all threads of this process have run.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap()
}

/// Prints the processor time of a write over zeros and `fdatasync`, of as many bytes as a call has.
fn print_disk_time(file: &File) {
    let before = processor_time();
    for _ in 0..MEASURED {
        file.write_all_at(&[7; CALL_BYTES], 0).unwrap();
        file.sync_data().unwrap();
    }
    println!("processor time of a write over zeros and fdatasync: {:.1?}", (processor_time() - before) / MEASURED);
}

/// Prints the processor time of a call: with one caller, and with 64.
fn print_processor_time(runtime: &Runtime, ledger: &Ledger, run: &SessionId) {
    for callers in [1, CALLERS] {
        let before = processor_time();
        let each = MEASURED / callers as u32;
        let calls = (0..callers).map(|_| {
            let (ledger, run) = (ledger.clone(), run.clone());
            runtime.spawn(async move {
                for _ in 0..each {
                    call(&ledger, &run).await;
                }
            })
        });
        runtime.block_on(join_all(calls.collect::<Vec<_>>()));
        let took = (processor_time() - before) / (each * callers as u32);
        println!("processor time of a call with {callers} callers: {took:.1?}");
    }
}

fn append(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let started = ChainStart { version: "bench".into(), config: Digest::of(b""), key: None };
    let ledger = runtime.block_on(Ledger::open(dir.path(), started)).unwrap();
    let run = SessionId::new();
    print_processor_time(&runtime, &ledger, &run);
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
    print_disk_time(&file);
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
