//! The accept loop: one task per connection, HTTP/1.1, and a limit on each thing that a peer can hold.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::activity::{Activity, ActivityStream};
use super::connections::{Connections, TICK};
use super::sessions::SWEEP;
use super::{FrontShared, handle};
use crate::front::{CUT_ANSWER_TIMEOUT, DRAIN};

/// The largest head of a request, in bytes. Arguments that are repeated in headers fit. Without this limit, connections
/// that never complete a head would hold hundreds of kilobytes each.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// The most that is read from a connection before it is consumed, in bytes: a head, and as much again of a body. With
/// the 400 KiB that hyper takes by default, a hundred connections that send large bodies at once held 40 MiB.
const MAX_BUFFER_BYTES: usize = 2 * MAX_HEAD_BYTES;

/// The pause after accepting failed, which it does when no descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(crate) async fn serve(listener: TcpListener, shared: &Arc<FrontShared>, shutdown: impl Future<Output = ()> + Send) {
    let mut shutdown = pin!(shutdown);
    let (stop, stopped) = watch::channel(());
    let mut connections = Connections::default();
    let mut sweeps = JoinSet::new();
    let [mut sweep, mut tick] = [SWEEP, TICK].map(tokio::time::interval);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => connections.add(peer.ip(), |activity| {
                    connection(shared.clone(), stream, peer, activity, stopped.clone())
                }),
                Err(error) => {
                    let closed = connections.make_room();
                    tracing::warn!(%error, closed, "cannot accept a connection; closed idle ones to make room");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            () = connections.ended(), if connections.len() > 0 => {}
            // The calls of a session continue when its connections are gone.
            _ = tick.tick(), if connections.len() > 0 || shared.sessions.any() => {
                connections.tick();
                shared.sessions.close_ended();
                if let Some(tokens) = shared.admission.changed_tokens() {
                    let shared = shared.clone();
                    sweeps.spawn(async move { shared.sessions.end_withdrawn(&tokens).await });
                }
            }
            _ = sweep.tick(), if sweeps.is_empty() => {
                let shared = shared.clone();
                sweeps.spawn(async move { shared.sessions.end_idle().await });
            }
            Some(_) = sweeps.join_next(), if !sweeps.is_empty() => {}
        }
    }
    drop((listener, stopped, stop));
    connections.stop_waiting();
    shared.sessions.end_streams();
    if tokio::time::timeout(DRAIN, connections.all_ended()).await.is_err() {
        tracing::warn!(open = connections.len(), "calls that are still open are cut");
        shared.calls.interrupt();
        shared.sessions.interrupt();
        if tokio::time::timeout(CUT_ANSWER_TIMEOUT, connections.all_ended()).await.is_err() {
            tracing::warn!(open = connections.len(), "connections that are still open are dropped");
        }
    }
    connections.shutdown().await;
    while sweeps.join_next().await.is_some() {}
    shared.sessions.close().await;
}

async fn connection(
    shared: Arc<FrontShared>,
    stream: TcpStream,
    peer: SocketAddr,
    activity: Arc<Activity>,
    mut stopped: watch::Receiver<()>,
) {
    // Events are small writes that must not wait for an acknowledgement: 44 ms a reply without this, 0.2 ms with it.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "cannot set TCP_NODELAY");
    }
    let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
        let (shared, in_progress) = (shared.clone(), activity.begin());
        async move { Ok::<_, Infallible>(handle(shared, peer, in_progress, request.map(Body::new)).await) }
    });
    let stream = ActivityStream { stream, activity: activity.clone() };
    // `Connections` limits how long a head may take, without a timer for each request.
    let mut served = pin!(
        http1::Builder::new()
            .header_read_timeout(None)
            .max_header_size(MAX_HEAD_BYTES)
            .max_buf_size(MAX_BUFFER_BYTES)
            .serve_connection(TokioIo::new(stream), service)
    );
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        // Nothing is ever sent: the sender is dropped when the front stops.
        _ = stopped.changed() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a connection ended early");
    }
}
