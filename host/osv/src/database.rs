//! The indexed file, and look-ups in it.

use std::path::{Path, PathBuf};

use portcullis_core::private;
use rusqlite::{Connection, OpenFlags};

use crate::affected::{AffectedPackage, Ecosystem};
use crate::{OsvCheck, OsvEdition, OsvError, OsvMatch};

/// The version of the file's tables.
pub(crate) const FORMAT: i64 = 1;

/// The largest number of records about the packages of one source that are reported.
const MAX_MATCHES: usize = 1000;

/// An indexed database of OSV, open for look-ups. A newer one that replaces the file meanwhile is not seen.
#[derive(Debug)]
pub struct OsvDatabase {
    path: PathBuf,
    tables: Connection,
    edition: OsvEdition,
}

impl OsvDatabase {
    /// Opens a database. Returns `None` if there is no file.
    ///
    /// # Errors
    /// [`OsvError`] if others may write to the file, or if it is not what this version wrote.
    pub fn open(path: &Path) -> Result<Option<Self>, OsvError> {
        if private::open(path)?.is_none() {
            return Ok(None);
        }
        let damaged = |error: rusqlite::Error| OsvError::damaged(path, error);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let tables = Connection::open_with_flags(path, flags).map_err(damaged)?;
        let format: i64 = tables.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(damaged)?;
        if format != FORMAT {
            return Err(OsvError::damaged(path, format!("it has format {format}, and this version reads {FORMAT}")));
        }
        let edition = tables
            .query_row("SELECT date, records FROM edition", [], |row| {
                Ok(OsvEdition { date: row.get(0)?, records: row.get::<_, u32>(1)?.into() })
            })
            .map_err(damaged)?;
        Ok(Some(Self { path: path.to_owned(), tables, edition }))
    }

    /// Returns the edition of the database.
    #[must_use]
    pub fn edition(&self) -> &OsvEdition {
        &self.edition
    }

    /// Looks up packages by name and version.
    ///
    /// # Errors
    /// [`OsvError::Damaged`]
    pub fn check<'a>(
        &self,
        ecosystem: Ecosystem,
        packages: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<OsvCheck, OsvError> {
        let mut check = OsvCheck { database: Some(self.edition.clone()), ..OsvCheck::default() };
        let damaged = |error: rusqlite::Error| OsvError::damaged(&self.path, error);
        let query = "SELECT id, summary, versions FROM affected WHERE ecosystem = ?1 AND name = ?2 ORDER BY id";
        let mut query = self.tables.prepare(query).map_err(damaged)?;
        for (name, version) in packages {
            check.packages += 1;
            let mut rows = query.query((ecosystem.as_str(), ecosystem.normal(name))).map_err(damaged)?;
            while let Some(row) = rows.next().map_err(damaged)? {
                let text = |column: usize| row.get::<_, String>(column).map_err(damaged);
                let affected: AffectedPackage =
                    serde_json::from_str(&text(2)?).map_err(|error| OsvError::damaged(&self.path, error))?;
                let id = text(0)?;
                let known = check
                    .matches
                    .iter()
                    .any(|found| found.id == id && found.package == name && found.version == version);
                if known || !affected.concerns(ecosystem, version) {
                    continue;
                }
                let found = OsvMatch { package: name.to_owned(), version: version.to_owned(), id, summary: text(1)? };
                // Malicious packages are never left out.
                if found.is_malicious() || check.matches.len() < MAX_MATCHES {
                    check.matches.push(found);
                }
            }
        }
        check.matches.sort_by_key(|found| !found.is_malicious());
        Ok(check)
    }
}
