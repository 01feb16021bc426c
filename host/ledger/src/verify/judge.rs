//! The verdict: the chains' statements about each other are compared, and every finding gets its place.

use std::collections::BTreeMap;

use portcullis_core::digest::hex;

use super::walk::{CoveredChain, RecordedRemoval, RecordedSeal};
use super::{ChainReport, ChainStatus};
use crate::chain::ChainTip;
use crate::record::RecordHash;

/// The evidence about one chain from outside of its records, which must agree with it.
pub(super) struct OutsideWitnesses<'a> {
    /// The hash of the last good record.
    pub(super) end: RecordHash,
    /// The seals that other chains have of it.
    pub(super) seals: &'a [RecordedSeal],
    /// The last record, according to the lock file.
    pub(super) tip: Option<&'a ChainTip>,
    /// The checkpoints.
    pub(super) checkpoints: Option<&'a CoveredChain>,
    /// True if the lock file says that another chain sealed it.
    pub(super) is_called_sealed: bool,
    /// True if the lock file says that it has its end.
    pub(super) is_called_ended: bool,
}

impl ChainReport {
    /// Makes the removal of the first records bad, as no record says that they were removed.
    pub(super) fn miss_removed(&mut self) {
        let reason = format!("records 1 to {} are missing, and no record says that they were removed", self.removed);
        self.bad = Some((1, reason));
        (self.records, self.removed) = (0, 0);
    }

    /// Compares the chain with its witnesses. The first contradiction makes it bad, unless it is bad already.
    pub(super) fn compare_with(&mut self, witnesses: &OutsideWitnesses<'_>) {
        let OutsideWitnesses { end, seals, tip, checkpoints, .. } = witnesses;
        self.sealed = seals.first().map(|seal| seal.at.seq);
        if let Some(covered) = checkpoints {
            (self.confirmed, self.confirmed_elsewhere) = (covered.confirmed, covered.confirmed_elsewhere);
            self.bad = self.bad.take().or_else(|| covered.missing(self.records));
        }
        if self.bad.is_none() {
            self.bad = seals.iter().find_map(|seal| compare(seal, self.records, end));
        }
        // Records that a live broker wrote after its lock file was read are not a problem.
        if let Some(tip) = tip.filter(|tip| self.bad.is_none() && tip.seq > self.records) {
            let reason = format!("its broker had written {} records, and {} are there", tip.seq, self.records);
            self.bad = Some((self.records + 1, reason));
        }
        // The end of a chain is durable before its lock file says so, and so is its seal.
        let missing = match self.sealed {
            None if witnesses.is_called_sealed => Some("its lock file says that another chain sealed it, and none did"),
            None if witnesses.is_called_ended && !self.stopped => {
                Some("its lock file says that it has its end, which is not there")
            }
            _ => None,
        };
        if let (None, Some(missing)) = (&self.bad, missing) {
            self.bad = Some((self.records + 1, missing.into()));
        }
    }
}

/// Returns the chains with missing records and no record of their removal. A removed record counts if its own removal
/// is recorded.
pub(super) fn unrecorded_removals(
    mut removed: BTreeMap<String, (u64, String)>,
    removals: &BTreeMap<String, Vec<RecordedRemoval>>,
) -> Vec<String> {
    loop {
        let is_recorded = |(chain, (seq, digest)): (&String, &(u64, String))| {
            let mut of_chain = removals.get(chain).into_iter().flatten();
            let found = of_chain.any(|removal| {
                let counts = removal.by_removed.as_ref().is_none_or(|by| !removed.contains_key(by));
                counts && (removal.seq, &removal.digest) == (*seq, digest)
            });
            found.then(|| chain.clone())
        };
        let recorded: Vec<_> = removed.iter().filter_map(is_recorded).collect();
        if recorded.is_empty() {
            return removed.into_keys().collect();
        }
        recorded.iter().for_each(|chain| drop(removed.remove(chain)));
    }
}

/// Confirms the chains whose seals are in records that are themselves confirmed.
pub(super) fn confirm_sealed(
    chains: &mut BTreeMap<String, (ChainReport, RecordHash)>,
    seals: &BTreeMap<String, Vec<RecordedSeal>>,
) {
    let mut goes_on = true;
    while goes_on {
        goes_on = false;
        // The sealing chains are the later ones.
        let seals = seals.iter().rev().flat_map(|(chain, seals)| seals.iter().map(move |seal| (chain, seal)));
        for (chain, RecordedSeal { at, by, seq }) in seals {
            let Some((by, _)) = chains.get(by) else { continue };
            let (here, elsewhere) = (by.confirmed >= *seq, by.confirmed_elsewhere >= *seq);
            let Some((report, _)) = chains.get_mut(chain).filter(|(report, _)| report.bad.is_none()) else { continue };
            let before = (report.confirmed, report.confirmed_elsewhere);
            report.confirmed = if here { report.confirmed.max(at.seq) } else { report.confirmed };
            report.confirmed_elsewhere =
                if elsewhere { report.confirmed_elsewhere.max(at.seq) } else { report.confirmed_elsewhere };
            goes_on |= before != (report.confirmed, report.confirmed_elsewhere);
        }
    }
}

pub(super) fn judge(chains: &[ChainReport], trouble: Option<String>) -> Vec<ChainStatus> {
    let tampered = chains.iter().filter_map(|report| {
        let (seq, reason) = report.bad.clone()?;
        Some(ChainStatus::Tampered { chain: Some(report.chain.clone()), seq: Some(seq), reason })
    });
    let trouble = trouble.map(|reason| ChainStatus::Tampered { chain: None, seq: None, reason });
    let ends = |report: &&ChainReport| report.live || report.stopped || report.sealed.is_some() || report.bad.is_some();
    let incomplete = chains.iter().filter(|report| !ends(report)).map(|ChainReport { chain, records, .. }| {
        let reason = match records {
            0 => "its lock file is there, but no record".to_owned(),
            _ => format!("it ends at record {records} without broker.stopped: its broker died, or the end was cut"),
        };
        ChainStatus::Incomplete {
            chain: chain.clone(),
            reason: format!("{reason}; the next broker that starts seals it"),
        }
    });
    tampered.chain(trouble).chain(incomplete).collect()
}

/// Returns the fault in a chain that another broker sealed: the number of the first bad record, and the reason.
fn compare(seal: &RecordedSeal, records: u64, end: &RecordHash) -> Option<(u64, String)> {
    let RecordedSeal { at, by, .. } = seal;
    if records < at.seq {
        let reason = format!("chain {by} sealed it at record {}, and it ends at record {records}", at.seq);
        return Some((records + 1, reason));
    }
    if records > at.seq {
        return Some((at.seq + 1, format!("it stands after the end at which chain {by} sealed its chain")));
    }
    (*end != at.hash)
        .then(|| (at.seq, format!("it is not the record that chain {by} sealed, which has hash {}", hex(&at.hash))))
}
