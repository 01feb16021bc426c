//! A false internet for a cell whose source is evaluated: every name has an address, every request gets an empty
//! answer, and nothing leaves the machine. Data that the source sends is kept, also inside TLS if the source trusts the
//! certificate authority that was made for it.

mod authority;
mod datagrams;
mod names;
mod responder;
mod tap;
mod traffic;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdTcpListener, UdpSocket as StdUdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use portcullis_jail::Listener;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use authority::Authority;
pub use names::FalseAddresses;
use names::FalseNames;
use traffic::{IntendedHost, Traffic};
pub use traffic::{MessageProtocol, SentMessage};

const RESOLVER_PORT: u16 = 53;

/// The ports on which every address answers: those of the web, of mail and shells, of databases, and those that are
/// common in what calls home.
const PORTS: [u16; 24] = [
    21, 22, 25, 53, 80, 443, 465, 587, 1337, 3000, 3306, 4444, 5000, 5432, 6379, 6667, 8000, 8080, 8081, 8443, 8888,
    9000, 9001, 27017,
];

/// The largest number of connections that are open at once. Further ones are closed at once, and nothing is read from
/// them.
const MAX_CONNECTIONS: usize = 256;

/// The longest time that a connection lasts.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest time for reading data that was already sent.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause after `accept` failed, which happens when the broker has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A false internet, with the messages sent into it. Cells of one evaluation may share it one after the other.
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
pub struct FalseInternetGuard {
    /// Ends everything.
    stop: CancellationToken,
    /// Lets nothing new begin.
    draining: CancellationToken,
    tasks: TaskTracker,
}

impl FalseInternetGuard {
    /// Receives the data still in transit after all programs of the cell have ended. Connections that take too long are
    /// closed.
    pub async fn finish(self) {
        self.draining.cancel();
        self.tasks.close();
        if tokio::time::timeout(FINISH_TIMEOUT, self.tasks.wait()).await.is_err() {
            self.stop.cancel();
            self.tasks.wait().await;
        }
    }
}

impl Drop for FalseInternetGuard {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl FalseInternet {
    /// Makes a false internet with its own certificate authority.
    ///
    /// # Errors
    /// If no key can be made.
    pub fn new(addresses: FalseAddresses) -> io::Result<Self> {
        let shared =
            Shared { names: FalseNames::new(addresses), traffic: Traffic::default(), authority: Authority::new()? };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the certificate of the authority that signs for every host, as PEM. A program in the cell must trust it.
    #[must_use]
    pub fn certificate(&self) -> &str {
        self.shared.authority.certificate()
    }

    /// Returns the listeners that must be bound in a cell, in this order. Datagrams to ports other than that of DNS are
    /// received only where addresses look public.
    #[must_use]
    pub fn listeners(addresses: FalseAddresses) -> Vec<Listener> {
        // On every address: a source may ask its own resolver.
        let resolver = Listener::udp(SocketAddr::from((Ipv4Addr::UNSPECIFIED, RESOLVER_PORT)));
        let all = |port| Listener::tcp(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
        let every = (addresses == FalseAddresses::Public).then(Listener::every_udp);
        std::iter::once(resolver).chain(PORTS.map(all)).chain(every).collect()
    }

    /// Reports whether connections to a port are answered.
    #[must_use]
    pub fn answers_at(port: u16) -> bool {
        PORTS.contains(&port)
    }

    /// Serves the sockets that were bound for [`FalseInternet::listeners`].
    ///
    /// # Errors
    /// If their number differs, or one cannot be used.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn serve(&self, descriptors: Vec<OwnedFd>) -> io::Result<FalseInternetGuard> {
        if descriptors.len() != Self::listeners(self.shared.names.addresses()).len() {
            return Err(io::Error::other("the launcher bound another number of sockets than it was asked for"));
        }
        let guard = FalseInternetGuard {
            stop: CancellationToken::new(),
            draining: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        let spawn = |task: futures_util::future::BoxFuture<'static, ()>| {
            drop(guard.tasks.spawn(guard.stop.clone().run_until_cancelled_owned(task)));
        };
        let mut descriptors = descriptors.into_iter();
        if let Some(resolver) = descriptors.next() {
            let resolver = StdUdpSocket::from(resolver);
            resolver.set_nonblocking(true)?;
            let socket = UdpSocket::from_std(resolver)?;
            spawn(Box::pin(names::serve(Arc::clone(&self.shared), socket, guard.draining.clone())));
        }
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        for (port, socket) in PORTS.into_iter().zip(descriptors.by_ref()) {
            let socket = StdTcpListener::from(socket);
            socket.set_nonblocking(true)?;
            let door = Door {
                shared: Arc::clone(&self.shared),
                port,
                room: Arc::clone(&room),
                stop: guard.stop.clone(),
                tasks: guard.tasks.clone(),
            };
            spawn(Box::pin(door.accept(TcpListener::from_std(socket)?, guard.draining.clone())));
        }
        if let Some(every) = descriptors.next() {
            let every = StdUdpSocket::from(every);
            every.set_nonblocking(true)?;
            let socket = UdpSocket::from_std(every)?;
            spawn(Box::pin(datagrams::receive(Arc::clone(&self.shared), socket, guard.draining.clone())));
        }
        Ok(guard)
    }

    /// Returns the messages sent so far, in order.
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

/// One port of every address.
struct Door {
    shared: Arc<Shared>,
    port: u16,
    room: Arc<Semaphore>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Door {
    /// Accepts connections until the last call, and those that are waiting then.
    async fn accept(self, listener: TcpListener, draining: CancellationToken) {
        while let Some(accepted) = draining.run_until_cancelled(listener.accept()).await {
            match accepted {
                Ok((stream, _)) => self.open(stream),
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
        let Ok(listener) = listener.into_std() else { return };
        while let Ok((stream, _)) = listener.accept() {
            if let Ok(stream) = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream)) {
                self.open(stream);
            }
        }
    }

    fn open(&self, stream: TcpStream) {
        let Ok(place) = Arc::clone(&self.room).try_acquire_owned() else { return self.shared.traffic.miss() };
        let (shared, port) = (Arc::clone(&self.shared), self.port);
        let task = async move {
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection(&shared, stream, port)).await;
            drop(place);
        };
        drop(self.tasks.spawn(self.stop.clone().run_until_cancelled_owned(task)));
    }
}

async fn connection(shared: &Arc<Shared>, stream: TcpStream, port: u16) {
    let Ok(SocketAddr::V4(address)) = stream.local_addr() else { return };
    let host = shared.names.name_of(*address.ip()).unwrap_or_else(|| address.ip().to_string());
    let to = IntendedHost { host, port };
    if port == RESOLVER_PORT {
        return names::serve_stream(shared, &to, stream).await;
    }
    responder::serve(shared, stream, to).await;
}

#[cfg(test)]
mod tests;
