//! Errors of logins and their renewals.

use crate::egress::EgressError;
use crate::secret::SecretError;

/// An error that says why a login, or its renewal, failed. No message contains a code, a token or a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OAuthError {
    /// The source does not support the login, or something on this machine prevented it.
    #[error("{0}")]
    Source(String),
    /// A server could not be reached, or may not be.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// A server's response is not valid.
    #[error("`{url}` {what}")]
    Answer {
        /// The URL without its query.
        url: String,
        /// The fault of the response, as a verb phrase.
        what: String,
    },
    /// A server's metadata cannot be relied on.
    #[error("`{url}` says {what}")]
    Metadata {
        /// The URL of the metadata.
        url: String,
        /// The fault of the metadata.
        what: String,
    },
    /// The authorization server refused with one of OAuth's error codes.
    #[error("the authorization server refused: {code}{}", .why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default())]
    Refused {
        /// The error code, such as `access_denied` or `invalid_grant`.
        code: String,
        /// The server's description of the error.
        why: Option<String>,
    },
    /// The answer that the browser brought does not belong to this login, or has no code.
    #[error("{0}; the login is given up: start it again")]
    Callback(String),
    /// No answer came from the browser in time; the value is the timeout in seconds.
    #[error("the browser did not return within {0} s: start the login again")]
    Abandoned(u64),
    /// The stored login cannot be read or written.
    #[error(transparent)]
    Store(#[from] SecretError),
}
