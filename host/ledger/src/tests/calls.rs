//! Each call is one entry, and a period is found through the index.

use std::ops::ControlFlow;

use super::*;

/// Returns the entries of a range in the order in which they are visited.
fn entries(dir: &Path, range: &CallRange) -> Vec<CallEntry> {
    let mut found = Vec::new();
    let reader = LedgerReader::open(dir).unwrap();
    let visited = reader.visit_calls(range, &CallFilter::default(), |entry, _| {
        found.push(entry);
        ControlFlow::Continue(())
    });
    visited.unwrap();
    found
}

async fn record(ledger: &Ledger, call: &CallId, kind: EventKind, body: serde_json::Value) {
    ledger.append(Event::new(kind, body).to_call(call)).await.unwrap();
}

#[tokio::test]
async fn a_call_is_one_entry_with_its_outcome() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    let calls: Vec<CallId> = (0..7).map(|_| CallId::new()).collect();
    let intent = json!({ "tool": "files__read", "source": "files", "principal": "eve", "method": "tools/call" });
    for call in &calls[..4] {
        record(&ledger, call, EventKind::CallIntent, intent.clone()).await;
    }
    let outcome = |outcome: &str| json!({ "outcome": outcome, "micros": 1500, "error": "it broke" });
    record(&ledger, &calls[0], EventKind::ToolCompleted, json!({ "outcome": "ok", "micros": 1200 })).await;
    record(&ledger, &calls[1], EventKind::ToolCompleted, outcome("tool_error")).await;
    let withheld = json!({ "outcome": "withheld", "withheld": { "code": "result-asked" } });
    record(&ledger, &calls[2], EventKind::ToolCompleted, withheld).await;
    record(&ledger, &calls[4], EventKind::CallAsked, json!({ "tool": "files__write" })).await;
    record(&ledger, &calls[5], EventKind::CallAsked, json!({ "tool": "files__write" })).await;
    record(&ledger, &calls[5], EventKind::CallAnswered, json!({ "approved": false, "by": "a person" })).await;
    record(&ledger, &calls[6], EventKind::CallDenied, json!({ "tool": "files__move", "code": "rule" })).await;
    let live = entries(dir.path(), &CallRange::default());
    let outcomes = |found: &[CallEntry]| {
        let of = |call: &CallId| found.iter().find(|entry| entry.call == call.as_str()).unwrap().outcome;
        calls.iter().map(of).map(RecordedOutcome::as_str).collect::<Vec<_>>()
    };
    assert_eq!(outcomes(&live), ["ok", "failed", "withheld", "running", "asked", "denied", "denied"]);
    let of = |call: &CallId| live.iter().find(|entry| entry.call == call.as_str()).unwrap();
    let first = of(&calls[0]);
    assert_eq!((first.principal.as_deref(), first.source.as_deref()), (Some("eve"), Some("files")));
    assert_eq!((first.kind, first.item.as_deref(), first.micros), (Some("tool"), Some("files__read"), Some(1200)));
    let reasons: Vec<_> = calls.iter().map(|call| of(call).reason.as_deref()).collect();
    assert_eq!(reasons, [None, Some("it broke"), Some("result-asked"), None, None, None, Some("rule")]);
    assert_eq!(of(&calls[5]).answered_by.as_deref(), Some("a person"));

    ledger.close().await;
    let ended = entries(dir.path(), &CallRange::default());
    assert_eq!(outcomes(&ended), ["ok", "failed", "withheld", "unknown", "abandoned", "denied", "denied"]);
}

#[tokio::test]
async fn a_period_has_the_calls_that_began_in_it_in_either_order() {
    let dir = folder();
    closed(dir.path(), 0).await;
    let id = |millis: u64| ulid::Ulid::from_parts(millis, 7).to_string();
    // Identifiers with chosen times cannot be had from a broker.
    let mut records = Vec::new();
    for millis in [3000, 1000, 2000] {
        for kind in ["call.intent", "tool.completed"] {
            let (seq, body) = (records.len() as u64 + 1, json!({ "tool": "t", "outcome": "ok" }));
            let text = json!({ "at": millis, "body": body, "call": id(millis), "chain": "X", "kind": kind, "seq": seq, "v": 1 });
            records.push(ChainedRecord { seq, text: text.to_string(), hash: RecordHash::default() });
        }
    }
    segments(dir.path()).create("X").append(&records).unwrap();
    let ids = |range: CallRange| entries(dir.path(), &range).into_iter().map(|entry| entry.call).collect::<Vec<_>>();
    let texts = |all: &[u64]| all.iter().map(|millis| id(*millis)).collect::<Vec<_>>();
    assert_eq!(ids(CallRange::default()), texts(&[1000, 2000, 3000]));
    assert_eq!(ids(CallRange { newest_first: true, ..CallRange::default() }), texts(&[3000, 2000, 1000]));
    assert_eq!(ids(CallRange { since: Some(2000), ..CallRange::default() }), texts(&[2000, 3000]));
    assert_eq!(ids(CallRange { until: Some(2000), ..CallRange::default() }), texts(&[1000]));
    assert_eq!(ids(CallRange { since: Some(u64::MAX), ..CallRange::default() }), texts(&[]));
}
