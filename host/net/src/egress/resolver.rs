//! Name resolution: a name is looked up once per connection, all its addresses are checked, and only checked addresses
//! are used.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::address::AddressClass;
use super::{EgressError, Reach};

/// A resolver of names.
#[async_trait]
pub(crate) trait NameResolver: Send + Sync {
    /// Returns all addresses of a name, each with the given port.
    async fn lookup(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// The resolver that the HTTP client asks before it connects. The client connects to exactly the addresses that this
/// returns, so a name that resolves differently afterwards (DNS rebinding) changes nothing.
pub(super) struct GuardedResolver {
    pub(super) lookup: Arc<dyn NameResolver>,
    pub(super) reach: Reach,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (lookup, reach) = (Arc::clone(&self.lookup), self.reach);
        Box::pin(async move {
            // The HTTP client replaces port 0 with the URL's port.
            let addresses = addresses(&*lookup, name.as_str(), 0, reach).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Returns the addresses of a name, all of them checked.
pub(super) async fn addresses(
    lookup: &dyn NameResolver,
    name: &str,
    port: u16,
    reach: Reach,
) -> Result<Vec<SocketAddr>, EgressError> {
    let unknown = |cause: String| EgressError::Dns { host: name.to_owned(), cause };
    let addresses = lookup.lookup(name, port).await.map_err(|error| unknown(error.to_string()))?;
    if addresses.is_empty() {
        return Err(unknown("it has no address".to_owned()));
    }
    // A single forbidden address refuses the whole name: a legitimate name does not mix them.
    for address in &addresses {
        if let Some(objection) = AddressClass::of(address.ip()).objection(reach) {
            return Err(EgressError::refused(name, Some(address.ip()), objection));
        }
    }
    Ok(addresses)
}
