//! What a connection puts into the `_meta` of the caller's parameters, and what it takes out. All else keeps its bytes.

use crate::message::{Json, Members};
use crate::source::Relay;

use super::handshake::{Era, MODERN};

/// Keys that the protocol keeps for itself.
const RESERVED: &str = "io.modelcontextprotocol/";

/// Facts of a single hop: they describe the caller's connection to the broker, not the broker's to the source.
const PER_HOP: [&str; 4] = ["protocolVersion", "clientInfo", "clientCapabilities", "logLevel"];

/// The parameters as they go to the source: with our facts, and a progress token only if somebody listens.
pub(super) fn dress(params: &Json, era: Era, id: u64, relay: Option<&Relay>) -> Json {
    let before = params.get("_meta").filter(|meta| meta.read::<Members<'_>>().is_ok());
    let mut meta = before.clone().unwrap_or_else(Json::empty_object);
    for key in reserved(&meta, era) {
        meta = meta.without(&key);
    }
    if era == Era::Modern {
        for (key, value) in facts() {
            meta = meta.with(&format!("{RESERVED}{key}"), &value).unwrap_or(meta);
        }
    }
    meta = match relay {
        Some(_) => meta.with("progressToken", &Json::of(&id)).unwrap_or(meta),
        None => meta.without("progressToken"),
    };
    if before.as_ref() == Some(&meta) || (before.is_none() && meta == Json::empty_object()) {
        return params.clone();
    }
    params.with("_meta", &meta).unwrap_or_else(|| params.clone())
}

/// What every modern request says of its sender.
fn facts() -> [(&'static str, Json); 3] {
    [
        ("protocolVersion", Json::of(&MODERN)),
        ("clientInfo", client_info()),
        // A shared connection: nobody in particular stands behind it who could be asked.
        ("clientCapabilities", Json::empty_object()),
    ]
}

/// Who we are.
pub(super) fn client_info() -> Json {
    Json::of(&serde_json::json!({ "name": "portcullis", "version": env!("CARGO_PKG_VERSION") }))
}

/// The caller's keys that must not go on. An older source gets the protocol's other keys (such as those of tasks) as sent.
fn reserved(meta: &Json, era: Era) -> Vec<String> {
    let Ok(members) = meta.read::<Members<'_>>() else { return Vec::new() };
    let keys = members.0.into_iter().map(|(key, _)| key.into_owned());
    keys.filter(|key| {
        let name = key.strip_prefix(RESERVED);
        name.is_some_and(|name| era == Era::Modern || PER_HOP.contains(&name))
    })
    .collect()
}
