//! The resolver of the false internet: every name has an address.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use portcullis_core::sync::Mutex;
use simple_dns::rdata::{A, RData};
use simple_dns::{CLASS, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

use super::traffic::{IntendedHost, MessageProtocol};
use super::{ACCEPT_PAUSE, RESOLVER_PORT, Shared};

/// The longest query, in bytes. No datagram is longer.
const MAX_QUERY_BYTES: usize = 65_535;

/// The length of the header of a query, and of the type and class after a name, in bytes. RFC 1035, sections 4.1.1 and
/// 4.1.2.
const HEADER_BYTES: usize = 12;
const TYPE_AND_CLASS_BYTES: usize = 4;

/// The time for which a client may cache an answer, in seconds. Nothing is cached, so that every query is seen.
const TTL: u32 = 0;

/// The number of names that have their own address. Those after them share the last one, and are not kept.
const MAX_NAMES: usize = 4096;

/// The host name for all names that share an address.
const ONE_OF_MANY: &str = "one of too many names";

/// The addresses that were given out.
#[derive(Debug)]
pub(super) struct FalseNames {
    addresses: FalseAddresses,
    pub(super) known: Mutex<GivenAddresses>,
}

/// The names and their addresses, each by the other.
#[derive(Debug, Default)]
pub(super) struct GivenAddresses {
    pub(super) by_name: HashMap<String, Ipv4Addr>,
    by_address: HashMap<Ipv4Addr, String>,
}

/// The addresses that names are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FalseAddresses {
    /// Addresses of loopback, which every cell has.
    Loopback,
    /// Addresses that look public, in a cell that has every address.
    Public,
}

impl FalseNames {
    pub(super) fn new(addresses: FalseAddresses) -> Self {
        Self { addresses, known: Mutex::default() }
    }

    pub(super) fn addresses(&self) -> FalseAddresses {
        self.addresses
    }

    /// Returns the address of a name, the same every time.
    pub(super) fn address_of(&self, name: &str) -> Ipv4Addr {
        let name = name.to_ascii_lowercase();
        let mut known = self.known.lock();
        if let Some(address) = known.by_name.get(&name) {
            return *address;
        }
        let count = known.by_name.len();
        let [.., high, low] = (count + 1).to_be_bytes();
        let address = match self.addresses {
            FalseAddresses::Loopback => Ipv4Addr::new(127, 65, high, low),
            FalseAddresses::Public => Ipv4Addr::new(93, 184, high, low),
        };
        if count < MAX_NAMES {
            known.by_address.insert(address, name.clone());
            known.by_name.insert(name, address);
        } else {
            known.by_address.entry(address).or_insert_with(|| ONE_OF_MANY.to_owned());
        }
        address
    }

    pub(super) fn name_of(&self, address: Ipv4Addr) -> Option<String> {
        self.known.lock().by_address.get(&address).cloned()
    }
}

impl Shared {
    /// Answers a DNS query (RFC 1035). Anything that is not a DNS query is recorded unchanged.
    fn answer(&self, query: &[u8], to: Option<&IntendedHost>, channel: MessageProtocol) -> Option<Vec<u8>> {
        let reply = self.reply(query);
        if reply.is_none() {
            let unknown = IntendedHost { host: "a resolver".to_owned(), port: RESOLVER_PORT };
            self.traffic.record(channel, to.unwrap_or(&unknown), vec![("bytes".to_owned(), query.to_vec())]);
        }
        reply
    }

    /// Returns the reply to a query of one name. The name is recorded, and the whole query if it says more than that.
    fn reply(&self, query: &[u8]) -> Option<Vec<u8>> {
        let packet = Packet::parse(query).ok()?;
        let [question] = packet.questions.as_slice() else { return None };
        let name = question.qname.to_string();
        let to = IntendedHost { host: name.clone(), port: RESOLVER_PORT };
        // A label may have any bytes, and the text of the name has only some of them.
        let labels: Vec<&[u8]> = question.qname.as_bytes().collect();
        let mut parts = vec![("name".to_owned(), labels.join(&b'.'))];
        let length = |label: &[u8]| [u8::try_from(label.len()).unwrap_or_default()];
        let mut plain: Vec<u8> = labels.iter().flat_map(|label| [&length(label), *label].concat()).collect();
        plain.push(0);
        let asks_only = query.len() == HEADER_BYTES + plain.len() + TYPE_AND_CLASS_BYTES
            && query.get(HEADER_BYTES..).is_some_and(|question| question.starts_with(&plain));
        if !asks_only {
            parts.push(("bytes".to_owned(), query.to_vec()));
        }
        self.traffic.record(MessageProtocol::Dns, &to, parts);
        let mut reply = Packet::new_reply(packet.id());
        reply.set_flags(PacketFlag::RECURSION_DESIRED | PacketFlag::RECURSION_AVAILABLE);
        *reply.rcode_mut() = RCODE::NoError;
        reply.questions.push(question.clone());
        if matches!(question.qtype, QTYPE::TYPE(TYPE::A) | QTYPE::ANY) {
            let record = RData::A(A { address: self.names.address_of(&name).into() });
            reply.answers.push(ResourceRecord::new(question.qname.clone(), CLASS::IN, TTL, record));
        }
        reply.build_bytes_vec_compressed().ok()
    }
}

/// Answers datagrams until the last call, and hears those that are waiting then.
pub(super) async fn serve(shared: Arc<Shared>, socket: UdpSocket, draining: CancellationToken) {
    let mut query = vec![0; MAX_QUERY_BYTES];
    while let Some(received) = draining.run_until_cancelled(socket.recv_from(&mut query)).await {
        let Ok((size, from)) = received else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if let Some(message) = query.get(..size).and_then(|query| shared.answer(query, None, MessageProtocol::Udp)) {
            // A client that went away meanwhile needs no answer.
            let _ = socket.send_to(&message, from).await;
        }
    }
    let Ok(socket) = socket.into_std() else { return };
    while let Ok((size, _)) = socket.recv_from(&mut query) {
        let _ = query.get(..size).and_then(|query| shared.answer(query, None, MessageProtocol::Udp));
    }
}

/// Answers the queries of one connection, each preceded by its length (RFC 7766).
pub(super) async fn serve_stream(shared: &Shared, to: &IntendedHost, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    while let Some(message) = one(shared, to, &mut stream).await {
        let size = u16::try_from(message.len()).unwrap_or_default().to_be_bytes();
        if stream.write_all(&[&size, &*message].concat()).await.is_err() {
            return;
        }
    }
}

async fn one(shared: &Shared, to: &IntendedHost, stream: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let size = usize::from(stream.read_u16().await.ok()?);
    let mut query = Vec::new();
    // One that ends early is kept, too.
    let _ = stream.take(size as u64).read_to_end(&mut query).await;
    shared.answer(&query, Some(to), MessageProtocol::Tcp)
}
