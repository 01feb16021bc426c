//! Streams of events as HTTP bodies.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::reply::KEEP_ALIVE;
use super::streams::{EventId, Reader};
use crate::protocol::Message;

/// The media type of a stream of events.
const EVENTS: &str = "text/event-stream";

/// A comment, which says that we live.
const ALIVE: Bytes = Bytes::from_static(b":\n\n");

/// `first`, then what comes through `said`, until nobody can say any more. `held` is dropped when the stream ends or the
/// peer leaves.
pub(crate) fn plain(first: Option<Message>, said: mpsc::Receiver<Message>, held: impl Send + 'static) -> Response {
    let first = stream::iter(first.map(|message| event(None, &message)));
    let rest = stream::unfold((said, held), |(mut said, held)| async move {
        let pieces = match timeout(KEEP_ALIVE, said.recv()).await {
            Ok(message) => event(None, &message?),
            Err(_) => vec![ALIVE],
        };
        Some((pieces, (said, held)))
    });
    response(first.chain(rest))
}

/// When an agent should come back for a stream that broke, in milliseconds.
const RETRY_MILLIS: u32 = 1_000;

/// What a reader gets, each event with its id. `primed` streams begin with an event that has nothing but an id, and says when to
/// come back, so that one that breaks before it said anything can be taken up too (2025-11-25). `held` as for [`plain`].
pub(crate) fn resumable(reader: Reader, primed: bool, held: impl Send + 'static) -> Response {
    let prime = primed.then(|| {
        let id = reader.position();
        vec![Bytes::from(format!("id: {id}\nretry: {RETRY_MILLIS}\ndata:\n\n"))]
    });
    let rest = stream::unfold((reader, held), |(mut reader, held)| async move {
        let pieces = match timeout(KEEP_ALIVE, reader.next()).await {
            Ok(next) => next.map(|(id, message)| event(Some(id), &message))?,
            Err(_) => vec![ALIVE],
        };
        Some((pieces, (reader, held)))
    });
    response(stream::iter(prime).chain(rest))
}

/// Whether an answer is a stream of events.
pub(crate) fn is_stream(response: &Response) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == EVENTS)
}

/// A message is one line, so one field holds it.
fn event(id: Option<EventId>, message: &Message) -> Vec<Bytes> {
    let head = id.map_or_else(|| "data: ".to_owned(), |id| format!("id: {id}\ndata: "));
    let mut pieces = message.to_chunks();
    if let [line] = pieces.as_slice() {
        return vec![[head.as_bytes(), line, b"\n\n"].concat().into()];
    }
    pieces.insert(0, head.into());
    pieces.push(Bytes::from_static(b"\n\n"));
    pieces
}

fn response(events: impl futures_util::Stream<Item = Vec<Bytes>> + Send + 'static) -> Response {
    let pieces = events.flat_map(|pieces| stream::iter(pieces.into_iter().map(Ok::<_, Infallible>)));
    let mut response = Response::new(Body::from_stream(pieces));
    for (name, value) in [
        (CONTENT_TYPE, EVENTS),
        (CACHE_CONTROL, "no-cache"),
        // Proxies that hold events back would make progress arrive with the answer.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
