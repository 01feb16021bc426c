//! Sources that speak streamable HTTP, of both eras, or the HTTP+SSE transport of 2024-11-05.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

use super::mcp_connection::{HandshakeDeadlines, McpConnection, McpConnectionConfig};
use super::supervised::{Connector, SupervisedSource, SupervisionConfig};
use super::{Discovery, GivenValues, SourceError};
use crate::call::Cause;
use crate::config::{Endpoint, HttpTransportKind, OWN_HEADERS, SourceConfig};
#[cfg(feature = "oauth")]
use crate::egress::Challenge;
use crate::egress::{Egress, EgressError, Reach, shown};
use crate::ledger::EventCallback;
use crate::name::SourceName;
use crate::oauth::Bearer;
pub use connection::HttpConnection;
use legacy_sse::LegacySse;
use transport::{HttpTransport, ServerAccess, TransportShared};

mod connection;
mod exchange;
mod headers;
mod legacy_sse;
mod sse;
mod status;
mod transport;

/// A source with a `url`.
pub(crate) type HttpSource = SupervisedSource<RemoteServer>;

/// The server of a source, and how it is reached.
pub(crate) struct RemoteServer {
    /// The way to reach it, with the headers as of the time when the source was described.
    access: ServerAccess,
    /// The listed headers.
    given: GivenValues,
    transport_kind: HttpTransportKind,
    /// The largest message, in bytes.
    limit: usize,
    /// True once the server has turned out to use the transport of 2024-11-05.
    speaks_sse: AtomicBool,
}

impl HttpSource {
    /// Describes the source; opens nothing. `given` are the listed headers; they are sent only to the origin of the
    /// configured URL. If there is no `Authorization` among them, the login that is kept in `data_dir` is sent.
    /// `record` records the source's events in the ledger.
    ///
    /// # Errors
    /// [`SourceError::Start`] if the configuration has no `url`, the address may not be reached, a header is invalid,
    /// lacks its secret or is reserved for the broker, or the system has no certificates to trust.
    pub(crate) fn new(
        config: &SourceConfig,
        given: GivenValues,
        data_dir: &Path,
        record: EventCallback,
    ) -> Result<Self, SourceError> {
        let Endpoint::Url { url, dangerous_allow_private, transport_kind, .. } = &config.endpoint else {
            return Err(SourceError::Start(Cause::own(format!("source `{}` has no `url`", config.name))));
        };
        let reach = if *dangerous_allow_private { Reach::Private } else { Reach::Public };
        let client = Egress::new().client_for(url, reach).map_err(|error| SourceError::Start(Cause::of(error)))?;
        let headers = headers_of(&config.name, &given)?;
        let bearer = match headers.contains_key(AUTHORIZATION) {
            true => None,
            false => {
                let kept = Bearer::kept(&config.name, url, reach, data_dir);
                kept.map_err(|error| SourceError::Start(Cause::of(error)))?
            }
        };
        let access = ServerAccess { source: config.name.clone(), url: url.clone(), client, headers, bearer };
        let (transport_kind, limit) = (*transport_kind, config.max_message);
        let server = RemoteServer { access, given, transport_kind, limit, speaks_sse: AtomicBool::new(false) };
        Ok(Self::of(SupervisionConfig::of(config, record), server))
    }

    /// Returns the last challenge of the source that no login could meet.
    #[cfg(feature = "oauth")]
    pub(crate) fn challenge(&self) -> Option<Challenge> {
        self.connector().access.bearer.as_ref().and_then(|bearer| bearer.challenge())
    }
}

#[async_trait]
impl Connector for RemoteServer {
    async fn connect(
        &self,
        deadlines: HandshakeDeadlines,
        config: McpConnectionConfig,
    ) -> Result<(McpConnection, Discovery), SourceError> {
        let explained = |error| self.explain(error);
        let access = ServerAccess { headers: headers_of(&self.access.source, &self.given)?, ..self.access.clone() };
        if self.transport_kind == HttpTransportKind::Sse || self.speaks_sse.load(Ordering::Relaxed) {
            return self.connect_sse(access, deadlines, config).await.map_err(explained);
        }
        let transport = Arc::new(HttpTransport::new(access.clone(), self.limit));
        let refused = match McpConnection::open(transport, deadlines.clone(), config.clone()).await {
            Err(SourceError::Protocol(why)) if self.transport_kind == HttpTransportKind::Detect => why,
            opened => return opened.map_err(explained),
        };
        // A server that refuses a POST may be one of 2024-11-05.
        match self.connect_sse(access, deadlines, config).await {
            Ok(opened) => {
                self.speaks_sse.store(true, Ordering::Relaxed);
                Ok(opened)
            }
            Err(_) => Err(explained(SourceError::Protocol(refused))),
        }
    }

    fn has_account(&self) -> bool {
        self.access.headers.contains_key(AUTHORIZATION)
            || self.access.bearer.as_ref().is_some_and(|bearer| bearer.has_login())
    }

    async fn finish_pending_work(&self) {
        if let Some(bearer) = &self.access.bearer {
            bearer.finish_renewal().await;
        }
    }
}

impl RemoteServer {
    async fn connect_sse(
        &self,
        access: ServerAccess,
        deadlines: HandshakeDeadlines,
        config: McpConnectionConfig,
    ) -> Result<(McpConnection, Discovery), SourceError> {
        let (shared, inbox) = TransportShared::new(access, self.limit);
        let transport = Arc::new(LegacySse::open(shared, inbox).await?);
        McpConnection::open(transport, HandshakeDeadlines { probe: None, ..deadlines }, config).await
    }

    fn explain(&self, error: SourceError) -> SourceError {
        let shown = shown(&self.access.url);
        match error {
            SourceError::Timeout { method, seconds } => SourceError::Start(Cause::own(format!(
                "`{shown}` did not answer `{method}` within {seconds} s; is it an MCP endpoint?"
            ))),
            SourceError::Protocol(why) => SourceError::Protocol(why.under(format!("`{shown}`: "))),
            error => error,
        }
    }
}

impl std::fmt::Debug for RemoteServer {
    // Headers and the URL's query hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ServerAccess { source, url, .. } = &self.access;
        f.debug_struct("RemoteServer").field("name", source).field("url", &shown(url)).finish_non_exhaustive()
    }
}

/// Returns the headers that a source is given, with the secrets that are set now.
fn headers_of(source: &SourceName, given: &GivenValues) -> Result<HeaderMap, SourceError> {
    secret_headers(source, &given.read().map_err(|error| SourceError::Start(Cause::of(error)))?)
}

fn secret_headers(source: &SourceName, listed: &[(String, SecretString)]) -> Result<HeaderMap, SourceError> {
    let mut headers = HeaderMap::new();
    for (name, value) in listed {
        let refuse = |why: &str| SourceError::Start(Cause::own(format!("header `{name}` of source `{source}` {why}")));
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refuse("is not a valid header name"))?;
        if OWN_HEADERS.contains(&key.as_str()) {
            return Err(refuse("is set by the broker; leave it out"));
        }
        let value = HeaderValue::from_str(value.expose_secret());
        let mut value =
            value.map_err(|_| refuse("has a value that is not allowed in a header (a line break at its end?)"))?;
        value.set_sensitive(true);
        headers.append(key, value);
    }
    Ok(headers)
}

/// Returns the cause of a request that got no answer, as the egress gives it. The target of a redirect is chosen by the
/// server.
fn egress_cause(error: EgressError) -> Cause {
    match error {
        EgressError::Redirect { url, what } => {
            Cause::own(format!("`{url}` answered with a redirect that is not followed")).said(": ", what, "")
        }
        error => Cause::of(error),
    }
}

#[cfg(test)]
mod tests;
