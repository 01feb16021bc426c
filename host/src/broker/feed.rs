//! Feeds the sinks: each gets the ledger's records in order, at least once, at its own pace.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::default_sink_file;
use crate::config::Config;
use crate::ledger::Ledger;
use crate::plugin::{PluginError, Plugins, Sink};

/// The largest number of records that a sink gets at a time.
const BATCH: usize = 256;

/// The first pause after a sink has failed; doubles up to [`MAX_PAUSE`].
const PAUSE: Duration = Duration::from_millis(500);

/// The longest pause between two tries.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The longest time that a broker that ends waits for its sinks. Records that a sink has not taken by then are never
/// sent to it: a cursor belongs to its chain, and the ledger itself has everything.
const FINISH: Duration = Duration::from_secs(5);

/// The tasks that feed the sinks.
#[derive(Debug)]
pub(super) struct Feeds {
    tasks: Vec<JoinHandle<()>>,
    finishing: watch::Sender<bool>,
}

/// Loads the configured sinks under names that are stable across restarts.
pub(super) async fn load(plugins: &Plugins, config: &Config) -> Result<Vec<(String, Sink)>, PluginError> {
    let mut sinks = Vec::with_capacity(config.sinks.len());
    // A sink's file is opened without following links, and the path of the data folder may contain one.
    let data_dir = config.data_dir.canonicalize().unwrap_or_else(|_| config.data_dir.clone());
    for (index, sink) in config.sinks.iter().enumerate() {
        let file = default_sink_file(&data_dir, index);
        sinks.push((format!("sink-{}", index + 1), plugins.sink(sink, &file).await?));
    }
    Ok(sinks)
}

impl Feeds {
    pub(super) fn start(sinks: Vec<(String, Sink)>, ledger: &Ledger) -> Self {
        let finishing = watch::Sender::new(false);
        let feed = |(name, sink)| tokio::spawn(feed(name, Arc::new(sink), ledger.clone(), finishing.subscribe()));
        let tasks = sinks.into_iter().map(feed).collect();
        Self { tasks, finishing }
    }

    /// Lets every sink take what has been recorded so far, then ends the tasks.
    pub(super) async fn finish(self) {
        self.finishing.send_replace(true);
        for mut task in self.tasks {
            if tokio::time::timeout(FINISH, &mut task).await.is_err() {
                tracing::error!("a sink did not take its last records within {} s", FINISH.as_secs());
                task.abort();
            }
        }
    }
}

/// Feeds one sink until the broker finishes, or was dropped.
async fn feed(name: String, sink: Arc<Sink>, ledger: Ledger, mut finishing: watch::Receiver<bool>) {
    let mut tip = ledger.tip();
    let (mut pause, mut failures) = (PAUSE, 0_u64);
    loop {
        tip.mark_unchanged();
        match deliver(&name, &sink, &ledger).await {
            Ok(0) if *finishing.borrow() => return,
            Ok(0) => {
                tokio::select! {
                    _ = tip.changed() => {}
                    told = finishing.changed() => if told.is_err() { return },
                }
            }
            Ok(_) => {
                pause = PAUSE;
                let tries = std::mem::take(&mut failures);
                if tries > 0 {
                    tracing::warn!(sink = %sink.identity().name, tries, "a sink takes its records again");
                }
            }
            Err(cause) => {
                if failures == 0 {
                    tracing::error!(sink = %sink.identity().name, cause, "a sink did not take its records; they are sent again");
                }
                failures += 1;
                if *finishing.borrow() {
                    return;
                }
                tokio::select! {
                    () = tokio::time::sleep(pause) => pause = (pause * 2).min(MAX_PAUSE),
                    told = finishing.changed() => if told.is_err() { return },
                }
            }
        }
    }
}

/// Delivers one batch. Returns how many records it had.
async fn deliver(name: &str, sink: &Sink, ledger: &Ledger) -> Result<usize, String> {
    let batch = ledger.batch(name, BATCH).await.map_err(|error| error.to_string())?;
    let Some(last) = batch.last().map(|(seq, _)| *seq) else { return Ok(0) };
    let count = batch.len();
    let records = batch.into_iter().map(|(_, text)| text).collect();
    sink.deliver(records).await.map_err(|failure| failure.to_string())?;
    ledger.advance(name, last).await.map_err(|error| error.to_string())?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use portcullis_wasm::testing::plugins;

    use super::*;
    use crate::ledger::ChainStart;

    #[tokio::test]
    async fn a_feed_ends_with_a_broker_that_was_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let config =
            Config::builder(dir.path()).sink(serde_json::json!({ "plugin": "builtin:jsonl" })).build().unwrap();
        let started = ChainStart { version: "1".into(), config: crate::digest::Digest::of(b"") };
        let ledger = Ledger::open(&config.data_dir, started).await.unwrap();
        let sinks = load(plugins(), &config).await.unwrap();
        let Feeds { tasks, finishing } = Feeds::start(sinks, &ledger);
        assert_eq!(tasks.len(), 1);
        drop(finishing);
        for task in tasks {
            task.await.unwrap();
        }
    }
}
