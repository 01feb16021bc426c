//! A false internet for a cell whose source is evaluated: every name has an address, every request gets an empty
//! answer, and nothing leaves the machine. What the source sends is kept, also inside TLS if the source trusts the
//! certificate authority that was made for it.

mod authority;
mod names;
mod responder;
mod traffic;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdTcpListener, UdpSocket as StdUdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use portcullis_jail::Listener;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use authority::Authority;
pub use names::FalseAddresses;
use names::FalseNames;
pub use traffic::{Channel, SentMessage};
use traffic::{Sender, Traffic};

const RESOLVER_PORT: u16 = 53;

/// The ports on which every address answers: those of the web, of mail and shells, of databases, and those that are
/// common in what calls home.
const PORTS: [u16; 24] = [
    21, 22, 25, 53, 80, 443, 465, 587, 1337, 3000, 3306, 4444, 5000, 5432, 6379, 6667, 8000, 8080, 8081, 8443, 8888,
    9000, 9001, 27017,
];

/// The largest number of connections that are open at once. More are closed at once, and their sources are not heard.
const MAX_CONNECTIONS: usize = 256;

/// The longest time that a connection lasts.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// The pause after `accept` failed, which happens when the broker has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A false internet, with what was sent into it. Cells of one evaluation may share it one after the other.
pub struct FalseInternet {
    shared: Arc<Shared>,
}

/// The state that all tasks share.
struct Shared {
    names: FalseNames,
    traffic: Traffic,
    authority: Authority,
}

/// A cell's connection to a false internet. Dropping it ends every connection of the source.
#[derive(Debug)]
#[must_use = "dropping this closes the false internet of the cell"]
pub struct FalseInternetGuard(CancellationToken);

impl Drop for FalseInternetGuard {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl FalseInternet {
    /// Makes a false internet with a certificate authority of its own.
    ///
    /// # Errors
    /// If no key can be made.
    pub fn new(addresses: FalseAddresses) -> io::Result<Self> {
        let shared =
            Shared { names: FalseNames::new(addresses), traffic: Traffic::default(), authority: Authority::new()? };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the certificate of the authority that signs for every host, as PEM. A program in the cell has to trust
    /// it.
    #[must_use]
    pub fn certificate(&self) -> &str {
        self.shared.authority.certificate()
    }

    /// Returns the listeners that must be bound in a cell, in this order.
    #[must_use]
    pub fn listeners() -> Vec<Listener> {
        // On every address: a source may ask a resolver of its own.
        let resolver = Listener::udp(SocketAddr::from((Ipv4Addr::UNSPECIFIED, RESOLVER_PORT)));
        let all = |port| Listener::tcp(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
        std::iter::once(resolver).chain(PORTS.map(all)).collect()
    }

    /// Serves the sockets that were bound for [`FalseInternet::listeners`].
    ///
    /// # Errors
    /// If their number differs, or one cannot be used.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn serve(&self, descriptors: Vec<OwnedFd>) -> io::Result<FalseInternetGuard> {
        if descriptors.len() != PORTS.len() + 1 {
            return Err(io::Error::other("the launcher bound another number of sockets than it was asked for"));
        }
        let guard = FalseInternetGuard(CancellationToken::new());
        let spawn = |task: futures_util::future::BoxFuture<'static, ()>| {
            drop(tokio::spawn(guard.0.clone().run_until_cancelled_owned(task)));
        };
        let mut descriptors = descriptors.into_iter();
        if let Some(resolver) = descriptors.next() {
            let resolver = StdUdpSocket::from(resolver);
            resolver.set_nonblocking(true)?;
            spawn(Box::pin(names::serve(Arc::clone(&self.shared), UdpSocket::from_std(resolver)?)));
        }
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        for (port, socket) in PORTS.into_iter().zip(descriptors) {
            let socket = StdTcpListener::from(socket);
            socket.set_nonblocking(true)?;
            let task = accept(
                Arc::clone(&self.shared),
                TcpListener::from_std(socket)?,
                port,
                Arc::clone(&room),
                guard.0.clone(),
            );
            spawn(Box::pin(task));
        }
        Ok(guard)
    }

    /// Returns what was sent so far, in order.
    #[must_use]
    pub fn sent(&self) -> Vec<SentMessage> {
        self.shared.traffic.sent()
    }

    /// Returns the number of messages that were not kept, because too much came before.
    #[must_use]
    pub fn others(&self) -> u64 {
        self.shared.traffic.others()
    }

    /// Returns the name for which an address was given out.
    #[must_use]
    pub fn name_of(&self, address: Ipv4Addr) -> Option<String> {
        self.shared.names.name_of(address)
    }
}

impl fmt::Debug for FalseInternet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FalseInternet").finish_non_exhaustive()
    }
}

/// Accepts the connections of one port forever.
async fn accept(shared: Arc<Shared>, listener: TcpListener, port: u16, room: Arc<Semaphore>, stop: CancellationToken) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
        let shared = Arc::clone(&shared);
        let task = async move {
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection(&shared, stream, port)).await;
            drop(place);
        };
        drop(tokio::spawn(stop.clone().run_until_cancelled_owned(task)));
    }
}

async fn connection(shared: &Arc<Shared>, stream: tokio::net::TcpStream, port: u16) {
    let Ok(SocketAddr::V4(address)) = stream.local_addr() else { return };
    if port == RESOLVER_PORT {
        return names::serve_stream(shared, stream).await;
    }
    let host = shared.names.name_of(*address.ip()).unwrap_or_else(|| address.ip().to_string());
    responder::serve(shared, stream, Sender { host, port }).await;
}

#[cfg(test)]
mod tests;
