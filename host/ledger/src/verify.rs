//! Verification of the ledger: everything is recomputed from the bytes in the file, without the broker's help, and
//! compared with witnesses outside the chain: how far its lock file says it had come, where another broker sealed it, and
//! signed checkpoints.

mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use portcullis_core::digest::hex;
use rusqlite::Connection;

use super::chain;
use super::evidence::{self, PublicKey, SignedCheckpoint};
use super::index::{self, IndexCheck};
use super::record::RecordHash;
use super::segment::Segments;
use super::state::{self, SCHEMA, schema_of};
use super::storage::{ChainEnd, ChainPosition, Storage, StorageLimits};
use super::{LedgerError, is_live, legacy};
use walk::{RecordedRemoval, RecordedSeal, VerificationPass, begun};

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
    /// The number of good records, counted from the first. Those that were removed count if a record says that they were.
    pub records: u64,
    /// The number of records that were removed because of their age.
    pub removed: u64,
    /// True if the chain's broker lives.
    pub live: bool,
    /// True if the chain ends with `broker.stopped`.
    pub stopped: bool,
    /// True if calls that can have no effect did not wait for their intents: if the chain's broker crashed, such calls of
    /// its last moments may be missing.
    pub queued_intents: bool,
    /// The number of its last record, if another chain has sealed it.
    pub sealed: Option<u64>,
    /// The number of records that signed checkpoints confirm, from the first: those of this chain, or of one that
    /// sealed it.
    pub confirmed: u64,
    /// The number of records, from the first, that the given checkpoints from elsewhere confirm.
    pub confirmed_elsewhere: u64,
    /// The number of the first bad record, and what is wrong with it.
    pub bad: Option<(u64, String)>,
}

impl ChainReport {
    /// Reports whether the chain's broker crashed, and calls that can have no effect may be missing from its last moments:
    /// they did not wait for their intents.
    #[must_use]
    pub fn may_miss_calls(&self) -> bool {
        self.queued_intents && !self.stopped && !self.live
    }
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
    verify_against(data_dir, &[], &[])
}

/// Verifies the ledger as [`verify`] does, and compares it with checkpoints that were kept elsewhere, and with those in
/// the data folder that one of these keys signed.
///
/// # Errors
/// As for [`verify`].
pub fn verify_against(
    data_dir: &Path,
    checkpoints: &[SignedCheckpoint],
    keys: &[PublicKey],
) -> Result<Verification, LedgerError> {
    verify_in(data_dir, Arc::new(Segments::new(data_dir, StorageLimits::default())), checkpoints, keys)
}

pub(super) fn verify_in(
    data_dir: &Path,
    storage: Arc<dyn Storage>,
    checkpoints: &[SignedCheckpoint],
    keys: &[PublicKey],
) -> Result<Verification, LedgerError> {
    let _nothing_is_removed = storage.lock_for_reading()?;
    // This is done before the records are read: a broker that stops meanwhile would show neither a lock nor an end, and
    // the lock file and the checkpoint of one that writes would be ahead of what was read.
    let (kept, false_checkpoint) = evidence::kept(data_dir, keys);
    let locks = chain::all(data_dir)?;
    let live: BTreeSet<String> = locks.iter().filter(|chain| is_live(data_dir, chain)).cloned().collect();
    let (ended, sealed) = (chain::ended(data_dir)?, chain::sealed(data_dir)?);
    let witnesses = locks.iter().filter_map(|chain| Some((chain.clone(), chain::witness(data_dir, chain)?))).collect();
    let mut walk = VerificationPass { witnesses, ..VerificationPass::default() };
    let elsewhere = checkpoints.iter().map(|signed| (signed, true));
    for (SignedCheckpoint { checkpoint, .. }, is_elsewhere) in
        elsewhere.chain(kept.iter().map(|signed| (signed, false)))
    {
        walk.checkpoints.entry(checkpoint.chain.clone()).or_default().expect(checkpoint, is_elsewhere);
    }
    let removed = begin_after_removed(&*storage, &mut walk)?;
    let mut trouble = check_state(data_dir, &mut walk, &locks, &*storage)?.or(false_checkpoint);
    let differences = check_chains(data_dir, &storage, &mut walk)?;
    for chain in locks.iter().chain(walk.seals.keys()).chain(walk.checkpoints.keys()) {
        walk.chains.entry(chain.clone()).or_insert_with(|| begun(chain.clone()));
    }
    let unrecorded = unrecorded_removals(removed, &walk.removals);
    let VerificationPass { mut chains, seals, witnesses, checkpoints, .. } = walk;
    for chain in unrecorded {
        if let Some((report, _)) = chains.get_mut(&chain).filter(|(report, _)| report.bad.is_none()) {
            let reason =
                format!("records 1 to {} are missing, and no record says that they were removed", report.removed);
            report.bad = Some((1, reason));
            (report.records, report.removed) = (0, 0);
        }
    }
    for (chain, (report, end)) in &mut chains {
        report.live = live.contains(chain) || is_live(data_dir, chain);
        let (seals, witness) = (seals.get(chain).map(Vec::as_slice).unwrap_or_default(), witnesses.get(chain));
        report.sealed = seals.first().map(|seal| seal.at.seq);
        if let Some(covered) = checkpoints.get(chain) {
            (report.confirmed, report.confirmed_elsewhere) = (covered.confirmed, covered.confirmed_elsewhere);
            if report.bad.is_none() && covered.size() > report.records {
                let reason =
                    format!("a checkpoint covers {} records, and {} are there", covered.size(), report.records);
                report.bad = Some((report.records + 1, reason));
            }
        }
        if report.bad.is_none() {
            report.bad = seals.iter().find_map(|seal| compare(seal, report.records, end));
        }
        // Records that a live broker wrote after its lock file was read are not a problem.
        if let Some(witness) = witness.filter(|witness| report.bad.is_none() && witness.seq > report.records) {
            let reason = format!("its broker had written {} records, and {} are there", witness.seq, report.records);
            report.bad = Some((report.records + 1, reason));
        }
        // The end of a chain is durable before its lock file says so, and so is its seal.
        let missing = match report.sealed {
            None if sealed.contains(chain) => Some("its lock file says that another chain sealed it, and none did"),
            None if ended.contains(chain) && !report.stopped => {
                Some("its lock file says that it has its end, which is not there")
            }
            _ => None,
        };
        if let (None, Some(missing)) = (&report.bad, missing) {
            report.bad = Some((report.records + 1, missing.into()));
        }
    }
    confirm_sealed(&mut chains, &seals);
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

/// Takes in what is left of removed records. Returns it for each chain: the number of the last, and the digest.
fn begin_after_removed(
    storage: &dyn Storage,
    walk: &mut VerificationPass,
) -> Result<BTreeMap<String, (u64, String)>, LedgerError> {
    let mut all = BTreeMap::new();
    for chain in storage.removed_chains()? {
        match storage.removed(&chain) {
            Ok(Some(removed)) => {
                walk.begin_after(&removed);
                all.insert(chain, (removed.tip.seq, removed.digest().to_string()));
            }
            Ok(None) => {}
            Err(error) => walk.end(&chain, ChainEnd::Damaged(error.to_string())),
        }
    }
    Ok(all)
}

/// Returns the chains of which records are missing without a record of their removal. A removed record counts if its own
/// removal is recorded.
fn unrecorded_removals(
    mut removed: BTreeMap<String, (u64, String)>,
    removals: &BTreeMap<String, Vec<RecordedRemoval>>,
) -> Vec<String> {
    loop {
        let is_recorded = |(chain, (seq, digest)): (&String, &(u64, String))| {
            let mut of_chain = removals.get(chain).into_iter().flatten();
            let found = of_chain.any(|removal| {
                let counts = removal.by_removed.as_ref().is_none_or(|by| !removed.contains_key(by));
                counts && (removal.seq, &removal.digest) == (*seq, digest)
            });
            found.then(|| chain.clone())
        };
        let recorded: Vec<_> = removed.iter().filter_map(is_recorded).collect();
        if recorded.is_empty() {
            return removed.into_keys().collect();
        }
        recorded.iter().for_each(|chain| drop(removed.remove(chain)));
    }
}

/// Confirms the chains whose seals stand in records that are confirmed themselves.
fn confirm_sealed(
    chains: &mut BTreeMap<String, (ChainReport, RecordHash)>,
    seals: &BTreeMap<String, Vec<RecordedSeal>>,
) {
    let mut goes_on = true;
    while goes_on {
        goes_on = false;
        // The sealing chains are the later ones.
        let seals = seals.iter().rev().flat_map(|(chain, seals)| seals.iter().map(move |seal| (chain, seal)));
        for (chain, RecordedSeal { at, by, seq }) in seals {
            let Some((by, _)) = chains.get(by) else { continue };
            let (here, elsewhere) = (by.confirmed >= *seq, by.confirmed_elsewhere >= *seq);
            let Some((report, _)) = chains.get_mut(chain).filter(|(report, _)| report.bad.is_none()) else { continue };
            let before = (report.confirmed, report.confirmed_elsewhere);
            report.confirmed = if here { report.confirmed.max(at.seq) } else { report.confirmed };
            report.confirmed_elsewhere =
                if elsewhere { report.confirmed_elsewhere.max(at.seq) } else { report.confirmed_elsewhere };
            goes_on |= before != (report.confirmed, report.confirmed_elsewhere);
        }
    }
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
fn compare(seal: &RecordedSeal, records: u64, end: &RecordHash) -> Option<(u64, String)> {
    let RecordedSeal { at, by, .. } = seal;
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
    walk: &mut VerificationPass,
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
    walk: &mut VerificationPass,
    index: &mut IndexCheck,
) -> Result<ChainEnd, LedgerError> {
    let mut reader = storage.read(chain, ChainPosition::default())?;
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
