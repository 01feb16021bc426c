//! The host's promises about plugins, tested with real components, both well-behaved and hostile.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[cfg(feature = "compiler")]
mod conditions;
#[cfg(feature = "compiler")]
mod description;
mod hostile;
mod loading;
mod precompiled;
#[cfg(feature = "compiler")]
mod redact;
#[cfg(feature = "compiler")]
mod released;
mod worlds;

use portcullis_config::{PluginConfig, PluginRef};
use portcullis_core::call::Phase;
use portcullis_test_support::guest;

/// Returns a configuration entry for a guest of `tests/guests`.
fn entry(name: &str, settings: serde_json::Value) -> PluginConfig {
    PluginConfig {
        plugin: PluginRef::Path(guest(name)),
        settings,
        on: vec![Phase::Call],
        shadow: false,
        grant: vec![],
        file: None,
    }
}
