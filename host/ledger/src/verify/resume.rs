//! The chains are read from where an earlier verification stopped, if the records that it read are unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use portcullis_core::sync::Mutex;

use super::memory::{VerifiedSegment, VerifiedSegments};
use super::pipeline::{ChainPlan, Found, read_chains};
use super::walk::{VerificationPass, begun};
use crate::LedgerError;
use crate::chain::ChainTip;
use crate::index::IndexCheck;
use crate::record::RecordHash;
use crate::removed::{ChainedText, RemovedRecords};
use crate::storage::{ChainPosition, SegmentDigest, Storage};

/// The findings about each chain: the first difference of the index, and the good segments.
pub(super) type Checked = (Vec<(String, String)>, BTreeMap<String, Vec<VerifiedSegment>>);

/// Checks the records of all chains, and the index of them. `ended` are the chains that have their end.
pub(super) fn check_chains(
    data_dir: &Path,
    storage: &Arc<dyn Storage>,
    walk: &mut VerificationPass,
    verified: &VerifiedSegments,
    ended: &BTreeSet<String>,
) -> Result<Checked, LedgerError> {
    let (mut index, places) = IndexCheck::open(data_dir, storage)?;
    let mut good: BTreeMap<String, Vec<VerifiedSegment>> = BTreeMap::new();
    let (mut plans, mut begun_at) = (Vec::new(), BTreeMap::new());
    for ResumedChain { chain, removed, segments, digest } in resumed(&**storage, verified)? {
        // The remains of a removal are judged when the chain is begun.
        let first = removed
            .as_ref()
            .map_or(ChainPosition::default(), |removed| ChainPosition { segment: removed.segment, offset: 0 });
        let mut so_far: Vec<_> = removed.as_ref().map(VerifiedSegment::of_removed).into_iter().collect();
        walk.chains.entry(chain.clone()).or_insert_with(|| begun(chain.clone()));
        for segment in &segments {
            go_on(&**storage, walk, &chain, segment)?;
        }
        so_far.extend(segments);
        let (report, before) = walk.chains.entry(chain.clone()).or_insert_with(|| begun(chain.clone()));
        // Tampering that was found on the way may be among the removed records, and then fewer records are good.
        if report.bad.is_none() {
            report.verified_before = report.records.saturating_sub(report.removed);
        }
        let last = ChainTip { seq: report.records, hash: *before };
        let from = so_far.last().map_or(first, |segment| segment.place);
        begun_at.insert(chain.clone(), (last, report.removed));
        good.insert(chain.clone(), so_far);
        let confirmed = match walk.witnesses.get(&chain) {
            Some(end) if !ended.contains(&chain) => end.seq,
            _ => u64::MAX,
        };
        plans.push(ChainPlan { chain: chain.into(), from, before: last.hash, digest, confirmed });
    }
    // The remembered part has its own.
    walk.kept.clear();
    read_chains(&**storage, data_dir, &places, plans, |chain, found| {
        match found {
            Found::Records(records, comparison) => {
                records.iter().for_each(|record| walk.step(chain, record));
                index.take(chain, comparison);
            }
            Found::Segment(digest) => {
                let segments = good.entry(chain.to_owned()).or_default();
                // The segment that was begun before was read to another place.
                let kept = match segments.pop_if(|last| last.place.segment == digest.place.segment) {
                    Some(same) => same.kept,
                    None => Vec::new(),
                };
                segments.push(verified_segment(walk, chain, &digest, kept));
            }
            Found::End(end) => {
                walk.end(chain, end);
                walk.kept.clear();
                walk.runs.clear();
                let (before, removed) = begun_at.get(chain).copied().unwrap_or_default();
                index.end_chain(chain, &places, removed, &before)?;
            }
        }
        Ok(())
    })?;
    Ok((index.differences(), good))
}

/// Returns the state of a chain at the end of the part that was read of a segment; `kept` was read earlier.
fn verified_segment(
    walk: &mut VerificationPass,
    chain: &str,
    digest: &SegmentDigest,
    mut kept: Vec<ChainedText>,
) -> VerifiedSegment {
    kept.append(&mut walk.kept);
    let (seq, hash, is_stopped, has_queued_intents) = match walk.chains.get(chain) {
        Some((report, hash)) => (report.records, *hash, report.stopped, report.queued_intents),
        None => (0, RecordHash::default(), false, false),
    };
    let tree = walk.checkpoints.get(chain).map(|covered| covered.tree.clone()).unwrap_or_default();
    let (place, digest, tip) = (digest.place, digest.value(), ChainTip { seq, hash });
    VerifiedSegment { place, digest, tip, tree, is_stopped, has_queued_intents, kept }
}

/// A chain, and the part that need not be read again.
struct ResumedChain {
    chain: String,
    removed: Option<RemovedRecords>,
    /// The segments that are unchanged since they were verified.
    segments: Vec<VerifiedSegment>,
    /// The digest of the last of them, which continues with the rest of its file.
    digest: Option<SegmentDigest>,
}

/// Returns all chains, oldest first, each with its segments that are unchanged since they were verified.
fn resumed(storage: &dyn Storage, verified: &VerifiedSegments) -> Result<Vec<ResumedChain>, LedgerError> {
    let mut chains = Vec::new();
    for chain in storage.chains()? {
        // One that cannot be read was judged already.
        let removed = storage.removed(&chain).ok().flatten();
        let segments = verified.after(&chain, removed.as_ref()).to_vec();
        chains.push(ResumedChain { chain, removed, segments, digest: None });
    }
    let remembered: Vec<_> = chains
        .iter()
        .enumerate()
        .flat_map(|(i, of)| {
            (0..of.segments.len()).filter_map(move |at| Some((i, at, of.chain.as_str(), of.segments.get(at)?)))
        })
        .collect();
    let digests = Mutex::new(BTreeMap::new());
    let next = AtomicUsize::new(0);
    let workers = thread::available_parallelism().map_or(1, NonZero::get).min(remembered.len());
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((i, at, chain, segment)) = remembered.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // An unreadable segment is read again as a part of its chain.
                    let found = storage.digest(chain, segment.place).ok().flatten();
                    if let Some(found) = found.filter(|(digest, _)| digest.value() == segment.digest) {
                        digests.lock().insert((*i, *at), found);
                    }
                }
            });
        }
    });
    let mut digests = std::mem::take(&mut *digests.lock());
    for (i, of) in chains.iter_mut().enumerate() {
        let last = of.segments.len().saturating_sub(1);
        // Nothing may follow the last frame of a segment but of the last.
        let unchanged = (0..of.segments.len())
            .take_while(|at| digests.get(&(i, *at)).is_some_and(|(_, goes_on)| *at == last || !goes_on))
            .count();
        of.segments.truncate(unchanged);
        of.digest = unchanged.checked_sub(1).and_then(|at| digests.remove(&(i, at))).map(|(digest, _)| digest);
    }
    Ok(chains)
}

/// Takes in a segment that is unchanged since it was verified.
fn go_on(
    storage: &dyn Storage,
    walk: &mut VerificationPass,
    chain: &str,
    segment: &VerifiedSegment,
) -> Result<(), LedgerError> {
    let before = walk.chains.get(chain).map_or(0, |(report, _)| report.records);
    let within = before + 1..segment.tip.seq;
    let has_witness = walk.witnesses.get(chain).is_some_and(|end| within.contains(&end.seq));
    let has_checkpoint =
        walk.checkpoints.get(chain).is_some_and(|covered| covered.has_between(before, segment.tip.seq));
    if has_witness || has_checkpoint {
        // The hashes within it are needed, and are not checked again.
        let mut reader = storage.read(chain, ChainPosition { segment: segment.place.segment, offset: 0 })?;
        while let Some(batch) = reader.skip()? {
            let first = batch.tip.seq + 1 - batch.hashes.len() as u64;
            let count = usize::try_from(segment.tip.seq.saturating_sub(first - 1)).unwrap_or(usize::MAX);
            walk.step_over(chain, first, batch.hashes.get(..count).unwrap_or(&batch.hashes));
            if batch.tip.seq >= segment.tip.seq {
                break;
            }
        }
    }
    walk.go_on_after(chain, segment);
    Ok(())
}
