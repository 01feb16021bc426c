//! Sources that speak streamable HTTP, of both eras.

use std::sync::Arc;

use async_trait::async_trait;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::link::{Deadlines, Link};
use super::supervised::{Dial, Supervised};
use super::{Discovery, Relay, Source, SourceError};
use crate::call::Outcome;
use crate::config::{Endpoint, SourceConfig};
use crate::egress::{Client, Egress, Reach, shown};
use crate::gate::Permit;
use crate::name::SourceName;
use transport::HttpTransport;

mod exchange;
mod headers;
mod sse;
mod status;
mod transport;

/// Headers that the broker or the HTTP library sets: a second opinion would break the protocol or the framing.
const RESERVED: &[&str] = &[
    "accept",
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A source with a `url`. Nothing is connected to before the first [`Source::discover`] or [`Source::call`]; after the
/// session has ended the next of them opens another.
pub struct HttpSource {
    supervised: Supervised<Server>,
}

/// The server, and the way to it.
struct Server {
    name: SourceName,
    url: Url,
    client: Client,
    headers: HeaderMap,
}

impl HttpSource {
    /// Describes the source; opens nothing. `headers` are the listed ones with secrets resolved; they go to the origin of
    /// the configured URL and nowhere else.
    ///
    /// # Errors
    /// [`SourceError::Start`] if the configuration has no `url`, the address may not be reached, a header is no header or
    /// is the broker's to set, or the system has no certificates to trust.
    pub fn new(config: &SourceConfig, headers: Vec<(String, SecretString)>) -> Result<Self, SourceError> {
        let Endpoint::Url { url, dangerous_allow_private, .. } = &config.endpoint else {
            return Err(SourceError::Start(format!("source `{}` has no `url`", config.name)));
        };
        let reach = if *dangerous_allow_private { Reach::Private } else { Reach::Public };
        let client = Egress::new().client_for(url, reach).map_err(|error| SourceError::Start(error.to_string()))?;
        let headers = secret_headers(&config.name, &headers)?;
        let server = Server { name: config.name.clone(), url: url.clone(), client, headers };
        Ok(Self { supervised: Supervised::new(server, config.timeout) })
    }
}

#[async_trait]
impl Source for HttpSource {
    async fn discover(&self) -> Result<Discovery, SourceError> {
        self.supervised.discover().await
    }

    async fn call(&self, permit: Permit, relay: Option<Relay>) -> Outcome {
        self.supervised.call(permit, relay).await
    }

    async fn close(&self) {
        self.supervised.close().await;
    }
}

#[async_trait]
impl Dial for Server {
    async fn dial(&self, deadlines: Deadlines) -> Result<(Link, Discovery), SourceError> {
        let (name, url, client) = (self.name.clone(), self.url.clone(), self.client.clone());
        let transport = Arc::new(HttpTransport::new(name, url, client, self.headers.clone()));
        let shown = shown(&self.url);
        Link::open(transport, deadlines).await.map_err(|error| match error {
            SourceError::Timeout { method, seconds } => SourceError::Start(format!(
                "`{shown}` did not answer `{method}` within {seconds} s; is it an MCP endpoint?"
            )),
            SourceError::Protocol(why) => SourceError::Protocol(format!("`{shown}`: {why}")),
            error => error,
        })
    }
}

impl std::fmt::Debug for HttpSource {
    // Headers and the URL's query hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Server { name, url, .. } = &self.supervised.dial;
        f.debug_struct("HttpSource").field("name", name).field("url", &shown(url)).finish_non_exhaustive()
    }
}

fn secret_headers(source: &SourceName, listed: &[(String, SecretString)]) -> Result<HeaderMap, SourceError> {
    let mut headers = HeaderMap::new();
    for (name, value) in listed {
        let refuse = |why: &str| SourceError::Start(format!("header `{name}` of source `{source}` {why}"));
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refuse("is no valid header name"))?;
        if RESERVED.contains(&key.as_str()) {
            return Err(refuse("is set by the broker; leave it out"));
        }
        let value = HeaderValue::from_str(value.expose_secret());
        let mut value =
            value.map_err(|_| refuse("has a value that cannot stand in a header (a line break at its end?)"))?;
        value.set_sensitive(true);
        headers.append(key, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests;
