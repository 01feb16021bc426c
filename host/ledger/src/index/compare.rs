//! The comparison of what the index has of records, and of their calls, with the records.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use rusqlite::{OptionalExtension as _, params};

use super::add::{class_by_records, class_of};
use super::blocks::{MAX_SEEN, TextFilter, block_before, texts_of};
use super::facts::{FactName, IndexedFacts, RecordNames};
use super::key::{call_of, key_of};
use super::vocabulary::{ABSENT, CallClass, UNLISTED};
use super::{LedgerError, RecordIndex};
use crate::storage::ChainPosition;
use crate::text::grams;

/// A record as the index has it: its position, and the facts that searches need.
type Entry = (ChainPosition, IndexedFacts);

/// A comparison of one thread, which keeps what it looked up.
pub(super) struct EntryComparison {
    index: RecordIndex,
    names: HashMap<i64, FactName>,
    /// The facts that many records share.
    facts: HashMap<i64, (CallClass, String)>,
    /// The block whose filter was looked at last: its first call, the filter, and the hashes of texts that it has.
    block: Option<(Vec<u8>, TextFilter, HashSet<u64>)>,
    hasher: RandomState,
}

impl EntryComparison {
    pub(super) fn new(index: RecordIndex) -> Self {
        let (names, facts, hasher) = (HashMap::new(), HashMap::new(), RandomState::new());
        Self { index, names, facts, block: None, hasher }
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
        // Another reader may add records of the same calls meanwhile: all that is compared is of one moment.
        self.index.conn.execute_batch("BEGIN")?;
        let found = self.entries(chain, *first, *last);
        let found = found.and_then(|found| self.first_difference(place, records, &found));
        self.index.conn.execute_batch("ROLLBACK")?;
        found
    }

    fn first_difference(
        &mut self,
        place: ChainPosition,
        records: &[(u64, &str)],
        found: &HashMap<u64, Entry>,
    ) -> rusqlite::Result<Option<String>> {
        let mut classes = BTreeMap::new();
        for (seq, text) in records {
            let facts = IndexedFacts::of(text);
            if !found.get(seq).is_some_and(|(at, found)| *at == place && agrees(&facts, found)) {
                return Ok(Some(format!("something else of record {seq}")));
            }
            let Some(key) = facts.call.as_deref().map(key_of) else { continue };
            if !classes.contains_key(&key) {
                let class = class_of(&self.index.conn, &key)?;
                if class.is_none() || class != class_by_records(&self.index.conn, &key)? {
                    return Ok(Some(format!("something else of call {}", call_of(&key))));
                }
                classes.insert(key.clone(), class.unwrap_or_default());
            }
            let Some(class) = classes.get(&key) else { continue };
            let names = self.names_of(&class.names)?;
            if !self.has_texts(&key, text, &facts.names.shared(&names))? {
                return Ok(Some(format!("not all texts of record {seq}")));
            }
        }
        Ok(None)
    }

    /// Reports whether the filter of a call's block has all texts of a record but these names.
    fn has_texts(&mut self, key: &[u8], text: &str, names: &[&str]) -> rusqlite::Result<bool> {
        let first = block_before(&self.index.conn, key)?.unwrap_or_default();
        let is_same = |(known, _, seen): &&mut (Vec<u8>, _, HashSet<u64>)| *known == first && seen.len() <= MAX_SEEN;
        let block = match self.block.as_mut().filter(is_same) {
            Some(block) => block,
            None => {
                let filter = self.index.filter(&first)?;
                self.block.insert((first, filter, HashSet::new()))
            }
        };
        let (_, filter, seen) = block;
        let mut has_all = true;
        texts_of(text, names, |text| {
            if has_all && seen.insert(self.hasher.hash_one(text)) {
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
            entries.insert(seq, (place, IndexedFacts { names, stage: own.stage, outcome, ..facts }));
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
