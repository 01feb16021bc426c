//! Helpers that the tests of plugins share: one host per process and components of tools.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::sync::OnceLock;

use portcullis_config::PluginRef;

use super::{ComponentAccess, PluginError, PluginHost, ToolsComponent};

/// Returns the one host for all tests of this process, as in a broker. The compiled code outlives the process.
pub fn plugins() -> &'static PluginHost {
    static PLUGINS: OnceLock<PluginHost> = OnceLock::new();
    PLUGINS.get_or_init(|| {
        let cache = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guests/compiled");
        PluginHost::new(Some(&cache)).unwrap()
    })
}

/// Loads a component of tools that is granted nothing.
pub async fn tools(
    plugins: &PluginHost,
    plugin: &PluginRef,
    settings: &serde_json::Value,
) -> Result<ToolsComponent, PluginError> {
    match plugins.component(plugin, settings, &[], ComponentAccess::default()).await?.kind {
        super::ComponentKind::Tools(tools) => Ok(tools),
        other => panic!("{other:?}"),
    }
}
