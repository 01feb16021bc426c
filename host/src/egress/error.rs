//! Why a request did not go out, or got no answer.

use std::error::Error;
use std::io;
use std::net::IpAddr;

use url::Url;

use super::address::Objection;
use super::target::shown;

/// Why a request did not go out, or got no answer. Each text names the host or URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EgressError {
    /// The address is one that may not be reached.
    #[error("connecting to `{host}`{} is refused: it is {what}; {way_out}", at(*.address))]
    Refused {
        /// As it stands in the URL.
        host: String,
        /// What it means or resolves to.
        address: Option<IpAddr>,
        /// What is wrong with that.
        what: &'static str,
        /// What to do about it.
        way_out: &'static str,
    },
    /// The URL is one that is never asked for.
    #[error("`{url}` is refused: {what}")]
    Url {
        /// Without credentials and query.
        url: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The name has no address.
    #[error("`{host}` cannot be resolved: {cause}")]
    Dns {
        /// The name.
        host: String,
        /// The resolver's words.
        cause: String,
    },
    /// The redirect is not followed.
    #[error("`{url}` answered with a redirect that is not followed: {what}")]
    Redirect {
        /// Who redirects.
        url: String,
        /// Why not.
        what: String,
    },
    /// There is no connection: nobody listens, or nothing comes back.
    #[error("cannot connect to `{url}`: {cause}")]
    Connect {
        /// Without credentials and query.
        url: String,
        /// The system's words.
        cause: String,
    },
    /// There is no connection: the handshake failed.
    #[error(
        "no TLS connection to `{url}`: {cause} (certificates are checked against the system's store; `SSL_CERT_FILE` names another)"
    )]
    Tls {
        /// Without credentials and query.
        url: String,
        /// The TLS library's words.
        cause: String,
    },
    /// There was a connection, and it ended before the answer.
    #[error("the connection to `{url}` broke: {cause}")]
    Broken {
        /// Without credentials and query.
        url: String,
        /// The HTTP library's words.
        cause: String,
    },
    /// TLS has no roots to trust.
    #[error("no certificates to trust: {0}; install the system's CA certificates or set `SSL_CERT_FILE`")]
    Certificates(String),
}

impl EgressError {
    pub(super) fn refused(host: &str, address: Option<IpAddr>, objection: Objection) -> Self {
        let Objection { what, way_out } = objection;
        Self::Refused { host: host.to_owned(), address, what, way_out }
    }

    /// What the HTTP client's error means.
    pub(crate) fn from_client(url: &Url, error: &reqwest::Error) -> Self {
        // Ours, from within the resolver, comes back wrapped.
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

/// Whether it is how the TLS layer wraps its own errors: as invalid data, and the connector once more around that.
fn is_tls(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<io::Error>());
    error.kind() == io::ErrorKind::InvalidData || inner.is_some_and(is_tls)
}

/// The innermost cause, which says what the outer ones only surround.
pub(super) fn deepest(error: &(dyn Error + 'static)) -> String {
    chain(error).last().map_or_else(|| error.to_string(), ToString::to_string)
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

fn at(address: Option<IpAddr>) -> String {
    address.map(|address| format!(" ({address})")).unwrap_or_default()
}
