//! The `_meta` of messages to a source: which of the caller's members are passed on, and which the connection adds.
//!
//! Of the caller's members, the task that a request belongs to and those that the source's `context` lists are passed
//! on: not every source should learn who the user is or which request it was. A member that is passed on keeps its
//! bytes.

use crate::protocol::meta::{
    CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, LOG_LEVELS, PROTOCOL_VERSION, RELATED_TASK, RESERVED, TASK_ID,
};
use crate::protocol::revision::MODERN;
use crate::protocol::{Era, Json};

/// The member in which an agent states for whom it calls, and those of its parts that `context` lists by their own
/// names.
const DEPS: &str = "deps";
const PARTS_OF_DEPS: [&str; 2] = ["user_context", "request_id"];

/// The facts that a connection adds to each request.
pub(super) struct RequestFacts<'a> {
    pub(super) era: Era,
    /// The caller's capabilities, as far as the source may know them.
    pub(super) capabilities: &'a Json,
    /// The log level that the caller has set for all its calls.
    pub(super) level: Option<&'a Json>,
    /// The members of the caller's `_meta` that the source may see: `context` of its configuration.
    pub(super) context: &'a [String],
}

/// An empty object that can be borrowed for as long as needed.
static NONE: Json = Json::empty_object();

impl RequestFacts<'_> {
    /// Returns the facts for a request of the broker's own, which declares no capabilities.
    pub(super) fn of_broker(era: Era) -> Self {
        Self { era, capabilities: &NONE, level: None, context: &[] }
    }
}

/// Returns the parameters as they are sent to the source: with the connection's facts, and with a progress token only
/// if the caller wants progress.
pub(super) fn with_facts(params: &Json, facts: &RequestFacts<'_>, progress: Option<u64>) -> Json {
    let before = params.get("_meta").filter(|meta| meta.member_texts().is_some());
    let level = before.as_ref().and_then(level_of).or_else(|| facts.level.cloned());
    let mut meta = before.as_ref().map_or_else(Json::empty_object, |meta| admitted(meta, facts.context));
    if facts.era == Era::Modern {
        for (key, value) in sender_facts(facts) {
            meta = meta.with(key, &value).unwrap_or(meta);
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

/// Returns the log level that the caller's `_meta` states. Anything other than a level of the protocol would be a text
/// that nobody judges.
pub(super) fn level_of(meta: &Json) -> Option<Json> {
    meta.get(LOG_LEVEL).filter(|level| level.read().is_ok_and(|level: String| LOG_LEVELS.contains(&level.as_str())))
}

/// Returns the members with which every modern request describes its sender.
fn sender_facts(facts: &RequestFacts<'_>) -> [(&'static str, Json); 3] {
    [
        (PROTOCOL_VERSION, Json::of(&MODERN)),
        (CLIENT_INFO, client_info()),
        (CLIENT_CAPABILITIES, facts.capabilities.clone()),
    ]
}

/// Returns the broker's `clientInfo`.
pub(super) fn client_info() -> Json {
    Json::of(&serde_json::json!({ "name": "portcullis", "version": env!("CARGO_PKG_VERSION") }))
}

/// Returns the members of the caller's `_meta` that the source may see.
fn admitted(meta: &Json, context: &[String]) -> Json {
    let listed = |key: &str| context.iter().any(|listed| listed == key);
    narrowed(meta, |key, value| match key {
        RELATED_TASK => Some(narrowed(&value, |part, value| (part == TASK_ID).then_some(value))),
        key if key.starts_with(RESERVED) => None,
        DEPS => {
            let parts =
                narrowed(&value, |part, value| (PARTS_OF_DEPS.contains(&part) && listed(part)).then_some(value));
            (parts != NONE).then_some(parts)
        }
        key => (listed(key) && !PARTS_OF_DEPS.contains(&key)).then_some(value),
    })
}

/// Returns the object with the members that `pick` returns; `{}` for a value that is not an object. Unchanged to the
/// byte if nothing is left out.
fn narrowed(object: &Json, pick: impl Fn(&str, Json) -> Option<Json>) -> Json {
    let members = object.members().unwrap_or_default();
    let picked: Vec<_> =
        members.iter().filter_map(|(key, value)| Some((key.as_str(), pick(key, value.clone())?))).collect();
    let whole = picked.len() == members.len() && picked.iter().zip(&members).all(|((_, new), (_, old))| new == old);
    if whole && !members.is_empty() {
        return object.clone();
    }
    let edits: Vec<_> = picked.iter().map(|(key, value)| (*key, Some(value))).collect();
    NONE.edited(&edits).unwrap_or_else(Json::empty_object)
}
