//! The one way out: every request that the broker makes over the network goes through here, and so does every connection
//! of a caged source ([`EgressProxy`]) and of a component ([`ComponentEgress`]).
//!
//! A server's address comes from configuration, but what a name resolves to and where a server redirects does not. So:
//! the URL is checked, the name is looked up once per connection, every address is checked, the connection goes to those
//! very addresses, and each redirect starts over. Nothing else decides where a request goes: no proxy variables, no
//! cookies, no referrer, no retries.
//!
//! Trust in TLS certificates is the system's; on Linux `SSL_CERT_FILE` and `SSL_CERT_DIR` name another store, as in OpenSSL.
//!
//! Invariant: no other module builds an HTTP client.

mod address;
mod challenge;
mod component;
mod dial;
mod error;
mod host;
mod proxy;
mod request;
mod resolver;
mod target;

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::LOCATION;
use reqwest::{Method, Request, Response, StatusCode};
use url::{Origin, Url};

pub(crate) use challenge::Challenge;
pub use component::ComponentEgress;
pub(crate) use component::Found;
pub use error::EgressError;
pub(crate) use host::is_host;
pub use proxy::{Declared, Destination, EgressProxy, Hello, Listeners, NoDestination, Reply, client_hello};
pub(crate) use request::Outgoing;
pub(crate) use resolver::Lookup;
pub use target::check;
pub(crate) use target::shown;

/// Redirects that are followed: more than any honest server chains, few enough to end a loop at once.
const MAX_REDIRECTS: usize = 5;

/// Name, TCP and TLS together. A reachable server takes well under a second from anywhere.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a silent connection is probed, so that a peer that vanished ends a stream that waits for it.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// How far requests may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Public addresses.
    Public,
    /// Loopback, private and link-local ones too; never the cloud's metadata addresses.
    Private,
}

/// Makes clients. A fresh one reaches public addresses only.
#[derive(Clone)]
pub(crate) struct Egress {
    lookup: Arc<dyn Lookup>,
}

impl Egress {
    /// Egress by way of the system's resolver.
    pub(crate) fn new() -> Self {
        Self::with_lookup(Arc::new(resolver::System))
    }

    /// Egress by way of another resolver, whose answers are checked all the same.
    pub(crate) fn with_lookup(lookup: Arc<dyn Lookup>) -> Self {
        Self { lookup }
    }

    /// A client with connections of its own, for requests that start at `url`. Connects to nothing.
    ///
    /// # Errors
    /// If the URL itself is refused, or the system has no certificates to trust.
    pub(crate) fn client_for(&self, url: &Url, reach: Reach) -> Result<HttpClient, EgressError> {
        target::check(url, reach)?;
        Ok(HttpClient { http: self.http(reach)?, reach, home: None })
    }

    /// A client for the origin of `url`, which may be near, and for public addresses that it leads to. Connects to nothing.
    ///
    /// # Errors
    /// As for [`Egress::client_for`].
    pub(crate) fn client_at(&self, url: &Url) -> Result<HttpClient, EgressError> {
        target::check(url, Reach::Private)?;
        let home = Some((url.origin(), self.http(Reach::Private)?));
        Ok(HttpClient { http: self.http(Reach::Public)?, reach: Reach::Public, home })
    }

    fn http(&self, reach: Reach) -> Result<reqwest::Client, EgressError> {
        let http = reqwest::Client::builder()
            .dns_resolver(Arc::new(resolver::Guard { lookup: Arc::clone(&self.lookup), reach }))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .referer(false)
            .tls_version_min(reqwest::tls::Version::TLS_1_2)
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(KEEPALIVE)
            .tcp_nodelay(true)
            .user_agent(concat!("portcullis/", env!("CARGO_PKG_VERSION")))
            .build();
        http.map_err(|error| EgressError::Certificates(error::deepest(&error)))
    }
}

/// A way out of a certain reach. Cheap to clone; clones share connections.
#[derive(Clone, Debug)]
pub(crate) struct HttpClient {
    http: reqwest::Client,
    reach: Reach,
    /// An origin that may be near, and the way there.
    home: Option<(Origin, reqwest::Client)>,
}

impl HttpClient {
    /// Sends a request and waits for the head of the response, following redirects. Dropping the future closes the
    /// connection (HTTP/1) or resets the stream (HTTP/2).
    ///
    /// # Errors
    /// [`EgressError`]. Whether the body left is known by [`Outgoing::on_body`], not by the error.
    pub(crate) async fn send(&self, mut request: Outgoing) -> Result<Response, EgressError> {
        for _ in 0..=MAX_REDIRECTS {
            let response = self.hop(&mut request).await?;
            match redirect(&request, &response)? {
                None => return Ok(response),
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
    /// Sends a request whose body is for its address alone, such as a code or a token: no redirect is followed.
    ///
    /// # Errors
    /// [`EgressError`]; [`EgressError::Redirect`] for each redirect.
    pub(crate) async fn send_here(&self, mut request: Outgoing) -> Result<Response, EgressError> {
        let response = self.hop(&mut request).await?;
        match redirect(&request, &response)? {
            None => Ok(response),
            Some(to) => Err(EgressError::Redirect {
                url: shown(&request.url),
                what: format!("what this request carries is not for `{}`", shown(&to)),
            }),
        }
    }
}

impl HttpClient {
    /// Sends a request to where it points now.
    async fn hop(&self, request: &mut Outgoing) -> Result<Response, EgressError> {
        let (http, reach) = match &self.home {
            Some((origin, http)) if *origin == request.url.origin() => (http, Reach::Private),
            _ => (&self.http, self.reach),
        };
        target::check(&request.url, reach)?;
        http.execute(request.hop()).await.map_err(|error| EgressError::from_client(&request.url, &error))
    }

    /// Sends a request whose redirects are somebody else's business.
    ///
    /// # Errors
    /// [`EgressError`].
    async fn one_hop(&self, request: Request) -> Result<Response, EgressError> {
        let url = request.url().clone();
        target::check(&url, self.reach)?;
        self.http.execute(request).await.map_err(|error| EgressError::from_client(&url, &error))
    }
}

/// Where the response sends the request, if anywhere.
fn redirect(request: &Outgoing, response: &Response) -> Result<Option<Url>, EgressError> {
    let keeps_method = match response.status() {
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => false,
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
        _ => return Ok(None),
    };
    let Some(location) = response.headers().get(LOCATION) else { return Ok(None) };
    let refuse = |what: String| Err(EgressError::Redirect { url: shown(&request.url), what });
    let Some(next) = location.to_str().ok().and_then(|location| request.url.join(location).ok()) else {
        return refuse("a redirect to something that is no URL".to_owned());
    };
    if request.url.scheme() == "https" && next.scheme() != "https" {
        return refuse(format!("a redirect from https to `{}`", shown(&next)));
    }
    if !keeps_method && !matches!(request.method, Method::GET | Method::HEAD) {
        // Browsers turn such a POST into a GET without its body, which asks for something else.
        let (status, method) = (response.status().as_u16(), &request.method);
        return refuse(format!("status {status} for a {method}, to `{}`; configure that address", shown(&next)));
    }
    Ok(Some(next))
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
