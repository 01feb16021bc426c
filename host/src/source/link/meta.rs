//! `_meta` on its way to a source: what of the caller's goes on, and what a connection puts in itself.
//!
//! Of the caller's goes on the task that a request belongs to, and what the source's `context` lists: who a user is and which
//! request it was is nothing that every source should know. What goes on keeps its bytes.

use crate::protocol::meta::{
    CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION, RELATED_TASK, RESERVED, TASK_ID,
};
use crate::protocol::revision::MODERN;
use crate::protocol::{Era, Json, Members};

/// The member in which an agent says for whom it calls, and the parts of it that `context` lists by their own names.
const DEPS: &str = "deps";
const PARTS_OF_DEPS: [&str; 2] = ["user_context", "request_id"];

/// What a connection says of itself with each request.
pub(super) struct Hop<'a> {
    pub(super) era: Era,
    /// Of the caller, as far as the source may be told.
    pub(super) capabilities: &'a Json,
    /// The least grave log messages that the caller wants of all its calls.
    pub(super) level: Option<&'a Json>,
    /// What of the caller's own words the source may have: `context` of its configuration.
    pub(super) context: &'a [String],
}

/// `{}`, which lives long enough to be borrowed.
static NONE: Json = Json::empty_object();

impl Hop<'_> {
    /// A request of the broker's own, which asks for nothing and offers nothing.
    pub(super) fn quiet(era: Era) -> Self {
        Self { era, capabilities: &NONE, level: None, context: &[] }
    }
}

/// The parameters as they go to the source: with our facts, and a progress token only if somebody listens.
pub(super) fn dress(params: &Json, hop: &Hop<'_>, progress: Option<u64>) -> Json {
    let before = params.get("_meta").filter(|meta| meta.read::<Members<'_>>().is_ok());
    let level = before.as_ref().and_then(|meta| meta.get(LOG_LEVEL)).or_else(|| hop.level.cloned());
    let mut meta = before.as_ref().map_or_else(Json::empty_object, |meta| admitted(meta, hop.context));
    if hop.era == Era::Modern {
        for (key, value) in facts(hop) {
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

/// What every modern request says of its sender.
fn facts(hop: &Hop<'_>) -> [(&'static str, Json); 3] {
    [
        (PROTOCOL_VERSION, Json::of(&MODERN)),
        (CLIENT_INFO, client_info()),
        (CLIENT_CAPABILITIES, hop.capabilities.clone()),
    ]
}

/// Who we are.
pub(super) fn client_info() -> Json {
    Json::of(&serde_json::json!({ "name": "portcullis", "version": env!("CARGO_PKG_VERSION") }))
}

/// What of the caller's `_meta` the source may have.
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

/// The object with what `pick` makes of its members; `{}` for other values. Byte for byte where nothing is left out.
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
