//! The page to which the browser returns: a listener on loopback, for one login, for a limited time (RFC 8252, section
//! 7.3).

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue, REFERRER_POLICY};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use subtle::ConstantTimeEq as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use url::form_urlencoded;

use super::OAuthError;

/// The longest time that a person may take to log in, including whatever their provider asks of them.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// The longest time that the head of a request may take to arrive: it comes from a browser on this machine.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest number of connections to the listener of a login that may be open at once. Browsers open some before
/// they need them.
const MAX_CONNECTIONS: usize = 16;

/// The longest time that the delivery of the last page to the browser may take.
const LAST_PAGE_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause after accepting failed, which it does when no descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const PATH: &str = "/callback";

/// A listener for the answer to one login.
pub(crate) struct Callback {
    listener: TcpListener,
    address: SocketAddr,
}

/// The parameters that the authorization server sent through the browser. Their `state` was found to match.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CallbackParameters {
    pub(crate) code: Option<String>,
    pub(crate) iss: Option<String>,
    pub(crate) error: Option<String>,
    pub(crate) error_description: Option<String>,
}

impl Callback {
    /// Listens on 127.0.0.1, at the given port or at one that the system chooses.
    pub(crate) async fn bind(port: Option<u16>) -> Result<Self, OAuthError> {
        let bound = async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.unwrap_or(0))).await?;
            let address = listener.local_addr()?;
            Ok(Self { listener, address })
        };
        bound.await.map_err(|error: io::Error| {
            let port = port.map_or_else(|| "a port".to_owned(), |port| format!("port {port}"));
            OAuthError::Source(format!("cannot listen on {port} of 127.0.0.1: {error}; name another with `--port`"))
        })
    }

    /// Returns the redirect URI, to which the authorization server sends the browser back.
    pub(crate) fn redirect(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    /// Waits for the answer to the request that carried `state`. An answer with another state is rejected, and the wait
    /// continues.
    pub(crate) async fn wait(self, state: &str) -> Result<CallbackParameters, OAuthError> {
        self.wait_with(state, TcpListener::accept).await
    }

    async fn wait_with(
        self,
        state: &str,
        accept: impl AsyncFn(&TcpListener) -> io::Result<(TcpStream, SocketAddr)>,
    ) -> Result<CallbackParameters, OAuthError> {
        let mut connections = JoinSet::new();
        let (found, mut arrivals) = mpsc::channel(1);
        let page = Arc::new(Page { host: self.address.to_string(), state: state.to_owned(), found });
        let arrived = tokio::time::timeout(LOGIN_TIMEOUT, async {
            loop {
                tokio::select! {
                    Some(parameters) = arrivals.recv() => return parameters,
                    accepted = accept(&self.listener), if connections.len() < MAX_CONNECTIONS => match accepted {
                        Ok((stream, _)) => drop(connections.spawn(serve(Arc::clone(&page), stream))),
                        Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                    },
                    Some(_) = connections.join_next(), if !connections.is_empty() => {}
                }
            }
        });
        let arrived = arrived.await.map_err(|_| OAuthError::Abandoned(LOGIN_TIMEOUT.as_secs()))?;
        drop(self.listener);
        // Otherwise the person would see a broken page.
        let _ =
            tokio::time::timeout(LAST_PAGE_TIMEOUT, async { while connections.join_next().await.is_some() {} }).await;
        Ok(arrived)
    }
}

struct Page {
    host: String,
    state: String,
    found: mpsc::Sender<CallbackParameters>,
}

async fn serve(page: Arc<Page>, stream: TcpStream) {
    let service = service_fn(|request| {
        let answer = page.answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let builder =
        http1::Builder::new().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).keep_alive(false).to_owned();
    // A browser that disconnects has received its page, or comes back.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

impl Page {
    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let ours = request.headers().get(HOST).is_some_and(|host| host.as_bytes() == self.host.as_bytes());
        if !ours || request.method() != Method::GET || request.uri().path() != PATH {
            return page(StatusCode::NOT_FOUND, "There is nothing here.\n");
        }
        let parameters = read(request.uri().query().unwrap_or_default(), &self.state);
        match parameters.map(|parameters| self.found.try_send(parameters)) {
            Some(Ok(())) => {
                page(StatusCode::OK, "Portcullis has received the answer. The terminal shows the result.\n")
            }
            Some(Err(_)) => page(StatusCode::GONE, "This login has already been answered.\n"),
            None => page(StatusCode::BAD_REQUEST, "This is not the answer to the login that is waiting here.\n"),
        }
    }
}

/// Returns the parameters, if they belong to the request that carried `state` and none is given twice.
fn read(query: &str, state: &str) -> Option<CallbackParameters> {
    let mut parameters = CallbackParameters::default();
    let mut given = None;
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let place = match &*name {
            "state" => &mut given,
            "code" => &mut parameters.code,
            "iss" => &mut parameters.iss,
            "error" => &mut parameters.error,
            "error_description" => &mut parameters.error_description,
            _ => continue,
        };
        if place.replace(value.into_owned()).is_some() {
            return None;
        }
    }
    bool::from(given?.as_bytes().ct_eq(state.as_bytes())).then_some(parameters)
}

fn page(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'"));
    // The URL of this page contains the code.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_connection_that_could_not_be_accepted_does_not_end_the_wait() {
        let callback = Callback::bind(None).await.unwrap();
        let (address, failed) = (callback.address, AtomicBool::new(false));
        let accept = async |listener: &TcpListener| match failed.swap(true, Ordering::Relaxed) {
            true => listener.accept().await,
            false => Err(io::Error::from_raw_os_error(24)),
        };
        let browser = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = format!("GET /callback?code=c&state=s3cret HTTP/1.1\r\nhost: {address}\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut page = String::new();
            stream.read_to_string(&mut page).await.unwrap();
            page
        };
        let both = async { tokio::join!(callback.wait_with("s3cret", accept), browser) };
        let (arrived, page) = tokio::time::timeout(Duration::from_secs(30), both).await.unwrap();
        assert_eq!(arrived.unwrap().code.as_deref(), Some("c"));
        assert!(page.contains("has received the answer"), "{page}");
    }

    #[test]
    fn only_the_answer_with_our_state_is_read() {
        let code =
            |code: &str| Some(CallbackParameters { code: Some(code.to_owned()), ..CallbackParameters::default() });
        assert_eq!(read("code=a%20b&state=s3cret&extra=1", "s3cret"), code("a b"));
        for bad in [
            "code=a",
            "code=a&state=",
            "code=a&state=other",
            "code=a&state=s3cret&state=s3cret",
            "code=a&code=b&state=s3cret",
            "",
        ] {
            assert_eq!(read(bad, "s3cret"), None, "{bad}");
        }
    }
}
