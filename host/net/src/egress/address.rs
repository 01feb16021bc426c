//! Decides which addresses may be reached.
//!
//! The ranges are those of the IANA special-purpose registries (RFC 6890 and its updates), plus the addresses at which
//! clouds serve metadata to their machines.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Reach;

/// The class of an address, which decides whether requests may reach it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AddressClass {
    /// An address on the internet.
    Public,
    /// A nearby address, such as loopback or private; `dangerous-allow-private` allows it.
    Nearby(&'static str),
    /// An address that no setting allows.
    Never(&'static str),
}

/// The reason why an address is refused, and what the user can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AddressRefusal {
    pub(super) what: &'static str,
    pub(super) hint: &'static str,
}

/// The hint that names the setting for nearby addresses.
pub(super) const OPT_IN: &str = "if that is intended, set `dangerous-allow-private = true` in the source";

impl AddressClass {
    /// Returns the class of an address. An IPv4-mapped, NAT64 or ISATAP address has the class of its IPv4 address.
    pub(super) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    /// Returns why the address may not be reached, or `None` if it may.
    pub(super) fn objection(self, reach: Reach) -> Option<AddressRefusal> {
        match (self, reach) {
            (Self::Public, _) | (Self::Nearby(_), Reach::Private) => None,
            (Self::Nearby(what), Reach::Public) => Some(AddressRefusal { what, hint: OPT_IN }),
            (Self::Never(what), _) => Some(AddressRefusal { what, hint: "no setting allows it" }),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        match address.octets() {
            // These precede the ranges that contain them: a source that may reach private addresses may still not ask
            // for the machine's credentials. AWS and most others, ECS and EKS, Tencent, Scaleway, Alibaba, Oracle,
            // Azure.
            [169, 254, 169 | 170, _]
            | [169, 254, 0, 23]
            | [169, 254, 42, 42]
            | [100, 100, 100, 200]
            | [192, 0, 0, 192]
            | [168, 63, 129, 16] => Self::Never("a cloud metadata address"),
            [127, ..] => Self::Nearby("a loopback address"),
            [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Self::Nearby("a private address"),
            [100, 64..=127, ..] => Self::Nearby("a shared carrier address (100.64.0.0/10)"),
            [169, 254, ..] => Self::Nearby("a link-local address"),
            [0, 0, 0, 0] => Self::Never("the unspecified address"),
            [0, ..] => Self::Never("a reserved address (0.0.0.0/8)"),
            // The internet does not route these, and test labs use them for their own machines.
            [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Self::Nearby("a documentation address"),
            [192, 0, 0, _] | [192, 88, 99, _] => Self::Never("an address reserved for protocols"),
            [198, 18..=19, ..] => Self::Never("a benchmarking address"),
            [224..=239, ..] => Self::Never("a multicast address"),
            [255, 255, 255, 255] => Self::Never("the broadcast address"),
            [240..=255, ..] => Self::Never("a reserved address (240.0.0.0/4)"),
            _ => Self::Public,
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        let [a, b, c, d, e, f, g, h] = address.segments();
        match [a, b, c, d, e, f, g, h] {
            [0, 0, 0, 0, 0, 0, 0, 0] => Self::Never("the unspecified address"),
            [0, 0, 0, 0, 0, 0, 0, 1] => Self::Nearby("a loopback address"),
            // IPv4-mapped addresses, and NAT64, through which IPv6-only networks reach the IPv4 internet.
            [0, 0, 0, 0, 0, 0xffff, _, _] | [0x64, 0xff9b, 0, 0, 0, 0, _, _] => Self::of_v4(v4(g, h)),
            // AWS, Google, Scaleway, Linode, OpenStack.
            [0xfd00, 0x0ec2, ..]
            | [0xfd20, 0x00ce, ..]
            | [0xfd00, 0x0042, 0, 0, 0, 0, 0, 0x0042]
            | [0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1]
            | [0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe] => Self::Never("a cloud metadata address"),
            // ISATAP embeds an IPv4 address under any prefix.
            [_, _, _, _, 0 | 0x0200, 0x5efe, _, _] if Self::of_v4(v4(g, h)) != Self::Public => Self::of_v4(v4(g, h)),
            [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => Self::Nearby("a private address"),
            [0xfe80..=0xfebf, ..] => Self::Nearby("a link-local address"),
            [0xff00..=0xffff, ..] => Self::Never("a multicast address"),
            [0x2001, 0, ..] => Self::Never("a Teredo address"),
            [0x2001, 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => Self::Nearby("a documentation address"),
            [0x2001, 0x0002, 0, ..] => Self::Never("a benchmarking address"),
            [0x2001, 0..=0x01ff, ..] => Self::Never("an address reserved for protocols"),
            [0x2002, ..] => Self::Never("a 6to4 address"),
            // Global unicast. Everything outside it (IPv4-compatible, IPv4-translated, local NAT64, discard, SRv6) is
            // refused by default, so there is no list to maintain.
            [0x2000..=0x3fff, ..] => Self::Public,
            _ => Self::Never("a reserved address"),
        }
    }
}

fn v4(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))
}
