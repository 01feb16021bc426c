//! A search through the index finds the same calls as reading every record, in the same order.

use std::ops::ControlFlow;

use super::*;

const SOURCES: [&str; 3] = ["files", "mail", "group"];
const OUTCOMES: [&str; 5] = ["ok", "tool_error", "withheld", "unknown", "not-sent"];

/// Appends calls of every kind; `from` is the number of the first.
async fn append(ledger: &Ledger, from: usize, n: usize) {
    for number in from..from + n {
        let call = CallId::new();
        let source = SOURCES[number % 3];
        let note = if number % 97 == 13 { "once in A WHILE" } else { "always" };
        let body = json!({
            "tool": format!("{source}__tool{}", number % 7), "source": source, "principal": format!("person{}", number % 4),
            "profile": "default", "arguments": {"hash": ledger.fingerprint(&number.to_be_bytes()), "shape": {note: "number"}},
        });
        let record = |kind: EventKind, body: serde_json::Value| ledger.append(Event::new(kind, body).to_call(&call));
        let invented = json!({"tool": format!("invented{number}"), "principal": "person1", "code": "unknown-tool"});
        let resource = json!({"resource": format!("file:///tmp/{number}"), "source": "files"});
        match number % 11 {
            0 => drop(record(EventKind::CallDenied, body).await.unwrap()),
            1 => drop(record(EventKind::CallDenied, invented).await.unwrap()),
            2 => drop(record(EventKind::CallIntent, resource).await.unwrap()),
            3 => drop(record(EventKind::CallAsked, body).await.unwrap()),
            4 => {
                record(EventKind::CallAsked, body).await.unwrap();
                record(EventKind::CallAnswered, json!({"approved": false})).await.unwrap();
            }
            _ => {
                record(EventKind::CallIntent, body).await.unwrap();
                // A group may send a call to another source, whose name the outcome has.
                let source = if source == "group" { "member" } else { source };
                let outcome = json!({"outcome": OUTCOMES[number % 5], "source": source, "micros": 4_000_000 + number});
                record(EventKind::ToolCompleted, outcome).await.unwrap();
            }
        }
    }
}

/// A call, and its records.
type Found = (CallEntry, Vec<PositionedRecord>);

fn search(dir: &Path, range: &CallRange, filter: &CallFilter<'_>) -> Vec<Found> {
    let mut found = Vec::new();
    let reader = LedgerReader::open(dir).unwrap();
    let visited = reader.visit_calls(range, filter, |entry, records| {
        found.push((entry, records.to_vec()));
        ControlFlow::Continue(())
    });
    visited.unwrap();
    found
}

/// Returns the identifiers of the calls that a search finds, which must be those that the records give.
fn compared(dir: &Path, range: &CallRange, filter: &CallFilter<'_>, all: &[Found]) -> Vec<String> {
    let found = search(dir, range, filter).into_iter().map(|(entry, _)| entry.call);
    let expected = all.iter().filter(|(entry, records)| filter.matches(entry, records)).map(|(entry, _)| &entry.call);
    let (found, expected): (Vec<_>, Vec<_>) = (found.collect(), expected.cloned().collect());
    assert_eq!(found, expected);
    found
}

/// Compares both ways for many questions. Returns the number of calls that were found.
fn compare(dir: &Path) -> usize {
    let any = CallFilter::default();
    let texts = [
        "ALWAYS",
        "once in a while",
        "while",
        "tool3",
        "invented12",
        "tmp/13",
        "member",
        "unknown-tool",
        "nowhere",
        "e",
        "4000005",
        "false",
        "",
    ];
    let texts = texts.map(TextQuery::new);
    let names: [&dyn Fn(&str) -> bool; 5] = [
        &|item| item == "mail__tool1",
        &|item| item.starts_with("files"),
        &|item| item.starts_with("invented1"),
        &|item| item == "file:///tmp/13",
        &|_| false,
    ];
    let mut filters = vec![any];
    filters.extend(["files", "group", "member", "none"].map(|source| CallFilter { source: Some(source), ..any }));
    filters.extend(["person1", "nobody"].map(|principal| CallFilter { principal: Some(principal), ..any }));
    filters.extend(names.map(|item| CallFilter { item: Some(item), ..any }));
    filters.extend(RecordedOutcome::ALL.map(|outcome| CallFilter { outcome: Some(outcome), ..any }));
    filters.extend(texts.iter().map(|text| CallFilter { text: Some(text), ..any }));
    let denied = Some(RecordedOutcome::Denied);
    filters.push(CallFilter { source: Some("mail"), principal: Some("person2"), outcome: denied, ..any });
    filters.push(CallFilter { profile: Some("default"), text: Some(&texts[1]), ..any });
    filters.push(CallFilter { source: Some("mail"), text: Some(&texts[3]), outcome: denied, ..any });
    let mut all = search(dir, &CallRange::default(), &any);
    assert!(all.is_sorted_by(|(one, _), (next, _)| one.call < next.call));
    let mut count = 0;
    for newest_first in [false, true] {
        let range = CallRange { newest_first, ..CallRange::default() };
        count += filters.iter().map(|filter| compared(dir, &range, filter, &all).len()).sum::<usize>();
        all.reverse();
    }
    count
}

#[tokio::test]
async fn a_search_finds_what_a_look_at_every_record_finds() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    append(&ledger, 0, 150).await;
    compare(dir.path());
    // The index resumes where it stopped, also within a block.
    append(&ledger, 150, 1000).await;
    let live = compare(dir.path());
    ledger.close().await;
    assert_eq!(compare(dir.path()), live, "what was open is now unknown or abandoned");
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
    crate::index::remove(dir.path());
    assert_eq!(compare(dir.path()), live, "an index that is made at once");
}

#[tokio::test]
async fn a_search_in_a_period_finds_what_began_in_it() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    append(&ledger, 0, 300).await;
    while portcullis_core::call::now_millis() == records(dir.path()).last().unwrap().record.at {
        std::thread::yield_now();
    }
    let middle = portcullis_core::call::now_millis();
    append(&ledger, 300, 300).await;
    let text = TextQuery::new("while");
    for filter in [
        CallFilter { source: Some("mail"), ..CallFilter::default() },
        CallFilter { text: Some(&text), ..CallFilter::default() },
    ] {
        let of = |since, until| {
            let range = CallRange { since, until, ..CallRange::default() };
            let all = search(dir.path(), &range, &CallFilter::default());
            compared(dir.path(), &range, &filter, &all)
        };
        let (before, after) = (of(None, Some(middle)), of(Some(middle), None));
        assert!(!before.is_empty() && !after.is_empty());
        assert_eq!([before, after].concat(), of(None, None));
    }
    ledger.close().await;
}

/// A call ends long after it began, when the blocks after its own are full.
#[tokio::test]
async fn a_text_in_the_late_end_of_an_old_call_is_found() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    let old = CallId::new();
    ledger.append(event(EventKind::CallIntent).to_call(&old)).await.unwrap();
    append(&ledger, 0, 1100).await;
    search(dir.path(), &CallRange::default(), &CallFilter::default());
    let body = json!({"outcome": "tool_error", "error": "the volcano erupted"});
    ledger.append(Event::new(EventKind::ToolCompleted, body).to_call(&old)).await.unwrap();
    let text = TextQuery::new("volcano");
    let failed = CallFilter { outcome: Some(RecordedOutcome::Failed), text: Some(&text), ..CallFilter::default() };
    let found: Vec<_> =
        search(dir.path(), &CallRange::default(), &failed).into_iter().map(|found| found.0.call).collect();
    assert_eq!(found, [old.to_string()]);
    ledger.close().await;
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test]
async fn a_search_through_the_index_sorts_nothing_and_reads_no_other_calls() {
    let dir = folder();
    closed(dir.path(), 3).await;
    let reader = LedgerReader::open(dir.path()).unwrap();
    reader.tail(1, &RecordFilter::default()).unwrap();
    for (sql, step) in [
        (
            "SELECT call FROM calls WHERE class = 1 AND call >= x'' AND call < x'ff' ORDER BY call DESC LIMIT 9",
            "SEARCH calls USING COVERING INDEX calls_class (class=? AND call>? AND call<?)",
        ),
        (
            "SELECT call, class FROM calls WHERE call >= x'' AND call < x'ff' ORDER BY call DESC",
            "SEARCH calls USING PRIMARY KEY (call>? AND call<?)",
        ),
        ("SELECT facts FROM events WHERE call = x'00' ORDER BY row", "SEARCH events USING INDEX events_call (call=?)"),
    ] {
        let mut plan = reader.connection().prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let steps: Vec<String> = plan.query_map([], |row| row.get(3)).unwrap().map(Result::unwrap).collect();
        assert_eq!(steps, [step], "{sql}");
    }
}
