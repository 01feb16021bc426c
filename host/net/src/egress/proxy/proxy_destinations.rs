//! The destinations that a cell's `network` setting declares, and the stand-in address of each name inside the cell.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::super::Reach;
use crate::egress::is_host;

/// The port on which each request must name the declared host.
pub(in crate::egress) const HTTP_PORT: u16 = 80;

/// The port on which the TLS handshake must name the declared host.
pub(in crate::egress) const TLS_PORT: u16 = 443;

/// A destination: a host, by name or address, and a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    /// In lower case; an IPv6 address has no brackets.
    host: String,
    port: u16,
}

/// The error for text that is not `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a host and a port: write it like \"api.example.com:443\"")]
pub struct DestinationParseError(String);

impl FromStr for Destination {
    type Err = DestinationParseError;

    /// Parses `host:port`, where the host is an ASCII name, a dotted IPv4 address or an IPv6 address in brackets. Other
    /// notations of addresses are refused.
    fn from_str(text: &str) -> Result<Self, DestinationParseError> {
        let parsed = text.rsplit_once(':').and_then(|(host, port)| {
            let digits = port.bytes().all(|b| b.is_ascii_digit());
            Self::new(host, port.parse().ok().filter(|_| digits)?)
        });
        parsed.ok_or_else(|| DestinationParseError(text.chars().take(300).collect()))
    }
}

impl Destination {
    /// Creates a destination, or returns `None` if the host is not valid or the port is 0.
    pub(in crate::egress) fn new(host: &str, port: u16) -> Option<Self> {
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let host = match bare {
            // This gives the address the one spelling that the standard library writes.
            Some(address) => address.parse::<Ipv6Addr>().ok()?.to_string(),
            None if is_host(host) => host.to_ascii_lowercase(),
            None => return None,
        };
        (port != 0).then_some(Self { host, port })
    }

    /// Returns the host's name or address, in the form for a lookup.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address if the host is one.
    pub(in crate::egress) fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Reports whether a component may open a connection of its own to this destination. On the ports of HTTP and TLS it
    /// may not if the host is a name, because nothing would check which host the bytes name; `wasi:http` does.
    #[must_use]
    pub fn allows_sockets(&self) -> bool {
        !matches!(self.port, HTTP_PORT | TLS_PORT) || self.address().is_some()
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// The destinations that a cell may reach. The default reaches nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedDestinations {
    destinations: BTreeSet<Destination>,
    /// The names by their stand-in addresses inside the cell.
    names: BTreeMap<Ipv4Addr, String>,
    /// The destinations whose addresses must be public, whatever the proxy's reach.
    public: BTreeSet<Destination>,
}

impl FromIterator<Destination> for AllowedDestinations {
    fn from_iter<I: IntoIterator<Item = Destination>>(list: I) -> Self {
        let destinations: BTreeSet<_> = list.into_iter().collect();
        let mut names = BTreeMap::new();
        for destination in destinations.iter().filter(|destination| destination.address().is_none()) {
            if !names.values().any(|name| *name == destination.host) {
                names.insert(stand_in(&destination.host, names.len()), destination.host.clone());
            }
        }
        Self { destinations, names, public: BTreeSet::new() }
    }
}

impl AllowedDestinations {
    /// Parses the entries of a configuration. They were checked when it was read; an invalid entry opens nothing.
    pub fn of_entries(network: &[String]) -> Self {
        network.iter().filter_map(|entry| entry.parse::<Destination>().ok()).collect()
    }

    /// Requires the addresses of these destinations to be public, whatever the proxy's reach.
    pub fn public(self, entries: &[String]) -> Self {
        Self { public: Self::of_entries(entries).destinations, ..self }
    }

    /// Returns the reach for a destination, given the proxy's reach.
    pub(in crate::egress) fn reach(&self, to: &Destination, open: Reach) -> Reach {
        if self.public.contains(to) { Reach::Public } else { open }
    }

    /// Reports whether no destination is declared.
    pub fn is_empty(&self) -> bool {
        self.destinations.is_empty()
    }

    /// Returns the ports of all destinations.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> {
        self.destinations.iter().map(Destination::port)
    }

    /// Reports whether a destination is declared.
    pub(in crate::egress) fn contains(&self, destination: &Destination) -> bool {
        self.destinations.contains(destination)
    }

    /// Reports whether any port of this host is declared.
    pub(in crate::egress) fn has_host(&self, host: &str) -> bool {
        self.destinations.iter().any(|destination| destination.host == host)
    }

    /// Returns the stand-in address of a name inside the cell.
    #[must_use]
    pub fn address_of(&self, name: &str) -> Option<Ipv4Addr> {
        self.names.iter().find(|(_, known)| known.eq_ignore_ascii_case(name)).map(|(address, _)| *address)
    }

    /// Returns the destination that a connection to an address inside the cell is meant for. If none is declared, the
    /// error is the name that the address belongs to, if any.
    pub(super) fn at(&self, address: IpAddr, port: u16) -> Result<&Destination, Option<&str>> {
        let name = match address {
            IpAddr::V4(address) => self.names.get(&address).map(String::as_str),
            IpAddr::V6(_) => None,
        };
        let host = name.map_or_else(|| address.to_string(), str::to_owned);
        self.destinations.get(&Destination { host, port }).ok_or(name)
    }
}

/// Returns the stand-in address of a name. It is in 127.64.0.0/16, which every kernel treats as loopback and no program
/// uses; `localhost` keeps the address that every program expects.
fn stand_in(name: &str, index: usize) -> Ipv4Addr {
    if name == "localhost" {
        return Ipv4Addr::LOCALHOST;
    }
    // A cell lists at most 256 entries.
    let [.., high, low] = (index + 1).to_be_bytes();
    Ipv4Addr::new(127, 64, high, low)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn declared(list: &[&str]) -> AllowedDestinations {
        list.iter().map(|text| text.parse::<Destination>().unwrap()).collect()
    }

    #[test]
    fn destinations_are_read_in_one_notation() {
        for (text, shown) in [
            ("api.example.com:443", "api.example.com:443"),
            ("API.Example.COM:443", "api.example.com:443"),
            ("10.0.0.1:5432", "10.0.0.1:5432"),
            ("[2606:4700:0::1111]:53", "[2606:4700::1111]:53"),
        ] {
            assert_eq!(text.parse::<Destination>().unwrap().to_string(), shown);
        }
        for text in [
            "",
            ":",
            "example.com",
            "example.com:",
            "example.com:0",
            "example.com:65536",
            "example.com:+1",
            ":443",
            "example.com.:443",
            "user@example.com:443",
            "0x7f.1:80",
            "2130706433:80",
            "0177.0.0.1:80",
            "127.1:80",
            "::1:80",
            "[::1%25lo]:80",
            "[::1:80",
            "a b:80",
            "a/b:80",
            "１２７.0.0.1:80",
            "*.example.com:443",
            "[]:80",
        ] {
            assert!(text.parse::<Destination>().is_err(), "{text}");
        }
    }

    #[test]
    fn each_name_has_an_address_of_its_own_which_leads_back_to_it() {
        let declared = declared(&["b.test:443", "a.test:443", "a.test:80", "9.9.9.9:53", "localhost:5432"]);
        assert_eq!(declared.address_of("A.test"), Some(Ipv4Addr::new(127, 64, 0, 1)));
        assert_eq!(declared.address_of("b.test"), Some(Ipv4Addr::new(127, 64, 0, 2)));
        assert_eq!(declared.address_of("9.9.9.9"), None);
        let at = |address: &str, port| declared.at(address.parse().unwrap(), port).map(ToString::to_string);
        assert_eq!(at("127.64.0.1", 80), Ok("a.test:80".into()));
        assert_eq!(at("127.64.0.2", 443), Ok("b.test:443".into()));
        assert_eq!(at("9.9.9.9", 53), Ok("9.9.9.9:53".into()));
        assert_eq!(at("127.0.0.1", 5432), Ok("localhost:5432".into()));
        assert_eq!(at("127.64.0.2", 80), Err(Some("b.test")));
        assert_eq!(at("127.0.0.1", 443), Err(Some("localhost")));
        assert_eq!(at("127.64.0.9", 443), Err(None));
        assert_eq!(at("::1", 443), Err(None));
    }

    #[test]
    fn more_names_than_one_byte_counts_do_not_share() {
        let all: AllowedDestinations =
            (0..700).map(|n| format!("h{n}.test:443").parse::<Destination>().unwrap()).collect();
        assert_eq!(all.names.len(), 700);
    }
}
