//! A lone call writes on the thread that it runs on, which makes no other difference.

use super::*;

/// Longer than any write.
const ALWAYS: Duration = Duration::from_secs(3600);

/// Returns a ledger for which writes of up to this time are quick, and its storage.
async fn faulty(dir: &Path, quick: Duration) -> (Arc<FaultyStorage>, Ledger) {
    let (storage, setup) = FaultyStorage::new(dir);
    let retry = Duration::from_millis(20);
    let ledger = Ledger::open_with(dir, started(), LedgerSetup { retry, quick, ..setup }).await.unwrap();
    storage.threads();
    (storage, ledger)
}

/// Makes a call in a task, so that a panic affects only this task.
async fn call(ledger: &Ledger) -> Result<Result<u64, LedgerError>, tokio::task::JoinError> {
    let ledger = ledger.clone();
    tokio::spawn(async move {
        let (intent, slot) = ledger.intent(event(EventKind::CallIntent), None, IntentDurability::BeforeCall).await?;
        let number = intent.unwrap().durable().await?;
        slot.record(event(EventKind::ToolCompleted));
        Ok(number)
    })
    .await
}

/// The number of calls that are watched where none may write on its own thread.
const SOME: usize = 20;

/// The number of calls among which at least one writes on its own thread if allowed, however busy the machine is.
const MANY: usize = 100;

/// Makes calls until one writes on its own thread, as far as it does within this many. The thread of the ledger may
/// still hold the writer after it has answered.
async fn writes_itself(storage: &FaultyStorage, ledger: &Ledger, calls: usize) -> bool {
    storage.threads();
    for _ in 0..calls {
        // The outcome of the call before is written by the thread of the ledger.
        ledger.flush().await.unwrap();
        call(ledger).await.unwrap().unwrap();
        if storage.threads().iter().any(|thread| thread != "ledger") {
            return true;
        }
    }
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_call_that_is_alone_on_a_quick_disk_writes_on_its_own_thread() {
    let dir = folder();
    let (storage, ledger) = faulty(dir.path(), ALWAYS).await;
    assert!(writes_itself(&storage, &ledger, MANY).await, "alone");

    let other = ledger.intent(event(EventKind::CallIntent), None, IntentDurability::BeforeCall).await.unwrap();
    ledger.flush().await.unwrap();
    assert!(!writes_itself(&storage, &ledger, SOME).await, "another call is open");
    drop(other);
    ledger.close().await;

    let (storage, ledger) = faulty(dir.path(), Duration::ZERO).await;
    assert!(!writes_itself(&storage, &ledger, SOME).await, "the last write was slow");
    ledger.close().await;
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test]
async fn a_runtime_of_one_thread_is_never_blocked_by_the_disk() {
    let dir = folder();
    let (storage, ledger) = faulty(dir.path(), ALWAYS).await;
    assert!(!writes_itself(&storage, &ledger, SOME).await);
    ledger.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_call_could_not_write_itself_is_tried_again_by_the_thread() {
    let dir = folder();
    let (storage, ledger) = faulty(dir.path(), ALWAYS).await;
    let full = LedgerError::Full("faulty".into());
    loop {
        ledger.flush().await.unwrap();
        storage.threads();
        storage.fail();
        assert_eq!(call(&ledger).await.unwrap(), Err(full.clone()));
        if storage.threads().iter().any(|thread| thread != "ledger") {
            break;
        }
        storage.work();
    }
    assert_eq!(ledger.trouble().map(|trouble| trouble.error), Some(full));
    let mut tip = ledger.tip();
    let last = *tip.borrow_and_update();
    storage.work();
    // Nothing more is recorded: only the thread can find out that the disk has room again.
    tip.wait_for(|seq| *seq > last).await.unwrap();
    ledger.flush().await.unwrap();
    assert_eq!(ledger.trouble(), None);
    assert_eq!(records(dir.path()).pop().unwrap().record.kind, "ledger.gap");
    ledger.close().await;
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_panics_in_the_storage_ends_the_writing_for_all() {
    let dir = folder();
    let (storage, ledger) = faulty(dir.path(), ALWAYS).await;
    assert_eq!(call(&ledger).await.unwrap(), Ok(2));
    storage.panic();
    ledger.flush().await.unwrap_err();
    assert_eq!(call(&ledger).await.unwrap(), Err(LedgerError::Closed));
    ledger.close().await;
    assert!(!is_live(dir.path(), ledger.chain()));

    loop {
        let (storage, ledger) = faulty(dir.path(), ALWAYS).await;
        storage.panic();
        let ended = call(&ledger).await;
        assert_eq!(call(&ledger).await.unwrap(), Err(LedgerError::Closed));
        ledger.close().await;
        assert!(!is_live(dir.path(), ledger.chain()));
        match ended {
            Err(panicked) => break assert!(panicked.is_panic(), "on its own thread"),
            // The thread of the ledger held the writer at that moment.
            Ok(refused) => assert_eq!(refused, Err(LedgerError::Closed)),
        }
    }
}

/// A checkpoint is due a minute after the first record that none covers, also if no thread of the ledger wrote it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_write_themselves_get_their_checkpoints() {
    let (dir, home) = (folder(), folder());
    let key = CheckpointKey::open(&home.path().join("state")).unwrap();
    let ledger = Ledger::open(dir.path(), ChainStart { key: Some(Arc::new(key)), ..started() }).await.unwrap();
    for _ in 0..600 {
        call(&ledger).await.unwrap().unwrap();
    }
    let mut signed = ledger.inner.signed.clone();
    signed.wait_for(|signed| signed.as_ref().is_some_and(|signed| signed.checkpoint.size >= 1000)).await.unwrap();
    ledger.close().await;
}
