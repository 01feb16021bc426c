//! Chains of brokers that are gone have their ends recorded in the chain of the next broker.

use super::*;

/// Creates a chain of four records whose broker died, and returns its identifier.
async fn died(dir: &Path) -> String {
    let ledger = open(dir).await;
    for _ in 0..3 {
        ledger.append(event(EventKind::CallIntent)).await.unwrap();
    }
    let chain = ledger.chain().to_owned();
    drop(ledger);
    while is_live(dir, &chain) {
        tokio::task::yield_now().await;
    }
    chain
}

/// Returns the chains that are sealed, and the numbers of their last records, in the order of the seals.
fn seals(dir: &Path) -> Vec<(String, u64)> {
    let found = records(dir).into_iter().filter(|entry| entry.record.kind == "chain.sealed");
    let seal = |entry: PositionedRecord| {
        (entry.record.body["chain"].as_str().unwrap().to_owned(), entry.record.body["seq"].as_u64().unwrap())
    };
    found.map(seal).collect()
}

fn findings(dir: &Path) -> Vec<(String, u64)> {
    let found = verify(dir).unwrap().findings.into_iter().map(|finding| match finding {
        ChainStatus::Tampered { chain: Some(chain), seq: Some(seq), .. } => (chain, seq),
        other => panic!("{other:?}"),
    });
    found.collect()
}

#[tokio::test]
async fn a_dead_chain_is_sealed_by_the_next_broker_and_every_later_change_is_named() {
    let dir = folder();
    let chain = died(dir.path()).await;
    assert!(matches!(verify(dir.path()).unwrap().verdict, ChainStatus::Incomplete { .. }));
    closed(dir.path(), 0).await;
    closed(dir.path(), 0).await;
    let found = verify(dir.path()).unwrap();
    assert_eq!(found.verdict, ChainStatus::Good);
    assert_eq!(found.chains[0].sealed, Some(4));
    let next = found.chains[1].chain.clone();
    assert_eq!(seals(dir.path()), [(chain.clone(), 4), (next, 3)], "each once, also the one that ended well");

    let whole = std::fs::read(segment(dir.path(), &chain)).unwrap();
    type Change = fn(&mut Vec<ChainedRecord>);
    let changes: [(Change, u64); 3] = [
        (|records| records.truncate(3), 4),
        (Vec::clear, 1),
        (|records| records.extend([ChainedRecord { seq: 5, ..records[3].clone() }]), 5),
    ];
    for (change, seq) in changes {
        std::fs::write(segment(dir.path(), &chain), &whole).unwrap();
        rewrite(dir.path(), &chain, change);
        // The seal is enough: without the lock file the finding is the same.
        assert_eq!(findings(dir.path()), [(chain.clone(), seq)]);
        let lock = dir.path().join("chains").join(format!("{chain}.sealed"));
        let kept = std::fs::read(&lock).unwrap();
        std::fs::remove_file(&lock).unwrap();
        assert_eq!(findings(dir.path()), [(chain.clone(), seq)]);
        std::fs::write(&lock, kept).unwrap();
    }
}

#[tokio::test]
async fn a_chain_that_is_removed_with_its_lock_file_is_named_by_the_next_one() {
    let dir = folder();
    let chain = closed(dir.path(), 2).await;
    closed(dir.path(), 0).await;
    std::fs::remove_file(segment(dir.path(), &chain)).unwrap();
    std::fs::remove_file(dir.path().join("chains").join(format!("{chain}.sealed"))).unwrap();
    assert_eq!(findings(dir.path()), [(chain, 1)]);
}

#[tokio::test]
async fn a_lock_file_that_speaks_of_a_seal_that_is_not_there_is_named() {
    let dir = folder();
    let chain = closed(dir.path(), 2).await;
    let lock = |extension: &str| dir.path().join("chains").join(format!("{chain}.{extension}"));
    std::fs::rename(lock("ended"), lock("sealed")).unwrap();
    assert_eq!(findings(dir.path()), [(chain.clone(), 5)]);
}

#[tokio::test]
async fn a_chain_is_sealed_at_its_last_record_even_if_its_lock_file_is_behind() {
    let dir = folder();
    let chain = closed(dir.path(), 2).await;
    let lock = dir.path().join("chains").join(format!("{chain}.ended"));
    std::fs::write(lock, chain::line(chain::ChainTip::default())).unwrap();
    closed(dir.path(), 0).await;
    assert_eq!(seals(dir.path()), [(chain, 4)]);
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test]
async fn a_chain_whose_last_segment_has_no_record_is_sealed_at_its_last_record() {
    let dir = folder();
    let chain = died(dir.path()).await;
    std::fs::write(segment::path(dir.path(), &chain, 2), "").unwrap();
    std::fs::remove_file(dir.path().join("chains").join(format!("{chain}.lock"))).unwrap();
    chain::ChainLock::named(dir.path(), chain.clone()).unwrap();
    closed(dir.path(), 0).await;
    assert_eq!(seals(dir.path()), [(chain, 4)]);
}

#[tokio::test]
async fn a_segment_that_a_broker_writes_is_not_cut_even_if_its_lock_file_was_replaced() {
    let dir = folder();
    let live = open(dir.path()).await;
    live.append(event(EventKind::CallIntent)).await.unwrap();
    let lock = dir.path().join("chains").join(format!("{}.lock", live.chain()));
    let copy = std::fs::read(&lock).unwrap();
    std::fs::remove_file(&lock).unwrap();
    std::fs::write(&lock, copy).unwrap();
    let size = || std::fs::metadata(segment(dir.path(), live.chain())).unwrap().len();
    let before = size();
    closed(dir.path(), 0).await;
    assert_eq!((size(), seals(dir.path())), (before, Vec::new()), "its broker lives");
    live.append(event(EventKind::CallIntent)).await.unwrap();
    live.close().await;
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test]
async fn a_dead_chain_without_a_lock_file_is_sealed_and_a_live_one_is_not() {
    let dir = folder();
    let lock = |chain: &str| dir.path().join("chains").join(format!("{chain}.lock"));
    let (dead, live) = (died(dir.path()).await, open(dir.path()).await);
    // The live one has sealed it.
    assert_eq!(seals(dir.path()), [(dead.clone(), 4)]);
    let lost = died(dir.path()).await;
    std::fs::remove_file(lock(&lost)).unwrap();
    std::fs::remove_file(lock(live.chain())).unwrap();
    closed(dir.path(), 0).await;
    assert_eq!(seals(dir.path()), [(dead.clone(), 4), (lost.clone(), 4)]);
    live.append(event(EventKind::CallIntent)).await.unwrap();
    live.close().await;
    let next = closed(dir.path(), 0).await;
    let sealed: Vec<_> = seals(dir.path()).into_iter().map(|(chain, _)| chain).collect();
    assert!(sealed.contains(&live.chain().to_owned()) && !sealed.contains(&next), "{sealed:?}");
    assert_eq!(sealed.iter().filter(|chain| **chain == lost).count(), 1, "once");
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test]
async fn a_chain_is_made_durable_before_it_is_sealed_unless_its_lock_file_says_that_it_is() {
    for (extension, is_finished) in [("lock", true), ("ended", false)] {
        let dir = folder();
        let chain = closed(dir.path(), 2).await;
        let path = dir.path().join("chains").join(format!("{chain}.ended"));
        std::fs::rename(&path, path.with_extension(extension)).unwrap();
        let segment = std::fs::File::options().write(true).open(segment(dir.path(), &chain)).unwrap();
        let size = || segment.metadata().unwrap().len();
        let written = size();
        // The reserve, which is given back when the rest is made durable.
        segment.set_len(written + 100_000).unwrap();
        closed(dir.path(), 0).await;
        assert_eq!(seals(dir.path()), [(chain, 4)]);
        assert_eq!(size() == written, is_finished, "{extension}");
        assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
    }
}

#[tokio::test]
async fn the_segment_of_a_broker_that_died_gives_back_its_reserve() {
    let dir = folder();
    let chain = died(dir.path()).await;
    let size = || std::fs::metadata(segment(dir.path(), &chain)).unwrap().len();
    assert!(size() > 64 * 1024);
    closed(dir.path(), 0).await;
    assert!(size() < 4096, "{}", size());
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test]
async fn a_cut_before_the_seal_stays_visible_and_every_bad_chain_is_listed() {
    let dir = folder();
    let chains = [died(dir.path()).await, died(dir.path()).await];
    for (chain, from) in chains.iter().zip([3, 2]) {
        rewrite(dir.path(), chain, |records| records.truncate(from - 1));
    }
    let expected = [(chains[0].clone(), 3), (chains[1].clone(), 2)];
    // The second broker had sealed the first chain, and its seal is deleted along with the rest of its chain.
    assert_eq!(findings(dir.path()), expected);
    closed(dir.path(), 0).await;
    assert_eq!(findings(dir.path()), expected);
}

#[tokio::test]
async fn a_chain_that_never_got_a_record_is_sealed_too() {
    let dir = folder();
    closed(dir.path(), 0).await;
    drop(chain::ChainLock::create(dir.path()).unwrap());
    assert!(matches!(verify(dir.path()).unwrap().verdict, ChainStatus::Incomplete { .. }));
    closed(dir.path(), 0).await;
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn brokers_that_start_together_seal_a_dead_chain_once_and_never_a_live_one() {
    for _ in 0..5 {
        let dir = folder();
        let live = open(dir.path()).await;
        let chain = died(dir.path()).await;
        let opened = (0..6).map(|_| {
            let dir = dir.path().to_owned();
            tokio::spawn(async move { open(&dir).await })
        });
        let opened = futures_util::future::join_all(opened).await;
        assert_eq!(seals(dir.path()), [(chain, 4)]);
        for ledger in opened {
            ledger.unwrap().close().await;
        }
        live.close().await;
        assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
    }
}

#[tokio::test]
async fn a_start_seals_a_bounded_number_of_chains_and_those_of_dead_brokers_first() {
    let dir = folder();
    closed(dir.path(), 0).await;
    for at in 0..300 {
        drop(chain::ChainLock::named(dir.path(), format!("A{at:03}")).unwrap());
        let lock = dir.path().join("chains").join(format!("A{at:03}.lock"));
        std::fs::rename(&lock, lock.with_extension("ended")).unwrap();
    }
    drop(chain::ChainLock::named(dir.path(), "DEAD".to_owned()).unwrap());
    let sealed = || chain::sealed(dir.path()).unwrap();
    closed(dir.path(), 0).await;
    assert_eq!((sealed().len(), sealed().contains("DEAD")), (256, true));
    closed(dir.path(), 0).await;
    assert_eq!(sealed().len(), 303);
}
