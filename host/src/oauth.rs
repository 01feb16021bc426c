//! OAuth for sources with a `url`: a person logs in once, and the source's client then sends the token and renews it.
//!
//! [`login`](crate::login::login) finds out who issues tokens for the source (RFC 9728, RFC 8414, OpenID Connect
//! Discovery), obtains a client identity there (configured, a client ID metadata document, or newly registered), sends
//! the person to a browser (OAuth 2.1 with PKCE, RFC 8707, RFC 9207), and keeps the resulting tokens in the data
//! folder, sealed, until [`logout()`] (RFC 7009). The source's transport uses a `Bearer` to send and renew them.
//!
//! Every request goes through [`crate::egress`]. Tokens are sent to the source's own origin and to the server that
//! issued them.
//! Specification: MCP 2025-11-25 and 2026-07-28, "Authorization".

mod bearer;
pub(crate) mod callback;
mod error;
mod http;
pub(crate) mod identity;
mod logout;
pub(crate) mod metadata;
pub(crate) mod store;
pub(crate) mod token;

pub(crate) use bearer::Bearer;
pub use error::OAuthError;
pub(crate) use http::OAuthHttp;
pub use logout::{LogoutOutcome, logout};

/// Returns what a person does about a source that needs a login.
pub(crate) fn hint(source: &crate::name::SourceName) -> String {
    format!("needs login: run `portcullis login {source}`")
}

#[cfg(test)]
mod tests;
