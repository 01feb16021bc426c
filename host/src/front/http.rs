//! The HTTP front: streamable HTTP at `/mcp`, with session ids in the legacy era and without them in the modern one.
//!
//! A request is checked in a fixed order: `Host`, path, `Origin`, caller, method, headers, body. The first check that
//! fails gives the answer. A page of a listed origin that asks beforehand what it may send (CORS) is answered after the
//! first check. Specification: MCP 2025-11-25 and 2026-07-28, "Streamable HTTP".

mod activity;
mod admission;
mod approvals;
mod body;
mod connections;
mod current_tokens;
mod error;
mod events;
mod expiring_table;
mod guard;
mod headers;
#[cfg_attr(not(feature = "jwt"), path = "http/without_jwt.rs")]
mod jwt;
mod listener;
mod params;
mod post;
mod reply;
mod self_wakes;
mod service;
mod sessions;
mod streams;
pub mod token;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use tokio::net::TcpListener;

use self::activity::{AnswerBody, RequestInProgress};
pub use self::admission::AuthenticatedCaller;
use self::admission::{Admission, AdmittedCaller};
pub use self::approvals::APPROVALS_PATH;
use self::body::BodyBudget;
use self::current_tokens::CurrentTokens;
pub use self::error::FrontError;
use self::guard::RequestGuard;
use self::jwt::JwtVerifier;
use self::reply::HttpRefusal;
pub use self::service::HttpService;
use self::sessions::Sessions;
pub use self::token::TokenError;
use super::backend::Backend;
use super::outgoing::OutgoingRoom;
use super::protocol::OpenCalls;
use crate::broker::Broker;
use crate::config::ServeConfig;
use crate::name::ProfileName;
use crate::protocol::{RpcError, header, revision};
use crate::shared_limit::SharedLimit;

/// The path at which the protocol is served.
pub const MCP_PATH: &str = "/mcp";

/// The path at which metrics are read, with a separate token, if one is configured.
pub const METRICS_PATH: &str = "/metrics";

/// The media type of metrics.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The path of the health check, which needs no token: `ok`, or 503 with the reason while calls are refused.
pub const HEALTH_PATH: &str = "/healthz";

/// The largest number of requests that may be in progress at once, of all callers together. By the rule of
/// [`SharedLimit`] a single caller gets half of them, and would need four sessions full of calls to reach that.
const MAX_REQUESTS: u64 = 512;

/// The largest number of streams of events that may be open at once, of all callers together: one for each agent of a
/// large team, and their calls that report progress. A single caller gets half of them.
const MAX_STREAMS: u64 = 1024;

/// The largest number of legacy calls that may be open at once, of all callers together. Such a call continues when its
/// agent disconnects, and then counts neither as a request nor as a stream; a single caller gets half of them. Their
/// bodies of up to 64 KiB, which nothing else counts, have 128 MiB at most.
const MAX_LEGACY_CALLS: u64 = 2048;

/// An HTTP front that listens but does not serve yet.
///
/// # Example
/// ```
/// # async fn serve(
/// #     broker: &portcullis::Broker,
/// #     stop: impl Future<Output = ()> + Send,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// let front = portcullis::HttpFront::bind(broker, "default".parse()?).await?;
/// println!("serving http://{}/mcp", front.address());
/// front.serve(stop).await;
/// # Ok(())
/// # }
/// ```
pub struct HttpFront {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<FrontShared>,
}

/// The state that all connections share.
pub(crate) struct FrontShared {
    backend: Arc<dyn Backend>,
    guard: RequestGuard,
    admission: Admission,
    sessions: Sessions,
    requests: Arc<SharedLimit>,
    streams: Arc<SharedLimit>,
    legacy_calls: Arc<SharedLimit>,
    bodies: BodyBudget,
    unread: Arc<SharedLimit>,
    /// The open calls of the modern era. Those of the legacy era belong to their session.
    calls: OpenCalls,
}

impl HttpFront {
    /// Listens at `listen` of the configuration's `[serve]`. Callers for whom `[serve]` names no other profile get
    /// `profile`. A caller must bring a token that `[serve]` names, or else the generated one of the data folder,
    /// unless `[serve]` says `dangerous-no-token`. The ledger records requests that are turned away.
    ///
    /// # Errors
    /// See [`FrontError`].
    ///
    /// # Example
    /// ```
    /// use portcullis::{Broker, Config, HttpFront, Launcher};
    /// use serde_json::json;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// let config = Config::builder(folder.path())
    ///     .source("calc", json!({ "component": "builtin:calculator" }))
    ///     .serve(json!({ "listen": "127.0.0.1:0" }))
    ///     .build()?;
    /// let broker = Broker::build(config, Launcher::SelfExec).await?;
    /// let front = HttpFront::bind(&broker, "default".parse()?).await?;
    /// println!("serving http://{}/mcp", front.address());
    /// # let stop = async {};
    /// front.serve(stop).await;
    /// broker.shutdown().await;
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub async fn bind(broker: &Broker, profile: ProfileName) -> Result<Self, FrontError> {
        let config = broker.config();
        let settings = FrontSettings::of(broker, profile)?;
        Self::bind_with(Arc::new(broker.clone()), &config.serve, settings).await
    }

    pub(crate) async fn bind_with(
        backend: Arc<dyn Backend>,
        serve: &ServeConfig,
        settings: FrontSettings,
    ) -> Result<Self, FrontError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => FrontError::InUse(serve.listen),
            _ => FrontError::Listen { address: serve.listen, error },
        };
        let listener = TcpListener::bind(serve.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, shared: Arc::new(settings.shared(backend, serve, address)) })
    }

    /// Returns the address at which it listens, with the port that the system chose if 0 was configured.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` is ready. Open calls then have five seconds to end; those that do not are answered with
    /// an error to that effect. All sessions are closed.
    ///
    /// Dropping the future drops connections and calls, and leaves sessions open in the ledger.
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send) {
        listener::serve(self.listener, &self.shared, shutdown).await;
    }
}

impl fmt::Debug for HttpFront {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpFront").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The checked settings of a front.
pub(crate) struct FrontSettings {
    admission: Admission,
    max_body: usize,
}

impl FrontSettings {
    /// Returns the settings of a front that serves a broker.
    fn of(broker: &Broker, profile: ProfileName) -> Result<Self, FrontError> {
        let config = broker.config();
        if !config.profiles.contains_key(&profile) {
            let known = config.profiles.keys().map(ToString::to_string).collect();
            return Err(FrontError::UnknownProfile { profile, known });
        }
        let tokens = || {
            let broker = broker.clone();
            let tokens = CurrentTokens::of(move || broker.config())?;
            tokens.now().weak().iter().for_each(|weak| tracing::warn!("{weak}"));
            Ok(tokens)
        };
        Self::new(&config.serve, profile, tokens, config.max_message)
    }

    /// Returns the settings after checking them. `tokens` is not called if no token is asked for.
    fn new(
        serve: &ServeConfig,
        profile: ProfileName,
        tokens: impl FnOnce() -> Result<CurrentTokens, TokenError>,
        max_body: usize,
    ) -> Result<Self, FrontError> {
        let tokens = if serve.dangerous_no_token {
            if !serve.listen.ip().is_loopback() {
                return Err(FrontError::Exposed(serve.listen));
            }
            None
        } else {
            let tokens = tokens()?;
            // An empty token would admit every caller that sends an empty one.
            if tokens.now().any_empty() {
                return Err(FrontError::NoToken);
            }
            Some(tokens)
        };
        let mut admission = Admission::new(profile, tokens);
        if let Some(jwt) = &serve.jwt {
            let verifier = JwtVerifier::new(jwt)?;
            admission = admission.issued(verifier, jwt.issuer.clone(), jwt.resource.clone());
        }
        Ok(Self { admission, max_body })
    }

    /// Returns the state of a front that is reached at this address.
    fn shared(self, backend: Arc<dyn Backend>, serve: &ServeConfig, address: SocketAddr) -> FrontShared {
        FrontShared {
            backend,
            guard: RequestGuard::new(address, &serve.hosts, &serve.origins),
            admission: self.admission,
            sessions: Sessions::default(),
            requests: SharedLimit::new(MAX_REQUESTS),
            streams: SharedLimit::new(MAX_STREAMS),
            legacy_calls: SharedLimit::new(MAX_LEGACY_CALLS),
            bodies: BodyBudget::new(self.max_body),
            unread: OutgoingRoom::limit(self.max_body),
            calls: OpenCalls::default(),
        }
    }
}

impl FrontShared {
    /// Returns the room for what a caller has not read yet.
    fn room(&self, caller: &AdmittedCaller) -> OutgoingRoom {
        OutgoingRoom::new(&self.unread, &caller.principal)
    }
}

/// Answers one request.
async fn handle(
    shared: Arc<FrontShared>,
    peer: SocketAddr,
    mut in_progress: RequestInProgress,
    request: Request,
) -> hyper::Response<AnswerBody> {
    let origin = shared.guard.listed_origin(request.headers());
    let mut response = route(&shared, &mut in_progress, request).await.unwrap_or_else(|refusal| {
        if let Some(reason) = refusal.reason {
            tracing::debug!(%peer, reason, "rejected a request at the HTTP front");
            shared.backend.rejected(reason, peer.ip());
        }
        refusal.into_response()
    });
    if let Some(origin) = origin {
        RequestGuard::let_read(origin, response.headers_mut());
    }
    if events::is_stream(&response) {
        in_progress.streams(&shared.streams);
    }
    response.map(|body| in_progress.until_end_of(body))
}

async fn route(
    shared: &Arc<FrontShared>,
    in_progress: &mut RequestInProgress,
    request: Request,
) -> Result<Response, HttpRefusal> {
    let (parts, body) = request.into_parts();
    shared.guard.check_host(&parts)?;
    if let Some(answer) = shared.guard.preflight(&parts) {
        return Ok(answer);
    }
    match parts.uri.path() {
        HEALTH_PATH => {
            return Ok(match shared.backend.refuses_calls() {
                None => (StatusCode::OK, "ok\n").into_response(),
                Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("calls are refused: {why}\n")).into_response(),
            });
        }
        MCP_PATH => {}
        METRICS_PATH if let Some(admitted) = shared.admission.admit_to_metrics(&parts.headers) => {
            shared.guard.check_origin(&parts.headers)?;
            admitted?;
            return match parts.method {
                Method::GET => Ok(([(CONTENT_TYPE, METRICS_TYPE)], shared.backend.metrics()).into_response()),
                _ => Err(HttpRefusal::method_not_allowed("GET")),
            };
        }
        path if approvals::is_about(path)
            && let Some(person) = shared.admission.admit_person(&parts.headers) =>
        {
            shared.guard.check_origin(&parts.headers)?;
            person?;
            // Again when the answer has arrived: the person's token may have been withdrawn meanwhile.
            let person = || shared.admission.admit_person(&parts.headers).transpose();
            return approvals::serve(&*shared.backend, person, &parts.method, path, body).await;
        }
        path => {
            if let Some(description) = shared.admission.describes(path) {
                return Ok(([(CONTENT_TYPE, "application/json")], description.to_string()).into_response());
            }
            let message = format!("there is nothing here; MCP is served at {MCP_PATH}");
            return Err(HttpRefusal::new(StatusCode::NOT_FOUND, RpcError::INVALID_REQUEST, message));
        }
    }
    shared.guard.check_origin(&parts.headers)?;
    let caller = shared.admission.admit(&parts).await?;
    match parts.method {
        Method::GET => in_progress.admit(&shared.streams, &caller.principal, "streams")?,
        _ => in_progress.admit(&shared.requests, &caller.principal, "requests")?,
    }
    match parts.method {
        Method::POST => post::post(shared, &caller, &parts, body).await,
        Method::GET | Method::DELETE if headers::version(&parts.headers)?.is_some_and(|v| v >= revision::MODERN) => {
            Err(HttpRefusal::method_not_allowed("POST"))
        }
        Method::GET => {
            headers::check_accept_stream(&parts.headers)?;
            let session = shared.sessions.legacy(&caller, &parts.headers)?;
            let last_event = headers::single(&parts.headers, header::LAST_EVENT_ID)?;
            let reader = last_event.map_or_else(|| session.listen(shared.room(&caller)), |id| session.resume(id))?;
            let starts_with_id = last_event.is_none() && session.resumable().starts_with_id;
            Ok(events::resumable(reader, starts_with_id, session))
        }
        Method::DELETE => {
            shared.sessions.end(&caller, &parts.headers).await?;
            Ok(Response::builder().status(StatusCode::NO_CONTENT).body(Body::empty()).unwrap_or_default())
        }
        _ => Err(HttpRefusal::method_not_allowed("POST, GET, DELETE")),
    }
}

#[cfg(test)]
mod tests;
