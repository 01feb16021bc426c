//! A request on its way out.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use reqwest::header::HeaderMap;
use reqwest::{Method, Request};
use tokio::sync::watch;
use url::Url;

/// A request, kept apart from any one hop of its way.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) url: Url,
    /// For whoever ends up answering.
    pub(crate) headers: HeaderMap,
    /// For the origin of `url` alone: left behind for good when a redirect leaves it.
    pub(crate) secrets: HeaderMap,
    pub(crate) body: Option<Bytes>,
    /// Becomes true when the body is first asked for. Until then no byte of it has left the broker; if this is dropped
    /// before, none ever will.
    pub(crate) on_body: Option<watch::Sender<bool>>,
}

impl Outgoing {
    /// The same once more. Whoever waits for the first to leave does not wait for this one.
    pub(crate) fn again(&self) -> Self {
        let (headers, secrets) = (self.headers.clone(), self.secrets.clone());
        let (method, url, body) = (self.method.clone(), self.url.clone(), self.body.clone());
        Self { method, url, headers, secrets, body, on_body: None }
    }

    /// The request of the present hop.
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

    /// Points the request elsewhere.
    pub(super) fn go_to(&mut self, url: Url) {
        if url.origin() != self.url.origin() {
            self.secrets.clear();
        }
        self.url = url;
    }
}

/// A body that says when it is asked for.
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
