//! What a connection puts into the `_meta` of the caller's parameters, and what it takes out. All else keeps its bytes.

use crate::message::{Json, Members};

use super::handshake::{Era, MODERN};

/// Keys that the protocol keeps for itself.
const RESERVED: &str = "io.modelcontextprotocol/";

/// `_meta` key of the least grave log messages that are wanted (2026-07-28).
pub(crate) const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// Facts of a single hop: they describe the caller's connection to the broker, not the broker's to the source.
const PER_HOP: [&str; 4] = ["protocolVersion", "clientInfo", "clientCapabilities", "logLevel"];

/// What a connection says of itself with each request.
pub(super) struct Hop<'a> {
    pub(super) era: Era,
    /// Of the caller, as far as the source may be told.
    pub(super) capabilities: &'a Json,
    /// The least grave log messages that the caller wants of all its calls.
    pub(super) level: Option<&'a Json>,
}

/// `{}`, which lives long enough to be borrowed.
static NONE: Json = Json::empty_object();

impl Hop<'_> {
    /// A request of the broker's own, which asks for nothing and offers nothing.
    pub(super) fn quiet(era: Era) -> Self {
        Self { era, capabilities: &NONE, level: None }
    }
}

/// The parameters as they go to the source: with our facts, and a progress token only if somebody listens.
pub(super) fn dress(params: &Json, hop: &Hop<'_>, progress: Option<u64>) -> Json {
    let before = params.get("_meta").filter(|meta| meta.read::<Members<'_>>().is_ok());
    let level = before.as_ref().and_then(|meta| meta.get(LOG_LEVEL)).or_else(|| hop.level.cloned());
    let mut meta = before.clone().unwrap_or_else(Json::empty_object);
    for key in per_hop(&meta) {
        meta = meta.without(&key);
    }
    if hop.era == Era::Modern {
        for (key, value) in facts(hop) {
            meta = meta.with(&format!("{RESERVED}{key}"), &value).unwrap_or(meta);
        }
        if let Some(level) = level {
            meta = meta.with(LOG_LEVEL, &level).unwrap_or(meta);
        }
    }
    meta = match progress {
        Some(id) => meta.with("progressToken", &Json::of(&id)).unwrap_or(meta),
        None => meta.without("progressToken"),
    };
    if before.as_ref() == Some(&meta) || (before.is_none() && meta == Json::empty_object()) {
        return params.clone();
    }
    params.with("_meta", &meta).unwrap_or_else(|| params.clone())
}

/// What every modern request says of its sender.
fn facts(hop: &Hop<'_>) -> [(&'static str, Json); 3] {
    [
        ("protocolVersion", Json::of(&MODERN)),
        ("clientInfo", client_info()),
        ("clientCapabilities", hop.capabilities.clone()),
    ]
}

/// Who we are.
pub(super) fn client_info() -> Json {
    Json::of(&serde_json::json!({ "name": "portcullis", "version": env!("CARGO_PKG_VERSION") }))
}

/// The caller's keys that must not go on. The protocol's other keys (such as those of extensions) do.
fn per_hop(meta: &Json) -> Vec<String> {
    let Ok(members) = meta.read::<Members<'_>>() else { return Vec::new() };
    let keys = members.0.into_iter().map(|(key, _)| key.into_owned());
    keys.filter(|key| key.strip_prefix(RESERVED).is_some_and(|name| PER_HOP.contains(&name))).collect()
}
