//! The requests that wait for the source's answer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::Party;
use super::control_queue::ControlMessage;
use super::pages::Pages;
use crate::call::SessionId;
use crate::protocol::{Answer, Id, Json, Message, Method, Notification, Request};
use crate::source::transport::{Transport, TransportError};
use crate::source::{Relay, SourceClient};
use crate::sync::{Mutex, MutexGuard};

/// Requests that wait for one source at once. Far above what agents do; it bounds what a silent source makes us keep.
const MAX_PENDING: usize = 1024;

/// After how long a request that its caller gives up counts as one that was not answered in time: the limits of agents are often
/// shorter than the source's. A person who changes their mind does so sooner.
const GIVEN_UP_LATE: Duration = Duration::from_secs(10);

/// What the callers, the reader and the control queue have in common.
pub(super) struct Shared {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) party: Party,
    /// The one client that this connection is for, if it is for one.
    pub(super) owner: OnceLock<Weak<dyn SourceClient>>,
    pub(super) control_queue: mpsc::Sender<ControlMessage>,
    pub(super) pending: Mutex<Pending>,
    /// Room for what the source asks: each question has a place from when it comes until its answer has left.
    pub(super) places: Arc<Semaphore>,
    /// Answers and progress that belong to no open request.
    pub(super) strays: AtomicU64,
    /// Requests in a row that had no answer in time. An answer or progress ends the row.
    pub(super) timed_out: AtomicU32,
    /// Told of the end, of each request that had no answer in time, and of each that is done with while somebody waits for the
    /// last.
    pub(super) news: watch::Sender<()>,
}

#[derive(Default)]
pub(super) struct Pending {
    pub(super) slots: HashMap<u64, Slot>,
    pub(super) last: u64,
    pub(super) pages: Pages,
    /// What the source waits for, by its ids.
    pub(super) asked: HashMap<Id, AbortHandle>,
    /// When a request for somebody was begun or done with last.
    pub(super) used: Option<Instant>,
    /// Somebody waits until no answer is waited for any more.
    pub(super) draining: bool,
    /// Why nothing more can be sent; answers may still be on their way.
    pub(super) broken: Option<String>,
    /// The source has forgotten the session, and would open another.
    pub(super) expired: bool,
    /// Why there will be no more answers.
    pub(super) ended: Option<String>,
}

impl Pending {
    /// Requests whose answers somebody waits for. Those that stay open for good are none: they wait for no answer.
    pub(super) fn awaited(&self) -> usize {
        self.slots.values().filter(|slot| slot.awaited).count()
    }
}

/// One request that waits.
pub(super) struct Slot {
    pub(super) reply: oneshot::Sender<Result<Answer, Lost>>,
    pub(super) caller: Option<Caller>,
    /// Whether its answer is waited for; not that of one whose point is to stay open, or of a look whether the source lives.
    pub(super) awaited: bool,
    /// How many questions of the source the caller's agent has not answered.
    pub(super) asking: usize,
    /// When it answered last.
    pub(super) answered: Option<Instant>,
}

impl Slot {
    /// Whether the source has asked the agent for something, so that it is not silent.
    fn has_asked(&self) -> bool {
        self.asking > 0 || self.answered.is_some()
    }

    /// Whether the source waits for the agent, or has not had its whole time since the agent answered.
    fn has_time(&self, timeout: Duration) -> bool {
        self.asking > 0 || self.answered.is_some_and(|at| at.elapsed() < timeout)
    }
}

/// Who waits for a request.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) session: Option<SessionId>,
    pub(super) relay: Relay,
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lost {
    /// The source cannot have seen it.
    NotSent(String),
    /// Nothing came in time.
    Timeout,
    /// The connection, or the answer, was lost.
    Broken(String),
}

impl Shared {
    /// From here on the source may ask the client's agent, and tell it what belongs to no call.
    pub(super) fn settle_owner(&self) {
        if let Some(client) = self.party.client.clone() {
            // A connection begins once, so that nobody was there before.
            let _ = self.owner.set(client);
        }
    }

    /// Sends a request and waits for its answer.
    pub(super) async fn request(
        &self,
        method: &Method,
        params: impl FnOnce(u64) -> Json,
        caller: Option<Caller>,
        timeout: Duration,
    ) -> Result<Answer, Lost> {
        let (mut waiting, mut reply) = self.wait_for(method, caller, timeout)?;
        let (id, params) = (Id::number(waiting.id), Some(params(waiting.id)));
        let request = Message::Request(Request { id, method: method.clone(), params });
        let mut deadline = Instant::now() + timeout;
        let Ok(sent) = tokio::time::timeout_at(deadline, self.transport.send(&request)).await else {
            waiting.timed_out = true;
            return Err(Lost::Timeout);
        };
        if let Err(error) = sent {
            waiting.sent = false;
            self.broke(&error);
            return Err(Lost::NotSent(error.to_string()));
        }
        loop {
            match tokio::time::timeout_at(deadline, &mut reply).await {
                Ok(Ok(answer)) => return answer,
                Ok(Err(_)) => return Err(Lost::Broken("the connection to the source was dropped".to_owned())),
                // Whoever is asked has a deadline of their own.
                Err(_) if self.pending().slots.get(&waiting.id).is_some_and(|slot| slot.has_time(timeout)) => {
                    deadline = Instant::now() + timeout;
                }
                Err(_) => {
                    waiting.timed_out = true;
                    return Err(Lost::Timeout);
                }
            }
        }
    }

    fn wait_for(
        &self,
        method: &Method,
        caller: Option<Caller>,
        timeout: Duration,
    ) -> Result<(Waiting<'_>, oneshot::Receiver<Result<Answer, Lost>>), Lost> {
        let mut pending = self.pending();
        if let Some(why) = &pending.ended {
            return Err(Lost::NotSent(why.clone()));
        }
        if pending.slots.len() >= MAX_PENDING {
            return Err(Lost::NotSent(format!("{MAX_PENDING} requests already wait for this source")));
        }
        pending.last += 1;
        let id = pending.last;
        let (reply, answer) = oneshot::channel();
        let awaited = timeout < super::FOR_GOOD && !matches!(method, Method::Ping | Method::ServerDiscover);
        let begun = Instant::now();
        if awaited {
            pending.used = Some(begun);
        }
        pending.slots.insert(id, Slot { reply, caller, awaited, asking: 0, answered: None });
        // The protocol forbids to cancel `initialize`, and before it nothing else may be said.
        let cancellable = !matches!(method, Method::Initialize | Method::ServerDiscover);
        Ok((Waiting { shared: self, id, sent: true, cancellable, awaited, begun, timed_out: false }, answer))
    }

    /// Sends a short message when the source takes it; never waits.
    pub(super) fn send_soon(&self, message: Message) {
        if self.control_queue.try_send(ControlMessage::Say(message)).is_err() {
            tracing::debug!("a source takes no messages; a cancellation or an answer to it was dropped");
        }
    }

    pub(super) fn stray(&self, what: &'static str) {
        let count = self.strays.fetch_add(1, Ordering::Relaxed) + 1;
        tracing::debug!(what, count, "a source sent something that belongs to no open request");
    }

    /// Takes note that the source answers, or is at work.
    pub(super) fn lives(&self) {
        self.timed_out.store(0, Ordering::Relaxed);
    }

    /// Takes note of a message that could not be sent because the connection is gone.
    pub(super) fn broke(&self, error: &TransportError) {
        if let TransportError::Closed(why) = error {
            self.pending().broken.get_or_insert_with(|| why.clone());
            self.news.send_replace(());
        }
    }

    /// Fails everything that waits, and everything that comes after.
    pub(super) fn end(&self, why: &str) {
        let slots = {
            let mut pending = self.pending();
            pending.ended.get_or_insert_with(|| why.to_owned());
            std::mem::take(&mut pending.slots)
        };
        self.news.send_replace(());
        for slot in slots.into_values() {
            // Whoever gave up waiting has dropped the other side.
            let _ = slot.reply.send(Err(Lost::Broken(why.to_owned())));
        }
    }

    pub(super) fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock()
    }
}

/// The place of a request among those that wait. Dropped before the answer came, it cancels the request at the source.
pub(super) struct Waiting<'a> {
    pub(super) shared: &'a Shared,
    pub(super) id: u64,
    pub(super) sent: bool,
    pub(super) cancellable: bool,
    pub(super) awaited: bool,
    begun: Instant,
    timed_out: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let (slot, draining) = {
            let mut pending = self.shared.pending();
            if self.awaited {
                pending.used = Some(now);
            }
            (pending.slots.remove(&self.id), pending.draining)
        };
        let unanswered = slot.is_some();
        let late = self.timed_out || now - self.begun >= GIVEN_UP_LATE;
        if self.awaited && late && slot.is_some_and(|slot| !slot.has_asked()) {
            self.shared.timed_out.fetch_add(1, Ordering::Relaxed);
            self.shared.news.send_replace(());
        }
        if draining {
            self.shared.news.send_replace(());
        }
        if unanswered && self.sent && self.cancellable {
            let params = Json::of(&serde_json::json!({ "requestId": self.id, "reason": "the caller gave up" }));
            let method = Method::NotificationsCancelled;
            self.shared.send_soon(Message::Notification(Notification { method, params: Some(params) }));
        }
    }
}
