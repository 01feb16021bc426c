//! Why a login, or its renewal, failed.

use crate::egress::EgressError;
use crate::secret::SecretError;

/// Why a login, or its renewal, failed. No text holds a code, a token or a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OAuthError {
    /// The source is none that a person logs in to.
    #[error("{0}")]
    Source(String),
    /// A server was not reached, or may not be.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// A server answered with something that is no answer.
    #[error("`{url}` {what}")]
    Answer {
        /// Without its query.
        url: String,
        /// What it did.
        what: String,
    },
    /// What a server says of itself cannot be relied on.
    #[error("`{url}` says {what}")]
    Metadata {
        /// Where it says so.
        url: String,
        /// What is wrong with it.
        what: String,
    },
    /// The authorization server said no, by one of OAuth's codes.
    #[error("the authorization server refused: {code}{}", .why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default())]
    Refused {
        /// Such as `access_denied` or `invalid_grant`.
        code: String,
        /// In its own words.
        why: Option<String>,
    },
    /// The answer that the browser brought is not for this login.
    #[error("{0}; the login is given up: start it again")]
    Callback(String),
    /// Nobody came back from the browser.
    #[error("nobody came back from the browser within {0} s: start the login again")]
    Abandoned(u64),
    /// What is kept cannot be read or written.
    #[error(transparent)]
    Store(#[from] SecretError),
}
