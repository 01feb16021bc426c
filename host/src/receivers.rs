//! Receivers: the places to which the broker sends something other than answers to agents, and whether they accept it.
//! Each sender reports its deliveries here; `status`, `doctor` and the metrics show the reports.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::call::now_millis;
use crate::sync::Mutex;

/// The most characters of an error that are kept. A server may answer anything.
const MAX_ERROR: usize = 512;

/// The receivers of one broker, in the order of its configuration. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Receivers(Arc<Mutex<Vec<Receiver>>>);

/// One receiver, with the outcomes of the deliveries to it. Clones share that.
#[derive(Debug, Clone)]
pub(crate) struct Receiver {
    kind: ReceiverKind,
    name: Arc<str>,
    deliveries: Arc<Mutex<Deliveries>>,
}

/// The data that a receiver gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ReceiverKind {
    /// Records of the ledger.
    Sink,
    /// Checkpoints of the ledger.
    Witness,
    /// Questions to people.
    Questions,
    /// Spans.
    #[cfg_attr(not(feature = "telemetry"), expect(dead_code, reason = "without the feature nobody sends any"))]
    Spans,
    /// Metrics.
    #[cfg_attr(not(feature = "telemetry"), expect(dead_code, reason = "without the feature nobody sends any"))]
    Metrics,
}

/// The outcomes of the deliveries to one receiver since the broker started. Times are in milliseconds since the Unix
/// epoch.
#[derive(Debug, Default)]
struct Deliveries {
    /// The number of deliveries that failed, each attempt counted.
    failures: u64,
    /// The number of them since the last one that succeeded.
    in_a_row: u64,
    /// The time of the first of those in a row, or of the failure before the receiver recovered.
    since: Option<u64>,
    /// The time at which it took something again.
    recovered: Option<u64>,
    last_error: Option<String>,
}

/// The state of one receiver, as `status --json` shows it. Times are in milliseconds since the Unix epoch.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ReceiverState {
    pub(crate) kind: ReceiverKind,
    pub(crate) name: Arc<str>,
    /// True if the last delivery failed.
    pub(crate) failing: bool,
    /// The number of deliveries that failed since the broker started, each attempt counted.
    pub(crate) failures: u64,
    /// The time at which it began to fail: now, or the last time that it did.
    pub(crate) since: Option<u64>,
    /// The time at which it took something again, unless it fails.
    pub(crate) recovered: Option<u64>,
    /// The last error, also after it has recovered.
    #[serde(rename = "lastError")]
    pub(crate) last_error: Option<String>,
}

impl ReceiverKind {
    /// Returns the word for it in messages and metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Sink => "sink",
            Self::Witness => "witness",
            Self::Questions => "questions",
            Self::Spans => "spans",
            Self::Metrics => "metrics",
        }
    }
}

impl fmt::Display for ReceiverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Receivers {
    /// Adds a receiver to which nothing was sent yet. If another one has its kind and its name, it gets a number too:
    /// the same plugin may be configured twice.
    pub(crate) fn add(&self, kind: ReceiverKind, name: &str) -> Receiver {
        let mut all = self.0.lock();
        let is_taken = |name: &str| all.iter().any(|other| other.kind == kind && *other.name == *name);
        let numbered = (2..).map(|number| format!("{name} ({number})"));
        let free = std::iter::once(name.to_owned()).chain(numbered).find(|name| !is_taken(name));
        let receiver = Receiver { kind, name: free.unwrap_or_default().into(), deliveries: Arc::default() };
        all.push(receiver.clone());
        receiver
    }

    /// Removes a receiver, to which nothing more is sent.
    pub(crate) fn remove(&self, receiver: &Receiver) {
        self.0.lock().retain(|other| !Arc::ptr_eq(&other.deliveries, &receiver.deliveries));
    }

    /// Returns the state of each.
    pub(crate) fn states(&self) -> Vec<ReceiverState> {
        self.0.lock().iter().map(Receiver::state).collect()
    }
}

impl Receiver {
    /// Returns the name, safe to show.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reports a delivery that failed. Returns true if the one before did not, so that it is logged once.
    pub(crate) fn failed(&self, error: &str) -> bool {
        let mut deliveries = self.deliveries.lock();
        deliveries.failures += 1;
        deliveries.in_a_row += 1;
        deliveries.last_error = Some(error.chars().take(MAX_ERROR).collect());
        let is_first = deliveries.in_a_row == 1;
        if is_first {
            deliveries.since = Some(now_millis());
            deliveries.recovered = None;
        }
        is_first
    }

    /// Reports a delivery that succeeded. Returns how many failed in a row before it.
    pub(crate) fn succeeded(&self) -> u64 {
        let mut deliveries = self.deliveries.lock();
        let failures = std::mem::take(&mut deliveries.in_a_row);
        if failures > 0 {
            deliveries.recovered = Some(now_millis());
        }
        failures
    }

    fn state(&self) -> ReceiverState {
        let deliveries = self.deliveries.lock();
        let Deliveries { failures, in_a_row, since, recovered, .. } = *deliveries;
        let (name, last_error) = (Arc::clone(&self.name), deliveries.last_error.clone());
        ReceiverState { kind: self.kind, name, failing: in_a_row > 0, failures, since, recovered, last_error }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;

    #[test]
    fn a_receiver_that_fails_says_since_when_how_often_and_why_and_that_it_recovered() {
        let all = Receivers::default();
        let (first, second) = (all.add(ReceiverKind::Sink, "jsonl"), all.add(ReceiverKind::Sink, "jsonl"));
        all.add(ReceiverKind::Witness, "jsonl");
        let names: Vec<_> = all.states().into_iter().map(|state| state.name.to_string()).collect();
        assert_eq!(names, ["jsonl", "jsonl (2)", "jsonl"]);
        assert_eq!(first.succeeded(), 0);
        let fresh = &all.states()[0];
        assert!(!fresh.failing && fresh.since.is_none() && fresh.recovered.is_none() && fresh.last_error.is_none());

        assert!(second.failed("no route") && !second.failed(&"x".repeat(2 * MAX_ERROR)));
        let failing = &all.states()[1];
        assert_eq!((failing.failing, failing.failures, failing.recovered), (true, 2, None));
        assert_eq!(failing.last_error.as_ref().unwrap().len(), MAX_ERROR);
        let since = failing.since.unwrap();

        assert_eq!((second.succeeded(), second.succeeded()), (2, 0));
        let well = &all.states()[1];
        assert_eq!((well.failing, well.failures, well.since), (false, 2, Some(since)));
        assert!(well.recovered.unwrap() >= since && well.last_error.is_some());
        assert!(second.failed("again"));
        let failing = &all.states()[1];
        assert_eq!((failing.failing, failing.failures, failing.recovered), (true, 3, None));
        assert!(!all.states()[0].failing, "the others are as they were");
        let before = all.states().len();
        all.remove(&second);
        assert_eq!(all.states().len(), before - 1);
    }
}
