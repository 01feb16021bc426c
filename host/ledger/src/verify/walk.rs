//! The pass over all records: each is checked by itself, and in its chain.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::protocol::{Json, canonical};
use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::ChainReport;
use crate::chain::{self, ChainTip};
use crate::evidence::{Checkpoint, MerkleTree};
use crate::intent;
use crate::record::{EventKind, RecordHash, RecordMembers, VERSION, hash};
use crate::removed::RemovedRecords;
use crate::storage::ChainEnd;

/// The state of the pass over all records.
#[derive(Default)]
pub(super) struct VerificationPass {
    /// Each chain's report, with the hash of its last good record.
    pub(super) chains: BTreeMap<String, (ChainReport, RecordHash)>,
    /// The seals, by the chain that is sealed. A chain has one, and a second one may contradict it.
    pub(super) seals: BTreeMap<String, Vec<RecordedSeal>>,
    /// The last record of each chain, according to its lock file.
    pub(super) witnesses: BTreeMap<String, ChainTip>,
    /// The checkpoints of each chain that has any.
    pub(super) checkpoints: BTreeMap<String, CoveredChain>,
    /// The removals of records because of their age, by the chain that they are about.
    pub(super) removals: BTreeMap<String, Vec<RecordedRemoval>>,
}

/// A chain of which checkpoints are known.
#[derive(Default)]
pub(super) struct CoveredChain {
    tree: MerkleTree,
    /// The roots at each number of records, each with whether it was kept elsewhere.
    roots: BTreeMap<u64, BTreeSet<(RecordHash, bool)>>,
    /// The number of records that the largest checkpoint covers which was found to be true.
    pub(super) confirmed: u64,
    /// The number of records that the largest correct checkpoint kept elsewhere covers.
    pub(super) confirmed_elsewhere: u64,
}

impl CoveredChain {
    pub(super) fn expect(&mut self, checkpoint: &Checkpoint, is_elsewhere: bool) {
        self.roots.entry(checkpoint.size).or_default().insert((checkpoint.root, is_elsewhere));
    }

    /// Returns the number of records that the checkpoints cover.
    pub(super) fn size(&self) -> u64 {
        self.roots.keys().next_back().copied().unwrap_or(0)
    }

    /// Takes in the next record. Returns what is wrong if a checkpoint covers other records than those so far, with the
    /// number of the first that may be meant.
    fn push(&mut self, hash: &RecordHash) -> Option<(u64, String)> {
        self.tree.push(hash);
        self.compare()
    }

    /// Takes in the first records of the chain, which were removed. What a checkpoint says of fewer cannot be checked any
    /// more.
    fn begin_after(&mut self, removed: &MerkleTree) -> Option<(u64, String)> {
        self.tree = removed.clone();
        self.compare()
    }

    /// Compares the records so far with the checkpoints of this many.
    fn compare(&mut self) -> Option<(u64, String)> {
        let size = self.tree.size();
        let roots = self.roots.get(&size)?;
        let root = self.tree.root();
        if roots.iter().all(|(expected, _)| *expected == root) {
            self.confirmed = size;
            if roots.iter().any(|(_, is_elsewhere)| *is_elsewhere) {
                self.confirmed_elsewhere = size;
            }
            return None;
        }
        let first = self.confirmed + 1;
        Some((
            first,
            format!(
                "records {first} to {size} are not those that a checkpoint covers: one or more of them were \
                              replaced, and all hashes made anew"
            ),
        ))
    }
}

/// The end of a chain as another chain records it.
pub(super) struct RecordedSeal {
    pub(super) at: ChainTip,
    pub(super) by: String,
    /// The number of the record that says so.
    pub(super) seq: u64,
}

/// The removal of the first records of a chain as another record says it.
pub(super) struct RecordedRemoval {
    pub(super) seq: u64,
    /// The digest of what is left of them.
    pub(super) digest: String,
    /// The chain whose removed records say so; `None` if a record that is there does.
    pub(super) by_removed: Option<String>,
}

/// Returns the report of a chain of which no record was read yet.
pub(super) fn begun(chain: String) -> (ChainReport, RecordHash) {
    (ChainReport { chain, ..ChainReport::default() }, RecordHash::default())
}

impl VerificationPass {
    pub(super) fn legacy_step(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        let name = String::from_utf8_lossy(bytes(row.get_ref(0)?)).into_owned();
        let seq = match row.get_ref(1)? {
            ValueRef::Integer(seq) => seq.cast_unsigned(),
            _ => 0,
        };
        self.step(&name, seq, bytes(row.get_ref(2)?), bytes(row.get_ref(3)?));
        Ok(())
    }

    pub(super) fn step(&mut self, name: &str, seq: u64, text: &[u8], found: &[u8]) {
        let witness = self.witnesses.get(name);
        if !self.chains.contains_key(name) {
            self.chains.insert(name.to_owned(), begun(name.to_owned()));
        }
        let Some((report, before)) = self.chains.get_mut(name).filter(|(report, _)| report.bad.is_none()) else {
            return;
        };
        let expected = report.records + 1;
        match check(report, seq, text, found, before) {
            Ok((hash, _)) if witness.is_some_and(|end| end.seq == seq && end.hash != hash) => {
                report.bad = Some((seq, "it is not the record that its broker wrote there".into()));
            }
            Ok((hash, record)) => {
                *before = hash;
                report.records = expected;
                let covered = self.checkpoints.get_mut(name);
                if let Some((first, reason)) = covered.and_then(|covered| covered.push(&hash)) {
                    report.records = first - 1;
                    report.bad = Some((first, reason));
                    return;
                }
                report.stopped = record.kind == EventKind::BrokerStopped.as_str();
                report.queued_intents = report.queued_intents || intent::is_queued(&record);
                self.take_in(name, seq, &record, false);
            }
            // A gap is named by the number of the missing record, anything else by that of the bad record: it is the
            // same number.
            Err(reason) => report.bad = Some((expected, reason)),
        }
    }

    /// Takes in what is left of the first records of a chain, before its other records.
    pub(super) fn begin_after(&mut self, removed: &RemovedRecords) {
        let name = &removed.chain;
        let ChainTip { seq, hash } = removed.tip;
        let (mut report, _) = begun(name.clone());
        (report.records, report.removed, report.stopped) = (seq, seq, removed.is_stopped);
        if self.witnesses.get(name).is_some_and(|end| end.seq == seq && end.hash != hash) {
            report.bad = Some((seq, "it is not the record that its broker wrote there".into()));
        }
        let covered = self.checkpoints.get_mut(name);
        report.bad = report.bad.or_else(|| covered.and_then(|covered| covered.begin_after(&removed.tree)));
        self.chains.insert(name.clone(), (report, hash));
        for kept in &removed.kept {
            if let Ok(record) = serde_json::from_str::<RecordMembers<'_>>(&kept.text) {
                self.take_in(name, kept.seq, &record, true);
            }
        }
    }

    /// Takes in what a record says about other chains.
    fn take_in(&mut self, name: &str, seq: u64, record: &RecordMembers<'_>, is_removed: bool) {
        if record.kind == EventKind::ChainSealed.as_str()
            && let Some((chain, at)) = sealed(record)
        {
            self.seals.entry(chain).or_default().push(RecordedSeal { at, by: name.to_owned(), seq });
        }
        if record.kind == EventKind::RecordsRemoved.as_str()
            && let Some((chain, seq, digest)) = removed(record)
        {
            let by_removed = is_removed.then(|| name.to_owned());
            self.removals.entry(chain).or_default().push(RecordedRemoval { seq, digest, by_removed });
        }
    }

    /// Judges how the stored records of a chain end.
    pub(super) fn end(&mut self, name: &str, end: ChainEnd) {
        let (report, _) = self.chains.entry(name.to_owned()).or_insert_with(|| begun(name.to_owned()));
        let reason = match end {
            ChainEnd::Damaged(cause) => cause,
            ChainEnd::Torn if report.stopped => "something stands after broker.stopped, the end of its chain".into(),
            // A crash cuts what was never confirmed; the lock file and the seal say whether more is missing.
            ChainEnd::Torn | ChainEnd::Clean => return,
        };
        report.bad.get_or_insert((report.records + 1, reason));
    }
}

/// Returns the chain that a `chain.sealed` record seals, and the end that it records.
fn sealed(record: &RecordMembers<'_>) -> Option<(String, ChainTip)> {
    let body: serde_json::Value = serde_json::from_str(record.body.get()).ok()?;
    let text = |key: &str| body.get(key)?.as_str();
    let hash = chain::hash_of(text("hash")?)?;
    Some((text("chain")?.to_owned(), ChainTip { seq: body.get("seq")?.as_u64()?, hash }))
}

/// Returns the chain whose first records a `records.removed` record says were removed, the number of the last of them,
/// and the digest of what is left.
fn removed(record: &RecordMembers<'_>) -> Option<(String, u64, String)> {
    let body: serde_json::Value = serde_json::from_str(record.body.get()).ok()?;
    let text = |key: &str| body.get(key)?.as_str().map(str::to_owned);
    Some((text("chain")?, body.get("seq")?.as_u64()?, text("digest")?))
}

fn check<'a>(
    report: &ChainReport,
    seq: u64,
    text: &'a [u8],
    found: &[u8],
    before: &RecordHash,
) -> Result<(RecordHash, RecordMembers<'a>), String> {
    let expected = report.records + 1;
    if seq != expected {
        return Err(format!("record {expected} is missing: record {seq} stands in its place"));
    }
    if report.stopped {
        return Err("it stands after broker.stopped, the end of its chain".into());
    }
    let hash = hash(before, text);
    if hash.as_slice() != found {
        return Err("its hash does not fit its text and the record before it".into());
    }
    let text = std::str::from_utf8(text).map_err(|_| "its text is not UTF-8")?;
    let json = Json::parse(text.to_owned()).map_err(|error| format!("its text is not a record: {error}"))?;
    if canonical(&json).as_deref() != Ok(text) {
        return Err("its text is not in canonical form".into());
    }
    let record: RecordMembers<'_> =
        serde_json::from_str(text).map_err(|error| format!("its text is not a record: {error}"))?;
    if record.v != VERSION {
        return Err(format!("it has format {} and this version knows {VERSION}", record.v));
    }
    if (record.chain, record.seq) != (report.chain.as_str(), seq) {
        return Err(format!("its text says that it is record {} of chain {}", record.seq, record.chain));
    }
    if seq == 1 && record.kind != EventKind::BrokerStarted.as_str() {
        return Err("a chain begins with broker.started".into());
    }
    Ok((hash, record))
}

/// Returns the bytes of a text or blob; any other value has none and so matches no hash.
fn bytes(value: ValueRef<'_>) -> &[u8] {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
        _ => &[],
    }
}
