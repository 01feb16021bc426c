//! HTTP/1.1 from a cell, either to a host by its own name or through the proxy. Every request of a connection is parsed
//! in full and written again, so each one is checked and none can be smuggled behind another.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, UPGRADE};
use hyper::http::uri::{Authority, PathAndQuery, Uri};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use portcullis_core::sync::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::super::EgressError;
use super::journal::{EgressRefusal, EgressService};
use super::tunnel::{copy_both, forward};
use super::{Destination, HEAD_TIMEOUT, Shared};

/// The longest head of a request or response, and how much of a body is buffered, in bytes. Servers accept heads of 8
/// to 32 KiB.
const BUFFER_BYTES: usize = 64 * 1024;

/// Headers that concern this connection, not the message (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [&str; 8] = [
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
];

/// The role of the broker on a connection from the source.
pub(super) enum ProxyRole {
    /// The source takes the broker for the host itself.
    Origin { host: Destination, dialled: Option<TcpStream> },
    /// The source uses the broker as a proxy.
    Proxy,
}

/// Serves one connection until either side ends it.
pub(super) async fn serve<S>(shared: &Arc<Shared>, stream: S, role: ProxyRole)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (host, dialled) = match role {
        ProxyRole::Origin { host, dialled } => (Some(host), dialled),
        ProxyRole::Proxy => (None, None),
    };
    let exchange = Exchange {
        shared,
        host,
        kept: tokio::sync::Mutex::new(UpstreamConnection { dialled, open: None }),
        after: Mutex::default(),
    };
    let service = service_fn(|request| async { Ok::<_, Infallible>(exchange.answer(request).await) });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        // A client that has closed its sending side may still be reading.
        .half_close(true)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
    if served.is_err_and(|error| error.is_parse()) {
        exchange.refused_by_name(&EgressRefusal::NotHttp);
    }
    let after = exchange.after.lock().take();
    match after {
        None => {}
        Some(After::Tunnel { near, to, dialled }) => {
            let Ok(near) = near.await else { return };
            // Boxed because of recursion: a tunnel to port 80 is served here again, once.
            Box::pin(forward(shared, TokioIo::new(near), to, Some(dialled))).await;
        }
        Some(After::Upgrade { near, far }) => {
            if let Ok((near, far)) = tokio::try_join!(near, far) {
                copy_both(TokioIo::new(near), TokioIo::new(far)).await;
            }
        }
    }
}

/// The continuation of a connection that no longer speaks HTTP.
enum After {
    /// A tunnel, after `CONNECT` was allowed.
    Tunnel { near: OnUpgrade, to: Destination, dialled: TcpStream },
    /// Another protocol that the server agreed to, such as WebSocket.
    Upgrade { near: OnUpgrade, far: OnUpgrade },
}

/// One connection and the requests on it.
struct Exchange<'a> {
    shared: &'a Arc<Shared>,
    /// The host that the source takes the broker for, or `None` on a proxy connection.
    host: Option<Destination>,
    kept: tokio::sync::Mutex<UpstreamConnection>,
    after: Mutex<Option<After>>,
}

/// The upstream connection, kept for the next request.
struct UpstreamConnection {
    dialled: Option<TcpStream>,
    open: Option<(Destination, SendRequest<Incoming>)>,
}

type Answer = Response<BoxBody<Bytes, hyper::Error>>;

/// The response to a request that is not forwarded.
struct Failure {
    status: StatusCode,
    text: String,
}

impl Exchange<'_> {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let answered = match (&self.host, request.method()) {
            (None, &Method::CONNECT) => self.connect(request).await,
            _ => self.forward(request).await,
        };
        answered.unwrap_or_else(|Failure { status, text }| {
            let mut response =
                Response::new(Full::from(format!("portcullis: {text}\n")).map_err(|n| match n {}).boxed());
            *response.status_mut() = status;
            // No request after a refused one is read.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            response
        })
    }

    async fn connect(&self, mut request: Request<Incoming>) -> Result<Answer, Failure> {
        let to = request.uri().authority().map(Authority::as_str).unwrap_or_default().to_owned();
        let to = self.declared(&to, None)?;
        let dialled = self.shared.dial(EgressService::Proxy, &to, None).await?;
        let near = hyper::upgrade::on(&mut request);
        self.then(After::Tunnel { near, to, dialled });
        Ok(Response::new(Full::default().map_err(|never| match never {}).boxed()))
    }

    async fn forward(&self, mut request: Request<Incoming>) -> Result<Answer, Failure> {
        let to = self.destination(&request)?;
        let near = wants_web_socket(request.headers()).then(|| hyper::upgrade::on(&mut request));
        strip(request.headers_mut(), near.is_some());
        let path = request.uri().path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        *request.uri_mut() = Uri::from(path);
        request.headers_mut().insert(HOST, host_header(&to));

        let mut response = self.send(&to, request).await?;
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        match near {
            Some(near) if switched => self.then(After::Upgrade { near, far: hyper::upgrade::on(&mut response) }),
            _ if switched => return Err(bad_gateway("the server switched to a protocol that was not requested")),
            _ => {}
        }
        strip(response.headers_mut(), switched);
        Ok(response.map(|body| body.boxed()))
    }

    /// Returns the destination of a request. The request may name it in two places, which must agree.
    fn destination(&self, request: &Request<Incoming>) -> Result<Destination, Failure> {
        let target = request.uri();
        let mut hosts = request.headers().get_all(HOST).iter();
        let (header, second) = (hosts.next(), hosts.next());
        let header = match header.map(HeaderValue::to_str) {
            _ if second.is_some() => return Err(self.refuse_request(StatusCode::BAD_REQUEST, &EgressRefusal::NoHost)),
            Some(Err(_)) => return Err(self.refuse_request(StatusCode::BAD_REQUEST, &EgressRefusal::NoHost)),
            Some(Ok(text)) => Some(text),
            None => None,
        };
        let Some(expected) = &self.host else {
            // For a proxy the request target counts (RFC 9112, section 3.2.2); the `Host` header is made from it.
            return match (target.scheme_str(), target.authority()) {
                (Some("http"), Some(authority)) => self.declared(authority.as_str(), Some(80)),
                _ => Err(self.refuse_request(StatusCode::BAD_REQUEST, &EgressRefusal::NoHost)),
            };
        };
        let named = [header, target.authority().map(Authority::as_str)];
        if named.iter().all(Option::is_none) {
            return Err(self.refuse_request(StatusCode::BAD_REQUEST, &EgressRefusal::NoHost));
        }
        for name in named.into_iter().flatten() {
            if read(name, Some(80)).as_ref() != Some(expected) {
                return Err(self.refuse_request(StatusCode::FORBIDDEN, &EgressRefusal::OtherHost(name.to_owned())));
            }
        }
        Ok(expected.clone())
    }

    /// Parses a destination, and returns it if it is declared.
    fn declared(&self, text: &str, default_port: Option<u16>) -> Result<Destination, Failure> {
        let destination = read(text, default_port);
        if let Some(destination) = destination.as_ref().filter(|to| self.shared.declared.contains(to)) {
            return Ok(destination.clone());
        }
        let (host, port) = destination.as_ref().map_or((text, 0), |to| (to.host(), to.port()));
        self.shared.journal.refused(EgressService::Proxy, host, port, &EgressRefusal::NotDeclared);
        Err(Failure {
            status: StatusCode::FORBIDDEN,
            text: format!("`{text}` is refused: {}", EgressRefusal::NotDeclared),
        })
    }

    fn refuse_request(&self, status: StatusCode, refusal: &EgressRefusal) -> Failure {
        self.refused_by_name(refusal);
        Failure { status, text: format!("refused: {refusal}") }
    }

    fn refused_by_name(&self, refusal: &EgressRefusal) {
        match &self.host {
            Some(host) => self.shared.journal.refused(EgressService::Http, host.host(), host.port(), refusal),
            None => self.shared.journal.refused(EgressService::Proxy, "", 0, refusal),
        }
    }

    /// Sends a request over the kept connection, or over a new one.
    async fn send(&self, to: &Destination, request: Request<Incoming>) -> Result<Response<Incoming>, Failure> {
        let mut kept = self.kept.lock().await;
        let usable = kept.open.take().filter(|(host, sender)| host == to && !sender.is_closed());
        let mut sender = match usable {
            Some((_, sender)) => sender,
            None => {
                let via = if self.host.is_some() { EgressService::Http } else { EgressService::Proxy };
                let dialled = kept.dialled.take();
                self.open(self.shared.dial(via, to, dialled).await?).await?
            }
        };
        let response = async {
            sender.ready().await?;
            sender.send_request(request).await
        };
        let response = response.await.map_err(|error| bad_gateway(&format!("`{to}`: {error}")))?;
        kept.open = Some((to.clone(), sender));
        Ok(response)
    }

    async fn open(&self, stream: TcpStream) -> Result<SendRequest<Incoming>, Failure> {
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|error| bad_gateway(&error.to_string()))?;
        self.shared.spawn(async move {
            // The caller that waits for a response receives its errors.
            let _ = connection.with_upgrades().await;
        });
        Ok(sender)
    }

    fn then(&self, after: After) {
        *self.after.lock() = Some(after);
    }
}

impl From<EgressError> for Failure {
    fn from(error: EgressError) -> Self {
        let refused = matches!(error, EgressError::Refused { .. });
        let status = if refused { StatusCode::FORBIDDEN } else { StatusCode::BAD_GATEWAY };
        Self { status, text: error.to_string() }
    }
}

fn bad_gateway(text: &str) -> Failure {
    Failure { status: StatusCode::BAD_GATEWAY, text: text.to_owned() }
}

/// Parses `host` or `host:port`.
fn read(text: &str, default_port: Option<u16>) -> Option<Destination> {
    text.parse().ok().or_else(|| Destination::new(text, default_port?))
}

fn host_header(to: &Destination) -> HeaderValue {
    let shown = to.to_string();
    let text = if to.port() == 80 { shown.strip_suffix(":80").unwrap_or(&shown) } else { &shown };
    // A destination is ASCII without control characters.
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

/// Returns the options in the `Connection` headers.
fn connection_words(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(|word| word.trim().to_ascii_lowercase()).collect()
}

/// Reports whether a request wants a web socket. In any other protocol, such as HTTP/2 without TLS, further requests
/// could name other hosts unseen.
fn wants_web_socket(headers: &HeaderMap) -> bool {
    let mut protocols = headers.get_all(UPGRADE).iter();
    protocols.next().is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"))
        && protocols.next().is_none()
        && connection_words(headers).iter().any(|word| word == "upgrade")
}

/// Removes the headers that concern only this connection.
fn strip(headers: &mut HeaderMap, upgrade: bool) {
    let words = connection_words(headers);
    let named = words.iter().filter_map(|word| HeaderName::from_bytes(word.as_bytes()).ok());
    for name in named.chain(HOP_BY_HOP.map(HeaderName::from_static)).filter(|name| *name != UPGRADE && *name != HOST) {
        headers.remove(name);
    }
    if upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    } else {
        headers.remove(CONNECTION);
        headers.remove(UPGRADE);
    }
}
