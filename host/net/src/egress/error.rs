//! Errors of egress: why a request was not sent, or got no response.

use std::error::Error;
use std::io;
use std::net::IpAddr;

use url::Url;

use super::address::AddressRefusal;
use super::target::shown;

/// An error that says why a request was not sent, or got no response. Each message names the host or URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EgressError {
    /// The address may not be reached.
    #[error("connecting to `{host}`{} is refused: it is {what}; {hint}", at(*.address))]
    Refused {
        /// The host as written in the URL.
        host: String,
        /// The address that the host is or resolves to.
        address: Option<IpAddr>,
        /// The kind of address, such as "a private address".
        what: &'static str,
        /// The advice to the user.
        hint: &'static str,
    },
    /// The URL can never be requested.
    #[error("`{url}` is refused: {what}")]
    Url {
        /// The URL without credentials and query.
        url: String,
        /// The reason why the URL is refused.
        what: &'static str,
    },
    /// The name cannot be resolved.
    #[error("`{host}` cannot be resolved: {cause}")]
    Dns {
        /// The name.
        host: String,
        /// The resolver's error.
        cause: String,
    },
    /// The server sent a redirect that is not followed.
    #[error("`{url}` answered with a redirect that is not followed: {what}")]
    Redirect {
        /// The URL of the server that sent the redirect.
        url: String,
        /// The reason why the redirect is not followed.
        what: String,
    },
    /// No connection was made: nothing listens there, or no answer came.
    #[error("cannot connect to `{url}`: {cause}")]
    Connect {
        /// The URL without credentials and query.
        url: String,
        /// The operating system's error.
        cause: String,
    },
    /// No TLS connection was made: the handshake failed.
    #[error(
        "no TLS connection to `{url}`: {cause} (certificates are checked against the system's store; `SSL_CERT_FILE` names another)"
    )]
    Tls {
        /// The URL without credentials and query.
        url: String,
        /// The TLS library's error.
        cause: String,
    },
    /// A connection was made, and it ended before the response.
    #[error("the connection to `{url}` broke: {cause}")]
    Broken {
        /// The URL without credentials and query.
        url: String,
        /// The HTTP library's error.
        cause: String,
    },
    /// There are no root certificates to trust.
    #[error("no certificates to trust: {0}; install the system's CA certificates or set `SSL_CERT_FILE`")]
    Certificates(String),
}

impl EgressError {
    pub(super) fn refused(host: &str, address: Option<IpAddr>, objection: AddressRefusal) -> Self {
        let AddressRefusal { what, hint } = objection;
        Self::Refused { host: host.to_owned(), address, what, hint }
    }

    /// Converts an error of the HTTP client.
    #[doc(hidden)]
    pub fn from_client(url: &Url, error: &reqwest::Error) -> Self {
        // An error of our own resolver comes back wrapped.
        if let Some(ours) = chain(error).find_map(|cause| cause.downcast_ref::<Self>()) {
            return ours.clone();
        }
        let (url, cause) = (shown(url), deepest(error));
        if !error.is_connect() {
            return Self::Broken { url, cause };
        }
        if error.is_timeout() {
            let cause = format!("no answer within {} s", super::CONNECT_TIMEOUT.as_secs());
            return Self::Connect { url, cause };
        }
        let tls = chain(error).filter_map(|cause| cause.downcast_ref::<io::Error>()).any(is_tls);
        if tls { Self::Tls { url, cause } } else { Self::Connect { url, cause } }
    }
}

/// Reports whether this is how the TLS layer wraps its own errors: as invalid data, and once more by the connector.
fn is_tls(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<io::Error>());
    error.kind() == io::ErrorKind::InvalidData || inner.is_some_and(is_tls)
}

/// Returns the text of the innermost cause, which the outer ones only wrap.
pub(super) fn deepest(error: &(dyn Error + 'static)) -> String {
    chain(error).last().map_or_else(|| error.to_string(), ToString::to_string)
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

fn at(address: Option<IpAddr>) -> String {
    address.map(|address| format!(" ({address})")).unwrap_or_default()
}
