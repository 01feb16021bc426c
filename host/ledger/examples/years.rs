//! Writes a ledger as years would leave it, and measures how long it takes to verify it and to ask it questions.
//!
//! `years write DIR CALLS` appends calls, as many agents at a time would. `years verify DIR STATE` verifies the ledger:
//! the first time all of it, and afterwards what was added. `years sign DIR STATE` makes checkpoints and proves the
//! first record, one in the middle and the last one, both from what was verified before. `years ask DIR` brings the
//! index up to date, asks what people ask, and prints the time of each answer: the newest 50 calls, and all calls of a
//! minute; with WORDS, only questions that have them. Use a release build.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "an example that measures")]

use std::error::Error;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use portcullis_core::call::{CallId, SessionId};
use portcullis_core::digest::Digest;
use portcullis_core::protocol::Method;
use portcullis_ledger::{
    CallFilter, CallRange, ChainReport, ChainStart, CheckpointKey, Event, EventKind, IntentDurability, Ledger,
    LedgerReader, RecordFilter, RecordProof, RecordedOutcome, TextQuery, VerifiedSegments, checkpoints, prove,
    verify_after,
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
        ["sign", dir, state] => sign(Path::new(dir), Path::new(state)),
        ["ask", dir] => ask(Path::new(dir), ""),
        ["ask", dir, words] => ask(Path::new(dir), words),
        _ => {
            Err("usage: years write DIR CALLS | years verify DIR STATE | years sign DIR STATE | years ask DIR [WORDS]"
                .into())
        }
    }
}

/// Appends calls of 5 people, 20 sources and 400 tools, where every hundredth is denied and every thousandth fails.
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
    // One call in ten thousand has an argument that the others do not have.
    let argument = if number % 10_000 == 4711 { "once in ten thousand" } else { "path" };
    let intent = json!({
        "arguments": payload(json!({argument: "string(42)"})), "client": "years", "definition": digest, "identity": digest,
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

/// Verifies the ledger, resuming after the parts that earlier verifications found good.
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

/// Signs the ledger and proves records of it, resuming after the parts that earlier verifications found good.
fn sign(dir: &Path, state: &Path) -> Result<(), Box<dyn Error>> {
    let (key, keys) = (CheckpointKey::open(state)?, CheckpointKey::trusted(state)?);
    let begun = Instant::now();
    let mut verified = VerifiedSegments::load(state, dir)?;
    let signed = checkpoints(dir, &key, &keys, &mut verified)?.remove(0);
    println!("checkpoint of {} records in {:.2} s", signed.size(), begun.elapsed().as_secs_f64());
    for record in [1, signed.size() / 2, signed.size()] {
        let begun = Instant::now();
        let proof = prove(dir, signed.chain(), &[record], None, &key, &keys, &mut verified)?.remove(0);
        let (made, text) = (begun.elapsed().as_secs_f64(), proof.to_text());
        let (size, begun) = (text.len() - proof.record().len(), Instant::now());
        RecordProof::check_all(&text, &keys)?;
        let checked = begun.elapsed().as_secs_f64() * 1000.0;
        println!("proof of record {record} in {made:.2} s: {size} bytes beside its record, checked in {checked:.2} ms");
    }
    Ok(verified.save()?)
}

/// The number of calls of an answer.
const PAGE: u32 = 50;

/// Asks for the newest calls of a kind, and prints how long each answer takes.
fn ask(dir: &Path, words: &str) -> Result<(), Box<dyn Error>> {
    let (begun, processor) = (Instant::now(), processor_time()?);
    let reader = LedgerReader::open(dir)?;
    let last = reader.tail(1, &RecordFilter::default())?.pop().map_or(0, |last| last.record.at);
    let size = fs::metadata(dir.join("index.sqlite"))?.len() / 1_000_000;
    let (time, processor) = (begun.elapsed().as_secs_f64(), (processor_time()? - processor) / 1000.0);
    println!("bringing the index up to date: {time:.2} s, {processor:.2} on the processor; it has {size} MB");
    let is = |wanted: &'static str| move |item: &str| item == wanted;
    let (common_tool, rare_tool, no_tool) =
        (is("source3__tool5"), is("source17__rarely_called"), |item: &str| item.starts_with("nothing__"));
    let [common, rare, argument, absent] =
        ["READ_file", "rarely_called", "once in ten thousand", "nowhere to be found"].map(TextQuery::new);
    let any = CallFilter::default();
    let questions = [
        ("any", any),
        ("of a source", CallFilter { source: Some("source3"), ..any }),
        ("of a principal", CallFilter { principal: Some("person2"), ..any }),
        ("of a tool", CallFilter { item: Some(&common_tool), ..any }),
        ("of a tool that one call in ten thousand is of", CallFilter { item: Some(&rare_tool), ..any }),
        ("of a tool that there is not", CallFilter { item: Some(&no_tool), ..any }),
        ("that were denied, one in a hundred", CallFilter { outcome: Some(RecordedOutcome::Denied), ..any }),
        ("that failed, one in a thousand", CallFilter { outcome: Some(RecordedOutcome::Failed), ..any }),
        ("of unknown outcome, of which there are none", CallFilter { outcome: Some(RecordedOutcome::Unknown), ..any }),
        (
            "that failed, of a principal and a tool that do not go together",
            CallFilter {
                principal: Some("person2"),
                item: Some(&rare_tool),
                outcome: Some(RecordedOutcome::Failed),
                ..any
            },
        ),
        ("with a text that all have", CallFilter { text: Some(&common), ..any }),
        ("with a text in one name in ten thousand", CallFilter { text: Some(&rare), ..any }),
        ("with a text in one argument in ten thousand", CallFilter { text: Some(&argument), ..any }),
        ("with a text that there is not", CallFilter { text: Some(&absent), ..any }),
    ];
    for (name, filter) in questions.into_iter().filter(|(name, _)| name.contains(words)) {
        for newest_first in [true, false] {
            let order = if newest_first { "newest" } else { "oldest" };
            let range = CallRange { newest_first, ..CallRange::default() };
            answer(&reader, &range, &filter, PAGE, &format!("{order} calls {name}"))?;
        }
    }
    if !words.is_empty() {
        return Ok(());
    }
    let range = CallRange { since: Some(last.saturating_sub(2000)), ..CallRange::default() };
    answer(&reader, &range, &any, u32::MAX, "calls of the last two seconds")
}

/// Asks for calls, and prints how many there were and how long the answer took, in total and on the processor.
fn answer(
    reader: &LedgerReader,
    range: &CallRange,
    filter: &CallFilter<'_>,
    most: u32,
    name: &str,
) -> Result<(), Box<dyn Error>> {
    let (begun, processor, mut found) = (Instant::now(), processor_time()?, 0);
    reader.visit_calls(range, filter, |_, _| {
        found += 1;
        if found < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    let (time, processor) = (begun.elapsed().as_secs_f64() * 1000.0, processor_time()? - processor);
    println!("{time:9.1} ms, {processor:8.1} on the processor: {found} {name}");
    Ok(())
}

/// Returns the time that this thread has run, in milliseconds.
fn processor_time() -> Result<f64, Box<dyn Error>> {
    let times = fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(times.split(' ').next().unwrap_or_default().parse::<f64>()? / 1e6)
}
