//! Egress: the only way to the network. Every request that the broker makes goes through this module, and so does every
//! connection of a source in a cell ([`EgressProxy`]) and of a component ([`ComponentEgress`]).
//!
//! A server's address comes from the configuration, but the addresses that a name resolves to and the targets of a
//! server's redirects do not. Therefore the URL is checked, the name is resolved once per connection, every address is
//! checked, the connection goes to one of the checked addresses, and each redirect starts over. Nothing else decides
//! where a request goes: there are no proxy variables, cookies, referrers or retries.
//!
//! TLS certificates are checked against the system's store; on Linux `SSL_CERT_FILE` and `SSL_CERT_DIR` name another,
//! as in OpenSSL.
//!
//! Invariant: no other module builds an HTTP client.

mod address;
mod challenge;
mod component;
mod dial;
mod document;
mod error;
#[cfg(feature = "false-internet")]
mod false_internet;
mod host;
mod proxy;
mod request;
mod resolver;
mod stream;
mod system_resolver;
mod target;

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::LOCATION;
use reqwest::{Method, Request, Response, StatusCode};
use tokio::sync::Semaphore;
use url::{Origin, Url};

pub use challenge::Challenge;
pub use component::ComponentEgress;
pub use component::LookedUpNames;
pub use document::read_document;
pub use error::EgressError;
#[cfg(feature = "false-internet")]
pub use false_internet::{FalseAddresses, FalseInternet, FalseInternetGuard, MessageProtocol, SentMessage};
pub use host::is_host;
pub use proxy::{
    AllowedDestinations, ClientHelloState, Destination, DestinationParseError, DnsReply, EgressProxy, ProxyListeners,
    RefusedHosts, client_hello,
};
pub use request::OutgoingRequest;
pub(crate) use resolver::NameResolver;
pub use stream::ByteStream;
pub use target::check;
pub use target::{is_private, shown};

/// The largest number of redirects that are followed: more than any legitimate server chains, and few enough to end a
/// loop at once.
const MAX_REDIRECTS: usize = 5;

/// The timeout for name resolution, TCP and TLS together. A reachable server takes well under a second from anywhere.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The most idle connections that are kept to one host. Each is a descriptor that no source's share counts.
const MAX_IDLE: usize = 4;

/// The interval of TCP keep-alive probes, so that a peer that vanished ends a stream that waits for it.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// The addresses that requests may reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Public addresses only.
    Public,
    /// Loopback, private and link-local addresses too, but never the metadata addresses of clouds.
    Private,
}

/// A factory for HTTP clients and connections. Clones share a resolver, which looks up a few names at once, and a number
/// of connections: what one party does must not hold up another, so each source has its own egress.
#[derive(Clone)]
pub struct Egress {
    lookup: Arc<dyn NameResolver>,
    /// The connections that the programs of the party may have through their proxies, in all their processes together.
    connections: Arc<Semaphore>,
}

impl Default for Egress {
    fn default() -> Self {
        Self::new()
    }
}

impl Egress {
    /// Creates an egress that uses the system's resolver, with its own places for lookups.
    pub fn new() -> Self {
        Self::with_lookup(Arc::new(system_resolver::SystemResolver::new()))
    }

    /// Creates an egress that uses another resolver, whose answers are checked in the same way.
    pub(crate) fn with_lookup(lookup: Arc<dyn NameResolver>) -> Self {
        Self { lookup, connections: Arc::new(Semaphore::new(proxy::MAX_CONNECTIONS)) }
    }

    /// Reports whether both look up names in the same places.
    #[doc(hidden)]
    #[must_use]
    pub fn shares_lookups_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.lookup, &other.lookup)
    }

    /// Returns a client with its own connections, for requests that start at `url`. It does not connect yet.
    ///
    /// # Errors
    /// If the URL itself is refused, or the system has no certificates to trust.
    pub fn client_for(&self, url: &Url, reach: Reach) -> Result<HttpClient, EgressError> {
        target::check(url, reach)?;
        Ok(HttpClient { http: self.http(reach)?, reach, private_origin: None, only_origin: None })
    }

    /// Returns a client that may reach the origin of `url` even at a private address, and otherwise public addresses
    /// only. It does not connect yet.
    ///
    /// # Errors
    /// As for [`Egress::client_for`].
    pub fn client_at(&self, url: &Url) -> Result<HttpClient, EgressError> {
        target::check(url, Reach::Private)?;
        let private_origin = Some((url.origin(), self.http(Reach::Private)?));
        Ok(HttpClient { http: self.http(Reach::Public)?, reach: Reach::Public, private_origin, only_origin: None })
    }

    /// Returns a client that may reach the origin of `url`, even at a private address, and nothing else. It does not
    /// connect yet.
    ///
    /// # Errors
    /// As for [`Egress::client_for`].
    pub fn client_only_at(&self, url: &Url) -> Result<HttpClient, EgressError> {
        Ok(HttpClient { only_origin: Some(url.origin()), ..self.client_for(url, Reach::Private)? })
    }

    fn http(&self, reach: Reach) -> Result<reqwest::Client, EgressError> {
        let http = reqwest::Client::builder()
            .dns_resolver(Arc::new(resolver::GuardedResolver { lookup: Arc::clone(&self.lookup), reach }))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .referer(false)
            .tls_version_min(reqwest::tls::Version::TLS_1_2)
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(KEEPALIVE)
            .tcp_nodelay(true)
            .pool_max_idle_per_host(MAX_IDLE)
            .user_agent(concat!("portcullis/", env!("CARGO_PKG_VERSION")))
            .build();
        http.map_err(|error| EgressError::Certificates(error::deepest(&error)))
    }
}

/// An HTTP client with a certain reach. Cheap to clone; clones share connections.
#[derive(Clone, Debug)]
pub struct HttpClient {
    http: reqwest::Client,
    reach: Reach,
    /// The origin that may have a private address, and the client for it.
    private_origin: Option<(Origin, reqwest::Client)>,
    /// The only origin that may be reached, if there is one.
    only_origin: Option<Origin>,
}

impl HttpClient {
    /// Sends a request and waits for the head of the response, following redirects. Dropping the future closes the
    /// connection (HTTP/1) or resets the stream (HTTP/2).
    ///
    /// # Errors
    /// [`EgressError`]. Whether the body was sent is reported by [`OutgoingRequest::on_body`], not by the error.
    pub async fn send(&self, mut request: OutgoingRequest) -> Result<Response, EgressError> {
        for _ in 0..=MAX_REDIRECTS {
            let response = self.hop(&mut request).await?;
            match redirect(&request, &response)? {
                None => return Ok(response),
                Some(url) if self.only_origin.as_ref().is_some_and(|only| *only != url.origin()) => {
                    let what = format!("it leads to `{}`, and only the named address may be reached", shown(&url));
                    return Err(EgressError::Redirect { url: shown(&request.url), what });
                }
                Some(url) => request.go_to(url),
            }
        }
        Err(EgressError::Redirect {
            url: shown(&request.url),
            what: format!("more than {MAX_REDIRECTS} redirects; configure the address where they end"),
        })
    }
}

impl HttpClient {
    /// Sends a request whose body is meant only for its address, such as a code or a token. It follows no redirect.
    ///
    /// # Errors
    /// [`EgressError`]; [`EgressError::Redirect`] for any redirect.
    pub async fn send_without_redirects(&self, mut request: OutgoingRequest) -> Result<Response, EgressError> {
        let response = self.hop(&mut request).await?;
        match redirect(&request, &response)? {
            None => Ok(response),
            Some(to) => Err(EgressError::Redirect {
                url: shown(&request.url),
                what: format!("the body of this request must not be sent to `{}`", shown(&to)),
            }),
        }
    }
}

impl HttpClient {
    /// Sends a request to its current URL.
    async fn hop(&self, request: &mut OutgoingRequest) -> Result<Response, EgressError> {
        let (http, reach) = match &self.private_origin {
            Some((origin, http)) if *origin == request.url.origin() => (http, Reach::Private),
            _ => (&self.http, self.reach),
        };
        target::check(&request.url, reach)?;
        http.execute(request.hop()).await.map_err(|error| EgressError::from_client(&request.url, &error))
    }

    /// Sends a request and returns even a redirect as the response; the caller decides whether to follow it.
    ///
    /// # Errors
    /// [`EgressError`].
    async fn one_hop(&self, request: Request) -> Result<Response, EgressError> {
        let url = request.url().clone();
        target::check(&url, self.reach)?;
        self.http.execute(request).await.map_err(|error| EgressError::from_client(&url, &error))
    }
}

/// Returns the URL to which the response redirects the request, if it does.
fn redirect(request: &OutgoingRequest, response: &Response) -> Result<Option<Url>, EgressError> {
    let keeps_method = match response.status() {
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => false,
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
        _ => return Ok(None),
    };
    let Some(location) = response.headers().get(LOCATION) else { return Ok(None) };
    let refuse = |what: String| Err(EgressError::Redirect { url: shown(&request.url), what });
    let Some(next) = location.to_str().ok().and_then(|location| request.url.join(location).ok()) else {
        return refuse("a redirect to something that is not a URL".to_owned());
    };
    if request.url.scheme() == "https" && next.scheme() != "https" {
        return refuse(format!("a redirect from https to `{}`", shown(&next)));
    }
    if !keeps_method && !matches!(request.method, Method::GET | Method::HEAD) {
        // Browsers turn such a POST into a GET without its body, which is a different request.
        let (status, method) = (response.status().as_u16(), &request.method);
        return refuse(format!("status {status} for a {method}, to `{}`; configure that address", shown(&next)));
    }
    Ok(Some(next))
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
