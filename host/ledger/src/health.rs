//! The health of the ledger: whether it can be written, and how many records were lost while it could not.

use std::sync::atomic::{AtomicU64, Ordering};

use portcullis_core::sync::Mutex;

use super::LedgerError;

/// The state that the writer's thread shares with the threads that fill its queue.
#[derive(Debug, Default)]
pub(super) struct LedgerHealth {
    /// The number of records that were lost since the last `ledger.gap`.
    lost: AtomicU64,
    /// The number of records that were ever lost.
    lost_ever: AtomicU64,
    trouble: Mutex<Option<LedgerTrouble>>,
}

/// The reason why the ledger cannot be written, and the records lost since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerTrouble {
    /// The error of the last attempt.
    pub error: LedgerError,
    /// The number of records that were lost since the trouble began.
    pub lost: u64,
}

impl LedgerHealth {
    /// Counts a record that could not even be queued. The first one since the last gap is logged.
    pub(super) fn count_lost(&self, kind: &'static str, error: &LedgerError) {
        self.lost_ever.fetch_add(1, Ordering::Relaxed);
        if self.lost.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::error!(kind, %error, "a record was lost; `ledger.gap` will count it and those that follow");
        }
    }

    /// Returns how many records were lost since the last gap.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Returns how many records were ever lost. If the number has grown, records that were taken for written may be
    /// lost.
    pub(super) fn lost_ever(&self) -> u64 {
        self.lost_ever.load(Ordering::Relaxed)
    }

    /// Notes that records were not written, and that `lost` of them never will be. The first failure is logged; later
    /// ones are only counted.
    pub(super) fn failed(&self, error: &LedgerError, lost: u64) {
        self.lost.fetch_add(lost, Ordering::Relaxed);
        self.lost_ever.fetch_add(lost, Ordering::Relaxed);
        let mut trouble = self.lock();
        if trouble.is_none() {
            tracing::error!(%error, "the ledger cannot be written, and calls are refused until it can");
        }
        let before = trouble.as_ref().map_or(0, |trouble| trouble.lost);
        *trouble = Some(LedgerTrouble { error: error.clone(), lost: before + lost });
    }

    /// Notes that a `ledger.gap` with this many lost records was written.
    pub(super) fn gap_written(&self, lost: u64) {
        self.lost.fetch_sub(lost, Ordering::Relaxed);
    }

    /// Notes that the ledger can be written again.
    pub(super) fn recovered(&self) {
        if let Some(LedgerTrouble { lost, .. }) = self.lock().take() {
            tracing::warn!(lost, "the ledger can be written again, and calls are allowed");
        }
    }

    /// Returns why the ledger cannot be written, or `None` if it can.
    pub(super) fn trouble(&self) -> Option<LedgerTrouble> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<LedgerTrouble>> {
        self.trouble.lock()
    }
}
