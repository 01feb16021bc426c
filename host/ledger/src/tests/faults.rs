//! Failures of the disk, the file and other programs.

use std::collections::BTreeSet;
use std::sync::{Condvar, PoisonError};

use super::writing::wait_for_end;
use super::*;
use crate::removed::RemovedRecords;
use crate::storage::{ChainReader, ChainWriter, StorageLock, StorageProbe};

/// Segments whose appends fail or wait when a test says so.
#[derive(Debug)]
pub(super) struct FaultyStorage {
    segments: Segments,
    fault: Mutex<Fault>,
    changed: Condvar,
    /// The names of the threads that appended.
    threads: Mutex<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Fails,
    Waits,
    Panics,
}

impl FaultyStorage {
    /// Returns a storage in a folder, and a setup that uses it and retries only when a new record arrives.
    pub(super) fn new(dir: &Path) -> (Arc<Self>, LedgerSetup) {
        let (segments, fault) = (segments(dir), Mutex::new(Fault::None));
        let storage = Arc::new(Self { segments, fault, changed: Condvar::new(), threads: Mutex::default() });
        let setup = LedgerSetup { storage: Some(Arc::new(Shared(Arc::clone(&storage)))), ..SHORT };
        (storage, setup)
    }

    /// Lets every append wait.
    pub(super) fn hold(&self) {
        *self.fault.lock() = Fault::Waits;
    }

    /// Lets every append fail as if the disk were full.
    pub(super) fn fail(&self) {
        *self.fault.lock() = Fault::Fails;
    }

    /// Returns the names of the threads that appended since this was last called.
    pub(super) fn threads(&self) -> Vec<String> {
        std::mem::take(&mut *self.threads.lock())
    }

    /// Lets every append panic.
    pub(super) fn panic(&self) {
        *self.fault.lock() = Fault::Panics;
    }

    /// Lets every append work, also those that wait.
    pub(super) fn work(&self) {
        *self.fault.lock() = Fault::None;
        self.changed.notify_all();
    }
}

/// A storage that a test and a ledger share.
#[derive(Debug)]
struct Shared(Arc<FaultyStorage>);

struct FaultyWriter(Box<dyn ChainWriter>, Arc<FaultyStorage>);

impl Storage for Shared {
    fn create(&self, chain: &str) -> Box<dyn ChainWriter> {
        Box::new(FaultyWriter(self.0.segments.create(chain), Arc::clone(&self.0)))
    }

    fn chains(&self) -> Result<std::collections::BTreeSet<String>, LedgerError> {
        self.0.segments.chains()
    }

    fn last_place(&self, chain: &str) -> Result<ChainPosition, LedgerError> {
        self.0.segments.last_place(chain)
    }

    fn read(&self, chain: &str, from: ChainPosition) -> Result<Box<dyn ChainReader>, LedgerError> {
        self.0.segments.read(chain, from)
    }

    fn removed(&self, chain: &str) -> Result<Option<RemovedRecords>, LedgerError> {
        self.0.segments.removed(chain)
    }

    fn removed_chains(&self) -> Result<std::collections::BTreeSet<String>, LedgerError> {
        self.0.segments.removed_chains()
    }

    fn remove(&self, removed: &RemovedRecords) -> Result<(), LedgerError> {
        self.0.segments.remove(removed)
    }

    fn complete_removals(&self) -> Result<(), LedgerError> {
        self.0.segments.complete_removals()
    }

    fn lock_for_removal(&self) -> Result<Option<StorageLock>, LedgerError> {
        self.0.segments.lock_for_removal()
    }

    fn lock_for_reading(&self) -> Result<Option<StorageLock>, LedgerError> {
        self.0.segments.lock_for_reading()
    }

    fn finish(&self, chain: &str, end: ChainPosition, tail: &ChainEnd) -> Result<(), LedgerError> {
        self.0.segments.finish(chain, end, tail)
    }
}

impl ChainWriter for FaultyWriter {
    fn append(&mut self, records: &[ChainedRecord]) -> Result<(), LedgerError> {
        self.1.threads.lock().push(std::thread::current().name().unwrap_or_default().to_owned());
        let mut fault = self.1.fault.lock();
        while *fault == Fault::Waits {
            fault = self.1.changed.wait(fault).unwrap_or_else(PoisonError::into_inner);
        }
        if *fault == Fault::Fails {
            return Err(LedgerError::Full("faulty".into()));
        }
        let panics = *fault == Fault::Panics;
        drop(fault);
        assert!(!panics, "the storage is faulty");
        self.0.append(records)
    }

    fn probe(&self) -> StorageProbe {
        self.0.probe()
    }

    fn finish(&mut self) -> Result<(), LedgerError> {
        self.0.finish()
    }

    fn abandon(&mut self) {
        self.0.abandon();
    }
}

#[tokio::test]
async fn a_crash_leaves_an_incomplete_chain_and_no_fork() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    ledger.append(event(EventKind::CallIntent)).await.unwrap();
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good, "a live chain needs no end");
    let chain = ledger.chain().to_owned();
    drop(ledger);
    wait_for_end(dir.path()).await;
    let ChainStatus::Incomplete { chain: named, reason } = verify(dir.path()).unwrap().verdict else { panic!() };
    assert_eq!(named, chain);
    assert!(reason.contains("ends at record 2"), "{reason}");
}

#[tokio::test]
async fn a_storage_that_fails_stops_calls_and_the_gap_is_recorded() {
    let dir = folder();
    let (storage, setup) = FaultyStorage::new(dir.path());
    let ledger = Ledger::open_with(dir.path(), started(), setup).await.unwrap();
    storage.fail();
    let full = LedgerError::Full("faulty".into());
    assert_eq!(intend(&ledger, event(EventKind::CallIntent), None).await, Err(full.clone()));
    assert_eq!(ledger.append(event(EventKind::ToolCompleted)).await, Err(full.clone()));
    storage.work();

    // The gap takes number 2, in the same append.
    assert_eq!(intend(&ledger, event(EventKind::CallIntent), None).await, Ok(3));
    assert_eq!(ledger.append(event(EventKind::ToolCompleted)).await, Ok(4), "told once");
    ledger.close().await;
    let found = records(dir.path());
    assert_eq!(found[1].record.kind, "ledger.gap");
    assert_eq!(found[1].record.body, json!({"lost": 2, "cause": full.to_string()}));
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test]
async fn a_definition_that_was_lost_is_recorded_with_the_next_call() {
    let dir = folder();
    let (storage, setup) = FaultyStorage::new(dir.path());
    let ledger = Ledger::open_with(dir.path(), started(), setup).await.unwrap();
    let item = portcullis_core::testing::view("{}").call.item.clone();
    storage.fail();
    ledger.record_definition(&item);
    assert!(ledger.flush().await.is_err());
    storage.work();
    for _ in 0..2 {
        ledger.record_definition(&item);
    }
    ledger.close().await;
    assert_eq!(kinds(dir.path()), ["broker.started", "ledger.gap", "definition.called", "broker.stopped"]);
}

#[tokio::test]
async fn nobody_waits_for_a_writer_that_panicked() {
    let dir = folder();
    let (storage, setup) = FaultyStorage::new(dir.path());
    let ledger = Ledger::open_with(dir.path(), started(), setup).await.unwrap();
    storage.panic();
    for _ in 0..2 {
        assert_eq!(intend(&ledger, event(EventKind::CallIntent), None).await, Err(LedgerError::Closed));
    }
    assert_eq!(ledger.trouble(), Some(LedgerTrouble { error: LedgerError::Closed, lost: 0 }));
    ledger.close().await;
    assert!(!is_live(dir.path(), ledger.chain()));
}

#[tokio::test]
async fn a_locked_state_is_refused_at_the_start_and_stops_no_call() {
    let dir = folder();
    let ledger = Ledger::open_with(dir.path(), started(), SHORT).await.unwrap();
    let other = shell(dir.path());
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    assert!(matches!(Ledger::open_with(dir.path(), started(), SHORT).await, Err(LedgerError::Busy(_))));
    assert_eq!(intend(&ledger, event(EventKind::CallIntent), None).await, Ok(2));
    assert!(matches!(ledger.advance("sink", 1).await, Err(LedgerError::Busy(_))));
    other.execute_batch("ROLLBACK").unwrap();
    ledger.close().await;
    assert_eq!(chain::all(dir.path()).unwrap().len(), 1, "nothing is left of the start that failed");
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test]
async fn a_full_disk_stops_calls_and_what_is_there_stays_good() {
    let dir = folder();
    let limits = |bytes| StorageLimits { bytes: Some(bytes), ..StorageLimits::default() };
    let storage: Arc<dyn Storage> = Arc::new(Segments::new(dir.path(), limits(80_000)));
    let setup = LedgerSetup { storage: Some(storage), ..SHORT };
    let ledger = Ledger::open_with(dir.path(), started(), setup).await.unwrap();
    let random = || (0..3000).map(|_| CallId::new().to_string()).collect::<String>();
    let mut written = 1;
    let full = loop {
        match ledger.append(Event::new(EventKind::SourceLog, json!({ "line": random() }))).await {
            Ok(seq) => written = seq,
            Err(error) => break error,
        }
        assert!(written < 100);
    };
    assert!(matches!(full, LedgerError::Full(_)), "{full:?}");
    let large = Event::new(EventKind::CallIntent, json!({ "line": random() }));
    let intent = intend(&ledger, large, None).await;
    assert!(matches!(intent, Err(LedgerError::Full(_))), "{intent:?}");
    let verification = verify(dir.path()).unwrap();
    assert_eq!((verification.verdict, verification.chains[0].records), (ChainStatus::Good, written));
    // Records that still fit are written: the space up to the end of the disk is used.
    intend(&ledger, event(EventKind::CallIntent), None).await.unwrap();
    ledger.close().await;
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test]
async fn notes_and_appends_that_cannot_be_written_are_counted_and_do_not_affect_others() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    let large = Event::new(EventKind::SourceLog, json!({ "line": "x".repeat(MAX_RECORD_BYTES) }));
    ledger.record(large.clone());
    assert!(matches!(ledger.append(large).await, Err(LedgerError::TooLarge { .. })));
    ledger.close().await;
    assert_eq!(kinds(dir.path()), ["broker.started", "ledger.gap", "broker.stopped"]);
}

#[tokio::test]
async fn an_intent_whose_grant_is_spent_leaves_the_others() {
    let dir = folder();
    let (storage, setup) = FaultyStorage::new(dir.path());
    let ledger = Ledger::open_with(dir.path(), started(), setup).await.unwrap();
    let absent = GrantUse {
        grant: "absent".into(),
        binding: GrantBinding {
            principal: String::new(),
            source: String::new(),
            definition: Digest::of(b""),
            tool: String::new(),
            policies: Digest::of(b""),
            arguments: Digest::of(b""),
            session: SessionId::new(),
            reasons: BTreeSet::new(),
        },
    };
    storage.hold();
    let work = async {
        tokio::join!(
            ledger.append(event(EventKind::SourceLog)),
            async {
                let spent = intend(&ledger, event(EventKind::CallIntent), Some(absent)).await;
                storage.work();
                spent
            },
            ledger.append(event(EventKind::SourceLog)),
        )
    };
    assert_eq!(work.await, (Ok(2), Err(LedgerError::GrantSpent("absent".into())), Ok(3)));
    ledger.close().await;
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test]
async fn a_file_that_this_version_cannot_use_is_refused_by_name() {
    let newer = folder();
    closed(newer.path(), 0).await;
    shell(newer.path()).execute_batch("PRAGMA user_version = 7").unwrap();
    let error = Ledger::open(newer.path(), started()).await.unwrap_err();
    assert!(matches!(error, LedgerError::Newer { found: 7, known: 3, .. }), "{error}");

    let foreign = folder();
    shell(foreign.path()).execute_batch("CREATE TABLE t (x)").unwrap();
    assert!(matches!(Ledger::open(foreign.path(), started()).await, Err(LedgerError::Foreign(_))));

    let text = folder();
    std::fs::write(state::path(text.path()), "not a database, but long enough to be looked at".repeat(10)).unwrap();
    assert!(matches!(Ledger::open(text.path(), started()).await, Err(LedgerError::Damaged { .. })));

    let key = folder();
    std::fs::write(key.path().join("ledger.key"), "short").unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(key.path().join("ledger.key"), private).unwrap();
    let error = Ledger::open(key.path(), started()).await.unwrap_err();
    assert!(error.to_string().contains("5 bytes instead of 32"), "{error}");

    let nothing = folder();
    assert!(matches!(verify(nothing.path()), Err(LedgerError::Missing(_))));
    assert!(matches!(LedgerReader::open(nothing.path()), Err(LedgerError::Missing(_))));
}
