//! The calls in the index, as searches ask for them.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use rusqlite::{Connection, Statement, params};

use super::RecordIndex;
use super::blocks::TextFilter;
use super::vocabulary::CallClass;
use crate::storage::ChainPosition;

/// The number of classes from which on all calls of a span are looked at, instead of each class separately.
const MAX_MERGED: usize = 10_000;

/// The largest number of calls of one class that are read at once.
const MAX_READ: i64 = 256;

/// The calls that a walk goes over.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WalkedCalls<'a> {
    All,
    /// Those of these classes.
    OfClasses(&'a [i64]),
}

/// A record of a call, and its place.
pub(crate) struct IndexedRecord {
    pub(crate) call: Vec<u8>,
    pub(crate) chain: Arc<str>,
    pub(crate) seq: u64,
    pub(crate) place: ChainPosition,
}

/// The calls of one class that come next.
struct ClassCursor {
    class: i64,
    span: Range<Vec<u8>>,
    read: VecDeque<Vec<u8>>,
    /// The number of calls to read next; 0 after the last.
    chunk: i64,
}

impl RecordIndex {
    /// Returns all classes by their numbers.
    pub(crate) fn classes(&self) -> rusqlite::Result<Vec<(i64, CallClass)>> {
        let mut query =
            self.connection().prepare_cached("SELECT principal, profile, source, item, stage, id FROM classes")?;
        let rows = query.query_map([], |row| Ok((row.get(5)?, CallClass::read(row)?)))?;
        rows.collect()
    }

    /// Returns all listed names by their numbers.
    pub(crate) fn names(&self) -> rusqlite::Result<HashMap<i64, String>> {
        let mut query = self.connection().prepare_cached("SELECT id, name FROM names")?;
        query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    }

    /// Returns the first calls of all blocks, in order; the first block begins before every call.
    pub(crate) fn blocks(&self) -> rusqlite::Result<Vec<Vec<u8>>> {
        let mut query =
            self.connection().prepare_cached("SELECT first FROM blocks WHERE first > x'' ORDER BY first")?;
        let stored = query.query_map([], |row| row.get(0))?;
        std::iter::once(Ok(Vec::new())).chain(stored).collect()
    }

    /// Returns the filter of a block by its first call. A block that is not there has every text.
    pub(crate) fn filter(&self, first: &[u8]) -> rusqlite::Result<TextFilter> {
        let mut query = self.connection().prepare_cached("SELECT filter FROM blocks WHERE first = ?1")?;
        let mut rows = query.query([first])?;
        let filter = rows.next()?.map(|row| row.get(0)).transpose()?;
        Ok(TextFilter::stored(filter.unwrap_or_default()))
    }

    /// Returns the records of the calls of a span, in their order.
    pub(crate) fn records_of_calls(&self, span: &Range<Vec<u8>>) -> rusqlite::Result<Vec<IndexedRecord>> {
        let mut query = self.connection().prepare_cached(
            "SELECT call, events.chain, seq, segment, offset FROM events WHERE call >= ?1 AND call < ?2 \
             ORDER BY events.chain, seq",
        )?;
        let chains = self.chain_names()?;
        let rows = query.query_map(params![span.start, span.end], |row| {
            let place = ChainPosition { segment: row.get(3)?, offset: row.get::<_, i64>(4)?.cast_unsigned() };
            let chain = chains.get(&row.get(1)?).cloned().unwrap_or_else(|| Arc::from(""));
            Ok(IndexedRecord { call: row.get(0)?, chain, seq: row.get::<_, i64>(2)?.cast_unsigned(), place })
        })?;
        rows.collect()
    }

    fn chain_names(&self) -> rusqlite::Result<HashMap<i64, Arc<str>>> {
        let mut query = self.connection().prepare_cached("SELECT id, chain FROM chains")?;
        query.query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?.into())))?.collect()
    }

    /// Calls `visit` with the calls of a span in order until it breaks or fails.
    pub(crate) fn walk<E: From<rusqlite::Error>>(
        &self,
        span: Range<Vec<u8>>,
        calls: WalkedCalls<'_>,
        newest_first: bool,
        mut visit: impl FnMut(&[u8]) -> Result<ControlFlow<()>, E>,
    ) -> Result<ControlFlow<()>, E> {
        match calls {
            WalkedCalls::OfClasses(classes) if classes.len() <= MAX_MERGED => {
                merge(self.connection(), &span, classes, newest_first, visit)
            }
            calls => {
                let classes: Option<HashSet<i64>> = match calls {
                    WalkedCalls::All => None,
                    WalkedCalls::OfClasses(classes) => Some(classes.iter().copied().collect()),
                };
                let order = if newest_first { "DESC" } else { "ASC" };
                let sql = format!("SELECT call, class FROM calls WHERE call >= ?1 AND call < ?2 ORDER BY call {order}");
                let mut query = self.connection().prepare_cached(&sql)?;
                let mut rows = query.query(params![span.start, span.end])?;
                while let Some(row) = rows.next()? {
                    let class = row.get(1)?;
                    if classes.as_ref().is_none_or(|classes| classes.contains(&class)) {
                        let call: Vec<u8> = row.get(0)?;
                        if visit(&call)?.is_break() {
                            return Ok(ControlFlow::Break(()));
                        }
                    }
                }
                Ok(ControlFlow::Continue(()))
            }
        }
    }
}

/// Walks over the calls of some classes in order.
fn merge<E: From<rusqlite::Error>>(
    conn: &Connection,
    span: &Range<Vec<u8>>,
    classes: &[i64],
    newest_first: bool,
    mut visit: impl FnMut(&[u8]) -> Result<ControlFlow<()>, E>,
) -> Result<ControlFlow<()>, E> {
    let order = if newest_first { "DESC" } else { "ASC" };
    let mut query = conn.prepare_cached(&format!(
        "SELECT call FROM calls WHERE class = ?1 AND call >= ?2 AND call < ?3 ORDER BY call {order} LIMIT ?4"
    ))?;
    let cursor = |class: &i64| ClassCursor { class: *class, span: span.clone(), read: VecDeque::new(), chunk: 1 };
    let mut cursors: Vec<_> = classes.iter().map(cursor).collect();
    let mut next = BTreeMap::new();
    for (i, cursor) in cursors.iter_mut().enumerate() {
        next.extend(cursor.next(&mut query, newest_first)?.map(|call| (call, i)));
    }
    while let Some((call, i)) = if newest_first { next.pop_last() } else { next.pop_first() } {
        if visit(&call)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        if let Some(cursor) = cursors.get_mut(i) {
            next.extend(cursor.next(&mut query, newest_first)?.map(|call| (call, i)));
        }
    }
    Ok(ControlFlow::Continue(()))
}

impl ClassCursor {
    fn next(&mut self, query: &mut Statement<'_>, newest_first: bool) -> rusqlite::Result<Option<Vec<u8>>> {
        if self.read.is_empty() && self.chunk > 0 {
            let values = params![self.class, self.span.start, self.span.end, self.chunk];
            let read = query.query_map(values, |row| row.get(0))?.collect::<rusqlite::Result<VecDeque<Vec<u8>>>>()?;
            self.chunk = if (read.len() as i64) < self.chunk { 0 } else { (4 * self.chunk).min(MAX_READ) };
            match read.back() {
                Some(last) if newest_first => self.span.end.clone_from(last),
                // The smallest key after it.
                Some(last) => self.span.start = [last, &[0][..]].concat(),
                None => {}
            }
            self.read = read;
        }
        Ok(self.read.pop_front())
    }
}
