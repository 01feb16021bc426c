//! The end of a login: forgotten here, and taken back at the server that issued it, where that offers it (RFC 7009).

use url::Url;

use super::store::{Login, Logins};
use super::{OAuthError, Web, token};
use crate::config::{Config, Endpoint};
use crate::egress::Reach;
use crate::name::SourceName;

/// What became of the tokens of a login that was forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoggedOut {
    /// The server has taken them back.
    Revoked,
    /// The server does not offer to take them back: they stay good until they expire.
    NotOffered,
    /// They may stay good until they expire, for this reason.
    NotRevoked(String),
}

/// Forgets the login of a source, which need not be configured any more, and then has its server take the tokens back. None if
/// there was none.
///
/// Dropping the future may leave the tokens good at the server; here they are forgotten first.
///
/// # Errors
/// If the data folder cannot be used. A server that does not take tokens back is no error.
pub async fn logout(config: &Config, source: &SourceName) -> Result<Option<LoggedOut>, OAuthError> {
    let (logins, name) = (Logins::new(&config.data_dir), source.clone());
    let forgotten = tokio::task::spawn_blocking(move || logins.forget(&name)).await;
    // Only a panic or the end of the runtime ends it early.
    let forgotten = forgotten.map_err(|error| OAuthError::Source(error.to_string()))??;
    let Some(record) = forgotten else { return Ok(None) };
    let Some((url, login)) = record else {
        return Ok(Some(LoggedOut::NotRevoked("what was kept of it could not be read".to_owned())));
    };
    let Some(endpoint) = &login.revocation else { return Ok(Some(LoggedOut::NotOffered)) };
    let near = config
        .sources
        .get(source)
        .is_some_and(|source| matches!(source.endpoint, Endpoint::Url { dangerous_allow_private: true, .. }));
    let reach = if near { Reach::Private } else { Reach::Public };
    Ok(Some(match revoke(&url, reach, endpoint, &login).await {
        Ok(()) => LoggedOut::Revoked,
        Err(error) => LoggedOut::NotRevoked(error.to_string()),
    }))
}

/// The one that lasts first: most servers take the other back with it.
async fn revoke(url: &str, reach: Reach, endpoint: &str, login: &Login) -> Result<(), OAuthError> {
    let url = Url::parse(url).map_err(|error| OAuthError::Source(error.to_string()))?;
    let web = Web::new(&url, reach)?;
    let endpoint = web.url(endpoint, &login.issuer)?;
    if let Some(refresh) = &login.refresh {
        token::revoke(&web, &endpoint, &login.client, refresh, "refresh_token").await?;
    }
    token::revoke(&web, &endpoint, &login.client, &login.access, "access_token").await
}
