//! Failures of plugins about what a source may send at any rate: they are recorded one by one only until they repeat.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::ledger::repeats::{self, RepeatCounter};
use crate::ledger::{Event, EventBody, EventKind, Ledger};
use crate::name::SourceName;
use crate::plugin::{FailureCode, PluginIdentity};

/// Counts the failures of plugins that are not about a call of the agent's: about notifications, and about the items of a
/// list. The first of a kind is recorded at once, the others as a number.
pub(super) struct FailureCounter {
    ledger: Ledger,
    repeats: RepeatCounter<RepeatedFailure>,
    /// True once the counts are reported from time to time.
    reports: AtomicBool,
}

/// Failures that are counted together. Holds no text of the plugin's.
#[derive(Clone, PartialEq, Eq, Hash)]
struct RepeatedFailure {
    plugin: String,
    code: FailureCode,
    source: SourceName,
}

impl FailureCounter {
    pub(super) fn new(ledger: Ledger) -> Arc<Self> {
        Arc::new(Self { ledger, repeats: RepeatCounter::default(), reports: AtomicBool::new(false) })
    }

    /// Counts a failure. Returns true if it is the first of its kind, which the caller records.
    pub(super) fn is_first(self: &Arc<Self>, plugin: &PluginIdentity, code: FailureCode, source: &SourceName) -> bool {
        if !self.reports.swap(true, Ordering::Relaxed) {
            let counter = Arc::downgrade(self);
            tokio::spawn(async move {
                let mut pause = repeats::PAUSE;
                loop {
                    tokio::time::sleep(pause).await;
                    let Some(counter) = counter.upgrade() else { return };
                    pause = repeats::next_pause(pause, counter.report());
                }
            });
        }
        self.repeats.is_first(&RepeatedFailure { plugin: plugin.name.clone(), code, source: source.clone() })
    }

    /// Records the failures that were only counted. Returns true if there were none.
    pub(super) fn report(&self) -> bool {
        let report = self.repeats.report();
        for (RepeatedFailure { plugin, code, source }, count) in &report.repeated {
            let code = code.as_str();
            tracing::error!(%plugin, code, %source, count, "plugin failed again, so what the source sent is withheld");
            let body = EventBody::new().with("plugin", &**plugin).with("code", code).with("source", source.as_str());
            self.ledger.record(Event::new(EventKind::PluginFailed, body.with("count", *count)));
        }
        if report.others > 0 {
            tracing::error!(count = report.others, "plugins failed in too many ways to list");
            let body =
                EventBody::new().with("code", "too many different failures to list").with("count", report.others);
            self.ledger.record(Event::new(EventKind::PluginFailed, body));
        }
        report.is_empty()
    }
}

impl Drop for FailureCounter {
    fn drop(&mut self) {
        self.report();
    }
}

impl std::fmt::Debug for FailureCounter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FailureCounter").finish_non_exhaustive()
    }
}
