//! The messages to an agent that it has not read yet, and the memory that they may take.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::principal::Principal;
use crate::protocol::{Answer, Json, Message, Response, RpcError};
use crate::shared_limit::SharedLimit;

/// The number of messages that may wait for a slow agent before their sender waits too.
const QUEUE: usize = 64;

/// The size in bytes above which a message counts. The number of requests and of places in their queues bounds smaller
/// ones.
const SMALL_BYTES: usize = 16 * 1024;

/// The number of messages of the largest size that may be unread at once, by all callers together: 512 MiB unless the
/// configuration allows larger messages. By the rule of [`SharedLimit`] one caller gets half of that, and others still
/// find room.
const LARGEST_AT_ONCE: u64 = 8;

/// The room for messages that one principal has not read yet.
#[derive(Clone)]
pub(crate) struct OutgoingRoom {
    limit: Arc<SharedLimit>,
    principal: Principal,
}

impl OutgoingRoom {
    /// Returns the limit that all principals of a front share, if no message has more than `max` bytes.
    pub(crate) fn limit(max: usize) -> Arc<SharedLimit> {
        SharedLimit::new(LARGEST_AT_ONCE.saturating_mul(max as u64))
    }

    /// Returns the room that a principal has within a limit.
    pub(crate) fn new(limit: &Arc<SharedLimit>, principal: &Principal) -> Self {
        Self { limit: Arc::clone(limit), principal: principal.clone() }
    }

    /// Makes a payload keep its part of the room until its memory is released, after it was written. Returns `None` if
    /// there is no room.
    fn hold(&self, payload: Json) -> Option<Json> {
        if payload.as_bytes().len() <= SMALL_BYTES {
            return Some(payload);
        }
        // Each message is written on one line. A line made from it later would be an uncounted copy.
        let payload = payload.on_one_line();
        let size = payload.as_bytes().len();
        self.limit.try_take(&self.principal, size as u64).map(|share| payload.held_with(share))
    }
}

/// The sender of messages to the agent that belong to one request, over the connection (stdio) or the response's stream
/// (HTTP).
#[derive(Clone)]
pub(crate) struct MessageSender {
    queue: mpsc::Sender<Message>,
    room: OutgoingRoom,
}

impl MessageSender {
    /// Returns the two ends of a queue of messages.
    pub(crate) fn queue(room: OutgoingRoom) -> (Self, mpsc::Receiver<Message>) {
        let (queue, messages) = mpsc::channel(QUEUE);
        (Self { queue, room }, messages)
    }

    /// Sends a message, and waits until the queue has a place for it. For a large one there must be room at once: an
    /// answer without room becomes an error that says so, and everything else is dropped. Returns false if the message
    /// will not reach the agent.
    pub(crate) async fn send(&self, message: Message) -> bool {
        match self.held(message) {
            Some(message) => self.queue.send(message).await.is_ok(),
            None => false,
        }
    }

    /// Sends a message, unless the queue is full. Returns false if the message will not reach the agent.
    pub(crate) fn try_send(&self, message: Message) -> bool {
        self.held(message).is_some_and(|message| self.queue.try_send(message).is_ok())
    }

    /// Waits until nobody takes messages any more.
    pub(crate) async fn closed(&self) {
        self.queue.closed().await;
    }

    /// Reports whether nobody takes messages any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    fn held(&self, message: Message) -> Option<Message> {
        let hold = |payload: Option<Json>| match payload {
            Some(payload) => self.room.hold(payload).map(Some),
            None => Some(None),
        };
        Some(match message {
            Message::Response(Response { id, answer }) => {
                let (size, held) = match answer {
                    Answer::Result(result) => (result.as_bytes().len(), self.room.hold(result).map(Answer::Result)),
                    Answer::Error(error) => (error.as_bytes().len(), self.room.hold(error).map(Answer::Error)),
                };
                Message::Response(Response { id, answer: held.unwrap_or_else(|| no_room(size)) })
            }
            Message::Notification(mut notification) => {
                notification.params = hold(notification.params)?;
                Message::Notification(notification)
            }
            Message::Request(mut request) => {
                request.params = hold(request.params)?;
                Message::Request(request)
            }
        })
    }
}

/// Returns the error that the agent gets instead of an answer for which there is no room.
fn no_room(size: usize) -> Answer {
    let message = format!(
        "the call has ended, but its answer of {size} bytes was dropped: answers that this caller has not read yet take \
         up all the room; read those first"
    );
    let error = RpcError::new(RpcError::INTERNAL, message).with_data(serde_json::json!({ "code": "answer-dropped" }));
    Answer::from(error)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use crate::protocol::{Id, Method, Notification};

    const MAX: usize = 64 * 1024;

    fn text(size: usize) -> Json {
        Json::of(&"x".repeat(size - 2))
    }

    fn answer(size: usize) -> Message {
        Message::Response(Response { id: Some(Id::number(1)), answer: Answer::Result(text(size)) })
    }

    fn progress(size: usize) -> Message {
        Message::Notification(Notification { method: Method::NotificationsProgress, params: Some(text(size)) })
    }

    #[tokio::test]
    async fn what_a_caller_does_not_read_has_a_bound_and_the_next_caller_finds_room() {
        let limit = OutgoingRoom::limit(MAX);
        let [one, other] = ["token:a", "token:b"]
            .map(|name| MessageSender::queue(OutgoingRoom::new(&limit, &Principal::established(name))));
        for _ in 0..4 {
            assert!(one.0.send(answer(MAX)).await);
        }
        assert!(!one.0.send(progress(MAX)).await, "a notification without room is dropped");
        assert!(one.0.send(progress(SMALL_BYTES)).await, "a small one needs none");
        assert!(one.0.send(answer(MAX)).await, "an answer is never left out");
        assert!(other.0.send(answer(MAX)).await);
        let (sender, mut unread) = one;
        let mut read: Vec<_> = std::iter::from_fn(|| unread.try_recv().ok()).collect();
        let Some(Message::Response(Response { answer: Answer::Error(error), .. })) = read.pop() else { panic!() };
        assert!(error.as_str().contains("answer-dropped") && error.as_str().contains("65536 bytes"), "{error:?}");
        // Messages that are read and not yet written still count, in whatever pieces they are.
        let written = read.iter().map(Message::to_chunks).collect::<Vec<_>>();
        drop(read);
        assert!(!sender.send(progress(MAX)).await);
        drop(written);
        assert!(sender.send(progress(MAX)).await);
    }

    #[tokio::test]
    async fn an_answer_of_several_lines_counts_until_it_is_written() {
        let limit = OutgoingRoom::limit(MAX);
        let (sender, mut unread) = MessageSender::queue(OutgoingRoom::new(&limit, &Principal::established("token:a")));
        let lines = || Json::parse(format!("[{}1]", "\n".repeat(MAX))).unwrap();
        assert!(sender.send(Message::Response(Response::result(Id::number(1), lines()))).await);
        let pieces = unread.recv().await.map(|message| message.to_chunks()).unwrap();
        let free = || limit.try_take(&Principal::established("token:b"), LARGEST_AT_ONCE / 2 * MAX as u64).is_some();
        assert!(!free());
        drop(pieces);
        assert!(free());
    }
}
