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
    guard: FalseInternetGuard,
}

fn cell() -> Cell {
    let resolver = StdUdpSocket::bind("127.0.0.1:0").unwrap();
    let at = resolver.local_addr().unwrap();
    let listeners: Vec<_> = PORTS.iter().map(|_| StdTcpListener::bind("0.0.0.0:0").unwrap()).collect();
    let ports = listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
    let all = std::iter::once(OwnedFd::from(resolver)).chain(listeners.into_iter().map(OwnedFd::from));
    let internet = FalseInternet::new(FalseAddresses::Loopback).unwrap();
    let guard = internet.serve(all.collect()).unwrap();
    Cell { internet, resolver: at, ports, guard }
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
    assert!(seen[1].starts_with("HTTP evil.test path=POST /a?b=c header host=evil.test header x-key=v"), "{seen:?}");
    assert!(seen[1].ends_with("names of headers=host x-key content-length connection body=body"), "{seen:?}");
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
    assert!(seen[1].contains(" server name=evil.test handshake=\u{16}"), "what the handshake says is kept: {seen:?}");
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

/// Sends these bytes to a port of a host, and closes the connection unless it is held.
async fn say(cell: &Cell, host: &str, port: u16, bytes: &[u8]) -> TcpStream {
    let mut stream = cell.connect(host, port).await;
    stream.write_all(bytes).await.unwrap();
    stream
}

#[tokio::test]
async fn a_protocol_that_begins_like_a_request_is_kept_as_it_is() {
    let headers: String = (0..1100).map(|at| format!("x-{at}: a\r\n")).collect();
    let request = format!("GET / HTTP/1.1\r\nhost: evil.test\r\n{headers}x-key: secret\r\n\r\n");
    let cut = "POST / HTTP/1.1\r\nhost: evil.test\r\ncontent-length: 400\r\n\r\nsecret".to_owned();
    // Between the chunks of a request that is understood, and behind what begins like TLS.
    let between =
        "POST / HTTP/1.1\r\nhost: evil.test\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0;x=secret\r\n\r\n";
    let others = ["NICK secret\r\nUSER secret\r\n", "helo secret\r\n", between, "\u{16}secret, no handshake"];
    for said in others.map(str::to_owned).into_iter().chain([request, cut]) {
        let cell = cell();
        drop(say(&cell, "evil.test", 6667, said.as_bytes()).await);
        cell.guard.finish().await;
        let sent = cell.internet.sent();
        assert!(
            sent.iter()
                .any(|sent| sent.parts.iter().any(|(_, part)| part.ends_with(&said.as_bytes()[said.len() - 9..]))),
            "{said:.30}: {sent:?}"
        );
    }
}

/// Sends a request in these pieces and returns every part of it that was kept.
async fn kept_of(pieces: &[&str], stays_open: bool) -> Vec<String> {
    let cell = cell();
    let mut stream = cell.connect("evil.test", 80).await;
    // A piece that waits for the acknowledgement of the one before would be lost with the connection.
    stream.set_nodelay(true).unwrap();
    for piece in pieces {
        // A listener that has heard enough may have closed the connection, which must not happen.
        let _ = stream.write_all(piece.as_bytes()).await;
        // Lets the other side take each piece separately.
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }
    let open = stays_open.then_some(stream);
    cell.guard.finish().await;
    drop(open);
    let sent = cell.internet.sent();
    sent.iter().flat_map(|sent| &sent.parts).map(|(_, part)| String::from_utf8_lossy(part).into_owned()).collect()
}

const CHUNKED: &str = "transfer-encoding: chunked\r\n";

#[tokio::test]
async fn a_body_is_kept_whole_whatever_says_where_it_ends() {
    for (version, header, pieces) in [
        ("1.1", CHUNKED, &["4\r\nmy-s\r\n", "3;a=b\r\necr\r\n", "6\r\net-key\r\n0\r\n\r\n"][..]),
        ("1.1", CHUNKED, &["4\r\nmy-s\r\n3\r\necr\r\n", "6\r\net-key\r\n"]),
        ("1.1", CHUNKED, &["4\r\nmy-s\r\n", "ff\r\necret-key"]),
        ("1.0", CHUNKED, &["4\r\nmy-s\r\n", "3\r\necr\r\n", "6\r\net-key\r\n0\r\n\r\n"]),
        ("1.1", "transfer-encoding: gzip, identity\r\n", &["my-s", "ecret-key"]),
        ("1.1", "connection: close\r\n", &["my-s", "ecret-key"]),
        ("1.1", "", &["my-s", "ecret-key"]),
        ("1.0", "", &["my-s", "ecret-key"]),
        ("1.0", "content-length: 4\r\n", &["my-s", "ecret-key"]),
        ("1.0", "content-length: 13\r\n", &["my-s", "ecret-key"]),
        ("1.1", "content-length: 400\r\n", &["my-s", "ecret-key"]),
    ] {
        let head = format!("POST /a HTTP/{version}\r\nhost: evil.test\r\n{header}\r\n");
        let all = format!("{head}{}", pieces.concat());
        for pieces in [[&[&*head], pieces].concat(), vec![&*head, &*pieces.concat()], vec![&*all]] {
            let kept = kept_of(&pieces, false).await;
            assert!(kept.iter().any(|part| part.contains("my-secret-key")), "{pieces:?}: {kept:?}");
        }
    }
}

#[tokio::test]
async fn a_body_that_never_ends_is_kept_whole() {
    let head = |version, header| format!("POST /a HTTP/{version}\r\nhost: evil.test\r\n{header}\r\n");
    let (chunked, plain) = (head("1.1", CHUNKED), head("1.0", ""));
    let chunked = [&*chunked, "4\r\nmy-s\r\n", "3\r\necr\r\n", "6\r\net-key\r\n"];
    let plain = [&*plain, "my-s", "ecret-key"];
    let (chunked, plain) = tokio::join!(kept_of(&chunked, true), kept_of(&plain, true));
    for kept in [chunked, plain] {
        assert!(kept.iter().any(|part| part.contains("my-secret-key")), "{kept:?}");
    }
}

#[tokio::test]
async fn what_is_said_on_a_connection_that_stays_open_is_kept() {
    let cell = cell();
    let _open = say(&cell, "evil.test", 4444, b"\x01secret").await;
    let _half = say(&cell, "evil.test", 80, b"GET /secret").await;
    cell.guard.finish().await;
    let shown: Vec<String> = cell.internet.sent().iter().map(|sent| format!("{:?}", sent.parts)).collect();
    let wanted = |bytes: &[u8]| format!("{:?}", [("bytes".to_owned(), bytes.to_vec())]);
    assert!(shown.contains(&wanted(b"\x01secret")) && shown.contains(&wanted(b"GET /secret")), "{shown:?}");
}

#[tokio::test]
async fn a_datagram_that_is_no_query_is_kept() {
    let cell = cell();
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let long = [b"\xffsecret".as_slice(), &[0; 2000]].concat();
    socket.send_to(&long, cell.resolver).await.unwrap();
    cell.guard.finish().await;
    let sent = cell.internet.sent();
    assert_eq!((sent[0].channel, &sent[0].parts[0].1), (MessageProtocol::Udp, &long));
}

/// Sends a query of one name, whose labels are these bytes, with more behind the question.
async fn ask(cell: &Cell, labels: &[&[u8]], more: &[u8]) -> Vec<u8> {
    let labels = labels.iter().flat_map(|label| [&[u8::try_from(label.len()).unwrap()][..], label].concat());
    let name: Vec<u8> = labels.chain([0]).collect();
    let records = u8::from(!more.is_empty());
    let query = [&[0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, records][..], &name, &[0, 1, 0, 1], more].concat();
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(&query, cell.resolver).await.unwrap();
    let size = socket.recv(&mut [0; 1024]).await.unwrap();
    assert!(size > 12, "it is answered");
    query
}

#[tokio::test]
async fn what_a_query_says_beside_the_name_is_kept() {
    let cell = cell();
    ask(&cell, &[b"evil", b"test"], b"").await;
    // An option of the resolver's own extension (RFC 6891), which nobody knows.
    let option = [&[0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 13, 0xff, 0xff, 0, 9][..], b"my-secret"].concat();
    let extended = ask(&cell, &[b"evil", b"test"], &option).await;
    ask(&cell, &[b"\xff\xfesecret", b"test"], b"").await;
    cell.guard.finish().await;
    let sent: Vec<_> = cell.internet.sent().into_iter().map(|sent| sent.parts).collect();
    let name = |name: &[u8]| ("name".to_owned(), name.to_vec());
    assert_eq!(sent[0], [name(b"evil.test")], "a query of a name alone says no more");
    assert_eq!(sent[1], [name(b"evil.test"), ("bytes".to_owned(), extended)]);
    assert_eq!(sent[2], [name(b"\xff\xfesecret.test")]);
}

#[tokio::test]
async fn a_request_that_names_another_host_was_sent_to_both_and_its_host_is_kept() {
    let cell = cell();
    let request = REQUEST.replace("evil.test", "api.github.com");
    let _ = say(&cell, "evil.test", 80, request.as_bytes()).await.read_to_end(&mut Vec::new()).await;
    let seen = cell.seen();
    for host in ["evil.test", "api.github.com"] {
        let start = format!("HTTP {host} path=POST /a?b=c header host=api.github.com");
        assert!(seen.iter().any(|seen| seen.starts_with(&start)), "{host}: {seen:?}");
    }
}

#[tokio::test]
async fn a_flood_of_names_leaves_room_for_what_is_sent_and_is_counted() {
    let shared = Traffic::default();
    let to = |host: String| IntendedHost { host, port: 53 };
    for at in 0..9000 {
        shared.record(MessageProtocol::Dns, &to(format!("n{at}.test")), Vec::new());
        shared.record(MessageProtocol::Http, &to("flood.test".to_owned()), Vec::new());
    }
    assert!(shared.others() > 0);
    shared.record(MessageProtocol::Http, &to("evil.test".to_owned()), vec![("body".to_owned(), b"secret".to_vec())]);
    assert_eq!(shared.sent().last().unwrap().host, "evil.test");
}

#[tokio::test]
async fn a_source_that_looks_up_very_many_names_fills_no_memory_and_hides_no_host() {
    let names = FalseNames::new(FalseAddresses::Public);
    let first = names.address_of("First.test");
    let addresses: Vec<_> = (0..20_000).map(|at| names.address_of(&format!("n{at}.test"))).collect();
    assert_eq!(names.name_of(first).as_deref(), Some("first.test"));
    assert_eq!((names.address_of("first.test"), names.name_of(addresses[9]).as_deref()), (first, Some("n9.test")));
    let last = addresses[19_999];
    assert_eq!(names.name_of(last).as_deref(), Some("one of too many names"));
    assert!(names.known.lock().by_name.len() < 5000);
}

#[tokio::test]
async fn what_is_said_beyond_what_is_kept_is_counted() {
    let cell = cell();
    let long = vec![b'a'; 300 * 1024];
    let head =
        format!("POST / HTTP/1.1\r\nhost: evil.test\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", long.len());
    let request = [head.as_bytes(), &long].concat();
    let _ = say(&cell, "evil.test", 80, &request).await.read_to_end(&mut Vec::new()).await;
    assert_eq!(cell.internet.others(), 1, "of a body");
    drop(say(&cell, "evil.test", 4444, &[&[1], &*long].concat()).await);
    cell.guard.finish().await;
    assert_eq!(cell.internet.others(), 2, "of a connection");
}
