//! Verification of the ledger: everything is recomputed from the bytes in the file, without the broker's help, and
//! compared with two witnesses outside the chain: how far its lock file says it had come, and where another broker
//! sealed it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use portcullis_core::digest::hex;
use portcullis_core::protocol::{Json, canonical};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use super::chain::{self, ChainTip};
use super::index::{self, IndexCheck};
use super::record::{EventKind, Hash, RecordMembers, VERSION, hash};
use super::segment::Segments;
use super::state::{self, SCHEMA, schema_of};
use super::storage::{ChainEnd, Place, Storage, StorageLimits};
use super::{LedgerError, is_live, legacy};

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Verification {
    /// All chains, oldest first.
    pub chains: Vec<ChainReport>,
    /// Everything that is not good, tampering first. Never contains [`ChainStatus::Good`].
    pub findings: Vec<ChainStatus>,
    /// The first finding, or [`ChainStatus::Good`] if there is none.
    pub verdict: ChainStatus,
}

/// The result for one chain.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct ChainReport {
    /// The chain's identifier.
    pub chain: String,
    /// The number of good records, counted from the first.
    pub records: u64,
    /// True if the chain's broker lives.
    pub live: bool,
    /// True if the chain ends with `broker.stopped`.
    pub stopped: bool,
    /// The number of the record at which the chain was sealed because its broker died.
    pub sealed: Option<u64>,
    /// The number of the first bad record, and what is wrong with it.
    pub bad: Option<(u64, String)>,
}

/// The verdict on a ledger or a chain.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase", tag = "verdict")]
pub enum ChainStatus {
    /// Every record is as it was written, and every chain is live, has its end or is sealed. Without checkpoints that
    /// are kept elsewhere, this cannot be told from a ledger that was recomputed from the start, or one from which a
    /// chain was removed together with its lock file.
    Good,
    /// Somebody changed something, or a disk failed.
    Tampered {
        /// The chain, if it is known.
        chain: Option<String>,
        /// The number of the record, if it is known.
        seq: Option<u64>,
        /// The reason for the verdict.
        reason: String,
    },
    /// The records are good, but the broker died and no other has sealed its chain yet.
    Incomplete {
        /// The chain.
        chain: String,
        /// The part that is missing.
        reason: String,
    },
}

/// Verifies the whole ledger of a data folder. Blocks for a time in proportion to its size; brokers may go on writing.
///
/// # Errors
/// [`LedgerError`] if there is nothing to verify or it cannot be read. A damaged file is not an error but
/// [`ChainStatus::Tampered`].
pub fn verify(data_dir: &Path) -> Result<Verification, LedgerError> {
    verify_in(data_dir, Arc::new(Segments::new(data_dir, StorageLimits::default())))
}

pub(super) fn verify_in(data_dir: &Path, storage: Arc<dyn Storage>) -> Result<Verification, LedgerError> {
    // This is done before the records are read: a broker that stops meanwhile would show neither a lock nor an end, and
    // the lock file of one that writes would be ahead of what was read.
    let locks = chain::all(data_dir)?;
    let live: BTreeSet<String> = locks.iter().filter(|chain| is_live(data_dir, chain)).cloned().collect();
    let ended = chain::ended(data_dir)?;
    let witnesses = locks.iter().filter_map(|chain| Some((chain.clone(), chain::witness(data_dir, chain)?))).collect();
    let mut walk = Walk { witnesses, ..Walk::default() };
    let mut trouble = check_state(data_dir, &mut walk, &locks, &*storage)?;
    let differences = check_chains(data_dir, &storage, &mut walk)?;
    for chain in locks.iter().chain(walk.seals.keys()) {
        walk.chains.entry(chain.clone()).or_insert_with(|| begun(chain.clone()));
    }
    let Walk { mut chains, seals, witnesses } = walk;
    for (chain, (report, end)) in &mut chains {
        report.live = live.contains(chain) || is_live(data_dir, chain);
        let (seal, witness) = (seals.get(chain), witnesses.get(chain));
        report.sealed = seal.map(|seal| seal.at.seq);
        if report.bad.is_none() {
            report.bad = seal.and_then(|seal| compare(seal, report.records, end));
        }
        // Records that a live broker wrote after its lock file was read are not a problem.
        if let Some(witness) = witness.filter(|witness| report.bad.is_none() && witness.seq > report.records) {
            let reason = format!("its broker had written {} records, and {} are there", witness.seq, report.records);
            report.bad = Some((report.records + 1, reason));
        }
        // The end of a chain is durable before its lock file says so.
        if report.bad.is_none() && ended.contains(chain) && !report.stopped && report.sealed.is_none() {
            report.bad =
                Some((report.records + 1, "its lock file says that it has its end, which is not there".into()));
        }
    }
    // Of a bad chain, the index may know what is missing.
    let is_good = |chain: &String| chains.get(chain).is_none_or(|(report, _)| report.bad.is_none());
    if let Some((chain, difference)) = differences.into_iter().find(|(chain, _)| is_good(chain)) {
        index::remove(data_dir);
        trouble.get_or_insert(format!("the index has {difference} in chain {chain}; it is made anew"));
    }
    let chains: Vec<ChainReport> = chains.into_values().map(|(report, _)| report).collect();
    let findings = judge(&chains, trouble);
    let verdict = findings.first().cloned().unwrap_or(ChainStatus::Good);
    Ok(Verification { chains, findings, verdict })
}

fn judge(chains: &[ChainReport], trouble: Option<String>) -> Vec<ChainStatus> {
    let tampered = chains.iter().filter_map(|report| {
        let (seq, reason) = report.bad.clone()?;
        Some(ChainStatus::Tampered { chain: Some(report.chain.clone()), seq: Some(seq), reason })
    });
    let trouble = trouble.map(|reason| ChainStatus::Tampered { chain: None, seq: None, reason });
    let ends = |report: &&ChainReport| report.live || report.stopped || report.sealed.is_some() || report.bad.is_some();
    let incomplete = chains.iter().filter(|report| !ends(report)).map(|ChainReport { chain, records, .. }| {
        let reason = match records {
            0 => "its lock file is there, but no record".to_owned(),
            _ => format!("it ends at record {records} without broker.stopped: its broker died, or the end was cut"),
        };
        ChainStatus::Incomplete {
            chain: chain.clone(),
            reason: format!("{reason}; the next broker that starts seals it"),
        }
    });
    tampered.chain(trouble).chain(incomplete).collect()
}

/// Returns what is wrong with a chain that another broker sealed: the number of the first bad record, and the reason.
fn compare(seal: &RecordedSeal, records: u64, end: &Hash) -> Option<(u64, String)> {
    let RecordedSeal { at, by } = seal;
    if records < at.seq {
        let reason = format!("chain {by} sealed it at record {}, and it ends at record {records}", at.seq);
        return Some((records + 1, reason));
    }
    if records > at.seq {
        return Some((at.seq + 1, format!("it stands after the end at which chain {by} sealed its chain")));
    }
    (*end != at.hash)
        .then(|| (at.seq, format!("it is not the record that chain {by} sealed, which has hash {}", hex(&at.hash))))
}

/// Checks the records of all chains, and the index of them. Returns the first difference of the index for each chain.
fn check_chains(
    data_dir: &Path,
    storage: &Arc<dyn Storage>,
    walk: &mut Walk,
) -> Result<Vec<(String, String)>, LedgerError> {
    let mut index = IndexCheck::open(data_dir, storage)?;
    for chain in storage.chains()? {
        let end = check_chain(&chain, &**storage, walk, &mut index);
        // A chain that cannot be read is a bad one, and the others are checked.
        walk.end(&chain, end.unwrap_or_else(|error| ChainEnd::Damaged(error.to_string())));
        index.end_chain(&chain)?;
    }
    Ok(index.differences())
}

fn check_chain(
    chain: &str,
    storage: &dyn Storage,
    walk: &mut Walk,
    index: &mut IndexCheck,
) -> Result<ChainEnd, LedgerError> {
    let mut reader = storage.read(chain, Place::default())?;
    while let Some(batch) = reader.next()? {
        for record in &batch.records {
            walk.step(chain, record.seq, record.text.as_bytes(), &record.hash);
        }
        index.compare(chain, &batch)?;
    }
    reader.end()
}

/// Checks the file of the state, and the records that format 1 wrote into it. Returns what is wrong with the file.
fn check_state(
    data_dir: &Path,
    walk: &mut Walk,
    locks: &BTreeSet<String>,
    storage: &dyn Storage,
) -> Result<Option<String>, LedgerError> {
    let checked = state::open_reader(data_dir)
        .and_then(|conn| check_file(&conn, walk).map_err(|error| state::error(data_dir, &error)));
    match checked {
        Err(LedgerError::Missing(_)) if !locks.is_empty() || !storage.chains()?.is_empty() => Ok(None),
        Err(LedgerError::Damaged { cause, .. } | LedgerError::Store { cause, .. }) => Ok(Some(cause)),
        Err(LedgerError::Foreign(_)) => Ok(Some("the file is not a ledger any more".into())),
        checked => checked,
    }
}

/// Checks the records first, so that a bad one is named even if the file around it is damaged too.
fn check_file(conn: &Connection, walk: &mut Walk) -> rusqlite::Result<Option<String>> {
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

/// Compares the schema with the broker's own: an added or changed view or trigger could show or do something other than
/// what the records say.
fn check_schema(conn: &Connection, has_records: bool) -> rusqlite::Result<Option<String>> {
    let ours = Connection::open_in_memory()?;
    ours.execute_batch(SCHEMA)?;
    if has_records {
        ours.execute_batch(legacy::SCHEMA)?;
    }
    let (ours, found) = (schema_of(&ours)?, schema_of(conn)?);
    let differs = |(name, sql): &(&String, &String)| ours.get(*name) != Some(*sql) || found.get(*name) != Some(*sql);
    let first = ours.iter().chain(&found).find(differs);
    Ok(first.map(|(name, _)| format!("{name:?} in the database is not as the broker creates it")))
}

/// The state of the pass over all records.
#[derive(Default)]
struct Walk {
    /// Each chain's report, with the hash of its last good record.
    chains: BTreeMap<String, (ChainReport, Hash)>,
    /// The seals, by the chain that is sealed.
    seals: BTreeMap<String, RecordedSeal>,
    /// The last record of each chain, according to its lock file.
    witnesses: BTreeMap<String, ChainTip>,
}

/// The end of a chain as another chain records it.
struct RecordedSeal {
    at: ChainTip,
    by: String,
}

/// Returns the report of a chain of which no record was read yet.
fn begun(chain: String) -> (ChainReport, Hash) {
    (ChainReport { chain, ..ChainReport::default() }, Hash::default())
}

impl Walk {
    fn legacy_step(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        let name = String::from_utf8_lossy(bytes(row.get_ref(0)?)).into_owned();
        let seq = match row.get_ref(1)? {
            ValueRef::Integer(seq) => seq.cast_unsigned(),
            _ => 0,
        };
        self.step(&name, seq, bytes(row.get_ref(2)?), bytes(row.get_ref(3)?));
        Ok(())
    }

    fn step(&mut self, name: &str, seq: u64, text: &[u8], found: &[u8]) {
        let witness = self.witnesses.get(name);
        if !self.chains.contains_key(name) {
            self.chains.insert(name.to_owned(), begun(name.to_owned()));
        }
        let Some((report, before)) = self.chains.get_mut(name).filter(|(report, _)| report.bad.is_none()) else {
            return;
        };
        let expected = report.records + 1;
        match check(report, seq, text, found, before) {
            Ok((hash, _)) if witness.is_some_and(|end| end.seq == seq && end.hash != hash) => {
                report.bad = Some((seq, "it is not the record that its broker wrote there".into()));
            }
            Ok((hash, record)) => {
                *before = hash;
                report.records = expected;
                report.stopped = record.kind == EventKind::BrokerStopped.as_str();
                if record.kind == EventKind::ChainSealed.as_str()
                    && let Some((chain, at)) = sealed(&record)
                {
                    self.seals.entry(chain).or_insert(RecordedSeal { at, by: name.to_owned() });
                }
            }
            // A gap is named by the number of the missing record, anything else by that of the bad record: it is the
            // same number.
            Err(reason) => report.bad = Some((expected, reason)),
        }
    }

    /// Judges how the stored records of a chain end.
    fn end(&mut self, name: &str, end: ChainEnd) {
        let (report, _) = self.chains.entry(name.to_owned()).or_insert_with(|| begun(name.to_owned()));
        let reason = match end {
            ChainEnd::Damaged(cause) => cause,
            ChainEnd::Torn if report.stopped => "something stands after broker.stopped, the end of its chain".into(),
            // A crash cuts what was never confirmed; the lock file and the seal say whether more is missing.
            ChainEnd::Torn | ChainEnd::Clean => return,
        };
        report.bad.get_or_insert((report.records + 1, reason));
    }
}

/// Returns the chain that a `chain.sealed` record seals, and the end that it records.
fn sealed(record: &RecordMembers<'_>) -> Option<(String, ChainTip)> {
    let body: serde_json::Value = serde_json::from_str(record.body.get()).ok()?;
    let text = |key: &str| body.get(key)?.as_str();
    let hash = chain::hash_of(text("hash")?)?;
    Some((text("chain")?.to_owned(), ChainTip { seq: body.get("seq")?.as_u64()?, hash }))
}

fn check<'a>(
    report: &ChainReport,
    seq: u64,
    text: &'a [u8],
    found: &[u8],
    before: &Hash,
) -> Result<(Hash, RecordMembers<'a>), String> {
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
    let json = Json::parse(text.to_owned()).map_err(|error| format!("its text is not a record: {error}"))?;
    if canonical(&json).as_deref() != Ok(text) {
        return Err("its text is not in canonical form".into());
    }
    let record: RecordMembers<'_> =
        serde_json::from_str(text).map_err(|error| format!("its text is not a record: {error}"))?;
    if record.v != VERSION {
        return Err(format!("it has format {} and this version knows {VERSION}", record.v));
    }
    if (record.chain, record.seq) != (report.chain.as_str(), seq) {
        return Err(format!("its text says that it is record {} of chain {}", record.seq, record.chain));
    }
    if seq == 1 && record.kind != EventKind::BrokerStarted.as_str() {
        return Err("a chain begins with broker.started".into());
    }
    Ok((hash, record))
}

/// Returns the bytes of a text or blob; any other value has none and so matches no hash.
fn bytes(value: ValueRef<'_>) -> &[u8] {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
        _ => &[],
    }
}
