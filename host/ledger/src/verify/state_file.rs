//! The check of the file of the state, and of the records that format 1 wrote into it.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::Connection;

use super::walk::VerificationPass;
use crate::state::{self, schema_for, schema_of};
use crate::storage::Storage;
use crate::{LedgerError, legacy};

/// Checks the file of the state, and the records that format 1 wrote into it. Returns the fault in the file.
pub(super) fn check_state(
    data_dir: &Path,
    walk: &mut VerificationPass,
    locks: &BTreeSet<String>,
    storage: &dyn Storage,
) -> Result<Option<String>, LedgerError> {
    let checked = state::open_reader(data_dir)
        .and_then(|conn| check_file(&conn, walk).map_err(|error| state::error(data_dir, &error)));
    match checked {
        Err(LedgerError::Missing(_))
            if !locks.is_empty() || !walk.checkpoints.is_empty() || !storage.chains()?.is_empty() =>
        {
            Ok(None)
        }
        Err(LedgerError::Damaged { cause, .. } | LedgerError::Store { cause, .. }) => Ok(Some(cause)),
        Err(LedgerError::Foreign(_)) => Ok(Some("the file is not a ledger any more".into())),
        checked => checked,
    }
}

/// Checks the records first, so that a bad one is named even if the file around it is damaged too.
fn check_file(conn: &Connection, walk: &mut VerificationPass) -> rusqlite::Result<Option<String>> {
    // One snapshot serves all queries; it ends with the connection.
    conn.execute_batch("BEGIN")?;
    let has_records = legacy::is_present(conn)?;
    if has_records {
        // This reads the table itself, in the order of writing: an index could hide rows, and sorting would copy them
        // all.
        let mut query = conn.prepare("SELECT chain, seq, record, hash FROM events NOT INDEXED ORDER BY row")?;
        let mut rows = query.query([])?;
        loop {
            match rows.next() {
                Ok(Some(row)) => walk.legacy_step(row)?,
                Ok(None) => break,
                Err(error) => return Ok(Some(error.to_string())),
            }
        }
    }
    if let Some(problem) = check_schema(conn, has_records)? {
        return Ok(Some(problem));
    }
    if ends_within_a_page(conn)? {
        return Ok(Some("the file ends within a page: its end is missing".into()));
    }
    let integrity: String = conn.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    Ok((integrity != "ok").then_some(integrity))
}

/// Reports whether the file is cut in the middle of a page. SQLite reads the missing bytes as zeros, so a cut through
/// bytes that were zero would not show. SQLite writes whole pages, also while this reads.
fn ends_within_a_page(conn: &Connection) -> rusqlite::Result<bool> {
    let page: i64 = conn.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    let length = conn.path().and_then(|path| std::fs::metadata(path).ok()).map_or(0, |file| file.len());
    Ok(!length.is_multiple_of(page.cast_unsigned()))
}

/// Compares the schema with the broker's own: an added or changed view or trigger could show or do something that the
/// records do not say.
fn check_schema(conn: &Connection, has_records: bool) -> rusqlite::Result<Option<String>> {
    let ours = Connection::open_in_memory()?;
    ours.execute_batch(schema_for(conn)?)?;
    if has_records {
        ours.execute_batch(legacy::SCHEMA)?;
    }
    let (ours, found) = (schema_of(&ours)?, schema_of(conn)?);
    let differs = |(name, sql): &(&String, &String)| ours.get(*name) != Some(*sql) || found.get(*name) != Some(*sql);
    let first = ours.iter().chain(&found).find(differs);
    Ok(first.map(|(name, _)| format!("{name:?} in the database is not as the broker creates it")))
}
