//! Delivers the ledger's records to each sink, in order and at its own pace. A record may be delivered more than once,
//! and what is not delivered when the broker stops is not delivered later: the ledger keeps it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::syslog::{SyslogMessage, SyslogSender};
use super::{BuildError, default_sink_file};
use crate::config::{Config, RemoteSinkConfig};
use crate::ledger::Ledger;
use crate::plugin::{PluginHost, Sink};
use crate::secret::SecretStore;
use crate::telemetry::LogCollector;

/// The largest number of records that a sink gets at a time.
const BATCH: usize = 256;

/// The first pause after a sink has failed; doubles up to [`MAX_BACKOFF`].
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);

/// The longest pause between two deliveries.
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// The longest time that a shutdown waits for all sinks. Records that a sink has not accepted by then are never
/// delivered to it: a cursor belongs to its chain, and the ledger itself has everything.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The tasks that feed the sinks.
#[derive(Debug)]
pub(super) struct SinkTasks {
    tasks: Vec<JoinHandle<()>>,
    finishing: watch::Sender<bool>,
}

/// A receiver of records.
pub(super) enum RecordReceiver {
    Plugin(Sink),
    Syslog(SyslogSender),
    Collector(LogCollector),
}

/// The receivers of records, each with a name for its cursor.
pub(super) type RecordReceivers = Vec<(String, RecordReceiver)>;

/// Loads the configured sinks under names that are stable across restarts.
///
/// # Errors
/// [`BuildError`] if a plugin cannot be loaded, or a collector cannot be used.
pub(super) async fn load(
    plugins: &PluginHost,
    config: &Config,
    secrets: &SecretStore,
) -> Result<RecordReceivers, BuildError> {
    let mut receivers = Vec::with_capacity(config.sinks.len() + config.remote_sinks.len());
    // A sink's file is opened without following links, and the path of the data folder may contain one.
    let data_dir = config.data_dir.canonicalize().unwrap_or_else(|_| config.data_dir.clone());
    for (index, sink) in config.sinks.iter().enumerate() {
        let file = default_sink_file(&data_dir, index);
        let sink = plugins.sink(sink, &file).await;
        // The others are servers, and in a list of their own.
        let sink = sink.map_err(|error| BuildError::of_listed(config, "`[[sinks]]` with a `plugin`", index, error))?;
        receivers.push((format!("sink-{}", index + 1), RecordReceiver::Plugin(sink)));
    }
    for (index, sink) in config.remote_sinks.iter().enumerate() {
        let receiver = match sink {
            RemoteSinkConfig::Syslog(address) => RecordReceiver::Syslog(SyslogSender::new(address.clone())),
            RemoteSinkConfig::Otlp(collector) => {
                let made = LogCollector::new(collector, secrets);
                RecordReceiver::Collector(made.map_err(|error| BuildError::of_collector(config, index, &error))?)
            }
        };
        receivers.push((format!("remote-sink-{}", index + 1), receiver));
    }
    Ok(receivers)
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

    async fn deliver(&self, records: Vec<String>) -> Result<(), String> {
        match self {
            Self::Plugin(sink) => sink.deliver(records).await.map_err(|failure| failure.to_string()),
            Self::Syslog(sender) => {
                let messages: Vec<_> = records.into_iter().map(SyslogMessage::of_record).collect();
                sender.send(&messages).await
            }
            Self::Collector(collector) => collector.deliver(&records).await,
        }
    }

    /// Ends the connection to the receiver, if there is one.
    async fn close(&self) {
        if let Self::Syslog(sender) = self {
            sender.close().await;
        }
    }
}

impl SinkTasks {
    pub(super) fn start(receivers: RecordReceivers, ledger: &Ledger) -> Self {
        let finishing = watch::Sender::new(false);
        let spawned = |(name, receiver)| tokio::spawn(feed(name, receiver, ledger.clone(), finishing.subscribe()));
        let tasks = receivers.into_iter().map(spawned).collect();
        Self { tasks, finishing }
    }

    /// Delivers what has been recorded so far, within [`DRAIN_TIMEOUT`] for all sinks together, then ends the tasks.
    pub(super) async fn finish(self) {
        self.finishing.send_replace(true);
        let deadline = tokio::time::Instant::now() + DRAIN_TIMEOUT;
        for mut task in self.tasks {
            if tokio::time::timeout_at(deadline, &mut task).await.is_err() {
                tracing::error!("a sink did not accept its last records within {} s", DRAIN_TIMEOUT.as_secs());
                task.abort();
            }
        }
    }
}

/// Feeds one sink until the broker finishes, or was dropped.
async fn feed(name: String, receiver: RecordReceiver, ledger: Ledger, finishing: watch::Receiver<bool>) {
    deliver_all(&name, &receiver, &ledger, finishing).await;
    receiver.close().await;
}

async fn deliver_all(name: &str, receiver: &RecordReceiver, ledger: &Ledger, mut finishing: watch::Receiver<bool>) {
    let mut tip = ledger.tip();
    let (mut backoff, mut failures) = (INITIAL_BACKOFF, 0_u64);
    loop {
        tip.mark_unchanged();
        // The last records are on disk before the broker finishes, and may not have been when a delivery before that began.
        let is_finishing = *finishing.borrow();
        match deliver(name, receiver, ledger).await {
            Ok(0) if is_finishing => return,
            Ok(0) => {
                tokio::select! {
                    _ = tip.changed() => {}
                    changed = finishing.changed() => if changed.is_err() { return },
                }
            }
            Ok(_) => {
                backoff = INITIAL_BACKOFF;
                let failed = std::mem::take(&mut failures);
                if failed > 0 {
                    tracing::warn!(sink = receiver.name(), failures = failed, "a sink accepts its records again");
                }
            }
            Err(cause) => {
                if failures == 0 {
                    tracing::error!(
                        sink = receiver.name(),
                        cause,
                        "a sink did not accept its records; they are delivered again"
                    );
                }
                failures += 1;
                // One failure may pass: the first delivery of a broker that ends soon may be the last.
                if is_finishing && failures > 1 {
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

/// Delivers one batch. Returns how many records it had.
async fn deliver(name: &str, receiver: &RecordReceiver, ledger: &Ledger) -> Result<usize, String> {
    let batch = ledger.batch(name, BATCH).await.map_err(|error| error.to_string())?;
    let Some(last) = batch.last().map(|(seq, _)| *seq) else { return Ok(0) };
    let count = batch.len();
    let records = batch.into_iter().map(|(_, text)| text).collect();
    receiver.deliver(records).await?;
    ledger.advance(name, last).await.map_err(|error| error.to_string())?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use async_trait::async_trait;
    use portcullis_wasm::testing::plugins;

    use super::*;
    use crate::config::PluginTable;
    use crate::ledger::ChainStart;
    use crate::plugin::{NativeError, NativePlugins, NativeSink};
    use crate::sync::Mutex;

    /// A sink that fails as often as its number says, and then counts what it gets.
    struct Failing(Arc<Mutex<(usize, usize)>>);

    #[async_trait]
    impl NativeSink for Failing {
        async fn deliver(&self, records: &[String]) -> Result<(), NativeError> {
            let (failures, got) = &mut *self.0.lock();
            if let Some(left) = failures.checked_sub(1) {
                *failures = left;
                return Err("not yet".into());
            }
            *got += records.len();
            Ok(())
        }
    }

    /// Starts to feed a sink in a folder.
    async fn fed(dir: &std::path::Path, plugin: &str, plugins: &PluginHost) -> SinkTasks {
        let config = Config::builder(dir).sink(PluginTable::new(plugin)).build().unwrap();
        let started = ChainStart { version: "1".into(), config: crate::digest::Digest::of(b""), key: None };
        let ledger = Ledger::open(&config.data_dir, started).await.unwrap();
        ledger.flush().await.unwrap();
        let secrets = SecretStore::open(&config.data_dir).unwrap();
        let sinks = load(plugins, &config, &secrets).await.unwrap();
        SinkTasks::start(sinks, &ledger)
    }

    #[tokio::test]
    async fn a_sink_that_fails_once_at_the_end_still_gets_its_records() {
        for (failures, got_any) in [(1, true), (9, false)] {
            let dir = tempfile::tempdir().unwrap();
            let state = Arc::new(Mutex::new((failures, 0)));
            let mut natives = NativePlugins::default();
            natives.sinks.insert("failing".to_owned(), Arc::new(Failing(Arc::clone(&state))));
            let plugins = plugins().clone().with_natives(natives);
            // The task does not run before it is told to finish: this thread is the only one.
            fed(dir.path(), "native:failing", &plugins).await.finish().await;
            assert_eq!(state.lock().1 > 0, got_any, "{failures}");
        }
    }

    #[tokio::test]
    async fn a_feed_ends_with_a_broker_that_was_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let SinkTasks { tasks, finishing } = fed(dir.path(), "builtin:jsonl", plugins()).await;
        assert_eq!(tasks.len(), 1);
        drop(finishing);
        for task in tasks {
            task.await.unwrap();
        }
    }
}
