//! The numbers of records in their runs.

use super::evidence::rehash;
use super::*;

/// Returns the run of each record of a chain, with its number in the run.
fn numbers(dir: &Path) -> Vec<(String, u64)> {
    let records = records(dir).into_iter().map(|entry| entry.record);
    records.filter_map(|record| record.run.zip(record.run_seq)).collect()
}

#[tokio::test]
async fn the_records_of_each_run_are_numbered_from_1_without_a_gap() {
    let dir = folder();
    let (storage, setup) = FaultyStorage::new(dir.path());
    let ledger = Ledger::open_with(dir.path(), started(), setup).await.unwrap();
    let (first, second) = (SessionId::new(), SessionId::new());
    for run in [&first, &second, &first, &first, &second] {
        ledger.append(event(EventKind::CallIntent).in_run(run)).await.unwrap();
    }
    // A record that is not written gets no number.
    storage.fail();
    ledger.append(event(EventKind::CallIntent).in_run(&first)).await.unwrap_err();
    storage.work();
    ledger.append(event(EventKind::CallIntent).in_run(&first)).await.unwrap();
    ledger.append(event(EventKind::CallIntent)).await.unwrap();
    ledger.close().await;
    let expected = [(&first, 1), (&second, 1), (&first, 2), (&first, 3), (&second, 2), (&first, 4)];
    assert_eq!(numbers(dir.path()), expected.map(|(run, number)| (run.to_string(), number)));
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test]
async fn a_record_with_another_number_in_its_run_is_named_although_all_hashes_fit() {
    for (from, to) in [("\"run_seq\":3", "\"run_seq\":4"), ("\"run_seq\":3", "\"run_seq\":2"), ("\"run\":RUN,", "")] {
        let dir = folder();
        let chain = closed(dir.path(), 6).await;
        let from = from.replace("RUN", &json!(numbers(dir.path())[0].0).to_string());
        rewrite(dir.path(), &chain, |records| {
            records[3].text = records[3].text.replace(&from, to);
            rehash(records);
        });
        std::fs::remove_dir_all(dir.path().join("chains")).unwrap();
        let verdict = verify(dir.path()).unwrap().verdict;
        assert!(matches!(verdict, ChainStatus::Tampered { seq: Some(4), .. }), "{to}: {verdict:?}");
    }
    // The first record of a run is missing.
    let dir = folder();
    let chain = closed(dir.path(), 6).await;
    rewrite(dir.path(), &chain, |records| {
        records.remove(1);
        rehash(records);
    });
    std::fs::remove_dir_all(dir.path().join("chains")).unwrap();
    let verdict = verify(dir.path()).unwrap().verdict;
    let ChainStatus::Tampered { seq: Some(2), reason, .. } = &verdict else { panic!("{verdict:?}") };
    assert!(reason.contains("record 2 of its run, and record 1 is missing"), "{reason}");
}

#[tokio::test]
async fn a_run_is_shown_with_all_its_records_however_many_they_are() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    let run = SessionId::new();
    for _ in 0..2_500 {
        ledger.record(event(EventKind::CallDenied).in_run(&run));
    }
    ledger.close().await;
    let reader = LedgerReader::open(dir.path()).unwrap();
    let Some(CallOrRun::Run { records, .. }) = reader.show(run.as_str()).unwrap() else { panic!() };
    let numbers: Vec<_> = records.iter().map(|entry| entry.record.run_seq).collect();
    assert_eq!(numbers, (1..=2_500).map(Some).collect::<Vec<_>>());
}
