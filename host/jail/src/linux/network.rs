//! The network of a cell: a loopback interface, and on it the sockets that the broker asked for.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{set_socket_recv_buffer_size_force, set_socket_reuseaddr};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, ipproto, listen, recv, sendto, socket_with,
};

use crate::cell::{Listener, Network, SocketProtocol};
use crate::report::CellRefusal;
use crate::step::{StepExt, refused};
use crate::wire::MAX_DESCRIPTORS;

/// The number of connections that may wait to be accepted: a burst of a busy client.
const BACKLOG: i32 = 128;

/// The bytes of datagrams that may wait to be read from a raw socket.
const RAW_BYTES: usize = 8 << 20;

/// Brings the loopback interface up and binds the listed sockets. To be called inside the network namespace, with
/// rights over it.
pub(super) fn build(network: &Network) -> Result<Vec<OwnedFd>, CellRefusal> {
    raise_loopback().step("raise the loopback interface")?;
    match network {
        Network::None => Ok(Vec::new()),
        Network::Listeners(listeners) => bound(listeners),
        Network::Everywhere(listeners) => {
            own_every_address().step("make every address the cell's own")?;
            bound(listeners)
        }
    }
}

/// Binds the listed sockets in a network that somebody else made, without rights over it.
pub(super) fn listeners(network: &Network) -> Result<Vec<OwnedFd>, CellRefusal> {
    match network {
        Network::None => Ok(Vec::new()),
        Network::Listeners(listeners) => bound(listeners),
        Network::Everywhere(_) => {
            Err(refused("listen", "only a full cell can have every address", "use one without bubblewrap"))
        }
    }
}

fn bound(listeners: &[Listener]) -> Result<Vec<OwnedFd>, CellRefusal> {
    if listeners.len() > MAX_DESCRIPTORS {
        let cause = format_args!("{} sockets are more than the limit of {MAX_DESCRIPTORS}", listeners.len());
        return Err(refused("listen", cause, "declare fewer ports"));
    }
    listeners.iter().map(|listener| socket(listener).step(format_args!("listen on {}", listener.address))).collect()
}

fn socket(Listener { protocol, address }: &Listener) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let (kind, transport) = match protocol {
        SocketProtocol::Tcp => (SocketType::STREAM, None),
        SocketProtocol::Udp => (SocketType::DGRAM, None),
        SocketProtocol::EveryUdp => (SocketType::RAW, Some(ipproto::UDP)),
    };
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, transport)?;
    if *protocol == SocketProtocol::EveryUdp {
        // Packets that arrive faster than they are read wait, as far as the kernel lets them.
        let _ = set_socket_recv_buffer_size_force(&socket, RAW_BYTES);
        return Ok(socket);
    }
    set_socket_reuseaddr(&socket, true)?;
    bind_to(&socket, address)?;
    if *protocol == SocketProtocol::Tcp {
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

/// The first interface of every network namespace.
const LOOPBACK: u32 = 1;

/// Brings the loopback interface up as `ip link set lo up` does. rtnetlink(7).
fn raise_loopback() -> io::Result<()> {
    const UP: u32 = libc::IFF_UP.unsigned_abs();
    // The interface: family and type, index, flags, mask of flags.
    let words: Vec<u8> = [0, LOOPBACK, UP, UP].into_iter().flat_map(u32::to_ne_bytes).collect();
    ask_kernel(libc::RTM_NEWLINK, 0, &words)
}

/// Makes every address of IPv4 local as `ip route add local 0.0.0.0/0 dev lo` does.
fn own_every_address() -> io::Result<()> {
    // The route: family, lengths of both prefixes, type of service, table, protocol, scope, kind, flags.
    let route =
        [libc::AF_INET as u8, 0, 0, 0, libc::RT_TABLE_LOCAL, libc::RTPROT_BOOT, libc::RT_SCOPE_HOST, libc::RTN_LOCAL];
    let mut message = [route, [0; 8]].concat();
    message.truncate(12);
    // One attribute: its length, its kind, and the interface.
    message.extend(8_u16.to_ne_bytes());
    message.extend(libc::RTA_OIF.to_ne_bytes());
    message.extend(LOOPBACK.to_ne_bytes());
    ask_kernel(libc::RTM_NEWROUTE, libc::NLM_F_CREATE, &message)
}

/// Sends one request of rtnetlink(7) and waits for its acknowledgement.
fn ask_kernel(kind: u16, flags: i32, request: &[u8]) -> io::Result<()> {
    const HEADER_BYTES: usize = 16;
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags).unsigned_abs() as u16;
    let length = u32::try_from(HEADER_BYTES + request.len()).map_err(io::Error::other)?;
    // The header: length, kind, flags, sequence, port.
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend(1_u32.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes());
    message.extend(request);
    let netlink = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    sendto(&netlink, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0_u8; 128];
    recv(&netlink, &mut answer, RecvFlags::empty())?;
    // The negated error number follows the header.
    let errno = answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).map_or(0, i32::from_ne_bytes);
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-errno)) }
}
