//! The identifiers of calls and sessions.

use std::fmt;
use std::sync::Arc;

/// The broker's identifier of one call: a ULID, so that identifiers sort by time.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct CallId(Arc<str>);

/// The identifier of one session (a *run* in the ledger): a ULID.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct SessionId(Arc<str>);

macro_rules! ulid_id {
    ($name:ident) => {
        impl $name {
            /// Returns a new, unique identifier.
            #[must_use]
            #[expect(clippy::new_without_default, reason = "a new identifier is an act, not a default")]
            pub fn new() -> Self {
                Self(ulid::Ulid::generate().to_string().into())
            }

            /// Returns the identifier that a record contains. `None` if the text is not a ULID.
            #[must_use]
            pub fn recorded(text: &str) -> Option<Self> {
                text.parse::<ulid::Ulid>().is_ok().then(|| Self(text.into()))
            }

            /// Returns the 26 characters.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}
ulid_id!(CallId);
ulid_id!(SessionId);

impl CallId {
    /// Returns a new identifier and the time that it contains, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn now() -> (Self, u64) {
        let ulid = ulid::Ulid::generate();
        (Self(ulid.to_string().into()), ulid.timestamp_ms())
    }

    /// Returns the time that the identifier contains: when the broker received the call, in milliseconds since the Unix
    /// epoch.
    #[must_use]
    pub fn received_at(&self) -> u64 {
        self.0.parse::<ulid::Ulid>().map_or(0, |ulid| ulid.timestamp_ms())
    }
}

impl SessionId {
    /// Reports whether somebody else holds a copy of this identifier.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}
