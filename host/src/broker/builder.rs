//! Builds a broker from its configuration and the parts that the embedding program provides.

use std::sync::Arc;
use std::time::Instant;

use portcullis_jail::Launcher;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use super::broker_core::{BrokerCore, PreparedConfig};
use super::native_parts::NativeParts;
use super::question_notifier::QuestionNotifier;
use super::rejected::{self, RejectionRecorder};
use super::sinks::{self, LoadedSink, SinkTasks};
use super::witness::WitnessTasks;
use super::{Background, Broker, BuildError, Inner, metrics, operator, retention, start_eager, started};
#[cfg(feature = "process")]
use crate::cell::TierProbe;
use crate::config::Config;
#[cfg(feature = "process")]
use crate::config::Endpoint;
use crate::ledger::Ledger;
use crate::plugin::{NativePolicy, NativeSink};
use crate::receivers::Receivers;
use crate::session::ContinuationStore;
use crate::source::NativeSource;
use crate::sync::Mutex;
use crate::telemetry::{MetricsCollector, Telemetry};

/// A broker that is about to be built, with the policies, sinks and sources that the program provides. The
/// configuration must name each of them, and decides on its place.
///
/// # Example
/// ```
/// use portcullis::{Broker, Config, Launcher, NativeError, NativeSink};
/// use serde_json::json;
///
/// /// Prints every record.
/// struct Printer;
///
/// #[async_trait::async_trait]
/// impl NativeSink for Printer {
///     async fn deliver(&self, records: &[String]) -> Result<(), NativeError> {
///         records.iter().for_each(|record| println!("{record}"));
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// let config = Config::builder(folder.path())
///     .source("calc", json!({ "component": "builtin:calculator" }))
///     .sink(json!({ "plugin": "native:printer" }))
///     .build()?;
/// let broker = Broker::builder(config, Launcher::SelfExec).sink("printer", Printer).build().await?;
/// broker.shutdown().await;
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a builder builds nothing until `build` is called"]
pub struct BrokerBuilder {
    config: Config,
    launcher: Launcher,
    natives: NativeParts,
    /// The role and the name of the first part that was added under a name that was taken.
    twice: Option<(&'static str, String)>,
}

impl Broker {
    /// Returns a builder of a broker with this configuration. `launcher` is the program that becomes each process
    /// source.
    pub fn builder(config: Config, launcher: Launcher) -> BrokerBuilder {
        BrokerBuilder { config, launcher, natives: NativeParts::default(), twice: None }
    }

    /// Builds a broker to which the program brings nothing along. See [`BrokerBuilder::build`].
    ///
    /// # Errors
    /// [`BuildError`]: the first thing that cannot be used. Nothing keeps running then.
    pub async fn build(config: Config, launcher: Launcher) -> Result<Self, BuildError> {
        Self::builder(config, launcher).build().await
    }
}

impl BrokerBuilder {
    /// Adds a policy, which the configuration places as `plugin = "native:NAME"` in `[[policies]]`.
    pub fn policy(mut self, name: &str, policy: impl NativePolicy + 'static) -> Self {
        let before = self.natives.plugins.policies.insert(name.to_owned(), Arc::new(policy));
        self.note_twice("policy", name, before.is_some());
        self
    }

    /// Adds a sink, which the configuration places as `plugin = "native:NAME"` in `[[sinks]]`.
    pub fn sink(mut self, name: &str, sink: impl NativeSink + 'static) -> Self {
        let before = self.natives.plugins.sinks.insert(name.to_owned(), Arc::new(sink));
        self.note_twice("sink", name, before.is_some());
        self
    }

    /// Adds a source, which the configuration places as `native = "NAME"` in `[sources.…]`.
    pub fn source(mut self, name: &str, source: impl NativeSource + 'static) -> Self {
        let before = self.natives.sources.insert(name.to_owned(), Arc::new(source));
        self.note_twice("source", name, before.is_some());
        self
    }

    fn note_twice(&mut self, role: &'static str, name: &str, taken: bool) {
        if taken {
            self.twice.get_or_insert((role, name.to_owned()));
        }
    }

    /// Builds the broker: loads and configures the plugins, opens the ledger, prepares the sources. Starts no source
    /// and binds no address.
    ///
    /// Cancellation: nothing keeps running. A chain of the ledger that was begun stays without an end, as after a crash,
    /// until the next broker seals it.
    ///
    /// # Errors
    /// [`BuildError`]: the first thing that cannot be used. Nothing keeps running then. A policy, sink or source that
    /// was added and that the configuration does not name is one of them: a policy that nobody asks would protect
    /// nothing.
    pub async fn build(self) -> Result<Broker, BuildError> {
        let Self { config, launcher, natives, twice } = self;
        #[cfg(feature = "process")]
        refuse_launcher(&launcher, portcullis_jail::was_asked())?;
        if let Some((role, name)) = twice {
            return Err(BuildError::NativeTwice { role, name });
        }
        // The launcher starts and builds a cell on another processor while the plugins are loaded here.
        #[cfg(feature = "process")]
        let tiers = TierProbe::new(launcher.clone());
        #[cfg(feature = "process")]
        if config.sources.values().any(|source| matches!(source.endpoint, Endpoint::Command { .. })) {
            tiers.begin();
        }
        let prepared = PreparedConfig::of(config, None, &natives, None).await?;
        let sinks = sinks::load(&prepared.plugins, &prepared.config, &prepared.secrets).await?;
        let telemetry = prepared.config.telemetry.as_ref();
        let receivers = Receivers::default();
        let telemetry = telemetry.map(|config| Telemetry::start(config, &prepared.secrets, &receivers)).transpose();
        let telemetry = telemetry.map_err(BuildError::Telemetry)?;
        let metrics = metrics::collector(&prepared, &receivers)?;

        let ledger = Ledger::open(&prepared.config.data_dir, started(&prepared.config)).await?;
        let core = BrokerCore::new(launcher, natives, &prepared, ledger.clone(), telemetry, receivers);
        #[cfg(feature = "process")]
        let core = core.with_tiers(tiers);
        let broker = start(core, prepared, sinks, metrics).await;
        if broker.is_err() {
            ledger.close().await;
        }
        broker
    }
}

/// Starts a broker whose ledger is open.
async fn start(
    core: BrokerCore,
    prepared: PreparedConfig,
    sinks: Vec<LoadedSink>,
    metrics: Option<MetricsCollector>,
) -> Result<Broker, BuildError> {
    let (questions, secrets) = (&prepared.config.questions, &prepared.secrets);
    let question_notifier = QuestionNotifier::start(questions, secrets, &core.inbox, &core.receivers);
    let question_notifier = question_notifier.map_err(BuildError::Questions)?;
    let context = Arc::new(core.context(prepared, None).await?);
    context.record_unguarded();
    let sinks = SinkTasks::start(sinks, &core.ledger, &core.receivers);
    let witnesses = WitnessTasks::start(&context.config.ledger.witnesses, &core.ledger, &core.receivers);
    let rejections = Arc::new(RejectionRecorder::new(core.ledger.clone()));
    let inner = Arc::new(Inner {
        core,
        context: watch::Sender::new(context),
        reloading: Arc::default(),
        refused: Mutex::default(),
        sinks: Arc::new(tokio::sync::Mutex::new(Some(sinks))),
        retired: Mutex::default(),
        sessions: Mutex::default(),
        continuations: ContinuationStore::default(),
        rejections,
        local_connections: Mutex::default(),
        stopping: watch::Sender::new(false),
        opening: TaskTracker::new(),
        started: Instant::now(),
    });
    let control = operator::listen(&inner).map_err(|error| {
        let folder = inner.context().config.data_dir.clone();
        BuildError::Control { folder, error: error.to_string() }
    })?;
    let background = Background {
        witnesses: tokio::sync::Mutex::new(Some(witnesses)),
        question_notifier: Mutex::new(Some(question_notifier)),
        control: tokio::sync::Mutex::new(Some(control)),
        metrics: Mutex::new(metrics.map(|collector| inner.export_metrics(collector))),
    };
    let broker = Broker { inner, background: Arc::new(background) };
    tokio::spawn(retention::remove_old_records(Arc::downgrade(&broker.inner)));
    tokio::spawn(rejected::report_repeats(Arc::downgrade(&broker.inner.rejections)));
    start_eager(broker.inner.context().upstreams.values());
    Ok(broker)
}

/// Refuses to build a broker in a process that a broker started as its launcher: it would execute itself without end.
#[cfg(feature = "process")]
fn refuse_launcher(launcher: &Launcher, was_asked: bool) -> Result<(), BuildError> {
    if was_asked && *launcher == Launcher::SelfExec { Err(BuildError::LauncherForgotten) } else { Ok(()) }
}
