//! The accept loop: one task per connection, HTTP/1.1, a limit on each thing that a peer can hold.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::sessions::SWEEP;
use super::{Shared, handle};
use crate::front::DRAIN;

/// How many connections are open at a time; the next waits to be accepted. Each may hold a body of 64 MiB, and
/// descriptors are limited to about this many by default.
const MAX_CONNECTIONS: usize = 512;

/// How long the head of a request may take to arrive, and how long a connection may rest between two.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// How long accepting rests after it failed, which it does for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(crate) async fn serve(listener: TcpListener, shared: &Arc<Shared>, shutdown: impl Future<Output = ()> + Send) {
    let mut shutdown = pin!(shutdown);
    let (stop, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut sweeps = JoinSet::new();
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut sweep = tokio::time::interval(SWEEP);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            (slot, stream, peer) = accept(&listener, &slots) => {
                let connection = connection(shared.clone(), stream, peer, stopped.clone());
                connections.spawn(async move {
                    connection.await;
                    drop(slot);
                });
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            _ = sweep.tick(), if sweeps.is_empty() => {
                let shared = shared.clone();
                sweeps.spawn(async move { shared.sessions.sweep().await });
            }
            Some(_) = sweeps.join_next(), if !sweeps.is_empty() => {}
        }
    }
    drop((listener, stopped, stop));
    shared.sessions.end_streams();
    if tokio::time::timeout(DRAIN, async { while connections.join_next().await.is_some() {} }).await.is_err() {
        tracing::warn!(open = connections.len(), "connections that are still open are dropped");
    }
    connections.shutdown().await;
    while sweeps.join_next().await.is_some() {}
    shared.sessions.close().await;
}

/// The next connection, when there is room for it. Cancellation safe.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> (Option<OwnedSemaphorePermit>, TcpStream, SocketAddr) {
    // The semaphore is never closed, so there always is a slot.
    let slot = slots.clone().acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return (slot, stream, peer),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(shared: Arc<Shared>, stream: TcpStream, peer: SocketAddr, mut stopped: watch::Receiver<()>) {
    // Events are small writes that must not wait for an acknowledgement: 44 ms a reply without this, 0.2 with it.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "cannot set TCP_NODELAY");
    }
    let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(handle(shared, peer, request.map(Body::new)).await) }
    });
    let mut served = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service)
    );
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        // The sender says nothing and goes when the front stops.
        _ = stopped.changed() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a connection ended early");
    }
}
