//! One MCP connection to one source, shared by all callers: requests out, answers and progress back, over any transport.
//!
//! A shared connection declares no client capabilities, so a source has nothing to ask of anybody: its own requests are
//! refused, because nothing tells for whom they are.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::transport::{Transport, TransportError};
use super::{Discovery, Relay, SourceError};
use crate::call::Outcome;
use crate::message::{Answer, Id, Json, Message, Notification, Request, Response, RpcError};

mod handshake;
mod meta;

pub(crate) use handshake::Deadlines;
use handshake::{Agreed, Era};

/// Requests that wait for one source at once. Far above what agents do; it bounds what a silent source makes us keep.
const MAX_PENDING: usize = 1024;

/// Short messages of our own (cancellations, answers to pings) that wait to be sent. Beyond it they are dropped: a source
/// that reads nothing would not read them either.
const MAX_ERRANDS: usize = 64;

/// How long a caller that does not take its progress holds up the source's other messages. Then it gets no more progress.
const RELAY_PATIENCE: Duration = Duration::from_secs(1);

/// An open connection. Dropping it ends it.
pub(crate) struct Link {
    shared: Arc<Shared>,
    agreed: Agreed,
    deadlines: Deadlines,
    tasks: [JoinHandle<()>; 2],
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
    ) -> Result<(Self, Discovery), SourceError> {
        let (errands, queue) = mpsc::channel(MAX_ERRANDS);
        let shared = Arc::new(Shared {
            transport: Arc::clone(&transport),
            errands,
            pending: Mutex::default(),
            strays: AtomicU64::new(0),
        });
        let tasks = [tokio::spawn(read(Arc::clone(&shared))), tokio::spawn(run_errands(Arc::clone(&transport), queue))];
        // From here on a dropped future drops the link, and so stops the tasks.
        let mut link = Self { shared, agreed: Agreed::default(), deadlines, tasks };
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
        let tools = handshake::list_tools(&self.shared, &self.agreed, self.deadlines.list).await?;
        Ok(Discovery {
            server: self.agreed.server.clone(),
            protocol: self.agreed.protocol.clone(),
            instructions: self.agreed.instructions.clone(),
            tools,
        })
    }

    /// Carries one request and waits for its answer for at most `timeout`. `params` are the caller's; what this connection
    /// needs in `_meta` is put into them. Dropping the future tells the source that the call is cancelled.
    pub(crate) async fn call(&self, method: &str, params: &Json, relay: Option<&Relay>, timeout: Duration) -> Outcome {
        let dress = |id| meta::dress(params, self.agreed.era, id, relay);
        match self.shared.request(method, dress, relay.map(Progress::to), timeout).await {
            Ok(answer) => Outcome::Answered(answer),
            Err(Lost::NotSent(why)) => Outcome::NotSent(why),
            Err(Lost::Timeout) => Outcome::Unknown(format!(
                "no answer to `{method}` within {} s; the source may have acted or not",
                timeout.as_secs_f32()
            )),
            Err(Lost::Broken(why)) => Outcome::Unknown(why),
        }
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
    errands: mpsc::Sender<Message>,
    pending: Mutex<Pending>,
    /// Answers and progress that belong to no open request.
    strays: AtomicU64,
}

#[derive(Default)]
struct Pending {
    slots: HashMap<u64, Slot>,
    last: u64,
    /// A message could not be sent because the connection is gone; answers may still be on their way.
    broken: bool,
    /// Why there will be no more answers.
    ended: Option<String>,
}

/// One request that waits.
struct Slot {
    reply: oneshot::Sender<Result<Answer, Lost>>,
    progress: Option<Progress>,
}

/// Where progress of one request goes.
#[derive(Clone)]
struct Progress {
    token: Json,
    out: mpsc::Sender<Notification>,
}

impl Progress {
    fn to(relay: &Relay) -> Self {
        Self { token: relay.token.clone(), out: relay.out.clone() }
    }
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
    /// Sends a request and waits for its answer.
    async fn request(
        &self,
        method: &str,
        params: impl FnOnce(u64) -> Json,
        progress: Option<Progress>,
        timeout: Duration,
    ) -> Result<Answer, Lost> {
        let (mut waiting, reply) = self.wait_for(method, progress)?;
        let request =
            Request { id: Id::number(waiting.id), method: method.to_owned(), params: Some(params(waiting.id)) };
        let answered = async {
            if let Err(error) = self.transport.send(&Message::Request(request)).await {
                waiting.sent = false;
                self.pending().broken |= matches!(error, TransportError::Closed(_));
                return Err(Lost::NotSent(error.to_string()));
            }
            reply.await.unwrap_or_else(|_| Err(Lost::Broken("the connection to the source was dropped".to_owned())))
        };
        tokio::time::timeout(timeout, answered).await.unwrap_or(Err(Lost::Timeout))
    }

    fn wait_for(
        &self,
        method: &str,
        progress: Option<Progress>,
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
        pending.slots.insert(id, Slot { reply, progress });
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

/// Takes every message of the source, in its order, until the connection ends.
async fn read(shared: Arc<Shared>) {
    let mut last_error = None;
    while let Some(received) = shared.transport.receive().await {
        match received {
            Ok(Message::Response(response)) => answer(&shared, response),
            Ok(Message::Notification(notification)) => notify(&shared, notification).await,
            Ok(Message::Request(request)) => refuse(&shared, request),
            Err(TransportError::Lost { id, reason }) => lose(&shared, &id, reason),
            Err(error @ TransportError::Oversized { .. }) => fail_pending(&shared, &error.to_string()),
            Err(error) => last_error = Some(error.to_string()),
        }
    }
    let why = last_error.or_else(|| shared.transport.obituary());
    shared.end(&why.unwrap_or_else(|| "the source closed the connection".to_owned()));
}

fn answer(shared: &Shared, response: Response) {
    let slot = response.id.and_then(|id| id.as_number()).and_then(|id| shared.pending().slots.remove(&id));
    match slot {
        // Whoever gave up waiting has dropped the other side.
        Some(slot) => drop(slot.reply.send(Ok(response.answer))),
        None => shared.stray("answer"),
    }
}

fn lose(shared: &Shared, id: &Id, reason: String) {
    let slot = id.as_number().and_then(|id| shared.pending().slots.remove(&id));
    if let Some(slot) = slot {
        // Whoever gave up waiting has dropped the other side.
        let _ = slot.reply.send(Err(Lost::Broken(reason)));
    }
}

async fn notify(shared: &Shared, notification: Notification) {
    if notification.method != "notifications/progress" {
        tracing::debug!(method = %notification.method.escape_debug(), "notification from a source");
        return;
    }
    let token = notification.params.as_ref().and_then(|params| params.get("progressToken"));
    let id = token.and_then(|token| token.as_str().parse::<u64>().ok());
    let progress = id.and_then(|id| shared.pending().slots.get(&id).and_then(|slot| slot.progress.clone()));
    let (Some(id), Some(Progress { token, out })) = (id, progress) else { return shared.stray("progress") };
    let params = notification.params.and_then(|params| params.with("progressToken", &token));
    let sent = tokio::time::timeout(RELAY_PATIENCE, out.send(Notification { params, ..notification })).await;
    if !matches!(sent, Ok(Ok(())))
        && let Some(slot) = shared.pending().slots.get_mut(&id)
    {
        slot.progress = None;
    }
}

/// Answers a request of the source.
fn refuse(shared: &Shared, request: Request) {
    let response = if request.method == "ping" {
        Response::result(request.id, Json::empty_object())
    } else {
        tracing::debug!(method = %request.method.escape_debug(), "a source asked for something on a shared connection");
        let why = "this connection is shared by several callers and offers no client capabilities";
        Response::error(Some(request.id), &RpcError::new(RpcError::METHOD_NOT_FOUND, why))
    };
    shared.errand(Message::Response(response));
}

/// An answer was lost whose id nobody could read: whoever waits may be the one it was for.
fn fail_pending(shared: &Shared, why: &str) {
    let slots = std::mem::take(&mut shared.pending().slots);
    for slot in slots.into_values() {
        // Whoever gave up waiting has dropped the other side.
        let _ = slot.reply.send(Err(Lost::Broken(why.to_owned())));
    }
}

#[cfg(test)]
mod tests;
