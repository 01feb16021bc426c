//! The comparison of what the index has of records, and of their calls, with the records.

use std::collections::HashMap;

use rusqlite::{OptionalExtension as _, params};

use super::add::{class_by_records, class_of};
use super::blocks::{SeenTexts, TextFilter, block_after, block_before, texts_of};
use super::facts::{FactName, IndexedFacts, RecordNames};
use super::key::{call_of, key_of};
use super::vocabulary::{ABSENT, CallClass, UNLISTED};
use super::{LedgerError, RecordIndex};
use crate::storage::ChainPosition;
use crate::text::grams;

/// The number of blocks that are kept: calls that begin at the same time may stand in two.
const MAX_BLOCKS: usize = 4;

/// The number of calls from which on those that did not end are compared, so that they take no more memory.
const MAX_CALLS: usize = 10_000;

/// A record as the index has it: its position, the facts that searches need, and what it says of its call.
struct Entry {
    place: ChainPosition,
    facts: IndexedFacts,
    own: CallClass,
}

/// A call whose records are being compared.
struct ComparedCall {
    /// Its class in the index.
    class: CallClass,
    /// The class by the records that were compared so far.
    by_records: CallClass,
}

/// The filter of a block, and where the block ends.
struct ComparedBlock {
    first: Vec<u8>,
    /// The first call of the next block.
    end: Option<Vec<u8>>,
    filter: TextFilter,
    seen: SeenTexts,
}

/// A comparison of one thread, which keeps what it looked up.
pub(super) struct EntryComparison {
    index: RecordIndex,
    names: HashMap<i64, FactName>,
    /// The facts that many records share.
    facts: HashMap<i64, (CallClass, String)>,
    /// The blocks whose filters were looked at last; the newest is the last.
    blocks: Vec<ComparedBlock>,
    /// The calls of which a record was compared, and not yet the one with which they ended.
    calls: HashMap<Vec<u8>, ComparedCall>,
}

impl EntryComparison {
    pub(super) fn new(index: RecordIndex) -> Self {
        let (names, facts, blocks, calls) = Default::default();
        Self { index, names, facts, blocks, calls }
    }

    pub(super) fn index(&self) -> &RecordIndex {
        &self.index
    }

    pub(super) fn into_index(self) -> RecordIndex {
        self.index
    }

    /// Returns the first difference, in words, between the index and these records of a chain, which were written at one
    /// place.
    pub(super) fn difference(
        &mut self,
        chain: &str,
        place: ChainPosition,
        records: &[(u64, &str)],
    ) -> Result<Option<String>, LedgerError> {
        let data_dir = self.index.data_dir.clone();
        self.difference_of(chain, place, records).map_err(|error| super::failed(&data_dir, &error))
    }

    fn difference_of(
        &mut self,
        chain: &str,
        place: ChainPosition,
        records: &[(u64, &str)],
    ) -> rusqlite::Result<Option<String>> {
        let (Some((first, _)), Some((last, _))) = (records.first(), records.last()) else { return Ok(None) };
        let compared = self.at_one_moment(|this| {
            let found = this.entries(chain, *first, *last)?;
            this.first_difference(place, records, &found)
        })?;
        if compared.is_none() && self.calls.len() > MAX_CALLS { self.difference_of_calls() } else { Ok(compared) }
    }

    /// Returns the first difference, in words, between the classes of the calls that did not end among the records that were
    /// compared, and the index's own records of them.
    pub(super) fn difference_of_open_calls(&mut self) -> Result<Option<String>, LedgerError> {
        let data_dir = self.index.data_dir.clone();
        self.difference_of_calls().map_err(|error| super::failed(&data_dir, &error))
    }

    fn difference_of_calls(&mut self) -> rusqlite::Result<Option<String>> {
        let calls = std::mem::take(&mut self.calls);
        self.at_one_moment(|this| {
            for key in calls.keys() {
                if let Some(difference) = this.difference_of_class(key)? {
                    return Ok(Some(difference));
                }
            }
            Ok(None)
        })
    }

    /// Compares what the index has at one moment: another reader may add records of the same calls meanwhile.
    fn at_one_moment<T>(&mut self, compare: impl FnOnce(&mut Self) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        self.index.conn.execute_batch("BEGIN")?;
        let compared = compare(self);
        self.index.conn.execute_batch("ROLLBACK")?;
        compared
    }

    fn first_difference(
        &mut self,
        place: ChainPosition,
        records: &[(u64, &str)],
        found: &HashMap<u64, Entry>,
    ) -> rusqlite::Result<Option<String>> {
        for (seq, text) in records {
            let facts = IndexedFacts::of(text);
            let entry = found.get(seq).filter(|entry| entry.place == place && agrees(&facts, &entry.facts));
            let Some(entry) = entry else { return Ok(Some(format!("something else of record {seq}"))) };
            let Some(key) = facts.call.as_deref().map(key_of) else { continue };
            let call = match self.calls.get_mut(&key) {
                Some(call) => {
                    call.by_records = call.by_records.then(entry.own);
                    call
                }
                None => {
                    let Some(class) = class_of(&self.index.conn, &key)? else {
                        return Ok(Some(format!("something else of call {}", call_of(&key))));
                    };
                    self.calls.entry(key.clone()).or_insert(ComparedCall { class, by_records: entry.own })
                }
            };
            let (class, is_as_expected) = (call.class, call.class == call.by_records);
            if facts.stage.is_end() {
                self.calls.remove(&key);
                // Its first records may have been compared elsewhere.
                if !is_as_expected && let Some(difference) = self.difference_of_class(&key)? {
                    return Ok(Some(difference));
                }
            }
            let names = self.names_of(&class.names)?;
            if !self.has_texts(&key, text, &facts.names.shared(&names))? {
                return Ok(Some(format!("not all texts of record {seq}")));
            }
        }
        Ok(None)
    }

    /// Compares the class of a call with the index's own records of it.
    fn difference_of_class(&self, key: &[u8]) -> rusqlite::Result<Option<String>> {
        let class = class_of(&self.index.conn, key)?;
        let is_same = class.is_some() && class == class_by_records(&self.index.conn, key)?;
        Ok((!is_same).then(|| format!("something else of call {}", call_of(key))))
    }

    /// Reports whether the filter of a call's block has all texts of a record but these names.
    fn has_texts(&mut self, key: &[u8], text: &str, names: &[&str]) -> rusqlite::Result<bool> {
        let has_call = |block: &ComparedBlock| *block.first <= *key && block.end.as_deref().is_none_or(|end| key < end);
        let block = match self.blocks.iter().position(has_call) {
            Some(known) => self.blocks.get_mut(known),
            None => {
                let first = block_before(&self.index.conn, key)?.unwrap_or_default();
                let (end, filter) = (block_after(&self.index.conn, key)?, self.index.filter(&first)?);
                if self.blocks.len() >= MAX_BLOCKS {
                    self.blocks.remove(0);
                }
                self.blocks.push(ComparedBlock { first, end, filter, seen: SeenTexts::default() });
                self.blocks.last_mut()
            }
        };
        let Some(ComparedBlock { filter, seen, .. }) = block else { return Ok(false) };
        let mut has_all = true;
        texts_of(text, names, |text| {
            if has_all && seen.is_new(text) {
                grams(text, |gram| has_all &= filter.has(gram));
            }
        });
        Ok(has_all)
    }

    /// Returns what the index says of records of a chain, by their numbers.
    fn entries(&mut self, chain: &str, first: u64, last: u64) -> rusqlite::Result<HashMap<u64, Entry>> {
        let sql = "SELECT seq, segment, offset, at, kinds.kind, sessions.run, call, error, facts FROM events \
                   JOIN kinds ON kinds.id = events.kind LEFT JOIN sessions ON sessions.id = events.run \
                   WHERE chain = (SELECT id FROM chains WHERE chain = ?1) AND seq BETWEEN ?2 AND ?3";
        let found = {
            let mut query = self.index.conn.prepare_cached(sql)?;
            let rows = query.query_map(params![chain, first.cast_signed(), last.cast_signed()], |row| {
                let place = ChainPosition { segment: row.get(1)?, offset: row.get::<_, i64>(2)?.cast_unsigned() };
                let facts = IndexedFacts {
                    at: row.get::<_, i64>(3)?.cast_unsigned(),
                    kind: row.get(4)?,
                    run: row.get(5)?,
                    call: row.get::<_, Option<Vec<u8>>>(6)?.map(|key| call_of(&key)),
                    error: row.get(7)?,
                    ..IndexedFacts::default()
                };
                Ok((row.get::<_, i64>(0)?.cast_unsigned(), place, facts, row.get::<_, i64>(8)?))
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()?
        };
        let mut entries = HashMap::new();
        for (seq, place, facts, said) in found {
            let (own, outcome) = self.facts_of(said)?;
            let names = self.names_of(&own.names)?;
            let facts = IndexedFacts { names, stage: own.stage, outcome, ..facts };
            entries.insert(seq, Entry { place, facts, own });
        }
        Ok(entries)
    }

    fn facts_of(&mut self, id: i64) -> rusqlite::Result<(CallClass, String)> {
        if let Some(known) = self.facts.get(&id) {
            return Ok(known.clone());
        }
        let sql = "SELECT principal, profile, source, item, stage, outcome FROM facts WHERE id = ?1";
        let found =
            self.index.conn.prepare_cached(sql)?.query_row([id], |row| Ok((CallClass::read(row)?, row.get(5)?)));
        let found = found.optional()?.unwrap_or_default();
        self.facts.insert(id, found.clone());
        Ok(found)
    }

    fn names_of(&mut self, ids: &RecordNames<i64>) -> rusqlite::Result<RecordNames<FactName>> {
        for id in ids.each() {
            if !self.names.contains_key(id) {
                let sql = "SELECT name FROM names WHERE id = ?1";
                let name = self.index.conn.prepare_cached(sql)?.query_row([id], |row| row.get(0)).optional()?;
                // A number that stands for nothing differs from every name.
                self.names.insert(*id, name.map_or(FactName::Listed(String::new()), FactName::Listed));
            }
        }
        Ok(ids.map(|id| match id {
            ABSENT => FactName::Absent,
            UNLISTED => FactName::Unlisted,
            id => self.names.get(&id).cloned().unwrap_or_default(),
        }))
    }
}

/// Reports whether the index has the facts of a record. It lists no more items if the list is long.
fn agrees(facts: &IndexedFacts, found: &IndexedFacts) -> bool {
    let is_unlisted = found.names.item == FactName::Unlisted && matches!(facts.names.item, FactName::Listed(_));
    if !is_unlisted {
        return facts == found;
    }
    let names = RecordNames { item: FactName::Unlisted, ..facts.names.clone() };
    IndexedFacts { names, ..facts.clone() } == *found
}
