//! Checkpoints and proofs: the tampering that a copy kept elsewhere reveals.

use super::*;
use crate::evidence::{MerkleTree, VerifiedChain, VerifiedChainState, proofs};
use crate::verify::verify_against;

/// A data folder and the folder of the key that signs its checkpoints.
pub(super) struct Signed {
    data: TempDir,
    state: TempDir,
}

impl Signed {
    pub(super) fn new() -> Self {
        Self { data: folder(), state: folder() }
    }

    pub(super) fn dir(&self) -> &Path {
        self.data.path()
    }

    /// Returns the user's state folder, which is made with the key.
    fn state(&self) -> PathBuf {
        self.state.path().join("portcullis")
    }

    pub(super) fn key(&self) -> CheckpointKey {
        CheckpointKey::open(&self.state()).unwrap()
    }

    pub(super) fn keys(&self) -> Vec<PublicKey> {
        CheckpointKey::trusted(&self.state()).unwrap()
    }

    async fn open(&self) -> Ledger {
        self.open_with(SHORT).await
    }

    pub(super) async fn open_with(&self, setup: LedgerSetup) -> Ledger {
        let started = ChainStart { key: Some(Arc::new(self.key())), ..started() };
        Ledger::open_with(self.dir(), started, setup).await.unwrap()
    }

    /// Creates a chain of `n` records between its first and its last.
    pub(super) async fn closed(&self, n: usize) -> String {
        let ledger = self.open().await;
        for _ in 0..n {
            ledger.append(event(EventKind::CallIntent)).await.unwrap();
        }
        ledger.close().await;
        ledger.chain().to_owned()
    }

    pub(super) fn checkpoints(&self) -> Vec<SignedCheckpoint> {
        self.try_checkpoints().unwrap()
    }

    pub(super) fn try_checkpoints(&self) -> Result<Vec<SignedCheckpoint>, LedgerError> {
        checkpoints(self.dir(), &self.key(), &self.keys(), &mut VerifiedSegments::default())
    }

    pub(super) fn prove(
        &self,
        chain: &str,
        records: &[u64],
        since: Option<&SignedCheckpoint>,
    ) -> Result<Vec<RecordProof>, LedgerError> {
        let (key, keys) = (self.key(), self.keys());
        prove(self.dir(), chain, records, since, &key, &keys, &mut VerifiedSegments::default())
    }

    /// Makes the proof of a record unchecked, whether or not it is good.
    fn prove_as_it_is(&self, chain: &str, record: u64, since: Option<&SignedCheckpoint>) -> RecordProof {
        let storage = segments(self.dir());
        let mut reader = storage.read(chain, ChainPosition::default()).unwrap();
        let (mut tree, mut tip) = (MerkleTree::default(), chain::ChainTip::default());
        while let Some(batch) = reader.skip().unwrap() {
            batch.hashes.iter().for_each(|hash| tree.push(hash));
            tip = batch.tip;
        }
        let states = vec![VerifiedChainState { place: reader.place(), tip, tree }];
        let chain = VerifiedChain::new(&storage, chain, states);
        proofs(self.dir(), &chain, &[record], since, &self.key()).unwrap().remove(0)
    }

    /// Removes what the data folder itself knows about its chains: a witness elsewhere is all that is left.
    pub(super) fn forget(&self) {
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

/// Recomputes all hashes of a chain, so that it contradicts nothing.
pub(super) fn rehash(records: &mut [ChainedRecord]) {
    let mut before = RecordHash::default();
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

    // The attacker who rewrote it signs with another key.
    let other = folder();
    let other = CheckpointKey::open(&other.path().join("other")).unwrap();
    let note = checkpoints(signed.dir(), &other, &[], &mut VerifiedSegments::default()).unwrap();
    let trusted = signed.keys();
    assert_eq!(read_checkpoints(note[0].note(), &trusted), Err(CheckpointError::UnknownKey(1)));
    assert_eq!(read_checkpoints("\n", &trusted), Err(CheckpointError::Empty), "an empty file confirms nothing");
}

#[tokio::test]
async fn the_checkpoint_that_a_broker_leaves_is_checked_with_the_key_of_its_user() {
    let signed = Signed::new();
    let chain = signed.closed(5).await;
    let keys = signed.keys();
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
    let both = signed.keys();
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
    let (chain, keys) = (ledger.chain(), signed.keys());
    let wanted: Vec<u64> = (1..=42).collect();
    let proofs = signed.prove(chain, &wanted, Some(&old)).unwrap();
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
    // The size without its record, which has any length, and the older checkpoint.
    let alone = signed.prove(chain, &[8], None).unwrap().remove(0);
    let path = 45 * alone.to_json()["path"].as_array().unwrap().len();
    assert!(alone.to_text().len() - alone.record().len() - path + 45 * 25 < 2048, "in a tree of 2^25 records");
    for text in ["", "[]", "c2sp.org/tlog-proof@v1\n", "{\"record\":1}", "{}\nc2sp.org/tlog-proof@v1\n\n"] {
        assert_eq!(RecordProof::check_all(text, &keys), Err(ProofError::Malformed), "{text}");
    }

    // A record in another place than it states.
    let copy = std::fs::read(segment(signed.dir(), chain)).unwrap();
    rewrite(signed.dir(), chain, |records| {
        rehash(records);
        let changed = records[9].text.replacen("\"seq\":10", "\"seq\":11", 1);
        records[9].hash = hash(&records[8].hash, changed.as_bytes());
        records[9].text = changed;
        records.truncate(10);
    });
    let forged = signed.prove_as_it_is(chain, 10, None);
    assert_eq!(RecordProof::check_all(&forged.to_text(), &keys), Err(ProofError::NotIncluded));
    std::fs::write(segment(signed.dir(), chain), &copy).unwrap();

    // Somebody rewrote the chain since: the older checkpoint contradicts every proof.
    rewrite(signed.dir(), chain, |records| {
        records[2].text = records[2].text.replace("read", "rent");
        rehash(records);
    });
    let since = Some(&old);
    let forged = signed.prove_as_it_is(chain, 30, since);
    assert_eq!(RecordProof::check_all(&forged.to_text(), &keys), Err(ProofError::NotConsistent));
    // So nothing is signed, not even with a checkpoint only in the data folder.
    for since in [since, None] {
        let refused = signed.prove(chain, &[30], since);
        assert!(matches!(refused, Err(LedgerError::Damaged { .. })), "{refused:?}");
    }
    std::fs::write(segment(signed.dir(), chain), copy).unwrap();
    let refused = signed.prove(chain, &[43], None).unwrap_err();
    assert!(refused.to_string().contains("record 43"), "{refused}");
}

#[tokio::test]
async fn a_second_seal_excuses_nothing() {
    let signed = Signed::new();
    let chains = [signed.closed(3).await, signed.closed(2).await];
    let kept = signed.checkpoints();
    signed.forget();
    let whole = std::fs::read(segment(signed.dir(), &chains[0])).unwrap();
    for change in ["rewritten", "removed"] {
        std::fs::write(segment(signed.dir(), &chains[0]), &whole).unwrap();
        let mut end = (0, RecordHash::default());
        if change == "removed" {
            std::fs::remove_file(segment(signed.dir(), &chains[0])).unwrap();
        } else {
            rewrite(signed.dir(), &chains[0], |records| {
                records[2].text = records[2].text.replace("read", "rent");
                rehash(records);
                end = (records[4].seq, records[4].hash);
            });
        }
        // A chain that comes first, and seals the false end.
        let first = "00000000000000000000000000";
        let seal = json!({ "chain": chains[0], "seq": end.0, "hash": portcullis_core::digest::hex(&end.1) });
        let events = [
            Event::new(EventKind::BrokerStarted, json!({})),
            Event::new(EventKind::ChainSealed, seal),
            Event::new(EventKind::BrokerStopped, json!({})),
        ];
        let drafts: Vec<_> = events.into_iter().map(|event| event.draft(None).unwrap()).collect();
        let mut writer = segments(signed.dir()).create(first);
        writer.append(&chained(first, &drafts)).unwrap();
        writer.finish().unwrap();
        drop(writer);
        let found = verify_against(signed.dir(), &kept, &[]).unwrap().findings;
        let is_named = |finding: &ChainStatus| matches!(finding, ChainStatus::Tampered { chain: Some(chain), .. } if *chain == chains[0]);
        assert!(found.iter().any(is_named), "{change}: {found:?}");
        std::fs::remove_file(segment(signed.dir(), first)).unwrap();
    }
}

#[tokio::test]
async fn an_empty_folder_is_not_what_a_checkpoint_covers() {
    let signed = Signed::new();
    let chain = signed.closed(3).await;
    let kept = signed.checkpoints();
    let empty = folder();
    let found = verify_against(empty.path(), &kept, &[]).unwrap().verdict;
    assert!(
        matches!(&found, ChainStatus::Tampered { chain: Some(named), seq: Some(1), .. } if *named == chain),
        "{found:?}"
    );
}

#[test]
fn what_lies_among_the_checkpoints_stops_no_verification() {
    let signed = Signed::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let chain = runtime.block_on(signed.closed(1));
    let file = signed.dir().join("checkpoints").join(format!("{chain}.checkpoint"));
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let found = verify_against(signed.dir(), &[], &signed.keys()).unwrap();
    assert!(matches!(&found.verdict, ChainStatus::Tampered { reason, .. } if reason.contains("cannot be read")));
    assert_eq!(found.chains[0].bad, None, "the records are verified");
}
