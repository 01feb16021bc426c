//! Signing and proving: nothing false is signed, even when resuming after an earlier verification.

use super::evidence::{Signed, rehash};
use super::*;

/// A chain of several segments that an earlier command verified and remembers.
struct Remembered {
    signed: Signed,
    state: TempDir,
    chain: String,
}

impl Remembered {
    /// Writes a chain of `n` records between its first and its last, and verifies it.
    async fn new(n: usize) -> Self {
        let (signed, state) = (Signed::new(), folder());
        let ledger = signed.open_with(small(signed.dir())).await;
        append(&ledger, n).await;
        ledger.close().await;
        let remembered = Self { signed, state, chain: ledger.chain().to_owned() };
        assert!(remembered.segments().len() > 3);
        remembered.going_on(|verified| verify_after(remembered.signed.dir(), &[], &[], verified)).unwrap();
        remembered
    }

    /// Does something as the user's next command would: with the remembered state, which is written afterwards.
    fn going_on<T>(&self, work: impl FnOnce(&mut VerifiedSegments) -> T) -> T {
        let mut verified = VerifiedSegments::load(&self.state_dir(), self.signed.dir()).unwrap();
        let done = work(&mut verified);
        verified.save().unwrap();
        done
    }

    fn checkpoints(&self) -> Result<Vec<SignedCheckpoint>, LedgerError> {
        let (dir, key, keys) = (self.signed.dir(), self.signed.key(), self.signed.keys());
        self.going_on(|verified| checkpoints(dir, &key, &keys, verified))
    }

    fn prove(&self, records: &[u64], since: Option<&SignedCheckpoint>) -> Result<Vec<RecordProof>, LedgerError> {
        let (dir, key, keys) = (self.signed.dir(), self.signed.key(), self.signed.keys());
        self.going_on(|verified| prove(dir, &self.chain, records, since, &key, &keys, verified))
    }

    /// Fails if anything is signed or proved.
    fn assert_nothing_is_signed(&self, what: &str) {
        let refused = self.checkpoints();
        assert!(matches!(refused, Err(LedgerError::Damaged { .. })), "{what}: {refused:?}");
        for record in [1, 30] {
            let refused = self.prove(&[record], None);
            assert!(matches!(refused, Err(LedgerError::Damaged { .. })), "{what}: {refused:?}");
        }
    }

    fn state_dir(&self) -> PathBuf {
        self.state.path().join("portcullis")
    }

    fn segments(&self) -> Vec<PathBuf> {
        let paths = (1..).map(|number| segment::path(self.signed.dir(), &self.chain, number));
        paths.take_while(|path| path.exists()).collect()
    }
}

fn small(dir: &Path) -> LedgerSetup {
    let limits = StorageLimits { segment: Some(2000), ..StorageLimits::default() };
    LedgerSetup { storage: Some(Arc::new(Segments::new(dir, limits))), ..SHORT }
}

async fn append(ledger: &Ledger, n: usize) {
    for _ in 0..n {
        ledger.append(event(EventKind::CallIntent).to_call(&CallId::new())).await.unwrap();
    }
}

#[tokio::test]
async fn checkpoints_and_proofs_from_what_is_remembered_are_those_from_the_records() {
    let remembered = Remembered::new(60).await;
    let (signed, chain) = (&remembered.signed, &remembered.chain);
    assert_eq!(remembered.checkpoints().unwrap(), signed.checkpoints());
    let old = signed.checkpoints().remove(0);
    let all: Vec<u64> = (1..=62).collect();
    assert_eq!(remembered.prove(&all, None).unwrap(), signed.prove(chain, &all, None).unwrap());

    // Another broker seals the chain. The remembered state is of the first chain, and then of both.
    let next = signed.open_with(small(signed.dir())).await;
    append(&next, 33).await;
    for _ in 0..2 {
        assert_eq!(remembered.checkpoints().unwrap(), signed.checkpoints());
        let proofs = remembered.prove(&all, Some(&old)).unwrap();
        assert_eq!(proofs, signed.prove(chain, &all, Some(&old)).unwrap());
        let text: String = proofs.iter().map(RecordProof::to_text).collect();
        assert_eq!(RecordProof::check_all(&text, &signed.keys()).unwrap(), proofs);
    }
    // A live chain continues within a segment that is remembered.
    let since = signed.checkpoints().pop().unwrap();
    append(&next, 40).await;
    let (of_next, wanted) = (Remembered { chain: next.chain().to_owned(), ..remembered }, [1, 2, 17, 50, 74]);
    let proofs = of_next.prove(&wanted, Some(&since)).unwrap();
    assert_eq!(proofs, of_next.signed.prove(next.chain(), &wanted, Some(&since)).unwrap());
    assert!(proofs.iter().all(|proof| proof.continues(&since)));
    next.close().await;
}

#[tokio::test]
async fn what_was_verified_and_changed_since_is_neither_signed_nor_proved() {
    let remembered = Remembered::new(60).await;
    for path in remembered.segments() {
        let whole = std::fs::read(&path).unwrap();
        for at in [40, whole.len() / 2, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            remembered.assert_nothing_is_signed(&format!("byte {at} of {path:?}"));
        }
        std::fs::remove_file(&path).unwrap();
        remembered.assert_nothing_is_signed(&format!("without {path:?}"));
        std::fs::write(&path, whole).unwrap();
        assert_eq!(remembered.checkpoints().unwrap(), remembered.signed.checkpoints(), "as it was");
    }
}

#[tokio::test]
async fn records_that_were_added_since_and_changed_are_neither_signed_nor_proved() {
    let remembered = Remembered::new(60).await;
    let signed = &remembered.signed;
    let next = signed.open_with(SHORT).await;
    append(&next, 8).await;
    remembered.checkpoints().unwrap();
    append(&next, 8).await;
    next.close().await;
    let path = segment(signed.dir(), next.chain());
    let whole = std::fs::read(&path).unwrap();
    for at in [whole.len() / 2, whole.len() - 200, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        remembered.assert_nothing_is_signed(&format!("byte {at}"));
    }
    std::fs::write(&path, &whole[..whole.len() - 100]).unwrap();
    remembered.assert_nothing_is_signed("a cut end");
    std::fs::write(&path, whole).unwrap();
    rewrite(signed.dir(), next.chain(), |records| records[14].text = records[14].text.replace("read", "rent"));
    remembered.assert_nothing_is_signed("an edit");
}

#[tokio::test]
async fn a_chain_that_was_made_anew_since_is_neither_signed_nor_proved() {
    let remembered = Remembered::new(60).await;
    let signed = &remembered.signed;
    signed.forget();
    let mut all = stored(&segments(signed.dir()), &remembered.chain).0;
    all[40].text = all[40].text.replace("files__read", "files__list");
    rehash(&mut all);
    for path in remembered.segments() {
        std::fs::remove_file(path).unwrap();
    }
    let mut writer = segments(signed.dir()).create(&remembered.chain);
    writer.append(&all).unwrap();
    writer.finish().unwrap();
    drop(writer);
    assert!(!signed.checkpoints().is_empty(), "the data folder alone does not show it");
    remembered.assert_nothing_is_signed("made anew");
}

/// A tree that a disk changed would be signed, and would later accuse a ledger that is good.
#[tokio::test]
async fn what_is_remembered_and_was_damaged_is_not_signed() {
    let remembered = Remembered::new(60).await;
    let path = VerifiedSegments::load(&remembered.state_dir(), remembered.signed.dir()).unwrap();
    let path = path.path().unwrap().to_owned();
    let text = std::fs::read_to_string(&path).unwrap();
    let at = text.rfind("\"tree\":[\"").unwrap() + "\"tree\":[\"".len();
    let mut changed = text.clone();
    changed.replace_range(at..=at, if text[at..].starts_with('0') { "1" } else { "0" });
    std::fs::write(&path, changed).unwrap();
    assert_eq!(remembered.checkpoints().unwrap(), remembered.signed.checkpoints());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "it is written anew");
}

#[tokio::test]
async fn nothing_false_is_signed() {
    let signed = Signed::new();
    let chain = signed.closed(3).await;
    let whole = std::fs::read(segment(signed.dir(), &chain)).unwrap();
    // A name that would bring further lines into the signed text.
    let strange = format!("{chain}\n1\nAAAA\nx");
    std::fs::write(segment(signed.dir(), &strange), &whole).unwrap();
    let notes: Vec<_> = signed.checkpoints().iter().map(|signed| signed.chain().to_owned()).collect();
    assert_eq!(notes, std::slice::from_ref(&chain));

    let refused = || signed.try_checkpoints().unwrap_err().to_string();
    std::fs::write(segment(signed.dir(), &chain), &whole[..whole.len() - 1]).unwrap();
    assert!(refused().contains("of chain"), "{}", refused());
    std::fs::write(segment(signed.dir(), &chain), &whole).unwrap();
    rewrite(signed.dir(), &chain, |records| {
        records[2].text = records[2].text.replace("read", "rent");
        rehash(records);
    });
    let ended = signed.dir().join("chains").join(format!("{chain}.ended"));
    std::fs::remove_file(ended).unwrap();
    assert!(refused().contains("checkpoint"), "the one that the broker left contradicts it: {}", refused());
}

#[tokio::test]
async fn what_is_not_confirmed_yet_is_neither_signed_nor_proved() {
    let signed = Signed::new();
    let (storage, setup) = FaultyStorage::new(signed.dir());
    let started = ChainStart { key: Some(Arc::new(signed.key())), ..started() };
    let ledger = Ledger::open_with(signed.dir(), started, setup).await.unwrap();
    ledger.append(event(EventKind::CallIntent)).await.unwrap();
    storage.fail();
    ledger.append(event(EventKind::CallIntent)).await.unwrap_err();
    // As if it had reached the disk: a later append takes its place.
    let chain = ledger.chain().to_owned();
    let records = stored(&segments(signed.dir()), &chain).0;
    let text = records[1].text.replace("\"seq\":2", "\"seq\":3");
    let unconfirmed = ChainedRecord { seq: 3, hash: hash(&records[1].hash, text.as_bytes()), text };
    let copy = std::fs::read(segment(signed.dir(), &chain)).unwrap();
    rewrite(signed.dir(), &chain, |records| records.push(unconfirmed));
    assert_eq!(stored(&segments(signed.dir()), &chain).0.len(), 3);
    assert_eq!(signed.checkpoints()[0].size(), 2);
    assert!(signed.prove(&chain, &[2], None).is_ok());
    assert!(signed.prove(&chain, &[3], None).is_err());
    std::fs::write(segment(signed.dir(), &chain), copy).unwrap();
}
