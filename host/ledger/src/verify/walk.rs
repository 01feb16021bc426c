//! The pass over all records: each was checked on its own, and is now checked in its chain.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::ChainReport;
use super::check::{CheckedContent, CheckedRecord};
use super::memory::VerifiedSegment;
use super::runs::RunsOfChain;
use crate::chain::ChainTip;
use crate::evidence::MerkleTree;
use crate::record::{RecordHash, RecordMembers};
use crate::removed::{ChainedText, RemovedRecords};
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
    /// The records of the present segment about other chains.
    pub(super) kept: Vec<ChainedText>,
    /// The runs of the present chain.
    pub(super) runs: RunsOfChain,
}

/// Where a checkpoint comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CheckpointOrigin {
    /// It is in the data folder.
    DataFolder,
    /// It was kept elsewhere.
    Elsewhere,
    /// An earlier verification found it, and the user's state folder has it. Nobody signed it.
    Remembered,
}

/// The tree over the records of a chain, and its known checkpoints.
#[derive(Default)]
pub(super) struct CoveredChain {
    pub(super) tree: MerkleTree,
    /// The roots at each number of records, each with its origin.
    roots: BTreeMap<u64, BTreeSet<(RecordHash, CheckpointOrigin)>>,
    /// The number of records that the largest checkpoint covers which was found to be true.
    pub(super) confirmed: u64,
    /// The number of records that the largest correct checkpoint kept elsewhere covers.
    pub(super) confirmed_elsewhere: u64,
}

impl CoveredChain {
    pub(super) fn expect(&mut self, size: u64, root: RecordHash, origin: CheckpointOrigin) {
        self.roots.entry(size).or_default().insert((root, origin));
    }

    /// Returns the fault in a chain that has fewer records than the checkpoints cover.
    pub(super) fn missing(&self, records: u64) -> Option<(u64, String)> {
        let (size, roots) = self.roots.last_key_value().filter(|(size, _)| **size > records)?;
        let who = match roots.iter().all(|(_, origin)| *origin == CheckpointOrigin::Remembered) {
            true => "an earlier verification found",
            false => "a checkpoint covers",
        };
        Some((records + 1, format!("{who} {size} records, and {records} are there")))
    }

    /// Reports whether a checkpoint covers a number of records between these two.
    pub(super) fn has_between(&self, fewer: u64, more: u64) -> bool {
        self.roots.range(fewer + 1..more.max(fewer + 1)).next().is_some()
    }

    /// Takes in the next record. Returns the fault if a checkpoint covers other records than those so far, with the
    /// number of the first that may be meant.
    fn push(&mut self, hash: &RecordHash) -> Option<(u64, String)> {
        self.tree.push(hash);
        self.compare()
    }

    /// Takes in the first records of the chain at once. Checkpoints over fewer records are not checked.
    fn begin_after(&mut self, first: &MerkleTree) -> Option<(u64, String)> {
        self.tree = first.clone();
        self.compare()
    }

    /// Compares the records so far with the checkpoints of this many.
    fn compare(&mut self) -> Option<(u64, String)> {
        let size = self.tree.size();
        let roots = self.roots.get(&size)?;
        let root = self.tree.root();
        let is_from = |wanted| roots.iter().any(|(_, origin)| *origin == wanted);
        if roots.iter().all(|(expected, _)| *expected == root) {
            if is_from(CheckpointOrigin::DataFolder) || is_from(CheckpointOrigin::Elsewhere) {
                self.confirmed = size;
            }
            if is_from(CheckpointOrigin::Elsewhere) {
                self.confirmed_elsewhere = size;
            }
            return None;
        }
        let first = self.confirmed + 1;
        let mut differing = roots.iter().filter(|(expected, _)| *expected != root);
        let who = match differing.all(|(_, origin)| *origin == CheckpointOrigin::Remembered) {
            true => "that an earlier verification found",
            false => "that a checkpoint covers",
        };
        Some((
            first,
            format!(
                "records {first} to {size} are not those {who}: one or more of them were replaced, and all hashes made anew"
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

/// The removal of the first records of a chain as another record states it.
pub(super) struct RecordedRemoval {
    pub(super) seq: u64,
    /// The digest of their remaining data.
    pub(super) digest: String,
    /// The chain whose removed records say so; `None` if a record that is there does.
    pub(super) by_removed: Option<String>,
}

/// Returns the report of a chain before any of its records was read.
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
        let before = self.chains.get(&name).map_or_else(RecordHash::default, |(_, before)| *before);
        let found = CheckedRecord::of(&name, seq, bytes(row.get_ref(2)?), bytes(row.get_ref(3)?), &before);
        self.step(&name, &found);
        Ok(())
    }

    /// Takes in the next record of a chain, which was checked on its own as if the one before it were good.
    pub(super) fn step(&mut self, name: &str, found: &CheckedRecord) {
        let witness = self.witnesses.get(name);
        if !self.chains.contains_key(name) {
            self.chains.insert(name.to_owned(), begun(name.to_owned()));
        }
        let Some((report, before)) = self.chains.get_mut(name).filter(|(report, _)| report.bad.is_none()) else {
            return;
        };
        let (seq, expected) = (found.seq, report.records + 1);
        let checked = match &found.content {
            _ if seq != expected => Err(format!("record {expected} is missing: record {seq} stands in its place")),
            _ if report.stopped => Err("it stands after broker.stopped, the end of its chain".to_owned()),
            content => content.clone(),
        };
        let checked = checked.and_then(|content| match found.run {
            Some((run, number)) => {
                self.runs.next(run, number, report.removed + report.verified_before).map(|()| content)
            }
            None => Ok(content),
        });
        match checked {
            Ok(_) if witness.is_some_and(|end| end.seq == seq && end.hash != found.hash) => {
                report.bad = Some((seq, "it is not the record that its broker wrote there".into()));
            }
            Ok(content) => {
                *before = found.hash;
                report.records = expected;
                let covered = self.checkpoints.entry(name.to_owned()).or_default();
                if let Some((first, reason)) = covered.push(&found.hash) {
                    report.records = first - 1;
                    report.bad = Some((first, reason));
                    return;
                }
                report.stopped = matches!(content, CheckedContent::Stopped);
                report.queued_intents |= matches!(content, CheckedContent::QueuedIntent);
                self.take_in(name, seq, content, false);
            }
            // A gap is named by the number of the missing record, anything else by that of the bad record: it is the
            // same number.
            Err(reason) => report.bad = Some((expected, reason)),
        }
    }

    /// Takes in records of a chain that an earlier verification found good and that are unchanged, by their hashes.
    pub(super) fn step_over(&mut self, name: &str, first: u64, hashes: &[RecordHash]) {
        for (seq, hash) in (first..).zip(hashes) {
            self.step(name, &CheckedRecord { seq, hash: *hash, run: None, content: Ok(CheckedContent::Other) });
        }
    }

    /// Takes in the records of a chain up to the end of a segment that an earlier verification found good.
    pub(super) fn go_on_after(&mut self, name: &str, segment: &VerifiedSegment) {
        let ChainTip { seq, hash } = segment.tip;
        if let Some((report, before)) = self.chains.get_mut(name).filter(|(report, _)| report.bad.is_none()) {
            (report.records, report.stopped, *before) = (seq, segment.is_stopped, hash);
            report.queued_intents |= segment.has_queued_intents;
            if self.witnesses.get(name).is_some_and(|end| end.seq == seq && end.hash != hash) {
                report.bad = Some((seq, "it is not the record that its broker wrote there".into()));
            }
            let covered = self.checkpoints.entry(name.to_owned()).or_default();
            report.bad = report.bad.take().or_else(|| covered.begin_after(&segment.tree));
        }
        self.take_in_kept(name, &segment.kept, false);
    }

    /// Takes in the remaining data of the first records of a chain, before its other records.
    pub(super) fn begin_after(&mut self, removed: &RemovedRecords) {
        let name = &removed.chain;
        let ChainTip { seq, hash } = removed.tip;
        let (mut report, _) = begun(name.clone());
        (report.records, report.removed, report.stopped) = (seq, seq, removed.is_stopped);
        if self.witnesses.get(name).is_some_and(|end| end.seq == seq && end.hash != hash) {
            report.bad = Some((seq, "it is not the record that its broker wrote there".into()));
        }
        let covered = self.checkpoints.entry(name.clone()).or_default();
        report.bad = report.bad.or_else(|| covered.begin_after(&removed.tree));
        self.chains.insert(name.clone(), (report, hash));
        self.take_in_kept(name, &removed.kept, true);
    }

    fn take_in_kept(&mut self, name: &str, kept: &[ChainedText], is_removed: bool) {
        for kept in kept {
            if let Ok(record) = serde_json::from_str::<RecordMembers<'_>>(&kept.text) {
                self.take_in(name, kept.seq, CheckedContent::of(&record, &kept.text), is_removed);
            }
        }
    }

    /// Takes in a record's statements about other chains.
    fn take_in(&mut self, name: &str, seq: u64, content: CheckedContent, is_removed: bool) {
        let text = match content {
            CheckedContent::Seal { chain, at, text } => {
                self.seals.entry(chain).or_default().push(RecordedSeal { at, by: name.to_owned(), seq });
                text
            }
            CheckedContent::Removal { chain, last, digest, text } => {
                let by_removed = is_removed.then(|| name.to_owned());
                self.removals.entry(chain).or_default().push(RecordedRemoval { seq: last, digest, by_removed });
                text
            }
            CheckedContent::Stopped | CheckedContent::QueuedIntent | CheckedContent::Other => return,
        };
        if !is_removed {
            self.kept.push(ChainedText { seq, text });
        }
    }

    /// Judges how the stored records of a chain end.
    pub(super) fn end(&mut self, name: &str, end: ChainEnd) {
        let (report, _) = self.chains.entry(name.to_owned()).or_insert_with(|| begun(name.to_owned()));
        let reason = match end {
            ChainEnd::Damaged(cause) => cause,
            ChainEnd::Torn if report.stopped => "something stands after broker.stopped, the end of its chain".into(),
            // A crash cuts only unconfirmed records; the lock file and the seal tell whether more is missing.
            ChainEnd::Torn | ChainEnd::Clean => return,
        };
        report.bad.get_or_insert((report.records + 1, reason));
    }
}

/// Returns the bytes of a text or blob; any other value has none and so matches no hash.
fn bytes(value: ValueRef<'_>) -> &[u8] {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
        _ => &[],
    }
}
