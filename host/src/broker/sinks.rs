//! The sinks of a broker, each with a task that feeds it. On a reload, an unchanged sink continues, a changed one
//! resumes at its cursor, and the others begin or end.

use std::mem::discriminant;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::feed::{Feed, RecordReceiver};
use super::syslog::SyslogSender;
use super::{BuildError, default_sink_file};
use crate::config::{Config, PluginConfig, PluginRef, RemoteSinkConfig};
use crate::ledger::Ledger;
use crate::plugin::{PluginHost, PluginIdentity};
use crate::receivers::{Receiver, Receivers};
use crate::secret::SecretStore;
use crate::telemetry::LogCollector;

/// The longest time that sinks get for their last records. Records that a sink has not accepted by then are never
/// delivered to it: a cursor belongs to its chain, and the ledger itself has all records.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// A sink that can be fed.
pub(super) struct LoadedSink {
    what: ConfiguredSink,
    pub(super) receiver: RecordReceiver,
}

/// The configuration of a sink, and the target that it leads to: sinks for which both are equal are the same.
#[derive(Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a broker has few sinks")]
enum ConfiguredSink {
    /// A plugin, which has changed if its code has, and the file for its lines if the configuration names none.
    Plugin(PluginConfig, PluginIdentity, Option<PathBuf>),
    Remote(RemoteSinkConfig),
}

/// The tasks that feed the sinks.
#[derive(Debug)]
pub(super) struct SinkTasks {
    running: Vec<RunningSink>,
    /// The number of sinks that were ever fed: each has its own cursor.
    begun: usize,
    ledger: Ledger,
    reported: Receivers,
}

/// A sink and the task that feeds it.
#[derive(Debug)]
struct RunningSink {
    what: ConfiguredSink,
    /// The name of its cursor in the ledger.
    cursor: String,
    reported: Receiver,
    finishing: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Loads the configured sinks.
///
/// # Errors
/// [`BuildError`] if a plugin cannot be loaded, or a collector cannot be used.
pub(super) async fn load(
    plugins: &PluginHost,
    config: &Config,
    secrets: &SecretStore,
) -> Result<Vec<LoadedSink>, BuildError> {
    let mut loaded = Vec::with_capacity(config.sinks.len() + config.remote_sinks.len());
    // A sink's file is opened without following links, and the path of the data folder may contain one.
    let data_dir = config.data_dir.canonicalize().unwrap_or_else(|_| config.data_dir.clone());
    for (index, sink) in config.sinks.iter().enumerate() {
        let file = default_sink_file(&data_dir, index);
        let made = plugins.sink(sink, &file).await;
        // The others are servers, in a separate list.
        let made = made.map_err(|error| BuildError::of_listed(config, "`[[sinks]]` with a `plugin`", index, error))?;
        let has_file = sink.file.is_some() || matches!(sink.plugin, PluginRef::Native(_));
        let what = ConfiguredSink::Plugin(sink.clone(), made.identity().clone(), (!has_file).then_some(file));
        loaded.push(LoadedSink { what, receiver: RecordReceiver::Plugin(made) });
    }
    for (index, sink) in config.remote_sinks.iter().enumerate() {
        let receiver = match sink {
            RemoteSinkConfig::Syslog(address) => RecordReceiver::Syslog(SyslogSender::new(address.clone())),
            RemoteSinkConfig::Otlp(collector) => {
                let made = LogCollector::new(collector, secrets);
                RecordReceiver::Collector(made.map_err(|error| BuildError::of_collector(config, index, &error))?)
            }
        };
        loaded.push(LoadedSink { what: ConfiguredSink::Remote(sink.clone()), receiver });
    }
    Ok(loaded)
}

impl SinkTasks {
    /// Starts to feed the sinks, whose deliveries are reported to `reported`.
    pub(super) fn start(sinks: Vec<LoadedSink>, ledger: &Ledger, reported: &Receivers) -> Self {
        let mut tasks = Self { running: Vec::new(), begun: 0, ledger: ledger.clone(), reported: reported.clone() };
        for sink in sinks {
            tasks.begin(sink, FirstRecord::OfTheChain);
        }
        tasks
    }

    /// Reports whether these sinks are others than those that are fed.
    pub(super) fn differ(&self, sinks: &[LoadedSink]) -> bool {
        let is_fed = |sink: &LoadedSink| self.running.iter().any(|running| running.what == sink.what);
        sinks.len() != self.running.len() || !sinks.iter().all(is_fed)
    }

    /// Feeds these sinks. One that is already fed continues. A changed one resumes after the last record that it had; a
    /// new one gets the records from now on. The others get what has been recorded so far.
    pub(super) fn replace(&mut self, sinks: Vec<LoadedSink>) {
        let mut before: Vec<_> = self.running.drain(..).collect();
        let mut others = Vec::new();
        for sink in sinks {
            match before.iter().position(|running| running.what == sink.what) {
                Some(place) => self.running.push(before.remove(place)),
                None => others.push(sink),
            }
        }
        // The most alike come first, so that no sink resumes at the cursor of another.
        for likeness in [Likeness::ToOneFile, Likeness::OfOneKind] {
            let mut unlike = Vec::new();
            for sink in others {
                match before.iter().position(|running| running.what.is_like(&sink.what, likeness)) {
                    Some(place) => self.begin(sink, FirstRecord::After(before.remove(place))),
                    None => unlike.push(sink),
                }
            }
            others = unlike;
        }
        for sink in others {
            self.begin(sink, FirstRecord::FromNowOn);
        }
        for removed in before {
            self.reported.remove(&removed.reported);
            tokio::spawn(finish(vec![removed]));
        }
    }

    fn begin(&mut self, LoadedSink { what, receiver }: LoadedSink, first: FirstRecord) {
        let cursor = match &first {
            FirstRecord::After(before) => before.cursor.clone(),
            _ => {
                self.begun += 1;
                format!("sink-{}", self.begun)
            }
        };
        if let FirstRecord::After(before) = &first {
            self.reported.remove(&before.reported);
        }
        let feed = Feed::new(cursor.clone(), receiver, self.ledger.clone(), &self.reported);
        let (reported, finishing, ledger) = (feed.reported().clone(), watch::Sender::new(false), self.ledger.clone());
        let (until, tip, of) = (finishing.subscribe(), *self.ledger.tip().borrow(), cursor.clone());
        let task = tokio::spawn(async move {
            match first {
                FirstRecord::OfTheChain => {}
                FirstRecord::FromNowOn => {
                    if let Err(error) = ledger.advance(&of, tip).await {
                        tracing::warn!(%error, "a new sink gets all records of this run");
                    }
                }
                // One after the other, as they have the same cursor.
                FirstRecord::After(before) => finish(vec![before]).await,
            }
            feed.run(until).await;
        });
        self.running.push(RunningSink { what, cursor, reported, finishing, task });
    }

    /// Delivers what has been recorded so far, within [`FINISH_TIMEOUT`] for all sinks together, then ends the tasks.
    pub(super) async fn finish(self) {
        finish(self.running).await;
    }
}

/// The first record that a sink gets.
#[expect(clippy::large_enum_variant, reason = "one is made when a sink begins")]
enum FirstRecord {
    OfTheChain,
    FromNowOn,
    /// The one after the last record of the sink that it replaces.
    After(RunningSink),
}

/// How much a sink is like the one that it replaces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Likeness {
    /// The same plugin writes to the same file.
    ToOneFile,
    /// It is the same plugin, or the same kind of server.
    OfOneKind,
}

impl ConfiguredSink {
    fn is_like(&self, other: &Self, likeness: Likeness) -> bool {
        match (self, other) {
            (Self::Plugin(one, _, of_one), Self::Plugin(other, _, of_other)) => {
                let one_file = (&one.file, of_one) == (&other.file, of_other);
                one.plugin == other.plugin && (one_file || likeness == Likeness::OfOneKind)
            }
            (Self::Remote(one), Self::Remote(other)) => {
                discriminant(one) == discriminant(other) && likeness == Likeness::OfOneKind
            }
            _ => false,
        }
    }
}

/// Gives sinks what has been recorded so far, and ends their tasks.
async fn finish(sinks: Vec<RunningSink>) {
    for sink in &sinks {
        sink.finishing.send_replace(true);
    }
    let deadline = tokio::time::Instant::now() + FINISH_TIMEOUT;
    for RunningSink { reported, mut task, .. } in sinks {
        if tokio::time::timeout_at(deadline, &mut task).await.is_err() {
            let (sink, seconds) = (reported.name(), FINISH_TIMEOUT.as_secs());
            tracing::error!(sink, "a sink did not accept its last records within {seconds} s");
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests;
