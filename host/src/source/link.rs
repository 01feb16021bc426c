//! One MCP connection to one source: requests out, answers and whatever is said meanwhile back, over any transport.
//!
//! A connection that several sessions share declares no client capabilities, so a source has nothing to ask of anybody: its
//! own requests are refused, because nothing tells for whom they are. One that belongs to a session puts them to its agent.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

use super::transport::{Transport, TransportError};
use super::{Client, Discovery, Listed, Relay, SourceError};
use crate::call::{Outcome, SessionId};
use crate::catalog::Kind;
use crate::message::{Answer, Id, Json, Message, Notification, Request};
use crate::name::SourceName;

mod handshake;
mod meta;
mod route;

pub(crate) use handshake::Deadlines;
use handshake::{Agreed, Era};
use meta::Hop;

/// Requests that wait for one source at once. Far above what agents do; it bounds what a silent source makes us keep.
const MAX_PENDING: usize = 1024;

/// Short messages of our own (cancellations, answers to pings) that wait to be sent. Beyond it they are dropped: a source
/// that reads nothing would not read them either.
const MAX_ERRANDS: usize = 64;

/// How long a request may stay open whose point is to stay open. Ends before a counter of milliseconds does.
const FOR_GOOD: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// An open connection. Dropping it ends it.
pub(crate) struct Link {
    shared: Arc<Shared>,
    agreed: Agreed,
    deadlines: Deadlines,
    /// The least grave log messages that a legacy source was asked for last.
    level: tokio::sync::Mutex<Option<Json>>,
    tasks: [JoinHandle<()>; 2],
}

/// What a connection is made for.
#[derive(Clone)]
pub(crate) struct Party {
    /// The source's configured name, for whoever is told what it says.
    pub(crate) source: SourceName,
    /// What is declared to a legacy source.
    pub(crate) capabilities: Json,
    /// Whose the connection becomes if it cannot be shared.
    pub(crate) client: Option<Weak<dyn Client>>,
    /// Who is told of changes where it is shared.
    pub(crate) audience: Arc<Audience>,
}

/// The sessions that are told when a source changes what it offers.
#[derive(Default)]
pub(crate) struct Audience(Mutex<HashMap<SessionId, Weak<dyn Client>>>);

impl Audience {
    /// Lets a client hear of changes from now on.
    pub(crate) fn join(&self, client: &Arc<dyn Client>) {
        let Some(session) = client.session() else { return };
        self.lock().insert(session.clone(), Arc::downgrade(client));
    }

    /// A session hears nothing more.
    pub(crate) fn leave(&self, session: &SessionId) {
        self.lock().remove(session);
    }

    fn tell(&self, source: &SourceName, notification: &Notification) {
        let clients: Vec<_> = self.lock().values().filter_map(Weak::upgrade).collect();
        for client in clients {
            client.notify(source.as_str(), notification.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Weak<dyn Client>>> {
        // The map is whole at every point at which a holder could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    /// Finds out which era the source speaks, agrees on a revision and lists the tools. Cancellation safe: dropping the
    /// future drops the connection. On an error the transport has been closed.
    ///
    /// # Errors
    /// [`SourceError`]; what the transport knows of an end is in [`Transport::obituary`].
    pub(crate) async fn open(
        transport: Arc<dyn Transport>,
        deadlines: Deadlines,
        party: Party,
    ) -> Result<(Self, Discovery), SourceError> {
        let (errands, queue) = mpsc::channel(MAX_ERRANDS);
        let shared = Arc::new(Shared {
            transport: Arc::clone(&transport),
            party,
            owner: OnceLock::new(),
            errands,
            pending: Mutex::default(),
            strays: AtomicU64::new(0),
        });
        let tasks =
            [tokio::spawn(route::read(Arc::clone(&shared))), tokio::spawn(run_errands(Arc::clone(&transport), queue))];
        // From here on a dropped future drops the link, and so stops the tasks.
        let level = tokio::sync::Mutex::default();
        let mut link = Self { shared, agreed: Agreed::default(), deadlines, level, tasks };
        let opened = async {
            link.agreed = handshake::agree(&link.shared, &link.deadlines).await?;
            transport.agreed(&link.agreed.protocol);
            link.discover().await
        };
        match opened.await {
            Ok(discovery) => Ok((link, discovery)),
            Err(error) => {
                transport.close().await;
                Err(error)
            }
        }
    }

    /// Lists the tools anew.
    ///
    /// # Errors
    /// [`SourceError`] if the source does not answer, ends, lists too much, or answers with something else.
    pub(crate) async fn discover(&self) -> Result<Discovery, SourceError> {
        Ok(Discovery {
            server: self.agreed.server.clone(),
            protocol: self.agreed.protocol.clone(),
            capabilities: self.agreed.capabilities.clone(),
            instructions: self.agreed.instructions.clone(),
            tools: self.list(Kind::Tool).await?,
        })
    }

    /// Lists what the source offers of one kind.
    ///
    /// # Errors
    /// As for [`Link::discover`].
    pub(crate) async fn list(&self, kind: Kind) -> Result<Listed, SourceError> {
        let mut listed = handshake::list(&self.shared, &self.agreed, kind, self.deadlines.list).await?;
        if kind == Kind::Tool && self.is_modern() {
            listed.items = self.shared.transport.listed(listed.items);
        }
        Ok(listed)
    }

    /// Whether the connection is for one session alone: the source is a legacy one that was told what the session's agent
    /// can do, or that keeps something for each of its clients.
    pub(crate) fn has_owner(&self) -> bool {
        self.shared.owner.get().is_some()
    }

    /// Carries one request and waits for its answer for at most `timeout`, not counting the time in which the source waits
    /// for the agent. `params` are the caller's; what this connection needs in `_meta` is put into them. Dropping the
    /// future tells the source that the call is cancelled.
    pub(crate) async fn call(
        &self,
        method: &str,
        params: &Json,
        client: &Arc<dyn Client>,
        relay: Relay,
        timeout: Duration,
    ) -> Outcome {
        self.set_level(params).await;
        let (capabilities, level) = (client.capabilities(), client.log_level());
        let progress = relay.token.is_some();
        let dress = |id| {
            let hop = Hop { era: self.agreed.era, capabilities: &capabilities, level: level.as_ref() };
            meta::dress(params, &hop, progress.then_some(id))
        };
        let timeout = if method == "subscriptions/listen" { FOR_GOOD } else { timeout };
        let caller = Caller { session: client.session().cloned(), relay };
        match self.shared.request(method, dress, Some(caller), timeout).await {
            Ok(answer) => Outcome::Answered(answer),
            Err(Lost::NotSent(why)) => Outcome::NotSent(why),
            Err(Lost::Timeout) => Outcome::Unknown(format!(
                "no answer to `{method}` within {} s; the source may have acted or not",
                timeout.as_secs_f32()
            )),
            Err(Lost::Broken(why)) => Outcome::Unknown(why),
        }
    }

    /// A modern caller says with each call how much it wants to be told; a legacy source is asked once and remembers.
    async fn set_level(&self, params: &Json) {
        let wanted = params.get("_meta").and_then(|caller| caller.get(meta::LOG_LEVEL));
        let Some(wanted) = wanted.filter(|_| !self.is_modern() && self.declares("logging")) else { return };
        let mut level = self.level.lock().await;
        if level.as_ref() == Some(&wanted) {
            return;
        }
        let params = Json::empty_object().with("level", &wanted).unwrap_or_else(Json::empty_object);
        // Without it the call goes on and says less.
        let _ = self.shared.request("logging/setLevel", |_| params, None, self.deadlines.list).await;
        *level = Some(wanted);
    }

    /// Sends a notification when the source takes it.
    pub(crate) fn tell(&self, notification: Notification) {
        self.shared.errand(Message::Notification(notification));
    }

    /// Whether the connection still stands, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        let pending = self.shared.pending();
        pending.ended.is_none() && !pending.broken
    }

    /// Whether the source speaks 2026-07-28.
    pub(crate) fn is_modern(&self) -> bool {
        self.agreed.era == Era::Modern
    }

    /// Whether the source has this capability.
    pub(crate) fn declares(&self, capability: &str) -> bool {
        self.agreed.capabilities.get(capability).is_some()
    }

    /// Ends the connection. Calls that wait end as unknown.
    pub(crate) async fn close(&self) {
        self.shared.transport.close().await;
        self.shared.end("the connection to the source was closed");
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        for task in self.shared.pending().asked.values() {
            task.abort();
        }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("protocol", &self.agreed.protocol).field("open", &self.is_open()).finish()
    }
}

/// What the callers, the reader and the errands have in common.
struct Shared {
    transport: Arc<dyn Transport>,
    party: Party,
    /// The one client that this connection is for, if it is for one.
    owner: OnceLock<Weak<dyn Client>>,
    errands: mpsc::Sender<Message>,
    pending: Mutex<Pending>,
    /// Answers and progress that belong to no open request.
    strays: AtomicU64,
}

#[derive(Default)]
struct Pending {
    slots: HashMap<u64, Slot>,
    last: u64,
    /// What the source waits for, by its ids.
    asked: HashMap<Id, AbortHandle>,
    /// A message could not be sent because the connection is gone; answers may still be on their way.
    broken: bool,
    /// Why there will be no more answers.
    ended: Option<String>,
}

/// One request that waits.
struct Slot {
    reply: oneshot::Sender<Result<Answer, Lost>>,
    caller: Option<Caller>,
    /// How many questions of the source the caller's agent has not answered.
    asking: usize,
    /// When it answered last.
    answered: Option<Instant>,
}

impl Slot {
    /// Whether the source waits for the agent, or has not had its whole time since the agent answered.
    fn has_time(&self, timeout: Duration) -> bool {
        self.asking > 0 || self.answered.is_some_and(|at| at.elapsed() < timeout)
    }
}

/// Who waits for a request.
#[derive(Clone)]
struct Caller {
    session: Option<SessionId>,
    relay: Relay,
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Lost {
    /// The source cannot have seen it.
    NotSent(String),
    /// Nothing came in time.
    Timeout,
    /// The connection, or the answer, was lost.
    Broken(String),
}

impl Shared {
    /// From here on the source may ask the client's agent, and tell it what belongs to no call.
    fn settle_owner(&self) {
        if let Some(client) = self.party.client.clone() {
            // A connection begins once, so that nobody was there before.
            let _ = self.owner.set(client);
        }
    }

    /// Sends a request and waits for its answer.
    async fn request(
        &self,
        method: &str,
        params: impl FnOnce(u64) -> Json,
        caller: Option<Caller>,
        timeout: Duration,
    ) -> Result<Answer, Lost> {
        let (mut waiting, mut reply) = self.wait_for(method, caller)?;
        let (id, params) = (Id::number(waiting.id), Some(params(waiting.id)));
        let request = Message::Request(Request { id, method: method.to_owned(), params });
        let mut deadline = Instant::now() + timeout;
        let sent = tokio::time::timeout_at(deadline, self.transport.send(&request));
        if let Err(error) = sent.await.map_err(|_| Lost::Timeout)? {
            waiting.sent = false;
            self.pending().broken |= matches!(error, TransportError::Closed(_));
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
                Err(_) => return Err(Lost::Timeout),
            }
        }
    }

    fn wait_for(
        &self,
        method: &str,
        caller: Option<Caller>,
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
        pending.slots.insert(id, Slot { reply, caller, asking: 0, answered: None });
        // The protocol forbids to cancel `initialize`, and before it nothing else may be said.
        let cancellable = !matches!(method, handshake::INITIALIZE | handshake::DISCOVER);
        Ok((Waiting { shared: self, id, sent: true, cancellable }, answer))
    }

    /// Sends a short message when the source takes it; never waits.
    fn errand(&self, message: Message) {
        if self.errands.try_send(message).is_err() {
            tracing::debug!("a source takes no messages; a cancellation or an answer to it was dropped");
        }
    }

    fn stray(&self, what: &'static str) {
        let count = self.strays.fetch_add(1, Ordering::Relaxed) + 1;
        tracing::debug!(what, count, "a source sent something that belongs to no open request");
    }

    /// Fails everything that waits, and everything that comes after.
    fn end(&self, why: &str) {
        let slots = {
            let mut pending = self.pending();
            pending.ended.get_or_insert_with(|| why.to_owned());
            std::mem::take(&mut pending.slots)
        };
        for slot in slots.into_values() {
            // Whoever gave up waiting has dropped the other side.
            let _ = slot.reply.send(Err(Lost::Broken(why.to_owned())));
        }
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        // No code panics while it holds the lock, and every state it can be left in is valid.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a request among those that wait. Dropped before the answer came, it cancels the request at the source.
struct Waiting<'a> {
    shared: &'a Shared,
    id: u64,
    sent: bool,
    cancellable: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let unanswered = self.shared.pending().slots.remove(&self.id).is_some();
        if unanswered && self.sent && self.cancellable {
            let params = Json::of(&serde_json::json!({ "requestId": self.id, "reason": "the caller gave up" }));
            let method = "notifications/cancelled".to_owned();
            self.shared.errand(Message::Notification(Notification { method, params: Some(params) }));
        }
    }
}

async fn run_errands(transport: Arc<dyn Transport>, mut queue: mpsc::Receiver<Message>) {
    while let Some(message) = queue.recv().await {
        if let Err(error) = transport.send(&message).await {
            tracing::debug!(%error, "a short message to a source was not sent");
        }
    }
}

#[cfg(test)]
mod tests;
