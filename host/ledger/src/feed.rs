//! The feed of sinks: the records of this chain in order, with a cursor for each sink.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension as _, params};

use super::storage::{ChainPosition, Storage};
use super::{Ledger, LedgerError};

/// The maximum record text in one batch, in bytes; a larger record is a separate batch.
const MAX_BATCH_BYTES: usize = 1024 * 1024;

/// The place in the chain of each sink's next record, so that a batch need not be looked for from the beginning.
pub(super) type SinkPositions = HashMap<String, ChainPosition>;

impl Ledger {
    /// Returns the next records for a sink, at most `max`, each as its number and its text as `audit tail --json`
    /// prints it. Returns the same records again until [`Ledger::advance`]. Empty if the sink has seen everything;
    /// [`Ledger::tip`] tells when there is more.
    ///
    /// # Errors
    /// [`LedgerError`] if the file cannot be read.
    pub async fn batch(&self, sink: &str, max: usize) -> Result<Vec<(u64, String)>, LedgerError> {
        let (sink, chain, durable) = (sink.to_owned(), self.inner.chain.clone(), *self.inner.tip.borrow());
        let inner = self.inner.clone();
        let cursor = self.state(move |conn| cursor(conn, &sink, &chain).map(|seq| (sink, seq))).await?;
        super::blocking(move || {
            let (sink, after) = cursor;
            let from = inner.places.lock().get(&sink).copied().unwrap_or_default();
            let (place, batch) = next(&*inner.storage, &inner.chain, from, after..durable, max)?;
            inner.places.lock().insert(sink, place);
            Ok(batch)
        })
        .await
    }

    /// Records that a sink has received everything up to `seq`. The cursor never moves backwards.
    ///
    /// # Errors
    /// [`LedgerError`] if the cursor cannot be written; the sink then receives some records again.
    pub async fn advance(&self, sink: &str, seq: u64) -> Result<(), LedgerError> {
        let (sink, chain) = (sink.to_owned(), self.inner.chain.clone());
        self.state(move |conn| advance(conn, &sink, &chain, seq)).await
    }
}

/// Returns the records after the first of these numbers and up to the last, and the place where they begin. `from` is a
/// place that is not behind the first of them.
pub(super) fn next(
    storage: &dyn Storage,
    chain: &str,
    from: ChainPosition,
    wanted: std::ops::Range<u64>,
    max: usize,
) -> Result<(ChainPosition, Vec<(u64, String)>), LedgerError> {
    let mut reader = storage.read(chain, from)?;
    let (mut place, mut batch, mut size) = (from, Vec::new(), 0);
    while let Some(stored) = reader.next()? {
        let before = batch.len();
        for record in stored.records {
            if record.seq <= wanted.start {
                continue;
            }
            size += record.text.len();
            let is_full = batch.len() >= max || (size > MAX_BATCH_BYTES && !batch.is_empty());
            if is_full || record.seq > wanted.end {
                return Ok((if batch.is_empty() { stored.place } else { place }, batch));
            }
            batch.push((record.seq, record.text));
        }
        if before == 0 {
            place = if batch.is_empty() { reader.place() } else { stored.place };
        }
    }
    Ok((place, batch))
}

/// Returns the number of the last record that a sink has received, or 0.
fn cursor(conn: &Connection, sink: &str, chain: &str) -> rusqlite::Result<u64> {
    let found: Option<i64> = conn
        .prepare_cached("SELECT seq FROM cursors WHERE sink = ?1 AND chain = ?2")?
        .query_row([sink, chain], |row| row.get(0))
        .optional()?;
    Ok(found.unwrap_or(0).cast_unsigned())
}

fn advance(conn: &Connection, sink: &str, chain: &str, seq: u64) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO cursors (sink, chain, seq) VALUES (?1, ?2, ?3) \
         ON CONFLICT (sink, chain) DO UPDATE SET seq = max(seq, excluded.seq)",
    )?
    .execute(params![sink, chain, seq.cast_signed()])?;
    Ok(())
}
