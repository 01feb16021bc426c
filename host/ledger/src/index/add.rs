//! Adding records to the index.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _, params};

use super::blocks::TextBlocks;
use super::facts::{FactName, IndexedFacts};
use super::key::key_of;
use super::vocabulary::{ABSENT, CallClass, UNLISTED, Vocabulary};
use super::{COMMIT_AFTER, LEGACY, LegacyRecord, RecordIndex};
use crate::record::ChainedRecord;
use crate::storage::{ChainEnd, ChainPosition, ChainReader};
use crate::{LedgerError, chain};

/// The size of SQLite's cache while records are added, in KiB: all changes of a transaction fit in, so that each page
/// is written once.
const CACHE_KIB: i64 = 64 * 1024;

/// A chain whose records are being added.
struct Pending {
    id: i64,
    state: ChainState,
    reader: Box<dyn ChainReader>,
    /// The place of the records that were read together and are being added.
    place: ChainPosition,
    records: std::vec::IntoIter<ChainedRecord>,
    next: Option<(ChainedRecord, IndexedFacts<'static>)>,
    /// The number of the last record that is in the index or was read.
    last: u64,
}

/// The state of a chain, asked for before its records are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChainState {
    /// True if the chain has its end, so that nothing is written to it any more.
    pub(super) is_ended: bool,
    /// The last record that is certainly durable: while a chain is written, what follows may still be replaced.
    pub(super) last: u64,
    /// The number of the last record according to the chain's lock file.
    pub(super) written: u64,
}

/// The records that are added in one transaction, and the texts that are added after it.
struct Additions<'a> {
    conn: &'a Connection,
    vocabulary: Vocabulary,
    blocks: TextBlocks,
    /// The calls whose records were added in this transaction, and the class of each.
    calls: BTreeMap<Vec<u8>, CallClass>,
    /// The largest call that the index has; `None` if that is not known yet.
    largest: Option<Vec<u8>>,
}

impl RecordIndex {
    /// Adds the new records of these chains and of the table of format 1.
    pub(super) fn add(&self, open: &BTreeMap<String, ChainState>) -> Result<(), LedgerError> {
        let sized = self.connection().pragma_update(None, "cache_size", -CACHE_KIB);
        sized.map_err(|error| self.failed(&error))?;
        let mut transaction = self.begin()?;
        // Another reader may have added some in the meantime.
        let known = self.known()?;
        let mut additions = Additions::new(self.connection());
        self.add_legacy(&mut additions)?;
        let mut pending = Vec::new();
        for (chain, state) in open {
            let (place, _) = known.get(chain).copied().unwrap_or_default();
            let (id, reader) = (self.chain_id(chain)?, self.storage.read(chain, place)?);
            let records = Vec::new().into_iter();
            let last = self.last(id)?;
            let mut one = Pending { id, state: *state, reader, place, records, next: None, last };
            one.step();
            pending.push(one);
        }
        let when = |pending: &[Pending], i: usize| {
            let (_, facts) = pending.get(i)?.next.as_ref()?;
            Some(Reverse((facts.at, i)))
        };
        let mut order: BinaryHeap<_> = (0..pending.len()).filter_map(|i| when(&pending, i)).collect();
        let mut added = 0;
        while let Some(Reverse((_, i))) = order.pop() {
            let Some(one) = pending.get_mut(i) else { continue };
            if let Some((record, facts)) = one.next.take() {
                let inserted = additions.insert(one.id, record.seq, one.place, &facts, &record.text);
                inserted.map_err(|error| self.failed(&error))?;
                added += 1;
            }
            one.step();
            order.extend(when(&pending, i));
            if added >= COMMIT_AFTER {
                added = 0;
                self.note_places(&pending, false)?;
                additions.store().map_err(|error| self.failed(&error))?;
                transaction.commit().map_err(|error| self.failed(&error))?;
                transaction = self.begin()?;
            }
        }
        for one in &mut pending {
            // Damaged or missing records may come back.
            let is_whole = one.reader.end().is_ok_and(|end| !matches!(end, ChainEnd::Damaged(_)));
            one.state.is_ended &= is_whole && one.last >= one.state.written;
        }
        self.note_places(&pending, true)?;
        additions.store().map_err(|error| self.failed(&error))?;
        transaction.commit().map_err(|error| self.failed(&error))
    }

    /// Notes how far each chain has come. Records at a noted place may be here already, and are then not added again.
    fn note_places(&self, pending: &[Pending], done: bool) -> Result<(), LedgerError> {
        let sql = "UPDATE chains SET segment = ?2, offset = ?3, complete = ?4 WHERE id = ?1";
        for one in pending {
            let noted = self.connection().prepare_cached(sql).and_then(|mut update| {
                let offset = one.place.offset.cast_signed();
                update.execute(params![one.id, one.place.segment, offset, done && one.state.is_ended])
            });
            noted.map_err(|error| self.failed(&error))?;
        }
        Ok(())
    }

    fn add_legacy(&self, additions: &mut Additions<'_>) -> Result<(), LedgerError> {
        loop {
            let records = self.legacy_records(COMMIT_AFTER)?;
            let Some(LegacyRecord { row: last, .. }) = records.last() else { return Ok(()) };
            for LegacyRecord { row, chain, seq, text } in &records {
                let place = ChainPosition { segment: LEGACY, offset: row.cast_unsigned() };
                let (chain, facts) = (self.chain_id(chain)?, IndexedFacts::of(text));
                let inserted = additions.insert(chain, seq.cast_unsigned(), place, &facts, text);
                inserted.map_err(|error| self.failed(&error))?;
            }
            let noted = self.connection().execute("UPDATE legacy SET row = ?1", [last]);
            noted.and_then(|_| additions.store()).map_err(|error| self.failed(&error))?;
        }
    }
}

impl<'a> Additions<'a> {
    fn new(conn: &'a Connection) -> Self {
        let (vocabulary, blocks) = (Vocabulary::default(), TextBlocks::new());
        Self { conn, vocabulary, blocks, calls: BTreeMap::new(), largest: None }
    }

    /// Adds a record, if it is not here yet.
    fn insert(
        &mut self,
        chain: i64,
        seq: u64,
        place: ChainPosition,
        facts: &IndexedFacts<'_>,
        text: &str,
    ) -> rusqlite::Result<()> {
        let kind = self.vocabulary.kind(self.conn, &facts.kind)?;
        let (own, said) = self.vocabulary.facts(self.conn, facts)?;
        let run = facts.run.as_ref().map(|run| self.vocabulary.session(self.conn, run)).transpose()?;
        let key = facts.call.as_deref().map(key_of);
        let sql = "INSERT OR IGNORE INTO events (chain, seq, segment, offset, at, kind, facts, run, call, error) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
        let (seq, offset, at) = (seq.cast_signed(), place.offset.cast_signed(), facts.at.cast_signed());
        let values = params![chain, seq, place.segment, offset, at, kind, said, run, key, facts.error];
        let is_added = self.conn.prepare_cached(sql)?.execute(values)? > 0;
        match key {
            Some(key) if is_added => self.add_to_call(key, own, facts, text),
            _ => Ok(()),
        }
    }

    /// Adds a record to what searches know of its call.
    fn add_to_call(
        &mut self,
        key: Vec<u8>,
        own: CallClass,
        facts: &IndexedFacts<'_>,
        text: &str,
    ) -> rusqlite::Result<()> {
        let largest = match self.largest.take() {
            Some(largest) => largest,
            None => self.conn.query_row("SELECT coalesce(max(call), x'') FROM calls", [], |row| row.get(0))?,
        };
        let is_last = key > largest;
        let known = match self.calls.get(&key) {
            Some(class) => Some(*class),
            None if is_last => None,
            None => class_of(self.conn, &key)?,
        };
        let class = known.map_or(own, |known| known.then(own));
        let both = own.names.each().into_iter().zip(class.names.each());
        let shared = facts.names.each().into_iter().zip(both).filter_map(|(name, (own, of_call))| match name {
            FactName::Listed(name) if own == of_call && ![ABSENT, UNLISTED].contains(own) => Some(&**name),
            _ => None,
        });
        let names: Vec<_> = shared.collect();
        self.blocks.add(self.conn, (&key, known.is_none(), is_last), text, &names)?;
        self.largest = Some(if is_last { key.clone() } else { largest });
        self.calls.insert(key, class);
        Ok(())
    }

    /// Stores the collected facts about calls. This comes before each commit, after which others may add to the index.
    fn store(&mut self) -> rusqlite::Result<()> {
        let mut insert = self.conn.prepare_cached("INSERT OR REPLACE INTO calls (call, class) VALUES (?1, ?2)")?;
        for (key, class) in std::mem::take(&mut self.calls) {
            insert.execute(params![key, self.vocabulary.class(self.conn, class)?])?;
        }
        self.largest = None;
        self.blocks.store(self.conn)
    }
}

/// Returns the class of a call that the index has.
pub(super) fn class_of(conn: &Connection, key: &[u8]) -> rusqlite::Result<Option<CallClass>> {
    let sql =
        "SELECT principal, profile, source, item, stage FROM calls JOIN classes ON classes.id = class WHERE call = ?1";
    conn.prepare_cached(sql)?.query_row([key], CallClass::read).optional()
}

/// Returns the class that a call has according to the index's own records of it; `None` if there are none.
pub(super) fn class_by_records(conn: &Connection, key: &[u8]) -> rusqlite::Result<Option<CallClass>> {
    let sql = "SELECT principal, profile, source, item, stage FROM events JOIN facts ON facts.id = events.facts \
               WHERE call = ?1 ORDER BY row";
    let mut query = conn.prepare_cached(sql)?;
    let mut classes = query.query_map([key], CallClass::read)?;
    classes.try_fold(None, |so_far: Option<CallClass>, class| {
        let class = class?;
        Ok(Some(so_far.map_or(class, |so_far| so_far.then(class))))
    })
}

impl ChainState {
    /// Asks for the state of a chain. This comes before its records are read, so that none comes in between.
    pub(super) fn of(data_dir: &Path, chain: &str) -> Self {
        let is_ended = chain::is_ended(data_dir, chain);
        let is_live = !is_ended && chain::is_live(data_dir, chain);
        let written = chain::witness(data_dir, chain).map_or(0, |tip| tip.seq);
        Self { is_ended, last: if is_live { written } else { u64::MAX }, written }
    }
}

impl Pending {
    /// Moves to the next record. A chain that cannot be read any further ends there, for this time.
    fn step(&mut self) {
        loop {
            if let Some(record) = self.records.next() {
                let facts = IndexedFacts::of(&record.text).into_owned();
                self.last = self.last.max(record.seq);
                self.next = Some((record, facts));
                return;
            }
            self.place = self.reader.place();
            let is_durable = |record: &ChainedRecord| record.seq <= self.state.last;
            let next = self.reader.next().inspect_err(|error| {
                tracing::warn!(%error, "a chain of the ledger cannot be read any further");
            });
            match next {
                Ok(Some(batch)) if batch.records.last().is_some_and(is_durable) => {
                    (self.place, self.records) = (batch.place, batch.records.into_iter());
                }
                _ => return,
            }
        }
    }
}
