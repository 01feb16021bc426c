//! Receives every datagram that a source sends, whatever its port.

use std::net::Ipv4Addr;
use std::sync::Arc;

use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

use super::traffic::{IntendedHost, MessageProtocol};
use super::{ACCEPT_PAUSE, RESOLVER_PORT, Shared};

/// The longest packet of IP, in bytes.
const MAX_PACKET_BYTES: usize = 65_535;

/// The length of the header of UDP, in bytes.
const UDP_HEADER_BYTES: usize = 8;

/// Notes datagrams until the last call, and those that are waiting then. `socket` is a raw one, whose packets begin
/// with the header of IP.
pub(super) async fn receive(shared: Arc<Shared>, socket: UdpSocket, draining: CancellationToken) {
    let mut packet = vec![0; MAX_PACKET_BYTES];
    while let Some(received) = draining.run_until_cancelled(socket.recv(&mut packet)).await {
        match received {
            Ok(size) => shared.record_datagram(packet.get(..size).unwrap_or_default()),
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
    let Ok(socket) = socket.into_std() else { return };
    while let Ok(size) = socket.recv(&mut packet) {
        shared.record_datagram(packet.get(..size).unwrap_or_default());
    }
}

impl Shared {
    /// Notes a datagram, unless the resolver hears it, too, or it stays among the programs of the cell.
    fn record_datagram(&self, packet: &[u8]) {
        let Some(Datagram { address, ports, content }) = Datagram::of(packet) else { return };
        if ports.contains(&RESOLVER_PORT) || address.is_loopback() {
            return;
        }
        let [_, port] = ports;
        let host = self.names.name_of(address).unwrap_or_else(|| address.to_string());
        self.traffic.record(
            MessageProtocol::Udp,
            &IntendedHost { host, port },
            vec![("bytes".to_owned(), content.to_vec())],
        );
    }
}

/// A datagram of UDP over IPv4. RFC 791, RFC 768.
struct Datagram<'a> {
    /// The address that it is for.
    address: Ipv4Addr,
    /// The port that it comes from, and the one that it is for.
    ports: [u16; 2],
    content: &'a [u8],
}

impl<'a> Datagram<'a> {
    fn of(packet: &'a [u8]) -> Option<Self> {
        let words = usize::from(packet.first()? & 0xf);
        let address: [u8; 4] = *packet.get(16..20)?.first_chunk()?;
        let datagram = packet.get(words * 4..)?;
        let [from_high, from_low, to_high, to_low] = *datagram.first_chunk()?;
        Some(Self {
            address: address.into(),
            ports: [[from_high, from_low], [to_high, to_low]].map(u16::from_be_bytes),
            content: datagram.get(UDP_HEADER_BYTES..)?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;

    #[test]
    fn the_address_the_ports_and_the_content_of_a_datagram_are_read() {
        // A header of IP with an option, of 24 bytes.
        let mut packet = vec![0x46, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 93, 184, 0, 7, 1, 1, 1, 1];
        packet.extend([0x80, 0, 0x12, 0x67, 0, 14, 0, 0]);
        packet.extend(b"secret");
        let datagram = Datagram::of(&packet).unwrap();
        assert_eq!((datagram.address, datagram.ports), ([93, 184, 0, 7].into(), [0x8000, 4711]));
        assert_eq!(datagram.content, b"secret");
        for length in 0..32 {
            assert!(Datagram::of(&packet[..length]).is_none(), "{length}");
        }
    }
}
