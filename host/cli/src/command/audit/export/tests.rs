//! Tests of exports.

#![allow(clippy::unwrap_used, reason = "tests")]

use portcullis::call::CallId;
use portcullis::digest::Digest;
use portcullis::ledger::{ChainStart, Event, EventBody, EventKind, Ledger, RecordedOutcome};

use super::*;

pub(super) fn entry() -> CallEntry {
    let text = |text: &str| Some(text.to_owned());
    CallEntry {
        call: "01M7WN5Q1GEFB10ZKY19G6B2W8".to_owned(),
        run: text("01M7WN5Q1GEFB10ZKY19G6B2W7"),
        started: 1_795_000_000_123,
        principal: text("me"),
        profile: text("default"),
        client: text("claude-code"),
        method: text("tools/call"),
        kind: Some("tool"),
        item: text("files__read"),
        source: text("files"),
        outcome: RecordedOutcome::Denied,
        reason: text("rule"),
        answered_by: None,
        micros: Some(1500),
    }
}

#[test]
fn every_form_says_which_call_a_line_is_about() {
    use clap::ValueEnum as _;

    let hostile = CallEntry { item: Some("a,\"b\" externalId=x|\n\u{202e}".to_owned()), ..entry() };
    for format in ExportFormat::value_variants().iter().filter_map(|format| format.lines()) {
        for entry in [&entry(), &hostile] {
            let line = format.line(entry).unwrap();
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            assert!(!line.contains('\u{202e}'), "{line}");
            assert_eq!(format.call(line.trim_end()), entry.call.parse().ok(), "{line}");
        }
        assert_eq!(format.call("something else"), None);
    }
}

#[test]
fn a_file_is_continued_after_its_last_whole_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("calls");
    let format = LineFormat::Csv;
    assert!(matches!(continued(&path, format), Ok((_, None))), "there is none yet");
    std::fs::write(&path, format.heading()).unwrap();
    assert!(matches!(continued(&path, format), Ok((_, None))), "it has its heading alone");
    let whole = format.heading() + &format.line(&entry()).unwrap();
    std::fs::write(&path, format!("{whole}2026-11-24T01:0")).unwrap();
    let (_, last) = continued(&path, format).unwrap();
    assert_eq!(last, entry().call.parse().ok());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), whole, "the line that was cut is gone");
    assert!(continued(&path, LineFormat::Ocsf).unwrap_err().to_string().contains("--format ocsf"));
    for other in ["PAR1 and no line", "a file of lines\nthat is something else", "x"] {
        std::fs::write(&path, other).unwrap();
        assert!(continued(&path, format).unwrap_err().to_string().contains("--format csv"), "{other}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), other, "it stays as it is");
    }
    std::fs::write(&path, format.heading().get(..3).unwrap()).unwrap();
    assert!(matches!(continued(&path, format), Ok((_, None))), "its heading was cut");
    assert!(created(&path, CONTINUE).unwrap_err().to_string().contains("--resume"));
}

/// Records an event of a call that began at this time.
async fn record(ledger: &Ledger, call: &CallId, kind: EventKind, outcome: &str) {
    let body = EventBody::new().with("tool", "files__read").with("source", "files").with("outcome", outcome);
    let body = if outcome.is_empty() { body } else { body.with("note", "needle") };
    ledger.append(Event::new(kind, body).to_call(call)).await.unwrap();
}

#[tokio::test]
async fn a_call_that_ends_after_a_later_one_is_in_the_continued_file_whatever_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let started = ChainStart { version: "1".into(), config: Digest::of(b""), key: None };
    let ledger = Ledger::open(dir.path(), started).await.unwrap();
    // Calls that are older than what a running broker may still record.
    let old = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap() - 10 * MAX_UNRECORDED_MS;
    let call = |after: u64| CallId::recorded(&Ulid::from_parts(old + after, 7).to_string()).unwrap();
    let (first, second) = (call(0), call(1000));
    record(&ledger, &first, EventKind::CallIntent, "").await;
    record(&ledger, &second, EventKind::CallIntent, "").await;
    record(&ledger, &second, EventKind::ToolCompleted, "ok").await;
    let with =
        |outcome, text: Option<&str>| CallQuery { outcome, text: text.map(str::to_owned), ..CallQuery::default() };
    let queries = [with(Some(RecordedOutcome::Ok), None), with(None, Some("needle"))];
    let exported = |query: &CallQuery, last: Option<Ulid>| {
        let mut calls = Vec::new();
        let written = visit_ended(dir.path(), query, last, |entry| {
            calls.push(entry.call);
            Ok(())
        });
        (calls, written.unwrap().left.map(|(call, _)| call))
    };
    for query in &queries {
        assert_eq!(exported(query, None), (Vec::new(), Some(first.to_string())), "{query:?}");
    }
    record(&ledger, &first, EventKind::ToolCompleted, "ok").await;
    for query in &queries {
        assert_eq!(exported(query, None), (vec![first.to_string(), second.to_string()], None), "{query:?}");
        assert_eq!(exported(query, first.as_str().parse().ok()), (vec![second.to_string()], None), "{query:?}");
    }
    let failed = with(Some(RecordedOutcome::Failed), None);
    assert_eq!(exported(&failed, None), (Vec::new(), None));
    ledger.close().await;
}
