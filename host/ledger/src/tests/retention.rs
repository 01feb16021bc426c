//! Retention: the records that are removed, and the facts that can still be shown afterwards.

use super::evidence::{Signed, rehash};
use super::*;
use crate::removed::RemovedRecords;
use crate::verify::verify_against;

/// The end of time: all records are older.
const ALL: u64 = u64::MAX;

/// Segments of a few records each.
fn small(dir: &Path) -> LedgerSetup {
    let limits = StorageLimits { segment: Some(2000), ..StorageLimits::default() };
    LedgerSetup { storage: Some(Arc::new(Segments::new(dir, limits))), ..SHORT }
}

async fn open_small(dir: &Path) -> Ledger {
    Ledger::open_with(dir, started(), small(dir)).await.unwrap()
}

async fn append(ledger: &Ledger, n: usize) {
    let run = SessionId::new();
    for _ in 0..n {
        ledger.append(event(EventKind::CallIntent).in_run(&run).to_call(&CallId::new())).await.unwrap();
    }
}

fn report(dir: &Path, chain: &str) -> ChainReport {
    verify(dir).unwrap().chains.into_iter().find(|report| report.chain == chain).unwrap()
}

fn left(dir: &Path, chain: &str) -> RemovedRecords {
    segments(dir).removed(chain).unwrap().unwrap()
}

/// Returns the names of the files that hold records of a chain.
fn files(dir: &Path, chain: &str) -> Vec<String> {
    let names = crate::files::names_in(&segment::folder(dir)).unwrap();
    names.into_iter().filter(|name| name.starts_with(chain) && name.ends_with(".records")).collect()
}

/// Asserts that something was tampered with, and returns the message about it.
fn tampered(dir: &Path) -> String {
    match verify(dir).unwrap().verdict {
        ChainStatus::Tampered { chain, seq, reason } => format!("{chain:?} {seq:?} {reason}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn old_records_are_removed_in_whole_segments_and_the_rest_is_verified_as_before() {
    let dir = folder();
    let first = closed(dir.path(), 5).await;
    let ledger = open_small(dir.path()).await;
    append(&ledger, 60).await;
    LedgerReader::open(dir.path()).unwrap().tail(1, &RecordFilter::default()).unwrap();
    let before = records(dir.path()).len();
    assert!(files(dir.path(), ledger.chain()).len() > 3);

    assert_eq!(ledger.remove_before(1).await.unwrap(), RemovalResult::default(), "nothing is that old");
    let removal = ledger.remove_before(ALL).await.unwrap();
    assert_eq!(removal.chains, 2);
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good, "with an index that was made before");
    assert!(files(dir.path(), &first).is_empty());
    // The records of the removals may have begun another one.
    let left = files(dir.path(), ledger.chain()).len();
    assert!((1..=2).contains(&left), "the segment that is being written stays: {left}");

    let kept = records(dir.path());
    assert_eq!(kept.len() as u64, before as u64 - removal.records + 2, "two removals were recorded");
    assert_eq!(kept.iter().filter(|entry| entry.record.kind == "records.removed").count(), 2);
    let found = verify(dir.path()).unwrap();
    assert_eq!(found.verdict, ChainStatus::Good, "{found:?}");
    let first = report(dir.path(), &first);
    assert_eq!((first.records, first.removed, first.stopped, first.sealed), (7, 7, true, Some(7)));
    assert_eq!(report(dir.path(), ledger.chain()).removed, removal.records - 7);

    append(&ledger, 60).await;
    assert!(ledger.remove_before(ALL).await.unwrap().records > 30);
    ledger.close().await;
    let next = open(dir.path()).await;
    assert!(next.remove_before(ALL).await.unwrap().records > 0, "what an earlier broker left of its chain");
    assert!(files(dir.path(), ledger.chain()).is_empty());
    next.close().await;
    let found = verify(dir.path()).unwrap();
    assert_eq!(found.verdict, ChainStatus::Good, "{found:?}");
    assert_eq!(records(dir.path()).len() as u64, report(dir.path(), next.chain()).records);
}

#[tokio::test]
async fn chains_that_are_not_sealed_and_newer_records_stay() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    let other = open(dir.path()).await;
    other.close().await;
    assert_eq!(ledger.remove_before(ALL).await.unwrap(), RemovalResult::default(), "nobody has sealed the other chain");
    let of_other = |entry: &&PositionedRecord| entry.record.chain == other.chain();
    let last = records(dir.path()).iter().filter(of_other).map(|entry| entry.record.at).max().unwrap();
    let next = open(dir.path()).await;
    assert_eq!(next.remove_before(last).await.unwrap(), RemovalResult::default(), "its last record is not older");
    assert_eq!(next.remove_before(last + 1).await.unwrap().chains, 1);
    assert!(files(dir.path(), other.chain()).is_empty() && !files(dir.path(), ledger.chain()).is_empty());
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test]
async fn what_is_left_of_removed_records_can_be_neither_changed_nor_added_nor_taken_away() {
    let dir = folder();
    let first = closed(dir.path(), 3).await;
    let ledger = open(dir.path()).await;
    ledger.remove_before(ALL).await.unwrap();
    let path = segment::removed_path(dir.path(), &first);
    let good = std::fs::read_to_string(&path).unwrap();
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);

    std::fs::remove_file(&path).unwrap();
    assert!(tampered(dir.path()).contains(&first), "taken away");
    std::fs::write(&path, "{}").unwrap();
    let said = tampered(dir.path());
    assert!(said.contains("what is left of removed records"), "{said}");
    let mut changed = RemovedRecords::parse(&good, &first).unwrap();
    changed.until += 1;
    std::fs::write(&path, changed.to_text()).unwrap();
    assert!(tampered(dir.path()).contains("no record says that they were removed"));
    std::fs::write(&path, &good).unwrap();
    // A lock file contradicts it.
    let lock = dir.path().join("chains").join(format!("{first}.sealed"));
    let written = std::fs::read(&lock).unwrap();
    std::fs::write(&lock, chain::line(chain::ChainTip { seq: 5, hash: [9; 32] })).unwrap();
    assert!(tampered(dir.path()).contains("it is not the record that its broker wrote there"));
    std::fs::write(&lock, written).unwrap();
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);

    // Somebody removes records of a chain that nobody removed, and says so in the same form.
    ledger.close().await;
    let next = open(dir.path()).await;
    let mut forged = RemovedRecords::none(ledger.chain());
    for record in stored(&segments(dir.path()), ledger.chain()).0 {
        forged.push(&record, &serde_json::from_str(&record.text).unwrap()).unwrap();
    }
    forged.segment = 1;
    segments(dir.path()).remove(&forged).unwrap();
    // Statements of those records about another chain do not count either.
    for chain in [&*first, ledger.chain()] {
        let (_, reason) = report(dir.path(), chain).bad.unwrap();
        assert!(reason.contains("no record says that they were removed"), "{reason}");
    }
    next.close().await;
}

#[tokio::test]
async fn a_damaged_file_about_removed_records_stops_neither_readers_nor_other_removals() {
    let dir = folder();
    let first = closed(dir.path(), 3).await;
    let ledger = open(dir.path()).await;
    ledger.remove_before(ALL).await.unwrap();
    ledger.close().await;
    let next = open(dir.path()).await;
    let before = records(dir.path()).len();
    std::fs::write(segment::removed_path(dir.path(), &first), "{}").unwrap();
    // Somebody put a segment back, so that the removal seems incomplete.
    std::fs::write(segment(dir.path(), &first), "").unwrap();
    let said = tampered(dir.path());
    assert!(said.contains("what is left of removed records"), "{said}");
    assert_eq!(records(dir.path()).len(), before);
    assert_eq!(next.remove_before(ALL).await.unwrap().chains, 1, "the chain of the broker before");
    assert!(files(dir.path(), ledger.chain()).is_empty());
    next.close().await;
}

#[tokio::test]
async fn records_of_seals_and_removals_are_kept_when_they_are_removed_themselves() {
    let dir = folder();
    let mut chains = vec![closed(dir.path(), 3).await];
    for _ in 0..3 {
        let ledger = open(dir.path()).await;
        ledger.remove_before(ALL).await.unwrap();
        ledger.close().await;
        chains.push(ledger.chain().to_owned());
    }
    let found = verify(dir.path()).unwrap();
    assert_eq!(found.verdict, ChainStatus::Good, "{found:?}");
    for (chain, next) in chains.iter().zip(&chains[1..]) {
        let report = report(dir.path(), chain);
        assert_eq!((report.removed, report.sealed), (report.records, Some(report.records)), "{chain}");
        assert_eq!(files(dir.path(), chain).len(), 0);
        assert_eq!(stored(&segments(dir.path()), next).0.len(), if next == &chains[3] { 4 } else { 0 });
    }
    // The third chain records the rest of the second, and the second the rest of the first.
    let mut changed = left(dir.path(), &chains[1]);
    changed.kept.clear();
    std::fs::write(segment::removed_path(dir.path(), &chains[1]), changed.to_text()).unwrap();
    let bad: Vec<_> = verify(dir.path()).unwrap().chains.into_iter().filter(|report| report.bad.is_some()).collect();
    assert_eq!(bad.iter().map(|report| &report.chain).collect::<Vec<_>>(), [&chains[0], &chains[1]]);
}

#[tokio::test]
async fn a_removal_that_was_interrupted_is_completed_by_the_next_one() {
    let dir = folder();
    let first = closed(dir.path(), 3).await;
    let file = segment(dir.path(), &first);
    let copy = std::fs::read(&file).unwrap();
    let ledger = open(dir.path()).await;
    ledger.remove_before(ALL).await.unwrap();
    // The records are still there, as if the broker had been killed before it removed them.
    std::fs::write(&file, &copy).unwrap();
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
    assert!(records(dir.path()).iter().all(|entry| entry.record.chain != first));
    // So are they if it was killed right after it recorded the removal.
    let path = segment::removed_path(dir.path(), &first);
    let text = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    crate::index::remove(dir.path());
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
    std::fs::write(&path, text).unwrap();
    ledger.remove_before(ALL).await.unwrap();
    assert!(!file.exists());
}

#[tokio::test]
async fn evidence_of_tampering_is_not_removed() {
    let dir = folder();
    let (edited, cut) = (closed(dir.path(), 3).await, closed(dir.path(), 3).await);
    let rewritten = closed(dir.path(), 3).await;
    let ledger = open(dir.path()).await;
    rewrite(dir.path(), &rewritten, |records| {
        records[2].text = records[2].text.replace("read", "rent");
        rehash(records);
    });
    rewrite(dir.path(), &edited, |records| records[2].text = records[2].text.replace("read", "rent"));
    rewrite(dir.path(), &cut, |records| records.truncate(3));
    assert_eq!(ledger.remove_before(ALL).await.unwrap(), RemovalResult::default());
    assert_eq!(verify(dir.path()).unwrap().findings.len(), 3);
}

#[tokio::test]
async fn nothing_is_removed_while_somebody_verifies() {
    let dir = folder();
    closed(dir.path(), 3).await;
    let ledger = open(dir.path()).await;
    let verifying = segments(dir.path()).lock_for_reading().unwrap();
    assert_eq!(ledger.remove_before(ALL).await.unwrap(), RemovalResult::default());
    drop(verifying);
    assert_eq!(ledger.remove_before(ALL).await.unwrap().chains, 1);
}

#[tokio::test]
async fn checkpoints_and_proofs_are_as_before_once_old_records_are_removed() {
    let signed = Signed::new();
    let dir = signed.dir();
    let first = signed.closed(9).await;
    let ledger = signed.open_with(small(dir)).await;
    append(&ledger, 28).await;
    let old = signed.checkpoints();
    append(&ledger, 30).await;
    let (before, keys) = (signed.checkpoints(), signed.keys());
    ledger.remove_before(ALL).await.unwrap();
    let removed = left(dir, ledger.chain()).tip.seq;
    assert!(removed > old[0].size());

    // The checkpoint after the removal continues the one before it, and both confirm the present and the removed
    // records.
    append(&ledger, 20).await;
    let after = signed.checkpoints();
    ledger.close().await;
    for checkpoints in [&before, &after] {
        let found = verify_against(dir, checkpoints, &keys).unwrap();
        assert_eq!(found.verdict, ChainStatus::Good, "{found:?}");
        let confirmed = |chain: &str| {
            found.chains.iter().find(|report| report.chain == chain).map(|report| report.confirmed_elsewhere)
        };
        assert_eq!(confirmed(ledger.chain()), Some(checkpoints[0].size()));
        assert_eq!(confirmed(&first), Some(11), "through its seal, which was removed");
    }
    let found = verify_against(dir, &old, &keys).unwrap();
    assert_eq!(found.verdict, ChainStatus::Good, "what the oldest checkpoint covers is gone: {found:?}");

    let last = after[0].size();
    let wanted: Vec<u64> = (removed + 1..=last).collect();
    for (since, consistent) in [(&before[0], true), (&old[0], false)] {
        let proved = signed.prove(ledger.chain(), &wanted, Some(since));
        if consistent {
            let text: String = proved.unwrap().iter().map(RecordProof::to_text).collect();
            assert_eq!(RecordProof::check_all(&text, &keys).unwrap().len(), wanted.len());
        } else {
            assert!(proved.unwrap_err().to_string().contains("removed because of their age"));
        }
    }
    let gone = signed.prove(ledger.chain(), &[removed], None).unwrap_err();
    assert!(gone.to_string().contains("removed because of its age"), "{gone}");
}

/// Somebody recomputes all hashes and lets a broker remove the records: a checkpoint that was kept elsewhere still
/// reveals it.
#[tokio::test]
async fn a_checkpoint_of_exactly_what_was_removed_shows_that_it_was_rewritten_before() {
    let signed = Signed::new();
    let chain = signed.closed(4).await;
    let kept = signed.checkpoints();
    signed.forget();
    rewrite(signed.dir(), &chain, |records| {
        records[2].text = records[2].text.replace("read", "rent");
        rehash(records);
    });
    let last = stored(&segments(signed.dir()), &chain).0.pop().unwrap();
    let tip = chain::ChainTip { seq: last.seq, hash: last.hash };
    std::fs::write(signed.dir().join("chains").join(format!("{chain}.ended")), chain::line(tip)).unwrap();
    let ledger = signed.open_with(SHORT).await;
    assert_eq!(ledger.remove_before(ALL).await.unwrap().chains, 1);
    ledger.close().await;
    assert_eq!(verify(signed.dir()).unwrap().verdict, ChainStatus::Good, "by itself it contradicts nothing");
    let found = verify_against(signed.dir(), &kept, &signed.keys()).unwrap();
    assert!(matches!(&found.verdict, ChainStatus::Tampered { chain: Some(bad), .. } if *bad == chain), "{found:?}");
}

#[tokio::test]
async fn sinks_go_on_after_records_that_were_removed() {
    let dir = folder();
    let ledger = open_small(dir.path()).await;
    append(&ledger, 30).await;
    assert_eq!(ledger.batch("sink", 3).await.unwrap().len(), 3);
    ledger.advance("sink", 3).await.unwrap();
    ledger.remove_before(ALL).await.unwrap();
    let removed = left(dir.path(), ledger.chain()).tip.seq;
    let batch = ledger.batch("sink", 1000).await.unwrap();
    assert_eq!(batch.first().map(|(seq, _)| *seq), Some(removed + 1));
    assert_eq!(batch.last().map(|(seq, _)| *seq), Some(*ledger.tip().borrow()));
}

#[tokio::test]
async fn a_segment_ends_after_a_time() {
    let dir = folder();
    let limits = StorageLimits { age: Some(Duration::ZERO), ..StorageLimits::default() };
    let setup = LedgerSetup { storage: Some(Arc::new(Segments::new(dir.path(), limits))), ..SHORT };
    let ledger = Ledger::open_with(dir.path(), started(), setup).await.unwrap();
    append(&ledger, 3).await;
    assert_eq!(files(dir.path(), ledger.chain()).len(), 4, "each append began another");
    ledger.close().await;
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_made_while_a_broker_writes_has_what_its_lock_file_says() {
    let (dir, copy) = (folder(), folder());
    let ledger = open_small(dir.path()).await;
    append(&ledger, 5).await;
    let before = files(dir.path(), ledger.chain()).len();
    let runtime = tokio::runtime::Handle::current();
    let copied = LedgerFiles::of(dir.path()).unwrap().copy_each(|path, _| {
        if path.starts_with("chains") {
            tokio::task::block_in_place(|| runtime.block_on(append(&ledger, 60)));
        }
        let to = copy.path().join(path);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(dir.path().join(path), to).unwrap();
        Ok::<_, LedgerError>(())
    });
    assert_eq!(copied.unwrap(), 1 + files(dir.path(), ledger.chain()).len());
    assert!(files(dir.path(), ledger.chain()).len() > before);
    let found = verify(copy.path()).unwrap();
    assert!(matches!(found.verdict, ChainStatus::Incomplete { .. }), "{found:?}");
    assert_eq!(found.chains[0].records, 66);
    ledger.close().await;
}
