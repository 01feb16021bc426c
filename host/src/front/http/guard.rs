//! Who may speak to us at all: `Host` and `Origin` against web pages that reach for local servers (DNS rebinding), the
//! bearer token against everybody else.

use std::net::{IpAddr, SocketAddr};

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;

use super::reply::Refusal;
use crate::message::RpcError;

/// Whoever holds the one token.
const TOKEN_HOLDER: &str = "token";

/// Anybody, where no token is asked for.
const ANYBODY: &str = "anonymous";

/// The checks before the protocol.
pub(crate) struct Guard {
    listen: SocketAddr,
    hosts: Vec<String>,
    origins: Vec<String>,
    token: Option<SecretString>,
}

impl Guard {
    /// `listen` is the bound address. Without a token everybody is let in.
    pub(crate) fn new(listen: SocketAddr, hosts: &[String], origins: &[String], token: Option<SecretString>) -> Self {
        let lower =
            |texts: &[String]| texts.iter().map(|text| text.trim_end_matches('/').to_ascii_lowercase()).collect();
        Self { listen, hosts: lower(hosts), origins: lower(origins), token }
    }

    /// The name under which we were called must be one of ours. 403, not 421: the latter invites a client to try the same
    /// request again on another connection.
    pub(crate) fn check_host(&self, parts: &Parts) -> Result<(), Refusal> {
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
        let message = "the `Host` of this request is no name of this server; list it in `hosts` under [serve] if it is";
        Err(Refusal::rejected("host", StatusCode::FORBIDDEN, message))
    }

    fn is_ours(&self, name: &Authority) -> bool {
        if name.as_str().contains('@') {
            return false;
        }
        let host = name.host().to_ascii_lowercase();
        let port = name.port_u16();
        // `host:` and `host:99999` are no ports.
        if port.is_none() && name.as_str().len() != name.host().len() {
            return false;
        }
        let own_port = port.is_none_or(|port| port == self.listen.port());
        let local = is_loopback(&host) || address(&host).is_some_and(|ip| ip == self.listen.ip());
        let listed = || self.hosts.iter().any(|listed| *listed == name.as_str().to_ascii_lowercase());
        (own_port && (local || self.hosts.contains(&host))) || listed()
    }

    /// A web page that calls must be listed, or be served by us.
    pub(crate) fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
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
        Err(Refusal::rejected("origin", StatusCode::FORBIDDEN, message))
    }

    fn is_own_origin(&self, origin: &str) -> bool {
        let Some(Ok(name)) = origin.strip_prefix("http://").map(str::parse::<Authority>) else { return false };
        let port = name.port_u16().unwrap_or(80);
        !name.as_str().contains('@') && is_loopback(name.host()) && port == self.listen.port()
    }

    /// Who calls.
    pub(crate) fn authenticate(&self, headers: &HeaderMap) -> Result<&'static str, Refusal> {
        let Some(token) = &self.token else { return Ok(ANYBODY) };
        let mut given = headers.get_all(AUTHORIZATION).iter();
        let bearer = given.next().filter(|_| given.next().is_none()).and_then(bearer);
        if bearer.is_some_and(|given| given.ct_eq(token.expose_secret().as_bytes()).into()) {
            return Ok(TOKEN_HOLDER);
        }
        let message = "this server needs `Authorization: Bearer TOKEN` with its token";
        let mut refusal = Refusal::rejected("token", StatusCode::UNAUTHORIZED, message);
        refusal.header = Some((WWW_AUTHENTICATE, "Bearer"));
        Err(refusal)
    }
}

impl Refusal {
    fn rejected(reason: &'static str, status: StatusCode, message: &str) -> Self {
        let mut refusal = Self::new(status, RpcError::INVALID_REQUEST, message);
        refusal.reason = Some(reason);
        refusal
    }
}

fn bearer(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = value.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
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

    fn guard() -> Guard {
        let hosts = ["Broker.example".to_owned(), "proxy.example:8443".to_owned()];
        let origins = ["https://app.example".to_owned()];
        Guard::new("127.0.0.1:8765".parse().unwrap(), &hosts, &origins, Some("s3cret".to_owned().into()))
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
        for good in
            ["localhost", "LOCALHOST:8765", "127.0.0.1:8765", "[::1]:8765", "broker.example", "proxy.example:8443"]
        {
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

    #[test]
    fn the_token_must_be_brought_once_and_whole() {
        let check = |headers: &[(&str, &str)]| guard().authenticate(&parts(headers).headers);
        assert_eq!(check(&[("authorization", "Bearer s3cret")]).ok(), Some(TOKEN_HOLDER));
        assert_eq!(check(&[("authorization", "bearer s3cret")]).ok(), Some(TOKEN_HOLDER));
        for bad in ["Bearer s3cre", "Bearer s3crets", "Bearer ", "Bearer", "Basic s3cret", "s3cret"] {
            let refusal = check(&[("authorization", bad)]).unwrap_err();
            assert_eq!((refusal.status, refusal.reason), (StatusCode::UNAUTHORIZED, Some("token")), "{bad}");
        }
        assert!(check(&[("authorization", "Bearer s3cret"), ("authorization", "Bearer x")]).is_err());
        assert!(check(&[]).is_err());
    }
}
