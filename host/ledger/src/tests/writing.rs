//! Writing records and reading them back.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

#[tokio::test]
async fn a_chain_has_a_beginning_numbers_and_an_end() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    assert_eq!(ledger.append(event(EventKind::RunStarted)).await, Ok(2));
    ledger.record(event(EventKind::SourceLog));
    assert_eq!(ledger.append(event(EventKind::RunCompleted)).await, Ok(4));
    assert_eq!(*ledger.tip().borrow(), 4);
    ledger.close().await;
    ledger.close().await;
    assert_eq!(ledger.append(event(EventKind::RunStarted)).await, Err(LedgerError::Closed));

    assert_eq!(kinds(dir.path()), ["broker.started", "run.started", "source.log", "run.completed", "broker.stopped"]);
    let first = records(dir.path()).remove(0).record;
    assert_eq!(first.body["version"], "1.2.3");
    assert_eq!(first.body["pid"], std::process::id());
    assert_eq!(first.body["config"], Digest::of(b"config").to_string());
    let verification = verify(dir.path()).unwrap();
    assert_eq!(verification.verdict, ChainStatus::Good);
    let [chain] = &verification.chains[..] else { panic!("{verification:?}") };
    assert_eq!((chain.chain.as_str(), chain.records, chain.stopped, chain.live), (ledger.chain(), 5, true, false));
}

#[tokio::test]
async fn files_are_private_and_a_shared_folder_is_refused() {
    let outer = folder();
    let dir = outer.path().join("data");
    let ledger = open(&dir).await;
    assert_eq!(records(&dir).len(), 1, "reading makes the index");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for entry in std::fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&path), expected, "{path:?}");
    }
    ledger.close().await;

    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o770)).unwrap();
    assert!(matches!(Ledger::open(&dir, started()).await, Err(LedgerError::OpenFolder { mode: 0o770, .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn brokers_that_share_a_folder_write_chains_of_their_own() {
    let dir = folder();
    let brokers = futures_util::future::join_all((0..4).map(|_| open(dir.path()))).await;
    let work = brokers.iter().flat_map(|broker| {
        (0..50).map(move |_| {
            let broker = broker.clone();
            tokio::spawn(async move { broker.append(event(EventKind::CallIntent)).await.unwrap() })
        })
    });
    let mut numbers: Vec<u64> =
        futures_util::future::join_all(work).await.into_iter().map(|done| done.unwrap()).collect();
    numbers.sort_unstable();
    let expected: Vec<u64> = (2..52).flat_map(|n| [n; 4]).collect();
    assert_eq!(numbers, expected);
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good, "all live");

    let keys: std::collections::BTreeSet<String> = brokers.iter().map(|broker| broker.fingerprint(b"x")).collect();
    assert_eq!(keys.len(), 1, "one key for the folder");
    for broker in &brokers {
        broker.close().await;
    }
    let verification = verify(dir.path()).unwrap();
    assert_eq!(verification.verdict, ChainStatus::Good);
    assert!(verification.chains.iter().all(|chain| chain.records == 52 && chain.stopped));
    assert_eq!(verification.chains.len(), 4);
}

#[tokio::test]
async fn calls_and_runs_are_derived_from_their_records() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    let run = SessionId::new();
    let body = json!({"principal": "local", "profile": "default"});
    ledger.append(Event::new(EventKind::RunStarted, body).in_run(&run)).await.unwrap();
    let steps: [(&[EventKind], CallState, CallState); 6] = [
        (&[EventKind::CallAsked], CallState::Waiting, CallState::Abandoned),
        (&[EventKind::CallIntent], CallState::Running, CallState::Unknown),
        (
            &[EventKind::CallAsked, EventKind::CallAnswered, EventKind::CallIntent, EventKind::ToolCompleted],
            CallState::Done,
            CallState::Done,
        ),
        (&[EventKind::CallDenied], CallState::Denied, CallState::Denied),
        (&[EventKind::CallIntent, EventKind::CallDenied], CallState::Denied, CallState::Denied),
        (&[EventKind::CallIntent, EventKind::ToolCompleted], CallState::Unknown, CallState::Unknown),
    ];
    let mut calls = Vec::new();
    for (kinds, live, _) in steps {
        let call = CallId::new();
        for kind in kinds {
            let outcome =
                if live == CallState::Unknown && *kind == EventKind::ToolCompleted { "unknown" } else { "answered" };
            let event = Event::new(*kind, json!({"outcome": outcome}));
            ledger.append(event.in_run(&run).to_call(&call)).await.unwrap();
        }
        calls.push(call);
    }
    let states = || -> Vec<CallState> {
        let reader = LedgerReader::open(dir.path()).unwrap();
        reader.calls(Some(run.as_str()), 100).unwrap().into_iter().map(|row| row.state).collect()
    };
    assert_eq!(states(), steps.map(|(_, live, _)| live));
    let shown = |id: &str| LedgerReader::open(dir.path()).unwrap().show(id).unwrap();
    let Some(CallOrRun::Call { row, records }) = shown(calls[2].as_str()) else { panic!() };
    assert_eq!((row.run.as_deref(), records.len()), (Some(run.as_str()), 4));
    assert!(row.ended >= Some(row.started));
    let Some(CallOrRun::Run { row, .. }) = shown(run.as_str()) else { panic!() };
    assert_eq!((row.state, row.calls, row.principal.as_deref()), (RunState::Running, 6, Some("local")));

    // Dropping the ledger without closing it acts like a crash.
    drop(ledger);
    wait_for_end(dir.path()).await;
    assert_eq!(states(), steps.map(|(_, _, dead)| dead));
    let Some(CallOrRun::Run { row, .. }) = shown(run.as_str()) else { panic!() };
    assert_eq!(row.state, RunState::Unknown);
    assert_eq!(shown("nothing"), None);
}

#[tokio::test]
async fn a_run_that_failed_says_why() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    let run = SessionId::new();
    ledger.append(Event::new(EventKind::RunStarted, json!({})).in_run(&run)).await.unwrap();
    ledger
        .append(Event::new(EventKind::RunError, json!({"error": "source files: exited"})).in_run(&run))
        .await
        .unwrap();
    let rows = LedgerReader::open(dir.path()).unwrap().runs(10).unwrap();
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.state, row.error.as_deref()), (RunState::Error, Some("source files: exited")));
    assert!(row.ended.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn brokers_that_start_together_make_one_ledger() {
    for _ in 0..10 {
        let dir = folder();
        let opened = (0..8).map(|_| {
            let dir = dir.path().to_owned();
            tokio::spawn(async move { open(&dir).await })
        });
        for ledger in futures_util::future::join_all(opened).await {
            ledger.unwrap().close().await;
        }
        assert_eq!(verify(dir.path()).unwrap().chains.len(), 8);
    }
}

#[tokio::test]
async fn a_flush_waits_for_notes() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    for _ in 0..100 {
        ledger.record(event(EventKind::SourceLog));
    }
    ledger.flush().await.unwrap();
    assert_eq!(kinds(dir.path()).len(), 101);
}

#[tokio::test]
async fn readers_filter_and_follow() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    let mut follow = LedgerReader::open(dir.path()).unwrap().follow(
        records(dir.path())[0].position,
        RecordFilter { kind: Some("call.intent".into()), ..RecordFilter::default() },
    );
    for kind in [EventKind::CallIntent, EventKind::SourceLog, EventKind::CallIntent] {
        ledger.append(event(kind)).await.unwrap();
    }
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(follow.next().await.unwrap().into_iter().map(|entry| entry.record.seq));
    }
    assert_eq!(seen, [2, 4]);
    let reader = LedgerReader::open(dir.path()).unwrap();
    let last = reader.tail(2, &RecordFilter { chain: Some(ledger.chain().into()), ..RecordFilter::default() }).unwrap();
    assert_eq!(last.iter().map(|entry| entry.record.seq).collect::<Vec<_>>(), [3, 4]);
    let text = serde_json::to_string(&last[0]).unwrap();
    assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), last[0].record);
}

#[tokio::test]
async fn sinks_get_every_record_in_order_until_they_confirm() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    for _ in 0..4 {
        ledger.append(event(EventKind::SourceLog)).await.unwrap();
    }
    let numbers = async |sink: &str| -> Vec<u64> {
        ledger.batch(sink, 3).await.unwrap().into_iter().map(|(seq, _)| seq).collect()
    };
    assert_eq!(numbers("a").await, [1, 2, 3]);
    assert_eq!(numbers("a").await, [1, 2, 3], "again, until confirmed");
    ledger.advance("a", 3).await.unwrap();
    ledger.advance("a", 1).await.unwrap();
    assert_eq!(numbers("a").await, [4, 5], "never backwards");
    assert_eq!(numbers("b").await, [1, 2, 3], "each sink by itself");
    let (_, text) = ledger.batch("b", 1).await.unwrap().remove(0);
    assert_eq!(text, serde_json::to_string(&records(dir.path())[0]).unwrap());
}

#[tokio::test]
async fn a_sink_gets_no_record_that_is_not_confirmed() {
    let dir = folder();
    let chain = closed(dir.path(), 4).await;
    let storage = segments(dir.path());
    let numbers = |from, confirmed, max| {
        let (_, batch) = feed::next(&storage, &chain, ChainPosition::default(), from..confirmed, max).unwrap();
        batch.into_iter().map(|(seq, _)| seq).collect::<Vec<_>>()
    };
    assert_eq!(numbers(0, 3, 10), [1, 2, 3]);
    assert_eq!(numbers(1, 3, 10), [2, 3]);
    assert_eq!(numbers(3, 3, 10), [0_u64; 0]);
    assert_eq!(numbers(0, 6, 2), [1, 2]);
}

/// Waits until the writer's thread of a dropped ledger has released its chain.
pub(super) async fn wait_for_end(dir: &Path) {
    let chains = chain::all(dir).unwrap();
    while chains.iter().any(|chain| is_live(dir, chain)) {
        tokio::task::yield_now().await;
    }
}
