//! Tests of the ledger's promises against real files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod calls;
mod faults;
mod files;
mod grants;
mod outcomes;
mod seals;
mod tamper;
mod writing;

use std::path::Path;
use std::time::Duration;

use portcullis_core::call::{CallId, SessionId};
use serde_json::json;
use tempfile::TempDir;

use super::store::StoreLimits;
use super::*;

fn started() -> ChainStart {
    ChainStart { version: "1.2.3".into(), config: Digest::of(b"config") }
}

async fn open(dir: &Path) -> Ledger {
    Ledger::open(dir, started()).await.unwrap()
}

/// Limits for a ledger that gives up on a lock at once, and retries only when a new record arrives.
const SHORT: StoreLimits =
    StoreLimits { busy: Duration::from_millis(50), pages: None, retry: Duration::from_secs(3600) };

/// Records an intent and waits until it is durable.
async fn intend(ledger: &Ledger, event: Event, consume: Option<GrantUse>) -> Result<u64, LedgerError> {
    let (intent, _slot) = ledger.intent(event, consume).await?;
    intent.durable().await
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

/// Opens a connection as somebody with a SQLite shell would.
fn shell(dir: &Path) -> Connection {
    Connection::open(store::path(dir)).unwrap()
}

fn records(dir: &Path) -> Vec<PositionedRecord> {
    LedgerReader::open(dir).unwrap().tail(usize::MAX, &RecordFilter::default()).unwrap()
}

fn kinds(dir: &Path) -> Vec<String> {
    records(dir).into_iter().map(|entry| entry.record.kind).collect()
}
