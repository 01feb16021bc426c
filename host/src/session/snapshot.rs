//! What one session sees: taken once, from all its sources, or not at all.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::json;

use crate::broker::{Inner, Upstream};
use crate::call::{Call, CallId, Caller, Risk, now_millis};
use crate::catalog::{Acceptance, Catalog, Lock, Tool};
use crate::config::ProfileConfig;
use crate::gate::risk_of;
use crate::ledger::{Event, Kind};
use crate::message::Json;

/// The tools of one session.
#[derive(Debug)]
pub(super) struct Snapshot {
    shown: HashMap<Arc<str>, Shown>,
    hidden: HashSet<Arc<str>>,
    listing: Arc<[Json]>,
}

/// One tool that the session may see.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) tool: Arc<Tool>,
    pub(super) risk: Risk,
    pub(super) acceptance: Acceptance,
    pub(super) upstream: Arc<Upstream>,
}

impl Snapshot {
    pub(super) fn listing(&self) -> Arc<[Json]> {
        self.listing.clone()
    }

    pub(super) fn get(&self, exposed: &str) -> Option<&Shown> {
        self.shown.get(exposed)
    }

    pub(super) fn hides(&self, exposed: &str) -> bool {
        self.hidden.contains(exposed)
    }
}

/// Discovers the profile's sources in parallel and takes what the session may see. Events: `mcp.connected` for each source,
/// `mcp.error` for each that failed.
///
/// # Errors
/// The text of the first required source that failed, or of names that collide: nothing is served on a partial set.
pub(super) async fn take(broker: &Inner, caller: &Arc<Caller>, profile: &ProfileConfig) -> Result<Snapshot, String> {
    let lock = Lock::load(&broker.config.data_dir).map_err(|error| error.to_string())?;
    let admitted: Vec<_> = broker.admitted(&caller.profile).collect();
    let discovered = join_all(admitted.iter().map(|(upstream, _)| upstream.discover())).await;

    let mut failure = None;
    let mut usable = Vec::new();
    for ((upstream, filter), discovered) in admitted.into_iter().zip(discovered) {
        let name = &upstream.config.name;
        match discovered {
            Ok(tools) => {
                let listed: Vec<_> =
                    tools.iter().map(|tool| json!({ "tool": &*tool.name, "definition": tool.digest })).collect();
                let body = json!({
                    "source": name, "identity": upstream.identity, "count": listed.len(), "tools": listed,
                });
                note(broker, caller, Kind::McpConnected, body);
                usable.push((upstream, filter, tools));
            }
            Err(error) => {
                let error = format!("source `{name}`: {error}");
                let required = upstream.config.required;
                note(broker, caller, Kind::McpError, json!({ "source": name, "error": error, "required": required }));
                tracing::warn!(source = %name, required, "{error}");
                if required {
                    failure.get_or_insert(error);
                }
            }
        }
    }
    if let Some(error) = failure {
        return Err(error);
    }
    let catalog =
        Catalog::merge(usable.iter().map(|(_, _, tools)| tools.to_vec())).map_err(|error| error.to_string())?;
    let of_source: HashMap<_, _> = usable.iter().map(|(up, filter, _)| (&up.config.name, (up, filter))).collect();

    let mut snapshot = Snapshot { shown: HashMap::new(), hidden: HashSet::new(), listing: Arc::new([]) };
    let mut listing = Vec::new();
    for tool in catalog.tools() {
        let Some((upstream, filter)) = of_source.get(&tool.source) else { continue };
        let acceptance = lock.of(tool, upstream.identity);
        let risk = risk_of(tool, &upstream.config, &acceptance);
        if filter.admits(tool) && broker.gate.shows(&listed(tool, caller, risk)).await {
            listing.push(tool.exposed_definition());
            let upstream = Arc::clone(upstream);
            snapshot.shown.insert(tool.exposed.clone(), Shown { tool: tool.clone(), risk, acceptance, upstream });
        } else {
            snapshot.hidden.insert(tool.exposed.clone());
        }
    }
    if !snapshot.hidden.is_empty() {
        let hidden: Vec<&str> = snapshot.hidden.iter().map(|name| &**name).collect();
        note(broker, caller, Kind::ListFiltered, json!({ "trust": profile.trust.as_str(), "hidden": hidden }));
    }
    snapshot.listing = listing.into();
    Ok(snapshot)
}

/// A tool as policies see it when it is about to be shown.
fn listed(tool: &Arc<Tool>, caller: &Arc<Caller>, risk: Risk) -> Arc<Call> {
    Arc::new(Call {
        id: CallId::new(),
        received_at: now_millis(),
        method: "tools/list".into(),
        caller: caller.clone(),
        tool: tool.clone(),
        risk,
        arguments: Json::empty_object(),
        params: Json::empty_object(),
    })
}

fn note(broker: &Inner, caller: &Caller, kind: Kind, body: serde_json::Value) {
    broker.ledger.note(Event { kind, run: Some(caller.session.clone()), call: None, body });
}
