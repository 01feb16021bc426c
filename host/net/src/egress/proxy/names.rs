//! The cell's resolver. It answers only from the declared names: no query leaves the machine, so no name can carry data
//! out.

use std::sync::Arc;

use simple_dns::rdata::{A, RData};
use simple_dns::{CLASS, OPCODE, Packet, PacketFlag, QCLASS, QTYPE, RCODE, ResourceRecord, TYPE};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UdpSocket;

use super::journal::{EgressRefusal, EgressService};
use super::{ACCEPT_PAUSE, AllowedDestinations, HEAD_TIMEOUT, Shared};

/// The longest query, in bytes: one name of 255 bytes, and options.
const MAX_QUERY_BYTES: usize = 1024;

/// The time for which a client may cache an answer, in seconds. The answer is valid for as long as the cell lives.
const TTL: u32 = 60;

/// The reply to a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsReply {
    /// The DNS message.
    pub message: Vec<u8>,
    /// The name that was asked for, if it is not declared.
    pub refused: Option<String>,
}

impl AllowedDestinations {
    /// Answers a DNS query (RFC 1035): an address for a declared name, an empty answer for its other record types, and
    /// "no such name" for every other name. Returns `None` if the bytes cannot be a query.
    #[must_use]
    pub fn answer(&self, query: &[u8]) -> Option<DnsReply> {
        let [first, second, flags, ..] = *query.first_chunk::<12>()?;
        if flags & 0x80 != 0 {
            return None;
        }
        let id = u16::from_be_bytes([first, second]);
        let packet = Packet::parse(query).ok();
        let Some([question]) = packet.as_ref().map(|packet| packet.questions.as_slice()) else {
            return reply(id, RCODE::FormatError, |_| {}, None);
        };
        if packet.as_ref().is_some_and(|packet| packet.opcode() != OPCODE::StandardQuery) {
            return reply(id, RCODE::NotImplemented, |_| {}, None);
        }
        let name = question.qname.to_string();
        let in_class = matches!(question.qclass, QCLASS::CLASS(CLASS::IN) | QCLASS::ANY);
        let Some(address) = self.address_of(&name).filter(|_| in_class) else {
            return reply(id, RCODE::NameError, |reply| reply.questions.push(question.clone()), Some(name));
        };
        let fill = |reply: &mut Packet<'_>| {
            reply.questions.push(question.clone().into_owned());
            if matches!(question.qtype, QTYPE::TYPE(TYPE::A) | QTYPE::ANY) {
                let record = RData::A(A { address: address.into() });
                reply.answers.push(ResourceRecord::new(question.qname.clone().into_owned(), CLASS::IN, TTL, record));
            }
        };
        reply(id, RCODE::NoError, fill, None)
    }
}

fn reply<'a>(id: u16, code: RCODE, fill: impl FnOnce(&mut Packet<'a>), refused: Option<String>) -> Option<DnsReply> {
    let mut packet = Packet::new_reply(id);
    // Without the recursion flag, programs would ask another resolver.
    packet
        .set_flags(PacketFlag::AUTHORITATIVE_ANSWER | PacketFlag::RECURSION_DESIRED | PacketFlag::RECURSION_AVAILABLE);
    *packet.rcode_mut() = code;
    fill(&mut packet);
    let message = packet.build_bytes_vec_compressed().ok()?;
    Some(DnsReply { message, refused })
}

impl Shared {
    fn answer(&self, query: &[u8]) -> Option<Vec<u8>> {
        let DnsReply { message, refused } = self.declared.answer(query)?;
        if let Some(name) = refused {
            self.journal.refused(EgressService::Dns, &name, 53, &EgressRefusal::NotDeclared);
        }
        Some(message)
    }
}

/// Answers datagrams forever.
pub(super) async fn serve(shared: Arc<Shared>, socket: UdpSocket) {
    let mut query = [0; MAX_QUERY_BYTES];
    loop {
        let Ok((size, from)) = socket.recv_from(&mut query).await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if let Some(message) = query.get(..size).and_then(|query| shared.answer(query)) {
            // A client that went away meanwhile needs no answer.
            let _ = socket.send_to(&message, from).await;
        }
    }
}

/// Answers the queries of one connection, each preceded by its length (RFC 7766).
pub(super) async fn serve_stream(shared: &Shared, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    while let Ok(Some(message)) = tokio::time::timeout(HEAD_TIMEOUT, one(shared, &mut stream)).await {
        let size = u16::try_from(message.len()).unwrap_or_default().to_be_bytes();
        if stream.write_all(&[&size, &*message].concat()).await.is_err() {
            return;
        }
    }
}

async fn one(shared: &Shared, stream: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let size = usize::from(stream.read_u16().await.ok()?);
    let mut query = vec![0; Some(size).filter(|size| *size <= MAX_QUERY_BYTES)?];
    stream.read_exact(&mut query).await.ok()?;
    shared.answer(&query)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use std::net::Ipv4Addr;

    use simple_dns::{Name, Question};

    use super::*;

    fn declared() -> AllowedDestinations {
        ["api.test:443", "db.test:5432"].iter().map(|text| text.parse::<super::super::Destination>().unwrap()).collect()
    }

    fn query(names: &[(&str, TYPE)]) -> Vec<u8> {
        let mut packet = Packet::new_query(7);
        for (name, kind) in names {
            let name = Name::new(name).unwrap();
            packet.questions.push(Question::new(name, QTYPE::TYPE(*kind), QCLASS::CLASS(CLASS::IN), false));
        }
        packet.build_bytes_vec().unwrap()
    }

    fn ask(name: &str, kind: TYPE) -> (RCODE, Vec<Ipv4Addr>) {
        let reply = declared().answer(&query(&[(name, kind)])).unwrap();
        let packet = Packet::parse(&reply.message).unwrap();
        assert_eq!(
            (packet.id(), packet.questions[0].qname.to_string()),
            (7, name.to_owned()),
            "the question comes back"
        );
        let addresses = packet.answers.iter().map(|record| match &record.rdata {
            RData::A(a) => Ipv4Addr::from(a.address),
            other => unreachable!("{other:?}"),
        });
        assert_eq!(reply.refused.is_some(), packet.rcode() == RCODE::NameError);
        (packet.rcode(), addresses.collect())
    }

    #[test]
    fn declared_names_have_one_address_and_nothing_else() {
        for name in ["api.test", "API.tesT"] {
            assert_eq!(ask(name, TYPE::A), (RCODE::NoError, vec![Ipv4Addr::new(127, 64, 0, 1)]));
        }
        for kind in [TYPE::AAAA, TYPE::TXT, TYPE::MX, TYPE::HTTPS, TYPE::NS] {
            assert_eq!(ask("db.test", kind), (RCODE::NoError, vec![]), "{kind:?}");
        }
    }

    #[test]
    fn no_other_name_exists() {
        for name in
            ["evil.test", "c2VjcmV0.api.test", "test", "api.test.evil.test", "1.0.64.127.in-addr.arpa", r"api\.test"]
        {
            for kind in [TYPE::A, TYPE::AAAA, TYPE::TXT, TYPE::PTR] {
                assert_eq!(ask(name, kind), (RCODE::NameError, vec![]), "{name}");
            }
        }
    }

    #[test]
    fn malformed_queries_get_an_error_or_no_answer() {
        let code = |bytes: &[u8]| declared().answer(bytes).map(|reply| Packet::parse(&reply.message).unwrap().rcode());
        let good = query(&[("api.test", TYPE::A)]);
        assert_eq!(code(&good[..11]), None);
        assert_eq!(code(&good[..20]), Some(RCODE::FormatError));
        let reflected = declared().answer(&good).unwrap().message;
        assert_eq!(code(&reflected), None, "an answer is not answered");
        assert_eq!(code(&query(&[("api.test", TYPE::A), ("evil.test", TYPE::A)])), Some(RCODE::FormatError));
        assert_eq!(code(&query(&[])), Some(RCODE::FormatError));
        assert_eq!(code(&query(&[("api.test", TYPE::Unknown(60_000))])), Some(RCODE::FormatError));
        let mut update = good.clone();
        update[2] |= 5 << 3;
        assert_eq!(code(&update), Some(RCODE::NotImplemented));
        // This name contains a compression pointer to itself.
        let looped = [&good[..12], &[0xc0, 12, 0, 1, 0, 1]].concat();
        assert_eq!(code(&looped), Some(RCODE::FormatError));
    }
}
