//! Answers any message of a source on a connection.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use hyper::server::conn::http1::Parts;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;

use super::Shared;
use super::tap::{Capture, CapturingStream};
use super::traffic::{IntendedHost, MessageProtocol};

/// The number of bytes that are kept of a body.
const MAX_BODY_BYTES: usize = 256 * 1024;

/// The longest head of a request, in bytes.
const BUFFER_BYTES: usize = 256 * 1024;

/// The largest number of headers of a request. A request with more is recorded unchanged.
const MAX_HEADERS: usize = 1000;

/// The first byte of a TLS handshake.
const HANDSHAKE: u8 = 22;

/// Answers one connection until the source ends it.
pub(super) async fn serve(shared: &Arc<Shared>, stream: TcpStream, to: IntendedHost) {
    let mut first = [0; 1];
    match stream.peek(&mut first).await {
        Ok(1) if first == [HANDSHAKE] => tls(shared, stream, to).await,
        // Other protocols begin with a letter, too: bytes that are not a request are recorded unchanged.
        Ok(1) if first.iter().all(u8::is_ascii_alphabetic) => {
            http(shared, stream, vec![to], MessageProtocol::Http, Vec::new()).await
        }
        Ok(1) => other(shared, stream, to).await,
        // The source sent nothing: it waited for a greeting, or only checked whether somebody is there.
        _ => shared.traffic.record(MessageProtocol::Tcp, &to, Vec::new()),
    }
}

async fn tls(shared: &Arc<Shared>, stream: TcpStream, to: IntendedHost) {
    // Bytes that are not a handshake are recorded unchanged, and so is a failed handshake.
    let greeting = Capture::new(shared, vec![to.clone()], MessageProtocol::Tls, Vec::new());
    let stream = CapturingStream::new(stream, Arc::clone(&greeting));
    let Ok(hello) = LazyConfigAcceptor::new(Acceptor::default(), stream).await else { return };
    let named = hello.client_hello().server_name().map(str::to_owned);
    let name = named.clone().unwrap_or_else(|| to.host.clone());
    let server_name = named.as_ref().map(|name| ("server name".to_owned(), name.clone().into_bytes()));
    let mut shown: Vec<_> = server_name.into_iter().collect();
    let Ok(config) = shared.authority.proves(&name) else { return };
    match hello.into_stream(config).await {
        Ok(stream) => {
            // Its extensions may carry as much as a request.
            shown.push(("handshake".to_owned(), greeting.so_far()));
            greeting.understand(true);
            http(shared, stream, with_host(vec![to], named), MessageProtocol::Https, shown).await;
        }
        Err(_) => shared.traffic.record(MessageProtocol::Tls, &to, shown),
    }
}

/// Adds a host that is named to those that are known. Any of these hosts may read the traffic.
fn with_host(mut to: Vec<IntendedHost>, named: Option<String>) -> Vec<IntendedHost> {
    let other = |named: &String| !to.iter().any(|known| known.host.eq_ignore_ascii_case(named));
    let added = named.filter(other).zip(to.first()).map(|(host, first)| IntendedHost { host, ..first.clone() });
    to.extend(added);
    to
}

async fn http<S>(
    shared: &Arc<Shared>,
    stream: S,
    to: Vec<IntendedHost>,
    channel: MessageProtocol,
    shown: Vec<(String, Vec<u8>)>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let raw = if channel == MessageProtocol::Http { MessageProtocol::Tcp } else { channel };
    let heard = Capture::new(shared, to.clone(), raw, shown.clone());
    let service = service_fn(|request: Request<Incoming>| {
        // A request that is not read to its end is recorded unchanged.
        heard.understand(false);
        if request.headers().contains_key(TRANSFER_ENCODING) {
            // Only the raw bytes show what else is on the lines with the chunk sizes.
            heard.keep();
        }
        Box::pin(async {
            let response = answer(shared, request, &to, channel, &shown).await;
            heard.understand(response.is_some());
            Ok::<_, Infallible>(response.unwrap_or_default())
        })
    });
    let mut connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .half_close(true)
        .max_buf_size(BUFFER_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(CapturingStream::new(stream, Arc::clone(&heard))), service);
    let ended = poll_fn(|context| connection.poll_without_shutdown(context)).await;
    let Parts { io, read_buf, .. } = connection.into_parts();
    heard.understand(ended.is_ok() && heard.is_understood() && read_buf.is_empty());
    // A body without a length continues until the source closes the connection. An HTTP/1.1 server does not wait for
    // that: it takes the request to have no body, and its answer is the last word.
    let mut stream = io.into_inner();
    let _ = stream.shutdown().await;
    let mut more = [0; 4096];
    while let Ok(1..) = stream.read(&mut more).await {
        heard.understand(false);
    }
}

/// Notes a request and answers it, or returns `None` if its body does not end.
async fn answer(
    shared: &Shared,
    request: Request<Incoming>,
    to: &[IntendedHost],
    channel: MessageProtocol,
    shown: &[(String, Vec<u8>)],
) -> Option<Response<Full<Bytes>>> {
    let (head, mut body) = request.into_parts();
    let path = format!("{} {}", head.method, head.uri);
    let mut parts = vec![("path".to_owned(), path.into_bytes())];
    let header = |(name, value): (&HeaderName, &HeaderValue)| (format!("header {name}"), value.as_bytes().to_vec());
    parts.extend(head.headers.iter().map(header));
    parts.extend_from_slice(shown);
    let (mut kept, mut is_cut) = (Vec::new(), false);
    let mut names: Vec<String> = head.headers.keys().map(ToString::to_string).collect();
    while let Some(frame) = body.frame().await {
        let data = match frame.ok()?.into_data() {
            Ok(data) => data,
            Err(frame) => {
                // A trailer carries as much as a header.
                let trailers = frame.trailers_ref();
                names.extend(trailers.into_iter().flat_map(HeaderMap::keys).map(ToString::to_string));
                parts.extend(trailers.into_iter().flatten().map(header));
                continue;
            }
        };
        let room = MAX_BODY_BYTES.saturating_sub(kept.len());
        is_cut |= data.len() > room;
        kept.extend_from_slice(data.get(..room).unwrap_or(&data));
    }
    parts.push(("names of headers".to_owned(), names.join(" ").into_bytes()));
    if !kept.is_empty() {
        parts.push(("body".to_owned(), kept));
    }
    // A header may name another host than the one that was looked up.
    let named = head.headers.get(HOST).and_then(|host| host.to_str().ok()).map(|host| {
        let bare = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
        bare.map_or(host, |(host, _)| host).to_ascii_lowercase()
    });
    for to in with_host(to.to_vec(), named.filter(|host| super::super::is_host(host))) {
        shared.traffic.record(channel, &to, parts.clone());
    }
    if is_cut {
        shared.traffic.miss();
    }
    Some(empty_answer(&head.headers))
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

/// Records traffic that is neither HTTP nor TLS, and sends nothing.
async fn other(shared: &Arc<Shared>, stream: TcpStream, to: IntendedHost) {
    let mut stream = CapturingStream::new(stream, Capture::new(shared, vec![to], MessageProtocol::Tcp, Vec::new()));
    // A reset is an end, too.
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
}
