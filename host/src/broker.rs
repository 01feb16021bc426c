//! The broker, which an embedder builds: the single entry point of the library.
//!
//! Building one loads plugins and opens the ledger; it starts no source and binds no address. Sources start with the
//! first session that may see them.

mod broker_core;
mod builder;
mod cells;
mod components;
mod connect;
mod definitions;
mod described;
mod feed;
mod git_witness;
mod loading;
mod lock_comparison;
mod metrics;
mod native_parts;
mod opening;
mod operator;
#[cfg(feature = "process")]
mod packages;
mod policy_schema;
mod problems;
mod question_notifier;
mod rejected;
mod reload;
mod retention;
mod sinks;
mod state;
mod syslog;
mod witness;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Instant;

use futures_util::future::join_all;
use tokio::sync::{mpsc, watch};
use tokio_util::task::TaskTracker;

use crate::call::SessionId;
use crate::catalog::Remark;
use crate::config::Config;
use crate::control::{ControlSocket, LocalConnection};
use crate::digest::Digest;
use crate::gate::Inbox;
use crate::item::Item;
use crate::ledger::{ChainStart, CheckpointKey};
use crate::lockfile::{Acceptance, Lockfile};
use crate::name::SourceName;
use crate::plugin::PluginIdentity;
use crate::session::{ContinuationStore, Session};
use crate::source::{NoClient, SourceClient, SourceError};
use crate::sync::Mutex;
use crate::telemetry::MetricsTask;

pub use crate::context::{BrokerState, BuildError, FlagState, FlaggedDefinition, SourceHealth};
use crate::context::{Context, Upstream};
use broker_core::{BrokerCore, PreparedConfig};
pub use builder::BrokerBuilder;
pub use components::AcceptedComponent;
pub use connect::ConnectAllError;
pub use definitions::SourceDefinitions;
pub use described::described_tools;
#[doc(hidden)]
pub use loading::refused_settings;
pub use loading::user_plugin_host;
pub use lock_comparison::{ComparedDefinition, LockComparison, LockState};
pub use problems::ServingProblem;
use question_notifier::QuestionNotifier;
use rejected::RejectionRecorder;
pub use reload::{ReloadError, ReloadSummary};
use sinks::SinkTasks;
use witness::WitnessTasks;

/// A running broker. Cheap to clone; all clones share one broker.
///
/// # Example
/// ```
/// use portcullis::{Broker, Config, Launcher, SourceTable};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// let config = Config::builder(folder.path()).source("calc", SourceTable::component("builtin:calculator")).build()?;
/// let broker = Broker::build(config, Launcher::SelfExec).await?;
/// for (source, why) in broker.connect_all().await? {
///     eprintln!("{source} is away: {why}");
/// }
/// broker.shutdown().await;
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Broker {
    inner: Arc<Inner>,
    background: Arc<Background>,
}

/// The parts of one broker, which all its clones share.
#[derive(Debug)]
struct Inner {
    core: BrokerCore,
    /// The configuration in force.
    context: watch::Sender<Arc<Context>>,
    /// Held while one configuration replaces another.
    reloading: Arc<tokio::sync::Mutex<()>>,
    /// The reason why the last configuration that was offered was refused, if it was.
    refused: Mutex<Option<String>>,
    /// The sinks; `None` once the broker has shut down.
    sinks: Arc<tokio::sync::Mutex<Option<SinkTasks>>>,
    /// The sources of earlier configurations, some of which calls in flight still use.
    retired: Mutex<Vec<Weak<Upstream>>>,
    sessions: Mutex<HashMap<SessionId, Weak<Session>>>,
    continuations: ContinuationStore,
    rejections: Arc<RejectionRecorder>,
    /// The channel that passes control-socket connections to the front that serves them, if there is one.
    local_connections: Mutex<Option<mpsc::Sender<LocalConnection>>>,
    /// True once the broker shuts down.
    stopping: watch::Sender<bool>,
    /// The sessions that are being opened.
    opening: TaskTracker,
    started: Instant,
}

/// The tasks that run besides the sessions.
#[derive(Debug)]
struct Background {
    witnesses: tokio::sync::Mutex<Option<WitnessTasks>>,
    question_notifier: Mutex<Option<QuestionNotifier>>,
    control: tokio::sync::Mutex<Option<ControlSocket>>,
    metrics: Mutex<Option<MetricsTask>>,
}

impl Broker {
    /// Returns the configuration in force.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.inner.context().config)
    }

    /// Returns the name of the ledger chain that this broker writes.
    #[must_use]
    pub fn chain(&self) -> &str {
        self.inner.core.ledger.chain()
    }

    /// Returns the questions that wait for a person.
    #[must_use]
    pub fn inbox(&self) -> &Inbox {
        &self.inner.core.inbox
    }

    /// Returns the plugins by role, in the order in which they are asked.
    #[doc(hidden)]
    #[must_use]
    pub fn plugins(&self) -> Vec<(&'static str, PluginIdentity)> {
        let context = self.inner.context();
        context.gate.plugins().map(|(role, identity)| (role, identity.clone())).collect()
    }

    /// Records that a front turned a request away before it became a call, with the reason (`host`, `origin`, `token`,
    /// `profile`, `malformed`, `mismatch` of headers and body): the first of a reason and a peer at once, the others as a
    /// number, after a minute, then after longer pauses of up to an hour, and at the end.
    #[doc(hidden)]
    pub fn rejected(&self, reason: &'static str, peer: IpAddr) {
        self.inner.rejections.add(reason, peer);
    }

    /// Discovers every configured source in parallel, and returns each result; `check`, `tools` and `lock` use it.
    #[doc(hidden)]
    pub async fn discover(&self) -> BTreeMap<SourceName, Result<Arc<[Arc<Item>]>, SourceError>> {
        let no_client: Arc<dyn SourceClient> = Arc::new(NoClient);
        let context = self.inner.context();
        let found = join_all(context.upstreams.values().map(|upstream| upstream.discover(&no_client))).await;
        let found = found.into_iter().map(|discovered| discovered.map(|discovered| discovered.tools.items));
        context.upstreams.keys().cloned().zip(found).collect()
    }

    /// Returns the remarks about a source's last list of tools: those that are offered under another name than their
    /// own, or left out.
    #[doc(hidden)]
    #[must_use]
    pub fn remarks(&self, source: &SourceName) -> Vec<Remark> {
        self.inner.context().upstreams.get(source).map_or_else(Vec::new, |upstream| upstream.remarks().to_vec())
    }

    /// Returns what the cell of a source may lack for what failed in it so far, each with the line that adds it and
    /// whether it exists outside: for people, and not for agents.
    #[doc(hidden)]
    #[must_use]
    pub fn missing_from_cell(&self, source: &SourceName) -> Vec<String> {
        self.inner.context().upstreams.get(source).map_or_else(Vec::new, |upstream| upstream.missing_from_cell())
    }

    /// Returns the digest of what a source is: its command, address or component. `None` for an unknown source.
    #[doc(hidden)]
    #[must_use]
    pub fn identity(&self, source: &SourceName) -> Option<Digest> {
        self.inner.context().upstreams.get(source).map(|upstream| upstream.identity)
    }

    /// Accepts definitions into the lock of the data folder, and records each. That also releases those that are
    /// quarantined.
    ///
    /// # Errors
    /// [`BuildError`] if the lock or the ledger cannot be read or written; then nothing is accepted.
    #[doc(hidden)]
    pub async fn accept(&self, items: &[Arc<Item>], by: &str) -> Result<(), BuildError> {
        self.inner.accept(items, by).await
    }

    /// Applies the current lock file to the open sessions: tools that it releases appear, and accepted items are no
    /// longer asked about. New sessions and questions read it anyway.
    #[doc(hidden)]
    pub async fn apply_lock_file(&self) {
        self.inner.apply_lock_file().await;
    }

    /// Returns the lock file as the sessions see it now. `None` if it cannot be read: the code that needs it reports
    /// why.
    #[doc(hidden)]
    pub async fn lock_file(&self) -> Option<Arc<Lockfile>> {
        self.inner.context().lock.current().await.ok()
    }

    /// Returns what the lock file says about an item.
    ///
    /// # Errors
    /// [`BuildError::Lock`] if the lock is damaged.
    #[doc(hidden)]
    pub fn acceptance(&self, item: &Item) -> Result<Acceptance, BuildError> {
        let lock = self.inner.context().lock.current_blocking()?;
        Ok(self.identity(&item.source).map_or(Acceptance::Unknown, |identity| lock.of(item, identity)))
    }

    /// Waits until somebody shuts the broker down. Keeps no part of the broker alive.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stopping = self.inner.stopping.subscribe();
        async move {
            // Without a sender the broker is gone.
            let _ = stopping.wait_for(|stopping| *stopping).await;
        }
    }

    /// Shuts the broker down: closes the sessions in the ledger, ends the sources (pending answers have two seconds to
    /// arrive, then a process has three to end), ends the receivers of the inbox, gives the sinks five seconds to take
    /// the records that they do not have yet, and closes the chain. The record that closes it, `broker.stopped`, is
    /// only in the ledger: no sink gets it, because it is written after the sinks have ended. Idempotent. A broker that
    /// is dropped instead leaves its chain open in the ledger until the process ends, and its tasks run on.
    ///
    /// Cancellation: the broker answers no further call, and parts that were not yet closed stay open; call it again.
    pub async fn shutdown(&self) {
        self.inner.stopping.send_replace(true);
        drop(self.background.control.lock().await.take());
        drop(self.background.question_notifier.lock().take());
        self.inner.opening.close();
        self.inner.opening.wait().await;
        let sessions: Vec<_> = {
            let sessions = self.inner.sessions.lock();
            sessions.values().filter_map(Weak::upgrade).collect()
        };
        join_all(sessions.iter().map(|session| session.interrupt())).await;
        self.inner.close_sources().await;
        self.inner.core.inbox.close();
        self.inner.rejections.report();
        if let Some(sinks) = self.inner.sinks.lock().await.take() {
            // The records that end sessions are notes; a sink can read them only once they are flushed.
            if let Err(error) = self.inner.core.ledger.flush().await {
                tracing::error!(%error, "the last records may be missing, for the sinks too");
            }
            sinks.finish().await;
        }
        if let Some(telemetry) = &self.inner.core.telemetry {
            telemetry.finish().await;
        }
        let metrics = self.background.metrics.lock().take();
        metrics::finish(metrics).await;
        self.inner.core.ledger.close().await;
        if let Some(witnesses) = self.background.witnesses.lock().await.take() {
            witnesses.finish().await;
        }
    }
}

impl Inner {
    /// Returns the configuration in force.
    fn context(&self) -> Arc<Context> {
        self.context.borrow().clone()
    }

    /// Ends the sources of the configuration in force, and those of earlier ones that calls still use.
    async fn close_sources(&self) {
        let context = self.context();
        let retired: Vec<_> = self.retired.lock().drain(..).filter_map(|upstream| upstream.upgrade()).collect();
        join_all(context.upstreams.values().chain(&retired).map(|upstream| upstream.close())).await;
        self.core.closing.close();
        self.core.closing.wait().await;
    }

    fn live_sessions(&self) -> Vec<Arc<Session>> {
        let sessions = self.sessions.lock();
        sessions.values().filter_map(Weak::upgrade).filter(|session| !session.ended()).collect()
    }
}

/// Starts the sources that are configured to start with the broker.
fn start_eager<'a>(upstreams: impl Iterator<Item = &'a Arc<Upstream>>) {
    for upstream in upstreams.filter(|upstream| upstream.config.eager).cloned() {
        tokio::spawn(async move {
            let no_client: Arc<dyn SourceClient> = Arc::new(NoClient);
            if let Err(error) = upstream.discover(&no_client).await {
                tracing::warn!(source = %upstream.config.name, %error, "an eager source did not start");
            }
        });
    }
}

/// Returns the contents of the first record: the version, the digest of the configuration (with secrets by name), and
/// the key that signs checkpoints. Without a key, the chain has no signed checkpoints.
fn started(config: &Config) -> ChainStart {
    let key = config.state_dir.as_deref().map(CheckpointKey::open).transpose();
    let key = key.unwrap_or_else(|error| {
        tracing::warn!(%error, "checkpoints of the ledger are not signed");
        None
    });
    ChainStart { version: env!("CARGO_PKG_VERSION").to_owned(), config: config.digest(), key: key.map(Arc::new) }
}

/// Returns the file that a sink writes to unless the configuration names another.
fn default_sink_file(data_dir: &Path, index: usize) -> std::path::PathBuf {
    data_dir.join(if index == 0 { "audit.jsonl".to_owned() } else { format!("audit-{}.jsonl", index + 1) })
}

#[cfg(test)]
mod tests;
