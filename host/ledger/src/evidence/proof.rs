//! Proofs that a record is in a chain, which are checked without the ledger. A proof has two forms with the same
//! content: JSON, and C2SP's `tlog-proof`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::checkpoint::{Checkpoint, CheckpointError, SignedCheckpoint, untampered};
use super::key::CheckpointKey;
use super::merkle::{consistency_ranges, inclusion_ranges, is_consistent, is_included};
use super::note::PublicKey;
use super::verified_chain::VerifiedChain;
use crate::LedgerError;
use crate::record::{Record, RecordHash, hash};
use crate::segment::Segments;
use crate::storage::{Storage as _, StorageLimits};
use crate::verify::VerifiedSegments;

/// The first line of a proof as text.
const TEXT_MARK: &str = "c2sp.org/tlog-proof@v1";

/// The proof that a record is in a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordProof {
    record: RecordInChain,
    /// The place of the record in the tree, from 0.
    index: u64,
    path: Vec<RecordHash>,
    checkpoint: SignedCheckpoint,
    /// The older checkpoint that the chain continues, if the proof is about one.
    older: Option<Checkpoint>,
}

/// A record, with the input of its hash, and with the proof that an older checkpoint covers the beginning of the same
/// chain.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct RecordInChain {
    /// The text of the record.
    record: String,
    /// The hash of the record before it, in base64.
    before: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Since>,
}

/// An older checkpoint, and the proof that its tree is the beginning of the later one.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Since {
    checkpoint: String,
    path: Vec<String>,
}

/// The form of a proof as JSON.
#[derive(serde::Serialize, serde::Deserialize)]
struct ProofJson {
    #[serde(flatten)]
    record: RecordInChain,
    index: u64,
    path: Vec<String>,
    checkpoint: String,
}

/// The reason why a proof proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofError {
    /// It is not in the format of proofs.
    #[error("it is not a proof: expected what `portcullis audit prove` prints")]
    Malformed,
    /// Its checkpoint does not count.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The record is not in the tree of the checkpoint.
    #[error("the checkpoint does not cover this record: the record, its place or the path was changed")]
    NotIncluded,
    /// The older checkpoint is not one of the same chain.
    #[error("the later checkpoint does not continue the older one: the chain was rewritten in between")]
    NotConsistent,
}

impl RecordProof {
    /// Returns the text of the record.
    #[must_use]
    pub fn record(&self) -> &str {
        &self.record.record
    }

    /// Returns the checkpoint that covers the record.
    #[must_use]
    pub fn checkpoint(&self) -> &SignedCheckpoint {
        &self.checkpoint
    }

    /// Reports whether the proof shows that the chain continues what a checkpoint covers: it is the proof's own, or the
    /// older one that the proof was made for.
    #[must_use]
    pub fn continues(&self, checkpoint: &SignedCheckpoint) -> bool {
        self.checkpoint.checkpoint == checkpoint.checkpoint || self.older.as_ref() == Some(&checkpoint.checkpoint)
    }

    /// Returns the proof as JSON.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let path = self.path.iter().map(|hash| STANDARD.encode(hash)).collect();
        let (record, checkpoint) = (self.record.clone(), self.checkpoint.note().to_owned());
        serde_json::to_value(ProofJson { record, index: self.index, path, checkpoint }).unwrap_or_default()
    }

    /// Returns the record, and after it the proof in the form of C2SP's `tlog-proof`. The record is on its own line,
    /// where people can read it, and a proof is short however long its record is.
    #[must_use]
    pub fn to_text(&self) -> String {
        let RecordInChain { record, before, since } = &self.record;
        let mut extra = STANDARD.decode(before).unwrap_or_default();
        if let Some(Since { checkpoint, path }) = since {
            let path: String = path.iter().map(|hash| format!("{hash}\n")).collect();
            extra.extend_from_slice(format!("{path}\n{checkpoint}").as_bytes());
        }
        let (extra, path) = (STANDARD.encode(extra), self.path.iter().map(|hash| STANDARD.encode(hash) + "\n"));
        let path: String = path.collect();
        format!("{record}\n{TEXT_MARK}\nextra {extra}\nindex {}\n{path}\n{}", self.index, self.checkpoint.note())
    }

    /// Reads and checks proofs, in either form, one after the other. Only the keys are needed for it.
    ///
    /// # Errors
    /// [`ProofError`] about the first that proves nothing.
    pub fn check_all(text: &str, keys: &[PublicKey]) -> Result<Vec<Self>, ProofError> {
        let proofs: Vec<ProofJson> = match serde_json::from_str(text) {
            Ok(proofs) => proofs,
            Err(_) => match serde_json::from_str(text) {
                Ok(proof) => vec![proof],
                Err(_) => parse_all(text).ok_or(ProofError::Malformed)?,
            },
        };
        if proofs.is_empty() {
            return Err(ProofError::Malformed);
        }
        proofs.into_iter().enumerate().map(|(at, proof)| Self::check(proof, keys, at + 1)).collect()
    }

    fn check(proof: ProofJson, keys: &[PublicKey], number: usize) -> Result<Self, ProofError> {
        let ProofJson { record, index, path, checkpoint } = proof;
        let path = hashes(&path).ok_or(ProofError::Malformed)?;
        let signed = SignedCheckpoint::open(checkpoint, keys, number)?;
        let Checkpoint { chain, size, root } = &signed.checkpoint;
        let before = decoded(&record.before).ok_or(ProofError::Malformed)?;
        let leaf = hash(&before, record.record.as_bytes());
        let facts: Record = serde_json::from_str(&record.record).map_err(|_| ProofError::Malformed)?;
        let is_here = facts.chain == *chain && Some(facts.seq) == index.checked_add(1);
        if !is_here || !is_included(&leaf, index, *size, &path, root) {
            return Err(ProofError::NotIncluded);
        }
        let mut older = None;
        if let Some(since) = &record.since {
            let path = hashes(&since.path).ok_or(ProofError::Malformed)?;
            let old = SignedCheckpoint::open(since.checkpoint.clone(), keys, number)?.checkpoint;
            if old.chain != *chain || !is_consistent((old.size, &old.root), (*size, root), &path) {
                return Err(ProofError::NotConsistent);
            }
            older = Some(old);
        }
        Ok(Self { record, index, path, checkpoint: signed, older })
    }
}

/// Reads proofs as text, one after the other. A record begins with a brace, as no other line does.
fn parse_all(text: &str) -> Option<Vec<ProofJson>> {
    let (mut proofs, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let (proof, next) = rest.split_at(rest.find("\n{").map_or(rest.len(), |end| end + 1));
        proofs.push(parse(proof)?);
        rest = next;
    }
    Some(proofs)
}

fn parse(text: &str) -> Option<ProofJson> {
    let (record, proof) = text.split_once('\n')?;
    let (head, checkpoint) = proof.strip_prefix(TEXT_MARK)?.split_once("\n\n")?;
    let mut lines = head.strip_prefix('\n')?.lines();
    let extra = STANDARD.decode(lines.next()?.strip_prefix("extra ")?).ok()?;
    let (before, since) = extra.split_first_chunk::<32>()?;
    let since = match std::str::from_utf8(since).ok()? {
        "" => None,
        since => Some(Since::parse(since)?),
    };
    let record = RecordInChain { record: record.to_owned(), before: STANDARD.encode(before), since };
    let index = lines.next()?.strip_prefix("index ")?.parse().ok()?;
    let checkpoint = format!("{}\n", checkpoint.trim_end());
    Some(ProofJson { record, index, path: lines.map(str::to_owned).collect(), checkpoint })
}

impl Since {
    /// Reads the hashes of the path, one in each line, an empty line, and the checkpoint.
    fn parse(text: &str) -> Option<Self> {
        let (path, checkpoint) = match text.strip_prefix('\n') {
            Some(checkpoint) => ("", checkpoint),
            None => text.split_once("\n\n")?,
        };
        Some(Self { checkpoint: checkpoint.to_owned(), path: path.lines().map(str::to_owned).collect() })
    }
}

fn hashes(texts: &[String]) -> Option<Vec<RecordHash>> {
    texts.iter().map(|text| decoded(text)).collect()
}

fn decoded(hash: &str) -> Option<RecordHash> {
    STANDARD.decode(hash).ok()?.try_into().ok()
}

/// Verifies the ledger of a data folder, and proves that records are in their chain, with a checkpoint of the present
/// chain. With an older checkpoint, also proves that the chain continues where that one ended. `keys` are those with
/// which the checkpoints in the data folder are checked. The verification resumes from the state in `verified`, as
/// [`verify_after`](crate::verify_after) does; otherwise this blocks for a time in proportion to the size of the
/// ledger. Brokers may continue to write.
///
/// # Errors
/// [`LedgerError::Damaged`] if the ledger was tampered with or contradicts the older checkpoint, so that nothing false
/// is signed; [`LedgerError::File`] if a record is not there, or the older checkpoint covers more than the chain has;
/// otherwise the [`LedgerError`] that occurred.
pub fn prove(
    data_dir: &Path,
    chain: &str,
    records: &[u64],
    since: Option<&SignedCheckpoint>,
    key: &CheckpointKey,
    keys: &[PublicKey],
    verified: &mut VerifiedSegments,
) -> Result<Vec<RecordProof>, LedgerError> {
    let storage = Segments::new(data_dir, StorageLimits::default());
    // The verified records are still there when they are proved.
    let _nothing_is_removed = storage.lock_for_reading()?;
    untampered(data_dir, since.map_or(&[], std::slice::from_ref), keys, verified)?;
    proofs(data_dir, &VerifiedChain::new(&storage, chain, verified.states(chain)), records, since, key)
}

/// Makes the proofs of records of a chain.
pub(crate) fn proofs(
    data_dir: &Path,
    chain: &VerifiedChain<'_>,
    records: &[u64],
    since: Option<&SignedCheckpoint>,
    key: &CheckpointKey,
) -> Result<Vec<RecordProof>, LedgerError> {
    let name = chain.name();
    let missing = |what: String| LedgerError::file("read", &crate::segment::path(data_dir, name, 1), what);
    let storage = Segments::new(data_dir, StorageLimits::default());
    let gone = storage.removed(name)?.map_or(0, |removed| removed.tip.seq);
    if let Some(seq) = records.iter().find(|seq| **seq <= gone) {
        return Err(missing(format!("record {seq} was removed because of its age")));
    }
    if !storage.chains()?.contains(name) {
        return Err(LedgerError::file(
            "prove records of",
            data_dir,
            "an earlier version wrote them, in a format without proofs",
        ));
    }
    let tree = chain.tree();
    let (size, root) = (tree.size(), tree.root());
    if let Some(seq) = records.iter().find(|seq| **seq > size) {
        return Err(missing(format!("record {seq} is not there")));
    }
    if let Some(old) = since.filter(|old| old.size() > size || old.size() == 0 || old.chain() != name) {
        let reason = format!("the checkpoint covers {} records of chain {}", old.size(), old.chain());
        return Err(missing(format!("{reason}, and this chain has {size}")));
    }
    let mut known = BTreeMap::new();
    let mut path_of = |ranges: &[Range<u64>]| -> Result<Option<Vec<RecordHash>>, LedgerError> {
        let mut path = Vec::with_capacity(ranges.len());
        for range in ranges {
            // The records of a call are close together, so their paths are nearly the same.
            let root = match known.get(&(range.start, range.end)) {
                Some(root) => *root,
                None => chain.root(range)?,
            };
            known.insert((range.start, range.end), root);
            path.push(root);
        }
        Ok(path.into_iter().collect())
    };
    let changed = || missing("it was changed while it was read: ask again".to_owned());
    let older = since.map(|old| old.checkpoint.clone());
    let mut continued = None;
    if let Some(old) = since {
        let path = path_of(&consistency_ranges(old.size(), size))?.ok_or_else(|| match old.size() < gone {
            true => missing("the older checkpoint is about records that were removed because of their age".to_owned()),
            false => changed(),
        })?;
        let path = path.iter().map(|hash| STANDARD.encode(hash)).collect();
        continued = Some(Since { checkpoint: old.note().to_owned(), path });
    }
    let checkpoint = SignedCheckpoint::sign(Checkpoint { chain: name.to_owned(), size, root }, key);
    let mut proofs = Vec::with_capacity(records.len());
    for seq in records {
        let (record, before) = chain.record(*seq)?.ok_or_else(changed)?;
        let (index, path) = (seq - 1, path_of(&inclusion_ranges(seq - 1, size))?.ok_or_else(changed)?);
        if !is_included(&hash(&before, record.as_bytes()), index, size, &path, &root) {
            return Err(changed());
        }
        let record = RecordInChain { record, before: STANDARD.encode(before), since: continued.clone() };
        proofs.push(RecordProof { record, index, path, checkpoint: checkpoint.clone(), older: older.clone() });
    }
    Ok(proofs)
}
