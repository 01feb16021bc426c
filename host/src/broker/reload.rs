//! Puts another configuration in force while the broker runs.
//!
//! Everything that the new configuration names is made first; if anything cannot be, nothing changes. Then it replaces
//! the old one at once for every session. Requests in flight finish under the old one, whose sources are closed after
//! their last call.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use super::broker_core::PreparedConfig;
use super::sinks::{LoadedSink, SinkTasks};
use super::{Broker, BuildError, Inner, sinks, start_eager};
use crate::config::{Config, ServeConfig};
use crate::context::{Context, Upstream};
use crate::digest::Digest;
use crate::ledger::{Event, EventKind, LedgerError};
use crate::name::SourceName;
use crate::source::{NoClient, SourceClient, SourceError};

/// The longest time that a reload waits for new and changed sources to connect, so that no call must wait. A required
/// source has as long as it takes to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The table of sinks.
const SINKS: &str = "[[sinks]]";

/// The differences that a reload made.
///
/// # Example
/// ```
/// # use portcullis::{Broker, Config, error::ReloadError};
/// # async fn reload(broker: &Broker, config: Config) -> Result<(), ReloadError> {
/// let summary: portcullis::ReloadSummary = broker.reload(config).await?;
/// println!("{} sources were added", summary.added.len());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ReloadSummary {
    /// The sources that were added.
    pub added: BTreeSet<SourceName>,
    /// The sources that were removed or disabled.
    pub removed: BTreeSet<SourceName>,
    /// The sources that changed, or whose secrets did: they have new connections.
    pub changed: BTreeSet<SourceName>,
    /// True if anything else is different, such as a profile or a plugin.
    pub other: bool,
    /// The tables in which that is, such as `[[policies]]` and `[profiles.NAME]`. A list of plugins is different, too, if
    /// the content of one of them is.
    pub tables: BTreeSet<String>,
    /// The tables whose changes take effect only when the broker is started again.
    pub at_next_start: Vec<&'static str>,
}

/// An error that says why a configuration was not put in force. The one before stays.
///
/// # Example
/// ```
/// # async fn reload(broker: &portcullis::Broker, config: portcullis::Config) {
/// use portcullis::error::ReloadError;
/// match broker.reload(config).await {
///     Err(ReloadError::DataFolder { now, .. }) => eprintln!("the data folder stays {}", now.display()),
///     Err(error) => eprintln!("the old configuration stays: {error}"),
///     Ok(_) => {}
/// }
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// Something that the configuration names cannot be used.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The configuration has another data folder.
    #[error(
        "the data folder cannot change while the broker runs: it is {}, and the configuration has {}; start the broker again, or set \
         `data-dir` back",
        .now.display(), .wanted.display()
    )]
    DataFolder {
        /// The folder in use.
        now: PathBuf,
        /// The folder of the configuration that was refused.
        wanted: PathBuf,
    },
    /// A new or changed source that is required cannot be connected.
    #[error("{}", required(name, error))]
    Required {
        /// The source.
        name: SourceName,
        /// The reason.
        error: SourceError,
    },
    /// The change cannot be recorded.
    #[error("the change of the configuration cannot be recorded: {0}")]
    Ledger(#[from] LedgerError),
}

impl ReloadError {
    /// Returns the text for the ledger: without a source's own words, which may repeat payload.
    fn recorded(&self) -> String {
        match self {
            Self::Required { name, error } => required(name, &error.recorded()),
            Self::Build(BuildError::Source { source_name, error }) => {
                format!("source `{source_name}`: {}", error.recorded())
            }
            error => error.to_string(),
        }
    }
}

fn required(name: &SourceName, why: &dyn fmt::Display) -> String {
    format!("source `{name}` is required and cannot be connected: {why}")
}

impl ReloadSummary {
    fn between(before: &Context, after: &Context, at_next_start: Vec<&'static str>) -> Self {
        let names = |context: &Context| context.upstreams.keys().cloned().collect::<BTreeSet<_>>();
        let (old, new) = (names(before), names(after));
        let is_same = |name: &&SourceName| {
            let both = before.upstreams.get(*name).zip(after.upstreams.get(*name));
            both.is_some_and(|(before, after)| Arc::ptr_eq(before, after))
        };
        let changed: BTreeSet<_> = old.intersection(&new).filter(|name| !is_same(name)).cloned().collect();
        let mut old_config = Config::clone(&before.config);
        old_config.sources.clone_from(&after.config.sources);
        let tables = differing_tables(before, after);
        let other = old_config != *after.config || !tables.is_empty();
        Self { added: &new - &old, removed: &old - &new, changed, other, tables, at_next_start }
    }

    /// Reports whether the new configuration is the old one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Broker {
    /// Puts another configuration in force. Unchanged sources keep their connections, and unchanged plugins and budgets
    /// keep their counts; a request in flight finishes under the configuration that it began with, and is judged by no
    /// other. Sessions whose profile or token is gone end. Sinks that are new get the records from now on. Changes of
    /// `[questions]`, `[telemetry]`, the witnesses, and of `[serve]` beyond its tokens, callers and people, take effect
    /// when the broker is started again.
    ///
    /// Cancellation: the old configuration stays in force, and no record states otherwise. Once everything is loaded
    /// and the change is being recorded, the new one is put in force nevertheless.
    ///
    /// # Errors
    /// [`ReloadError`]; the configuration before stays in force, and the refusal is recorded.
    ///
    /// # Example
    /// ```
    /// # async fn reload(broker: &portcullis::Broker, config: portcullis::Config) {
    /// match broker.reload(config).await {
    ///     Ok(summary) => println!("changed sources: {:?}", summary.changed),
    ///     Err(error) => eprintln!("the configuration before stays in force: {error}"),
    /// }
    /// # }
    /// ```
    pub async fn reload(&self, config: Config) -> Result<ReloadSummary, ReloadError> {
        let one_at_a_time = Arc::clone(&self.inner.reloading).lock_owned().await;
        let replaced = match self.inner.prepare(config).await {
            Ok(replacement) => {
                let inner = Arc::clone(&self.inner);
                // A separate task: dropping this future must not leave a record of a change that never happened.
                let replaced = tokio::spawn(async move {
                    let _one_at_a_time = one_at_a_time;
                    inner.replace(replacement).await
                });
                replaced.await.unwrap_or(Err(ReloadError::Ledger(LedgerError::Closed)))
            }
            Err(error) => Err(error),
        };
        if let Err(error) = &replaced {
            self.refuse_with(error.to_string(), &error.recorded());
        }
        replaced
    }

    /// Records that another configuration was offered and not put in force, and keeps the reason for `status`: for a
    /// file that cannot be read, so that there is nothing to give to [`Broker::reload`].
    #[doc(hidden)]
    pub fn refuse(&self, reason: &str) {
        self.refuse_with(reason.to_owned(), reason);
    }

    /// Keeps the whole reason for `status`, and records the part of it that may be recorded.
    fn refuse_with(&self, reason: String, recorded: &str) {
        let mut refused = self.inner.refused.lock();
        if refused.as_ref() != Some(&reason) {
            *refused = Some(reason);
            self.inner.context().ledger.record(Event::new(EventKind::ConfigRefused, json!({ "error": recorded })));
        }
    }

    /// Returns the digest of the configuration in force, as records name it.
    #[doc(hidden)]
    #[must_use]
    pub fn config_digest(&self) -> Digest {
        self.inner.context().digest
    }
}

/// A configuration that is ready to be put in force, and its differences from the one that is.
struct Replacement {
    before: Arc<Context>,
    after: Arc<Context>,
    reloaded: ReloadSummary,
    /// The sources that are new or changed.
    fresh: Vec<Arc<Upstream>>,
    loaded: Vec<LoadedSink>,
    sinks: OwnedMutexGuard<Option<SinkTasks>>,
}

impl Inner {
    /// Loads a configuration and connects its new sources. Nothing changes.
    async fn prepare(&self, config: Config) -> Result<Replacement, ReloadError> {
        let before = self.context();
        let (config, at_next_start) = as_started(config, &before.config)?;
        let prepared = PreparedConfig::of(config, Some(&before.plugins), self.core.natives(), Some(&before)).await?;
        let loaded = sinks::load(&prepared.plugins, &prepared.config, &prepared.secrets).await?;
        let after = Arc::new(self.core.context(prepared, Some(&before)).await?);
        let mut reloaded = ReloadSummary::between(&before, &after, at_next_start);
        let fresh = |name: &SourceName| after.upstreams.get(name).cloned();
        let fresh: Vec<_> = reloaded.added.iter().chain(&reloaded.changed).filter_map(fresh).collect();
        if !self.live_sessions().is_empty() {
            connect(&fresh).await?;
        }
        // Taken last: the shutdown waits for it, and a source may take long to connect.
        let sinks = Arc::clone(&self.sinks).lock_owned().await;
        if sinks.as_ref().is_some_and(|running| running.differ(&loaded)) {
            reloaded.other = true;
            reloaded.tables.insert(SINKS.to_owned());
        }
        Ok(Replacement { before, after, reloaded, fresh, loaded, sinks })
    }

    /// Records a configuration that is another than the one in force, and puts it in force.
    async fn replace(&self, replacement: Replacement) -> Result<ReloadSummary, ReloadError> {
        let Replacement { before, after, reloaded, fresh, loaded, mut sinks } = replacement;
        if reloaded.added.is_empty() && reloaded.removed.is_empty() && reloaded.changed.is_empty() && !reloaded.other {
            *self.refused.lock() = None;
            return Ok(reloaded);
        }
        let body = json!({ "before": before.digest, "digest": after.digest, "changes": reloaded });
        after.ledger.append(Event::new(EventKind::ConfigReloaded, body)).await?;
        after.record_unguarded();
        self.context.send_replace(Arc::clone(&after));
        *self.refused.lock() = None;
        if let Some(running) = &mut *sinks {
            running.replace(loaded);
        }
        {
            let gone = reloaded.removed.iter().chain(&reloaded.changed);
            let gone = gone.filter_map(|name| before.upstreams.get(name)).map(Arc::downgrade);
            let mut retired = self.retired.lock();
            retired.retain(|upstream| upstream.strong_count() > 0);
            retired.extend(gone);
        }
        for session in self.live_sessions() {
            session.reconfigure(|| self.context());
        }
        start_eager(fresh.iter());
        Ok(reloaded)
    }
}

/// Returns the tables that differ, other than those of sources.
fn differing_tables(before: &Context, after: &Context) -> BTreeSet<String> {
    let (old, new) = (&before.config, &after.config);
    let loaded = |context: &Context, wanted: &str| {
        let plugins = context.gate.plugins().filter(|(role, _)| *role == wanted);
        plugins.map(|(_, plugin)| plugin.clone()).collect::<Vec<_>>()
    };
    let differ = |role: &str| loaded(before, role) != loaded(after, role);
    let tables = [
        ("[broker]", (old.ask_timeout, &old.plugin_keys) != (new.ask_timeout, &new.plugin_keys)),
        ("[serve]", old.serve != new.serve),
        ("[ledger]", old.ledger != new.ledger),
        ("[[policies]]", old.policies != new.policies || differ("policy")),
        ("[[transforms]]", old.transforms != new.transforms || differ("transform")),
        ("[[approvals]]", old.approvals != new.approvals || differ("approval")),
        (SINKS, old.sinks != new.sinks || old.remote_sinks != new.remote_sinks),
    ];
    let tables = tables.into_iter().filter(|(_, differs)| *differs).map(|(table, _)| table.to_owned());
    let profiles = old.profiles.keys().chain(new.profiles.keys());
    let profiles = profiles.filter(|name| old.profiles.get(*name) != new.profiles.get(*name));
    let disabled = old.disabled.keys().chain(new.disabled.keys());
    // One that was disabled or enabled is among the sources that were removed or added.
    let disabled = disabled.filter(|name| {
        let is_other = old.disabled.get(*name) != new.disabled.get(*name);
        is_other && !old.sources.contains_key(*name) && !new.sources.contains_key(*name)
    });
    let profiles = profiles.map(|name| format!("[profiles.{name}]"));
    tables.chain(profiles).chain(disabled.map(|name| format!("[sources.{name}]"))).collect()
}

/// Returns a configuration in which the parts that cannot change while a broker runs keep their initial values, and the
/// names of those that differ.
fn as_started(mut config: Config, started: &Config) -> Result<(Config, Vec<&'static str>), ReloadError> {
    if config.data_dir != started.data_dir {
        return Err(ReloadError::DataFolder { now: started.data_dir.clone(), wanted: config.data_dir });
    }
    // Tokens and who holds them are read from the configuration in force.
    let ServeConfig { token, callers, people, metrics_token, .. } = config.serve.clone();
    let serve = ServeConfig { token, callers, people, metrics_token, ..started.serve.clone() };
    let differs = [
        ("`max-message` of [broker]", config.max_message != started.max_message),
        ("[serve]", config.serve != serve),
        ("[questions]", config.questions != started.questions),
        ("[telemetry]", config.telemetry != started.telemetry),
        ("`witnesses` of [ledger]", config.ledger.witnesses != started.ledger.witnesses),
    ];
    let differing = differs.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect();
    config.max_message = started.max_message;
    let sources = config.sources.values_mut().chain(config.disabled.values_mut());
    sources.for_each(|source| source.max_message = started.max_message);
    config.serve = serve;
    config.questions.clone_from(&started.questions);
    config.telemetry.clone_from(&started.telemetry);
    config.ledger.witnesses.clone_from(&started.ledger.witnesses);
    config.state_dir.clone_from(&started.state_dir);
    Ok((config, differing))
}

/// Connects to new and changed sources in parallel, and waits for a while.
async fn connect(upstreams: &[Arc<Upstream>]) -> Result<(), ReloadError> {
    let connected = upstreams.iter().map(|upstream| async move {
        let no_client: Arc<dyn SourceClient> = Arc::new(NoClient);
        let name = || upstream.config.name.clone();
        if upstream.config.required {
            let met = upstream.discover(&no_client).await;
            return met.map(drop).map_err(|error| ReloadError::Required { name: name(), error });
        }
        // A session reports why it is missing.
        let _ = timeout(CONNECT_TIMEOUT, upstream.discover(&no_client)).await;
        Ok(())
    });
    join_all(connected).await.into_iter().collect()
}
