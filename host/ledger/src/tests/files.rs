//! Files that are no longer in their place, or are shorter than they were.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;

use super::*;

fn log(dir: &Path) -> PathBuf {
    let mut path = store::path(dir).into_os_string();
    path.push("-wal");
    path.into()
}

#[tokio::test]
async fn a_ledger_that_is_not_in_its_place_refuses_intents_until_it_is_back() {
    let dir = folder();
    let ledger = Ledger::open_with(dir.path(), started(), SHORT).await.unwrap();
    intend(&ledger, event(EventKind::CallIntent), None).await.unwrap();
    for path in [store::path(dir.path()), log(dir.path())] {
        let away = dir.path().join("away");
        fs::rename(&path, &away).unwrap();
        assert!(ledger.trouble().is_some(), "without anything being written");
        let moved = LedgerError::Moved(store::path(&dir.path().canonicalize().unwrap()));
        assert_eq!(intend(&ledger, event(EventKind::CallIntent), None).await, Err(moved.clone()));
        fs::write(&path, fs::read(&away).unwrap()).unwrap();
        assert_eq!(intend(&ledger, event(EventKind::CallIntent), None).await, Err(moved), "a copy is another file");
        fs::rename(&away, &path).unwrap();
        intend(&ledger, event(EventKind::CallIntent), None).await.unwrap();
        assert_eq!(ledger.trouble(), None);
    }
    ledger.close().await;
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test]
async fn a_ledger_that_was_cut_refuses_intents() {
    for (path, keep) in [(store::path as fn(&Path) -> PathBuf, 4096), (log, 0), (log, 5000)] {
        let dir = folder();
        let ledger = Ledger::open_with(dir.path(), started(), SHORT).await.unwrap();
        for _ in 0..20 {
            intend(&ledger, event(EventKind::CallIntent), None).await.unwrap();
        }
        // The checkpoint puts records into the database itself.
        shell(dir.path()).execute_batch("PRAGMA wal_checkpoint(PASSIVE)").unwrap();
        intend(&ledger, event(EventKind::CallIntent), None).await.unwrap();
        let path = path(dir.path());
        OpenOptions::new().write(true).open(&path).unwrap().set_len(keep).unwrap();
        for _ in 0..2 {
            let refused = intend(&ledger, event(EventKind::CallIntent), None).await;
            assert!(matches!(refused, Err(LedgerError::Cut { .. })), "{path:?} to {keep}: {refused:?}");
        }
    }
}

#[tokio::test]
async fn checkpoints_and_vacuums_do_not_stop_the_ledger() {
    let dir = folder();
    let ledger = Ledger::open_with(dir.path(), started(), SHORT).await.unwrap();
    let large = || Event::new(EventKind::SourceLog, json!("x".repeat(100_000)));
    for _ in 0..20 {
        ledger.append(large()).await.unwrap();
    }
    let size = || fs::metadata(store::path(dir.path())).unwrap().len();
    for work in ["PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"] {
        shell(dir.path()).execute_batch(work).unwrap();
        intend(&ledger, event(EventKind::CallIntent), None).await.unwrap();
    }
    // A database may also become smaller legitimately.
    shell(dir.path())
        .execute_batch("CREATE TABLE t AS SELECT zeroblob(1000000) AS x; PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
    intend(&ledger, event(EventKind::CallIntent), None).await.unwrap();
    let before = size();
    shell(dir.path()).execute_batch("DROP TABLE t; VACUUM; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    assert!(size() < before);
    intend(&ledger, event(EventKind::CallIntent), None).await.unwrap();
    ledger.close().await;
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test]
async fn a_live_chain_that_is_shortened_is_never_good_and_takes_no_intent() {
    let dir = folder();
    let ledger = Ledger::open_with(dir.path(), started(), SHORT).await.unwrap();
    for _ in 0..3 {
        intend(&ledger, event(EventKind::CallIntent), None).await.unwrap();
    }
    shell(dir.path()).execute_batch("DELETE FROM events WHERE seq > 2").unwrap();
    let verdict = verify(dir.path()).unwrap().verdict;
    assert!(matches!(verdict, ChainStatus::Tampered { seq: Some(3), .. }), "{verdict:?}");
    let refused = intend(&ledger, event(EventKind::CallIntent), None).await;
    assert!(matches!(refused, Err(LedgerError::Damaged { .. })), "{refused:?}");
}
