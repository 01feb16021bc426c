//! Seals. The chain of a broker that died has no end of its own; the next broker records its end in its own chain. From
//! then on the dead chain is complete, and a missing or an additional record is tampering.

use std::collections::HashSet;
use std::path::Path;

use portcullis_core::digest::hex;
use rusqlite::{Connection, OptionalExtension as _};
use serde_json::json;

use super::chain::{self, ChainTip};
use super::record::{Event, EventKind};
use super::{LedgerError, store};

/// The end of the chain of a broker that died.
#[derive(Debug)]
pub(super) struct ChainSeal {
    pub(super) chain: String,
    end: ChainTip,
}

impl ChainSeal {
    /// Returns the event that seals the chain.
    pub(super) fn event(&self) -> Event {
        let ChainTip { seq, hash } = self.end;
        Event::new(EventKind::ChainSealed, json!({ "chain": self.chain, "seq": seq, "hash": hex(&hash) }))
    }
}

/// Returns the seals for chains without an end whose brokers are certainly dead. A chain with fewer records than its
/// broker had written is sealed where the broker had come, so that the missing records are noticed.
pub(super) fn due(conn: &Connection, data_dir: &Path) -> Result<Vec<ChainSeal>, LedgerError> {
    let failed = |error: rusqlite::Error| store::error(data_dir, &error);
    let ended = ended(conn).map_err(failed)?;
    let mut due = Vec::new();
    for chain in chain::all(data_dir)? {
        if ended.contains(&chain) || !chain::is_dead(data_dir, &chain) {
            continue;
        }
        let found = chain::tip(conn, &chain).map_err(failed)?;
        let end = match chain::witness(data_dir, &chain) {
            Some(witness) if witness.seq > found.seq => witness,
            _ => found,
        };
        due.push(ChainSeal { chain, end });
    }
    Ok(due)
}

/// Reports whether a chain is sealed. It runs in the transaction that would seal it, so that only one of several
/// brokers that start together does.
pub(super) fn is_sealed(conn: &Connection, chain: &str) -> rusqlite::Result<bool> {
    // The second condition lets SQLite use the index, which omits the two kinds that every call has.
    let sql = "SELECT 1 FROM events WHERE kind = 'chain.sealed' AND kind NOT IN ('call.intent', 'tool.completed') \
               AND record ->> '$.body.chain' = ?1";
    conn.prepare_cached(sql)?.query_row([chain], |_| Ok(())).optional().map(|found| found.is_some())
}

/// Returns the chains that have an end of their own or a seal.
fn ended(conn: &Connection) -> rusqlite::Result<HashSet<String>> {
    let sql = "SELECT chain FROM events WHERE kind = 'broker.stopped' AND kind NOT IN ('call.intent', 'tool.completed') \
               UNION ALL SELECT record ->> '$.body.chain' FROM events WHERE kind = 'chain.sealed' \
               AND kind NOT IN ('call.intent', 'tool.completed')";
    let mut query = conn.prepare(sql)?;
    let found = query.query_map([], |row| row.get::<_, Option<String>>(0))?;
    found.filter_map(Result::transpose).collect()
}
