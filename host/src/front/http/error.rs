//! The errors with which the HTTP front does not start.

use std::io;
use std::net::SocketAddr;

use super::token::TokenError;
use crate::egress::EgressError;
use crate::name::ProfileName;

/// An error in starting the HTTP front.
///
/// # Example
/// ```
/// # async fn serve(broker: &portcullis::Broker) -> Result<(), Box<dyn std::error::Error>> {
/// use portcullis::{HttpFront, error::FrontError};
/// match HttpFront::bind(broker, "default".parse()?).await {
///     Err(FrontError::InUse(address)) => eprintln!("another program has {address}"),
///     Err(error) => return Err(error.into()),
///     Ok(front) => front.serve(std::future::pending()).await,
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrontError {
    /// Another program listens at the address.
    #[error("address {0} is in use by another program; stop that one, or set another `listen` under [serve]")]
    InUse(SocketAddr),
    /// The front cannot listen at the address for another reason.
    #[error("cannot listen on {address}, set as `listen` under [serve]: {error}")]
    Listen {
        /// The configured address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// Neither a token nor `dangerous-no-token` is configured.
    #[error("the HTTP front has no bearer token; set `token` under [serve], or `dangerous-no-token = true`")]
    NoToken,
    /// No token is asked for, and other machines can reach the address.
    #[error(
        "`dangerous-no-token` under [serve] is refused with `listen` at {0}, which other machines can reach; listen on \
         a loopback address, or use a token"
    )]
    Exposed(SocketAddr),
    /// The front is to serve a profile that the configuration does not have.
    #[error("no profile `{profile}` is configured; the configuration has {}", .known.join(", "))]
    UnknownProfile {
        /// The profile that was asked for.
        profile: ProfileName,
        /// The profiles of the configuration.
        known: Vec<String>,
    },
    /// The front is mounted in another server, and the configuration does not say how that is reached.
    #[error(
        "`listen` under [serve] is {0}: the system chooses a port for 0, so no client can know it; set `listen` to the \
         address at which the program's own server listens, or `hosts` to the names under which it is called"
    )]
    NoPort(SocketAddr),
    /// The tokens cannot be read.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The configuration names an issuer, and the program is built without the feature `jwt`.
    #[error("[serve.jwt] needs the feature `jwt` of the library, without which this program was built; leave it out")]
    NoJwt,
    /// The issuer's keys cannot be requested.
    #[error("`keys` under [serve.jwt]: {0}")]
    Keys(EgressError),
}
