//! The way out of a cell, by name.
//!
//! A cell has a network of its own, with nothing in it but listeners that the launcher bound there and handed to the broker.
//! Here the broker answers on them: names that are declared resolve, connections to them are carried, and everything else
//! is refused and recorded. The source needs to know nothing of this; a program that knows proxies may use one.
//!
//! The resolver gives each declared name a stand-in address of the cell's own loopback, so the address that a connection
//! was made to says which name was meant. On port 80 each request must name that host (`Host`), on port 443 the handshake
//! must (SNI); TLS is not terminated. On other declared ports bytes pass as they are, to that host alone. Outside, the name is
//! looked up once per connection, the addresses are checked, and the connection goes to a checked one.
//!
//! What is inside TLS cannot be seen: a declared host that serves others too (a content network) can be asked for them there.

mod declared;
mod hello;
mod http;
mod idle;
pub(super) mod journal;
mod names;
mod tunnel;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::iter;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as StdTcpListener, UdpSocket as StdUdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use portcullis_jail::Listener;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use declared::{Declared, Destination, NoDestination};
pub use hello::{Hello, client_hello};
pub use names::Reply;

use super::{Egress, Reach};
use crate::ledger::Event;
use crate::name::SourceName;
use journal::{Journal, Refusal, Via};

/// Connections of a source at once. Browsers open six to a host; at this number a source is leaking or attacking.
const MAX_CONNECTIONS: usize = 256;

/// How long a connection may take to say what it wants.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a connection may carry nothing. Longer than servers hold event streams without a sign of life.
const IDLE: Duration = Duration::from_secs(15 * 60);

/// The pause after a listener failed, which happens when the broker has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Where the resolver and the proxy are inside a cell, on 127.0.0.1. The proxy's is the port that most are found on.
const RESOLVER_PORT: u16 = 53;
const PROXY_PORT: u16 = 3128;

/// The sockets inside a cell's network.
#[derive(Debug)]
pub struct Listeners {
    resolver: StdUdpSocket,
    /// With the port that the source sees.
    ports: Vec<(u16, StdTcpListener)>,
}

impl Listeners {
    /// What must be bound in a cell that may reach `declared`. Ports that are not declared are among them, so that what is
    /// tried there is recorded.
    #[must_use]
    pub fn wanted(declared: &Declared) -> Vec<Listener> {
        let all = |port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let resolver = Listener::udp(SocketAddr::from((Ipv4Addr::LOCALHOST, RESOLVER_PORT)));
        iter::once(resolver).chain(ports(declared).into_iter().map(|port| Listener::tcp(all(port)))).collect()
    }

    /// The sockets that were bound, in the order of [`Listeners::wanted`]. None if it is another number of them.
    #[must_use]
    pub fn bound(declared: &Declared, descriptors: Vec<OwnedFd>) -> Option<Self> {
        let ports = ports(declared);
        if descriptors.len() != ports.len() + 1 {
            return None;
        }
        let mut descriptors = descriptors.into_iter();
        let resolver = descriptors.next()?.into();
        Some(Self { resolver, ports: ports.into_iter().zip(descriptors.map(Into::into)).collect() })
    }
}

/// The TCP ports of a cell.
fn ports(declared: &Declared) -> BTreeSet<u16> {
    declared.ports().chain([RESOLVER_PORT, 80, 443, PROXY_PORT]).collect()
}

/// The served listeners of one cell. Dropping it ends every connection of the source.
pub struct EgressProxy {
    shared: Arc<Shared>,
}

/// What all tasks of a proxy share.
struct Shared {
    declared: Declared,
    egress: Egress,
    reach: Reach,
    journal: Journal,
    tasks: TaskTracker,
    stop: CancellationToken,
    room: Arc<Semaphore>,
}

impl EgressProxy {
    /// Serves the listeners of a source's cell. A fresh proxy leads to the declared destinations and nowhere else, and to
    /// none of them whose address is not public, unless `reach` opens what is near. Each attempt, carried or refused, goes to
    /// `record`; repeats are counted and told later.
    ///
    /// # Errors
    /// If a listener cannot be used.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn open(
        source: &SourceName,
        listeners: Listeners,
        declared: Declared,
        reach: Reach,
        record: impl Fn(Event) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::serve(Egress::new(), Journal::new(source, record), listeners, declared, reach)
    }

    fn serve(
        egress: Egress,
        journal: Journal,
        listeners: Listeners,
        declared: Declared,
        reach: Reach,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            declared,
            egress,
            reach,
            journal,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            room: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
        });
        let Listeners { resolver, ports } = listeners;
        resolver.set_nonblocking(true)?;
        shared.spawn(names::serve(Arc::clone(&shared), UdpSocket::from_std(resolver)?));
        for (port, socket) in ports {
            socket.set_nonblocking(true)?;
            shared.spawn(accept(Arc::clone(&shared), TcpListener::from_std(socket)?, port));
        }
        shared.spawn(tell_repeats(Arc::clone(&shared)));
        Ok(Self { shared })
    }

    /// Ends every connection and waits until their sockets are closed. Dropping the future leaves them closing.
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
        self.shared.journal.tell();
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

/// Accepts the connections of one listener for ever.
async fn accept(shared: Arc<Shared>, listener: TcpListener, port: u16) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(room) = Arc::clone(&shared.room).try_acquire_owned() else {
            shared.journal.refused(Via::of(port), "", port, &Refusal::Full);
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

async fn connection(shared: &Arc<Shared>, stream: idle::Watched<TcpStream>, port: u16) {
    let Ok(address) = stream.get_ref().local_addr() else { return };
    match (address.ip().to_canonical(), port) {
        (LOCALHOST, RESOLVER_PORT) => names::serve_stream(shared, stream).await,
        (LOCALHOST, PROXY_PORT) => http::serve(shared, stream, http::Role::Proxy).await,
        (address, port) => match shared.declared.at(address, port) {
            Ok(destination) => tunnel::forward(shared, stream, destination.clone(), None).await,
            Err(Some(name)) => shared.journal.refused(Via::of(port), name, port, &Refusal::NotDeclared),
            Err(None) => shared.journal.refused(Via::of(port), &address.to_string(), port, &Refusal::RawAddress),
        },
    }
}

/// Tells how often things were repeated, as long as the proxy lives.
async fn tell_repeats(shared: Arc<Shared>) {
    let mut pause = journal::PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        pause = shared.journal.tell_and_pause(pause);
    }
}

#[cfg(test)]
mod tests;
