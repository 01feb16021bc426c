//! Writes a ledger as years would leave it, and measures how long it takes to verify it and to ask it questions.
//!
//! `years write DIR CALLS` appends calls, as many agents at a time would. `years verify DIR STATE` verifies the ledger: the
//! first time all of it, and afterwards what was added. `years ask DIR` asks what people ask, and prints the time of each
//! answer. Use a release build.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "an example that measures")]

use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use portcullis_core::call::{CallId, SessionId};
use portcullis_core::digest::Digest;
use portcullis_core::protocol::Method;
use portcullis_ledger::{
    CallEntry, CallRange, ChainReport, ChainStart, Event, EventKind, IntentDurability, Ledger, LedgerReader,
    RecordFilter, RecordedOutcome, VerifiedSegments, verify_after,
};
use serde_json::json;

/// Enough agents that a wait for the disk serves many calls, so that writing ten million takes minutes.
const CALLERS: u64 = 512;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["write", dir, calls] => write(Path::new(dir), calls.parse()?),
        ["verify", dir, state] => verify(Path::new(dir), Path::new(state)),
        ["ask", dir] => ask(Path::new(dir)),
        _ => Err("usage: years write DIR CALLS | years verify DIR STATE | years ask DIR".into()),
    }
}

/// Appends calls of 5 people, 20 sources and 400 tools, of which each hundredth is denied and each thousandth fails.
fn write(dir: &Path, calls: u64) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(async {
        let started = ChainStart { version: "years".into(), config: Digest::of(b""), key: None };
        let ledger = Ledger::open(dir, started).await?;
        let runs: Arc<Vec<SessionId>> = Arc::new((0..CALLERS).map(|_| SessionId::new()).collect());
        for (number, run) in runs.iter().enumerate() {
            let body = json!({"client": "years", "principal": format!("person{}", number % 5), "profile": "default"});
            ledger.append(Event::new(EventKind::RunStarted, body).in_run(run)).await?;
        }
        let callers = (0..CALLERS).map(|caller| {
            let (ledger, runs) = (ledger.clone(), Arc::clone(&runs));
            tokio::spawn(async move {
                for number in (caller..calls).step_by(CALLERS as usize) {
                    call(&ledger, &runs[caller as usize], number).await;
                }
            })
        });
        for done in join_all(callers.collect::<Vec<_>>()).await {
            done?;
        }
        ledger.close().await;
        println!("wrote {calls} calls in {:.1} s", begun.elapsed().as_secs_f64());
        Ok(())
    })
}

/// Records the intent of a call, waits for the disk, and records the outcome: what the gate does for each call.
async fn call(ledger: &Ledger, run: &SessionId, number: u64) {
    let (call, digest) = (CallId::new(), Digest::of(b"definition"));
    let payload = |shape| json!({"bytes": 42, "hash": ledger.fingerprint(call.as_str().as_bytes()), "shape": shape});
    let (source, principal) = (format!("source{}", number % 20), format!("person{}", number % CALLERS % 5));
    let tool = format!("{source}__tool{}", number / 20 % 20);
    // A tool that is called once in ten thousand calls, by one of them.
    let tool = if number % 10_000 == 17 { "source17__rarely_called".to_owned() } else { tool };
    if number % 100 == 99 {
        let denied = json!({
            "arguments": payload(json!({"path": "string(42)"})), "client": "years", "code": "policy.denied",
            "method": Method::ToolsCall.as_str(), "principal": principal, "profile": "default", "source": source, "tool": tool,
        });
        let denied = Event::new(EventKind::CallDenied, denied).in_run(run).to_call(&call);
        ledger.append(denied).await.unwrap();
        return;
    }
    let intent = json!({
        "arguments": payload(json!({"path": "string(42)"})), "client": "years", "definition": digest, "identity": digest,
        "method": Method::ToolsCall.as_str(), "name": "read_file", "policies": digest, "principal": principal, "profile": "default",
        "risk": "risky", "source": source, "tool": tool, "trust": "medium", "verdicts": [],
    });
    let (ended, key) = if number % 1000 == 500 { ("tool_error", "string(17)") } else { ("ok", "string(42)") };
    let outcome = json!({
        "micros": 1000 + number % 977, "outcome": ended, "source": source, "tool": tool, "verdicts": [],
        "result": payload(json!({"content": ["array(1)", {"text": key}]})),
    });
    let intent = Event::new(EventKind::CallIntent, intent).in_run(run).to_call(&call);
    let (pending, slot) = ledger.intent(intent, None, IntentDurability::BeforeCall).await.unwrap();
    pending.unwrap().durable().await.unwrap();
    slot.record(Event::new(EventKind::ToolCompleted, outcome).in_run(run).to_call(&call));
}

/// Verifies the ledger, and goes on from what earlier verifications found good.
fn verify(dir: &Path, state: &Path) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    let mut verified = VerifiedSegments::load(state, dir)?;
    let found = verify_after(dir, &[], &[], &mut verified)?;
    verified.save()?;
    let count = |count: fn(&ChainReport) -> u64| found.chains.iter().map(count).sum::<u64>();
    let (records, before) = (count(|chain| chain.records), count(|chain| chain.verified_before));
    let seconds = begun.elapsed().as_secs_f64();
    println!("{:?}: {records} records, {before} of them verified before, in {seconds:.2} s", found.verdict);
    Ok(())
}

/// A condition that a call meets or not.
type Condition<'a> = &'a dyn Fn(&CallEntry) -> bool;

/// Asks for the newest 20 calls of a kind, and prints how long each answer takes.
fn ask(dir: &Path) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    let reader = LedgerReader::open(dir)?;
    reader.tail(1, &RecordFilter::default())?;
    println!("bringing the index up to date: {:.1} s", begun.elapsed().as_secs_f64());
    let range = CallRange { newest_first: true, ..CallRange::default() };
    let is_rare = |entry: &CallEntry| entry.item.as_deref() == Some("source17__rarely_called");
    let questions: [(&str, Condition<'_>); 4] = [
        ("any", &|_| true),
        ("of one source", &|entry| entry.source.as_deref() == Some("source3")),
        ("that were denied", &|entry| entry.outcome == RecordedOutcome::Denied),
        ("of a tool that is called once in ten thousand calls", &is_rare),
    ];
    for (name, fits) in questions {
        let (begun, mut found) = (Instant::now(), 0);
        reader.visit_calls(&range, |entry, _| {
            found += u32::from(fits(&entry));
            if found < 20 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        println!("the newest {found} calls {name}: {:.1} ms", begun.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(())
}
