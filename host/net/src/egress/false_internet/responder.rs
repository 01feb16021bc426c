//! Answers what a source says on a connection, whatever it is.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;

use super::Shared;
use super::traffic::{Channel, Sender};

/// The number of bytes that are kept of a body, and of what is neither HTTP nor TLS.
const MAX_BODY_BYTES: usize = 256 * 1024;

/// The longest head of a request, in bytes.
const BUFFER_BYTES: usize = 64 * 1024;

/// The first byte of a TLS handshake.
const HANDSHAKE: u8 = 22;

/// Answers one connection until the source ends it.
pub(super) async fn serve(shared: &Arc<Shared>, stream: TcpStream, to: Sender) {
    let mut first = [0; 1];
    match stream.peek(&mut first).await {
        Ok(1) if first == [HANDSHAKE] => tls(shared, stream, to).await,
        Ok(1) if first.iter().all(u8::is_ascii_uppercase) => http(shared, stream, &to, Channel::Http).await,
        Ok(1) => other(shared, stream, &to).await,
        // The source said nothing: it waited for a greeting, or only looked whether somebody is there.
        _ => shared.traffic.note(Channel::Tcp, &to, Vec::new()),
    }
}

async fn tls(shared: &Arc<Shared>, stream: TcpStream, to: Sender) {
    let Ok(hello) = LazyConfigAcceptor::new(Acceptor::default(), stream).await else {
        return shared.traffic.note(Channel::Tls, &to, Vec::new());
    };
    let named = hello.client_hello().server_name().map(str::to_owned);
    let name = named.clone().unwrap_or_else(|| to.host.clone());
    let shown = named.map(|name| ("server name".to_owned(), name.into_bytes())).into_iter().collect();
    let Ok(config) = shared.authority.proves(&name) else { return };
    match hello.into_stream(config).await {
        Ok(stream) => {
            let to = Sender { host: name, ..to };
            http(shared, stream, &to, Channel::Https).await;
        }
        Err(_) => shared.traffic.note(Channel::Tls, &to, shown),
    }
}

async fn http<S>(shared: &Arc<Shared>, stream: S, to: &Sender, channel: Channel)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request| async { Ok::<_, Infallible>(answer(shared, request, to, channel).await) });
    // How the connection ends is up to the source.
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .half_close(true)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(shared: &Shared, request: Request<Incoming>, to: &Sender, channel: Channel) -> Response<Full<Bytes>> {
    let (head, mut body) = request.into_parts();
    let path = format!("{} {}", head.method, head.uri);
    let mut parts = vec![("path".to_owned(), path.into_bytes())];
    let headers = head.headers.iter().filter(|(name, _)| **name != HOST);
    parts.extend(headers.map(|(name, value)| (format!("header {name}"), value.as_bytes().to_vec())));
    let mut kept = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        let room = MAX_BODY_BYTES.saturating_sub(kept.len());
        kept.extend_from_slice(data.get(..room).unwrap_or(&data));
    }
    if !kept.is_empty() {
        parts.push(("body".to_owned(), kept));
    }
    // A header may name another host than the one that was looked up.
    let named = head.headers.get(HOST).and_then(|host| host.to_str().ok()).map(|host| {
        let bare = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
        bare.map_or(host, |(host, _)| host).to_ascii_lowercase()
    });
    let to = Sender {
        host: named.filter(|host| super::super::is_host(host)).unwrap_or_else(|| to.host.clone()),
        ..to.clone()
    };
    shared.traffic.note(channel, &to, parts);
    empty_answer(&head.headers)
}

/// Returns an empty page or an empty object, as the request wants.
fn empty_answer(headers: &HeaderMap) -> Response<Full<Bytes>> {
    let wanted = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let (kind, text) = match wanted.contains("html") {
        true => ("text/html; charset=utf-8", "<!doctype html><title>Example</title><p>An example.</p>"),
        false => ("application/json", "{}"),
    };
    let mut response = Response::new(Full::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Keeps what is neither HTTP nor TLS, and says nothing.
async fn other(shared: &Shared, stream: TcpStream, to: &Sender) {
    let mut kept = Vec::new();
    // A reset is an end, too.
    let _ = stream.take(MAX_BODY_BYTES as u64).read_to_end(&mut kept).await;
    shared.traffic.note(Channel::Tcp, to, vec![("bytes".to_owned(), kept)]);
}
