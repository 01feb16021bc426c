//! A broker that runs for a long time with rotation and retention on: neither its disk nor its memory grows.

use futures_util::future::join_all;
use portcullis_core::call::now_millis;

use super::*;
use crate::verify::verify_in;

/// The number of calls in each test run. `PORTCULLIS_SOAK_CALLS=1000000` makes it a soak, which also measures the
/// memory of the process and prints the result; other tests must not run at the same time.
const CALLS: usize = 3000;

/// As many agents as a busy team has.
const CALLERS: usize = 64;

/// The size of a segment, in bytes, so that a short run has several.
const SEGMENT_BYTES: u64 = 128 * 1024;

/// The number of times that old records are removed.
const REMOVALS: usize = 50;

/// The largest growth of the process that is not a leak, in bytes: the memory kept by the allocator varies.
const MEMORY_NOISE: u64 = 16 * 1024 * 1024;

/// Records a call as the gate does.
async fn call(ledger: &Ledger, run: &SessionId) {
    let call = CallId::new();
    let intent = event(EventKind::CallIntent).in_run(run).to_call(&call);
    let (pending, slot) = ledger.intent(intent, None, IntentDurability::BeforeCall).await.unwrap();
    pending.unwrap().durable().await.unwrap();
    slot.record(event(EventKind::ToolCompleted).in_run(run).to_call(&call));
}

/// Returns the bytes that all files of a folder take.
fn size_of(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let size = |entry: std::fs::DirEntry| match entry.metadata().unwrap() {
        found if found.is_dir() => size_of(&entry.path()),
        found => found.len(),
    };
    entries.map(size).sum()
}

/// Returns the memory of this process that is in use, in bytes.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn disk_and_memory_stay_flat_while_old_records_are_removed() {
    #[allow(clippy::disallowed_methods, reason = "the length of a soak is chosen by who runs it")]
    let soak: Option<usize> = std::env::var("PORTCULLIS_SOAK_CALLS").ok().map(|calls| calls.parse().unwrap());
    let dir = folder();
    let limits = StorageLimits { segment: Some(SEGMENT_BYTES), ..StorageLimits::default() };
    let storage: Arc<dyn Storage> = Arc::new(Segments::new(dir.path(), limits));
    let setup = LedgerSetup { storage: Some(Arc::clone(&storage)), ..SHORT };
    let ledger = Ledger::open_with(dir.path(), started(), setup).await.unwrap();
    let run = SessionId::new();
    let (mut sizes, mut memories, mut removed) = (Vec::new(), Vec::new(), 0);
    let rounds = soak.unwrap_or(CALLS).div_ceil(CALLERS * REMOVALS);
    for _ in 0..REMOVALS {
        for _ in 0..rounds {
            join_all((0..CALLERS).map(|_| call(&ledger, &run))).await;
        }
        ledger.flush().await.unwrap();
        removed += ledger.remove_before(now_millis() + 1).await.unwrap().records;
        sizes.push(size_of(dir.path()));
        memories.push(memory());
    }
    let written = *ledger.tip().borrow();
    ledger.close().await;
    // The rest is the segment being written, with its reserved space, and the state.
    let most = *sizes.iter().max().unwrap();
    assert!(most < 6 * SEGMENT_BYTES, "{sizes:?}");
    assert!(removed + 4 * SEGMENT_BYTES / 100 > written && removed > 0, "{removed} of {written} were removed");
    let found = verify_in(dir.path(), storage, &[], &[], &mut VerifiedSegments::default()).unwrap();
    assert_eq!((found.chains[0].records, found.verdict), (written + 1, ChainStatus::Good));
    if soak.is_some() {
        let (early, late) = (memories[REMOVALS / 5], memories[REMOVALS - 1]);
        println!(
            "{written} records, {removed} removed; at most {most} bytes on disk; memory {early}, at the end {late}"
        );
        assert!(late < early + MEMORY_NOISE, "{memories:?}");
    }
}
