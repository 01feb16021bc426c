//! Which addresses may be reached.
//!
//! The IANA special-purpose registries (RFC 6890 and its updates), plus what cloud hosts answer their machines on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Reach;

/// What an address is, as far as leaving the machine goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// The internet.
    Public,
    /// Near: opened by `dangerous-allow-private`.
    Near(&'static str),
    /// Opened by nothing.
    Never(&'static str),
}

/// Why an address is not reached, and what could be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Objection {
    pub(super) what: &'static str,
    pub(super) way_out: &'static str,
}

/// How a person opens what is near.
pub(super) const OPT_IN: &str = "if that is meant, set `dangerous-allow-private = true` in the source";

impl Class {
    /// The class of an address, looking through the forms that carry an IPv4 address to it.
    pub(super) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    /// What speaks against reaching it.
    pub(super) fn objection(self, reach: Reach) -> Option<Objection> {
        match (self, reach) {
            (Self::Public, _) | (Self::Near(_), Reach::Private) => None,
            (Self::Near(what), Reach::Public) => Some(Objection { what, way_out: OPT_IN }),
            (Self::Never(what), _) => Some(Objection { what, way_out: "no setting opens it" }),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        match address.octets() {
            // Before the ranges that they lie in: whoever may reach the neighbours may still not ask for the machine's
            // credentials. AWS and most others, ECS and EKS, Tencent, Scaleway, Alibaba, Oracle, Azure.
            [169, 254, 169 | 170, _]
            | [169, 254, 0, 23]
            | [169, 254, 42, 42]
            | [100, 100, 100, 200]
            | [192, 0, 0, 192]
            | [168, 63, 129, 16] => Self::Never("a cloud metadata address"),
            [127, ..] => Self::Near("a loopback address"),
            [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Self::Near("a private address"),
            [100, 64..=127, ..] => Self::Near("a shared carrier address (100.64.0.0/10)"),
            [169, 254, ..] => Self::Near("a link-local address"),
            [0, 0, 0, 0] => Self::Never("the unspecified address"),
            [0, ..] => Self::Never("a reserved address (0.0.0.0/8)"),
            // The internet routes none of them, and laboratories use them for machines of their own.
            [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Self::Near("a documentation address"),
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
            [0, 0, 0, 0, 0, 0, 0, 1] => Self::Near("a loopback address"),
            // IPv4-mapped, and NAT64, by which IPv6-only networks reach the IPv4 internet.
            [0, 0, 0, 0, 0, 0xffff, _, _] | [0x64, 0xff9b, 0, 0, 0, 0, _, _] => Self::of_v4(v4(g, h)),
            // AWS, Google, Scaleway, Linode, OpenStack.
            [0xfd00, 0x0ec2, ..]
            | [0xfd20, 0x00ce, ..]
            | [0xfd00, 0x0042, 0, 0, 0, 0, 0, 0x0042]
            | [0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1]
            | [0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe] => Self::Never("a cloud metadata address"),
            // ISATAP carries an IPv4 address under any prefix.
            [_, _, _, _, 0 | 0x0200, 0x5efe, _, _] if Self::of_v4(v4(g, h)) != Self::Public => Self::of_v4(v4(g, h)),
            [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => Self::Near("a private address"),
            [0xfe80..=0xfebf, ..] => Self::Near("a link-local address"),
            [0xff00..=0xffff, ..] => Self::Never("a multicast address"),
            [0x2001, 0, ..] => Self::Never("a Teredo address"),
            [0x2001, 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => Self::Near("a documentation address"),
            [0x2001, 0x0002, 0, ..] => Self::Never("a benchmarking address"),
            [0x2001, 0..=0x01ff, ..] => Self::Never("an address reserved for protocols"),
            [0x2002, ..] => Self::Never("a 6to4 address"),
            // Global unicast. Everything outside it (IPv4-compatible, IPv4-translated, local NAT64, discard, SRv6) is
            // refused without a list to keep.
            [0x2000..=0x3fff, ..] => Self::Public,
            _ => Self::Never("a reserved address"),
        }
    }
}

fn v4(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))
}
