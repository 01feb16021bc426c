//! The bodies of requests, within one memory budget for all of them.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::http::StatusCode;
use bytes::Bytes;
use http_body_util::BodyExt as _;

use super::reply::HttpRefusal;
use crate::principal::Principal;
use crate::protocol::{MessageBuffer, MessageError, RpcError};
use crate::shared_limit::{LimitShare, SharedLimit};

/// The number of bodies of the largest size for which there is room at once, for all callers together: 256 MiB unless
/// the configuration allows larger messages. By the rule of [`SharedLimit`] one caller gets two of them, and others
/// still find room.
const LARGEST_AT_ONCE: u64 = 4;

/// The size in bytes above which a body counts. The number of requests bounds smaller ones, which wait for nothing.
const SMALL_BYTES: usize = 64 * 1024;

/// The longest time that a request's body may take to arrive. 64 MiB pass in that time at 0.6 MB/s; a slower sender
/// holds its share no longer.
pub(super) const ARRIVAL: Duration = Duration::from_secs(120);

/// The longest time that a request's body may wait for room. Longer than calls take that need no person; shorter than
/// clients wait.
const ROOM_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time for which the rest of a refused body is read, so that its sender gets to read the answer.
const LEFTOVER: Duration = Duration::from_secs(30);

/// The memory budget for the bodies of all requests.
pub(super) struct BodyBudget {
    room: Arc<SharedLimit>,
    /// The largest body, in bytes.
    max: usize,
}

/// The reason why a body was not read.
enum Unread {
    TooLarge(usize),
    NoRoom,
    Broken,
}

/// A body and its part of the budget, which is given back with the memory, however many slices of the body there are.
struct Held {
    text: MessageBuffer,
    _share: Option<LimitShare>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.text.as_slice()
    }
}

impl BodyBudget {
    /// Returns the budget for bodies of at most `max` bytes each.
    pub(super) fn new(max: usize) -> Self {
        Self { room: SharedLimit::new(LARGEST_AT_ONCE.saturating_mul(max as u64)), max }
    }

    /// Reads a body to its end. A large body waits for room first.
    ///
    /// # Errors
    /// 413 if it is too large, 503 if there is no room, 408 if it does not arrive in time, 400 if it breaks off.
    pub(super) async fn read(&self, mut body: Body, principal: &Principal) -> Result<Bytes, HttpRefusal> {
        let read = tokio::time::timeout(ARRIVAL, self.collect(&mut body, principal)).await;
        match read {
            Ok(Ok(whole)) => Ok(whole),
            Ok(Err(Unread::TooLarge(size))) => {
                Err(HttpRefusal::parse_error(&Bytes::new(), &MessageError::TooLarge { size, limit: self.max }))
            }
            Ok(Err(Unread::NoRoom)) => {
                // If the connection were closed while its peer still writes, the peer would lose the answer.
                let rest = async { while let Some(Ok(_)) = body.frame().await {} };
                let _ = tokio::time::timeout(LEFTOVER, rest).await;
                let message = format!(
                    "no room for this body: all bodies together may have {} bytes, and one caller a part of that",
                    LARGEST_AT_ONCE.saturating_mul(self.max as u64)
                );
                Err(HttpRefusal::busy(message))
            }
            Ok(Err(Unread::Broken)) => {
                let message = "the body ended before it was whole";
                Err(HttpRefusal::new(StatusCode::BAD_REQUEST, RpcError::INVALID_REQUEST, message))
            }
            Err(_) => {
                let message = format!("the body took longer than {} s to arrive", ARRIVAL.as_secs());
                Err(HttpRefusal::new(StatusCode::REQUEST_TIMEOUT, RpcError::INVALID_REQUEST, message))
            }
        }
    }

    async fn collect(&self, body: &mut Body, principal: &Principal) -> Result<Bytes, Unread> {
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if announced > self.max {
            return Err(Unread::TooLarge(announced));
        }
        let mut place = None;
        if announced > SMALL_BYTES {
            place = Some(self.room(principal, announced).await?);
        }
        let mut first = Bytes::new();
        let mut text = MessageBuffer::default();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| Unread::Broken)?.into_data() else { continue };
            let size = first.len().saturating_add(text.len()).saturating_add(data.len());
            if size > self.max {
                return Err(Unread::TooLarge(size));
            }
            if size > SMALL_BYTES && place.is_none() {
                // Its size is unknown, so it takes the room of the largest: bodies that hold a part must not wait for
                // each other.
                place = Some(self.room(principal, self.max).await?);
            }
            if first.is_empty() && text.is_empty() && place.is_none() {
                // Most bodies come in one piece, which is not copied.
                first = data;
                continue;
            }
            if text.is_empty() && announced > SMALL_BYTES {
                text = MessageBuffer::with_capacity(announced);
            }
            for piece in [std::mem::take(&mut first), data] {
                text.extend(&piece, self.max);
            }
        }
        if text.is_empty() {
            return Ok(first);
        }
        text.shrink();
        if let Some(place) = &mut place {
            place.shrink(text.len() as u64);
        }
        Ok(Bytes::from_owner(Held { text, _share: place }))
    }

    async fn room(&self, principal: &Principal, size: usize) -> Result<LimitShare, Unread> {
        self.room.take(principal, size as u64, ROOM_TIMEOUT).await.ok_or(Unread::NoRoom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::convert::Infallible;

    use futures_util::stream;

    use super::*;

    const MAX: usize = 1024 * 1024;

    fn chunked(sizes: &[usize]) -> Body {
        let chunks: Vec<_> = sizes.iter().map(|size| Ok::<_, Infallible>(vec![b'x'; *size])).collect();
        Body::from_stream(stream::iter(chunks))
    }

    #[tokio::test]
    async fn a_body_arrives_whole_in_however_many_pieces() {
        let bodies = BodyBudget::new(MAX);
        let me: Principal = Principal::established("token");
        for sizes in [&[][..], &[10], &[10, 20], &[SMALL_BYTES, 1], &[0, MAX - 1, 1]] {
            let read = bodies.read(chunked(sizes), &me).await.unwrap();
            assert_eq!(read, vec![b'x'; sizes.iter().sum()], "{sizes:?}");
        }
        assert_eq!(bodies.read(Body::from(vec![b'x'; MAX]), &me).await.unwrap().len(), MAX);
        for over in [Body::from(vec![b'x'; MAX + 1]), chunked(&[MAX, 1])] {
            assert_eq!(bodies.read(over, &me).await.unwrap_err().status, StatusCode::PAYLOAD_TOO_LARGE);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_share_a_budget_and_one_that_exceeds_it_waits_and_is_then_refused() {
        let bodies = BodyBudget::new(MAX);
        let [one, other]: [Principal; 2] = ["token:a", "token:b"].map(Principal::established);
        let large = || Body::from(vec![b'x'; MAX]);
        let first = bodies.read(large(), &one).await.unwrap();
        let second = bodies.read(chunked(&[MAX / 2, MAX / 2]), &one).await.unwrap();
        let refused = bodies.read(large(), &one).await.unwrap_err();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.header.is_some(), "it says when to come back");
        // Other callers are not affected, and a small body does not wait.
        assert!(bodies.read(Body::from("{}"), &one).await.is_ok());
        let theirs = bodies.read(large(), &other).await.unwrap();
        assert!(bodies.read(large(), &other).await.is_err());
        // A slice of a body keeps the memory of the whole, and so its room.
        let part = second.slice(..1);
        drop((second, theirs));
        assert!(bodies.read(large(), &one).await.is_err());
        let waiting = bodies.read(large(), &one);
        let freeing = async {
            tokio::task::yield_now().await;
            drop(part);
        };
        assert!(futures_util::future::join(waiting, freeing).await.0.is_ok());
        drop(first);
    }
}
