//! Tests of the ledger's promises against real files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod alone;
mod calls;
mod durability;
mod evidence;
mod faults;
mod files;
mod format_1;
mod grants;
mod index;
mod keys;
mod outcomes;
mod planted;
mod resuming;
mod retention;
mod runs;
mod sealed;
mod seals;
mod searches;
mod segments;
mod signing;
mod soak;
mod storage;
mod tamper;
mod tampering;
mod writing;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portcullis_core::call::{CallId, SessionId};
use serde_json::json;
use tempfile::TempDir;

use super::record::{ChainedRecord, RecordHash, UnchainedRecord, hash};
use super::storage::{ChainEnd, ChainPosition, ChainWriter};
use super::*;
use faults::FaultyStorage;

fn started() -> ChainStart {
    ChainStart { version: "1.2.3".into(), config: Digest::of(b"config"), key: None }
}

async fn open(dir: &Path) -> Ledger {
    Ledger::open(dir, started()).await.unwrap()
}

/// A ledger that gives up on a lock at once, and retries only when a new record arrives.
const SHORT: LedgerSetup =
    LedgerSetup { busy: Duration::from_millis(50), retry: Duration::from_secs(3600), quick: QUICK, storage: None };

/// Records an intent and waits until it is durable.
async fn intend(ledger: &Ledger, event: Event, consume: Option<GrantUse>) -> Result<u64, LedgerError> {
    let (intent, _slot) = ledger.intent(event, consume, IntentDurability::BeforeCall).await?;
    intent.unwrap().durable().await
}

fn folder() -> TempDir {
    // Under a umask of 002 a plain temporary folder is still 0700.
    tempfile::tempdir().unwrap()
}

fn event(kind: EventKind) -> Event {
    Event::new(kind, json!({"tool": "files__read", "arguments": {"path": "string(12)"}}))
}

/// Creates a ledger with one closed chain that has `n` records between its first and its last.
async fn closed(dir: &Path, n: usize) -> String {
    let ledger = open(dir).await;
    let run = SessionId::new();
    for _ in 0..n {
        ledger.append(event(EventKind::CallIntent).in_run(&run).to_call(&CallId::new())).await.unwrap();
    }
    ledger.close().await;
    ledger.chain().to_owned()
}

/// Opens a connection to the state as somebody with a SQLite shell would.
fn shell(dir: &Path) -> Connection {
    Connection::open(state::path(dir)).unwrap()
}

fn segments(dir: &Path) -> Segments {
    Segments::new(dir, StorageLimits::default())
}

/// Returns the first segment of a chain.
fn segment(dir: &Path, chain: &str) -> PathBuf {
    segment::path(dir, chain, 1)
}

/// Reads all records of a chain from its storage, and how it ends.
fn stored(storage: &dyn Storage, chain: &str) -> (Vec<ChainedRecord>, ChainEnd) {
    let mut reader = storage.read(chain, ChainPosition::default()).unwrap();
    let mut records = Vec::new();
    while let Some(batch) = reader.next().unwrap() {
        records.extend(batch.records);
    }
    let end = reader.end().unwrap();
    (records, end)
}

/// Puts drafts into a chain.
fn chained(chain: &str, drafts: &[UnchainedRecord]) -> Vec<ChainedRecord> {
    let mut before = RecordHash::default();
    let (mut records, mut runs) = (Vec::new(), HashMap::new());
    for (seq, draft) in (1..).zip(drafts) {
        let number = runs.entry(draft.run()).and_modify(|last| *last += 1).or_insert(1);
        let text = draft.text(chain, seq, *number);
        before = hash(&before, text.as_bytes());
        records.push(ChainedRecord { seq, text, hash: before });
    }
    records
}

/// Replaces the records of a chain, as somebody who can write the files would.
fn rewrite(dir: &Path, chain: &str, change: impl FnOnce(&mut Vec<ChainedRecord>)) {
    let mut records = stored(&segments(dir), chain).0;
    change(&mut records);
    std::fs::remove_file(segment(dir, chain)).unwrap();
    let mut writer = segments(dir).create(chain);
    for record in records {
        writer.append(&[record]).unwrap();
    }
    writer.finish().unwrap();
}

fn records(dir: &Path) -> Vec<PositionedRecord> {
    LedgerReader::open(dir).unwrap().tail(usize::MAX, &RecordFilter::default()).unwrap()
}

fn kinds(dir: &Path) -> Vec<String> {
    records(dir).into_iter().map(|entry| entry.record.kind).collect()
}
