//! Checks of request URLs.

use url::{Host, Url};

use super::address::{AddressClass, AddressRefusal, OPT_IN};
use super::{EgressError, Reach};

/// Checks a URL before it is requested. Names are checked again, by address, when they are resolved; an address that is
/// written in the URL never reaches a resolver, so this is its only check. The URL parser has already converted
/// `2130706433`, `0x7f.1` and `0177.0.0.1` to the addresses that they mean.
///
/// # Errors
/// [`EgressError::Url`] for a URL that names no server in a way that is accepted: another scheme, credentials, port 0,
/// a host that ends in a dot. [`EgressError::Refused`] for a server that may not be reached.
pub fn check(url: &Url, reach: Reach) -> Result<(), EgressError> {
    let refuse = |what: &'static str| Err(EgressError::Url { url: shown(url), what });
    if !matches!(url.scheme(), "http" | "https") {
        return refuse("its scheme is neither http nor https");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return refuse("it carries a user name or password; put credentials into the source's `headers`");
    }
    if url.port() == Some(0) {
        return refuse("port 0 is not a valid port");
    }
    let address = match url.host() {
        None => return refuse("it has no host"),
        Some(Host::Domain(name)) => return check_name(name, url, reach),
        Some(Host::Ipv4(address)) => address.into(),
        Some(Host::Ipv6(address)) => address.into(),
    };
    match AddressClass::of(address).objection(reach) {
        None => Ok(()),
        Some(objection) => Err(EgressError::refused(url.host_str().unwrap_or_default(), Some(address), objection)),
    }
}

/// Reports whether a URL itself names a loopback or private address: it can be requested only where
/// `dangerous-allow-private` allows it.
#[must_use]
pub fn is_private(url: &Url) -> bool {
    check(url, Reach::Public).is_err() && check(url, Reach::Private).is_ok()
}

fn check_name(name: &str, url: &Url, reach: Reach) -> Result<(), EgressError> {
    if name.is_empty() || name.ends_with('.') {
        // `localhost.` means `localhost`, and a certificate for `example.com` does not cover `example.com.`
        return Err(EgressError::Url { url: shown(url), what: "its host ends in a dot; leave it out" });
    }
    let local = name == "localhost" || name.ends_with(".localhost");
    if local && reach == Reach::Public {
        return Err(EgressError::refused(name, None, AddressRefusal { what: "a name of this machine", hint: OPT_IN }));
    }
    Ok(())
}

/// Returns a URL as messages show it: without credentials, query and fragment, since these may hold secrets.
pub fn shown(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{host}{port}{}", url.scheme(), url.path())
}
