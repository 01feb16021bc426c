//! A connection that is forwarded to a declared destination.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::super::EgressError;
use super::journal::EgressService;
use super::{Destination, Shared, hello, http};

/// The size of the buffer for each direction of a connection, in bytes.
const BUFFER_BYTES: usize = 16 * 1024;

/// The TLS alert `access_denied`, fatal (RFC 8446, section 6.2), so that a refused handshake fails at once with a
/// reason.
const TLS_ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// Forwards a connection until either side ends it. Its port determines what the first bytes must be. `dialled` is a
/// connection to the destination that was already made.
pub(super) async fn forward<S>(shared: &Arc<Shared>, stream: S, to: Destination, dialled: Option<TcpStream>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match EgressService::of(to.port()) {
        EgressService::Http => http::serve(shared, stream, http::ProxyRole::Origin { host: to, dialled }).await,
        EgressService::Tls => tls(shared, stream, &to, dialled).await,
        via => {
            if let Ok(upstream) = shared.dial(via, &to, dialled).await {
                copy_both(stream, upstream).await;
            }
        }
    }
}

async fn tls<S>(shared: &Shared, mut stream: S, to: &Destination, dialled: Option<TcpStream>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match hello::expect(&mut stream, to).await {
        Ok(hello) => {
            let Ok(mut upstream) = shared.dial(EgressService::Tls, to, dialled).await else { return };
            if upstream.write_all(&hello).await.is_ok() {
                copy_both(stream, upstream).await;
            }
        }
        Err(refusal) => {
            shared.journal.refused(EgressService::Tls, to.host(), to.port(), &refusal);
            // The connection is refused even if the alert does not arrive.
            let _ = stream.write_all(&TLS_ACCESS_DENIED).await;
            let _ = stream.shutdown().await;
        }
    }
}

/// Copies bytes in both directions, each until its end.
pub(super) async fn copy_both(
    mut near: impl AsyncRead + AsyncWrite + Unpin,
    mut far: impl AsyncRead + AsyncWrite + Unpin,
) {
    // How a connection ends is up to its two sides, and its content is not inspected.
    let _ = tokio::io::copy_bidirectional_with_sizes(&mut near, &mut far, BUFFER_BYTES, BUFFER_BYTES).await;
}

impl Shared {
    /// Connects to a declared destination and records the attempt.
    pub(super) async fn dial(
        &self,
        via: EgressService,
        to: &Destination,
        dialled: Option<TcpStream>,
    ) -> Result<TcpStream, EgressError> {
        if let Some(stream) = dialled {
            return Ok(stream);
        }
        let reach = self.declared.reach(to, self.reach);
        let attempt = self.journal.begin(via, to);
        let connected = self.egress.connect(to.host(), to.port(), reach).await;
        attempt.end(|journal| match &connected {
            Ok(_) => journal.allowed(via, to),
            Err(error) => journal.not_made(via, to, error),
        });
        connected
    }
}
