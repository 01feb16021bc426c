//! The network of a cell: a loopback interface, and on it the sockets that the broker asked for.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, listen, recv, sendto, socket_with,
};

use crate::cell::{Listener, Network, Protocol};
use crate::report::CellRefusal;
use crate::step::{StepExt, refused};
use crate::wire::MAX_DESCRIPTORS;

/// The number of connections that may wait to be accepted: a burst of a busy client.
const BACKLOG: i32 = 128;

/// Brings the loopback interface up and binds the listed sockets. To be called inside the network namespace, with
/// rights over it.
pub(super) fn build(network: &Network) -> Result<Vec<OwnedFd>, CellRefusal> {
    raise_loopback().step("raise the loopback interface")?;
    listeners(network)
}

/// Binds the listed sockets.
pub(super) fn listeners(network: &Network) -> Result<Vec<OwnedFd>, CellRefusal> {
    let Network::Listeners(listeners) = network else { return Ok(Vec::new()) };
    if listeners.len() > MAX_DESCRIPTORS {
        let cause = format_args!("{} sockets are more than the limit of {MAX_DESCRIPTORS}", listeners.len());
        return Err(refused("listen", cause, "declare fewer ports"));
    }
    listeners.iter().map(|listener| socket(listener).step(format_args!("listen on {}", listener.address))).collect()
}

fn socket(Listener { protocol, address }: &Listener) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let kind = match protocol {
        Protocol::Tcp => SocketType::STREAM,
        Protocol::Udp => SocketType::DGRAM,
    };
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    set_socket_reuseaddr(&socket, true)?;
    bind_to(&socket, address)?;
    if *protocol == Protocol::Tcp {
        listen(&socket, BACKLOG)?;
    }
    Ok(socket)
}

fn bind_to(socket: &OwnedFd, address: &SocketAddr) -> rustix::io::Result<()> {
    match address {
        SocketAddr::V4(address) => bind(socket, address),
        SocketAddr::V6(address) => bind(socket, address),
    }
}

/// Brings the loopback interface up as `ip link set lo up` does. rtnetlink(7).
fn raise_loopback() -> io::Result<()> {
    /// The first interface of every network namespace.
    const LOOPBACK: u32 = 1;
    const UP: u32 = libc::IFF_UP.unsigned_abs();
    const FLAGS: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_ACK).unsigned_abs() as u16;
    // The header: length, kind, flags, sequence, port. Then the interface: family and type, index, flags, mask of
    // flags.
    let [length, sequence, port, family]: [u32; 4] = [32, 1, 0, 0];
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(libc::RTM_NEWLINK.to_ne_bytes());
    message.extend(FLAGS.to_ne_bytes());
    for word in [sequence, port, family, LOOPBACK, UP, UP] {
        message.extend(word.to_ne_bytes());
    }
    let netlink = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    sendto(&netlink, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0_u8; 128];
    recv(&netlink, &mut answer, RecvFlags::empty())?;
    // The negated error number follows the header.
    let errno = answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).map_or(0, i32::from_ne_bytes);
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-errno)) }
}
