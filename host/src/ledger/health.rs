//! Whether the ledger can be written, and how many records were lost while it could not.

use std::sync::atomic::{AtomicU64, Ordering};

use super::LedgerError;
use crate::sync::Mutex;

/// What the writer's thread and those who fill its queue know together.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Records that were lost since the last `ledger.gap`.
    lost: AtomicU64,
    trouble: Mutex<Option<Trouble>>,
}

/// Why the ledger cannot be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// What the last try met.
    pub error: LedgerError,
    /// Records that were lost since it began.
    pub lost: u64,
}

impl Health {
    /// Counts a record that cannot even be queued. The first since the last gap is logged.
    pub(super) fn lose(&self, kind: &'static str, error: &LedgerError) {
        if self.lost.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::error!(kind, %error, "a record is lost; how many follow it is counted in `ledger.gap`");
        }
    }

    /// Records that were lost since the last gap.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Records were not written, `lost` of them for ever. The first time is logged, the others are counted.
    pub(super) fn failed(&self, error: &LedgerError, lost: u64) {
        self.lost.fetch_add(lost, Ordering::Relaxed);
        let mut trouble = self.lock();
        if trouble.is_none() {
            tracing::error!(%error, "the ledger cannot be written, and calls are refused until it can");
        }
        let before = trouble.as_ref().map_or(0, |trouble| trouble.lost);
        *trouble = Some(Trouble { error: error.clone(), lost: before + lost });
    }

    /// A gap of so many records was told.
    pub(super) fn told(&self, lost: u64) {
        self.lost.fetch_sub(lost, Ordering::Relaxed);
    }

    /// The ledger can be written again.
    pub(super) fn recovered(&self) {
        if let Some(Trouble { lost, .. }) = self.lock().take() {
            tracing::warn!(lost, "the ledger can be written again, and calls are made");
        }
    }

    /// Why the ledger cannot be written, if it cannot.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Trouble>> {
        self.trouble.lock()
    }
}
