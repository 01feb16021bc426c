//! The parts of a broker: what lasts as long as the broker does, and what each configuration brings.

use std::collections::BTreeMap;
use std::sync::Arc;

use portcullis_jail::Launcher;
use tokio_util::task::TaskTracker;

use super::native_parts::NativeParts;
use super::{BuildError, loading};
#[cfg(feature = "process")]
use crate::cell::TierProbe;
use crate::cell::{CellFactory, Installations};
#[cfg(feature = "process")]
use crate::config::user_state_dir;
use crate::config::{Config, PluginConfig, user_trust};
use crate::context::{self, Context, Profile, SourceParts};
use crate::gate::{Gate, GatePlugins, Inbox};
use crate::ledger::Ledger;
use crate::lock_reader::LockReader;
use crate::metrics::{Histogram, OPERATION};
use crate::name::ProfileName;
use crate::plugin::{PluginError, PluginHost, PluginIdentity};
use crate::receivers::Receivers;
use crate::secret::SecretStore;
use crate::telemetry::Telemetry;

/// The parts of a broker that stay the same under every configuration.
#[derive(Debug)]
pub(super) struct BrokerCore {
    /// The ledger; records that are written through it name the first configuration.
    pub(super) ledger: Ledger,
    pub(super) inbox: Arc<Inbox>,
    pub(super) telemetry: Option<Telemetry>,
    /// The sinks, witnesses, webhooks and collectors.
    pub(super) receivers: Receivers,
    /// The tasks that close sources which no configuration has any more.
    pub(super) closing: TaskTracker,
    cells: CellFactory,
    natives: NativeParts,
    session_durations: Arc<Histogram>,
}

/// A configuration that can be put in force: everything that it names could be loaded.
pub(super) struct PreparedConfig {
    pub(super) config: Config,
    pub(super) plugins: PluginHost,
    pub(super) secrets: SecretStore,
    lock: Arc<LockReader>,
    gate: GatePlugins,
    profiles: BTreeMap<ProfileName, Profile>,
}

impl PreparedConfig {
    /// Loads and configures the plugins, including the program's own `natives`, and reads the secrets. Plugins that
    /// have not changed since `before` are taken over, with their counts.
    pub(super) async fn of(
        config: Config,
        host: Option<&PluginHost>,
        natives: &NativeParts,
        before: Option<&Context>,
    ) -> Result<Self, BuildError> {
        // A person can stop the last source of a broker that runs by disabling it. A file without any is one by mistake.
        let stops_the_last = before.is_some() && !config.disabled.is_empty();
        if config.sources.is_empty() && !stops_the_last {
            return Err(if config.disabled.is_empty() { BuildError::NoSources } else { BuildError::AllDisabled });
        }
        let same_folder = before.filter(|before| before.config.data_dir == config.data_dir);
        let lock_reader = same_folder.map_or_else(|| LockReader::new(&config.data_dir), |it| Arc::clone(&it.lock));
        let lock = lock_reader.current().await?;
        natives.check_all_are_used(&config)?;
        let plugins = loading::plugins(&config, &lock, host)?.with_natives(natives.plugins.clone());
        let before_plugins = before.map(|before| (&*before.config, before.gate.loaded()));
        let earlier = before_plugins.as_ref();
        let gate = GatePlugins {
            policies: all(
                &config,
                "`[[policies]]`",
                &config.policies,
                earlier.map(|(config, gate)| (&config.policies[..], &gate.policies[..])),
                |policy| policy.identity(),
                |config| plugins.policy(config),
            )
            .await?,
            transforms: all(
                &config,
                "`[[transforms]]`",
                &config.transforms,
                earlier.map(|(config, gate)| (&config.transforms[..], &gate.transforms[..])),
                |transform| transform.identity(),
                |config| plugins.transform(config),
            )
            .await?,
            approvals: all(
                &config,
                "`[[approvals]]`",
                &config.approvals,
                earlier.map(|(config, gate)| (&config.approvals[..], &gate.approvals[..])),
                |approval| approval.identity(),
                |config| plugins.approval(config),
            )
            .await?,
        };
        let profiles = context::profiles(&config, before)?;
        let secrets = SecretStore::open(&config.data_dir)?;
        Ok(Self { config, plugins, secrets, lock: lock_reader, gate, profiles })
    }
}

impl BrokerCore {
    pub(super) fn new(
        launcher: Launcher,
        natives: NativeParts,
        first: &PreparedConfig,
        ledger: Ledger,
        telemetry: Option<Telemetry>,
        receivers: Receivers,
    ) -> Self {
        let (config, notes) = (&first.config, ledger.clone());
        let record = move |event| notes.record(event);
        let cells = CellFactory::new(launcher, &config.data_dir, config.own_files(), user_trust().ok(), record);
        #[cfg(feature = "process")]
        let cells = cells.with_osv(user_state_dir().map(|folder| portcullis_osv::file_in(&folder)));
        let session_durations = Arc::new(Histogram::new(OPERATION));
        let inbox = Arc::new(Inbox::with_lock_file(Arc::clone(&first.lock)));
        Self { ledger, inbox, telemetry, receivers, closing: TaskTracker::new(), cells, natives, session_durations }
    }

    /// Takes the result of a probe that has begun before.
    #[cfg(feature = "process")]
    pub(super) fn with_tiers(self, tiers: TierProbe) -> Self {
        Self { cells: self.cells.with_tiers(tiers), ..self }
    }

    /// Returns what the program that embeds the broker brings along.
    pub(super) fn natives(&self) -> &NativeParts {
        &self.natives
    }

    /// Makes the sources and the gate of a configuration. Sources that have not changed since `before` are taken over.
    pub(super) async fn context(
        &self,
        prepared: PreparedConfig,
        before: Option<&Context>,
    ) -> Result<Context, BuildError> {
        let PreparedConfig { config, plugins, secrets, lock, gate, profiles } = prepared;
        let digest = config.digest();
        let ledger = self.ledger.under(digest).sealing_for(&config.ledger.recipients);
        let notes = ledger.clone();
        let cells = Arc::new(self.cells.recorded_by(move |event| notes.record(event)));
        let (closing, natives) = (&self.closing, &self.natives.sources);
        let parts = SourceParts { secrets: &secrets, plugins: &plugins, cells: &cells, natives, closing };
        let upstreams = context::upstreams(&config, before, &parts).await?;
        let gate = Arc::new(Gate::new(gate, Arc::clone(&self.inbox), config.ask_timeout, ledger.clone()));
        let (telemetry, session_durations) = (self.telemetry.clone(), Arc::clone(&self.session_durations));
        let installations = self.installations().clone();
        let config = Arc::new(config);
        Ok(Context {
            config,
            digest,
            gate,
            ledger,
            upstreams,
            profiles,
            plugins,
            telemetry,
            lock,
            installations,
            session_durations,
        })
    }

    /// Returns the packages that are being installed.
    pub(super) fn installations(&self) -> &Installations {
        self.cells.installations()
    }
}

/// Loads the plugins of one role, which the configuration has in this list. One that was loaded before with the same
/// configuration and the same content is taken over.
async fn all<'a, T: Clone, F>(
    config: &Config,
    list: &str,
    configs: &'a [PluginConfig],
    before: Option<(&[PluginConfig], &[T])>,
    identity: impl Fn(&T) -> &PluginIdentity,
    load: impl Fn(&'a PluginConfig) -> F,
) -> Result<Vec<T>, BuildError>
where
    F: Future<Output = Result<T, PluginError>>,
{
    let mut loaded = Vec::with_capacity(configs.len());
    for (position, plugin) in configs.iter().enumerate() {
        let now = load(plugin).await.map_err(|error| BuildError::of_listed(config, list, position, error))?;
        let (configs, plugins) = before.unwrap_or_default();
        let mut earlier = configs.iter().zip(plugins);
        let same = earlier.find(|(before, loaded)| *before == plugin && identity(loaded) == identity(&now));
        loaded.push(same.map_or(now, |(_, plugin)| plugin.clone()));
    }
    Ok(loaded)
}
