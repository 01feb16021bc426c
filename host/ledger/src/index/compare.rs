//! The comparison of what the index has of records, and of their calls, with the records.

use std::collections::HashMap;

use rusqlite::{OptionalExtension as _, params};

use super::add::{class_by_records, class_of};
use super::blocks::{SeenTexts, TextFilter, block_after, block_before, texts_of};
use super::facts::{FactName, IndexedFacts};
use super::key::{call_of, key_of};
use super::vocabulary::{ABSENT, CallClass, UNLISTED};
use super::{LedgerError, RecordIndex};
use crate::record::RecordMembers;
use crate::storage::ChainPosition;
use crate::text::grams;

/// The number of blocks that are kept: calls that begin at the same time may be in two.
const MAX_BLOCKS: usize = 4;

/// The number of calls from which on those that did not end are compared, so that they take no more memory.
const MAX_CALLS: usize = 10_000;

/// The number of sessions whose names are kept.
const MAX_SESSIONS: usize = 100_000;

/// A record of a chain: its number, its text, and its members, if it has those of a record.
pub(super) type ReadRecord<'a> = (u64, &'a str, Option<&'a RecordMembers<'a>>);

/// A record as the index has it, with numbers for the texts that many records have.
struct Entry {
    place: ChainPosition,
    at: u64,
    kind: i64,
    run: Option<i64>,
    call: Option<Vec<u8>>,
    error: Option<String>,
    /// The number of its facts.
    facts: i64,
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

/// A comparison of one thread, which caches its lookups.
pub(super) struct EntryComparison {
    index: RecordIndex,
    /// The texts that numbers represent. An unassigned number has none.
    names: HashMap<i64, Option<String>>,
    kinds: HashMap<i64, Option<String>>,
    sessions: HashMap<i64, Option<String>>,
    /// The facts that many records share.
    facts: HashMap<i64, (CallClass, String)>,
    /// The blocks whose filters were used last; the newest is the last.
    blocks: Vec<ComparedBlock>,
    /// The calls with a compared record whose final record was not compared yet.
    calls: HashMap<Vec<u8>, ComparedCall>,
}

impl EntryComparison {
    pub(super) fn new(index: RecordIndex) -> Self {
        Self {
            index,
            names: HashMap::new(),
            kinds: HashMap::new(),
            sessions: HashMap::new(),
            facts: HashMap::new(),
            blocks: Vec::new(),
            calls: HashMap::new(),
        }
    }

    pub(super) fn index(&self) -> &RecordIndex {
        &self.index
    }

    pub(super) fn into_index(self) -> RecordIndex {
        self.index
    }

    /// Returns the first difference, in words, between the index and these records of a chain, which were written at
    /// one place.
    pub(super) fn difference(
        &mut self,
        chain: &str,
        place: ChainPosition,
        records: &[ReadRecord<'_>],
    ) -> Result<Option<String>, LedgerError> {
        let data_dir = self.index.data_dir.clone();
        self.difference_of(chain, place, records).map_err(|error| super::failed(&data_dir, &error))
    }

    fn difference_of(
        &mut self,
        chain: &str,
        place: ChainPosition,
        records: &[ReadRecord<'_>],
    ) -> rusqlite::Result<Option<String>> {
        let (Some((first, ..)), Some((last, ..))) = (records.first(), records.last()) else { return Ok(None) };
        let compared = self.at_one_moment(|this| {
            let found = this.entries(chain, *first, *last)?;
            this.first_difference(place, records, &found)
        })?;
        if compared.is_none() && self.calls.len() > MAX_CALLS { self.difference_of_calls() } else { Ok(compared) }
    }

    /// Returns the first difference, in words, between the classes of the calls that did not end among the records that
    /// were compared, and the index's own records of them.
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
        records: &[ReadRecord<'_>],
        found: &HashMap<u64, Entry>,
    ) -> rusqlite::Result<Option<String>> {
        for (seq, text, members) in records {
            let facts = members.map(IndexedFacts::in_members).unwrap_or_default();
            let key = facts.call.as_deref().map(key_of);
            let own = match found.get(seq) {
                Some(entry) if entry.place == place && entry.call == key => self.own_class(entry, &facts)?,
                _ => None,
            };
            let Some(own) = own else { return Ok(Some(format!("something else of record {seq}"))) };
            let Some(key) = key else { continue };
            let call = match self.calls.get_mut(&key) {
                Some(call) => {
                    call.by_records = call.by_records.then(own);
                    call
                }
                None => {
                    let Some(class) = class_of(&self.index.conn, &key)? else {
                        return Ok(Some(format!("something else of call {}", call_of(&key))));
                    };
                    self.calls.entry(key.clone()).or_insert(ComparedCall { class, by_records: own })
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
            let mut shared = Vec::new();
            for (name, id) in facts.names.each().into_iter().zip(class.names.each()) {
                if let FactName::Listed(name) = name
                    && self.is_name(*id, name)?
                {
                    shared.push(&**name);
                }
            }
            if !self.has_texts(&key, text, &shared)? {
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

    /// Returns the index's entries for records of a chain, by their numbers.
    fn entries(&mut self, chain: &str, first: u64, last: u64) -> rusqlite::Result<HashMap<u64, Entry>> {
        let sql = "SELECT seq, segment, offset, at, kind, run, call, error, facts FROM events \
                   WHERE chain = (SELECT id FROM chains WHERE chain = ?1) AND seq BETWEEN ?2 AND ?3";
        let mut query = self.index.conn.prepare_cached(sql)?;
        let rows = query.query_map(params![chain, first.cast_signed(), last.cast_signed()], |row| {
            let place = ChainPosition { segment: row.get(1)?, offset: row.get::<_, i64>(2)?.cast_unsigned() };
            let entry = Entry {
                place,
                at: row.get::<_, i64>(3)?.cast_unsigned(),
                kind: row.get(4)?,
                run: row.get(5)?,
                call: row.get(6)?,
                error: row.get(7)?,
                facts: row.get(8)?,
            };
            Ok((row.get::<_, i64>(0)?.cast_unsigned(), entry))
        })?;
        rows.collect()
    }

    /// Returns the class that a record gives its call; `None` if the index has other facts about it.
    fn own_class(&mut self, entry: &Entry, facts: &IndexedFacts<'_>) -> rusqlite::Result<Option<CallClass>> {
        let (own, outcome) = self.facts_of(entry.facts)?;
        let is_same = (entry.at, entry.error.as_deref(), own.stage, &*outcome)
            == (facts.at, facts.error.as_deref(), facts.stage, &*facts.outcome)
            && entry.run.is_some() == facts.run.is_some()
            && self.is_kind(entry.kind, &facts.kind)?
            && match (entry.run, &facts.run) {
                (Some(id), Some(run)) => self.is_session(id, run)?,
                _ => true,
            };
        if !is_same {
            return Ok(None);
        }
        for (name, id) in facts.names.each().into_iter().zip(own.names.each()) {
            let agrees = match (name, *id) {
                (FactName::Absent, id) => id == ABSENT,
                // The index lists no more items if the list is long.
                (FactName::Listed(_), UNLISTED) => std::ptr::eq(name, &facts.names.item),
                (FactName::Unlisted, id) => id == UNLISTED,
                (FactName::Listed(name), id) => self.is_name(id, name)?,
            };
            if !agrees {
                return Ok(None);
            }
        }
        Ok(Some(own))
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

    fn is_name(&mut self, id: i64, name: &str) -> rusqlite::Result<bool> {
        stands_for(&self.index, &mut self.names, "SELECT name FROM names WHERE id = ?1", id, name)
    }

    fn is_kind(&mut self, id: i64, kind: &str) -> rusqlite::Result<bool> {
        stands_for(&self.index, &mut self.kinds, "SELECT kind FROM kinds WHERE id = ?1", id, kind)
    }

    fn is_session(&mut self, id: i64, run: &str) -> rusqlite::Result<bool> {
        if self.sessions.len() > MAX_SESSIONS {
            self.sessions.clear();
        }
        stands_for(&self.index, &mut self.sessions, "SELECT run FROM sessions WHERE id = ?1", id, run)
    }
}

/// Reports whether a number represents a text, which is looked up once.
fn stands_for(
    index: &RecordIndex,
    known: &mut HashMap<i64, Option<String>>,
    sql: &str,
    id: i64,
    text: &str,
) -> rusqlite::Result<bool> {
    let found = match known.get(&id) {
        Some(found) => found,
        None => {
            let found = index.conn.prepare_cached(sql)?.query_row([id], |row| row.get(0)).optional()?;
            known.entry(id).or_insert(found)
        }
    };
    Ok(found.as_deref() == Some(text))
}
