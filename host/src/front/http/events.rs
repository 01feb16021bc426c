//! Streams of events (SSE) as HTTP bodies.

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
use super::streams::{EventId, StreamReader};
use crate::protocol::Message;

/// The media type of a stream of events.
const EVENTS: &str = "text/event-stream";

/// An SSE comment, which shows that the stream is alive.
const ALIVE: Bytes = Bytes::from_static(b":\n\n");

/// Returns a stream of `first` and then of the messages from `messages`, until all senders of these are gone. `held` is
/// dropped when the stream ends or the peer disconnects.
pub(crate) fn plain(first: Option<Message>, messages: mpsc::Receiver<Message>, held: impl Send + 'static) -> Response {
    let first = stream::iter(first.map(|message| event(None, &message)));
    let rest = stream::unfold((messages, held), |(mut messages, held)| async move {
        let pieces = match timeout(KEEP_ALIVE, messages.recv()).await {
            Ok(message) => event(None, &message?),
            Err(_) => vec![ALIVE],
        };
        Some((pieces, (messages, held)))
    });
    response(first.chain(rest))
}

/// After how many milliseconds an agent should resume a stream that broke.
const RETRY_MILLIS: u32 = 1_000;

/// Returns a stream of what a reader gets, each event with its id. With `starts_with_id` the first event
/// has only an id and the time after which to resume, so that a stream that breaks before its first message can be
/// resumed too (2025-11-25). `held` as for [`plain`].
pub(crate) fn resumable(reader: StreamReader, starts_with_id: bool, held: impl Send + 'static) -> Response {
    let prime = starts_with_id.then(|| {
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

/// Reports whether an answer is a stream of events.
pub(crate) fn is_stream(response: &Response) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == EVENTS)
}

/// Returns one event in pieces. A message is one line, so one `data` field holds it.
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
        // A proxy that buffered events would deliver progress only with the answer.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
