//! Delivers the ledger's records to each sink, in order and at its own pace. A record may be delivered more than once,
//! and records not delivered when the broker stops are never delivered: the ledger keeps them.
//!
//! A receiver that is down gets the same records until it takes them. A plugin that itself fails at a record, as with a
//! trap, would do so for ever: it gets a substitute for that record, and then the records that follow.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::syslog::{SyslogMessage, SyslogSender};
use crate::ledger::{Event, EventBody, EventKind, Ledger};
use crate::plugin::{FailureCode, Sink};
use crate::receivers::{Receiver, ReceiverKind, Receivers};
use crate::telemetry::LogCollector;

/// The largest number of records that a sink gets at a time.
const BATCH: usize = 256;

/// The first pause after a sink has failed; doubles up to [`MAX_BACKOFF`].
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);

/// The longest pause between two deliveries.
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// The number of times that a plugin may itself fail: at a batch, before its records are delivered one at a time; at
/// one record, before it gets a substitute; and at the substitute, before it gets nothing. A busy machine may be the
/// cause of a failure or two.
const MAX_OWN_FAILURES: u32 = 3;

/// The number of such failures while the broker finishes, as the time for it is short.
const MAX_OWN_FAILURES_AT_THE_END: u32 = 1;

/// A receiver of records.
pub(super) enum RecordReceiver {
    Plugin(Sink),
    Syslog(SyslogSender),
    Collector(LogCollector),
}

/// A delivery that failed.
#[derive(Debug)]
struct DeliveryFailure {
    cause: String,
    /// The code of a failure that a sandboxed plugin itself causes, and repeats with the same records.
    own: Option<FailureCode>,
}

impl RecordReceiver {
    /// Returns the name of the receiver, safe to show.
    fn name(&self) -> String {
        match self {
            Self::Plugin(sink) => sink.identity().name.to_string(),
            Self::Syslog(sender) => sender.address().to_string(),
            Self::Collector(collector) => collector.shown(),
        }
    }

    async fn deliver(&self, records: Vec<String>) -> Result<(), DeliveryFailure> {
        match self {
            Self::Plugin(sink) => sink.deliver(records).await.map_err(|failure| DeliveryFailure {
                own: sink.fails_by_itself(&failure).then_some(failure.code),
                cause: failure.to_string(),
            }),
            Self::Syslog(sender) => {
                let messages: Vec<_> = records.into_iter().map(SyslogMessage::of_record).collect();
                Ok(sender.send(&messages).await?)
            }
            Self::Collector(collector) => Ok(collector.deliver(&records).await?),
        }
    }

    /// Ends the connection to the receiver, if there is one.
    async fn close(&self) {
        if let Self::Syslog(sender) = self {
            sender.close().await;
        }
    }
}

impl From<String> for DeliveryFailure {
    fn from(cause: String) -> Self {
        Self { cause, own: None }
    }
}

/// The feed of one sink.
pub(super) struct Feed {
    name: String,
    receiver: RecordReceiver,
    /// Where its deliveries are reported.
    reported: Receiver,
    ledger: Ledger,
    /// The number of times in a row that the plugin itself has failed at the next records.
    own_failures: u32,
    /// The code of the last of these failures.
    own_code: Option<FailureCode>,
    /// The number of the last record of a batch at which the plugin itself failed. Up to it, records are delivered one
    /// at a time.
    alone_until: Option<u64>,
}

impl Feed {
    /// Makes the feed of a receiver, with the name of its cursor.
    pub(super) fn new(name: String, receiver: RecordReceiver, ledger: Ledger, reported: &Receivers) -> Self {
        let reported = reported.add(ReceiverKind::Sink, &receiver.name());
        Self { name, receiver, reported, ledger, own_failures: 0, own_code: None, alone_until: None }
    }

    /// Returns where its deliveries are reported.
    pub(super) fn reported(&self) -> &Receiver {
        &self.reported
    }

    /// Feeds the sink until it finishes, or its broker was dropped.
    pub(super) async fn run(mut self, finishing: watch::Receiver<bool>) {
        self.deliver_all(finishing).await;
        self.receiver.close().await;
    }

    async fn deliver_all(&mut self, mut finishing: watch::Receiver<bool>) {
        let mut tip = self.ledger.tip();
        let mut backoff = INITIAL_BACKOFF;
        loop {
            tip.mark_unchanged();
            // The last records are on disk before the broker finishes, and may not have been when a delivery before
            // that began.
            let is_finishing = *finishing.borrow();
            match self.deliver(if is_finishing { MAX_OWN_FAILURES_AT_THE_END } else { MAX_OWN_FAILURES }).await {
                Ok(0) if is_finishing => return,
                Ok(0) => {
                    tokio::select! {
                        _ = tip.changed() => {}
                        changed = finishing.changed() => if changed.is_err() { return },
                    }
                }
                Ok(_) => {
                    backoff = INITIAL_BACKOFF;
                    let failures = self.reported.succeeded();
                    if failures > 0 {
                        tracing::warn!(sink = self.reported.name(), failures, "a sink accepts its records again");
                    }
                }
                Err(DeliveryFailure { cause, own }) => {
                    let is_first = self.reported.failed(&cause);
                    if is_first {
                        tracing::error!(
                            sink = self.reported.name(),
                            cause,
                            "a sink did not accept its records; they are delivered again"
                        );
                    }
                    // The next attempt is different: fewer records, a substitute, or the records that follow.
                    if is_finishing && own.is_some() {
                        continue;
                    }
                    // One failure may pass: the first delivery of a broker that ends soon may be the last.
                    if is_finishing && !is_first {
                        return;
                    }
                    tokio::select! {
                        () = tokio::time::sleep(backoff) => backoff = (backoff * 2).min(MAX_BACKOFF),
                        changed = finishing.changed() => if changed.is_err() { return },
                    }
                }
            }
        }
    }

    /// Delivers one batch, or a substitute for its only record after this many of the plugin's own failures. Returns
    /// how many records it had.
    async fn deliver(&mut self, max_own_failures: u32) -> Result<usize, DeliveryFailure> {
        let max = if self.alone_until.is_some() { 1 } else { BATCH };
        let batch = self.ledger.batch(&self.name, max).await.map_err(|error| error.to_string())?;
        let Some(last) = batch.last().map(|(seq, _)| *seq) else { return Ok(0) };
        let count = batch.len();
        let mut records: Vec<_> = batch.into_iter().map(|(_, text)| text).collect();
        let is_given_up = count == 1 && self.own_failures >= max_own_failures;
        let substitute = records.first_mut().filter(|_| is_given_up).map(|record| {
            let substitute = Substitute::of(record, self.own_code);
            record.clone_from(&substitute.text);
            substitute
        });
        let Err(failure) = self.receiver.deliver(records).await else {
            if let Some(substitute) = substitute {
                self.report(last, &substitute, "the sink got the record without its body");
            }
            self.pass(last).await?;
            return Ok(count);
        };
        if failure.own.is_none() {
            return Err(failure);
        }
        self.own_code = failure.own;
        self.own_failures += 1;
        match substitute {
            Some(substitute) if self.own_failures >= 2 * max_own_failures => {
                self.report(last, &substitute, "the sink did not get the record, not even without its body");
                self.pass(last).await?;
            }
            None if count > 1 && self.own_failures >= max_own_failures => {
                (self.own_failures, self.alone_until) = (0, Some(last));
            }
            _ => {}
        }
        Err(failure)
    }

    /// Moves the cursor behind a record.
    async fn pass(&mut self, last: u64) -> Result<(), DeliveryFailure> {
        self.ledger.advance(&self.name, last).await.map_err(|error| error.to_string())?;
        self.own_failures = 0;
        self.alone_until = self.alone_until.filter(|until| *until > last);
        Ok(())
    }

    /// Reports in the log and in the ledger that the sink did not get a record unchanged.
    fn report(&self, seq: u64, substitute: &Substitute, what: &'static str) {
        tracing::error!(
            sink = self.reported.name(),
            seq,
            kind = substitute.kind,
            "a plugin failed at a record; {what}"
        );
        // The sink may also fail at the report of its failure: this must end somewhere.
        let RecordReceiver::Plugin(sink) = &self.receiver else { return };
        if substitute.kind == EventKind::PluginFailed.as_str() {
            return;
        }
        let body = EventBody::new()
            .with("plugin", &*sink.identity().name)
            .with("digest", sink.identity().digest)
            .with("code", self.own_code.map(FailureCode::as_str))
            .with("cause", format!("{what}: number {seq} of this chain"));
        self.ledger.record(Event::new(EventKind::PluginFailed, body));
    }
}

/// The substitute that a plugin gets for a record at which it fails: the record with another body.
struct Substitute {
    text: String,
    kind: String,
}

impl Substitute {
    fn of(record: &str, code: Option<FailureCode>) -> Self {
        let body = json!({ "left_out_bytes": record.len(), "undelivered": code.map(FailureCode::as_str) });
        let kind = serde_json::from_str(record).map(|RecordKind { kind }| kind.into_owned()).unwrap_or_default();
        Self { text: with_body(record, &body), kind }
    }
}

/// The kind of a record.
#[derive(Deserialize)]
struct RecordKind<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

/// Returns a record with another body. Makes no tree of the old one, which may be large.
pub(super) fn with_body(record: &str, body: &Value) -> String {
    let body = to_raw_value(body).unwrap_or_default();
    // The members are in canonical order, as in the record.
    let mut members: BTreeMap<&str, &RawValue> = serde_json::from_str(record).unwrap_or_default();
    members.insert("body", &body);
    serde_json::to_string(&members).unwrap_or_default()
}

#[cfg(test)]
mod tests;
