//! Names to addresses: looked up once per connection, all checked, and connected to as checked.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::address::Class;
use super::{EgressError, Reach};

/// Looks a name up.
#[async_trait]
pub(crate) trait Lookup: Send + Sync {
    /// All its addresses, with the port that is meant.
    async fn lookup(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// The system's resolver: `/etc/hosts`, DNS, whatever the machine is set up with.
pub(super) struct System;

#[async_trait]
impl Lookup for System {
    async fn lookup(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((name, port)).await?.collect())
    }
}

/// What the HTTP client asks before it connects. It connects to exactly the addresses that this returns, so a name that
/// changes its mind afterwards (rebinding) changes nothing.
pub(super) struct Guard {
    pub(super) lookup: Arc<dyn Lookup>,
    pub(super) reach: Reach,
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let (lookup, reach) = (Arc::clone(&self.lookup), self.reach);
        Box::pin(async move {
            // Port 0 becomes the URL's.
            let addresses = addresses(&*lookup, name.as_str(), 0, reach).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// The addresses of a name, all checked.
pub(super) async fn addresses(
    lookup: &dyn Lookup,
    name: &str,
    port: u16,
    reach: Reach,
) -> Result<Vec<SocketAddr>, EgressError> {
    let unknown = |cause: String| EgressError::Dns { host: name.to_owned(), cause };
    let addresses = lookup.lookup(name, port).await.map_err(|error| unknown(error.to_string()))?;
    if addresses.is_empty() {
        return Err(unknown("it has no address".to_owned()));
    }
    // One forbidden address spoils the name: an honest one does not mix them.
    for address in &addresses {
        if let Some(objection) = Class::of(address.ip()).objection(reach) {
            return Err(EgressError::refused(name, Some(address.ip()), objection));
        }
    }
    Ok(addresses)
}
