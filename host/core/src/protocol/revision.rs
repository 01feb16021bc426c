//! The revisions of the protocol, and the era that each belongs to. Revisions are dates, so they are compared as text.

/// The first revision with a stateless lifecycle, and the only stateless one that the broker serves.
pub const MODERN: &str = "2026-07-28";

/// The revisions that begin with `initialize`, oldest first.
pub const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", FIRST_WITH_ELICITATION, NEWEST_LEGACY];

/// The newest revision that begins with `initialize`. It is also the answer to an `initialize` that names an unknown
/// revision.
pub const NEWEST_LEGACY: &str = "2025-11-25";

/// The first revision in which a server may ask a person a question.
const FIRST_WITH_ELICITATION: &str = "2025-06-18";

/// The first revision whose clients expect an event without data at the beginning of a stream.
const FIRST_WITH_EMPTY_EVENTS: &str = NEWEST_LEGACY;

/// One of the protocol's two lifecycles.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Era {
    /// The connection begins with `initialize` (2024-11-05 to 2025-11-25).
    Legacy,
    /// Each request carries its context in `_meta` (2026-07-28).
    Modern,
}

impl Era {
    /// Returns the era of a revision.
    pub fn of(revision: &str) -> Self {
        if is_modern(revision) { Self::Modern } else { Self::Legacy }
    }
}

/// Reports whether a revision is stateless.
pub fn is_modern(revision: &str) -> bool {
    revision >= MODERN
}

/// Returns the legacy revision with which to answer a client that requests `requested`.
pub fn negotiate(requested: &str) -> &'static str {
    LEGACY.into_iter().find(|known| *known == requested).unwrap_or(NEWEST_LEGACY)
}

/// Reports whether a revision is one of those that begin with `initialize`.
pub fn is_legacy(revision: &str) -> bool {
    LEGACY.contains(&revision)
}

/// Reports whether a revision allows `elicitation/create`.
pub fn has_elicitation(revision: &str) -> bool {
    revision >= FIRST_WITH_ELICITATION
}

/// Reports whether a revision allows a stream to begin with an event that has an id and no data.
pub fn has_empty_events(revision: &str) -> bool {
    revision >= FIRST_WITH_EMPTY_EVENTS
}
