//! Verification of the ledger: everything is recomputed from the bytes in the file, without the broker's help, and
//! compared with witnesses outside the chain: the length that its lock file states, the place where another broker
//! sealed it, and signed checkpoints.

mod check;
mod judge;
mod memory;
mod pipeline;
mod plain_json;
mod resume;
mod runs;
mod state_file;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::chain;
use super::evidence::{self, PublicKey, SignedCheckpoint};
use super::index;
use super::segment::Segments;
use super::storage::{ChainEnd, Storage, StorageLimits};
use super::{LedgerError, is_live};
use judge::{OutsideWitnesses, confirm_sealed, judge, unrecorded_removals};
pub use memory::VerifiedSegments;
use resume::check_chains;
use state_file::check_state;
use walk::{CheckpointOrigin, CoveredChain, VerificationPass, begun};

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Verification {
    /// All chains, oldest first.
    #[doc(hidden)]
    pub chains: Vec<ChainReport>,
    /// Everything that is not good, tampering first. Never contains [`ChainStatus::Good`].
    pub findings: Vec<ChainStatus>,
    /// The first finding, or [`ChainStatus::Good`] if there is none.
    pub verdict: ChainStatus,
}

/// The result for one chain.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct ChainReport {
    /// The chain's identifier.
    pub chain: String,
    /// The number of good records, counted from the first. Those that were removed count if a record says that they
    /// were.
    pub records: u64,
    /// The number of records that were removed because of their age.
    pub removed: u64,
    /// True if the chain's broker lives.
    pub live: bool,
    /// True if the chain ends with `broker.stopped`.
    pub stopped: bool,
    /// True if calls that can have no effect did not wait for their intents: if the chain's broker crashed, such calls
    /// of its last moments may be missing.
    pub queued_intents: bool,
    /// The number of its last record, if another chain has sealed it.
    pub sealed: Option<u64>,
    /// The number of records that signed checkpoints confirm, from the first: those of this chain, or of one that
    /// sealed it.
    pub confirmed: u64,
    /// The number of records, from the first, that the given checkpoints from elsewhere confirm.
    pub confirmed_elsewhere: u64,
    /// The number of records that an earlier verification found good and whose segments are unchanged, so that they
    /// were not read again. They count among the good ones.
    pub verified_before: u64,
    /// The number of the first bad record, and its fault.
    pub bad: Option<(u64, String)>,
}

impl ChainReport {
    /// Reports whether the chain's broker crashed, and calls that can have no effect may be missing from its last
    /// moments: they did not wait for their intents.
    #[must_use]
    pub fn may_miss_calls(&self) -> bool {
        self.queued_intents && !self.stopped && !self.live
    }
}

/// The verdict on a ledger or a chain.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase", tag = "verdict")]
pub enum ChainStatus {
    /// Every record is unchanged, and every chain is live, has its end or is sealed. Without checkpoints that are kept
    /// elsewhere, this cannot be distinguished from a ledger that was recomputed from the start, or one from which a
    /// chain was removed together with its lock file.
    Good,
    /// Somebody changed something, or a disk failed.
    Tampered {
        /// The chain, if it is known.
        chain: Option<String>,
        /// The number of the record, if it is known.
        seq: Option<u64>,
        /// The reason for the verdict.
        reason: String,
    },
    /// The records are good, but the broker died and no other has sealed its chain yet.
    Incomplete {
        /// The chain.
        chain: String,
        /// The part that is missing.
        reason: String,
    },
}

/// Verifies the whole ledger of a data folder. Blocks for a time in proportion to its size; brokers may continue to
/// write.
///
/// # Errors
/// [`LedgerError`] if there is nothing to verify or it cannot be read. A damaged file is not an error but
/// [`ChainStatus::Tampered`].
pub fn verify(data_dir: &Path) -> Result<Verification, LedgerError> {
    verify_against(data_dir, &[], &[])
}

/// Verifies the ledger as [`verify`] does, and compares it with checkpoints that were kept elsewhere, and with those in
/// the data folder that one of these keys signed.
///
/// # Errors
/// As for [`verify`].
pub fn verify_against(
    data_dir: &Path,
    checkpoints: &[SignedCheckpoint],
    keys: &[PublicKey],
) -> Result<Verification, LedgerError> {
    verify_after(data_dir, checkpoints, keys, &mut VerifiedSegments::default())
}

/// Verifies the ledger as [`verify_against`] does, and resumes after the parts that earlier verifications found good: a
/// segment with unchanged bytes is not verified again. The ledger must still have every record that was found before.
/// Parts that are found good are remembered.
///
/// # Errors
/// As for [`verify`].
pub fn verify_after(
    data_dir: &Path,
    checkpoints: &[SignedCheckpoint],
    keys: &[PublicKey],
    verified: &mut VerifiedSegments,
) -> Result<Verification, LedgerError> {
    verify_in(data_dir, Arc::new(Segments::new(data_dir, StorageLimits::default())), checkpoints, keys, verified)
}

pub(super) fn verify_in(
    data_dir: &Path,
    storage: Arc<dyn Storage>,
    checkpoints: &[SignedCheckpoint],
    keys: &[PublicKey],
    verified: &mut VerifiedSegments,
) -> Result<Verification, LedgerError> {
    let _nothing_is_removed = storage.lock_for_reading()?;
    // This is done before the records are read: a broker that stops meanwhile would show neither a lock nor an end, and
    // the lock file and the checkpoint of one that writes would be ahead of what was read.
    let (kept, false_checkpoint) = evidence::kept(data_dir, keys);
    let locks = chain::all(data_dir)?;
    let live: BTreeSet<String> = locks.iter().filter(|chain| is_live(data_dir, chain)).cloned().collect();
    let (ended, sealed) = (chain::ended(data_dir)?, chain::sealed(data_dir)?);
    let witnesses = locks.iter().filter_map(|chain| Some((chain.clone(), chain::witness(data_dir, chain)?))).collect();
    let checkpoints = expected(checkpoints, &kept, verified);
    let mut walk = VerificationPass { witnesses, checkpoints, ..VerificationPass::default() };
    let removed = begin_after_removed(&*storage, &mut walk)?;
    let mut trouble = check_state(data_dir, &mut walk, &locks, &*storage)?.or(false_checkpoint);
    let (differences, found_good) = check_chains(data_dir, &storage, &mut walk, verified, &ended)?;
    for chain in locks.iter().chain(walk.seals.keys()).chain(walk.checkpoints.keys()) {
        walk.chains.entry(chain.clone()).or_insert_with(|| begun(chain.clone()));
    }
    let unrecorded = unrecorded_removals(removed, &walk.removals);
    let VerificationPass { mut chains, seals, witnesses, checkpoints, .. } = walk;
    for chain in unrecorded {
        if let Some((report, _)) = chains.get_mut(&chain).filter(|(report, _)| report.bad.is_none()) {
            report.miss_removed();
        }
    }
    for (chain, (report, end)) in &mut chains {
        report.live = live.contains(chain) || is_live(data_dir, chain);
        report.compare_with(&OutsideWitnesses {
            end: *end,
            seals: seals.get(chain).map(Vec::as_slice).unwrap_or_default(),
            tip: witnesses.get(chain),
            checkpoints: checkpoints.get(chain),
            is_called_sealed: sealed.contains(chain),
            is_called_ended: ended.contains(chain),
        });
    }
    confirm_sealed(&mut chains, &seals);
    // The index may know the missing records of a bad chain.
    let is_good = |chain: &String| chains.get(chain).is_none_or(|(report, _)| report.bad.is_none());
    if let Some((chain, difference)) = differences.into_iter().find(|(chain, _)| is_good(chain)) {
        index::remove(data_dir);
        trouble.get_or_insert(format!("the index has {difference} in chain {chain}; it is made anew"));
    }
    // Earlier findings remain evidence against a chain that is bad now.
    for (chain, segments) in found_good {
        if chains.get(&chain).is_some_and(|(report, _)| report.bad.is_none()) {
            verified.replace(chain, segments);
        }
    }
    let chains: Vec<ChainReport> = chains.into_values().map(|(report, _)| report).collect();
    let findings = judge(&chains, trouble);
    let verdict = findings.first().cloned().unwrap_or(ChainStatus::Good);
    Ok(Verification { chains, findings, verdict })
}

/// Returns what each chain must agree with, by chain: the given checkpoints, those of the data folder, and what earlier
/// verifications found.
fn expected(
    given: &[SignedCheckpoint],
    kept: &[SignedCheckpoint],
    verified: &VerifiedSegments,
) -> BTreeMap<String, CoveredChain> {
    let mut chains = BTreeMap::<String, CoveredChain>::new();
    let given = given.iter().map(|signed| (signed, CheckpointOrigin::Elsewhere));
    let kept = kept.iter().map(|signed| (signed, CheckpointOrigin::DataFolder));
    for (SignedCheckpoint { checkpoint, .. }, origin) in given.chain(kept) {
        let covered = chains.entry(checkpoint.chain.clone()).or_default();
        covered.expect(checkpoint.size, checkpoint.root, origin);
    }
    for (chain, last) in verified.last() {
        let covered = chains.entry(chain.clone()).or_default();
        covered.expect(last.tip.seq, last.tree.root(), CheckpointOrigin::Remembered);
    }
    chains
}

/// Takes in the remaining data of removed records. Returns it for each chain: the number of the last, and the digest.
fn begin_after_removed(
    storage: &dyn Storage,
    walk: &mut VerificationPass,
) -> Result<BTreeMap<String, (u64, String)>, LedgerError> {
    let mut all = BTreeMap::new();
    for chain in storage.removed_chains()? {
        match storage.removed(&chain) {
            Ok(Some(removed)) => {
                walk.begin_after(&removed);
                all.insert(chain, (removed.tip.seq, removed.digest().to_string()));
            }
            Ok(None) => {}
            Err(error) => walk.end(&chain, ChainEnd::Damaged(error.to_string())),
        }
    }
    Ok(all)
}
