//! TCP connections to checked addresses.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::future::select_ok;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::address::AddressClass;
use super::{CONNECT_TIMEOUT, Egress, EgressError, Reach, resolver};

/// The head start of each address before the next is attempted too (RFC 8305, section 5).
const STAGGER: Duration = Duration::from_millis(250);

/// The largest number of addresses of a name that are attempted. The fifth would start after a second, which is too
/// late for a waiting caller.
pub(super) const MAX_ADDRESSES: usize = 4;

impl Egress {
    /// Connects to a port of a host, given by name or address. A name is resolved once; a single forbidden address
    /// among its answers refuses it, and the connection goes to one of the checked addresses.
    ///
    /// # Errors
    /// [`EgressError`].
    pub(super) async fn connect(&self, host: &str, port: u16, reach: Reach) -> Result<TcpStream, EgressError> {
        let failed = |cause: String| EgressError::Connect { url: format!("{host}:{port}"), cause };
        let connected = timeout(CONNECT_TIMEOUT, async {
            let addresses = match host.parse::<IpAddr>() {
                Ok(address) => match AddressClass::of(address).objection(reach) {
                    None => vec![SocketAddr::new(address, port)],
                    Some(objection) => return Err(EgressError::refused(host, Some(address), objection)),
                },
                Err(_) => resolver::addresses(&*self.lookup, host, port, reach).await?,
            };
            let attempts = addresses.into_iter().take(MAX_ADDRESSES).zip(0..).map(|(address, turn)| {
                Box::pin(async move {
                    sleep(STAGGER * turn).await;
                    TcpStream::connect(address).await
                })
            });
            let (stream, _) = select_ok(attempts).await.map_err(|error| failed(error.to_string()))?;
            // Without `TCP_NODELAY` small requests wait for acknowledgements; if it cannot be set, they simply do.
            let _ = stream.set_nodelay(true);
            Ok(stream)
        });
        connected.await.unwrap_or_else(|_| Err(failed(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()))))
    }
}
