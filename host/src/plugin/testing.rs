//! What the tests of plugins share: one host per process, a call to decide about, a configuration entry.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::sync::{Arc, OnceLock};

use portcullis_test_support::guest;

use super::{Access, PluginError, Plugins, Tools};
use crate::call::{Call, CallId, Caller, Phase, Risk, SessionId, Trust, View};
use crate::config::{PluginConfig, PluginRef};
use crate::digest::Digest;
use crate::item::{Item, ItemKind};
use crate::protocol::Json;

/// Returns the one host for all tests of this process, as in a broker. The compiled code outlives the process.
pub(crate) fn plugins() -> &'static Plugins {
    static PLUGINS: OnceLock<Plugins> = OnceLock::new();
    PLUGINS.get_or_init(|| {
        let cache = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/guests/compiled");
        Plugins::new(Some(&cache)).unwrap()
    })
}

/// Returns a configuration entry for a guest of `tests/guests`.
pub(crate) fn entry(name: &str, settings: serde_json::Value) -> PluginConfig {
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
pub(crate) async fn tools(
    plugins: &Plugins,
    plugin: &PluginRef,
    settings: &serde_json::Value,
) -> Result<Tools, PluginError> {
    match plugins.component(plugin, settings, &[], Access::default()).await?.kind {
        super::ComponentKind::Tools(tools) => Ok(tools),
        other => panic!("{other:?}"),
    }
}

/// Returns a caller in this session.
pub(crate) fn caller(session: &SessionId) -> Caller {
    Caller { session: session.clone(), ..Caller::clone(&view("{}").call.caller) }
}

/// Returns a call of `files__read` with these arguments.
pub(crate) fn view(arguments: &str) -> View {
    let definition = Json::parse(r#"{"name":"read","inputSchema":{"type":"object"}}"#).unwrap();
    let tool = Item {
        kind: ItemKind::Tool,
        source: "files".parse().unwrap(),
        group: None,
        name: "read".into(),
        exposed: "files__read".into(),
        digest: Digest::of_json(&definition).unwrap(),
        definition,
        hints: Default::default(),
        tags: Arc::from([]),
        tally: Default::default(),
    };
    let caller = Caller {
        principal: "local".into(),
        profile: "default".parse().unwrap(),
        trust: Trust::Medium,
        session: SessionId::new(),
        client: "test/1".into(),
    };
    let call = Call {
        id: CallId::new(),
        received_at: 1,
        method: "tools/call".into(),
        caller: Arc::new(caller),
        item: Arc::new(tool),
        risk: Risk::Risky,
        attempt: None,
        dropped: Vec::new(),
        arguments: Json::parse(arguments.to_owned()).unwrap(),
        params: Json::empty_object(),
    };
    View::before(&Arc::new(call), Phase::Call)
}
