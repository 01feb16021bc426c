//! The egress of a component. A component runs in this process, without its own network and its listeners, so it calls
//! the host: for the addresses of a name, for a connection to one of them, for an HTTP request. Destinations that its
//! cell declares are allowed, as for a process; everything else is refused and recorded.
//!
//! A connection goes to the very address that was looked up and checked, so a name that resolves differently afterwards
//! (DNS rebinding) changes nothing. The bytes of a connection are not inspected, so none is made to a host name on the
//! ports of HTTP and TLS; HTTP requests are made here, to the host that they name.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock, Weak};

use portcullis_core::name::SourceName;
use portcullis_core::sync::Mutex;
use portcullis_ledger::Event;
use reqwest::{Request, Response};
use tokio::time::timeout;

use super::address::{AddressClass, AddressRefusal};
use super::dial::MAX_ADDRESSES;
use super::proxy::journal::{self, EgressLog, EgressRefusal, EgressService};
use super::{AllowedDestinations, CONNECT_TIMEOUT, Destination, Egress, EgressError, HttpClient, Reach, resolver};

/// The port with which a lookup of a name is recorded.
const DNS: u16 = 53;

/// The reason and the hint that are given for a host that is not declared.
const NOT_DECLARED: AddressRefusal =
    AddressRefusal { what: "not declared", hint: "add it to `network` in the source's cell if that is intended" };

/// The egress of one component. It reaches the declared destinations and nothing else, and those only at public
/// addresses, unless `reach` allows nearby ones.
pub struct ComponentEgress {
    declared: AllowedDestinations,
    egress: Egress,
    reach: Reach,
    journal: EgressLog,
    /// Created with the first request. All instances of the source share its connections.
    client: OnceLock<HttpClient>,
}

/// The names that one instance has looked up, with the addresses of the last answer.
#[derive(Debug, Default)]
pub struct LookedUpNames(Mutex<BTreeMap<String, Vec<IpAddr>>>);

impl ComponentEgress {
    /// Opens the network of a component through the egress of its source. Each attempt, allowed or refused, goes to
    /// `record`; repeats are counted and reported later.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn open(
        egress: Egress,
        source: &SourceName,
        declared: AllowedDestinations,
        reach: Reach,
        record: impl Fn(Event) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let journal = EgressLog::new(source, record);
        let egress = Arc::new(Self { declared, egress, reach, journal, client: OnceLock::new() });
        tokio::spawn(report_repeats(Arc::downgrade(&egress)));
        egress
    }

    /// Reports the repeats that were counted so far. Before the ledger is closed, which may be before the last instance
    /// of the component is gone.
    pub fn report(&self) {
        self.journal.report();
    }

    /// Returns the addresses of a declared name, all of them checked, and remembers them in `found`. Cancellation safe.
    ///
    /// # Errors
    /// [`EgressError::Refused`] for a name that is not declared or has an address that may not be reached;
    /// [`EgressError::Dns`].
    pub async fn look_up(&self, found: &LookedUpNames, name: &str) -> Result<Vec<IpAddr>, EgressError> {
        let Some(to) = Destination::new(name, DNS).filter(|to| self.declared.has_host(to.host())) else {
            self.journal.refused(EgressService::Dns, name, DNS, &EgressRefusal::NotDeclared);
            return Err(EgressError::refused(name, None, NOT_DECLARED));
        };
        if let Some(address) = to.address() {
            // It is checked when the connection is made.
            return Ok(vec![address]);
        }
        let asked = timeout(CONNECT_TIMEOUT, resolver::addresses(&*self.egress.lookup, to.host(), 0, self.reach)).await;
        let cause = || format!("no answer within {} s", CONNECT_TIMEOUT.as_secs());
        let asked = asked.unwrap_or_else(|_| Err(EgressError::Dns { host: to.host().to_owned(), cause: cause() }));
        let addresses = asked.inspect_err(|error| self.journal.not_made(EgressService::Dns, &to, error))?;
        let addresses: Vec<IpAddr> = addresses.iter().map(SocketAddr::ip).take(MAX_ADDRESSES).collect();
        found.lock().insert(to.host().to_owned(), addresses.clone());
        Ok(addresses)
    }

    /// Reports whether a socket may connect to this address: it was looked up for a name that is declared with this port,
    /// or is declared itself. On ports 80 and 443 it must be declared itself, because nothing checks which host the bytes
    /// of a socket name.
    pub fn admits(&self, found: &LookedUpNames, to: SocketAddr) -> bool {
        let (address, port) = (to.ip().to_canonical(), to.port());
        let via = EgressService::of(port);
        let named = found.names_of(address);
        let meant = named.iter().cloned().chain([written(address)]);
        let meant = meant.filter_map(|host| Destination::new(&host, port)).filter(|to| self.declared.contains(to));
        // Where an address is declared beside a name that has it, the address is meant.
        let Some(meant) = meant.max_by_key(Destination::allows_sockets) else {
            match named.first() {
                Some(name) => self.journal.refused(via, name, port, &EgressRefusal::NotDeclared),
                None => self.journal.refused(via, &address.to_string(), port, &EgressRefusal::RawAddress),
            }
            return false;
        };
        if !meant.allows_sockets() {
            self.journal.refused(via, meant.host(), port, &EgressRefusal::Socket);
            return false;
        }
        if let Some(objection) = AddressClass::of(address).objection(self.reach) {
            self.journal.not_made(via, &meant, &EgressError::refused(meant.host(), Some(address), objection));
            return false;
        }
        self.journal.allowed(via, &meant);
        true
    }

    /// Makes one request to a declared destination. It returns a redirect as the response; a component that follows it
    /// makes a new request. Dropping the future closes the connection (HTTP/1) or resets the stream (HTTP/2).
    ///
    /// # Errors
    /// [`EgressError`].
    pub async fn send(&self, request: Request) -> Result<Response, EgressError> {
        let url = request.url().clone();
        let via = if url.scheme() == "https" { EgressService::Tls } else { EgressService::Http };
        let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
        let Some(to) = Destination::new(host, port).filter(|to| self.declared.contains(to)) else {
            self.journal.refused(via, host, port, &EgressRefusal::NotDeclared);
            return Err(EgressError::refused(host, None, NOT_DECLARED));
        };
        let attempt = self.journal.begin(via, &to);
        let answered = async { self.client(&url)?.one_hop(request).await }.await;
        attempt.end(|journal| match &answered {
            Ok(_) => journal.allowed(via, &to),
            Err(error) => journal.not_made(via, &to, error),
        });
        answered
    }

    fn client(&self, url: &url::Url) -> Result<HttpClient, EgressError> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let made = self.egress.client_for(url, self.reach)?;
        Ok(self.client.get_or_init(|| made).clone())
    }
}

impl LookedUpNames {
    fn names_of(&self, address: IpAddr) -> Vec<String> {
        let found = self.lock();
        found.iter().filter(|(_, addresses)| addresses.contains(&address)).map(|(name, _)| name.clone()).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<IpAddr>>> {
        self.0.lock()
    }
}

impl Drop for ComponentEgress {
    fn drop(&mut self) {
        self.report();
    }
}

impl fmt::Debug for ComponentEgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ComponentEgress")
            .field("declared", &self.declared)
            .field("reach", &self.reach)
            .finish_non_exhaustive()
    }
}

/// Reports repeated attempts at intervals, for as long as the egress lives.
async fn report_repeats(egress: Weak<ComponentEgress>) {
    let mut pause = journal::PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        let Some(egress) = egress.upgrade() else { return };
        pause = egress.journal.report_and_pause(pause);
    }
}

/// Formats an address for use before a port.
fn written(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

#[cfg(test)]
mod tests;
