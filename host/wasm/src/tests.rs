//! The host's promises about plugins, tested with real components, both well-behaved and hostile.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[cfg(feature = "compiler")]
mod cedar;
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

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use portcullis_config::{PluginConfig, PluginRef};
use portcullis_core::call::Phase;
use portcullis_core::limits::TICK;
use portcullis_test_support::guest;

use super::engine::EngineSettings;
use super::testing::plugins;
use super::{PluginHost, SharedHost};

/// The tick of a clock under which no slow or busy machine makes a decision meet its deadline.
const SLOW_TICK: Duration = TICK.saturating_mul(100);

/// Returns a host with [`SLOW_TICK`], for guests whose work takes long and that must meet another limit, or none.
fn unhurried() -> &'static PluginHost {
    static UNHURRIED: OnceLock<PluginHost> = OnceLock::new();
    UNHURRIED.get_or_init(|| {
        let host = plugins().clone();
        let shared = SharedHost {
            settings: EngineSettings { tick: SLOW_TICK, ..EngineSettings::default() },
            #[cfg(feature = "compiler")]
            compiled: host.shared.compiled.clone(),
            ..SharedHost::default()
        };
        PluginHost { shared: Arc::new(shared), ..host }
    })
}

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
