//! Retention: removes records older than the retention period. Removed records leave their end, the root of their tree
//! and a record of the removal, so that the rest of the ledger can be verified as before.

use std::collections::BTreeSet;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::chain::{self, ChainTip};
use super::record::Record;
use super::removed::RemovedRecords;
use super::storage::{ChainEnd, ChainPosition, Storage};
use super::{Ledger, LedgerError, blocking};

/// The result of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemovalResult {
    /// The number of records that were removed.
    pub records: u64,
    /// The number of chains from which some or all records were removed.
    pub chains: u64,
}

impl Ledger {
    /// Removes the records that are older than a moment, in milliseconds since the Unix epoch, in whole segments: of
    /// the chains that are sealed, and of this one up to the segment that is being written. Records `records.removed`
    /// before it removes anything. Altered records stay, because they are evidence. Removes the data keys of the days
    /// that are older too. Does nothing while somebody verifies the ledger.
    ///
    /// Cancellation safe: a removal that was begun is completed by the next one.
    ///
    /// # Errors
    /// [`LedgerError`]: removals up to then are recorded.
    pub async fn remove_before(&self, moment: u64) -> Result<RemovalResult, LedgerError> {
        let storage = self.inner.storage.clone();
        let Some(_alone) = blocking(move || storage.lock_for_removal()).await? else {
            return Ok(RemovalResult::default());
        };
        let (storage, data_dir, own) =
            (self.inner.storage.clone(), self.inner.data_dir.clone(), self.inner.chain.clone());
        let (chains, mut kept) = blocking(move || {
            storage.complete_removals()?;
            let sealed = chain::sealed(&data_dir)?;
            // The name of a chain tells when it began, so newer ones need not be read.
            let began = |chain: &str| chain.parse::<ulid::Ulid>().map_or(0, |name| name.timestamp_ms());
            let is_done = |chain: &String| **chain == *own || sealed.contains(chain);
            let old = storage.chains()?.into_iter().filter(|chain| began(chain) < moment);
            Ok(old.partition::<BTreeSet<_>, _>(is_done))
        })
        .await?;
        let mut done = RemovalResult::default();
        for chain in chains {
            let (inner, name) = (self.inner.clone(), chain.clone());
            let found = blocking(move || {
                // The broker's own chain grows while this reads it.
                let is_own = *chain == *inner.chain;
                let end = chain::witness(&inner.data_dir, &chain).filter(|_| !is_own);
                Ok(plan_removal(&*inner.storage, &chain, moment, is_own, end))
            });
            let (removed, before) = match found.await? {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(reason) => {
                    tracing::warn!(%reason, "old records are kept; `portcullis audit verify` says more");
                    kept.insert(name);
                    continue;
                }
            };
            self.append(removed.event()).await?;
            done.records += removed.tip.seq - before;
            done.chains += 1;
            let storage = self.inner.storage.clone();
            blocking(move || storage.remove(&removed)).await?;
        }
        self.remove_keys_before(moment, &kept).await?;
        Ok(done)
    }

    /// Removes the data keys of the days that ended before a moment, because the bodies sealed with them are too old;
    /// those of chains whose old records are kept stay with them.
    async fn remove_keys_before(&self, moment: u64, kept: &BTreeSet<String>) -> Result<(), LedgerError> {
        let moment = i64::try_from(moment).ok().and_then(|moment| Timestamp::from_millisecond(moment).ok());
        let Some(moment) = moment else { return Ok(()) };
        let day = moment.to_zoned(TimeZone::UTC).date();
        self.remove_keys(day, |chain| !kept.contains(chain)).await.map(drop)
    }
}

/// Returns the rest of a chain without its old records, and the number of earlier removed ones; `None` if no segment is
/// old enough. `end` is the last record that the chain must have, according to its lock file.
fn plan_removal(
    storage: &dyn Storage,
    chain: &str,
    moment: u64,
    is_own: bool,
    end: Option<ChainTip>,
) -> Result<Option<(RemovedRecords, u64)>, String> {
    let named = |error: &dyn std::fmt::Display| format!("chain {chain}: {error}");
    let left = storage.removed(chain).map_err(|error| named(&error))?;
    let mut so_far = left.unwrap_or_else(|| RemovedRecords::none(chain));
    let before = so_far.tip.seq;
    let mut reader = storage.read(chain, ChainPosition::default()).map_err(|error| named(&error))?;
    let mut due = None;
    while let Some(batch) = reader.next().map_err(|error| named(&error))? {
        if batch.place.segment != so_far.segment {
            if so_far.tip.seq > before {
                due = Some(so_far.clone());
            }
            so_far.segment = batch.place.segment;
        }
        for record in &batch.records {
            let parsed: Record = serde_json::from_str(&record.text).map_err(|error| named(&error))?;
            if parsed.at >= moment {
                return Ok(due.map(|due| (due, before)));
            }
            so_far.push(record, &parsed).map_err(|error| named(&error))?;
        }
    }
    if let ChainEnd::Damaged(cause) = reader.end().map_err(|error| named(&error))? {
        return Err(named(&cause));
    }
    let contradicts = |end: &ChainTip| so_far.tip.seq < end.seq || (so_far.tip.seq == end.seq && so_far.tip != *end);
    if let Some(end) = end.filter(contradicts) {
        return Err(named(&format!("record {} is not the one that its lock file names as the last", end.seq)));
    }
    // The segment that is being written stays.
    if !is_own && so_far.tip.seq > before {
        due = Some(so_far);
    }
    Ok(due.map(|due| (due, before)))
}
