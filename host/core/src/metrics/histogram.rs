//! Histograms of durations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets, in seconds.
type Bounds = &'static [f64];

/// The bounds for calls, which are those of OpenTelemetry's conventions for MCP.
pub const OPERATION: Bounds = &[0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

/// The bounds for what normally takes microseconds: a plugin's decision, a record of the ledger.
pub const DECISION: Bounds = &[
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0,
];

/// The number of buckets: as many as the longest list of bounds needs, and one for values above all bounds.
const BUCKETS: usize = 16;

/// Counts of durations by bucket, and their sum. Recording takes two atomic additions, between which a reader may look.
#[derive(Debug)]
pub struct Histogram {
    bounds: Bounds,
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

impl Histogram {
    /// Returns an empty histogram with these upper bounds, in seconds.
    pub const fn new(bounds: Bounds) -> Self {
        Self { bounds, buckets: [const { AtomicU64::new(0) }; BUCKETS], nanos: AtomicU64::new(0) }
    }

    /// Counts a duration in the first bucket whose bound it does not exceed.
    pub fn record(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let at = self.bounds.partition_point(|bound| *bound < seconds).min(BUCKETS - 1);
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns how many durations were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }

    /// Returns the sum of all durations, in seconds.
    pub fn seconds(&self) -> f64 {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed)).as_secs_f64()
    }

    /// Returns each upper bound with the number of durations between it and the one before. The last counts all longer
    /// ones.
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(&self.buckets).map(|(bound, bucket)| (bound, bucket.load(Ordering::Relaxed))).collect()
    }

    /// Adds the counts of another histogram, which must have the same bounds.
    pub(super) fn absorb(&self, other: &Self) {
        let pairs = self.buckets.iter().zip(&other.buckets).chain([(&self.nanos, &other.nanos)]);
        for (own, other) in pairs {
            own.fetch_add(other.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}
