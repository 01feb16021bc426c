//! Addresses of syslog receivers.

use std::fmt;
use std::path::{Path, PathBuf};

use url::Url;

use super::error::UnlocatedProblem;
use super::raw::Located;
use super::value;

/// The beginnings of such addresses.
const TLS: &str = "syslog+tls://";
const TCP: &str = "syslog+tcp://";
const LOCAL: &str = "syslog+unix:";

/// The ports that are registered for syslog over TLS (RFC 5425) and over TCP (RFC 6587).
const TLS_PORT: u16 = 6514;
const TCP_PORT: u16 = 601;

/// A receiver of syslog messages in the format of RFC 5424.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub enum SyslogAddress {
    /// A server, over TLS with the framing of RFC 5425.
    Tls {
        /// The name or address, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A server, over TCP with the octet counting of RFC 6587. Anyone on the network path can read and change the
    /// messages.
    Tcp {
        /// The name or address, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A socket of this machine, such as `/dev/log`, to which each message is a datagram.
    Local(#[serde(serialize_with = "super::digest::path")] PathBuf),
}

impl SyslogAddress {
    /// Reports whether a text is meant as such an address.
    pub(super) fn is_meant(text: &str) -> bool {
        text.starts_with("syslog+") || text.starts_with("syslog:")
    }

    pub(super) fn parse(at: &Located<String>, base: &Path) -> Result<Self, UnlocatedProblem> {
        if let Some(path) = at.strip_prefix(LOCAL) {
            return value::path(&at.part(path), base).map(Self::Local);
        }
        let parsed = Url::parse(at).ok().filter(|url| {
            let is_plain = url.username().is_empty() && url.password().is_none() && matches!(url.path(), "" | "/");
            is_plain && url.query().is_none() && url.fragment().is_none()
        });
        let host = parsed.as_ref().and_then(Url::host_str).filter(|host| !host.is_empty());
        let host = host.map(|host| host.trim_start_matches('[').trim_end_matches(']').to_owned());
        let port = parsed.as_ref().and_then(Url::port);
        match host {
            Some(host) if at.starts_with(TLS) => Ok(Self::Tls { host, port: port.unwrap_or(TLS_PORT) }),
            Some(host) if at.starts_with(TCP) => Ok(Self::Tcp { host, port: port.unwrap_or(TCP_PORT) }),
            _ => Err(UnlocatedProblem::new(at.span(), "this is not the address of a syslog receiver")
                .help(
                    "write it like \"syslog+tls://logs.example.com:6514\", \"syslog+tcp://127.0.0.1:601\" or \
                     \"syslog+unix:/dev/log\"",
                )
                .hidden_if(at.contains('@'))),
        }
    }
}

impl fmt::Display for SyslogAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host, port) = match self {
            Self::Tls { host, port } => (TLS, host, port),
            Self::Tcp { host, port } => (TCP, host, port),
            Self::Local(path) => return write!(f, "{LOCAL}{}", path.display()),
        };
        match host.contains(':') {
            true => write!(f, "{scheme}[{host}]:{port}"),
            false => write!(f, "{scheme}{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn parsed(text: &str) -> Option<String> {
        let at = Located::nowhere(text.to_owned());
        SyslogAddress::parse(&at, Path::new("/p")).ok().map(|address| address.to_string())
    }

    #[test]
    fn an_address_is_read_as_it_is_shown_and_anything_else_is_refused() {
        for (text, shown) in [
            ("syslog+tls://logs.example.com", "syslog+tls://logs.example.com:6514"),
            ("syslog+tls://[::1]:7000/", "syslog+tls://[::1]:7000"),
            ("syslog+tcp://127.0.0.1", "syslog+tcp://127.0.0.1:601"),
            ("syslog+unix:/dev/log", "syslog+unix:/dev/log"),
            ("syslog+unix:log", "syslog+unix:/p/log"),
        ] {
            assert_eq!(parsed(text).as_deref(), Some(shown), "{text}");
            assert_eq!(parsed(shown).as_deref(), Some(shown));
        }
        for text in [
            "syslog://x",
            "syslog+udp://x",
            "syslog+tls://",
            "syslog+tls:x",
            "syslog+tls://a:b@x",
            "syslog+tls://x/path",
            "syslog+tls://x?y",
            "syslog+tls://x:99999",
            "syslog+unix:",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
