//! Helpers that the tests of plugins share: one host per process and a configuration entry.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::sync::OnceLock;

use portcullis_config::{PluginConfig, PluginRef};
use portcullis_core::call::Phase;
use portcullis_test_support::guest;

use super::{Access, PluginError, Plugins, Tools};

/// Returns the one host for all tests of this process, as in a broker. The compiled code outlives the process.
pub fn plugins() -> &'static Plugins {
    static PLUGINS: OnceLock<Plugins> = OnceLock::new();
    PLUGINS.get_or_init(|| {
        let cache = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guests/compiled");
        Plugins::new(Some(&cache)).unwrap()
    })
}

/// Returns a configuration entry for a guest of `tests/guests`.
pub fn entry(name: &str, settings: serde_json::Value) -> PluginConfig {
    PluginConfig {
        plugin: PluginRef::Path(guest(name)),
        settings,
        on: vec![Phase::Call],
        shadow: false,
        grant: vec![],
        file: None,
    }
}

/// Loads a component of tools that is granted nothing.
pub async fn tools(plugins: &Plugins, plugin: &PluginRef, settings: &serde_json::Value) -> Result<Tools, PluginError> {
    match plugins.component(plugin, settings, &[], Access::default()).await?.kind {
        super::ComponentKind::Tools(tools) => Ok(tools),
        other => panic!("{other:?}"),
    }
}
