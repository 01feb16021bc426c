//! The server name in a TLS handshake. The handshake is read and forwarded, never answered.

use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::journal::EgressRefusal;
use super::{Destination, HEAD_TIMEOUT};

/// The longest ClientHello, including its record headers, in bytes. Post-quantum keys take 2 KiB, and a session ticket
/// as much.
const MAX_HELLO_BYTES: usize = 16 * 1024;

/// The kind of the first bytes of a connection: whether they are a ClientHello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientHelloState {
    /// The beginning of a ClientHello that is not complete yet.
    Part,
    /// A complete ClientHello, with its server name if it has one (RFC 6066, section 3).
    Whole(Option<String>),
    /// Anything else, or more bytes than the longest ClientHello that is read.
    Other,
}

/// Parses the beginning of a connection as a ClientHello (RFC 8446, section 4.1.2), in one record or several.
#[must_use]
pub fn client_hello(bytes: &[u8]) -> ClientHelloState {
    if bytes.len() > MAX_HELLO_BYTES { ClientHelloState::Other } else { more(&mut Acceptor::default(), bytes) }
}

/// Feeds further bytes to the parser.
fn more(acceptor: &mut Acceptor, mut bytes: &[u8]) -> ClientHelloState {
    while !bytes.is_empty() {
        if !matches!(acceptor.read_tls(&mut bytes), Ok(1..)) {
            return ClientHelloState::Other;
        }
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                return ClientHelloState::Whole(accepted.client_hello().server_name().map(str::to_owned));
            }
            Err(_) => return ClientHelloState::Other,
        }
    }
    ClientHelloState::Part
}

/// Reads up to the end of the ClientHello, which must name the host of `to`, and returns the bytes that were read. A
/// host that is an address is not named: RFC 6066, section 3, allows no addresses there.
pub(super) async fn expect(stream: &mut (impl AsyncRead + Unpin), to: &Destination) -> Result<Vec<u8>, EgressRefusal> {
    let read = async {
        let mut acceptor = Acceptor::default();
        let mut bytes = Vec::with_capacity(2048);
        while bytes.len() <= MAX_HELLO_BYTES {
            let known = bytes.len();
            if !matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {
                break;
            }
            match more(&mut acceptor, bytes.get(known..).unwrap_or_default()) {
                ClientHelloState::Part => {}
                ClientHelloState::Whole(Some(name)) if name.eq_ignore_ascii_case(to.host()) => return Ok(bytes),
                ClientHelloState::Whole(Some(name)) => return Err(EgressRefusal::OtherName(name)),
                ClientHelloState::Whole(None) if to.address().is_some() => return Ok(bytes),
                ClientHelloState::Whole(None) => return Err(EgressRefusal::NoName),
                ClientHelloState::Other => break,
            }
        }
        Err(EgressRefusal::NotTls)
    };
    tokio::time::timeout(HEAD_TIMEOUT, read).await.unwrap_or(Err(EgressRefusal::NotTls))
}
