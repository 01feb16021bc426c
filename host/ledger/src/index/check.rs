//! Checks that the index agrees with the records.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use rusqlite::params;

use super::compare::EntryComparison;
use super::{LEGACY, RecordIndex, slices};
use crate::LedgerError;
use crate::chain::ChainTip;
use crate::record::RecordMembers;
use crate::storage::{ChainPosition, Storage, StoredBatch};

/// How far the index has come in each chain, and whether all of the chain is there.
type KnownPlaces = HashMap<String, (ChainPosition, bool)>;

/// How far the index has come in each chain, as several threads compare it with the records.
pub(crate) struct IndexPlaces {
    storage: Arc<dyn Storage>,
    /// `None` if there is no index.
    known: Option<KnownPlaces>,
}

/// A thread's own access to the index; `None` if there is no index.
pub(crate) struct IndexComparer<'a> {
    index: Option<(RefCell<EntryComparison>, &'a KnownPlaces)>,
}

/// The result of a comparison of some records of a chain.
#[derive(Debug, Default)]
pub(crate) struct IndexComparison {
    /// The number of records that were compared.
    compared: u64,
    /// The first difference, in words.
    difference: Option<String>,
}

/// A comparison of the index with the records, chain by chain. Records that the index does not have yet are not compared.
pub(crate) struct IndexCheck {
    /// `None` if there is no index.
    index: Option<RecordIndex>,
    /// The number of records of the present chain that were compared.
    compared: u64,
    /// The first difference of each chain, in words.
    differences: Vec<(String, String)>,
}

impl IndexPlaces {
    /// Opens the index for threads.
    pub(crate) fn comparer(&self, data_dir: &Path) -> Result<IndexComparer<'_>, LedgerError> {
        let Some(known) = &self.known else { return Ok(IndexComparer { index: None }) };
        let index = RecordIndex::open_existing(data_dir, Arc::clone(&self.storage))?;
        let comparison = index.map(|index| RefCell::new(EntryComparison::new(index)));
        Ok(IndexComparer { index: comparison.map(|comparison| (comparison, known)) })
    }

    /// Returns the place up to which the index has a chain.
    fn place(&self, chain: &str) -> Option<ChainPosition> {
        self.known.as_ref()?.get(chain).map(|(place, _)| *place)
    }
}

impl IndexComparer<'_> {
    /// Compares the next records of a chain, whose members were read.
    pub(crate) fn compare(
        &self,
        chain: &str,
        batch: &StoredBatch,
        members: &[Option<RecordMembers<'_>>],
        comparison: &mut IndexComparison,
    ) -> Result<(), LedgerError> {
        let Some((index, known)) = &self.index else { return Ok(()) };
        if known.get(chain).is_none_or(|(place, _)| batch.place >= *place) {
            return Ok(());
        }
        comparison.compared += batch.records.len() as u64;
        if comparison.difference.is_none() {
            let read = batch.records.iter().zip(members);
            let records: Vec<_> =
                read.map(|(record, read)| (record.seq, record.text.as_str(), read.as_ref())).collect();
            comparison.difference = index.borrow_mut().difference(chain, batch.place, &records)?;
        }
        Ok(())
    }
}

impl IndexComparer<'_> {
    /// Ends the comparison of records that were read together.
    pub(crate) fn end(&self, comparison: &mut IndexComparison) -> Result<(), LedgerError> {
        let Some((index, _)) = &self.index else { return Ok(()) };
        let difference = index.borrow_mut().difference_of_open_calls()?;
        comparison.difference = comparison.difference.take().or(difference);
        Ok(())
    }
}

impl IndexCheck {
    /// Begins the comparison, and returns how far the index has come.
    pub(crate) fn open(data_dir: &Path, storage: &Arc<dyn Storage>) -> Result<(Self, IndexPlaces), LedgerError> {
        let index = RecordIndex::open_existing(data_dir, Arc::clone(storage))?;
        index.as_ref().map_or(Ok(()), RecordIndex::forget_removed)?;
        let known = index.as_ref().map(RecordIndex::known).transpose()?;
        let mut check = Self { index, compared: 0, differences: Vec::new() };
        check.compare_legacy()?;
        check.compare_slices()?;
        Ok((check, IndexPlaces { storage: Arc::clone(storage), known }))
    }

    /// Takes in the comparison of the next records of a chain.
    pub(crate) fn take(&mut self, chain: &str, comparison: IndexComparison) {
        self.compared += comparison.compared;
        if let Some(difference) = comparison.difference {
            self.add(chain, difference);
        }
    }

    /// Ends the comparison of a chain: the index must not have more than was compared. Records up to `before` were not
    /// compared, because an earlier verification did; the index must still have all of them but those that were removed.
    pub(crate) fn end_chain(
        &mut self,
        chain: &str,
        places: &IndexPlaces,
        removed: u64,
        before: &ChainTip,
        resumed: ChainPosition,
    ) -> Result<(), LedgerError> {
        let compared = std::mem::take(&mut self.compared);
        let (Some(index), Some(place)) = (&self.index, places.place(chain)) else { return Ok(()) };
        let found = index.count_before(chain, place, before.seq)?;
        if found != compared {
            self.add(chain, format!("{found} records where {compared} are"));
        } else if place >= resumed {
            let (found, expected) = (index.count_up_to(chain, before.seq)?, before.seq.saturating_sub(removed));
            if found != expected {
                self.add(chain, format!("{found} of the first records where {expected} are"));
            }
        }
        Ok(())
    }

    /// Returns the first difference of each chain, in words.
    pub(crate) fn differences(self) -> Vec<(String, String)> {
        self.differences
    }

    fn add(&mut self, chain: &str, difference: String) {
        if self.differences.last().is_none_or(|(last, _)| last != chain) {
            self.differences.push((chain.to_owned(), difference));
        }
    }

    /// Compares the filters of blocks with what searches read in their place.
    fn compare_slices(&mut self) -> Result<(), LedgerError> {
        let Some(index) = &self.index else { return Ok(()) };
        if !slices::agree(&index.conn).map_err(|error| index.failed(&error))? {
            self.differences.push(("of all".to_owned(), "other bits of its filters than the filters".to_owned()));
        }
        Ok(())
    }

    /// Compares the records of format 1.
    fn compare_legacy(&mut self) -> Result<(), LedgerError> {
        let Some(index) = self.index.take() else { return Ok(()) };
        let mut comparison = EntryComparison::new(index);
        let mut compared = 0;
        let last = comparison.index().last_legacy()?;
        let mut after = 0;
        loop {
            let records = comparison.index().legacy_after(after, super::COMMIT_AFTER)?;
            let Some(next) = records.last().map(|record| record.row) else { break };
            for record in records.iter().filter(|record| record.row <= last) {
                let place = ChainPosition { segment: LEGACY, offset: record.row.cast_unsigned() };
                let members: Option<RecordMembers<'_>> = serde_json::from_str(&record.text).ok();
                let texts = [(record.seq.cast_unsigned(), record.text.as_str(), members.as_ref())];
                compared += 1;
                let difference = comparison.difference(&record.chain, place, &texts)?;
                if let Some(difference) =
                    difference.map_or_else(|| comparison.difference_of_open_calls(), |it| Ok(Some(it)))?
                {
                    self.add(&record.chain, difference);
                }
            }
            after = next;
        }
        let found = comparison.index().count_of_legacy()?;
        if found != compared {
            self.differences.push(("of format 1".to_owned(), format!("{found} records where {compared} are")));
        }
        self.index = Some(comparison.into_index());
        Ok(())
    }
}

impl RecordIndex {
    /// Returns the number of records of a chain after this one that the index has before a place.
    fn count_before(&self, chain: &str, place: ChainPosition, after: u64) -> Result<u64, LedgerError> {
        let sql = "SELECT count(*) FROM events WHERE chain = (SELECT id FROM chains WHERE chain = ?1) \
                   AND seq > ?4 AND (segment, offset) < (?2, ?3)";
        let values = params![chain, place.segment, place.offset.cast_signed(), after.cast_signed()];
        let count = self.conn.query_row(sql, values, |row| row.get(0));
        count.map(i64::cast_unsigned).map_err(|error| self.failed(&error))
    }

    /// Returns the number of records of a chain up to this one that the index has.
    fn count_up_to(&self, chain: &str, seq: u64) -> Result<u64, LedgerError> {
        let sql = "SELECT count(*) FROM events WHERE chain = (SELECT id FROM chains WHERE chain = ?1) AND seq <= ?2";
        let count = self.conn.query_row(sql, params![chain, seq.cast_signed()], |row| row.get(0));
        count.map(i64::cast_unsigned).map_err(|error| self.failed(&error))
    }

    fn count_of_legacy(&self) -> Result<u64, LedgerError> {
        let count = self.conn.query_row("SELECT count(*) FROM events WHERE segment = ?1", [LEGACY], |row| row.get(0));
        count.map(i64::cast_unsigned).map_err(|error| self.failed(&error))
    }
}
