#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::net::IpAddr;

use simple_dns::{CLASS, Name, Packet, QCLASS, QTYPE, Question, TYPE};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

/// A false internet on ports that the system chooses.
struct Cell {
    internet: FalseInternet,
    resolver: SocketAddr,
    ports: Vec<u16>,
    _guard: FalseInternetGuard,
}

fn cell() -> Cell {
    let resolver = StdUdpSocket::bind("127.0.0.1:0").unwrap();
    let at = resolver.local_addr().unwrap();
    let listeners: Vec<_> = PORTS.iter().map(|_| StdTcpListener::bind("0.0.0.0:0").unwrap()).collect();
    let ports = listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
    let all = std::iter::once(OwnedFd::from(resolver)).chain(listeners.into_iter().map(OwnedFd::from));
    let internet = FalseInternet::new(FalseAddresses::Loopback).unwrap();
    let guard = internet.serve(all.collect()).unwrap();
    Cell { internet, resolver: at, ports, _guard: guard }
}

impl Cell {
    /// Looks a name up, and connects to the port.
    async fn connect(&self, name: &str, port: u16) -> TcpStream {
        let mut query = Packet::new_query(7);
        let question = Question::new(Name::new(name).unwrap(), QTYPE::TYPE(TYPE::A), QCLASS::CLASS(CLASS::IN), false);
        query.questions.push(question);
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.send_to(&query.build_bytes_vec().unwrap(), self.resolver).await.unwrap();
        let mut answer = [0; 512];
        let size = socket.recv(&mut answer).await.unwrap();
        let packet = Packet::parse(&answer[..size]).unwrap();
        let simple_dns::rdata::RData::A(address) = &packet.answers[0].rdata else { unreachable!() };
        let at = PORTS.iter().position(|known| *known == port).unwrap();
        TcpStream::connect((IpAddr::from(Ipv4Addr::from(address.address)), self.ports[at])).await.unwrap()
    }

    fn seen(&self) -> Vec<String> {
        let text = |(name, part): &(String, Vec<u8>)| format!("{name}={}", String::from_utf8_lossy(part));
        let shown = |sent: &SentMessage| {
            format!(
                "{} {} {}",
                sent.channel.as_str(),
                sent.host,
                sent.parts.iter().map(text).collect::<Vec<_>>().join(" ")
            )
        };
        self.internet.sent().iter().map(shown).collect()
    }
}

const REQUEST: &str =
    "POST /a?b=c HTTP/1.1\r\nhost: evil.test\r\nx-key: v\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbody";

#[tokio::test]
async fn every_name_exists_and_every_request_is_kept_and_answered() {
    let cell = cell();
    let mut stream = cell.connect("evil.test", 80).await;
    stream.write_all(REQUEST.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("{}"), "{answer}");
    let seen = cell.seen();
    assert_eq!(seen[0], "DNS evil.test name=evil.test");
    assert!(seen[1].starts_with("HTTP evil.test path=POST /a?b=c header x-key=v"), "{seen:?}");
    assert!(seen[1].ends_with("body=body"), "{seen:?}");
}

#[tokio::test]
async fn a_request_inside_tls_is_kept_if_the_authority_is_trusted_and_its_host_if_not() {
    let cell = cell();
    for trusted in [true, false] {
        let mut roots = rustls::RootCertStore::empty();
        if trusted {
            use rustls::pki_types::pem::PemObject as _;
            let pem = cell.internet.certificate().as_bytes();
            roots.add(rustls::pki_types::CertificateDer::from_pem_slice(pem).unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = cell.connect("evil.test", 443).await;
        let name = "evil.test".try_into().unwrap();
        let Ok(mut stream) = connector.connect(name, stream).await else {
            assert!(!trusted);
            continue;
        };
        stream.write_all(REQUEST.as_bytes()).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    // The refused handshake is noted when its alert arrives.
    while cell.seen().len() < 4 {
        tokio::task::yield_now().await;
    }
    let seen = cell.seen();
    assert!(seen[1].starts_with("HTTPS evil.test path=POST /a?b=c") && seen[1].ends_with("body=body"), "{seen:?}");
    assert_eq!(seen[3], "TLS evil.test server name=evil.test");
}

#[tokio::test]
async fn what_is_neither_http_nor_tls_is_kept_as_it_is() {
    let cell = cell();
    let mut stream = cell.connect("evil.test", 4444).await;
    stream.write_all(b"\x01secret").await.unwrap();
    drop(stream);
    while cell.seen().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(cell.seen()[1], "TCP evil.test bytes=\u{1}secret");
}
