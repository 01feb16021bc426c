//! Protocol versions, and which era each belongs to.

/// The revision with a stateless lifecycle.
pub(crate) const MODERN: &str = "2026-07-28";

/// The revisions that begin with `initialize`, oldest first.
pub(crate) const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", NEWEST_LEGACY];

/// What `initialize` answers to a version that nobody here knows.
pub(crate) const NEWEST_LEGACY: &str = "2025-11-25";

/// The first revision in which a server may ask a person something.
const FIRST_WITH_ELICITATION: &str = "2025-06-18";

/// The first revision whose clients expect an event without data at the beginning of a stream.
const FIRST_WITH_EMPTY_EVENTS: &str = "2025-11-25";

/// The legacy version for a client that asks for `requested`.
pub(crate) fn negotiate(requested: &str) -> &'static str {
    LEGACY.into_iter().find(|known| *known == requested).unwrap_or(NEWEST_LEGACY)
}

/// Whether this is a version with `initialize`.
pub(crate) fn is_legacy(version: &str) -> bool {
    LEGACY.contains(&version)
}

/// Whether `elicitation/create` may be sent under this version. Versions are dates and sort as text.
pub(crate) fn has_elicitation(version: &str) -> bool {
    version >= FIRST_WITH_ELICITATION
}

/// Whether a stream may begin with an event that has an id and no data.
pub(crate) fn has_empty_events(version: &str) -> bool {
    version >= FIRST_WITH_EMPTY_EVENTS
}
