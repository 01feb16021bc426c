//! Records that were removed because of their age leave the index too.

use rusqlite::OptionalExtension as _;

use super::RecordIndex;
use crate::LedgerError;

impl RecordIndex {
    /// Takes out the records that were removed because of their age.
    ///
    /// # Errors
    /// [`LedgerError`] if the index cannot be written.
    pub(crate) fn forget_removed(&self) -> Result<(), LedgerError> {
        let chains = self.storage.removed_chains()?;
        if chains.is_empty() {
            return Ok(());
        }
        let sql = "SELECT removed FROM chains WHERE chain = ?1";
        for chain in chains {
            let Some(removed) = self.storage.removed(&chain)? else { continue };
            let known = self.conn.prepare_cached(sql).and_then(|mut query| query.query_row([&chain], |row| row.get(0)));
            let known: i64 = known.optional().map_err(|error| self.failed(&error))?.unwrap_or(0);
            let seq = removed.tip.seq.cast_signed();
            if known < seq {
                let transaction = self.begin()?;
                let id = self.chain_id(&chain)?;
                let forgotten = self.conn.execute("DELETE FROM events WHERE chain = ?1 AND seq <= ?2", [id, seq]);
                let noted = forgotten
                    .and_then(|_| self.conn.execute("UPDATE chains SET removed = ?2 WHERE id = ?1", [id, seq]))
                    .and_then(|_| transaction.commit());
                noted.map_err(|error| self.failed(&error))?;
            }
        }
        Ok(())
    }
}
