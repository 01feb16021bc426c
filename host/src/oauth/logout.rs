//! Logout: the login is forgotten here, and its tokens are revoked at the server that issued them, if it supports that
//! (RFC 7009).

use url::Url;

use super::store::{Login, Logins};
use super::{OAuthError, OAuthHttp, token};
use crate::config::{Config, Endpoint};
use crate::egress::Reach;
use crate::name::SourceName;

/// The outcome of a logout for the tokens of the login.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogoutOutcome {
    /// The server has revoked them.
    Revoked,
    /// The server does not support revocation: the tokens stay valid until they expire.
    NotOffered,
    /// The tokens may stay valid until they expire, for this reason.
    NotRevoked(String),
}

/// Forgets the login of a source, and then asks its server to revoke the tokens. The source need not be configured any
/// more. Returns `None` if there was no login.
///
/// Dropping the future may leave the tokens valid at the server; here they are forgotten first.
///
/// # Errors
/// [`OAuthError`] if the data folder cannot be used. A server that does not revoke the tokens is not an error.
pub async fn logout(config: &Config, source: &SourceName) -> Result<Option<LogoutOutcome>, OAuthError> {
    let (logins, name) = (Logins::new(&config.data_dir), source.clone());
    let forgotten = tokio::task::spawn_blocking(move || logins.forget(&name)).await;
    // Only a panic or the shutdown of the runtime ends the task early.
    let forgotten = forgotten.map_err(|error| OAuthError::Source(error.to_string()))??;
    let Some(record) = forgotten else { return Ok(None) };
    let Some((url, login)) = record else {
        return Ok(Some(LogoutOutcome::NotRevoked("what was kept of it could not be read".to_owned())));
    };
    let Some(endpoint) = &login.revocation else { return Ok(Some(LogoutOutcome::NotOffered)) };
    let near = config
        .sources
        .get(source)
        .is_some_and(|source| matches!(source.endpoint, Endpoint::Url { dangerous_allow_private: true, .. }));
    let reach = if near { Reach::Private } else { Reach::Public };
    Ok(Some(match revoke(&url, reach, endpoint, &login).await {
        Ok(()) => LogoutOutcome::Revoked,
        Err(error) => LogoutOutcome::NotRevoked(error.to_string()),
    }))
}

/// Revokes the refresh token first, since it lasts longer: most servers revoke the access token with it.
async fn revoke(url: &str, reach: Reach, endpoint: &str, login: &Login) -> Result<(), OAuthError> {
    let url = Url::parse(url).map_err(|error| OAuthError::Source(error.to_string()))?;
    let http = OAuthHttp::new(&url, reach)?;
    let endpoint = http.url(endpoint, &login.issuer)?;
    if let Some(refresh) = &login.refresh {
        token::revoke(&http, &endpoint, &login.client, refresh, "refresh_token").await?;
    }
    token::revoke(&http, &endpoint, &login.client, &login.access, "access_token").await
}
