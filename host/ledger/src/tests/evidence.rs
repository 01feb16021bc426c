//! Checkpoints and proofs: what somebody who keeps one elsewhere can find out.

use super::*;

use proptest::prelude::*;

use crate::verify::verify_against;

/// A data folder and the folder of the key that signs its checkpoints.
struct Signed {
    data: TempDir,
    state: TempDir,
}

impl Signed {
    fn new() -> Self {
        Self { data: folder(), state: folder() }
    }

    fn dir(&self) -> &Path {
        self.data.path()
    }

    /// The user's state folder, which is made with the key.
    fn state(&self) -> PathBuf {
        self.state.path().join("portcullis")
    }

    fn key(&self) -> CheckpointKey {
        CheckpointKey::open(&self.state()).unwrap()
    }

    async fn open(&self) -> Ledger {
        let started = ChainStart { key: Some(Arc::new(self.key())), ..started() };
        Ledger::open(self.dir(), started).await.unwrap()
    }

    /// Creates a chain of `n` records between its first and its last.
    async fn closed(&self, n: usize) -> String {
        let ledger = self.open().await;
        for _ in 0..n {
            ledger.append(event(EventKind::CallIntent)).await.unwrap();
        }
        ledger.close().await;
        ledger.chain().to_owned()
    }

    fn checkpoints(&self) -> Vec<SignedCheckpoint> {
        checkpoints(self.dir(), &self.key()).unwrap()
    }

    /// Removes what the data folder itself knows about its chains: a witness elsewhere is all that is left.
    fn forget(&self) {
        for folder in ["checkpoints", "chains"] {
            let folder = self.dir().join(folder);
            std::fs::remove_dir_all(&folder).unwrap();
            std::fs::create_dir(folder).unwrap();
        }
        for file in ["index.sqlite", "ledger.sqlite"] {
            let _ = std::fs::remove_file(self.dir().join(file));
        }
    }
}

/// Makes all hashes of a chain anew, so that it contradicts nothing.
fn rehash(records: &mut [ChainedRecord]) {
    let mut before = Hash::default();
    for (record, seq) in records.iter_mut().zip(1..) {
        let mut json: serde_json::Value = serde_json::from_str(&record.text).unwrap();
        json.as_object_mut().unwrap().insert("seq".to_owned(), seq.into());
        record.text = json.to_string();
        record.seq = seq;
        record.hash = hash(&before, record.text.as_bytes());
        before = record.hash;
    }
}

#[tokio::test]
async fn one_checkpoint_covers_all_chains_that_ended_before() {
    let signed = Signed::new();
    let chains = [signed.closed(3).await, signed.closed(2).await, signed.closed(1).await];
    let kept = signed.checkpoints();
    let [only] = &kept[..] else { panic!("{kept:?}") };
    assert_eq!((only.chain(), only.size()), (&*chains[2], 4));
    for (chain, lock_name) in chains.iter().zip(["sealed", "sealed", "ended"]) {
        let copy = std::fs::read(segment(signed.dir(), chain)).unwrap();
        let lock = signed.dir().join("chains").join(format!("{chain}.{lock_name}"));
        let lock_copy = std::fs::read(&lock).unwrap();
        std::fs::remove_file(segment(signed.dir(), chain)).unwrap();
        std::fs::remove_file(&lock).unwrap();
        let found = verify_against(signed.dir(), &kept, &[]).unwrap().findings;
        let is_named = |finding: &ChainStatus| matches!(finding, ChainStatus::Tampered { chain: Some(named), seq: Some(1), .. } if named == chain);
        assert!(found.iter().any(is_named), "{chain}: {found:?}");
        std::fs::write(segment(signed.dir(), chain), copy).unwrap();
        std::fs::write(lock, lock_copy).unwrap();
    }
    let found = verify_against(signed.dir(), &kept, &[]).unwrap();
    assert_eq!(found.verdict, ChainStatus::Good);
    let confirmed: Vec<_> = found.chains.iter().map(|report| (report.records, report.confirmed)).collect();
    assert_eq!(confirmed, [(5, 5), (5, 5), (4, 4)]);
    assert_eq!(verify(signed.dir()).unwrap().chains[0].confirmed, 0, "without checkpoints");
}

#[tokio::test]
async fn records_after_a_checkpoint_are_no_tampering_and_two_live_brokers_need_one_each() {
    let signed = Signed::new();
    let (first, second) = (signed.open().await, signed.open().await);
    let kept = signed.checkpoints();
    assert_eq!(kept.len(), 2);
    first.append(event(EventKind::CallIntent)).await.unwrap();
    assert_eq!(verify_against(signed.dir(), &kept, &[]).unwrap().verdict, ChainStatus::Good);
    first.close().await;
    second.close().await;
    assert_eq!(verify_against(signed.dir(), &kept, &[]).unwrap().verdict, ChainStatus::Good);
}

/// The ways in which somebody who can write the data folder may change a chain.
#[derive(Debug, Clone, Copy)]
enum Tampering {
    Edit,
    Delete,
    Insert,
    Reorder,
    Cut,
    /// An old copy of the whole chain.
    Rollback,
    /// An edit after which all hashes are made anew.
    Rewrite,
    /// Bytes of the file.
    Bytes,
}

const TAMPERINGS: [Tampering; 8] = [
    Tampering::Edit,
    Tampering::Delete,
    Tampering::Insert,
    Tampering::Reorder,
    Tampering::Cut,
    Tampering::Rollback,
    Tampering::Rewrite,
    Tampering::Bytes,
];

/// Changes a chain of `n` records, and returns the number of the first that is not as it was. It is 0 where that cannot
/// be told: a checkpoint alone does not say which record was replaced before all hashes were made anew, and a byte of a
/// file may belong to several.
fn tamper(dir: &Path, chain: &str, tampering: Tampering, place: usize, n: usize) -> u64 {
    let at = place % n;
    let next = if at + 1 < n { at + 1 } else { at - 1 };
    let mut first = at;
    match tampering {
        Tampering::Edit => rewrite(dir, chain, |records| {
            records[at].text = records[at].text.replacen("1", "2", 1);
        }),
        Tampering::Delete => rewrite(dir, chain, |records| drop(records.remove(at))),
        Tampering::Insert => {
            first = at + 1;
            rewrite(dir, chain, |records| records.insert(at, records[at].clone()));
        }
        Tampering::Reorder => {
            first = at.min(next);
            rewrite(dir, chain, |records| records.swap(at, next));
        }
        Tampering::Cut => rewrite(dir, chain, |records| records.truncate(at)),
        Tampering::Rollback => rewrite(dir, chain, |records| {
            records.truncate(at);
            rehash(records);
        }),
        Tampering::Rewrite => {
            rewrite(dir, chain, |records| {
                let mut json: serde_json::Value = serde_json::from_str(&records[at].text).unwrap();
                json["body"].as_object_mut().unwrap().insert("zz".to_owned(), place.into());
                records[at].text = json.to_string();
                rehash(records);
            });
            return 0;
        }
        Tampering::Bytes => {
            let path = segment(dir, chain);
            let mut bytes = std::fs::read(&path).unwrap();
            let at = place % bytes.len();
            bytes[at] ^= 1 << (place % 8);
            std::fs::write(path, bytes).unwrap();
            return 0;
        }
    }
    first as u64 + 1
}

/// Runs random tamperings against a ledger of several chains of which one checkpoint is kept elsewhere.
fn tamperings_are_found(cases: u32) {
    const RECORDS: usize = 12;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let signed = Signed::new();
    let mut chains = Vec::new();
    for _ in 0..3 {
        chains.push(runtime.block_on(signed.closed(RECORDS)));
    }
    let kept = signed.checkpoints();
    signed.forget();
    let read = |chain: &String| std::fs::read(segment(signed.dir(), chain)).unwrap();
    let whole: Vec<_> = chains.iter().map(read).collect();
    let counts: Vec<usize> = chains.iter().map(|chain| stored(&segments(signed.dir()), chain).0.len()).collect();
    assert_eq!(verify_against(signed.dir(), &kept, &[]).unwrap().verdict, ChainStatus::Good);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(which in 0..chains.len(), kind in 0..TAMPERINGS.len(), place in any::<u32>())| {
        let (chain, kind) = (&chains[which], TAMPERINGS[kind]);
        let expected = tamper(signed.dir(), chain, kind, place as usize, counts[which]);
        let changed = std::fs::read(segment(signed.dir(), chain)).ok();
        let verdict = verify_against(signed.dir(), &kept, &[]).unwrap().verdict;
        std::fs::write(segment(signed.dir(), chain), &whole[which]).unwrap();
        prop_assume!(changed.as_ref() != Some(&whole[which]));
        match verdict {
            ChainStatus::Tampered { chain: Some(named), seq: Some(seq), .. } => {
                prop_assert_eq!(&named, chain, "{:?} at {}", kind, place);
                prop_assert!(expected == 0 || seq == expected, "{:?}: {} instead of {}", kind, seq, expected);
            }
            other => prop_assert!(false, "{:?} of {} at {}: {:?}", kind, which, place, other),
        }
    });
}

#[test]
fn every_tampering_with_what_a_checkpoint_covers_is_found_and_the_first_bad_record_is_named() {
    tamperings_are_found(100);
}

/// Run with `cargo test --release --package portcullis-ledger -- --ignored ten_thousand`.
#[test]
#[ignore = "takes minutes"]
fn ten_thousand_tamperings_are_found() {
    tamperings_are_found(10_000);
}

#[tokio::test]
async fn a_rewritten_ledger_needs_the_key_and_the_first_record_after_the_last_true_checkpoint_is_named() {
    let signed = Signed::new();
    let ledger = signed.open().await;
    for _ in 0..3 {
        ledger.append(event(EventKind::CallIntent)).await.unwrap();
    }
    let early = signed.checkpoints();
    for _ in 0..3 {
        ledger.append(event(EventKind::CallIntent)).await.unwrap();
    }
    ledger.close().await;
    let chain = ledger.chain().to_owned();
    let mut kept = early;
    kept.extend(signed.checkpoints());
    signed.forget();
    rewrite(signed.dir(), &chain, |records| {
        records[5].text = records[5].text.replace("read", "rent");
        rehash(records);
    });
    assert_eq!(verify(signed.dir()).unwrap().verdict, ChainStatus::Good, "without a checkpoint nobody can tell");
    let found = verify_against(signed.dir(), &kept, &[]).unwrap();
    assert!(matches!(&found.verdict, ChainStatus::Tampered { seq: Some(5), .. }), "{:?}", found.verdict);
    assert_eq!(found.chains[0].confirmed, 4);

    // Whoever rewrote it signs with another key.
    let other = folder();
    let note = checkpoints(signed.dir(), &CheckpointKey::open(&other.path().join("other")).unwrap()).unwrap();
    let trusted = CheckpointKey::trusted(&signed.state()).unwrap();
    assert_eq!(read_checkpoints(note[0].note(), &trusted), Err(CheckpointError::UnknownKey(1)));
    assert_eq!(read_checkpoints("\n", &trusted), Err(CheckpointError::Empty), "an empty file confirms nothing");
}

#[tokio::test]
async fn the_checkpoint_that_a_broker_leaves_is_checked_with_the_key_of_its_user() {
    let signed = Signed::new();
    let chain = signed.closed(5).await;
    let keys = CheckpointKey::trusted(&signed.state()).unwrap();
    let found = verify_against(signed.dir(), &[], &keys).unwrap();
    assert_eq!((found.verdict, found.chains[0].confirmed), (ChainStatus::Good, 7), "it covers the end too");
    let text = records(signed.dir())[0].record.body["checkpoint_key"].clone();
    assert_eq!(text.as_str(), Some(&*keys[0].to_string()), "the chain names its key");

    let file = signed.dir().join("checkpoints").join(format!("{chain}.checkpoint"));
    let note = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, note.replacen("\n7\n", "\n6\n", 1)).unwrap();
    let found = verify_against(signed.dir(), &[], &keys).unwrap().verdict;
    assert!(matches!(&found, ChainStatus::Tampered { reason, .. } if reason.contains("checkpoint")), "{found:?}");
    assert_eq!(verify(signed.dir()).unwrap().verdict, ChainStatus::Good, "without keys it says nothing");

    // A new key keeps trusting the old one, and signs what comes.
    std::fs::write(&file, note).unwrap();
    CheckpointKey::rotate(&signed.state()).unwrap();
    let both = CheckpointKey::trusted(&signed.state()).unwrap();
    assert_eq!((both.len(), &both[1]), (2, &keys[0]));
    let next = signed.closed(0).await;
    let found = verify_against(signed.dir(), &[], &both).unwrap();
    assert_eq!(found.verdict, ChainStatus::Good);
    assert!(found.chains.iter().all(|report| report.confirmed == report.records), "{next}: {found:?}");
}

#[tokio::test]
async fn a_proof_is_checked_without_the_ledger_and_a_changed_one_is_refused() {
    let signed = Signed::new();
    let ledger = signed.open().await;
    for _ in 0..20 {
        ledger.append(event(EventKind::CallIntent)).await.unwrap();
    }
    let old = signed.checkpoints().remove(0);
    for _ in 0..20 {
        ledger.append(event(EventKind::CallIntent)).await.unwrap();
    }
    ledger.close().await;
    let (chain, keys) = (ledger.chain(), CheckpointKey::trusted(&signed.state()).unwrap());
    let wanted: Vec<u64> = (1..=42).collect();
    let proofs = prove(signed.dir(), chain, &wanted, Some(&old), &signed.key()).unwrap();
    let records = stored(&segments(signed.dir()), chain).0;
    for (proof, record) in proofs.iter().zip(&records) {
        assert_eq!(proof.record(), record.text);
        for text in [proof.to_json().to_string(), proof.to_text()] {
            assert_eq!(RecordProof::check_all(&text, &keys).unwrap(), std::slice::from_ref(proof));
        }
    }
    let all: String = proofs.iter().map(RecordProof::to_text).collect();
    assert_eq!(RecordProof::check_all(&all, &keys).unwrap(), proofs);

    let json = proofs[7].to_json().to_string();
    let other = folder();
    let others = [CheckpointKey::open(&other.path().join("other")).unwrap().public().clone()];
    assert!(matches!(RecordProof::check_all(&json, &others), Err(ProofError::Checkpoint(_))));
    let refused = |from: &str, to: &str| {
        assert!(json.contains(from), "{from}: {json}");
        RecordProof::check_all(&json.replacen(from, to, 1), &keys).unwrap_err()
    };
    assert_eq!(refused("read", "rent"), ProofError::NotIncluded);
    assert_eq!(refused("\"index\":7", "\"index\":8"), ProofError::NotIncluded);
    assert_eq!(refused(r#"\"seq\":8"#, r#"\"seq\":9"#), ProofError::NotIncluded);
    let mut changed = proofs[7].to_json();
    changed["path"].as_array_mut().unwrap().swap(0, 1);
    assert_eq!(RecordProof::check_all(&changed.to_string(), &keys), Err(ProofError::NotIncluded));
    let mut changed = proofs[7].to_json();
    changed["since"]["path"].as_array_mut().unwrap().swap(0, 1);
    assert_eq!(RecordProof::check_all(&changed.to_string(), &keys), Err(ProofError::NotConsistent));
    for text in ["", "[]", "c2sp.org/tlog-proof@v1\n", "{\"record\":1}"] {
        assert_eq!(RecordProof::check_all(text, &keys), Err(ProofError::Malformed), "{text}");
    }

    // A record in another place than it says.
    let copy = std::fs::read(segment(signed.dir(), chain)).unwrap();
    rewrite(signed.dir(), chain, |records| {
        rehash(records);
        let changed = records[9].text.replacen("\"seq\":10", "\"seq\":11", 1);
        records[9].hash = hash(&records[8].hash, changed.as_bytes());
        records[9].text = changed;
        records.truncate(10);
    });
    let forged = prove(signed.dir(), chain, &[10], None, &signed.key()).unwrap();
    assert_eq!(RecordProof::check_all(&forged[0].to_text(), &keys), Err(ProofError::NotIncluded));
    std::fs::write(segment(signed.dir(), chain), copy).unwrap();

    // Somebody rewrote the chain since: the older checkpoint contradicts every proof.
    rewrite(signed.dir(), chain, |records| {
        records[2].text = records[2].text.replace("read", "rent");
        rehash(records);
    });
    let forged = prove(signed.dir(), chain, &[30], Some(&old), &signed.key()).unwrap();
    assert_eq!(RecordProof::check_all(&forged[0].to_text(), &keys), Err(ProofError::NotConsistent));
    assert!(prove(signed.dir(), chain, &[43], None, &signed.key()).unwrap_err().to_string().contains("record 43"));
}
