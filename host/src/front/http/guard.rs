//! Checks of `Host` and `Origin` against web pages that try to reach local servers (DNS rebinding).

use std::net::{IpAddr, SocketAddr};

use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HOST, ORIGIN, VARY,
};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};

use super::reply::HttpRefusal;
use crate::protocol::RpcError;

/// The checks that come before the protocol.
pub(crate) struct RequestGuard {
    listen: SocketAddr,
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl RequestGuard {
    /// Returns the checks of a server that is bound to `listen`, with its further names and the origins that may call
    /// it.
    pub(crate) fn new(listen: SocketAddr, hosts: &[String], origins: &[String]) -> Self {
        let lower =
            |texts: &[String]| texts.iter().map(|text| text.trim_end_matches('/').to_ascii_lowercase()).collect();
        Self { listen, hosts: lower(hosts), origins: lower(origins) }
    }

    /// Checks that the name under which the server was called is one of its own. The refusal is 403 and not 421, which
    /// would invite a client to try the same request again on another connection.
    pub(crate) fn check_host(&self, parts: &Parts) -> Result<(), HttpRefusal> {
        let named: Vec<Option<Authority>> = parts
            .headers
            .get_all(HOST)
            .iter()
            .map(|value| value.to_str().ok().and_then(|text| text.parse().ok()))
            .chain(parts.uri.authority().map(|authority| Some(authority.clone())))
            .collect();
        let ours = |name: &Option<Authority>| name.as_ref().is_some_and(|name| self.is_ours(name));
        if !named.is_empty() && named.iter().all(ours) {
            return Ok(());
        }
        let message = "the `Host` of this request is not a name of this server; if it is, list it in `hosts` under [serve], with the port \
             unless that is the one of `listen`";
        Err(HttpRefusal::rejected("host", StatusCode::FORBIDDEN, message))
    }

    fn is_ours(&self, name: &Authority) -> bool {
        if name.as_str().contains('@') {
            return false;
        }
        let host = name.host().to_ascii_lowercase();
        let port = name.port_u16();
        // `host:` and `host:99999` have no valid port.
        if port.is_none() && name.as_str().len() != name.host().len() {
            return false;
        }
        let own_port = port.is_none_or(|port| port == self.listen.port());
        let local = is_loopback(&host) || address(&host).is_some_and(|ip| ip == self.listen.ip());
        let listed = || self.hosts.iter().any(|listed| *listed == name.as_str().to_ascii_lowercase());
        (own_port && (local || self.hosts.contains(&host))) || listed()
    }

    /// Checks that a web page that calls is listed, or is served by this server.
    pub(crate) fn check_origin(&self, headers: &HeaderMap) -> Result<(), HttpRefusal> {
        let allowed = |origin: &HeaderValue| {
            origin.to_str().is_ok_and(|origin| {
                let origin = origin.to_ascii_lowercase();
                self.origins.contains(&origin) || self.is_own_origin(&origin)
            })
        };
        if headers.get_all(ORIGIN).iter().all(allowed) {
            return Ok(());
        }
        let message = "the `Origin` of this request may not call; list it in `origins` under [serve] if it may";
        Err(HttpRefusal::rejected("origin", StatusCode::FORBIDDEN, message))
    }

    /// Returns the answer to a page of a listed origin that asks beforehand whether it may send a request. Whatever it
    /// sends is checked like any other.
    pub(crate) fn preflight(&self, parts: &Parts) -> Option<Response> {
        let asks = parts.method == Method::OPTIONS && parts.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        self.listed_origin(&parts.headers).filter(|_| asks)?;
        let mut answer = StatusCode::NO_CONTENT.into_response();
        let headers = answer.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
        if let Some(wanted) = parts.headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
        }
        Some(answer)
    }

    /// Returns the origin of a page that calls, if it is listed. A page of this server needs no further permission.
    pub(crate) fn listed_origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        let listed = self.origins.contains(&origin.to_str().ok()?.to_ascii_lowercase());
        listed.then(|| origin.clone())
    }

    /// Lets the page of an origin read an answer, with the headers that it needs.
    pub(crate) fn let_read(origin: HeaderValue, headers: &mut HeaderMap) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("Mcp-Session-Id, WWW-Authenticate"));
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }

    fn is_own_origin(&self, origin: &str) -> bool {
        let Some(Ok(name)) = origin.strip_prefix("http://").map(str::parse::<Authority>) else { return false };
        let port = name.port_u16().unwrap_or(80);
        !name.as_str().contains('@') && is_loopback(name.host()) && port == self.listen.port()
    }
}

impl HttpRefusal {
    /// Returns the refusal of a request that is turned away before the protocol, with the reason for the ledger.
    pub(super) fn rejected(reason: &'static str, status: StatusCode, message: &str) -> Self {
        let mut refusal = Self::new(status, RpcError::INVALID_REQUEST, message);
        refusal.reason = Some(reason);
        refusal
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || address(host).is_some_and(|ip| ip.is_loopback())
}

fn address(host: &str) -> Option<IpAddr> {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn guard() -> RequestGuard {
        let hosts = ["Broker.example", "proxy.example:8443", "localhost:9000"].map(str::to_owned);
        let origins = ["https://app.example".to_owned()];
        RequestGuard::new("127.0.0.1:8765".parse().unwrap(), &hosts, &origins)
    }

    fn parts(headers: &[(&str, &str)]) -> Parts {
        let mut request = axum::http::Request::builder().uri("/mcp");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn only_our_own_names_are_answered() {
        let check = |host: &str| guard().check_host(&parts(&[("host", host)])).is_ok();
        for good in [
            "localhost",
            "LOCALHOST:8765",
            "localhost:9000",
            "127.0.0.1:8765",
            "[::1]:8765",
            "broker.example",
            "proxy.example:8443",
        ] {
            assert!(check(good), "{good}");
        }
        let bad = [
            "evil.example",
            "localhost:80",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "x@localhost:8765",
            "proxy.example",
            "broker.example:1",
            "localhost:",
            "localhost:99999",
            "",
            "0x7f.1:8765",
        ];
        for bad in bad {
            assert!(!check(bad), "{bad}");
        }
        assert!(guard().check_host(&parts(&[])).is_err());
        assert!(guard().check_host(&parts(&[("host", "localhost"), ("host", "evil.example")])).is_err());
    }

    #[test]
    fn a_web_page_must_be_listed_or_ours() {
        let check = |origin: &str| guard().check_origin(&parts(&[("origin", origin)]).headers).is_ok();
        assert!(guard().check_origin(&HeaderMap::new()).is_ok());
        for good in ["https://app.example", "HTTPS://APP.example", "http://localhost:8765", "http://127.0.0.1:8765"] {
            assert!(check(good), "{good}");
        }
        for bad in
            ["null", "https://evil.example", "http://localhost", "http://localhost:3000", "https://localhost:8765"]
        {
            assert!(!check(bad), "{bad}");
        }
    }
}
