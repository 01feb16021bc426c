//! Checking the ledger: everything is computed again from the bytes in the file, without the broker's help.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use super::record::{Hash, Kind, Record, VERSION, hash};
use super::store::{self, Limits, SCHEMA};
use super::{LedgerError, chain, is_live};
use crate::digest::canonical;
use crate::message::Json;

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Verification {
    /// Every chain, oldest first.
    pub chains: Vec<ChainReport>,
    /// In one word.
    pub verdict: Verdict,
}

/// What a check found in one chain.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct ChainReport {
    /// Its identifier.
    pub chain: String,
    /// How many records are good, from the first on.
    pub records: u64,
    /// Whether its broker lives.
    pub live: bool,
    /// Whether it has its end.
    pub stopped: bool,
    /// The first bad record's number and what is wrong with it.
    pub bad: Option<(u64, String)>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase", tag = "verdict")]
pub enum Verdict {
    /// Every record is as it was written, and every chain is live or has its end. A removed chain whose lock file is removed
    /// too, and a ledger that was computed anew from the start, cannot be told from good ones without checkpoints kept
    /// elsewhere.
    Good,
    /// Somebody, or a failing disk, changed something.
    Tampered {
        /// In which chain, where that can be told.
        chain: Option<String>,
        /// At which record, where that can be told.
        seq: Option<u64>,
        /// What is wrong.
        reason: String,
    },
    /// What is there is good, but something is missing at an end: a crash, or a cut.
    Incomplete {
        /// In which chain.
        chain: String,
        /// What is missing.
        reason: String,
    },
}

/// Checks the whole ledger of a data folder. Blocks, in proportion to its size; brokers may go on writing.
///
/// # Errors
/// [`LedgerError`] where there is nothing to check or it cannot be read. A damaged file is no error but
/// [`Verdict::Tampered`].
pub fn verify(data_dir: &Path) -> Result<Verification, LedgerError> {
    // Before the records are read: who stops while we read may show neither a lock nor an end.
    let witnesses = chain::all(data_dir)?;
    let live: BTreeSet<String> = witnesses.iter().filter(|chain| is_live(data_dir, chain)).cloned().collect();
    let mut walk = Walk::default();
    let trouble = match store::open_reader(data_dir, Limits::default()) {
        Ok(conn) => check_file(&conn, &mut walk).map_err(|error| store::error(data_dir, &error)),
        Err(LedgerError::Missing(_)) if !witnesses.is_empty() => Ok(None),
        Err(error) => Err(error),
    };
    let trouble = match trouble {
        Ok(trouble) => trouble,
        Err(LedgerError::Damaged { cause, .. } | LedgerError::Store { cause, .. }) => Some(cause),
        Err(LedgerError::Foreign(_)) => Some("the file is not a ledger any more".into()),
        Err(error) => return Err(error),
    };
    let mut chains: BTreeMap<String, ChainReport> =
        walk.0.into_iter().map(|(name, (report, _))| (name, report)).collect();
    for chain in witnesses {
        chains.entry(chain.clone()).or_insert_with(|| ChainReport { chain, ..ChainReport::default() });
    }
    for report in chains.values_mut() {
        report.live = live.contains(&report.chain) || is_live(data_dir, &report.chain);
    }
    let chains: Vec<ChainReport> = chains.into_values().collect();
    let verdict = judge(&chains, trouble);
    Ok(Verification { chains, verdict })
}

fn judge(chains: &[ChainReport], trouble: Option<String>) -> Verdict {
    for report in chains {
        if let Some((seq, reason)) = &report.bad {
            return Verdict::Tampered { chain: Some(report.chain.clone()), seq: Some(*seq), reason: reason.clone() };
        }
    }
    if let Some(reason) = trouble {
        return Verdict::Tampered { chain: None, seq: None, reason };
    }
    match chains.iter().find(|report| !report.live && !report.stopped) {
        None => Verdict::Good,
        Some(ChainReport { chain, records: 0, .. }) => {
            Verdict::Incomplete { chain: chain.clone(), reason: "its lock file is there, but no record".into() }
        }
        Some(ChainReport { chain, records, .. }) => Verdict::Incomplete {
            chain: chain.clone(),
            reason: format!(
                "it ends at record {records} without broker.stopped: its broker crashed, or the end was cut"
            ),
        },
    }
}

/// First the records, so that a bad one is named even where the file around it is damaged too.
fn check_file(conn: &Connection, walk: &mut Walk) -> rusqlite::Result<Option<String>> {
    // One snapshot for all that follows; it ends with the connection.
    conn.execute_batch("BEGIN")?;
    // The table itself, in the order of writing: an index could hide rows, and sorting would copy them all.
    let mut query = conn.prepare("SELECT chain, seq, record, hash FROM events NOT INDEXED ORDER BY row")?;
    let mut rows = query.query([])?;
    loop {
        match rows.next() {
            Ok(Some(row)) => walk.step(row)?,
            Ok(None) => break,
            Err(error) => return Ok(Some(error.to_string())),
        }
    }
    if let Some(problem) = check_schema(conn)? {
        return Ok(Some(problem));
    }
    let integrity: String = conn.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    Ok((integrity != "ok").then_some(integrity))
}

/// A view or trigger of somebody else could show or do something else than the records say.
fn check_schema(conn: &Connection) -> rusqlite::Result<Option<String>> {
    let ours = Connection::open_in_memory()?;
    ours.execute_batch(SCHEMA)?;
    let (ours, found) = (schema_of(&ours)?, schema_of(conn)?);
    let differs = |(name, sql): &(&String, &String)| ours.get(*name) != Some(*sql) || found.get(*name) != Some(*sql);
    let first = ours.iter().chain(&found).find(differs);
    Ok(first.map(|(name, _)| format!("{name:?} in the database is not as the broker makes it")))
}

fn schema_of(conn: &Connection) -> rusqlite::Result<BTreeMap<String, String>> {
    // Statistics are SQLite's own and may come and go.
    let mut query = conn.prepare(
        "SELECT name, coalesce(sql, '') FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_stat%' ESCAPE '\\'",
    )?;
    query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// The chains so far, each with the hash of its last good record.
#[derive(Default)]
struct Walk(BTreeMap<String, (ChainReport, Hash)>);

impl Walk {
    fn step(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        let name = String::from_utf8_lossy(bytes(row.get_ref(0)?)).into_owned();
        let (record, found) = (bytes(row.get_ref(2)?), bytes(row.get_ref(3)?));
        let (report, before) = self
            .0
            .entry(name.clone())
            .or_insert_with(|| (ChainReport { chain: name, ..ChainReport::default() }, Hash::default()));
        if report.bad.is_some() {
            return Ok(());
        }
        let expected = report.records + 1;
        let seq = match row.get_ref(1)? {
            ValueRef::Integer(seq) => seq.cast_unsigned(),
            _ => 0,
        };
        match check(report, seq, record, found, before) {
            Ok((hash, kind)) => {
                *before = hash;
                report.records = expected;
                report.stopped = kind == Kind::BrokerStopped.as_str();
            }
            // A gap is named by the record that is missing, everything else by the record that is bad: the same number.
            Err(reason) => report.bad = Some((expected, reason)),
        }
        Ok(())
    }
}

fn check(report: &ChainReport, seq: u64, text: &[u8], found: &[u8], before: &Hash) -> Result<(Hash, String), String> {
    let expected = report.records + 1;
    if seq != expected {
        return Err(format!("record {expected} is missing: record {seq} stands in its place"));
    }
    if report.stopped {
        return Err("it stands after broker.stopped, the end of its chain".into());
    }
    let hash = hash(before, text);
    if hash.as_slice() != found {
        return Err("its hash does not fit its text and the record before it".into());
    }
    let text = std::str::from_utf8(text).map_err(|_| "its text is not UTF-8")?;
    let json = Json::parse(text.to_owned()).map_err(|error| format!("its text is no record: {error}"))?;
    if canonical(&json).as_deref() != Ok(text) {
        return Err("its text is not in canonical form".into());
    }
    let record: Record = json.read().map_err(|error| format!("its text is no record: {error}"))?;
    if record.v != VERSION {
        return Err(format!("it has form {} and this version knows {VERSION}", record.v));
    }
    if (record.chain.as_str(), record.seq) != (report.chain.as_str(), seq) {
        return Err(format!("its text says that it is record {} of chain {}", record.seq, record.chain));
    }
    if seq == 1 && record.kind != Kind::BrokerStarted.as_str() {
        return Err("a chain begins with broker.started".into());
    }
    Ok((hash, record.kind))
}

/// Text and blobs as they are; anything else has no bytes and fits no hash.
fn bytes(value: ValueRef<'_>) -> &[u8] {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
        _ => &[],
    }
}
