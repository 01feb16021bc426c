//! The filters of many blocks, bit by bit: which of 512 blocks have a text is known from some dozens of bits of each,
//! instead of by reading the filters in full.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::RecordIndex;
use super::blocks::{FILTER_BYTES, TextFilter, places};
use crate::text::TextQuery;

/// The number of blocks in a group.
const GROUP: usize = 512;

/// The length of a slice in bytes: one bit of each block of a group.
const SLICE: usize = GROUP / 8;

/// The blocks of a group that may have something, each by its bit.
type BlockSet = [u64; GROUP / 64];

/// A search for a text in blocks.
pub(crate) struct TextSearch<'a> {
    index: &'a RecordIndex,
    text: &'a TextQuery,
    /// The group that was used last, and which of its blocks may have the text.
    group: Option<(Group, BlockSet)>,
}

/// A group of blocks in the index.
struct Group {
    id: i64,
    first: Vec<u8>,
    last: Vec<u8>,
}

impl<'a> TextSearch<'a> {
    pub(crate) fn new(index: &'a RecordIndex, text: &'a TextQuery) -> Self {
        Self { index, text, group: None }
    }

    /// Reports whether a block may have the text. `firsts` are the first calls of all blocks, in order, and `at` is the
    /// place of the block among them.
    pub(crate) fn may_be_in(&mut self, firsts: &[Vec<u8>], at: usize) -> rusqlite::Result<bool> {
        let Some(first) = firsts.get(at) else { return Ok(false) };
        if !self.group.as_ref().is_some_and(|(group, _)| group.has(first)) {
            let Some(group) = group_of(&self.index.conn, first)? else {
                let filter = self.index.filter(first)?;
                return Ok(self.text.may_be_in(|gram| filter.has(gram)));
            };
            let set = self.blocks_of(group.id)?;
            self.group = Some((group, set));
        }
        let Some((group, set)) = &self.group else { return Ok(true) };
        // Old blocks may have been removed, and the group's first with them: then the bits cannot be distinguished.
        let number = firsts.binary_search(&group.first).ok().and_then(|begin| at.checked_sub(begin));
        let Some(number) = number.filter(|number| *number < GROUP) else { return Ok(true) };
        Ok(set.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1))
    }

    /// Returns the blocks of a group that may have the text.
    fn blocks_of(&self, group: i64) -> rusqlite::Result<BlockSet> {
        let mut all: BlockSet = [0; GROUP / 64];
        for grams in self.text.ways() {
            let mut set: BlockSet = [u64::MAX; GROUP / 64];
            for (byte, bit) in grams.iter().flat_map(|gram| places(*gram)) {
                let slice = slice(&self.index.conn, group, byte, bit)?;
                set.iter_mut().zip(slice).for_each(|(word, slice)| *word &= slice);
                if set == [0; GROUP / 64] {
                    break;
                }
            }
            all.iter_mut().zip(set).for_each(|(word, found)| *word |= found);
        }
        Ok(all)
    }
}

/// Reads one bit of each block of a group. One that is not there is set in all of them.
fn slice(conn: &Connection, group: i64, byte: usize, bit: u8) -> rusqlite::Result<BlockSet> {
    let sql = "SELECT bits FROM slices WHERE block_group = ?1 AND byte = ?2";
    let bits: Option<Vec<u8>> =
        conn.prepare_cached(sql)?.query_row(params![group, byte as i64], |row| row.get(0)).optional()?;
    let start = bit.trailing_zeros() as usize * SLICE;
    let mut set: BlockSet = [u64::MAX; GROUP / 64];
    if let Some(slice) = bits.as_deref().and_then(|bits| bits.get(start..start + SLICE)) {
        let (words, _) = slice.as_chunks::<8>();
        set.iter_mut().zip(words).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
    }
    Ok(set)
}

/// Brings groups up to date after these blocks were stored: groups with one of them are rebuilt, and each 512 blocks
/// that take no further calls become a group.
pub(super) fn update(conn: &Connection, stored: &[Vec<u8>]) -> rusqlite::Result<()> {
    let mut changed: Vec<Group> = Vec::new();
    for first in stored {
        if changed.last().is_none_or(|group| *first > group.last) {
            changed.extend(group_of(conn, first)?);
        }
    }
    for Group { id, first, last } in changed {
        write(conn, id, &first, &last)?;
    }
    loop {
        let end: Option<Vec<u8>> = conn.query_row("SELECT max(last) FROM block_groups", [], |row| row.get(0))?;
        // The last block takes further calls.
        let sql = "SELECT first FROM blocks WHERE ?1 IS NULL OR first > ?1 ORDER BY first LIMIT ?2";
        let next = conn
            .prepare_cached(sql)?
            .query_map(params![end, GROUP as i64 + 1], |row| row.get(0))?
            .collect::<rusqlite::Result<Vec<Vec<u8>>>>()?;
        let (Some(first), Some(last)) = (next.first(), next.get(GROUP - 1).filter(|_| next.len() > GROUP)) else {
            return Ok(());
        };
        conn.execute("INSERT INTO block_groups (first, last) VALUES (?1, ?2)", params![first, last])?;
        write(conn, conn.last_insert_rowid(), first, last)?;
    }
}

/// Takes out the groups whose first block was removed: their other blocks have their filters.
pub(super) fn forget(conn: &Connection) -> rusqlite::Result<()> {
    let gone = "FROM block_groups WHERE first NOT IN (SELECT first FROM blocks)";
    conn.execute(&format!("DELETE FROM slices WHERE block_group IN (SELECT id {gone})"), [])?;
    conn.execute(&format!("DELETE {gone}"), []).map(drop)
}

/// Reports whether the slices agree with the filters of their blocks, and each group begins with a block.
pub(super) fn agree(conn: &Connection) -> rusqlite::Result<bool> {
    // Another reader may add to a group meanwhile: all that is compared is of one moment.
    conn.execute_batch("BEGIN")?;
    let agree = agree_now(conn);
    conn.execute_batch("ROLLBACK")?;
    agree
}

fn agree_now(conn: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM block_groups WHERE first NOT IN (SELECT first FROM blocks))";
    if conn.query_row(sql, [], |row| row.get(0))? {
        return Ok(false);
    }
    let groups = conn
        .prepare("SELECT id, first, last FROM block_groups")?
        .query_map([], Group::read)?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let mut rows = conn.prepare("SELECT byte, bits FROM slices WHERE block_group = ?1 ORDER BY byte")?;
    for Group { id, first, last } in groups {
        let expected = slices(conn, &first, &last)?;
        let mut found = rows.query([id])?;
        for (byte, bits) in (0i64..).zip(expected.chunks(8 * SLICE)) {
            let Some(row) = found.next()? else { return Ok(false) };
            if row.get::<_, i64>(0)? != byte || row.get_ref(1)?.as_blob()? != bits {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Returns the group that a block belongs to, by the block's first call.
fn group_of(conn: &Connection, first: &[u8]) -> rusqlite::Result<Option<Group>> {
    let sql = "SELECT id, first, last FROM block_groups WHERE first <= ?1 ORDER BY first DESC LIMIT 1";
    let group = conn.prepare_cached(sql)?.query_row([first], Group::read).optional()?;
    Ok(group.filter(|group| group.has(first)))
}

fn write(conn: &Connection, group: i64, first: &[u8], last: &[u8]) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO slices (block_group, byte, bits) VALUES (?1, ?2, ?3)";
    let mut insert = conn.prepare_cached(sql)?;
    for (byte, bits) in (0i64..).zip(slices(conn, first, last)?.chunks(8 * SLICE)) {
        insert.execute(params![group, byte, bits])?;
    }
    Ok(())
}

/// Returns the slices of a group from the filters of its blocks: for each byte of a filter its eight bits, each of all
/// blocks.
fn slices(conn: &Connection, first: &[u8], last: &[u8]) -> rusqlite::Result<Vec<u8>> {
    let mut slices = vec![0; FILTER_BYTES * 8 * SLICE];
    let mut query = conn.prepare_cached("SELECT filter FROM blocks WHERE first BETWEEN ?1 AND ?2 ORDER BY first")?;
    let filters = query.query_map([first, last], |row| row.get(0).map(TextFilter::stored))?;
    for (number, filter) in filters.take(GROUP).enumerate() {
        let filter = filter?;
        for (byte, bits) in filter.bytes().iter().enumerate() {
            let mut left = *bits;
            while left != 0 {
                let bit = left.trailing_zeros() as usize;
                if let Some(slice) = slices.get_mut((byte * 8 + bit) * SLICE + number / 8) {
                    *slice |= 1 << (number % 8);
                }
                left &= left - 1;
            }
        }
    }
    Ok(slices)
}

impl Group {
    /// Reports whether a block is one of the group's, by its first call.
    fn has(&self, first: &[u8]) -> bool {
        *self.first <= *first && *first <= *self.last
    }

    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { id: row.get(0)?, first: row.get(1)?, last: row.get(2)? })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use std::sync::Arc;

    use super::*;
    use crate::index::SCHEMA;
    use crate::segment::Segments;
    use crate::storage::StorageLimits;
    use crate::text::grams;

    /// Returns an index without calls.
    fn empty(dir: &std::path::Path) -> RecordIndex {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(SCHEMA).unwrap();
        let storage = Arc::new(Segments::new(dir, StorageLimits::default()));
        let (forgotten, damaged) = Default::default();
        RecordIndex { conn, data_dir: dir.to_owned(), storage, legacy: None, forgotten, damaged }
    }

    fn key(number: usize) -> Vec<u8> {
        if number == 0 { Vec::new() } else { (number as u128).to_be_bytes().to_vec() }
    }

    /// Stores a block with some texts.
    fn store(conn: &Connection, number: usize, texts: &[&str]) {
        let mut filter = vec![0; FILTER_BYTES];
        let mut add = |gram| places(gram).for_each(|(byte, bit)| filter[byte] |= bit);
        texts.iter().for_each(|text| grams(text, &mut add));
        let sql = "INSERT OR REPLACE INTO blocks (first, calls, filter) VALUES (?1, 1, ?2)";
        conn.execute(sql, params![key(number), filter]).unwrap();
    }

    /// Returns the blocks that may have a text, which must be those whose filters say so.
    fn found(index: &RecordIndex, text: &str) -> Vec<usize> {
        let (text, firsts) = (TextQuery::new(text), index.blocks().unwrap());
        let by_filter = |first: &Vec<u8>| {
            let filter = index.filter(first).unwrap();
            text.may_be_in(|gram| filter.has(gram))
        };
        for places in [(0..firsts.len()).collect::<Vec<_>>(), (0..firsts.len()).rev().collect()] {
            let mut search = TextSearch::new(index, &text);
            for at in places {
                let may = search.may_be_in(&firsts, at).unwrap();
                assert_eq!(may, by_filter(&firsts[at]), "block {at}");
            }
        }
        (0..firsts.len()).filter(|at| by_filter(&firsts[*at])).collect()
    }

    fn groups(index: &RecordIndex) -> i64 {
        index.conn.query_row("SELECT count(*) FROM block_groups", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_search_through_slices_finds_the_blocks_that_the_filters_say() {
        let dir = tempfile::tempdir().unwrap();
        let index = empty(dir.path());
        for number in 0..2 * GROUP + 100 {
            let word = format!("word-{number}");
            store(&index.conn, number, &["in every block", &word]);
        }
        update(&index.conn, &[]).unwrap();
        assert_eq!(groups(&index), 2, "the last block may take further calls");
        assert_eq!(found(&index, "every block").len(), 2 * GROUP + 100);
        assert!(found(&index, "word-700").contains(&700));
        assert!(found(&index, "nowhere to be found").is_empty());
        assert!(agree(&index.conn).unwrap());

        // A call of an old block gets another record.
        store(&index.conn, 700, &["in every block", "a later record"]);
        assert!(!agree(&index.conn).unwrap(), "a difference is found");
        update(&index.conn, &[key(700)]).unwrap();
        assert!(agree(&index.conn).unwrap());
        assert_eq!(found(&index, "a later record"), [700]);

        // Old blocks are removed, and a part of the first group with them.
        index.conn.execute("DELETE FROM blocks WHERE first < ?1", [key(100)]).unwrap();
        forget(&index.conn).unwrap();
        assert_eq!(groups(&index), 1);
        // Blocks before the first remaining one count as having every text.
        assert_eq!(found(&index, "a later record"), [0, 701 - 100]);
        assert!(agree(&index.conn).unwrap());
    }

    #[test]
    fn a_changed_or_missing_slice_is_a_difference_and_a_missing_one_hides_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let index = empty(dir.path());
        (0..=GROUP).for_each(|number| store(&index.conn, number, &["in every block"]));
        update(&index.conn, &[]).unwrap();
        index.conn.execute("UPDATE slices SET bits = zeroblob(512) WHERE bits <> zeroblob(512)", []).unwrap();
        assert!(!agree(&index.conn).unwrap());
        index.conn.execute("DELETE FROM slices", []).unwrap();
        assert!(!agree(&index.conn).unwrap());
        // After the removal of the group's first block, the slices would be those of other blocks.
        index.conn.execute("DELETE FROM blocks WHERE first = x''", []).unwrap();
        let group = group_of(&index.conn, &key(5)).unwrap().unwrap();
        write(&index.conn, group.id, &group.first, &group.last).unwrap();
        assert!(!agree(&index.conn).unwrap());
        let (text, firsts) = (TextQuery::new("every block"), index.blocks().unwrap());
        assert!(TextSearch::new(&index, &text).may_be_in(&firsts, 3).unwrap());
    }
}
