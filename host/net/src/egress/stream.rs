//! Connections to servers that speak no HTTP, to which the broker writes on its own behalf.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::{CONNECT_TIMEOUT, Egress, EgressError, Reach};

/// A connection, over TLS or without it.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

impl Egress {
    /// Connects to a port of a host that the operator named, so that it may be at a private address. With `tls`, the
    /// server's certificate is checked as for HTTP. Waits for 20 seconds at most. Dropping the future closes the
    /// connection.
    ///
    /// # Errors
    /// [`EgressError`].
    pub async fn stream_to(&self, host: &str, port: u16, tls: bool) -> Result<Box<dyn ByteStream>, EgressError> {
        let failed = |cause: String| EgressError::Connect { url: format!("{host}:{port}"), cause };
        let tcp = self.connect(host, port, Reach::Private).await?;
        if !tls {
            return Ok(Box::new(tcp));
        }
        let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(error.to_string()))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.and_then(|builder| builder.with_platform_verifier());
        let config = config.map_err(|error| EgressError::Certificates(error.to_string()))?.with_no_client_auth();
        let connected = timeout(CONNECT_TIMEOUT, TlsConnector::from(Arc::new(config)).connect(name, tcp)).await;
        let connected = connected.map_err(|_| failed(format!("no TLS within {} s", CONNECT_TIMEOUT.as_secs())))?;
        Ok(Box::new(connected.map_err(|error| failed(error.to_string()))?))
    }
}
