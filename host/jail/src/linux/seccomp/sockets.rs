//! The sockets that a source may make.

use std::io;

use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use super::{FilterOptions, all, condition, differs, is};

/// Allows only the listed families of sockets. Unix sockets are denied, since they would reach daemons through any
/// folder that the source can read; a pair of them stays possible. Netlink is allowed only as the C library uses it to
/// list addresses. Of the internet protocols only TCP and UDP are allowed, so that the code of other protocols cannot
/// be reached: neither by its number, nor by a kind of socket for which the kernel chooses the protocol (SCTP, DCCP).
pub(super) fn alone(FilterOptions { internet, recorded, .. }: FilterOptions) -> io::Result<Vec<SeccompRule>> {
    let mut others = vec![differs(0, libc::AF_NETLINK)?];
    if internet {
        others.extend([differs(0, libc::AF_INET)?, differs(0, libc::AF_INET6)?]);
    }
    let netlink = [is(0, libc::AF_NETLINK)?, differs(2, libc::NETLINK_ROUTE)?];
    let transport = [
        differs(0, libc::AF_NETLINK)?,
        differs(2, libc::IPPROTO_IP)?,
        differs(2, libc::IPPROTO_TCP)?,
        differs(2, libc::IPPROTO_UDP)?,
    ];
    let mut rules = vec![others, netlink.into(), transport.into()];
    for kind in kinds_but([libc::SOCK_STREAM, libc::SOCK_DGRAM]) {
        rules.push(match kind {
            libc::SOCK_RAW => vec![is_kind(kind)?, differs(0, libc::AF_NETLINK)?],
            _ => vec![is_kind(kind)?],
        });
    }
    let apart = |mut rule: Vec<SeccompCondition>| {
        if recorded {
            rule.push(differs(0, libc::AF_UNIX)?);
        }
        all(rule)
    };
    rules.into_iter().map(apart).collect()
}

/// Allows pairs of stream and sequenced-packet sockets. Each end of any other pair could be reconnected to such a
/// daemon: datagram pairs, and what the kernel turns into datagrams (`SOCK_RAW`).
pub(super) fn pairs() -> io::Result<Vec<SeccompRule>> {
    let others = kinds_but([libc::SOCK_STREAM, libc::SOCK_SEQPACKET]).map(|kind| all([is_kind(kind)?]));
    [all([differs(0, libc::AF_UNIX)?])].into_iter().chain(others).collect()
}

/// The bits of the argument that hold the kind of a socket. The rest are flags.
const KIND: i32 = 0xf;

/// Returns all possible kinds of sockets except these.
fn kinds_but(kept: [i32; 2]) -> impl Iterator<Item = i32> {
    (0..=KIND).filter(move |kind| !kept.contains(kind))
}

/// Matches a request for a socket of this kind, with any flags.
fn is_kind(kind: i32) -> io::Result<SeccompCondition> {
    let bits = SeccompCmpOp::MaskedEq(u64::from(KIND.unsigned_abs()));
    condition(1, SeccompCmpArgLen::Dword, bits, kind.unsigned_abs())
}
