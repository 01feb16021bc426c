//! Requests to servers that the user did not configure: each has a deadline, and each response a size limit.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use serde::de::DeserializeOwned;
use url::Url;

use super::OAuthError;
use crate::egress::{self, Egress, EgressError, HttpClient, OutgoingRequest, Reach, shown};

/// The longest time that a server may take for a complete response. A login keeps a person waiting; a renewal keeps
/// calls waiting.
const DEADLINE: Duration = Duration::from_secs(20);

/// The largest response that is read, in bytes; the key set of a large provider has 20 KiB.
const MAX_BODY_BYTES: usize = 256 * 1024;

/// An HTTP client for the servers that a source names. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct OAuthHttp {
    client: HttpClient,
    /// True if servers may be reached without TLS.
    plain: bool,
    reach: Reach,
}

impl OAuthHttp {
    /// Creates the client for servers that `start` names, with the same reach. They may do without TLS only if `start`
    /// does.
    ///
    /// # Errors
    /// [`EgressError`] if the URL may not be reached, or the system has no certificates to trust.
    pub(crate) fn new(start: &Url, reach: Reach) -> Result<Self, EgressError> {
        Ok(Self { client: Egress::new().client_for(start, reach)?, plain: start.scheme() == "http", reach })
    }

    /// Parses a URL that a server named, and checks that it may be requested, by the broker or by a browser.
    ///
    /// # Errors
    /// [`OAuthError::Metadata`], which names `said_by` as the server that gave the URL.
    pub(crate) fn url(&self, text: &str, said_by: &str) -> Result<Url, OAuthError> {
        let refuse = |why: &str| {
            let text: String = text.chars().take(200).collect();
            let what = format!("`{}`, which {why}", crate::escape::escape_hidden(&text));
            OAuthError::Metadata { url: said_by.to_owned(), what }
        };
        let url = Url::parse(text).map_err(|_| refuse("is no URL"))?;
        match url.scheme() {
            "https" => {}
            "http" if self.plain => {}
            "http" => return Err(refuse("has no TLS, unlike the source")),
            _ => return Err(refuse("is neither http nor https")),
        }
        // What is shown of it has no password.
        let refuse = |error: EgressError| {
            let what = format!("`{}`, which must not be used: {error}", shown(&url));
            OAuthError::Metadata { url: said_by.to_owned(), what }
        };
        egress::check(&url, self.reach).map_err(refuse)?;
        Ok(url)
    }

    /// Requests a JSON document. Returns `None` if there is none (status 4xx).
    ///
    /// # Errors
    /// [`OAuthError`] if the server cannot be reached, is too slow, sends too much, sends invalid JSON, or answers with
    /// another status.
    pub(crate) async fn get<T: DeserializeOwned>(&self, url: &Url) -> Result<Option<T>, OAuthError> {
        let request = self.outgoing(Method::GET, url);
        with_deadline(url, async {
            let response = self.client.send(request).await?;
            match response.status() {
                status if status.is_client_error() => Ok(None),
                StatusCode::OK => parse(url, &body(url, response).await?).map(Some),
                status => Err(answered(url, format!("answered with status {}", status.as_u16()))),
            }
        })
        .await
    }

    /// Posts a body that is meant only for this address, and returns the status and the response body.
    ///
    /// # Errors
    /// [`OAuthError`] if the server cannot be reached, redirects, is too slow, or sends too much.
    pub(crate) async fn post(
        &self,
        url: &Url,
        content_type: &'static str,
        text: String,
        authorization: Option<HeaderValue>,
    ) -> Result<(StatusCode, Bytes), OAuthError> {
        let mut request = self.outgoing(Method::POST, url);
        request.headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        request.secrets.extend(authorization.map(|value| (AUTHORIZATION, value)));
        request.body = Some(text.into());
        with_deadline(url, async {
            let response = self.client.send_without_redirects(request).await?;
            Ok((response.status(), body(url, response).await?))
        })
        .await
    }

    fn outgoing(&self, method: Method, url: &Url) -> OutgoingRequest {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        OutgoingRequest { method, url: url.clone(), headers, secrets: HeaderMap::new(), body: None, on_body: None }
    }
}

async fn with_deadline<T>(url: &Url, work: impl Future<Output = Result<T, OAuthError>>) -> Result<T, OAuthError> {
    let late = || answered(url, format!("gave no complete answer within {} s", DEADLINE.as_secs()));
    tokio::time::timeout(DEADLINE, work).await.unwrap_or_else(|_| Err(late()))
}

async fn body(url: &Url, mut response: Response) -> Result<Bytes, OAuthError> {
    let mut text = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| EgressError::from_client(url, &error))? {
        text.extend_from_slice(&chunk);
        if text.len() > MAX_BODY_BYTES {
            return Err(answered(url, format!("answered with more than {MAX_BODY_BYTES} bytes")));
        }
    }
    Ok(text.into())
}

/// Parses a response. The error does not repeat the response, which may contain a token.
pub(crate) fn parse<T: DeserializeOwned>(url: &Url, text: &[u8]) -> Result<T, OAuthError> {
    serde_json::from_slice(text).map_err(|_| answered(url, "answered with something that is not what was asked for"))
}

pub(crate) fn answered(url: &Url, what: impl Into<String>) -> OAuthError {
    OAuthError::Answer { url: shown(url), what: what.into() }
}
