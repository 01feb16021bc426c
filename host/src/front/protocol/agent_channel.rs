//! The channel to an agent: progress of its calls, notifications, and questions that a person answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use crate::agent::{AgentPeer, Elicitation};
use crate::call::CallProgress;
use crate::protocol::{Answer, Era, Id, Json, Message, Method, Notification, Request, Response, RpcError};
use crate::sync::{Mutex, MutexGuard};

use super::client::ClientInfo;
use crate::front::outgoing::MessageSender;

/// The largest number of questions that may be open at one agent. Each holds a call open, and a person answers one at a
/// time.
pub(crate) const MAX_ASKS: usize = 64;

/// The channel to the agent for one open call, or for messages that belong to no call.
pub(crate) struct AgentChannel {
    out: MessageSender,
    era: Era,
    elicitation: Elicitation,
    asks: OpenQuestions,
    /// The id of the agent's request, or `None` for messages that belong to no request.
    id: Option<Id>,
    handed_over: Mutex<HandedOver>,
    /// True once the call is answered while questions are open: the end of its stream is then no loss of the agent.
    outlived: AtomicBool,
}

/// The calls that a request has been, one after the other: a group makes it at one member after the other.
#[derive(Default)]
struct HandedOver {
    /// The progress of the latest one.
    latest: Option<Arc<CallProgress>>,
    /// True if a source may have seen one before that.
    earlier_sent: bool,
}

impl AgentChannel {
    pub(crate) fn new(out: MessageSender, client: &ClientInfo, asks: OpenQuestions, id: Option<Id>) -> Self {
        Self {
            out,
            era: client.agent.era,
            elicitation: client.elicitation,
            asks,
            id,
            handed_over: Mutex::default(),
            outlived: AtomicBool::new(false),
        }
    }

    /// Reports whether a source may have seen the call.
    pub(crate) fn may_be_sent(&self) -> bool {
        let HandedOver { latest, earlier_sent } = &*self.handed_over.lock();
        *earlier_sent || latest.as_ref().is_some_and(|progress| !progress.is_unsent())
    }
}

impl AgentPeer for AgentChannel {
    fn notify(&self, notification: Notification) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if !self.out.send(Message::Notification(notification)).await {
                tracing::debug!("an agent does not read, or has gone; a notification of a call was dropped");
            }
        })
    }

    fn request_id(&self) -> Option<Json> {
        Json::parse(self.id.as_ref()?.as_json().to_owned()).ok()
    }

    fn ended_before_its_questions(&self) {
        self.outlived.store(true, Ordering::Relaxed);
    }

    fn handed_over(&self, progress: &Arc<CallProgress>) {
        let mut handed_over = self.handed_over.lock();
        let earlier = handed_over.latest.replace(Arc::clone(progress));
        handed_over.earlier_sent |= earlier.is_some_and(|earlier| !earlier.is_unsent());
    }

    fn elicitation(&self) -> Elicitation {
        self.elicitation
    }

    fn offer(&self, notification: Notification) {
        if !self.out.try_send(Message::Notification(notification)) {
            tracing::debug!("an agent does not read; a notification that belongs to no call was dropped");
        }
    }

    fn request<'a>(&'a self, method: &'a Method, params: Option<Json>) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            if self.era == Era::Modern {
                return refusal("an agent of this era is asked only by `input_required`");
            }
            let mut ask = match self.asks.open(self.out.clone()) {
                Ok(ask) => ask,
                Err(error) => return Answer::from(error),
            };
            let request = Request { id: ask.id.clone(), method: method.to_owned(), params };
            if !self.out.send(Message::Request(request)).await {
                return lost();
            }
            let lost_before_the_end = async {
                self.out.closed().await;
                if self.outlived.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                answer = &mut ask.answer => {
                    ask.settled = true;
                    answer.unwrap_or_else(|_| lost())
                }
                () = lost_before_the_end => lost(),
            }
        })
    }
}

fn refusal(why: &str) -> Answer {
    Answer::from(RpcError::new(RpcError::INTERNAL, why))
}

fn lost() -> Answer {
    refusal("the connection to the agent was lost before it answered")
}

/// The questions that are open at one agent.
#[derive(Clone, Default)]
pub(crate) struct OpenQuestions(Arc<WaitingAnswers>);

#[derive(Default)]
struct WaitingAnswers {
    next: AtomicU64,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    asks: HashMap<u64, oneshot::Sender<Answer>>,
    closed: bool,
}

impl OpenQuestions {
    /// Passes a response of the agent to the call that waits for it. A response that no call waits for is dropped: its
    /// question was withdrawn, or it was never asked.
    pub(crate) fn deliver_response(&self, response: Response) {
        let Some(number) = response.id.as_ref().and_then(Id::as_number) else { return };
        let waiting = self.lock().asks.remove(&number);
        if let Some(waiting) = waiting {
            let _ = waiting.send(response.answer);
        }
    }

    /// Fails the open questions and all later ones, because the agent has disconnected.
    pub(crate) fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        waiting.asks.clear();
    }

    fn open(&self, out: MessageSender) -> Result<Ask, RpcError> {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        let mut waiting = self.lock();
        if waiting.closed {
            return Err(RpcError::new(RpcError::INTERNAL, "the agent has gone"));
        }
        if waiting.asks.len() >= MAX_ASKS {
            let message = format!("{MAX_ASKS} questions are already open at this agent");
            return Err(RpcError::new(RpcError::INTERNAL, message));
        }
        waiting.asks.insert(number, sender);
        Ok(Ask { id: Id::number(number), number, answer, settled: false, asks: self.clone(), out })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock()
    }
}

/// One open question. If it is dropped without an answer, it is withdrawn at the agent.
struct Ask {
    id: Id,
    number: u64,
    answer: oneshot::Receiver<Answer>,
    settled: bool,
    asks: OpenQuestions,
    out: MessageSender,
}

impl Drop for Ask {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        self.asks.lock().asks.remove(&self.number);
        let params = Json::of(&serde_json::json!({ "requestId": self.number }));
        let withdrawn = Notification { method: Method::NotificationsCancelled.to_owned(), params: Some(params) };
        // Best effort: an agent that is too slow to be notified keeps the question, and its answer is dropped.
        self.out.try_send(Message::Notification(withdrawn));
    }
}
