//! Records that format 1 of the ledger wrote, in a table of the SQLite file. They are read where they are.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension as _, Row};

use super::chain::ChainTip;

/// The SQL that created the table, its indices and its views.
pub(super) const SCHEMA: &str = include_str!("legacy.sql");

/// Reports whether the file was begun by format 1.
pub(super) fn is_present(conn: &Connection) -> rusqlite::Result<bool> {
    conn.query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'events'", [], |row| row.get(0))
}

/// Returns the last record of a chain, or `None` if it has none there.
pub(super) fn tip(conn: &Connection, chain: &str) -> rusqlite::Result<Option<ChainTip>> {
    let sql = "SELECT seq, hash FROM events WHERE chain = ?1 ORDER BY seq DESC LIMIT 1";
    let tip = |row: &Row<'_>| Ok(ChainTip { seq: row.get::<_, i64>(0)?.cast_unsigned(), hash: row.get(1)? });
    conn.prepare_cached(sql)?.query_row([chain], tip).optional()
}

/// Returns the chains that have their own end or a seal there.
pub(super) fn ended(conn: &Connection) -> rusqlite::Result<HashSet<String>> {
    // The last conditions let SQLite use the index, which omits the two kinds that every call has.
    let sql = "SELECT chain FROM events WHERE kind = 'broker.stopped' AND kind NOT IN ('call.intent', 'tool.completed') \
               UNION ALL SELECT record ->> '$.body.chain' FROM events WHERE kind = 'chain.sealed' \
               AND kind NOT IN ('call.intent', 'tool.completed')";
    let mut query = conn.prepare(sql)?;
    let found = query.query_map([], |row| row.get::<_, Option<String>>(0))?;
    found.filter_map(Result::transpose).collect()
}
