//! The routing of a source's messages: to the request that a message belongs to, to the session that owns the
//! connection, or to all sessions that share it.

use std::collections::hash_map::Entry;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use super::pending::{McpConnectionState, NoResponse, PendingRequest, ReplyRoute};
use super::request_turns::MAX_ASKED_AT_ONCE;
use crate::call::Cause;
use crate::protocol::{Answer, Id, Json, Message, Method, Notification, Request, Response, RpcError, meta};
use crate::source::transport::{ReceivedMessage, TransportError};
use crate::source::{CallEvent, CallEventSender, SourceClient, SourceRequest, nobody_to_ask};

/// The longest time that a caller that does not take its notifications may delay the source's other messages. After
/// that it gets those that find room.
const RELAY_TIMEOUT: Duration = Duration::from_secs(1);

/// The largest notification, in bytes. Each may wait at several places for an agent that does not read.
const MAX_NOTIFICATION_BYTES: usize = 1024 * 1024;

/// The largest request of the source, in bytes: a prompt with several images.
pub(super) const MAX_SOURCE_REQUEST_BYTES: usize = 8 * 1024 * 1024;

/// The room for the open requests of the source on a connection, in KiB: as many of the largest as are put to the agent
/// at once.
pub(super) const SOURCE_REQUESTS_KIB: usize = MAX_ASKED_AT_ONCE * MAX_SOURCE_REQUEST_BYTES / 1024;

/// The room that the smallest request takes, in KiB, so that at most 256 are open. A source that sends more is out of
/// control.
pub(super) const MIN_REQUEST_KIB: usize = 512;

/// The longest time that an agent may take to answer a request of the source. A person who has not answered by then has
/// left.
const ASK_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Routes every message of the source, in order, until the connection ends.
pub(super) async fn read(shared: Arc<McpConnectionState>) {
    let mut last_error = None;
    while let Some(received) = shared.transport.receive().await {
        match received {
            Ok(ReceivedMessage { message: Message::Response(response), .. }) => answer(&shared, response),
            Ok(ReceivedMessage { message: Message::Notification(notification), stream_of }) => {
                notify(&shared, notification, stream_of.as_ref()).await;
            }
            Ok(ReceivedMessage { message: Message::Request(request), stream_of }) => {
                handle_request(&shared, request, stream_of.as_ref())
            }
            Err(TransportError::Lost { id, reason }) => lose(&shared, &id, reason),
            Err(TransportError::Expired { id, reason }) => {
                expire(&shared, id.as_ref(), &reason);
                last_error = Some(reason);
            }
            Err(error @ (TransportError::Oversized { .. } | TransportError::TooComplex(_))) => {
                fail_pending(&shared, &error.into_cause());
            }
            Err(error) => last_error = Some(error.into_cause()),
        }
    }
    let why = last_error.or_else(|| shared.transport.exit_reason());
    shared.end(&why.unwrap_or_else(|| "the source closed the connection".into()));
}

fn answer(shared: &McpConnectionState, response: Response) {
    shared.record_sign_of_life();
    let entry = response.id.and_then(|id| id.as_number()).and_then(|id| shared.pending().requests.remove(&id));
    match entry {
        Some(entry) => {
            let session = entry.caller.as_ref().and_then(|caller| caller.session.as_ref());
            if let (Some(session), Answer::Error(error)) = (session, &response.answer) {
                shared.pending().url_elicitations.remember(session, error);
            }
            entry.finish(Ok(response.answer));
        }
        None => shared.count_stray("answer"),
    }
}

fn lose(shared: &McpConnectionState, id: &Id, reason: Cause) {
    let entry = id.as_number().and_then(|id| shared.pending().requests.remove(&id));
    if let Some(entry) = entry {
        entry.finish(Err(NoResponse::Broken(reason)));
    }
}

/// Marks the connection as expired: the source refused a message because it has forgotten the session, and will refuse
/// all later ones.
fn expire(shared: &McpConnectionState, id: Option<&Id>, reason: &Cause) {
    let entry = {
        let mut pending = shared.pending();
        pending.expired = true;
        pending.broken.get_or_insert_with(|| reason.clone());
        shared.state_changed.send_replace(());
        id.and_then(Id::as_number).and_then(|id| pending.requests.remove(&id))
    };
    if let Some(entry) = entry {
        entry.finish(Err(NoResponse::NotSent(reason.clone())));
    }
}

/// Fails all requests that wait: an answer whose id could not be read was lost, and any of them may be the one that it
/// was for.
fn fail_pending(shared: &McpConnectionState, why: &Cause) {
    let requests = std::mem::take(&mut shared.pending().requests);
    for entry in requests.into_values() {
        entry.finish(Err(NoResponse::Broken(why.clone())));
    }
}

async fn notify(shared: &McpConnectionState, notification: Notification, stream_of: Option<&Id>) {
    let params = notification.params.as_ref();
    if params.is_some_and(|params| params.as_bytes().len() > MAX_NOTIFICATION_BYTES) {
        let source = &shared.config.source;
        return tracing::debug!(%source, "a notification of more than {MAX_NOTIFICATION_BYTES} bytes was dropped");
    }
    match &notification.method {
        Method::NotificationsProgress => progress(shared, notification).await,
        Method::NotificationsCancelled => withdraw(shared, params),
        // A change concerns all sessions, unless the message belongs to a subscription.
        method if subscription(params).is_none() && is_change(method) => announce_change(shared, &notification).await,
        Method::NotificationsElicitationComplete => complete_elicitation(shared, notification).await,
        // An agent may be lenient: `notifications/Cancelled` counts as `notifications/cancelled`.
        method @ Method::Unknown(_) if method.is_reserved() => shared.count_stray("notification"),
        _ => relay_to_call(shared, notification, stream_of).await,
    }
}

/// Passes progress to the caller of the request that it is of, under the caller's own token.
async fn progress(shared: &McpConnectionState, notification: Notification) {
    let id = notification.params.as_ref().and_then(|params| params.get("progressToken"));
    let id = id.and_then(|token| number(&token));
    let caller = id.and_then(|id| shared.reply_route(id));
    let token = caller.as_ref().and_then(|caller| caller.events.token.get());
    let (Some(id), Some(caller), Some(token)) = (id, caller, token) else {
        return shared.count_stray("progress");
    };
    let params = notification.params.and_then(|params| params.with("progressToken", &token));
    shared.record_sign_of_life();
    shared.relay(id, &caller.events, Notification { params, ..notification }).await;
}

/// Ends what the source takes back: a question that it has asked, or a subscription (2026-07-28).
fn withdraw(shared: &McpConnectionState, params: Option<&Json>) {
    let id = params.and_then(|params| params.get("requestId"));
    let id = id.and_then(|id| Id::from_json(id.as_str()).ok());
    let withdrawn = id.as_ref().and_then(|id| shared.pending().source_requests.remove(id));
    match (withdrawn, id.and_then(|id| id.as_number())) {
        (Some(question), _) => question.abort(),
        // Any other number is that of a question which the source withdraws although it has just been answered, and
        // tells nothing about the broker's own request of that number.
        (None, Some(id)) if shared.pending().is_subscription(id) => {
            lose(shared, &Id::number(id), "the source ended it".into());
        }
        (None, _) => {}
    }
}

/// Tells the sessions of a change of what the source offers.
async fn announce_change(shared: &McpConnectionState, notification: &Notification) {
    let (source, subscribers) = (&shared.config.source, &shared.config.subscribers);
    let of_list = notification.method.is_list_changed();
    if of_list {
        subscribers.changed();
    }
    let owner = shared.owner();
    if let Some(owner) = &owner {
        owner.notify(source.as_str(), notification.clone()).await;
    }
    // Sessions that share connections are notified here. For them a change of a list counts even if it arrived on a
    // session's own connection.
    if owner.is_none() || of_list {
        subscribers.notify(source, notification).await;
    }
}

/// Tells the session that was sent to a page that it is completed, perhaps long after the call that asked for it.
async fn complete_elicitation(shared: &McpConnectionState, notification: Notification) {
    let id = notification.params.as_ref().and_then(|params| params.get_str("elicitationId"));
    let asked = id.and_then(|id| shared.pending().url_elicitations.take(&id));
    let client = shared.owner().or_else(|| shared.config.subscribers.session(&asked?));
    match client {
        Some(client) => client.notify(shared.config.source.as_str(), notification).await,
        None => shared.count_stray("completion"),
    }
}

/// Passes a notification to the call that it belongs to or may belong to, or else to the only session.
async fn relay_to_call(shared: &McpConnectionState, notification: Notification, stream_of: Option<&Id>) {
    let named = subscription(notification.params.as_ref()).or_else(|| stream_of.and_then(Id::as_number));
    // It may be about a call that ended long ago, so it is given to the newest call only if a single client has used
    // the connection.
    let id = named.or_else(|| shared.newest().filter(|_| shared.serves_one_session()));
    match id.and_then(|id| Some((id, shared.reply_route(id)?))) {
        Some((id, caller)) => shared.relay(id, &caller.events, notification).await,
        None => match shared.owner().or_else(|| shared.config.subscribers.only_session()) {
            Some(owner) => owner.notify(shared.config.source.as_str(), notification).await,
            None => shared.count_stray("notification"),
        },
    }
}

fn is_change(method: &Method) -> bool {
    method.is_list_changed() || method == Method::NotificationsResourcesUpdated
}

/// Returns the id of the broker's request that opened the subscription to which a notification belongs.
fn subscription(params: Option<&Json>) -> Option<u64> {
    number(&params?.get("_meta")?.get(meta::SUBSCRIPTION_ID)?)
}

fn number(json: &Json) -> Option<u64> {
    json.as_str().parse().ok()
}

/// Answers a request of the source, or puts it to the agent.
fn handle_request(shared: &Arc<McpConnectionState>, request: Request, stream_of: Option<&Id>) {
    if request.method == Method::Ping {
        return shared.send_soon(Message::Response(Response::result(request.id, Json::empty_object())));
    }
    let Some(owner) = shared.owner() else {
        tracing::debug!(method = %request.method.as_str().escape_debug(), "a source asked for something on a shared connection");
        return shared.send_soon(Message::Response(Response { id: Some(request.id), answer: nobody_to_ask() }));
    };
    let refuse = |id, code, why: String| {
        shared.send_soon(Message::Response(Response::error(Some(id), &RpcError::new(code, why))));
    };
    let bytes = request.params.as_ref().map_or(0, |params| params.as_bytes().len());
    if bytes > MAX_SOURCE_REQUEST_BYTES {
        let why = format!("a request to the client may have at most {MAX_SOURCE_REQUEST_BYTES} bytes");
        return refuse(request.id, RpcError::INVALID_PARAMS, why);
    }
    let kib = u32::try_from(bytes.div_ceil(1024).max(MIN_REQUEST_KIB)).unwrap_or(u32::MAX);
    let Ok(room) = Arc::clone(&shared.request_room).try_acquire_many_owned(kib) else {
        return refuse(request.id, RpcError::INTERNAL, "too many requests of this source are open already".to_owned());
    };
    let call = stream_of.and_then(Id::as_number);
    match shared.pending().source_requests.entry(request.id.clone()) {
        Entry::Vacant(entry) => {
            entry.insert(tokio::spawn(put_to_agent(Arc::clone(shared), owner, request, call, room)).abort_handle());
        }
        Entry::Occupied(_) => {
            let why = "a request with this id is open already".to_owned();
            refuse(request.id, RpcError::INVALID_REQUEST, why);
        }
    }
}

/// Puts a request of the source to the agent once it is its turn, and sends the answer. Room and turn are held until
/// then, so that a source that reads no answers cannot keep sending requests to the agent.
async fn put_to_agent(
    shared: Arc<McpConnectionState>,
    owner: Arc<dyn SourceClient>,
    request: Request,
    named: Option<u64>,
    _room: OwnedSemaphorePermit,
) {
    let id = request.id.clone();
    let _turn = {
        let _asking = AgentWait::begin(&shared, shared.calls_that_may_ask(named));
        shared.request_turns.next().await
    };
    let answered = ask(&shared, &*owner, request, named);
    let answer = tokio::time::timeout(ASK_TIMEOUT, answered).await.unwrap_or_else(|_| {
        let why = format!("the agent did not answer within {} s", ASK_TIMEOUT.as_secs());
        Answer::from(RpcError::new(RpcError::INTERNAL, why))
    });
    shared.pending().source_requests.remove(&id);
    if let Err(error) = shared.transport.send(&Message::Response(Response { id: Some(id), answer })).await {
        tracing::debug!(%error, "the answer to a source's request was not sent");
    }
}

/// Asks the agent through the newest call that the request may belong to. If that call is given up, the request may
/// belong to another, so it is asked again through the next one. A request that belongs to no call is asked through the
/// session.
async fn ask(shared: &McpConnectionState, owner: &dyn SourceClient, request: Request, named: Option<u64>) -> Answer {
    let mut tried = Vec::new();
    loop {
        let calls = shared.calls_that_may_ask(named);
        let next = calls.iter().copied().find(|call| !tried.contains(call));
        tried.extend(next);
        let Some(caller) = next.and_then(|call| shared.reply_route(call)) else {
            return match tried.is_empty() || request.method == Method::RootsList {
                true => owner.request(shared.config.source.as_str(), request).await,
                false => nobody_to_ask(),
            };
        };
        let _asking = AgentWait::begin(shared, calls);
        let (reply, answer) = oneshot::channel();
        let said = CallEvent::Request(SourceRequest { request: request.clone(), reply });
        if caller.events.out.send(said).await.is_ok()
            && let Ok(answer) = answer.await
        {
            return answer;
        }
    }
}

/// A guard: while it lives, the source waits for the agent, and the calls that the request may belong to do not time
/// out.
struct AgentWait<'a> {
    shared: &'a McpConnectionState,
    calls: Vec<u64>,
}

impl<'a> AgentWait<'a> {
    fn begin(shared: &'a McpConnectionState, calls: Vec<u64>) -> Self {
        let wait = Self { shared, calls };
        wait.for_each_call(|entry| entry.asking += 1);
        wait
    }

    fn for_each_call(&self, change: impl Fn(&mut PendingRequest)) {
        let mut pending = self.shared.pending();
        for call in &self.calls {
            if let Some(entry) = pending.requests.get_mut(call) {
                change(entry);
            }
        }
    }
}

impl Drop for AgentWait<'_> {
    fn drop(&mut self) {
        self.for_each_call(|entry| {
            entry.asking = entry.asking.saturating_sub(1);
            entry.answered = Some(Instant::now());
        });
    }
}

impl McpConnectionState {
    fn owner(&self) -> Option<Arc<dyn SourceClient>> {
        self.owner.get().and_then(Weak::upgrade)
    }

    /// Reports whether only one session has ever used the connection.
    fn serves_one_session(&self) -> bool {
        self.owner.get().is_some() || self.config.subscribers.had_one_session()
    }

    fn reply_route(&self, id: u64) -> Option<ReplyRoute> {
        self.pending().requests.get(&id).and_then(|entry| entry.caller.clone())
    }

    /// Returns the calls to which a request of the source may belong, the newest first: the `named` one, or all that
    /// are open on a connection of one session.
    fn calls_that_may_ask(&self, named: Option<u64>) -> Vec<u64> {
        let pending = self.pending();
        let open = pending.requests.iter().filter(|(_, entry)| entry.caller.is_some()).map(|(id, _)| *id);
        let mut calls: Vec<u64> = open.filter(|id| named.is_none_or(|named| named == *id)).collect();
        calls.sort_unstable_by_key(|id| std::cmp::Reverse(*id));
        calls
    }

    /// Returns the newest call, for messages that name none: on a connection of one session any of its calls leads to
    /// the same agent.
    fn newest(&self) -> Option<u64> {
        let pending = self.pending();
        pending.requests.iter().filter(|(_, entry)| entry.caller.is_some()).map(|(id, _)| *id).max()
    }

    /// Passes a notification to the caller of a request. For a caller that once did not take one in time, the broker no
    /// longer waits: notifications that do not fit are dropped. The call may wait for an agent that comes back with
    /// answers.
    async fn relay(&self, id: u64, events: &CallEventSender, notification: Notification) {
        if self.pending().requests.get(&id).is_none_or(|entry| entry.slow) {
            return events.offer(notification);
        }
        let passed = tokio::time::timeout(RELAY_TIMEOUT, events.notify(notification)).await;
        if !passed.unwrap_or(false)
            && let Some(entry) = self.pending().requests.get_mut(&id)
        {
            entry.slow = true;
        }
    }
}
