//! Which host a TLS handshake asks for. The handshake is read and passed on, never answered.

use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::HEAD_TIMEOUT;
use super::journal::Refusal;

/// The longest ClientHello, with the record around it. Keys for after quantum computers take 2 KiB, a session ticket as much.
const MAX_HELLO_BYTES: usize = 16 * 1024;

/// What the first bytes of a connection are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hello {
    /// The beginning of a ClientHello.
    Part,
    /// A ClientHello, and the server name in it (RFC 6066, section 3).
    Whole(Option<String>),
    /// Anything else.
    Other,
}

/// Reads the beginning of a connection as a ClientHello (RFC 8446, section 4.1.2), in one record or several.
#[must_use]
pub fn client_hello(bytes: &[u8]) -> Hello {
    if bytes.len() > MAX_HELLO_BYTES { Hello::Other } else { more(&mut Acceptor::default(), bytes) }
}

/// Reads on.
fn more(acceptor: &mut Acceptor, mut bytes: &[u8]) -> Hello {
    while !bytes.is_empty() {
        if !matches!(acceptor.read_tls(&mut bytes), Ok(1..)) {
            return Hello::Other;
        }
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => return Hello::Whole(accepted.client_hello().server_name().map(str::to_owned)),
            Err(_) => return Hello::Other,
        }
    }
    Hello::Part
}

/// Reads up to the end of the ClientHello, which must name `host`. Gives what was read.
pub(super) async fn expect(stream: &mut (impl AsyncRead + Unpin), host: &str) -> Result<Vec<u8>, Refusal> {
    let read = async {
        let mut acceptor = Acceptor::default();
        let mut bytes = Vec::with_capacity(2048);
        while bytes.len() <= MAX_HELLO_BYTES {
            let known = bytes.len();
            if !matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {
                break;
            }
            match more(&mut acceptor, bytes.get(known..).unwrap_or_default()) {
                Hello::Part => {}
                Hello::Whole(Some(name)) if name.eq_ignore_ascii_case(host) => return Ok(bytes),
                Hello::Whole(Some(name)) => return Err(Refusal::OtherName(name)),
                Hello::Whole(None) => return Err(Refusal::NoName),
                Hello::Other => break,
            }
        }
        Err(Refusal::NotTls)
    };
    tokio::time::timeout(HEAD_TIMEOUT, read).await.unwrap_or(Err(Refusal::NotTls))
}
