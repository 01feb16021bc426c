//! The requests that wait for the source's answer, and the state that a connection shares between its tasks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::McpConnectionConfig;
use super::control_queue::QueuedMessage;
use super::request_turns::RequestTurns;
use super::url_elicitations::UrlElicitations;

use crate::call::{Cause, SessionId};
use crate::protocol::{Answer, Id, Json, Message, Method, Notification, Request};
use crate::source::transport::{Transport, TransportError};
use crate::source::{CallEventSender, SourceClient};
use crate::sync::{Mutex, MutexGuard};

/// The most requests that wait on one connection at once. Far more than agents send; it bounds what the broker keeps
/// for a source that does not answer.
const MAX_PENDING: usize = 1024;

/// The least time after which a request that its caller gives up counts as timed out: the timeouts of agents are often
/// shorter than the source's. A person who changes their mind gives up sooner.
const GIVEN_UP_LATE: Duration = Duration::from_secs(10);

/// The state that the callers, the reader and the control queue of a connection share.
pub(super) struct McpConnectionState {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) config: McpConnectionConfig,
    /// The client that owns this connection, if it is not shared.
    pub(super) owner: OnceLock<Weak<dyn SourceClient>>,
    pub(super) control_queue: mpsc::Sender<QueuedMessage>,
    pub(super) pending: Mutex<PendingRequests>,
    /// The room for requests of the source, in KiB: each holds its part from its arrival until its answer has been
    /// sent.
    pub(super) request_room: Arc<Semaphore>,
    /// The turns of those requests to be put to the agent.
    pub(super) request_turns: RequestTurns,
    /// The number of answers, progress and other notifications that could be matched to no request or session.
    pub(super) strays: AtomicU64,
    /// The number of consecutive requests that timed out. An answer or progress resets it.
    pub(super) timed_out: AtomicU32,
    /// Changes when the connection ends or breaks, when a request times out, and when one is over while the connection
    /// drains.
    pub(super) state_changed: watch::Sender<()>,
}

#[derive(Default)]
pub(super) struct PendingRequests {
    pub(super) requests: HashMap<u64, PendingRequest>,
    pub(super) last: u64,
    pub(super) url_elicitations: UrlElicitations,
    /// The open requests of the source, by its ids.
    pub(super) source_requests: HashMap<Id, AbortHandle>,
    /// The time at which an awaited request last began or ended.
    pub(super) used: Option<Instant>,
    /// True once somebody waits for the last answer.
    pub(super) draining: bool,
    /// The reason why nothing more can be sent; answers may still arrive.
    pub(super) broken: Option<Cause>,
    /// True if the source has forgotten the session, and would open another.
    pub(super) expired: bool,
    /// The reason why no more answers will come.
    pub(super) ended: Option<Cause>,
}

impl PendingRequests {
    /// Returns the number of requests whose answers are awaited. Requests that are meant to stay open do not count.
    pub(super) fn awaited(&self) -> usize {
        self.requests.values().filter(|entry| entry.awaited).count()
    }

    /// Reports whether an open request is a subscription: meant to stay open, for a caller that hears of changes.
    pub(super) fn is_subscription(&self, id: u64) -> bool {
        self.requests.get(&id).is_some_and(|entry| !entry.awaited && entry.caller.is_some())
    }
}

/// A request that waits for its answer.
pub(super) struct PendingRequest {
    reply: oneshot::Sender<Result<Answer, NoResponse>>,
    pub(super) caller: Option<ReplyRoute>,
    /// True if its answer is awaited; false for a request that is meant to stay open, or that only checks whether the
    /// source is alive.
    pub(super) awaited: bool,
    /// True once the caller did not take a notification in time.
    pub(super) slow: bool,
    /// The number of requests of the source that the caller's agent has not yet answered.
    pub(super) asking: usize,
    /// The time at which the caller's agent last answered a request of the source.
    pub(super) answered: Option<Instant>,
}

impl PendingRequest {
    /// Gives the caller the result. One that gave up has dropped the receiver.
    pub(super) fn finish(self, result: Result<Answer, NoResponse>) {
        let _ = self.reply.send(result);
    }

    /// Reports whether the source has sent the agent a request, which shows that it is alive.
    fn has_asked(&self) -> bool {
        self.asking > 0 || self.answered.is_some()
    }

    /// Reports whether the source waits for the agent, or less than `timeout` has passed since the agent answered.
    fn has_time(&self, timeout: Duration) -> bool {
        self.asking > 0 || self.answered.is_some_and(|at| at.elapsed() < timeout)
    }
}

/// The route of what belongs to a request: to a session, through the call that waits for it.
#[derive(Clone)]
pub(super) struct ReplyRoute {
    pub(super) session: Option<SessionId>,
    pub(super) events: CallEventSender,
}

/// The reason why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoResponse {
    /// The source certainly did not see the request.
    NotSent(Cause),
    /// No answer came in time.
    Timeout,
    /// The connection, or the answer, was lost.
    Broken(Cause),
}

impl McpConnectionState {
    /// Makes the connection's client its owner: from here on, the source's requests and the notifications that belong
    /// to no call go to it.
    pub(super) fn set_owner(&self) {
        if let Some(client) = self.config.client.clone() {
            // A connection is opened once, so it has no owner yet.
            let _ = self.owner.set(client);
        }
    }

    /// Sends a request and waits for its answer.
    pub(super) async fn request(
        &self,
        method: &Method,
        params: impl FnOnce(u64) -> Json,
        caller: Option<ReplyRoute>,
        timeout: Duration,
    ) -> Result<Answer, NoResponse> {
        let (mut waiting, mut reply) = self.wait_for(method, caller, timeout)?;
        let (id, params) = (Id::number(waiting.id), Some(params(waiting.id)));
        let request = Message::Request(Request { id, method: method.clone(), params });
        let mut deadline = Instant::now() + timeout;
        let Ok(sent) = tokio::time::timeout_at(deadline, self.transport.send(&request)).await else {
            waiting.timed_out = true;
            return Err(NoResponse::Timeout);
        };
        if let Err(error) = sent {
            waiting.sent = false;
            self.broke(&error);
            return Err(NoResponse::NotSent(error.into_cause()));
        }
        loop {
            match tokio::time::timeout_at(deadline, &mut reply).await {
                Ok(Ok(answer)) => return answer,
                Ok(Err(_)) => return Err(NoResponse::Broken("the connection to the source was dropped".into())),
                // The agent that is asked has its own deadline.
                Err(_) if self.pending().requests.get(&waiting.id).is_some_and(|entry| entry.has_time(timeout)) => {
                    deadline = Instant::now() + timeout;
                }
                Err(_) => {
                    waiting.timed_out = true;
                    return Err(NoResponse::Timeout);
                }
            }
        }
    }

    fn wait_for(
        &self,
        method: &Method,
        caller: Option<ReplyRoute>,
        timeout: Duration,
    ) -> Result<(WaitingRequest<'_>, oneshot::Receiver<Result<Answer, NoResponse>>), NoResponse> {
        let mut pending = self.pending();
        if let Some(why) = &pending.ended {
            return Err(NoResponse::NotSent(why.clone()));
        }
        if pending.requests.len() >= MAX_PENDING {
            return Err(NoResponse::NotSent(Cause::own(format!(
                "{MAX_PENDING} requests already wait for this source"
            ))));
        }
        pending.last += 1;
        let id = pending.last;
        let (reply, answer) = oneshot::channel();
        let awaited = timeout < super::UNLIMITED && !matches!(method, Method::Ping | Method::ServerDiscover);
        let begun = Instant::now();
        if awaited {
            pending.used = Some(begun);
        }
        if caller.is_some() {
            self.request_turns.add_call();
        }
        pending.requests.insert(id, PendingRequest { reply, caller, awaited, slow: false, asking: 0, answered: None });
        // The protocol forbids cancelling `initialize`, and nothing else may be sent before it.
        let cancellable = !matches!(method, Method::Initialize | Method::ServerDiscover);
        Ok((WaitingRequest { shared: self, id, sent: true, cancellable, awaited, begun, timed_out: false }, answer))
    }

    /// Queues a short message, which is sent when the source takes it. Never waits; if the queue is full, drops the
    /// message.
    pub(super) fn send_soon(&self, message: Message) {
        if self.control_queue.try_send(QueuedMessage::Send(message)).is_err() {
            tracing::debug!("a source takes no messages; a cancellation or an answer to it was dropped");
        }
    }

    pub(super) fn count_stray(&self, what: &'static str) {
        let count = self.strays.fetch_add(1, Ordering::Relaxed) + 1;
        tracing::debug!(what, count, "a source sent something that belongs to no open request");
    }

    /// Notes that the source answers or reports progress.
    pub(super) fn record_sign_of_life(&self) {
        self.timed_out.store(0, Ordering::Relaxed);
    }

    /// Notes that a message could not be sent, if the reason is that the connection is gone.
    pub(super) fn broke(&self, error: &TransportError) {
        if let TransportError::Closed(why) = error {
            self.pending().broken.get_or_insert_with(|| why.clone());
            self.state_changed.send_replace(());
        }
    }

    /// Fails all requests that wait, and all later ones, and withdraws what the source has asked: nobody takes the
    /// answers.
    pub(super) fn end(&self, why: &Cause) {
        let (requests, questions) = {
            let mut pending = self.pending();
            pending.ended.get_or_insert_with(|| why.clone());
            (std::mem::take(&mut pending.requests), std::mem::take(&mut pending.source_requests))
        };
        questions.into_values().for_each(|question| question.abort());
        self.state_changed.send_replace(());
        for entry in requests.into_values() {
            entry.finish(Err(NoResponse::Broken(why.clone())));
        }
    }

    pub(super) fn pending(&self) -> MutexGuard<'_, PendingRequests> {
        self.pending.lock()
    }
}

/// A request's entry among those that wait. If it is dropped before the answer has come, the request is cancelled at
/// the source.
pub(super) struct WaitingRequest<'a> {
    pub(super) shared: &'a McpConnectionState,
    pub(super) id: u64,
    pub(super) sent: bool,
    pub(super) cancellable: bool,
    pub(super) awaited: bool,
    begun: Instant,
    timed_out: bool,
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let (entry, draining) = {
            let mut pending = self.shared.pending();
            if self.awaited {
                pending.used = Some(now);
            }
            (pending.requests.remove(&self.id), pending.draining)
        };
        let unanswered = entry.is_some();
        let late = self.timed_out || now - self.begun >= GIVEN_UP_LATE;
        if self.awaited && late && entry.is_some_and(|entry| !entry.has_asked()) {
            self.shared.timed_out.fetch_add(1, Ordering::Relaxed);
            self.shared.state_changed.send_replace(());
        }
        if draining {
            self.shared.state_changed.send_replace(());
        }
        if unanswered && self.sent && self.cancellable {
            let params = Json::of(&serde_json::json!({ "requestId": self.id, "reason": "the caller gave up" }));
            let method = Method::NotificationsCancelled;
            self.shared.send_soon(Message::Notification(Notification { method, params: Some(params) }));
        }
    }
}
