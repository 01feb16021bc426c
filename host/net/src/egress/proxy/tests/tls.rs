//! TLS connections, by their server names.

use proptest::prelude::*;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::super::journal::EgressRefusal;
use super::super::{ClientHelloState, client_hello, hello as handshake};
use super::*;

/// Returns the first bytes that a TLS client sends.
fn hello(name: &'static str) -> Vec<u8> {
    let config = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let mut client = ClientConnection::new(Arc::new(config), ServerName::try_from(name).unwrap()).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

#[tokio::test]
async fn a_handshake_that_names_the_host_is_carried_byte_for_byte() {
    let server = Server::echo().await;
    let world = World::of(&[("api.test:443", server.address)]);
    let cell = Cell::open(&["api.test:443"], &world, Reach::Private);
    for name in ["api.test", "API.test"] {
        let sent = hello(name);
        let mut stream = cell.connect("api.test", 443).await;
        for byte in &sent {
            stream.write_all(&[*byte]).await.unwrap();
        }
        let mut back = vec![0; sent.len()];
        stream.read_exact(&mut back).await.unwrap();
        assert_eq!(back, sent);
        stream.write_all(b"more").await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(rest(&mut stream).await, "more");
    }
    assert_eq!(cell.events(), ["allowed tls api.test:443"], "the second is a repeat");
}

#[tokio::test]
async fn any_other_beginning_is_refused_with_an_alert() {
    let server = Server::echo().await;
    let world = World::of(&[("api.test:443", server.address), ("b.test:443", server.address)]);
    let cell = Cell::open(&["api.test:443", "b.test:443"], &world, Reach::Private);
    let cut = hello("api.test")[..60].to_vec();
    for (bytes, why) in [
        (hello("b.test"), "the TLS handshake names another host, `b.test`"),
        (hello("evil.test"), "the TLS handshake names another host, `evil.test`"),
        (hello("192.0.2.1"), "the TLS handshake names no host"),
        (b"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n".to_vec(), "not a TLS handshake"),
        (cut, "not a TLS handshake"),
    ] {
        let mut stream = cell.connect("api.test", 443).await;
        stream.write_all(&bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut alert = [0; 7];
        stream.read_exact(&mut alert).await.unwrap();
        assert_eq!(alert, [21, 3, 3, 0, 2, 2, 49], "{why}");
        let told = cell.events().pop().unwrap();
        assert_eq!(told, format!("refused tls api.test:443 {why}"));
    }
    assert_eq!(server.heard(), Vec::<String>::new());
}

#[tokio::test]
async fn a_handshake_with_a_declared_address_names_no_host() {
    for address in ["203.0.113.7:443", "[2001:db8::7]:443"] {
        let to = address.parse().unwrap();
        let bytes = hello("203.0.113.7");
        assert_eq!(handshake::expect(&mut &*bytes, &to).await, Ok(bytes.clone()), "{address}");
        let named = handshake::expect(&mut &*hello("evil.test"), &to).await;
        assert_eq!(named, Err(EgressRefusal::OtherName("evil.test".to_owned())), "{address}");
    }
    // A source in a cell gets as far as the check of the address.
    let cell = Cell::open(&["127.77.0.1:443"], &World::of(&[]), Reach::Public);
    let mut stream = cell.connect_to([127, 77, 0, 1], 443).await;
    stream.write_all(&hello("127.77.0.1")).await.unwrap();
    assert_eq!(rest(&mut stream).await, "");
    let events = cell.events();
    assert!(
        events[0].starts_with("refused tls 127.77.0.1:443") && events[0].contains("a loopback address"),
        "{events:?}"
    );
}

#[test]
fn a_handshake_in_many_records_is_one() {
    let whole = hello("api.test");
    let mut pieces = Vec::new();
    for piece in whole[5..].chunks(7) {
        pieces.extend_from_slice(&[22, 3, 1, 0, u8::try_from(piece.len()).unwrap()]);
        pieces.extend_from_slice(piece);
    }
    assert_eq!(client_hello(&pieces), ClientHelloState::Whole(Some("api.test".into())));
    for end in 0..pieces.len() {
        assert_eq!(client_hello(&pieces[..end]), ClientHelloState::Part);
    }
}

#[test]
fn a_handshake_over_the_limit_is_refused() {
    // A record header that announces a message of 16 MiB, followed by endless records.
    let mut bytes = vec![22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff];
    bytes.resize(5 + 0x4000, 0);
    bytes.extend_from_slice(&[22, 3, 1, 0x40, 0]);
    assert_eq!(client_hello(&bytes), ClientHelloState::Other);
}

proptest! {
    #[test]
    fn changed_bytes_never_make_a_declared_name_of_another(at in 0..200_usize, byte in any::<u8>()) {
        let mut bytes = hello("evil.test");
        let at = at % bytes.len();
        bytes[at] = byte;
        prop_assert_ne!(client_hello(&bytes), ClientHelloState::Whole(Some("api.test".into())));
    }
}
