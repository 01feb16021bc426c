//! Reaching the agent while one of its calls is open: progress, and questions that a person answers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};

use crate::message::{Answer, Id, Json, Message, Notification, Request, Response, RpcError};
use crate::session::{Contact, Elicitation};

/// Where messages to the agent go that belong to one request: the connection (stdio) or the response's stream (HTTP).
pub(crate) type Out = mpsc::Sender<Message>;

/// How many messages may wait for a slow agent before whoever writes waits too.
pub(crate) const OUT_QUEUE: usize = 64;

/// How many questions may be open at one agent. Each holds a call open; a person answers one at a time.
pub(crate) const MAX_ASKS: usize = 64;

/// The agent, as one open call reaches it.
pub(crate) struct Line {
    out: Out,
    elicitation: Elicitation,
    asks: Asks,
}

impl Line {
    pub(crate) fn new(out: Out, elicitation: Elicitation, asks: Asks) -> Self {
        Self { out, elicitation, asks }
    }
}

#[async_trait]
impl Contact for Line {
    async fn notify(&self, notification: Notification) {
        // An agent that has gone needs no progress.
        let _ = self.out.send(Message::Notification(notification)).await;
    }

    fn elicitation(&self) -> Elicitation {
        self.elicitation
    }

    async fn request(&self, method: &str, params: Json) -> Result<Json, RpcError> {
        if self.elicitation != Elicitation::Request {
            return Err(RpcError::new(
                RpcError::INTERNAL,
                format!("this agent did not declare that it takes {method:?}"),
            ));
        }
        let mut ask = self.asks.open(self.out.clone())?;
        let request = Request { id: ask.id.clone(), method: method.to_owned(), params: Some(params) };
        self.out.send(Message::Request(request)).await.map_err(|_| lost())?;
        tokio::select! {
            answer = &mut ask.answer => {
                ask.settled = true;
                match answer.map_err(|_| lost())? {
                    Answer::Result(result) => Ok(result),
                    Answer::Error(error) => Err(peer_error(&error)),
                }
            }
            () = self.out.closed() => Err(lost()),
        }
    }
}

fn lost() -> RpcError {
    RpcError::new(RpcError::INTERNAL, "the connection to the agent was lost before it answered")
}

fn peer_error(error: &Json) -> RpcError {
    RpcError {
        code: error.get("code").and_then(|code| code.as_str().parse().ok()).unwrap_or(RpcError::INTERNAL),
        message: error.get_str("message").unwrap_or_default(),
        data: error.get("data").and_then(|data| data.read().ok()),
    }
}

/// The questions that are open at one agent.
#[derive(Clone, Default)]
pub(crate) struct Asks(Arc<Open>);

#[derive(Default)]
struct Open {
    next: AtomicU64,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    asks: HashMap<u64, oneshot::Sender<Answer>>,
    closed: bool,
}

impl Asks {
    /// Takes a response of the agent to the call that waits for it. One that nobody waits for is dropped: its question
    /// was withdrawn, or it was never asked.
    pub(crate) fn settle(&self, response: Response) {
        let Some(number) = response.id.as_ref().and_then(Id::as_number) else { return };
        let waiting = self.lock().asks.remove(&number);
        if let Some(waiting) = waiting {
            let _ = waiting.send(response.answer);
        }
    }

    /// Nobody will answer any more: the agent has gone.
    pub(crate) fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        waiting.asks.clear();
    }

    fn open(&self, out: Out) -> Result<Ask, RpcError> {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        let mut waiting = self.lock();
        if waiting.closed {
            return Err(lost());
        }
        if waiting.asks.len() >= MAX_ASKS {
            let message = format!("{MAX_ASKS} questions are already open at this agent");
            return Err(RpcError::new(RpcError::INTERNAL, message));
        }
        waiting.asks.insert(number, sender);
        Ok(Ask { id: Id::number(number), number, answer, settled: false, asks: self.clone(), out })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        // The map is whole at every point at which a holder could panic.
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One open question. Dropped unanswered, it is withdrawn at the agent.
struct Ask {
    id: Id,
    number: u64,
    answer: oneshot::Receiver<Answer>,
    settled: bool,
    asks: Asks,
    out: Out,
}

impl Drop for Ask {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        self.asks.lock().asks.remove(&self.number);
        let params = Json::of(&serde_json::json!({ "requestId": self.number }));
        let withdrawn = Notification { method: "notifications/cancelled".to_owned(), params: Some(params) };
        // Best effort: an agent too slow to be told keeps a question whose answer is dropped.
        let _ = self.out.try_send(Message::Notification(withdrawn));
    }
}
