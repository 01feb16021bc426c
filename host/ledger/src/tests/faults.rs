//! Failures of the disk, the file and other programs.

use super::writing::wait_for_end;
use super::*;

#[tokio::test]
async fn a_crash_leaves_an_incomplete_chain_and_no_fork() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    ledger.append(event(EventKind::CallIntent)).await.unwrap();
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good, "a live chain needs no end");
    let chain = ledger.chain().to_owned();
    drop(ledger);
    wait_for_end(dir.path()).await;
    let ChainStatus::Incomplete { chain: named, reason } = verify(dir.path()).unwrap().verdict else { panic!() };
    assert_eq!(named, chain);
    assert!(reason.contains("ends at record 2"), "{reason}");
}

#[tokio::test]
async fn a_locked_database_stops_calls_and_the_gap_is_recorded() {
    let dir = folder();
    let ledger = Ledger::open_with(dir.path(), started(), SHORT).await.unwrap();
    let other = shell(dir.path());
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let busy = LedgerError::Busy(store::path(&dir.path().canonicalize().unwrap()));
    assert_eq!(intend(&ledger, event(EventKind::CallIntent), None).await, Err(busy.clone()));
    assert_eq!(ledger.append(event(EventKind::ToolCompleted)).await, Err(busy.clone()));
    other.execute_batch("ROLLBACK").unwrap();

    // The gap takes number 2, in the same transaction.
    assert_eq!(intend(&ledger, event(EventKind::CallIntent), None).await, Ok(3));
    assert_eq!(ledger.append(event(EventKind::ToolCompleted)).await, Ok(4), "told once");
    ledger.close().await;
    let found = records(dir.path());
    assert_eq!(found[1].record.kind, "ledger.gap");
    assert_eq!(found[1].record.body, json!({"lost": 2, "cause": busy.to_string()}));
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test]
async fn a_locked_database_is_refused_at_the_start_and_nothing_is_left() {
    let dir = folder();
    closed(dir.path(), 1).await;
    let other = shell(dir.path());
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    assert!(matches!(Ledger::open_with(dir.path(), started(), SHORT).await, Err(LedgerError::Busy(_))));
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(chain::all(dir.path()).unwrap().len(), 1);
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test]
async fn a_full_disk_stops_calls_and_what_is_there_stays_good() {
    let dir = folder();
    let limits = StoreLimits { pages: Some(40), ..SHORT };
    let ledger = Ledger::open_with(dir.path(), started(), limits).await.unwrap();
    let mut written = 1;
    let full = loop {
        match ledger.append(Event::new(EventKind::SourceLog, json!("x".repeat(3000)))).await {
            Ok(seq) => written = seq,
            Err(error) => break error,
        }
        assert!(written < 100);
    };
    assert!(matches!(full, LedgerError::Full(_)), "{full:?}");
    let intent = intend(&ledger, Event::new(EventKind::CallIntent, json!("x".repeat(9000))), None).await;
    assert!(matches!(intent, Err(LedgerError::Full(_))), "{intent:?}");
    let verification = verify(dir.path()).unwrap();
    assert_eq!((verification.verdict, verification.chains[0].records), (ChainStatus::Good, written));

    // Space becomes available: here, through a broker without the limit.
    let other = open(dir.path()).await;
    other.append(event(EventKind::CallIntent)).await.unwrap();
    other.close().await;
    ledger.close().await;
    assert!(!matches!(verify(dir.path()).unwrap().verdict, ChainStatus::Tampered { .. }));
}

#[tokio::test]
async fn notes_and_appends_that_cannot_be_written_are_counted_and_do_not_affect_others() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    let large = Event::new(EventKind::SourceLog, json!("x".repeat(MAX_RECORD_BYTES)));
    ledger.note(large.clone());
    assert!(matches!(ledger.append(large).await, Err(LedgerError::TooLarge { .. })));
    ledger.close().await;
    assert_eq!(kinds(dir.path()), ["broker.started", "ledger.gap", "broker.stopped"]);
}

#[tokio::test]
async fn an_item_that_fails_leaves_the_rest_of_its_batch() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    let other = shell(dir.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    // All of these wait for the lock together.
    let absent = GrantUse {
        grant: "absent".into(),
        binding: Binding {
            principal: String::new(),
            source: String::new(),
            definition: Digest::of(b""),
            tool: String::new(),
            policies: Digest::of(b""),
            arguments: Digest::of(b""),
            session: SessionId::new(),
        },
    };
    let work = async {
        tokio::join!(
            ledger.append(event(EventKind::SourceLog)),
            ledger.append(event(EventKind::SourceLog)),
            intend(&ledger, event(EventKind::CallIntent), Some(absent)),
            ledger.append(event(EventKind::SourceLog)),
        )
    };
    let (outcome, ()) = tokio::join!(work, async { other.execute_batch("ROLLBACK").unwrap() });
    assert_eq!(outcome, (Ok(2), Ok(3), Err(LedgerError::GrantSpent("absent".into())), Ok(4)));
    ledger.close().await;
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test]
async fn a_chain_that_somebody_else_wrote_on_is_not_continued() {
    let dir = folder();
    let ledger = Ledger::open_with(dir.path(), started(), SHORT).await.unwrap();
    ledger.append(event(EventKind::SourceLog)).await.unwrap();
    let other = shell(dir.path());
    other.execute_batch("DELETE FROM events WHERE seq = 2; BEGIN EXCLUSIVE").unwrap();
    assert!(ledger.append(event(EventKind::SourceLog)).await.is_err(), "locked");
    other.execute_batch("ROLLBACK").unwrap();
    for _ in 0..2 {
        let after = intend(&ledger, event(EventKind::CallIntent), None).await;
        assert!(matches!(after, Err(LedgerError::Damaged { .. })), "{after:?}");
    }
    ledger.close().await;
    assert!(matches!(verify(dir.path()).unwrap().verdict, ChainStatus::Tampered { seq: Some(2), .. }));
}

#[tokio::test]
async fn a_file_that_this_version_cannot_use_is_refused_by_name() {
    let newer = folder();
    closed(newer.path(), 0).await;
    shell(newer.path()).execute_batch("PRAGMA user_version = 7").unwrap();
    let error = Ledger::open(newer.path(), started()).await.unwrap_err();
    assert!(matches!(error, LedgerError::Newer { found: 7, known: 1, .. }), "{error}");

    let foreign = folder();
    shell(foreign.path()).execute_batch("CREATE TABLE t (x)").unwrap();
    assert!(matches!(Ledger::open(foreign.path(), started()).await, Err(LedgerError::Foreign(_))));

    let text = folder();
    std::fs::write(store::path(text.path()), "not a database, but long enough to be looked at".repeat(10)).unwrap();
    assert!(matches!(Ledger::open(text.path(), started()).await, Err(LedgerError::Damaged { .. })));

    let key = folder();
    std::fs::write(key.path().join("ledger.key"), "short").unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(key.path().join("ledger.key"), private).unwrap();
    let error = Ledger::open(key.path(), started()).await.unwrap_err();
    assert!(error.to_string().contains("5 bytes instead of 32"), "{error}");

    let nothing = folder();
    assert!(matches!(verify(nothing.path()), Err(LedgerError::Missing(_))));
    assert!(matches!(LedgerReader::open(nothing.path()), Err(LedgerError::Missing(_))));
}
