//! Filters of the texts in blocks of calls, so that a search by text reads only blocks that may have it.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use rusqlite::{Connection, OptionalExtension as _, params};

use super::slices;
use crate::text::{folded, grams, scalars, searchable};

/// The size of a filter in bytes. A gram's hash has four numbers of 14 bits; each names one bit.
pub(super) const FILTER_BYTES: usize = 1 << 11;

/// The number of bits from which on a filter takes no further calls: three in ten, so that a gram that nobody added is
/// found in one filter of a hundred.
const MAX_BITS: u32 = (FILTER_BYTES * 8 / 10 * 3) as u32;

/// The largest number of calls in a block. A search reads a block within a millisecond or two.
const MAX_CALLS: u32 = 256;

/// The largest number of texts that are remembered as having their grams in a block.
const MAX_SEEN: usize = 1 << 16;

/// The number of texts that are compared before their hashes are: most texts of a record are those of the one before.
const RECENT: usize = 256;

/// A Bloom filter of grams.
pub(crate) struct TextFilter(Vec<u8>);

/// The blocks to which texts are added, until they are stored.
pub(super) struct TextBlocks {
    /// The blocks that were read or begun, by their first calls.
    open: BTreeMap<Vec<u8>, TextBlock>,
    /// The first call of the last block, if that is known.
    last: Option<Vec<u8>>,
    /// The block to which a text was added last, and the texts whose grams it has.
    seen: (Vec<u8>, SeenTexts),
}

/// The texts whose grams a block has.
#[derive(Default)]
pub(super) struct SeenTexts {
    /// Some of them, each at a place that its length and ends decide.
    recent: Vec<Box<str>>,
    /// The hashes of all, which nobody outside can predict.
    hashes: HashSet<u64>,
    hasher: RandomState,
}

struct TextBlock {
    filter: TextFilter,
    calls: u32,
}

impl TextFilter {
    /// Takes a filter from the index. One of another size has every gram.
    pub(crate) fn stored(bytes: Vec<u8>) -> Self {
        Self(if bytes.len() == FILTER_BYTES { bytes } else { vec![0xff; FILTER_BYTES] })
    }

    /// Reports whether the filter has a gram, or seems to.
    pub(crate) fn has(&self, gram: u64) -> bool {
        places(gram).all(|(byte, bit)| self.0.get(byte).is_some_and(|byte| byte & bit != 0))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn add(&mut self, gram: u64) {
        for (byte, bit) in places(gram) {
            if let Some(byte) = self.0.get_mut(byte) {
                *byte |= bit;
            }
        }
    }

    fn is_full(&self) -> bool {
        self.0.iter().map(|byte| byte.count_ones()).sum::<u32>() > MAX_BITS
    }
}

/// Returns the bits of a gram, each by its byte and its value there.
pub(super) fn places(gram: u64) -> impl Iterator<Item = (usize, u8)> {
    (0..4).map(move |part| {
        let place = (gram >> (16 * part)) & 0x3fff;
        ((place >> 3) as usize, 1 << (place & 7))
    })
}

/// Calls `take` with each text of a record that a filter must have: all but these names, which the call's class has.
pub(super) fn texts_of(record: &str, names: &[&str], take: impl FnMut(&str)) {
    let text = folded(searchable(record));
    let names: Vec<_> = names.iter().map(|name| folded(name)).collect();
    scalars(&text).filter(|scalar| !names.iter().any(|name| name == scalar)).for_each(take);
}

impl SeenTexts {
    /// Reports whether a text was not seen yet, as far as is known, and remembers it.
    pub(super) fn is_new(&mut self, text: &str) -> bool {
        self.recent.resize(RECENT, Box::from(""));
        let bytes = text.as_bytes();
        let (first, last) = (bytes.first().copied().unwrap_or(0), bytes.last().copied().unwrap_or(0));
        let place = usize::from(first ^ last.rotate_left(4)).wrapping_add(31 * bytes.len()) % RECENT;
        if let Some(recent) = self.recent.get_mut(place) {
            if **recent == *text {
                return false;
            }
            *recent = text.into();
        }
        if self.hashes.len() > MAX_SEEN {
            self.hashes.clear();
        }
        self.hashes.insert(self.hasher.hash_one(text))
    }
}

/// Returns the first call of the stored block that a call belongs to.
pub(super) fn block_before(conn: &Connection, key: &[u8]) -> rusqlite::Result<Option<Vec<u8>>> {
    let sql = "SELECT first FROM blocks WHERE first <= ?1 ORDER BY first DESC LIMIT 1";
    conn.prepare_cached(sql)?.query_row([key], |row| row.get(0)).optional()
}

/// Returns the first call of the stored block after the one that a call belongs to.
pub(super) fn block_after(conn: &Connection, key: &[u8]) -> rusqlite::Result<Option<Vec<u8>>> {
    let sql = "SELECT first FROM blocks WHERE first > ?1 ORDER BY first LIMIT 1";
    conn.prepare_cached(sql)?.query_row([key], |row| row.get(0)).optional()
}

impl TextBlocks {
    pub(super) fn new() -> Self {
        Self { open: BTreeMap::new(), last: None, seen: Default::default() }
    }

    /// Adds the texts of a record of a call, all but these names. `is_last` says that no call after this one is known
    /// yet.
    pub(super) fn add(
        &mut self,
        conn: &Connection,
        (key, is_new, is_last): (&[u8], bool, bool),
        record: &str,
        names: &[&str],
    ) -> rusqlite::Result<()> {
        let first = self.block_of(conn, key, is_last)?;
        if self.seen.0 != first {
            self.seen = (first.clone(), SeenTexts::default());
        }
        let Some(block) = self.open.get_mut(&first) else { return Ok(()) };
        block.calls += u32::from(is_new);
        texts_of(record, names, |text| {
            if self.seen.1.is_new(text) {
                grams(text, |gram| block.filter.add(gram));
            }
        });
        Ok(())
    }

    /// Returns the first call of the block that a call belongs to. A call after all others begins a block if the last
    /// one is full.
    fn block_of(&mut self, conn: &Connection, key: &[u8], is_last: bool) -> rusqlite::Result<Vec<u8>> {
        let last = match self.last.take() {
            Some(last) => last,
            None => conn.query_row("SELECT coalesce(max(first), x'') FROM blocks", [], |row| row.get(0))?,
        };
        if key < &*last {
            self.last = Some(last);
            let begun = self.open.range(..=key.to_vec()).next_back().map(|(first, _)| first.clone());
            let first = block_before(conn, key)?.max(begun).unwrap_or_default();
            return self.read(conn, first);
        }
        let last = self.read(conn, last)?;
        let is_full = self.open.get(&last).is_some_and(|block| {
            // Bits are counted now and then.
            block.calls >= MAX_CALLS || (block.calls % 16 == 0 && block.filter.is_full())
        });
        let first = if is_last && is_full { key.to_vec() } else { last };
        self.last = Some(first.clone());
        self.read(conn, first)
    }

    /// Makes a block available, which is read if it is stored.
    fn read(&mut self, conn: &Connection, first: Vec<u8>) -> rusqlite::Result<Vec<u8>> {
        if !self.open.contains_key(&first) {
            let sql = "SELECT filter, calls FROM blocks WHERE first = ?1";
            let stored = conn.prepare_cached(sql)?.query_row([&first], |row| {
                Ok(TextBlock { filter: TextFilter::stored(row.get(0)?), calls: row.get(1)? })
            });
            let begun = || TextBlock { filter: TextFilter(vec![0; FILTER_BYTES]), calls: 0 };
            self.open.insert(first.clone(), stored.optional()?.unwrap_or_else(begun));
        }
        Ok(first)
    }

    /// Stores all blocks, and forgets them: others may write the index before more is added.
    pub(super) fn store(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        let sql = "INSERT OR REPLACE INTO blocks (first, calls, filter) VALUES (?1, ?2, ?3)";
        let mut insert = conn.prepare_cached(sql)?;
        let mut stored = Vec::new();
        for (first, block) in std::mem::take(&mut self.open) {
            insert.execute(params![first, block.calls, block.filter.0])?;
            stored.push(first);
        }
        slices::update(conn, &stored)?;
        self.last = None;
        self.seen = Default::default();
        Ok(())
    }
}
