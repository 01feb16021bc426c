//! One configured source with what the broker knows of it.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use super::{BuildError, SourceHealth};
use crate::agent::TransportKind;
use crate::call::now_millis;
use crate::catalog::{self, Collected, Remark};
use crate::cell::CellHost;
#[cfg(feature = "process")]
use crate::cell::ProcessCell;
use crate::config::{Endpoint, SourceConfig};
use crate::digest::Digest;
use crate::item::{Item, ItemKind};
use crate::key_value::KeyValue;
use crate::limits;
use crate::metrics::Traffic;
use crate::plugin::{self, Access, ComponentCell, Plugins};
use crate::protocol::{Era, Json};
use crate::secret::{Secrets, Value};
#[cfg(feature = "process")]
use crate::source::ProcessSource;
use crate::source::{
    CommandSource, ComponentSource, Health, HttpSource, Listed, Program, Secrets as BlottedOut, Source, SourceClient,
    SourceError, Status, SupervisionConfig, Wire, log_file,
};
use crate::sync::Mutex;
use crate::telemetry::Peer;
use crate::visible::visible;

/// One configured source with what the broker knows of it.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) config: SourceConfig,
    /// Digest of what the source is. Whatever was accepted or granted for another one does not count for it.
    pub(crate) identity: Digest,
    pub(crate) source: Box<dyn Source>,
    /// Of a process source.
    #[cfg(feature = "process")]
    pub(crate) process_cell: Option<Arc<ProcessCell>>,
    /// Of a component source.
    pub(crate) component_cell: Option<Arc<ComponentCell>>,
    /// The calls to it, counted.
    pub(crate) traffic: Traffic,
    last: Mutex<Last>,
    /// What was said in the log of the last list of each kind.
    said: Mutex<HashMap<ItemKind, Vec<Remark>>>,
    /// Of a required source: what it said to clients with these capabilities.
    met: Mutex<HashMap<Json, DiscoveredSource>>,
}

/// Items, and what there is to say of them.
type Named = (Arc<[Arc<Item>]>, Arc<[Remark]>);

/// How many remarks about one list go to the log and the ledger: a source may list a thousand bad names.
pub(crate) const MAX_REMARKS: usize = 32;

/// How many sorts of clients are told apart, of which each may be shown other tools.
const MAX_MET: usize = 16;

/// What a source offers of one kind.
#[derive(Debug, Clone)]
pub(crate) struct OfferedItems {
    pub(crate) items: Arc<[Arc<Item>]>,
    /// For how long the source says that it stays so.
    pub(crate) ttl_ms: u64,
    /// Whether the source says that it is the same for everybody.
    pub(crate) public: bool,
    /// What is offered otherwise than the source says, or not at all.
    pub(crate) remarks: Arc<[Remark]>,
    /// What else stands in the source's result: [`Listed::around`](crate::source::Listed::around).
    pub(crate) around: Option<Json>,
}

/// What a source says when it is met.
#[derive(Debug, Clone)]
pub(crate) struct DiscoveredSource {
    pub(crate) tools: OfferedItems,
    /// What it speaks.
    pub(crate) era: Era,
    /// `ServerCapabilities`
    pub(crate) capabilities: Json,
    pub(crate) instructions: Option<String>,
}

/// What the last discovery found, for `status` and so that an unchanged list is not digested again.
#[derive(Debug, Default)]
struct Last {
    definitions: Vec<Json>,
    tools: Option<Arc<[Arc<Item>]>>,
    remarks: Arc<[Remark]>,
    /// Why the last discovery came to nothing, where the source itself is well.
    error: Option<String>,
    /// When the last good one was, in milliseconds since the Unix epoch.
    at: Option<u64>,
    protocol: String,
    server: Option<Json>,
}

impl Upstream {
    pub(crate) async fn new(
        config: &SourceConfig,
        secrets: &Secrets,
        plugins: &Plugins,
        cells: &Arc<CellHost>,
        data_dir: &Path,
    ) -> Result<Self, BuildError> {
        let source_name = || config.name.clone();
        let resolve = |value: &Value| -> Result<SecretString, BuildError> {
            secrets.resolve(value).map_err(|error| BuildError::Secret { source_name: source_name(), error })
        };
        let variables = |env: &BTreeMap<String, Value>| -> Result<Vec<(String, String)>, BuildError> {
            env.iter().map(|(name, value)| Ok((name.clone(), resolve(value)?.expose_secret().to_owned()))).collect()
        };
        let failed = |error: SourceError| BuildError::Source { source_name: source_name(), error };
        #[cfg(feature = "process")]
        let mut process_cell = None;
        let mut component_cell = None;
        let (source, identity): (Box<dyn Source>, _) = match &config.endpoint {
            #[cfg(not(feature = "process"))]
            Endpoint::Command { .. } => {
                let why = "it has a `command`, and this program starts none; use a `component` or a `url`";
                return Err(failed(SourceError::Start(why.to_owned())));
            }
            #[cfg(feature = "process")]
            Endpoint::Command { argv, cwd, env } => {
                let resolved = variables(env)?;
                let own = process_cell.insert(Arc::new(ProcessCell::new(Arc::clone(cells), config)));
                let source = ProcessSource::new(config, Arc::clone(own), resolved).map_err(failed)?;
                (Box::new(source), json!({ "command": argv, "cwd": cwd, "env": pairs(env) }))
            }
            Endpoint::Url { url, headers, .. } => {
                let mut resolved = Vec::with_capacity(headers.len());
                for (name, value) in headers {
                    resolved.push((name.clone(), resolve(value)?));
                }
                let source = HttpSource::new(config, resolved, data_dir, cells.recorder()).map_err(failed)?;
                (Box::new(source), json!({ "url": url.as_str(), "headers": pairs(headers) }))
            }
            Endpoint::Component { component, settings, grant, env } => {
                let bytes = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
                let variables = variables(env)?;
                let cell = cells.grant(config).map_err(|error| failed(SourceError::Start(error.to_string())))?;
                let keeps = grant.iter().any(|word| word == plugin::KEY_VALUE);
                let access = Access {
                    env: variables.clone(),
                    grant: cell.clone(),
                    timeout: config.timeout,
                    egress: cells.egress(&config.name, &config.cell),
                    key_value: keeps.then(|| Arc::new(KeyValue::new(data_dir, &config.name))),
                    instances: config.cell.instances.unwrap_or(limits::SOURCE_INSTANCES),
                    output: config.cell.output.map_or(limits::PAYLOAD_OUTPUT_BYTES, bytes),
                };
                let (processor_time, instances, output) = (access.processor_time(), access.instances, access.output);
                let loaded = plugins.component(component, settings, grant, access).await?;
                let id = loaded.kind.identity();
                let identity =
                    json!({ "component": id.digest, "settings": settings, "grant": grant, "env": pairs(env) });
                let own = component_cell.insert(Arc::new(ComponentCell {
                    component: id.name.clone(),
                    digest: id.digest,
                    kind: loaded.kind.as_str(),
                    imports: loaded.imports,
                    grant: cell,
                    processor_time,
                    instances,
                    output,
                    keeps: loaded.keeps,
                }));
                let source: Box<dyn Source> = match loaded.kind {
                    plugin::ComponentKind::Tools(tools) => Box::new(ComponentSource::new(tools, config)),
                    plugin::ComponentKind::Functions(functions) => {
                        Box::new(ComponentSource::of_functions(functions, config))
                    }
                    plugin::ComponentKind::Command(command) => {
                        let is_secret = |name: &String| matches!(env.get(name), Some(Value::Secret(_)));
                        let secrets = variables.iter().filter(|(name, _)| is_secret(name));
                        let supervision = SupervisionConfig::of(config, cells.recorder());
                        let (cells, component_cell, name) = (Arc::clone(cells), Arc::clone(own), config.name.clone());
                        let wire = Wire {
                            limit: config.cell.output.map_or(config.max_message, bytes),
                            log: log_file(&cells.data_dir, &name),
                            secrets: BlottedOut::new(secrets.map(|(_, value)| value.as_str())),
                        };
                        let program = Program {
                            command,
                            wire,
                            started: Box::new(move || cells.note_start(&name, component_cell.to_json())),
                        };
                        Box::new(CommandSource::new(supervision, program))
                    }
                };
                (source, identity)
            }
        };
        // With its name: the same program twice may stand for two accounts, and a yes to one is none to the other.
        let identity = Digest::of(json!([config.name, identity]).to_string().as_bytes());
        Ok(Self {
            config: config.clone(),
            identity,
            source,
            #[cfg(feature = "process")]
            process_cell,
            component_cell,
            traffic: Traffic::default(),
            last: Mutex::default(),
            said: Mutex::default(),
            met: Mutex::default(),
        })
    }

    /// What the source said to a client with the same capabilities, if it is required and was met.
    pub(crate) fn met_by(&self, client: &Arc<dyn SourceClient>) -> Option<DiscoveredSource> {
        self.met.lock().get(&client.capabilities()).cloned()
    }

    /// Whether the source may be itself again soon.
    pub(crate) fn is_coming_back(&self) -> bool {
        matches!(self.source.health().status, Status::BackingOff | Status::Starting | Status::Degraded)
    }

    /// Ends it and starts it again. See [`Source::restart`].
    pub(crate) async fn restart(&self, cause: &str, patience: Duration) -> Result<Status, SourceError> {
        self.met.lock().clear();
        self.source.restart(cause, patience).await
    }

    fn keep_met(&self, client: &Arc<dyn SourceClient>, met: &DiscoveredSource) {
        if self.config.required {
            let mut all = self.met.lock();
            if all.len() >= MAX_MET && !all.contains_key(&client.capabilities()) {
                all.clear();
            }
            all.insert(client.capabilities(), met.clone());
        }
    }

    /// Whether the source can change nothing and tell nobody: its cell makes sure of it.
    pub(crate) fn is_sealed(&self) -> bool {
        #[cfg(feature = "process")]
        if let Some(process_cell) = &self.process_cell {
            return process_cell.described().is_some_and(|described| described.is_harmless());
        }
        self.component_cell.as_ref().is_some_and(|component_cell| component_cell.is_harmless())
    }

    /// Connects if need be, and gives the source's tools under their exposed names.
    pub(crate) async fn discover(&self, client: &Arc<dyn SourceClient>) -> Result<DiscoveredSource, SourceError> {
        let found = self.source.discover(client).await;
        let broken = self.source.health().error;
        let mut last = self.last.lock();
        let named = found.and_then(|discovery| {
            let listed = discovery.tools;
            let known = last.tools.clone().filter(|_| last.definitions == listed.items);
            let (items, remarks) = match known {
                Some(items) => (items, last.remarks.clone()),
                None => {
                    let (items, remarks) = self.named(ItemKind::Tool, &listed.items)?;
                    self.traffic.keep_tools(items.iter().map(|item| &item.exposed));
                    (items, remarks)
                }
            };
            // What speaks no revision keeps no stream open either.
            let era = revision(&discovery.protocol).map_or(Era::Legacy, Era::of);
            *last = Last {
                definitions: listed.items,
                tools: Some(items.clone()),
                remarks: remarks.clone(),
                error: None,
                at: Some(now_millis()),
                protocol: discovery.protocol,
                server: Some(discovery.server),
            };
            let Listed { ttl_ms, public, around, .. } = listed;
            let tools = OfferedItems { items, ttl_ms, public, remarks, around };
            Ok(DiscoveredSource {
                tools,
                era,
                capabilities: discovery.capabilities,
                instructions: discovery.instructions,
            })
        });
        // What the source itself tells is told by it, for as long as it is so.
        last.error = named.as_ref().err().filter(|_| broken.is_none()).map(ToString::to_string);
        drop(last);
        if let Ok(met) = &named {
            self.keep_met(client, met);
        }
        named
    }

    /// What the source offers of another kind, under exposed names.
    pub(crate) async fn list(
        &self,
        client: &Arc<dyn SourceClient>,
        kind: ItemKind,
    ) -> Result<OfferedItems, SourceError> {
        let listed = self.source.list(client, kind).await?;
        let (items, remarks) = self.named(kind, &listed.items)?;
        let Listed { ttl_ms, public, around, .. } = listed;
        Ok(OfferedItems { items, ttl_ms, public, remarks, around })
    }

    fn named(&self, kind: ItemKind, definitions: &[Json]) -> Result<Named, SourceError> {
        let collected = catalog::items_of(kind, &self.config, definitions);
        let Collected { items, remarks } =
            collected.map_err(|error| SourceError::Protocol(unprefixed(&error.to_string(), &self.config)))?;
        let mut said = self.said.lock();
        if said.get(&kind) != Some(&remarks) {
            for remark in remarks.iter().take(MAX_REMARKS) {
                let remark = remark.to_string();
                tracing::warn!(source = %self.config.name, kind = kind.as_str(), "{}", visible(&remark));
            }
            said.insert(kind, remarks.clone());
        }
        Ok((items.into(), remarks.into()))
    }

    /// What of the tools that it listed last is offered otherwise than it says, or not at all.
    pub(crate) fn remarks(&self) -> Arc<[Remark]> {
        self.last.lock().remarks.clone()
    }

    /// What it may touch, and what is enforced by what. None for what runs elsewhere, and for a process before its first start.
    pub(crate) fn cell(&self) -> Option<serde_json::Value> {
        #[cfg(feature = "process")]
        if let Some(described) = self.process_cell.as_ref().and_then(|process_cell| process_cell.described()) {
            return Some(described.to_json());
        }
        self.component_cell.as_ref().map(|component_cell| component_cell.to_json())
    }

    /// Which revision of the protocol it spoke when it was discovered last, if it speaks any.
    fn revision(&self) -> Option<String> {
        let last = self.last.lock();
        revision(&last.protocol).map(str::to_owned)
    }

    /// What carries its connections, if it has any.
    fn transport(&self) -> Option<TransportKind> {
        match &self.config.endpoint {
            Endpoint::Command { .. } => Some(TransportKind::Pipe),
            Endpoint::Url { .. } => Some(TransportKind::Tcp),
            Endpoint::Component { .. } => None,
        }
    }

    /// Returns the source itself as an item, for requests that are about nothing in particular that it offers.
    pub(crate) fn whole_item(&self) -> Item {
        Item::of_source(&self.config.name, &self.config.tags)
    }

    /// Returns how the source is spoken with, as far as is known.
    pub(crate) fn peer(&self) -> Peer {
        Peer { revision: self.revision(), transport: self.transport() }
    }

    /// How it is, and when it was discovered last. Asks nobody.
    pub(crate) fn health(&self) -> (SourceHealth, Option<u64>) {
        let Health { status, connected, last_ping, error_count, .. } = self.source.health();
        let last = self.last.lock();
        let there = last.error.is_none() && !matches!(status, Status::BackingOff | Status::Failed | Status::Stopped);
        let tools = last.tools.as_ref().filter(|_| there).map_or(0, |tools| tools.len());
        let name = self.config.name.clone();
        (SourceHealth { name, connected, last_ping, error_count, tools_available: tools }, last.at)
    }

    /// For `portcullis status`.
    pub(crate) fn status(&self) -> serde_json::Value {
        let (known, Health { status, error, .. }) = (self.health().0, self.source.health());
        let last = self.last.lock();
        let kind = match &self.config.endpoint {
            Endpoint::Command { .. } => "command",
            Endpoint::Url { .. } => "url",
            Endpoint::Component { .. } => "component",
        };
        json!({
            "name": self.config.name,
            "kind": kind,
            "group": self.config.group.as_ref().map(|member| &member.group),
            "priority": self.config.priority,
            "state": status.as_str(),
            "connected": known.connected,
            "last_ping": known.last_ping,
            "error_count": known.error_count,
            "tools_available": known.tools_available,
            "tools": last.tools.as_ref().map(|tools| tools.len()),
            "remarks": last.remarks.iter().take(MAX_REMARKS).map(ToString::to_string).collect::<Vec<_>>(),
            "protocol": last.protocol,
            "server": last.server.as_ref().map(Json::to_value),
            "error": error.as_ref().or(last.error.as_ref()),
            "calls": self.traffic.totals(),
            "required": self.config.required,
            "cell": self.cell(),
        })
    }
}

/// A revision of the protocol is a date. A component of another world speaks none.
fn revision(protocol: &str) -> Option<&str> {
    Some(protocol).filter(|protocol| protocol.starts_with("20"))
}

/// The catalog names the source in its errors, and so does whoever passes them on.
fn unprefixed(text: &str, config: &SourceConfig) -> String {
    let prefix = format!("source `{}`", config.name);
    text.strip_prefix(&prefix).unwrap_or(text).trim_start_matches([':', ' ']).to_owned()
}

/// Names with their values as they are written.
fn pairs(values: &BTreeMap<String, Value>) -> Vec<serde_json::Value> {
    values.iter().map(|(name, value)| json!([name, written(value)])).collect()
}

/// A value as it is written in the configuration: secrets by name, so that a rotated secret is the same source.
fn written(value: &Value) -> serde_json::Value {
    match value {
        Value::Plain(text) => json!(text),
        Value::Secret(name) => json!({ "secret": name }),
    }
}
