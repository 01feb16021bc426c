//! The feed of sinks: the records of this chain in order, with a cursor for each sink.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::writer::LinkedChange;
use super::{Ledger, LedgerError};

/// The maximum record text in one batch, in bytes; a larger record is a batch of its own.
const MAX_BATCH_BYTES: usize = 1024 * 1024;

impl Ledger {
    /// Returns the next records for a sink, at most `max`, each as its number and its text as `audit tail --json`
    /// prints it. Returns the same records again until [`Ledger::advance`]. Empty if the sink has seen everything;
    /// [`Ledger::tip`] tells when there is more.
    ///
    /// # Errors
    /// [`LedgerError`] if the file cannot be read.
    pub async fn batch(&self, sink: &str, max: usize) -> Result<Vec<(u64, String)>, LedgerError> {
        let (sink, chain) = (sink.to_owned(), self.inner.chain.clone());
        self.read(move |conn| next(conn, &sink, &chain, max)).await
    }

    /// Records that a sink has received everything up to `seq`. The cursor never moves backwards.
    ///
    /// # Errors
    /// [`LedgerError`] if the cursor cannot be written; the sink then receives some records again.
    pub async fn advance(&self, sink: &str, seq: u64) -> Result<(), LedgerError> {
        self.write(None, LinkedChange::Advance { sink: sink.to_owned(), seq }).await.map(drop)
    }
}

fn next(conn: &Connection, sink: &str, chain: &str, max: usize) -> rusqlite::Result<Vec<(u64, String)>> {
    let cursor: Option<i64> = conn
        .prepare_cached("SELECT seq FROM cursors WHERE sink = ?1 AND chain = ?2")?
        .query_row([sink, chain], |row| row.get(0))
        .optional()?;
    let mut query =
        conn.prepare_cached("SELECT seq, record FROM events WHERE chain = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3")?;
    let limit = i64::try_from(max).unwrap_or(i64::MAX);
    let mut rows = query.query(params![chain, cursor.unwrap_or(0), limit])?;
    let (mut batch, mut size) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let text: String = row.get(1)?;
        size += text.len();
        if size > MAX_BATCH_BYTES && !batch.is_empty() {
            break;
        }
        batch.push((row.get::<_, i64>(0)?.cast_unsigned(), text));
    }
    Ok(batch)
}

pub(super) fn advance(conn: &Connection, sink: &str, chain: &str, seq: u64) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO cursors (sink, chain, seq) VALUES (?1, ?2, ?3) \
         ON CONFLICT (sink, chain) DO UPDATE SET seq = max(seq, excluded.seq)",
    )?
    .execute(params![sink, chain, seq.cast_signed()])?;
    Ok(())
}
