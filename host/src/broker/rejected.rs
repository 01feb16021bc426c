//! Records of requests that a front turned away. A client without a token can send any number of requests, which become
//! only a few records.

use std::net::IpAddr;
use std::sync::Weak;

use serde_json::json;

use crate::ledger::repeats::{self, RepeatCounter};
use crate::ledger::{Event, EventKind, Ledger};

/// Records the requests that fronts turned away.
pub(super) struct RejectionRecorder {
    ledger: Ledger,
    repeats: RepeatCounter<Rejection>,
}

/// Rejections that are counted together. Holds no text of the caller's.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Rejection {
    reason: &'static str,
    peer: IpAddr,
}

impl RejectionRecorder {
    pub(super) fn new(ledger: Ledger) -> Self {
        Self { ledger, repeats: RepeatCounter::default() }
    }

    /// Records the first rejection of a kind, and counts the others.
    pub(super) fn add(&self, reason: &'static str, peer: IpAddr) {
        let rejection = Rejection { reason, peer };
        if self.repeats.is_first(&rejection) {
            self.record(rejection, 1);
        }
    }

    /// Records the rejections that were only counted. Returns true if there were none.
    pub(super) fn report(&self) -> bool {
        let report = self.repeats.report();
        for (rejection, count) in &report.repeated {
            self.record(*rejection, *count);
        }
        if report.others > 0 {
            tracing::warn!(count = report.others, "turned away requests of too many kinds to list");
            let body = json!({ "reason": "too many different rejections to list", "count": report.others });
            self.ledger.record(Event::new(EventKind::FrontRejected, body));
        }
        report.is_empty()
    }

    fn record(&self, Rejection { reason, peer }: Rejection, count: u64) {
        tracing::warn!(%peer, reason, count, "turned away requests at the front");
        let body = json!({ "reason": reason, "peer": peer, "count": count });
        self.ledger.record(Event::new(EventKind::FrontRejected, body));
    }
}

/// Records how often rejections were repeated, after pauses of a minute to an hour, for as long as the broker lives.
pub(super) async fn report_repeats(rejections: Weak<RejectionRecorder>) {
    let mut pause = repeats::PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        let Some(rejections) = rejections.upgrade() else { return };
        pause = repeats::next_pause(pause, rejections.report());
    }
}

impl std::fmt::Debug for RejectionRecorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RejectionRecorder").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::digest::Digest;
    use crate::ledger::{ChainStart, LedgerReader, RecordFilter};

    #[tokio::test]
    async fn a_flood_of_rejections_from_everywhere_is_a_bounded_number_of_records() {
        let dir = tempfile::tempdir().unwrap();
        let started = ChainStart { version: "0".to_owned(), config: Digest::of(b""), key: None };
        let ledger = Ledger::open(dir.path(), started).await.unwrap();
        let rejections = RejectionRecorder::new(ledger.clone());
        let flood = 10_000;
        for n in 0..flood {
            rejections.add("token", IpAddr::from(u128::from(n % 1_000_u32).to_be_bytes()));
        }
        assert!(!rejections.report());
        assert!(rejections.report(), "nothing is reported twice");
        ledger.flush().await.unwrap();
        let filter = RecordFilter { kind: Some("front.rejected".to_owned()), ..RecordFilter::default() };
        let found = LedgerReader::open(dir.path()).unwrap().tail(usize::MAX, &filter).unwrap();
        assert_eq!(found.len(), 2 * repeats::MAX_KINDS + 1);
        let counted: u64 = found.iter().filter_map(|entry| entry.record.body.get("count")?.as_u64()).sum();
        assert_eq!(counted, u64::from(flood));
    }
}
