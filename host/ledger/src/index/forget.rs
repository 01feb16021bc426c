//! Records that were removed because of their age leave the index too.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use rusqlite::{OptionalExtension as _, params};

use super::add::class_by_records;
use super::vocabulary::Vocabulary;
use super::{RecordIndex, slices};
use crate::{LedgerError, segment};

/// The size of a file, and when it was written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileVersion(u64, SystemTime);

impl FileVersion {
    fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Self(found.len(), found.modified().ok()?))
    }
}

impl RecordIndex {
    /// Takes out the records that were removed because of their age. A file about them is read again only if it was
    /// replaced; one that cannot be read is a finding of a verification.
    ///
    /// # Errors
    /// [`LedgerError`] if the index cannot be written.
    pub(crate) fn forget_removed(&self) -> Result<(), LedgerError> {
        for chain in self.storage.removed_chains()? {
            let version = FileVersion::of(&segment::removed_path(&self.data_dir, &chain));
            if version.is_some() && self.forgotten.borrow().get(&chain) == version.as_ref() {
                continue;
            }
            let removed = self.storage.removed(&chain).unwrap_or_else(|error| {
                tracing::warn!(chain, %error, "removed records stay in the index");
                None
            });
            if let Some(removed) = removed {
                self.forget_first(&chain, removed.tip.seq.cast_signed())?;
            }
            self.forgotten.borrow_mut().extend(version.map(|version| (chain, version)));
        }
        Ok(())
    }

    /// Takes out the records of a chain up to this number, unless they are out.
    fn forget_first(&self, chain: &str, seq: i64) -> Result<(), LedgerError> {
        let sql = "SELECT removed FROM chains WHERE chain = ?1";
        let known = self.conn.prepare_cached(sql).and_then(|mut query| query.query_row([chain], |row| row.get(0)));
        let known: i64 = known.optional().map_err(|error| self.failed(&error))?.unwrap_or(0);
        if known < seq {
            let transaction = self.begin()?;
            let id = self.chain_id(chain)?;
            let noted = self
                .forget(id, seq)
                .and_then(|()| self.conn.execute("UPDATE chains SET removed = ?2 WHERE id = ?1", [id, seq]))
                .and_then(|_| transaction.commit());
            noted.map_err(|error| self.failed(&error))?;
        }
        Ok(())
    }

    /// Takes out the first records of a chain. Calls with remaining records have the facts of those.
    fn forget(&self, chain: i64, last: i64) -> rusqlite::Result<()> {
        let sql = "DELETE FROM events WHERE chain = ?1 AND seq <= ?2 RETURNING call";
        let gone: BTreeSet<Option<Vec<u8>>> =
            self.conn.prepare(sql)?.query_map([chain, last], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        let mut vocabulary = Vocabulary::default();
        for call in gone.into_iter().flatten() {
            match class_by_records(&self.conn, &call)? {
                None => self.conn.prepare_cached("DELETE FROM calls WHERE call = ?1")?.execute([&call])?,
                Some(class) => {
                    let class = vocabulary.class(&self.conn, class)?;
                    let sql = "UPDATE calls SET class = ?2 WHERE call = ?1";
                    self.conn.prepare_cached(sql)?.execute(params![call, class])?
                }
            };
        }
        // The block of the first call that is left is the last one that begins before it.
        let sql = "DELETE FROM blocks WHERE first < \
                   (SELECT max(first) FROM blocks WHERE first <= (SELECT min(call) FROM calls))";
        self.conn.execute(sql, [])?;
        slices::forget(&self.conn)
    }
}
