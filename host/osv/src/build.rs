//! Builds the indexed file from records.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use portcullis_core::private;
use rusqlite::{Connection, Transaction};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::affected::{AffectedPackage, Ecosystem};
use crate::archive::open_archive;
use crate::database::FORMAT;
use crate::{OsvDatabase, OsvEdition, OsvError};

/// The largest archive of records, in bytes. That of npm, the largest one, has a few hundred MiB.
pub(crate) const MAX_ARCHIVE_BYTES: u64 = 2 << 30;

/// The largest number of records in an archive or folder.
const MAX_RECORDS: usize = 3_000_000;

/// The longest record, in bytes.
const MAX_RECORD_BYTES: u64 = 8 << 20;

/// The largest size of all records together, in bytes.
const MAX_TOTAL_BYTES: u64 = 32 << 30;

/// The number of characters that are kept of a summary, and of an identifier.
const KEPT_CHARS: usize = 200;

#[derive(Deserialize)]
struct Record {
    id: String,
    #[serde(default)]
    summary: Option<String>,
    #[serde(default)]
    modified: Option<String>,
    #[serde(default)]
    withdrawn: Option<IgnoredAny>,
    #[serde(default)]
    affected: Option<Vec<AffectedPackage>>,
}

impl OsvDatabase {
    /// Builds a database from folders of JSON records and ZIP archives of them, and replaces an older one with it once
    /// it is complete. This takes a while: call it where blocking is allowed.
    ///
    /// # Errors
    /// [`OsvError`]; an older database is left unchanged.
    pub fn build(path: &Path, inputs: &[impl AsRef<Path>]) -> Result<OsvEdition, OsvError> {
        let folder = path.parent().unwrap_or(Path::new("."));
        private::folder(folder)?;
        let written = tempfile::NamedTempFile::new_in(folder).map_err(|error| OsvError::input(folder, error))?;
        let failed = |error: rusqlite::Error| OsvError::input(written.path(), error);
        let mut tables = Connection::open(written.path()).map_err(failed)?;
        // The file is not used before it is complete.
        tables.pragma_update(None, "journal_mode", "OFF").map_err(failed)?;
        let transaction = tables.transaction().map_err(failed)?;
        transaction
            .execute_batch(
                "CREATE TABLE affected (ecosystem TEXT, name TEXT, id TEXT, summary TEXT, versions TEXT) STRICT;
                 CREATE TABLE edition (date TEXT NOT NULL, records INTEGER NOT NULL) STRICT;",
            )
            .map_err(failed)?;
        let mut edition = OsvEdition { date: String::new(), records: 0 };
        for input in inputs {
            let before = edition.records;
            each_record(input.as_ref(), &mut |record| add(&transaction, &mut edition, record).map_err(failed))?;
            if edition.records == before {
                return Err(OsvError::Empty(input.as_ref().display().to_string()));
            }
        }
        transaction
            .execute("INSERT INTO edition VALUES (?1, ?2)", (&edition.date, edition.records.cast_signed()))
            .and_then(|_| transaction.execute_batch("CREATE INDEX packages ON affected (ecosystem, name)"))
            .and_then(|()| transaction.pragma_update(None, "user_version", FORMAT))
            .and_then(|()| transaction.commit())
            .map_err(failed)?;
        drop(tables);
        let whole = written.as_file().sync_all().and_then(|()| written.persist(path).map_err(|error| error.error));
        whole.map_err(|error| OsvError::input(path, error))?;
        Ok(edition)
    }
}

/// Adds a record's entries about packages of npm and of Python.
fn add(transaction: &Transaction<'_>, edition: &mut OsvEdition, record: Record) -> rusqlite::Result<()> {
    if record.withdrawn.is_some() {
        return Ok(());
    }
    let short = |text: &str| text.chars().take(KEPT_CHARS).collect::<String>();
    let (id, summary) = (short(&record.id), short(record.summary.as_deref().unwrap_or_default()));
    let mut concerned = false;
    for mut affected in record.affected.into_iter().flatten() {
        let Some(package) = affected.package.take() else { continue };
        let known = [Ecosystem::Npm, Ecosystem::PyPi].into_iter().find(|known| known.as_str() == package.ecosystem);
        let Some(ecosystem) = known else { continue };
        affected.ranges.retain(|range| range.kind != "GIT");
        let versions = serde_json::to_string(&affected).unwrap_or_else(|_| "{}".to_owned());
        transaction.prepare_cached("INSERT INTO affected VALUES (?1, ?2, ?3, ?4, ?5)")?.execute((
            ecosystem.as_str(),
            ecosystem.normal(&package.name),
            &id,
            &summary,
            versions,
        ))?;
        concerned = true;
    }
    if concerned {
        edition.records += 1;
        // RFC 3339 in UTC, so that the text is ordered as the time.
        let modified = record.modified.and_then(|text| text.parse::<jiff::Timestamp>().ok());
        let modified = modified.map(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()).unwrap_or_default();
        edition.date = std::mem::take(&mut edition.date).max(modified);
    }
    Ok(())
}

/// Calls `each` with every record of a folder of JSON files, or of a ZIP archive of them.
fn each_record(input: &Path, each: &mut impl FnMut(Record) -> Result<(), OsvError>) -> Result<(), OsvError> {
    let failed = |why: &dyn std::fmt::Display| OsvError::input(input, why);
    let mut total = 0;
    let mut take = |name: &str, bytes: &mut dyn Read| {
        let record = parsed(bytes, &mut total).map_err(|why| failed(&format!("{name:?} is not a record: {why}")))?;
        if total > MAX_TOTAL_BYTES {
            return Err(failed(&format!("its records have more than {MAX_TOTAL_BYTES} bytes together")));
        }
        each(record)
    };
    if input.is_dir() {
        let entries = fs::read_dir(input).map_err(|error| failed(&error))?;
        for (count, entry) in entries.enumerate() {
            let path = entry.map_err(|error| failed(&error))?.path();
            if count >= MAX_RECORDS {
                return Err(failed(&format!("it has more than {MAX_RECORDS} entries")));
            }
            if path.extension().is_some_and(|kind| kind == "json") && path.is_file() {
                let mut file = File::open(&path).map_err(|error| OsvError::input(&path, error))?;
                take(&path.file_name().unwrap_or_default().to_string_lossy(), &mut file)?;
            }
        }
        return Ok(());
    }
    let mut archive = open_archive(input, MAX_ARCHIVE_BYTES, MAX_RECORDS).map_err(|error| failed(&error))?;
    for at in 0..archive.len() {
        let mut entry = archive.by_index(at).map_err(|error| failed(&error))?;
        if entry.name().ends_with(".json") {
            let name = entry.name().to_owned();
            take(&name, &mut entry)?;
        }
    }
    Ok(())
}

fn parsed(bytes: &mut dyn Read, total: &mut u64) -> Result<Record, String> {
    let mut text = Vec::new();
    let read = bytes.take(MAX_RECORD_BYTES + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
    *total += read as u64;
    if read as u64 > MAX_RECORD_BYTES {
        return Err(format!("it has more than {MAX_RECORD_BYTES} bytes"));
    }
    serde_json::from_slice(&text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::{Value, json};

    use super::*;

    fn record(id: &str, ecosystem: &str, name: &str) -> Value {
        json!({
            "id": id, "summary": "s", "modified": "2026-11-20T08:00:00.5+01:00",
            "affected": [{ "package": { "ecosystem": ecosystem, "name": name }, "versions": ["1.0"] }],
        })
    }

    /// Builds a database of these records, once from a folder and once from an archive.
    fn built(records: &[Value]) -> [Result<OsvDatabase, OsvError>; 2] {
        let dir = tempfile::tempdir().unwrap();
        let (folder, archive) = (dir.path().join("records"), dir.path().join("all.zip"));
        fs::create_dir(&folder).unwrap();
        let mut zip = zip::ZipWriter::new(File::create(&archive).unwrap());
        for (at, record) in records.iter().enumerate() {
            fs::write(folder.join(format!("{at}.json")), record.to_string()).unwrap();
            zip.start_file(format!("{at}.json"), zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(record.to_string().as_bytes()).unwrap();
        }
        zip.finish().unwrap();
        [folder, archive].map(|input| {
            let file = dir.path().join("state/osv.sqlite");
            OsvDatabase::build(&file, &[input])?;
            Ok(OsvDatabase::open(&file)?.unwrap())
        })
    }

    #[test]
    fn a_database_knows_what_its_records_say_of_a_package_and_its_version() {
        let mut withdrawn = record("MAL-0", "npm", "thing");
        withdrawn["withdrawn"] = json!("2026-01-01T00:00:00Z");
        let records = [
            record("GHSA-1", "npm", "thing"),
            record("MAL-1", "npm", "thing"),
            record("GHSA-2", "PyPI", "Py_Thing"),
            record("GO-1", "Go", "thing"),
            withdrawn,
        ];
        for database in built(&records) {
            let database = database.unwrap();
            let check = database.check(Ecosystem::Npm, [("thing", "1.0"), ("thing", "2.0"), ("other", "1.0")]).unwrap();
            let ids: Vec<_> = check.matches.iter().map(|found| found.id.as_str()).collect();
            assert_eq!((ids, check.packages), (vec!["MAL-1", "GHSA-1"], 3), "the malicious one is first");
            assert_eq!(check.malicious().unwrap().to_string(), "thing 1.0: MAL-1 (s)");
            let edition = check.database.unwrap();
            assert_eq!(edition.to_string(), "OSV of 2026-11-20T07:00:00Z (3 entries)");
            let check = database.check(Ecosystem::PyPi, [("py.thing", "1.0"), ("thing", "1.0")]).unwrap();
            assert_eq!((check.matches.len(), check.malicious()), (1, None));
        }
    }

    #[test]
    fn what_holds_no_record_is_refused_and_the_older_database_stays() {
        for (records, why) in [
            (vec![], "holds no record"),
            (vec![record("GO-1", "Go", "thing")], "holds no record"),
            (vec![json!([])], "\"0.json\" is not a record"),
            (vec![json!({ "id": "x".repeat(9 << 20) })], "more than 8388608 bytes"),
        ] {
            for database in built(&records) {
                let error = database.unwrap_err().to_string();
                assert!(error.contains(why), "{error}");
            }
        }
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.json"), record("GHSA-1", "npm", "thing").to_string()).unwrap();
        let file = dir.path().join("state/osv.sqlite");
        OsvDatabase::build(&file, &[dir.path()]).unwrap();
        let before = fs::read(&file).unwrap();
        assert!(OsvDatabase::build(&file, &[dir.path().join("absent")]).is_err());
        assert_eq!(fs::read(&file).unwrap(), before);
        assert_eq!(fs::read_dir(dir.path().join("state")).unwrap().count(), 1, "nothing else is left");

        fs::set_permissions(&file, fs::Permissions::from_mode(0o622)).unwrap();
        assert!(OsvDatabase::open(&file).unwrap_err().to_string().contains("chmod 600"), "others may write to it");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&file, "no database").unwrap();
        assert!(OsvDatabase::open(&file).unwrap_err().to_string().contains("--update-osv"));
        assert!(OsvDatabase::open(&dir.path().join("absent")).unwrap().is_none());
    }
}
