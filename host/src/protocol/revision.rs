//! The revisions of the protocol, and the era that each belongs to. Revisions are dates, so they compare as text.

/// The first revision with a stateless lifecycle, and the only one that is served.
pub(crate) const MODERN: &str = "2026-07-28";

/// The revisions that begin with `initialize`, oldest first.
pub(crate) const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", FIRST_WITH_ELICITATION, NEWEST_LEGACY];

/// The newest revision that begins with `initialize`. `initialize` is answered with it where the client names one that is not known.
pub(crate) const NEWEST_LEGACY: &str = "2025-11-25";

/// The first revision in which a server may ask a person something.
const FIRST_WITH_ELICITATION: &str = "2025-06-18";

/// The first revision whose clients expect an event without data at the beginning of a stream.
const FIRST_WITH_EMPTY_EVENTS: &str = NEWEST_LEGACY;

/// Which of the protocol's two lifecycles a connection has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Era {
    /// The connection begins with `initialize` (2024-11-05 to 2025-11-25).
    Legacy,
    /// Each request carries what it needs in `_meta` (2026-07-28).
    Modern,
}

impl Era {
    /// Returns the era of a revision.
    pub(crate) fn of(revision: &str) -> Self {
        if is_modern(revision) { Self::Modern } else { Self::Legacy }
    }
}

/// Whether a revision is stateless.
pub(crate) fn is_modern(revision: &str) -> bool {
    revision >= MODERN
}

/// Returns the legacy revision for a client that asks for `requested`.
pub(crate) fn negotiate(requested: &str) -> &'static str {
    LEGACY.into_iter().find(|known| *known == requested).unwrap_or(NEWEST_LEGACY)
}

/// Whether a revision is one of those that begin with `initialize`.
pub(crate) fn is_legacy(revision: &str) -> bool {
    LEGACY.contains(&revision)
}

/// Whether `elicitation/create` may be sent under a revision.
pub(crate) fn has_elicitation(revision: &str) -> bool {
    revision >= FIRST_WITH_ELICITATION
}

/// Whether a stream may begin with an event that has an id and no data under a revision.
pub(crate) fn has_empty_events(revision: &str) -> bool {
    revision >= FIRST_WITH_EMPTY_EVENTS
}
