//! The state of a source, as `portcullis status` and health checks show it. Nothing here sends a request.

use std::sync::Arc;

use serde_json::json;

use super::{MAX_REMARKS, Upstream, revision};
use crate::agent::TransportKind;
use crate::catalog::Remark;
use crate::config::Endpoint;
use crate::context::SourceHealth;
use crate::context::flagged::FlagState;
use crate::item::Item;
use crate::lockfile::Lockfile;
use crate::protocol::Json;
use crate::source::{ConnectionHealth, SourceStatus};
use crate::telemetry::UpstreamPeer;

impl Upstream {
    /// Returns the remarks about the last list of tools: those that are offered under another name than the source
    /// gives, or left out.
    pub(crate) fn remarks(&self) -> Arc<[Remark]> {
        self.last.lock().remarks.clone()
    }

    /// Returns the source's access, and the mechanism that enforces each limit. `None` for a source that runs
    /// elsewhere, and for a process before its first start.
    pub(crate) fn cell(&self) -> Option<serde_json::Value> {
        #[cfg(feature = "process")]
        if let Some(described) = self.process_cell.as_ref().and_then(|process_cell| process_cell.described()) {
            return Some(described.to_json());
        }
        self.component_cell.as_ref().map(|component_cell| component_cell.to_json())
    }

    /// Returns the revision of the protocol that the source spoke at its last discovery, if it speaks any.
    fn revision(&self) -> Option<String> {
        let last = self.last.lock();
        revision(&last.protocol).map(str::to_owned)
    }

    /// Returns the kind of transport that carries its connections, if it has any.
    fn transport(&self) -> Option<TransportKind> {
        match &self.config.endpoint {
            Endpoint::Command { .. } => Some(TransportKind::Pipe),
            Endpoint::Url { .. } => Some(TransportKind::Tcp),
            Endpoint::Component { .. } | Endpoint::Native { .. } => None,
        }
    }

    /// Returns the source itself as an item, for requests that are about none of its items.
    pub(crate) fn whole_item(&self) -> Item {
        Item::of_source(&self.config.name, &self.config.tags)
    }

    /// Returns how the broker communicates with the source, as far as it is known.
    pub(crate) fn peer(&self) -> UpstreamPeer {
        UpstreamPeer { revision: self.revision(), transport: self.transport() }
    }

    /// Returns the health of the source, and when it was discovered last. Sends no request.
    pub(crate) fn health(&self, lock: &Lockfile) -> (SourceHealth, Option<u64>) {
        let ConnectionHealth { status, connected, last_ping, error_count, .. } = self.source.health();
        let (tools, discovered) = self.available_tools(status);
        let flagged = self.flagged(lock);
        let quarantined = flagged.iter().filter(|flagged| flagged.state == FlagState::Quarantined).count();
        let name = self.config.name.clone();
        (SourceHealth { name, connected, last_ping, error_count, tools_available: tools, quarantined }, discovered)
    }

    /// Returns the tools that the source listed last.
    pub(crate) fn last_tools(&self) -> Vec<Arc<Item>> {
        self.last.lock().tools.iter().flat_map(|tools| tools.iter().cloned()).collect()
    }

    /// Reports whether the source has listed its tools since the broker started.
    pub(crate) fn has_listed(&self) -> bool {
        self.last.lock().tools.is_some()
    }

    /// Returns the number of tools that the source listed last and has in this state, and when it listed them.
    pub(crate) fn available_tools(&self, status: SourceStatus) -> (usize, Option<u64>) {
        let last = self.last.lock();
        let there = last.error.is_none()
            && !matches!(status, SourceStatus::BackingOff | SourceStatus::Failed | SourceStatus::Stopped);
        (last.tools.as_ref().filter(|_| there).map_or(0, |tools| tools.len()), last.at)
    }

    /// Returns the state of the source for `portcullis status`.
    pub(crate) fn status(&self, lock: &Lockfile) -> serde_json::Value {
        let (known, ConnectionHealth { status, error, .. }) = (self.health(lock).0, self.source.health());
        let flagged: Vec<_> = self.flagged(lock).into_iter().take(MAX_REMARKS).collect();
        let last = self.last.lock();
        let kind = match &self.config.endpoint {
            Endpoint::Command { .. } => "command",
            Endpoint::Url { .. } => "url",
            Endpoint::Component { .. } => "component",
            Endpoint::Native { .. } => "native",
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
            "quarantined": known.quarantined,
            "flagged": flagged,
            "tools": last.tools.as_ref().map(|tools| tools.len()),
            "remarks": last.remarks.iter().take(MAX_REMARKS).map(ToString::to_string).collect::<Vec<_>>(),
            "protocol": last.protocol,
            "server": last.server.as_ref().map(Json::to_value),
            "error": error.as_ref().or(last.error.as_ref()),
            "calls": self.metrics.totals(),
            "required": self.config.required,
            "cell": self.cell(),
            "missing": self.missing_from_cell(),
        })
    }
}
