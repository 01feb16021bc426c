//! Checks that the index agrees with the records.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use rusqlite::params;

use super::add::ChainState;
use super::compare::EntryComparison;
use super::{LEGACY, RecordIndex, slices};
use crate::LedgerError;
use crate::chain::ChainTip;
use crate::record::RecordMembers;
use crate::storage::{ChainPosition, Storage, StoredBatch};

/// The state of the index at one moment, by chain.
type KnownChains = HashMap<String, KnownChain>;

/// The state of the index in a chain. The records up to the last one that it has are compared with it. The absence of
/// further records is not believed: a search looks only at records that the index has, or adds.
#[derive(Debug, Clone, Copy)]
struct KnownChain {
    /// The number of the last record that the index has, or 0.
    last: u64,
    /// The place from which on the next search adds records.
    place: ChainPosition,
    /// True if the next search adds nothing.
    is_complete: bool,
    /// The number of the last record that was certainly there before.
    certain: u64,
}

impl KnownChain {
    /// Reports whether no search would find this record.
    fn lacks(&self, seq: u64) -> bool {
        self.is_complete && seq > self.last && seq <= self.certain
    }
}

/// How far the index has come in each chain, as several threads compare it with the records.
pub(crate) struct IndexPlaces {
    storage: Arc<dyn Storage>,
    /// `None` if there is no index.
    known: Option<KnownChains>,
}

/// A thread's own access to the index; `None` if there is no index.
pub(crate) struct IndexComparer<'a> {
    index: Option<(RefCell<EntryComparison>, &'a KnownChains)>,
}

/// The result of a comparison of some records of a chain.
#[derive(Debug, Default)]
pub(crate) struct IndexComparison {
    /// The number of records that were compared.
    compared: u64,
    /// The first difference, in words.
    difference: Option<String>,
}

/// A comparison of the index with the records, chain by chain. Records that the index does not have yet are not
/// compared.
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

    /// Returns how far the index has come in a chain.
    fn of(&self, chain: &str) -> Option<KnownChain> {
        self.known.as_ref()?.get(chain).copied()
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
        let Some(known) = known.get(chain) else { return Ok(()) };
        let read = batch.records.iter().zip(members).take_while(|(record, _)| record.seq <= known.last);
        let records: Vec<_> = read.map(|(record, read)| (record.seq, record.text.as_str(), read.as_ref())).collect();
        comparison.compared += records.len() as u64;
        if comparison.difference.is_none() {
            comparison.difference = index.borrow_mut().difference(chain, batch.place, &records)?;
        }
        if let Some(record) = batch.records.get(records.len()).filter(|record| known.lacks(record.seq)) {
            comparison.difference.get_or_insert_with(|| nothing_of(record.seq));
        }
        Ok(())
    }

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
        // Brokers and readers continue meanwhile: records that were certain before the index was read must be in it.
        let certain = storage.chains()?.into_iter().map(|chain| (ChainState::of(data_dir, &chain).last, chain));
        let certain: HashMap<_, _> = certain.map(|(last, chain)| (chain, last)).collect();
        let mut known = index.as_ref().map(|index| index.known_chains(&certain)).transpose()?;
        let mut check = Self { index, compared: 0, differences: Vec::new() };
        known.as_mut().map_or(Ok(()), |known| check.compare_places(&**storage, known))?;
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
    /// compared, because an earlier verification did, or they were removed; the index must still have all others of
    /// them.
    pub(crate) fn end_chain(
        &mut self,
        chain: &str,
        places: &IndexPlaces,
        removed: u64,
        before: &ChainTip,
    ) -> Result<(), LedgerError> {
        let compared = std::mem::take(&mut self.compared);
        let (Some(index), Some(known)) = (&self.index, places.of(chain)) else { return Ok(()) };
        let found = index.count_between(chain, before.seq, known.last)?;
        if found != compared {
            self.add(chain, format!("{found} records where {compared} are"));
            return Ok(());
        }
        let first = before.seq.min(known.last);
        let (found, expected) = (index.count_between(chain, 0, first)?, first.saturating_sub(removed));
        if found != expected {
            self.add(chain, format!("{found} of the first records where {expected} are"));
        } else if known.last < before.seq && known.is_complete {
            self.add(chain, nothing_of(known.last + 1));
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

    /// Compares the place where the index continues in each chain with the records stored there.
    fn compare_places(&mut self, storage: &dyn Storage, known: &mut KnownChains) -> Result<(), LedgerError> {
        let chains = storage.chains()?;
        for (chain, known) in known {
            if !chains.contains(chain) {
                // Those of format 1 are stored elsewhere, and their chains have no place.
                if known.last > 0 && known.place != ChainPosition::default() {
                    self.add(chain, format!("{} records, and the ledger none,", known.last));
                }
                continue;
            }
            // Unreadable records from there on are never added by a search.
            let next = storage.read(chain, known.place).and_then(|mut reader| reader.skip()).ok().flatten();
            known.is_complete |= next.is_none();
            // One that cannot be read was judged already.
            let removed = storage.removed(chain).ok().flatten().map_or(0, |removed| removed.tip.seq);
            let last = known.last.max(removed);
            if next.is_some_and(|next| next.tip.seq - next.hashes.len() as u64 > last) {
                self.add(chain, nothing_of(last + 1));
            }
        }
        Ok(())
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

/// Returns a difference, in words: the index has nothing of a record.
fn nothing_of(seq: u64) -> String {
    format!("nothing of record {seq}")
}

impl RecordIndex {
    /// Returns the index's state of each chain at one moment.
    fn known_chains(&self, certain: &HashMap<String, u64>) -> Result<KnownChains, LedgerError> {
        let sql = "SELECT chain, segment, offset, complete, \
                   (SELECT coalesce(max(seq), 0) FROM events WHERE chain = chains.id) FROM chains";
        let known = self.conn.prepare_cached(sql).and_then(|mut query| {
            let rows = query.query_map([], |row| {
                let chain: String = row.get(0)?;
                let place = ChainPosition { segment: row.get(1)?, offset: row.get::<_, i64>(2)?.cast_unsigned() };
                let (is_complete, last) = (row.get(3)?, row.get::<_, i64>(4)?.cast_unsigned());
                let certain = certain.get(&chain).copied().unwrap_or(0);
                Ok((chain, KnownChain { last, place, is_complete, certain }))
            })?;
            rows.collect()
        });
        known.map_err(|error| self.failed(&error))
    }

    /// Returns the number of records of a chain that the index has, after one number and up to another.
    fn count_between(&self, chain: &str, after: u64, upto: u64) -> Result<u64, LedgerError> {
        let sql = "SELECT count(*) FROM events \
                   WHERE chain = (SELECT id FROM chains WHERE chain = ?1) AND seq > ?2 AND seq <= ?3";
        let values = params![chain, after.cast_signed(), upto.cast_signed()];
        let count = self.conn.query_row(sql, values, |row| row.get(0));
        count.map(i64::cast_unsigned).map_err(|error| self.failed(&error))
    }

    fn count_of_legacy(&self) -> Result<u64, LedgerError> {
        let count = self.conn.query_row("SELECT count(*) FROM events WHERE segment = ?1", [LEGACY], |row| row.get(0));
        count.map(i64::cast_unsigned).map_err(|error| self.failed(&error))
    }
}
