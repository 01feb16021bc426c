//! The front as a service under another program's HTTP server.

use std::convert::Infallible;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tower_service::Service;

use super::activity::{Activity, TickClock};
use super::admission::AuthenticatedCaller;
use super::current_tokens::LOOK_INTERVAL;
use super::reply::HttpRefusal;
use super::sessions::SWEEP;
use super::{FrontError, FrontSettings, FrontShared, HttpFront, handle};
use crate::broker::Broker;
use crate::name::ProfileName;

/// The refusal where no token is asked for and nobody knows that the caller is local.
const NOT_LOCAL: &str = "without a token only programs on this machine may call; if this one is, the server has to say so: serve with \
                         `into_make_service_with_connect_info::<SocketAddr>()`";

/// The HTTP front as a service that another program mounts, such as under a router of `axum`. Cheap to clone; all
/// clones share their sessions.
///
/// # Example
/// ```
/// # fn mount(broker: &portcullis::Broker) -> Result<axum::Router, Box<dyn std::error::Error>> {
/// let agents: portcullis::HttpService = portcullis::HttpFront::service(broker, "default".parse()?)?;
/// let app = axum::Router::new().nest_service("/agents", agents);
/// # Ok(app)
/// # }
/// ```
#[derive(Clone)]
pub struct HttpService {
    shared: Arc<FrontShared>,
}

impl HttpFront {
    /// Returns the front as a service, for a program that has its own HTTP server. It answers at `/mcp`, `/healthz`,
    /// `/metrics` and `/approvals` below the path at which it is mounted, and checks what [`HttpFront::bind`] checks:
    /// the `Host` of a request must be a loopback name with the port of `listen`, or one of `hosts` under `[serve]`,
    /// its `Origin` one of `origins`, and its token one of those that `[serve]` names. A request whose extensions hold
    /// an [`AuthenticatedCaller`] needs no token. `listen` names where the program listens; nothing is bound to it.
    ///
    /// Limits on connections, heads and time are those of the program's server. The ledger records the peer of a
    /// request that is turned away if the server adds `ConnectInfo<SocketAddr>` to it, and otherwise `0.0.0.0`. With
    /// `dangerous-no-token`, a request is answered only if that shows that it comes from this machine. With
    /// `[serve.jwt]`, route `/.well-known/oauth-protected-resource` and everything below it to the service too: clients
    /// look for it at the root of the host.
    ///
    /// Stop the server before the broker: when the broker shuts down, open calls are answered with an error, and
    /// sessions end.
    ///
    /// # Errors
    /// As for [`HttpFront::bind`], without those of listening, and [`FrontError::NoPort`] if `listen` has the port 0
    /// and there are no `hosts`, so that no request could name this server.
    ///
    /// # Panics
    /// Outside of a runtime of tokio.
    ///
    /// # Example
    /// ```no_run
    /// # async fn serve(config: portcullis::ConfigBuilder) -> Result<(), Box<dyn std::error::Error>> {
    /// # use portcullis::{Broker, HttpFront, Launcher};
    /// use std::net::SocketAddr;
    ///
    /// let config = config.serve(serde_json::json!({ "listen": "127.0.0.1:8099" })).build()?;
    /// let broker = Broker::build(config, Launcher::SelfExec).await?;
    /// let agents = HttpFront::service(&broker, "default".parse()?)?;
    /// let app = axum::Router::new().nest_service("/agents", agents); // clients connect to /agents/mcp
    /// let listener = tokio::net::TcpListener::bind("127.0.0.1:8099").await?;
    /// axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn service(broker: &Broker, profile: ProfileName) -> Result<HttpService, FrontError> {
        let config = broker.config();
        // Only the system knows the port then, and a request names the one at which the program listens.
        if config.serve.listen.port() == 0 && config.serve.hosts.is_empty() {
            return Err(FrontError::NoPort(config.serve.listen));
        }
        let settings = FrontSettings::of(broker, profile)?;
        let shared = Arc::new(settings.shared(Arc::new(broker.clone()), &config.serve, config.serve.listen));
        tokio::spawn(tend(Arc::downgrade(&shared), broker.stopped()));
        Ok(HttpService { shared })
    }
}

/// Ends idle sessions, those whose token was withdrawn, and all of them when the broker stops, for as long as somebody
/// has the service.
async fn tend(front: Weak<FrontShared>, stopped: impl Future<Output = ()>) {
    let mut stopped = std::pin::pin!(stopped);
    let mut swept = Instant::now();
    loop {
        let waited = tokio::time::timeout(LOOK_INTERVAL, &mut stopped).await;
        let Some(front) = front.upgrade() else { return };
        if waited.is_ok() {
            front.sessions.end_streams();
            front.calls.interrupt();
            front.sessions.interrupt();
            front.sessions.close().await;
            return;
        }
        if !front.sessions.any() {
            continue;
        }
        front.sessions.close_ended();
        if let Some(tokens) = front.admission.changed_tokens() {
            front.sessions.end_withdrawn(&tokens).await;
        }
        if swept.elapsed() >= SWEEP {
            front.sessions.end_idle().await;
            swept = Instant::now();
        }
    }
}

impl<B> Service<Request<B>> for HttpService
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| *peer);
        let peer = peer.unwrap_or_else(|| (Ipv4Addr::UNSPECIFIED, 0).into());
        let is_authenticated = request.extensions().get::<AuthenticatedCaller>().is_some();
        if shared.admission.admits_anybody() && !is_authenticated && !peer.ip().is_loopback() {
            shared.backend.rejected("token", peer.ip());
            let refusal = HttpRefusal::rejected("token", StatusCode::FORBIDDEN, NOT_LOCAL);
            return Box::pin(std::future::ready(Ok(refusal.into_response())));
        }
        // The connection belongs to the program's server, so nobody asks for its phase.
        let in_progress = Activity::new(TickClock::default()).begin();
        Box::pin(async move { Ok(handle(shared, peer, in_progress, request.map(Body::new)).await.map(Body::new)) })
    }
}

impl fmt::Debug for HttpService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpService").finish_non_exhaustive()
    }
}
