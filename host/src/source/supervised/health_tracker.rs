//! The health of a source, counted over all its connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::call::now_millis;
use crate::ledger::EventCallback;
use crate::name::SourceName;

/// The health of a source over all its connections: its counters, its name, and the recorder of its events.
pub(super) struct HealthTracker {
    pub(super) name: SourceName,
    pub(super) record: EventCallback,
    /// Connections that could not be made or were lost, and pings that were not answered.
    pub(super) errors: AtomicU64,
    /// The time at which a ping was last answered, in milliseconds since the Unix epoch; 0 if never.
    pub(super) last_ping: AtomicI64,
    /// The number of list changes that the source has announced, over any connection.
    pub(super) changes: Arc<AtomicU64>,
}

impl HealthTracker {
    pub(super) fn failed(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn ping_answered(&self) {
        self.last_ping.store(i64::try_from(now_millis()).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
}
