//! One configured source with what the broker knows of it.

mod build;
mod flow;
mod status;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio_util::task::TaskTracker;

use super::BuildError;
use super::failure_hints::CallCounts;
use super::flagged::{FlagState, FlaggedItem};
use super::last_lists::{LastLists, NamedList};
use super::repairs::RepairCache;
use super::scan_cache::{Flags, ScanCache};
use super::stored_description::StoredDescription;
use crate::call::{Cause, now_millis};
use crate::catalog::Remark;
#[cfg(feature = "process")]
use crate::cell::ProcessCell;
use crate::config::{ScanMode, SourceConfig};
use crate::digest::Digest;
use crate::egress::ComponentEgress;
use crate::escape::escape_hidden;
use crate::gate::CellEffects;
use crate::item::{Item, ItemKind};
use crate::metrics::SourceMetrics;
use crate::plugin::ComponentCell;
use crate::protocol::{Era, Json};
use crate::source::{Discovery, ListedDefinitions, Source, SourceClient, SourceError, SourceStatus};
use crate::sync::Mutex;

pub(crate) use build::{SourceBuilder, SourceParts};

/// One configured source with what the broker knows of it.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) config: SourceConfig,
    /// The digest of what the source is. Acceptances and grants for another digest do not count for this source.
    pub(crate) identity: Digest,
    /// The digest of everything that makes the source what it is here, with the values of its secrets.
    fingerprint: Digest,
    /// False if the source could not be made.
    usable: bool,
    pub(crate) source: Arc<dyn Source>,
    /// The tasks that close sources which no configuration has any more.
    closing: TaskTracker,
    /// The cell of a process source.
    #[cfg(feature = "process")]
    pub(crate) process_cell: Option<Arc<ProcessCell>>,
    /// The cell of a component source.
    pub(crate) component_cell: Option<Arc<ComponentCell>>,
    /// The network of a component source, if it has any.
    component_egress: Option<Arc<ComponentEgress>>,
    /// The labels of its results.
    labels: flow::SourceLabels,
    /// The counters of the calls to the source.
    pub(crate) metrics: Arc<SourceMetrics>,
    /// The counts of the calls that the source has.
    pub(crate) open_calls: Arc<CallCounts>,
    last: Mutex<LastDiscovery>,
    /// The description that the source gave when it last connected, or `None` if it never connected.
    pub(super) description: Mutex<Option<StoredDescription>>,
    pub(super) data_dir: PathBuf,
    /// The last list of each kind.
    lists: LastLists,
    /// The results of discovering a source that is in no group, by the capabilities of the client.
    discoveries: Mutex<HashMap<Json, DiscoveredSource>>,
    pub(super) scans: ScanCache,
    pub(super) repairs: RepairCache,
    /// The items with findings in the last list of each kind.
    pub(super) flagged: Mutex<BTreeMap<ItemKind, Vec<FlaggedItem>>>,
    /// The definitions and states that [`newly_flagged`](Self::newly_flagged) has returned.
    pub(super) reported: Mutex<HashSet<(ItemKind, Digest, FlagState)>>,
}

/// The largest number of remarks about one list that go to the log and the ledger: a source may list a thousand bad
/// names.
pub(crate) const MAX_REMARKS: usize = 32;

/// The most characters of one source's instructions that are passed on. Models read them with every request.
const MAX_INSTRUCTIONS: usize = 8 * 1024;

/// The largest number of sets of client capabilities that are distinguished: a source may show different tools to each.
const MAX_CACHED_DISCOVERIES: usize = 16;

/// The items of one kind that a source offers.
#[derive(Debug, Clone, Default)]
pub(crate) struct OfferedItems {
    pub(crate) items: Arc<[Arc<Item>]>,
    /// The time in milliseconds for which the source says that the list is valid.
    pub(crate) ttl_ms: u64,
    /// True if the source says that the list is the same for every caller.
    pub(crate) public: bool,
    /// The items that are offered under another name than the source gives, or left out.
    pub(crate) remarks: Arc<[Remark]>,
    /// The other members of the source's result:
    /// [`ListedDefinitions::other_members`](crate::source::ListedDefinitions::other_members).
    pub(crate) other_members: Option<Json>,
    /// The scanner's findings in the items, and for tools also those in the source's instructions.
    pub(crate) flags: Flags,
}

/// The result of discovering a source.
#[derive(Debug, Clone)]
pub(crate) struct DiscoveredSource {
    pub(crate) tools: OfferedItems,
    /// The era that it speaks.
    pub(crate) era: Era,
    /// `ServerCapabilities`
    pub(crate) capabilities: Json,
    /// The source's instructions to the model about itself, if it gives any.
    pub(crate) instructions: Option<Arc<Item>>,
}

/// The result of the last discovery, which `status` shows.
#[derive(Debug, Default)]
struct LastDiscovery {
    tools: Option<Arc<[Arc<Item>]>>,
    remarks: Arc<[Remark]>,
    /// The reason why the last discovery failed, if the source itself reports no error.
    error: Option<String>,
    /// The time at which discovery last succeeded, in milliseconds since the Unix epoch.
    at: Option<u64>,
    protocol: String,
    server: Option<Json>,
}

impl Upstream {
    /// Creates the source as configured, and starts nothing. A source that cannot be made is one that always fails,
    /// unless it is required. `metrics` are the counters of the source of this name in the previous configuration.
    pub(crate) async fn new(
        builder: &SourceBuilder<'_>,
        fingerprint: Digest,
        metrics: Option<&Arc<SourceMetrics>>,
    ) -> Result<Self, BuildError> {
        let config = builder.config.clone();
        let built = builder.build().await;
        let usable = built.is_ok();
        let built = match built {
            // A missing part of the program is a fault of the program, and stays missing.
            Err(error) if !config.required && !matches!(error, BuildError::NativeMissing { .. }) => {
                let cause = error.to_string();
                tracing::warn!(source = %config.name, "this source is missing: {}", escape_hidden(&cause));
                builder.unusable(error)
            }
            built => built?,
        };
        // The name is part of the digest: the same program may be configured twice for two accounts, and an approval of
        // one does not count for the other.
        let identity = Digest::of(json!([config.name, built.identity]).to_string().as_bytes());
        let description = StoredDescription::load(builder.data_dir, &config.name, identity);
        let scans = ScanCache::stored_in(builder.data_dir, &config.name);
        Ok(Self {
            labels: flow::SourceLabels::of(&config),
            config,
            identity,
            fingerprint,
            usable,
            source: built.source.into(),
            closing: builder.parts.closing.clone(),
            #[cfg(feature = "process")]
            process_cell: built.process_cell,
            component_cell: built.component_cell,
            component_egress: built.component_egress,
            metrics: metrics.cloned().unwrap_or_default(),
            open_calls: Arc::default(),
            last: Mutex::default(),
            description: Mutex::new(description),
            data_dir: builder.data_dir.to_owned(),
            lists: LastLists::default(),
            discoveries: Mutex::default(),
            scans,
            repairs: RepairCache::default(),
            flagged: Mutex::default(),
            reported: Mutex::default(),
        })
    }

    /// Reports whether the source is still the one of this fingerprint. One that could not be made is tried again.
    pub(super) fn has_fingerprint(&self, fingerprint: Digest) -> bool {
        self.usable && self.fingerprint == fingerprint
    }

    /// Returns what the source told an earlier client with the same capabilities, if it was discovered and is in no
    /// group: an absent member of a group is replaced by another member.
    pub(crate) fn cached_discovery(&self, client: &Arc<dyn SourceClient>) -> Option<DiscoveredSource> {
        self.discoveries.lock().get(&client.capabilities()).cloned()
    }

    /// Reports whether the source may be usable again soon.
    pub(crate) fn is_coming_back(&self) -> bool {
        matches!(
            self.source.health().status,
            SourceStatus::BackingOff | SourceStatus::Starting | SourceStatus::Degraded
        )
    }

    /// Ends the source and starts it again. See [`Source::restart`].
    pub(crate) async fn restart(&self, cause: &str, timeout: Duration) -> Result<SourceStatus, SourceError> {
        self.discoveries.lock().clear();
        self.source.restart(cause, timeout).await
    }

    fn cache_discovery(&self, client: &Arc<dyn SourceClient>, discovered: &DiscoveredSource) {
        if self.config.group.is_none() {
            let mut all = self.discoveries.lock();
            if all.len() >= MAX_CACHED_DISCOVERIES && !all.contains_key(&client.capabilities()) {
                all.clear();
            }
            all.insert(client.capabilities(), discovered.clone());
        }
    }

    /// Reports whether the source can neither change nor disclose anything, as its cell enforces.
    pub(crate) fn is_harmless(&self) -> bool {
        #[cfg(feature = "process")]
        if let Some(process_cell) = &self.process_cell {
            return process_cell.described().is_some_and(|described| described.is_harmless());
        }
        self.component_cell.as_ref().is_some_and(|component_cell| component_cell.is_harmless())
    }

    /// Returns the effects that the source's cell lets its calls have.
    pub(crate) fn cell_effects(&self) -> CellEffects {
        if self.is_harmless() { CellEffects::None } else { CellEffects::Possible }
    }

    /// Connects if necessary, and returns the source's description of itself, with its tools under their exposed names.
    pub(crate) async fn discover(&self, client: &Arc<dyn SourceClient>) -> Result<DiscoveredSource, SourceError> {
        let named = match self.source.discover(client).await {
            Ok(discovery) => self.accept_discovery(discovery).await,
            Err(error) => Err(error),
        };
        match &named {
            Ok(discovered) => self.cache_discovery(client, discovered),
            // An error that the source itself reports is shown by its own health for as long as it lasts.
            Err(error) => {
                let broken = self.source.health().error;
                self.last.lock().error = Some(error.to_string()).filter(|_| broken.is_none());
            }
        }
        named
    }

    /// Names and scans the discovered items, and keeps them for `status`.
    async fn accept_discovery(&self, discovery: Discovery) -> Result<DiscoveredSource, SourceError> {
        let ListedDefinitions { items: definitions, ttl_ms, public, other_members } = discovery.tools;
        let NamedList { items, remarks, is_new, .. } = self.named(ItemKind::Tool, definitions)?;
        if is_new {
            self.metrics.keep_tools(items.iter().map(|item| &item.exposed));
        }
        let instructions = discovery.instructions.map(|text| self.instructions(&text));
        let flags = self.scanned(ItemKind::Tool, items.iter().chain(&instructions)).await?;
        self.keep_description(&discovery.capabilities, &items, instructions.as_deref()).await;
        // A source that speaks no revision keeps no stream open either.
        let era = revision(&discovery.protocol).map_or(Era::Legacy, Era::of);
        *self.last.lock() = LastDiscovery {
            tools: Some(items.clone()),
            remarks: remarks.clone(),
            error: None,
            at: Some(now_millis()),
            protocol: discovery.protocol,
            server: Some(discovery.server),
        };
        let tools = OfferedItems { items, ttl_ms, public, remarks, other_members, flags };
        Ok(DiscoveredSource { tools, era, capabilities: discovery.capabilities, instructions })
    }

    /// Returns a source's instructions as an item.
    pub(super) fn instructions(&self, text: &str) -> Arc<Item> {
        let text: String = text.chars().take(MAX_INSTRUCTIONS).collect();
        Arc::new(Item::of_instructions(&self.config.name, &self.config.tags, &text))
    }

    /// Lists the source's items of a kind other than tools, under exposed names.
    pub(crate) async fn list(
        &self,
        client: &Arc<dyn SourceClient>,
        kind: ItemKind,
    ) -> Result<OfferedItems, SourceError> {
        let ListedDefinitions { items: definitions, ttl_ms, public, other_members } =
            self.source.list(client, kind).await?;
        let NamedList { items, remarks, .. } = self.named(kind, definitions)?;
        let flags = self.scanned(kind, items.iter()).await?;
        Ok(OfferedItems { items, ttl_ms, public, remarks, other_members, flags })
    }

    /// Returns the scanner's findings in a list, and keeps them for `status`.
    async fn scanned(
        &self,
        kind: ItemKind,
        items: impl Iterator<Item = &Arc<Item>> + Clone,
    ) -> Result<Flags, SourceError> {
        if self.config.scan == ScanMode::Off {
            return Ok(Flags::default());
        }
        let flags = self.scans.of(items.clone()).await.map_err(|why| SourceError::Protocol(Cause::own(why)))?;
        self.flagged.lock().insert(kind, FlaggedItem::all(items, &flags));
        Ok(flags)
    }

    /// Names the items of a list, and logs the remarks about it, unless they are those on the list before.
    fn named(&self, kind: ItemKind, definitions: Vec<Json>) -> Result<NamedList, SourceError> {
        let named = self.lists.named(kind, &self.config, definitions);
        let named = named.map_err(|error| SourceError::Protocol(unprefixed(error, &self.config)))?;
        if named.has_new_remarks {
            for remark in named.remarks.iter().take(MAX_REMARKS) {
                let remark = remark.to_string();
                tracing::warn!(source = %self.config.name, kind = kind.as_str(), "{}", escape_hidden(&remark));
            }
        }
        Ok(named)
    }

    /// Closes the source, and records what its network still has to report.
    pub(crate) async fn close(&self) {
        self.source.close().await;
        if let Some(egress) = &self.component_egress {
            egress.report();
        }
    }
}

/// Closes the source when no configuration and no call in flight uses it any more.
impl Drop for Upstream {
    fn drop(&mut self) {
        // Without a runtime nothing is connected.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let source = Arc::clone(&self.source);
        self.closing.spawn_on(async move { source.close().await }, &runtime);
    }
}

/// Returns the protocol if it is a revision, which is a date. A component of another world speaks none.
fn revision(protocol: &str) -> Option<&str> {
    Some(protocol).filter(|protocol| protocol.starts_with("20"))
}

/// Removes the source's name from the beginning of an error, because the callers that pass the error on name the source
/// too.
fn unprefixed(error: impl std::error::Error + Send + Sync + 'static, config: &SourceConfig) -> Cause {
    let (text, prefix) = (error.to_string(), format!("source `{}`", config.name));
    let text = text.strip_prefix(&prefix).unwrap_or(&text).trim_start_matches([':', ' ']).to_owned();
    Cause::own(text).because_of(error)
}
