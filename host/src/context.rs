//! The context of sessions: one configuration in force, with its gate, its sources and its profiles.

mod destructive_tools;
mod error;
mod failure_hints;
mod flagged;
mod last_lists;
mod repairs;
mod scan_cache;
mod state;
mod stored_description;
mod stored_json;
mod stored_scans;
mod upstream;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use crate::catalog::{FilterError, ItemFilter};
use crate::cell::Installations;
use crate::config::{Approve, Config, ProfileConfig, ScanMode};
use crate::digest::Digest;
use crate::gate::{Budget, Gate};
use crate::ledger::{Event, EventKind, Ledger};
use crate::lock_reader::LockReader;
use crate::lockfile::Lockfile;
use crate::metrics::Histogram;
use crate::name::{ProfileName, SourceName};
use crate::plugin::PluginHost;
use crate::telemetry::Telemetry;

pub use error::BuildError;
pub(crate) use failure_hints::CallCountGuard;
pub use flagged::{FlagState, FlaggedDefinition};
pub(crate) use repairs::RepairedTool;
pub(crate) use scan_cache::scanner;
pub use state::{BrokerState, SourceHealth};
pub(crate) use stored_description::described_names;
use upstream::SourceBuilder;
pub(crate) use upstream::{DiscoveredSource, MAX_REMARKS, OfferedItems, SourceParts, Upstream};

/// One configuration of a broker in force: its gate, its sources and its profiles. A session uses one at a time.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) config: Arc<Config>,
    /// The digest of the configuration.
    pub(crate) digest: Digest,
    pub(crate) gate: Arc<Gate>,
    /// The ledger; records that are written through it name this configuration.
    pub(crate) ledger: Ledger,
    pub(crate) upstreams: BTreeMap<SourceName, Arc<Upstream>>,
    pub(crate) profiles: BTreeMap<ProfileName, Profile>,
    pub(crate) plugins: PluginHost,
    pub(crate) telemetry: Option<Telemetry>,
    pub(crate) lock: Arc<LockReader>,
    /// The packages that are being installed.
    pub(crate) installations: Installations,
    /// The durations of the sessions that have ended.
    pub(crate) session_durations: Arc<Histogram>,
}

/// A configured profile, with its filters and its budget.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) config: Arc<ProfileConfig>,
    filters: BTreeMap<SourceName, ItemFilter>,
    budget: Option<Arc<Budget>>,
}

impl Context {
    /// Returns the sources that a profile may use, each with the filter of its items.
    pub(crate) fn admitted(&self, profile: &ProfileName) -> impl Iterator<Item = (Arc<Upstream>, &ItemFilter)> {
        let filters = self.profiles.get(profile).into_iter().flat_map(|profile| &profile.filters);
        let admitted = filters.filter(|(_, filter)| filter.admits_source());
        admitted.filter_map(|(name, filter)| Some((self.upstreams.get(name)?.clone(), filter)))
    }

    /// Logs and records the profiles under which no person is asked. Called when the configuration comes into force.
    pub(crate) fn record_unguarded(&self) {
        for (name, profile) in self.profiles.iter().filter(|(_, profile)| profile.config.approve == Approve::Never) {
            tracing::warn!(profile = %name, "`approve = \"never\"`: risky calls run without asking");
            let body = json!({ "profile": name, "sources": profile.config.sources });
            self.ledger.record(Event::new(EventKind::ProfileUnguarded, body));
        }
    }

    /// Returns the budget that all callers of a profile share, if it has one.
    pub(crate) fn budget(&self, profile: &ProfileName) -> Option<&Arc<Budget>> {
        self.profiles.get(profile)?.budget.as_ref()
    }

    /// Reports whether every caller sees and gets the same: there is one profile, and no plugin that could tell callers
    /// apart.
    pub(crate) fn serves_all_alike(&self) -> bool {
        self.profiles.len() == 1 && self.config.policies.is_empty() && self.config.transforms.is_empty()
    }

    /// Returns the state of all sources, as far as it is known, with this lock file.
    pub(crate) fn state(&self, lock: &Lockfile) -> BrokerState {
        BrokerState::of(self.upstreams.values().map(|upstream| upstream.health(lock)))
    }

    /// Returns the lock file for a report. A damaged one counts as empty there, so that nothing seems to be accepted.
    pub(crate) async fn lockfile_or_empty(&self) -> Arc<Lockfile> {
        self.lock.current().await.unwrap_or_default()
    }
}

/// Creates the configured sources, and starts none. Sources that have not changed since `before` are taken over, with
/// their connections.
pub(crate) async fn upstreams(
    config: &Config,
    before: Option<&Context>,
    parts: &SourceParts<'_>,
) -> Result<BTreeMap<SourceName, Arc<Upstream>>, BuildError> {
    let mut upstreams = BTreeMap::new();
    for source in config.sources.values() {
        let builder = SourceBuilder {
            config: source,
            parts,
            data_dir: &config.data_dir,
            #[cfg(feature = "process")]
            folder: config.folder(),
        };
        let before = before.and_then(|before| before.upstreams.get(&source.name));
        let fingerprint = builder.fingerprint().await;
        let upstream = match before.filter(|before| before.has_fingerprint(fingerprint)) {
            Some(same) => Arc::clone(same),
            None => Arc::new(Upstream::new(&builder, fingerprint, before.map(|before| &before.metrics)).await?),
        };
        upstreams.insert(source.name.clone(), upstream);
    }
    if upstreams.values().any(|upstream| upstream.config.scan != ScanMode::Off && !upstream.scans.is_stored()) {
        scan_cache::prepare_scanner();
    }
    Ok(upstreams)
}

/// Returns the configured profiles. The amount spent of a budget that has not changed since `before` stays spent.
pub(crate) fn profiles(
    config: &Config,
    before: Option<&Context>,
) -> Result<BTreeMap<ProfileName, Profile>, FilterError> {
    let of = |name: &ProfileName, profile: &ProfileConfig| -> Result<Profile, FilterError> {
        let filters =
            config.sources.values().map(|source| Ok((source.name.clone(), ItemFilter::new(profile, source)?)));
        let spent = before.and_then(|before| before.profiles.get(name));
        let spent = spent.filter(|before| before.config.budget == profile.budget).and_then(|it| it.budget.clone());
        Ok(Profile {
            config: Arc::new(profile.clone()),
            filters: filters.collect::<Result<_, FilterError>>()?,
            budget: spent.or_else(|| profile.budget.as_ref().map(|budget| Arc::new(Budget::new(budget)))),
        })
    };
    config.profiles.iter().map(|(name, profile)| Ok((name.clone(), of(name, profile)?))).collect()
}
