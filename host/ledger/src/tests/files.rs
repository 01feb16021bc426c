//! Files that are no longer in their place, or are shorter than they were.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;

use super::*;

#[tokio::test]
async fn a_ledger_that_is_not_in_its_place_refuses_intents_until_it_is_back() {
    let dir = folder();
    let ledger = Ledger::open_with(dir.path(), started(), SHORT).await.unwrap();
    intend(&ledger, event(EventKind::CallIntent), None).await.unwrap();
    let path = segment(&dir.path().canonicalize().unwrap(), ledger.chain());
    let away = dir.path().join("away");
    fs::rename(&path, &away).unwrap();
    assert!(ledger.trouble().is_some(), "without anything being written");
    let moved = LedgerError::Moved(path.clone());
    assert_eq!(intend(&ledger, event(EventKind::CallIntent), None).await, Err(moved.clone()));
    fs::write(&path, fs::read(&away).unwrap()).unwrap();
    assert_eq!(intend(&ledger, event(EventKind::CallIntent), None).await, Err(moved), "a copy is another file");
    fs::rename(&away, &path).unwrap();
    intend(&ledger, event(EventKind::CallIntent), None).await.unwrap();
    assert_eq!(ledger.trouble(), None);
    ledger.close().await;
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test]
async fn a_ledger_that_was_cut_or_overwritten_refuses_intents() {
    let cut = |keep: u64| move |file: &fs::File| file.set_len(keep).unwrap();
    let zero_the_end = |file: &fs::File| {
        let (records, _) = (file, 0);
        let size = records.metadata().unwrap().len();
        let mut bytes = vec![0; usize::try_from(size).unwrap()];
        records.read_exact_at(&mut bytes, 0).unwrap();
        let last = memchr::memmem::rfind(&bytes, b"PLF2").unwrap();
        records.write_all_at(&[0; 32], last as u64).unwrap();
    };
    let damages: [&dyn Fn(&fs::File); 4] = [&cut(0), &cut(100), &cut(2000), &zero_the_end];
    for (case, damage) in damages.iter().enumerate() {
        let dir = folder();
        let ledger = Ledger::open_with(dir.path(), started(), SHORT).await.unwrap();
        for _ in 0..20 {
            intend(&ledger, event(EventKind::CallIntent), None).await.unwrap();
        }
        let path = segment(dir.path(), ledger.chain());
        damage(&OpenOptions::new().read(true).write(true).open(&path).unwrap());
        let verdict = verify(dir.path()).unwrap().verdict;
        assert!(matches!(verdict, ChainStatus::Tampered { .. }), "case {case}: {verdict:?}");
        for _ in 0..2 {
            let refused = intend(&ledger, event(EventKind::CallIntent), None).await;
            assert!(matches!(refused, Err(LedgerError::Cut { .. })), "case {case}: {refused:?}");
        }
    }
}

#[tokio::test]
async fn a_live_chain_that_is_shortened_is_never_good_and_takes_no_intent() {
    let dir = folder();
    let ledger = Ledger::open_with(dir.path(), started(), SHORT).await.unwrap();
    for _ in 0..3 {
        intend(&ledger, event(EventKind::CallIntent), None).await.unwrap();
    }
    rewrite(dir.path(), ledger.chain(), |records| records.truncate(2));
    let verdict = verify(dir.path()).unwrap().verdict;
    assert!(matches!(verdict, ChainStatus::Tampered { seq: Some(3), .. }), "{verdict:?}");
    let refused = intend(&ledger, event(EventKind::CallIntent), None).await;
    assert!(matches!(refused, Err(LedgerError::Moved(_))), "{refused:?}");
}

#[tokio::test]
async fn grants_are_neither_used_nor_given_while_their_file_is_not_in_its_place() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    let (path, away) = (state::path(dir.path()), dir.path().join("away"));
    fs::rename(&path, &away).unwrap();
    assert!(matches!(ledger.advance("sink", 1).await, Err(LedgerError::Moved(_))));
    intend(&ledger, event(EventKind::CallIntent), None).await.unwrap();
    fs::rename(&away, &path).unwrap();
    ledger.advance("sink", 1).await.unwrap();
    ledger.close().await;
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}
