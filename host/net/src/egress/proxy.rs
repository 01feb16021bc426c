//! The egress proxy: the only way from a cell to the network, by host name.
//!
//! A cell has its own network, with nothing in it except listeners that the launcher bound there and handed to the
//! broker. The broker serves them here: declared names resolve, connections to them are forwarded, and everything else
//! is refused and recorded. The source needs no configuration for this; a program that supports proxies may use one.
//!
//! The resolver gives each declared name a stand-in address on the cell's own loopback, so the address of a connection
//! identifies the intended name. On port 80 each request must name that host (`Host`), and on port 443 the handshake
//! must (SNI); TLS is not terminated. On other declared ports bytes pass unchanged, only to that host. On the outside
//! the name is resolved once per connection, the addresses are checked, and the connection goes to a checked one.
//!
//! The content of TLS cannot be seen: if a declared host also serves other hosts (a CDN), the source can request those
//! through it.

mod hello;
mod http;
mod idle;
pub(super) mod journal;
mod names;
mod proxy_destinations;
mod refused_hosts;
mod tunnel;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::iter;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as StdTcpListener, UdpSocket as StdUdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use portcullis_core::name::SourceName;
use portcullis_jail::Listener;
use portcullis_ledger::Event;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use hello::{ClientHelloState, client_hello};
pub use names::DnsReply;
pub use proxy_destinations::{AllowedDestinations, Destination, DestinationParseError};
pub use refused_hosts::RefusedHosts;

use super::{Egress, Reach};
use journal::{EgressLog, EgressRefusal, EgressService};

/// The largest number of connections that a source may have at once, in all its processes together. Browsers open six to
/// a host; at this number a source is leaking or attacking. Each takes two descriptors of the broker.
pub(super) const MAX_CONNECTIONS: usize = 256;

/// The longest time that a source's connection may take to name the host it is for.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest time that a source's connection may be idle. It is longer than servers keep event streams open without
/// sending anything.
const IDLE: Duration = Duration::from_secs(15 * 60);

/// The pause after `accept` failed, which happens when the broker has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The ports of the resolver and the proxy inside a cell, on 127.0.0.1. The proxy's is the most common one.
const RESOLVER_PORT: u16 = 53;
const PROXY_PORT: u16 = 3128;

/// The sockets that were bound inside a cell's network.
#[derive(Debug)]
pub struct ProxyListeners {
    resolver: StdUdpSocket,
    /// Each listener, with the port that the source sees.
    ports: Vec<(u16, StdTcpListener)>,
}

impl ProxyListeners {
    /// Returns the listeners that must be bound in a cell that may reach `declared`. They include ports that are not
    /// declared, so that attempts to use those are recorded.
    #[must_use]
    pub fn wanted(declared: &AllowedDestinations) -> Vec<Listener> {
        let all = |port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let resolver = Listener::udp(SocketAddr::from((Ipv4Addr::LOCALHOST, RESOLVER_PORT)));
        iter::once(resolver).chain(ports(declared).into_iter().map(|port| Listener::tcp(all(port)))).collect()
    }

    /// Takes the sockets that were bound, in the order of [`ProxyListeners::wanted`], or returns `None` if their number
    /// differs.
    #[must_use]
    pub fn bound(declared: &AllowedDestinations, descriptors: Vec<OwnedFd>) -> Option<Self> {
        let ports = ports(declared);
        if descriptors.len() != ports.len() + 1 {
            return None;
        }
        let mut descriptors = descriptors.into_iter();
        let resolver = descriptors.next()?.into();
        Some(Self { resolver, ports: ports.into_iter().zip(descriptors.map(Into::into)).collect() })
    }
}

/// Returns the TCP ports on which a cell listens: none if it may reach nothing, as the resolver is enough to record its
/// lookups.
fn ports(declared: &AllowedDestinations) -> BTreeSet<u16> {
    if declared.is_empty() {
        return BTreeSet::new();
    }
    declared.ports().chain([RESOLVER_PORT, 80, 443, PROXY_PORT]).collect()
}

/// The egress proxy of one cell, which serves its listeners. Dropping it ends every connection of the source.
pub struct EgressProxy {
    shared: Arc<Shared>,
}

/// The state that all tasks of a proxy share.
struct Shared {
    declared: AllowedDestinations,
    egress: Egress,
    reach: Reach,
    journal: EgressLog,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl EgressProxy {
    /// Serves the listeners of a source's cell. `egress` belongs to the source, whose processes share it. The proxy
    /// reaches the declared destinations and nothing else, and those only at public addresses, unless `reach` allows
    /// nearby ones. Each attempt, allowed or refused, goes to `record`; repeats are counted and reported later. Hosts
    /// that are not declared are also noted in `refused`.
    ///
    /// # Errors
    /// If a listener cannot be used.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn open(
        egress: Egress,
        source: &SourceName,
        listeners: ProxyListeners,
        declared: AllowedDestinations,
        reach: Reach,
        refused: Arc<RefusedHosts>,
        record: impl Fn(Event) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let journal = EgressLog::new(source, record).with_refused(refused);
        Self::serve(egress, journal, listeners, declared, reach)
    }

    fn serve(
        egress: Egress,
        journal: EgressLog,
        listeners: ProxyListeners,
        declared: AllowedDestinations,
        reach: Reach,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            declared,
            egress,
            reach,
            journal,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        let ProxyListeners { resolver, ports } = listeners;
        resolver.set_nonblocking(true)?;
        shared.spawn(names::serve(Arc::clone(&shared), UdpSocket::from_std(resolver)?));
        for (port, socket) in ports {
            socket.set_nonblocking(true)?;
            shared.spawn(accept(Arc::clone(&shared), TcpListener::from_std(socket)?, port));
        }
        shared.spawn(report_repeats(Arc::clone(&shared)));
        Ok(Self { shared })
    }

    /// Ends every connection and waits until their sockets are closed. If the future is dropped, they continue to
    /// close.
    pub async fn close(self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

impl fmt::Debug for EgressProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EgressProxy").field("declared", &self.shared.declared).finish_non_exhaustive()
    }
}

impl Drop for EgressProxy {
    fn drop(&mut self) {
        self.shared.stop.cancel();
        // The tasks may end only after the ledger has.
        self.shared.journal.give_up();
        self.shared.journal.report();
    }
}

impl Shared {
    /// Runs a task that ends with the proxy.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            stop.run_until_cancelled_owned(task).await;
        });
    }
}

/// Accepts the connections of one listener forever.
async fn accept(shared: Arc<Shared>, listener: TcpListener, port: u16) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(room) = Arc::clone(&shared.egress.connections).try_acquire_owned() else {
            shared.journal.refused(EgressService::of(port), "", port, &EgressRefusal::Full);
            continue;
        };
        let task = Arc::clone(&shared);
        shared.spawn(async move {
            let (stream, idle) = idle::watch(stream, IDLE);
            tokio::select! {
                () = connection(&task, stream, port) => {}
                () = idle => {}
            }
            drop(room);
        });
    }
}

async fn connection(shared: &Arc<Shared>, stream: idle::IdleTrackingStream<TcpStream>, port: u16) {
    let Ok(address) = stream.get_ref().local_addr() else { return };
    match (address.ip().to_canonical(), port) {
        (LOCALHOST, RESOLVER_PORT) => names::serve_stream(shared, stream).await,
        (LOCALHOST, PROXY_PORT) => http::serve(shared, stream, http::ProxyRole::Proxy).await,
        (address, port) => match shared.declared.at(address, port) {
            Ok(destination) => tunnel::forward(shared, stream, destination.clone(), None).await,
            Err(Some(name)) => shared.journal.refused(EgressService::of(port), name, port, &EgressRefusal::NotDeclared),
            Err(None) => {
                shared.journal.refused(EgressService::of(port), &address.to_string(), port, &EgressRefusal::RawAddress)
            }
        },
    }
}

/// Reports repeated attempts at intervals, for as long as the proxy lives.
async fn report_repeats(shared: Arc<Shared>) {
    let mut pause = journal::PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        pause = shared.journal.report_and_pause(pause);
    }
}

#[cfg(test)]
mod tests;
