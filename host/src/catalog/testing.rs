//! A source configuration that several tests share.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::config::{CellConfig, Endpoint, Naming, PluginRef, SourceConfig};

/// Returns the configuration of a source with that name.
pub(crate) fn source(name: &str, names: Naming) -> SourceConfig {
    SourceConfig {
        name: name.parse().unwrap(),
        endpoint: Endpoint::Component {
            component: PluginRef::Builtin("calculator".into()),
            settings: serde_json::Value::Null,
            grant: vec![],
            env: Default::default(),
            args: Vec::new(),
        },
        names,
        tags: vec![],
        labels: None,
        link_hosts: Vec::new(),
        group: None,
        priority: 50,
        enabled: true,
        required: true,
        eager: false,
        era: None,
        discovery: crate::config::ToolListUpdates::Snapshot,
        scan: crate::config::ScanMode::Quarantine,
        lifecycle: crate::config::ConnectionReuse::Warm,
        idle: std::time::Duration::from_secs(600),
        trust_annotations: false,
        context: vec![],
        allow: None,
        deny: vec![],
        cell: CellConfig::default(),
        concurrency: None,
        max_connections: 256,
        timeout: std::time::Duration::from_secs(1),
        max_message: crate::protocol::MAX_MESSAGE_BYTES,
    }
}
