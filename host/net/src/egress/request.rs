//! An outgoing request.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use reqwest::header::HeaderMap;
use reqwest::{Method, Request};
use tokio::sync::watch;
use url::Url;

/// A request, independent of the hops that redirects add.
#[derive(Debug)]
pub struct OutgoingRequest {
    /// The method of the request.
    pub method: Method,
    /// The URL to which the request goes first.
    pub url: Url,
    /// Headers for every server that the request reaches.
    pub headers: HeaderMap,
    /// Headers only for the origin of `url`; they are dropped permanently when a redirect leaves it.
    pub secrets: HeaderMap,
    /// The body, sent again where a redirect asks for it.
    pub body: Option<Bytes>,
    /// Becomes true when the body is first asked for. Until then no byte of it has left the broker; if the request is
    /// dropped before that, none ever will.
    pub on_body: Option<watch::Sender<bool>>,
}

impl OutgoingRequest {
    /// Returns a copy to be sent again. `on_body` stays with the first, so the copy does not report when its body is
    /// sent.
    pub fn again(&self) -> Self {
        let (headers, secrets) = (self.headers.clone(), self.secrets.clone());
        let (method, url, body) = (self.method.clone(), self.url.clone(), self.body.clone());
        Self { method, url, headers, secrets, body, on_body: None }
    }

    /// Returns the request for the current hop.
    pub(super) fn hop(&mut self) -> Request {
        let mut request = Request::new(self.method.clone(), self.url.clone());
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().extend(self.secrets.clone());
        if let Some(data) = self.body.clone() {
            let body = Announced { data: Some(data), on_body: self.on_body.take() };
            *request.body_mut() = Some(reqwest::Body::wrap(body));
        }
        request
    }

    /// Changes the URL to the target of a redirect.
    pub(super) fn go_to(&mut self, url: Url) {
        if url.origin() != self.url.origin() {
            self.secrets.clear();
        }
        self.url = url;
    }
}

/// A body that reports when it is first asked for.
struct Announced {
    data: Option<Bytes>,
    on_body: Option<watch::Sender<bool>>,
}

impl Body for Announced {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(on_body) = self.on_body.take() {
            on_body.send_replace(true);
        }
        Poll::Ready(self.data.take().map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.data.as_ref().map_or(0, |data| data.len() as u64))
    }
}
