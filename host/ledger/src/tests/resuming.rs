//! A verification that resumes from the findings of an earlier one.

use super::evidence::{Signed, rehash};
use super::writing::wait_for_end;
use super::*;
use crate::verify::verify_in;

/// Returns a storage whose segments end early, so that a short chain has several.
fn small(dir: &Path) -> Arc<dyn Storage> {
    Arc::new(Segments::new(dir, StorageLimits { segment: Some(2000), ..StorageLimits::default() }))
}

/// Writes a chain of several segments and ends it.
async fn chain_of_segments(dir: &Path, n: usize) -> String {
    let setup = LedgerSetup { storage: Some(small(dir)), ..SHORT };
    let ledger = Ledger::open_with(dir, started(), setup).await.unwrap();
    append(&ledger, n).await;
    ledger.close().await;
    ledger.chain().to_owned()
}

async fn append(ledger: &Ledger, n: usize) {
    for _ in 0..n {
        ledger.append(event(EventKind::CallIntent).to_call(&CallId::new())).await.unwrap();
    }
}

/// Verifies as the user's next command would, and remembers the findings.
fn verify_again(dir: &Path, state: &Path) -> Verification {
    let mut verified = VerifiedSegments::load(state, dir).unwrap();
    let found = verify_in(dir, small(dir), &[], &[], &mut verified).unwrap();
    verified.save().unwrap();
    found
}

/// Returns the user's state folder, which is made private.
fn state_in(folder: &TempDir) -> PathBuf {
    folder.path().join("portcullis")
}

fn read_again(found: &Verification, chain: &str) -> u64 {
    let report = found.chains.iter().find(|report| report.chain == chain).unwrap();
    report.records - report.verified_before
}

fn segments_of(dir: &Path, chain: &str) -> Vec<PathBuf> {
    (1..).map(|number| segment::path(dir, chain, number)).take_while(|path| path.exists()).collect()
}

#[tokio::test]
async fn what_was_verified_before_is_not_read_again_and_the_report_is_the_same() {
    let (dir, state) = (folder(), folder());
    let chain = chain_of_segments(dir.path(), 60).await;
    assert!(segments_of(dir.path(), &chain).len() > 3);
    let first = verify_again(dir.path(), &state_in(&state));
    assert_eq!((read_again(&first, &chain), &first.verdict), (62, &ChainStatus::Good));
    let second = verify_again(dir.path(), &state_in(&state));
    assert_eq!((read_again(&second, &chain), &second.verdict), (0, &ChainStatus::Good));
    let plain = |found: &Verification| {
        let without = |report: &ChainReport| ChainReport { verified_before: 0, ..report.clone() };
        found.chains.iter().map(without).collect::<Vec<_>>()
    };
    assert_eq!(plain(&first), plain(&second));
    // The next broker seals the chain: only its own records are new.
    let next = open(dir.path()).await;
    append(&next, 5).await;
    let third = verify_again(dir.path(), &state_in(&state));
    assert_eq!((read_again(&third, &chain), read_again(&third, next.chain())), (0, 7));
    assert_eq!(third.chains[0].sealed, Some(62));
    append(&next, 3).await;
    let fourth = verify_again(dir.path(), &state_in(&state));
    assert_eq!(read_again(&fourth, next.chain()), 3, "the chain of a broker that lives goes on");
    assert_eq!(fourth.chains[0].sealed, Some(62), "the seal was read before, and counts");
    next.close().await;
    let mut all = VerifiedSegments::load(&state_in(&state), dir.path()).unwrap().reading_all();
    let full = verify_in(dir.path(), small(dir.path()), &[], &[], &mut all).unwrap();
    assert_eq!((read_again(&full, &chain), full.verdict), (62, ChainStatus::Good));
}

#[tokio::test]
async fn a_changed_byte_in_an_old_segment_is_found_and_its_record_is_named() {
    let (dir, state) = (folder(), folder());
    let chain = chain_of_segments(dir.path(), 60).await;
    assert_eq!(verify_again(dir.path(), &state_in(&state)).verdict, ChainStatus::Good);
    for path in segments_of(dir.path(), &chain) {
        let whole = std::fs::read(&path).unwrap();
        for at in [40, whole.len() / 2, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            let found = verify_again(dir.path(), &state_in(&state));
            let named = matches!(&found.verdict, ChainStatus::Tampered { chain: Some(named), seq: Some(_), .. } if *named == chain);
            assert!(named, "byte {at} of {path:?}: {:?}", found.verdict);
        }
        // Something is added after the last frame.
        std::fs::write(&path, [&*whole, b"more"].concat()).unwrap();
        assert_ne!(verify_again(dir.path(), &state_in(&state)).verdict, ChainStatus::Good, "{path:?}");
        std::fs::write(&path, whole).unwrap();
        let found = verify_again(dir.path(), &state_in(&state));
        assert_eq!((read_again(&found, &chain), found.verdict), (0, ChainStatus::Good), "as it was");
    }
}

/// Without data outside the data folder, this cannot be detected: the remembered state is outside.
#[tokio::test]
async fn a_chain_whose_hashes_were_all_made_anew_is_found_by_what_was_remembered() {
    let (dir, state) = (folder(), folder());
    let chain = closed(dir.path(), 9).await;
    assert_eq!(verify_again(dir.path(), &state_in(&state)).verdict, ChainStatus::Good);
    let lock = dir.path().join("chains").join(format!("{chain}.ended"));
    let mut end = chain::ChainTip::default();
    rewrite(dir.path(), &chain, |records| {
        records[4].text = records[4].text.replacen("files__read", "files__list", 1);
        rehash(records);
        end = records.last().map(|last| chain::ChainTip { seq: last.seq, hash: last.hash }).unwrap();
    });
    std::fs::write(lock, chain::line(end)).unwrap();
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good, "the data folder alone does not show it");
    for _ in 0..2 {
        let found = verify_again(dir.path(), &state_in(&state));
        let ChainStatus::Tampered { reason, .. } = found.verdict else { panic!("{found:?}") };
        assert!(reason.contains("that an earlier verification found"), "{reason}");
    }
}

#[tokio::test]
async fn records_and_chains_that_were_found_before_must_still_be_there() {
    let (dir, state) = (folder(), folder());
    let chain = closed(dir.path(), 9).await;
    assert_eq!(verify_again(dir.path(), &state_in(&state)).verdict, ChainStatus::Good);
    std::fs::remove_file(dir.path().join("chains").join(format!("{chain}.ended"))).unwrap();
    std::fs::remove_file(segment(dir.path(), &chain)).unwrap();
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good, "the data folder alone does not show it");
    let found = verify_again(dir.path(), &state_in(&state));
    let ChainStatus::Tampered { chain: named, seq, reason } = found.verdict else { panic!("{found:?}") };
    assert_eq!((named, seq), (Some(chain), Some(1)));
    assert!(reason.contains("an earlier verification found 11 records, and 0 are there"), "{reason}");
}

/// A checkpoint that was kept elsewhere may cover fewer records than a segment that need not be read again.
#[tokio::test]
async fn a_checkpoint_within_a_verified_segment_is_compared_all_the_same() {
    let signed = Signed::new();
    let state = folder();
    let chain = signed.closed(12).await;
    let kept = signed.checkpoints();
    let other = Signed::new();
    other.closed(5).await;
    let again = |checkpoints: &[SignedCheckpoint]| {
        let mut verified = VerifiedSegments::load(&state_in(&state), signed.dir()).unwrap();
        let found = verify::verify_after(signed.dir(), checkpoints, &[], &mut verified).unwrap();
        verified.save().unwrap();
        found
    };
    // The next broker makes the ledger longer than the checkpoint.
    again(&[]);
    let found = again(&kept);
    let report = found.chains.iter().find(|report| report.chain == chain).unwrap();
    assert_eq!((report.confirmed_elsewhere, report.verified_before), (report.records, report.records));
    let mut false_one = kept[0].clone();
    false_one.checkpoint.size = 5;
    let found = again(&[false_one]);
    assert!(matches!(found.verdict, ChainStatus::Tampered { .. }), "{found:?}");
}

#[tokio::test]
async fn what_another_version_remembered_or_what_cannot_be_read_is_not_taken_over() {
    let (dir, state) = (folder(), folder());
    let chain = closed(dir.path(), 9).await;
    verify_again(dir.path(), &state_in(&state));
    let path = VerifiedSegments::load(&state_in(&state), dir.path()).unwrap().path().unwrap().to_owned();
    let text = std::fs::read_to_string(&path).unwrap();
    let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    let other = text.split_once('\n').unwrap().1.replace(&version, "\"version\":\"0.0.0\"");
    let other = format!("{}\n{other}", Digest::of(other.as_bytes()));
    for changed in [other, text[..text.len() / 2].to_owned(), String::new()] {
        assert_ne!(changed, text);
        std::fs::write(&path, changed).unwrap();
        assert_eq!(read_again(&verify_again(dir.path(), &state_in(&state)), &chain), 11);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "it is written anew");
    }
}

/// Records after the confirmed ones may belong to an append that fails, and be replaced by others.
#[tokio::test]
async fn only_confirmed_records_are_remembered() {
    let (dir, state) = (folder(), folder());
    let ledger = open(dir.path()).await;
    append(&ledger, 5).await;
    let (records, _) = stored(&segments(dir.path()), ledger.chain());
    let confirmed = chain::ChainTip { seq: 4, hash: records[3].hash };
    let lock = dir.path().join("chains").join(format!("{}.lock", ledger.chain()));
    std::fs::write(lock, chain::line(confirmed)).unwrap();
    let found = verify_again(dir.path(), &state_in(&state));
    assert_eq!((found.chains[0].records, &found.verdict), (6, &ChainStatus::Good));
    let again = verify_again(dir.path(), &state_in(&state));
    assert_eq!((again.chains[0].verified_before, &again.verdict), (4, &ChainStatus::Good));
    ledger.close().await;
}

#[tokio::test]
async fn a_verification_goes_on_after_old_segments_were_removed() {
    let (dir, state) = (folder(), folder());
    let setup = LedgerSetup { storage: Some(small(dir.path())), ..SHORT };
    let ledger = Ledger::open_with(dir.path(), started(), setup).await.unwrap();
    append(&ledger, 60).await;
    assert_eq!(verify_again(dir.path(), &state_in(&state)).verdict, ChainStatus::Good);
    let removal = ledger.remove_before(u64::MAX).await.unwrap();
    assert!(removal.records > 10, "{removal:?}");
    let found = verify_again(dir.path(), &state_in(&state));
    assert_eq!((read_again(&found, ledger.chain()), &found.verdict), (removal.records + 1, &ChainStatus::Good));
    append(&ledger, 1).await;
    let found = verify_again(dir.path(), &state_in(&state));
    assert_eq!((found.chains[0].verified_before, &found.verdict), (62 - removal.records, &ChainStatus::Good));
    // The tree left of the removed records differs from the one that was found.
    let left = segment::removed_path(dir.path(), ledger.chain());
    let text = std::fs::read_to_string(&left).unwrap();
    let root = text.split('"').find(|word| word.len() == 64 && !text.contains(&format!("\"hash\":\"{word}"))).unwrap();
    let other: String = root.chars().rev().collect();
    std::fs::write(&left, text.replace(root, &other)).unwrap();
    assert!(matches!(verify_again(dir.path(), &state_in(&state)).verdict, ChainStatus::Tampered { .. }));
    ledger.close().await;
}

/// A checkpoint that is not true may accuse the removed records, which are more than the good ones then.
#[tokio::test]
async fn tampering_that_is_found_behind_removed_records_is_a_finding_and_no_crash() {
    let (dir, state) = (folder(), folder());
    let setup = LedgerSetup { storage: Some(small(dir.path())), ..SHORT };
    let ledger = Ledger::open_with(dir.path(), started(), setup).await.unwrap();
    append(&ledger, 60).await;
    let removal = ledger.remove_before(u64::MAX).await.unwrap();
    append(&ledger, 20).await;
    ledger.close().await;
    assert_eq!(verify_again(dir.path(), &state_in(&state)).verdict, ChainStatus::Good);
    let other = Signed::new();
    other.closed(5).await;
    let mut false_one = other.checkpoints().remove(0);
    false_one.checkpoint.chain = ledger.chain().to_owned();
    false_one.checkpoint.size = removal.records + 1;
    let mut verified = VerifiedSegments::load(&state_in(&state), dir.path()).unwrap();
    let found = verify_in(dir.path(), small(dir.path()), &[false_one], &[], &mut verified).unwrap();
    assert!(matches!(found.verdict, ChainStatus::Tampered { seq: Some(1), .. }), "{found:?}");
    let report = found.chains.iter().find(|report| report.chain == ledger.chain()).unwrap();
    assert_eq!((report.records, report.verified_before), (0, 0));
}

/// Entries that were verified before are not compared one by one again.
#[tokio::test]
async fn an_index_that_lost_an_entry_of_what_was_verified_before_is_found() {
    let (dir, state) = (folder(), folder());
    let chain = closed(dir.path(), 9).await;
    let before = records(dir.path());
    assert_eq!(verify_again(dir.path(), &state_in(&state)).verdict, ChainStatus::Good);
    for (sql, expected) in [
        ("DELETE FROM events WHERE seq = 3", "10 of the first records where 11 are"),
        ("DELETE FROM events WHERE seq > 5", "nothing of record 6"),
        ("UPDATE chains SET complete = 0; DELETE FROM events WHERE seq > 5", "nothing of record 6"),
        (
            "UPDATE chains SET complete = 0, offset = (SELECT offset FROM events WHERE seq = 8); \
             DELETE FROM events WHERE seq > 5",
            "nothing of record 6",
        ),
    ] {
        let index = Connection::open(crate::index::path(dir.path())).unwrap();
        index.execute_batch(sql).unwrap();
        let found = verify_again(dir.path(), &state_in(&state));
        assert_eq!(read_again(&found, &chain), 0);
        let ChainStatus::Tampered { reason, .. } = found.verdict else { panic!("{found:?}") };
        assert!(reason.contains(&format!("the index has {expected}")), "{sql}: {reason}");
        assert_eq!(verify_again(dir.path(), &state_in(&state)).verdict, ChainStatus::Good, "it is made anew");
        assert_eq!(records(dir.path()), before);
    }
    // One that only lags behind is good.
    let index = Connection::open(crate::index::path(dir.path())).unwrap();
    let sql = "UPDATE chains SET complete = 0, offset = (SELECT offset FROM events WHERE seq = 6); \
               DELETE FROM events WHERE seq > 5";
    index.execute_batch(sql).unwrap();
    assert_eq!(verify_again(dir.path(), &state_in(&state)).verdict, ChainStatus::Good);
}

#[tokio::test]
async fn a_later_verification_still_says_that_calls_of_a_crashed_broker_may_be_missing() {
    let (dir, state) = (folder(), folder());
    let ledger = open(dir.path()).await;
    let (call, chain) = (CallId::new(), ledger.chain().to_owned());
    let intent = event(EventKind::CallIntent).to_call(&call);
    let (pending, slot) = ledger.intent(intent, None, IntentDurability::Queued).await.unwrap();
    assert!(pending.is_none());
    slot.record(Event::new(EventKind::ToolCompleted, json!({"outcome": "ok"})).to_call(&call));
    ledger.flush().await.unwrap();
    drop(ledger);
    wait_for_end(dir.path()).await;
    for read in [3, 0] {
        let found = verify_again(dir.path(), &state_in(&state));
        assert_eq!(read_again(&found, &chain), read);
        assert!(found.chains.iter().any(|report| report.chain == chain && report.may_miss_calls()), "{found:?}");
    }
}
