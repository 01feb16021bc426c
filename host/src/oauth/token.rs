//! The token endpoint (OAuth 2.1, section 3.2).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use reqwest::StatusCode;
use reqwest::header::HeaderValue;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use url::Url;
use url::form_urlencoded::{Serializer, byte_serialize};

use super::http::{answered, parse};
use super::identity::{OAuthIdentity, TokenEndpointAuth};
use super::{OAuthError, OAuthHttp};
use crate::escape::escape_hidden;

/// The longest token that is accepted, in bytes: it travels in a header, and servers accept heads of 8 to 16 KiB.
const MAX_TOKEN_BYTES: usize = 12 * 1024;

/// The largest part of a server's own text that is repeated, in characters.
const MAX_WORDS: usize = 200;

/// The tokens from a token endpoint.
#[derive(Debug)]
pub(crate) struct TokenSet {
    pub(crate) access: SecretString,
    pub(crate) refresh: Option<SecretString>,
    /// The time at which the access token expires, in seconds since the Unix epoch; `None` if the server does not say.
    pub(crate) expires_at: Option<i64>,
    /// The granted scopes, if the server lists them; it must if they differ from those that were requested.
    pub(crate) scopes: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct RawTokens {
    access_token: SecretString,
    token_type: String,
    expires_in: Option<serde_json::Value>,
    refresh_token: Option<SecretString>,
    scope: Option<String>,
}

/// Requests tokens with the parameters in `form`.
///
/// # Errors
/// [`OAuthError::Refused`] with OAuth's error code; others if the server cannot be reached or its response is not
/// valid.
pub(crate) async fn ask(
    http: &OAuthHttp,
    endpoint: &Url,
    client: &OAuthIdentity,
    form: &[(&str, &str)],
) -> Result<TokenSet, OAuthError> {
    let text = send(http, endpoint, client, form).await?;
    let raw: RawTokens = parse(endpoint, &text)?;
    if !raw.token_type.eq_ignore_ascii_case("bearer") {
        return Err(answered(endpoint, "gave a token of a kind that is not `Bearer`"));
    }
    let fits = |token: &SecretString| {
        let token = token.expose_secret();
        (1..=MAX_TOKEN_BYTES).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic())
    };
    if !fits(&raw.access_token) {
        return Err(answered(
            endpoint,
            "gave a token that cannot be sent: it is empty, too long, or not visible ASCII",
        ));
    }
    Ok(TokenSet {
        access: raw.access_token,
        refresh: raw.refresh_token.filter(fits),
        expires_at: raw
            .expires_in
            .as_ref()
            .and_then(seconds)
            .map(|left| Timestamp::now().as_second().saturating_add(left)),
        scopes: raw.scope.map(|scope| scope.split_ascii_whitespace().map(str::to_owned).collect()),
    })
}

/// Asks a server to revoke a token (RFC 7009). Success does not mean that the token was still valid.
///
/// # Errors
/// As for [`ask`].
pub(crate) async fn revoke(
    http: &OAuthHttp,
    endpoint: &Url,
    client: &OAuthIdentity,
    token: &SecretString,
    kind: &str,
) -> Result<(), OAuthError> {
    let form = [("token", token.expose_secret()), ("token_type_hint", kind)];
    send(http, endpoint, client, &form).await.map(drop)
}

/// Posts a form as this client, and returns the body of a successful response.
async fn send(
    http: &OAuthHttp,
    endpoint: &Url,
    client: &OAuthIdentity,
    form: &[(&str, &str)],
) -> Result<Bytes, OAuthError> {
    let secret = client.secret.as_ref().map(|secret| secret.expose_secret());
    let id = ("client_id", client.id.as_str());
    let (authorization, proof) = match (client.method, secret) {
        (TokenEndpointAuth::Basic, Some(secret)) => (Some(basic(endpoint, &client.id, secret)?), vec![]),
        (TokenEndpointAuth::Post, Some(secret)) => (None, vec![id, ("client_secret", secret)]),
        _ => (None, vec![id]),
    };
    let body = Serializer::new(String::new()).extend_pairs(form).extend_pairs(proof).finish();
    let (status, text) = http.post(endpoint, "application/x-www-form-urlencoded", body, authorization).await?;
    if status != StatusCode::OK {
        let sent: Vec<&str> = form.iter().map(|(_, value)| *value).chain(secret).collect();
        return Err(refused(endpoint, status, &text, &sent));
    }
    Ok(text)
}

/// Parses a number of seconds, which some servers write as text.
fn seconds(value: &serde_json::Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).filter(|seconds| *seconds >= 0)
}

/// Returns the header of basic authentication. Both values are form-encoded first (RFC 6749, section 2.3.1).
fn basic(endpoint: &Url, id: &str, secret: &str) -> Result<HeaderValue, OAuthError> {
    let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    let pair = STANDARD.encode(format!("{}:{}", encoded(id), encoded(secret)));
    let mut value = HeaderValue::from_str(&format!("Basic {pair}"))
        .map_err(|_| answered(endpoint, "cannot be given these client credentials"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the error that an endpoint sent (OAuth 2.1, section 3.2.4), without any text that repeats a value of `sent`.
pub(crate) fn refused(endpoint: &Url, status: StatusCode, text: &[u8], sent: &[&str]) -> OAuthError {
    #[derive(Deserialize)]
    struct TokenResponse {
        error: String,
        error_description: Option<String>,
    }
    let secret = |words: &str| sent.iter().any(|sent| sent.len() >= 8 && words.contains(sent));
    let cut = |words: String| escape_hidden(&words).chars().take(MAX_WORDS).collect::<String>();
    match serde_json::from_slice::<TokenResponse>(text) {
        Ok(response) if !secret(&response.error) => OAuthError::Refused {
            code: cut(response.error),
            why: response.error_description.filter(|words| !secret(words)).map(cut),
        },
        _ => answered(endpoint, format!("answered with status {}", status.as_u16())),
    }
}
