//! The sessions of the HTTP front: legacy ones by their secret id, modern ones by caller and client.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use tokio::sync::OnceCell;

use super::admission::AdmittedCaller;
use super::expiring_table::{EntryInUse, ExpiringTable, FoundEntry, SessionEntry};
use super::headers;
use super::reply::{HttpRefusal, Resumable};
use super::streams::{EventId, MAX_UNREAD_BYTES, SessionStreams, StreamReader};
use super::token::AccessTokens;
use crate::agent::Agent;
use crate::front::DRAIN;
use crate::front::outgoing::{MessageSender, OutgoingRoom};
use crate::front::protocol::legacy::LegacyConversation;
use crate::front::protocol::session_handle::SessionHandle;
use crate::protocol::{Json, RpcError, header};
use crate::shared_limit::{PrincipalRoom, SharedLimit};
use crate::sync::{Mutex, MutexGuard};

/// The largest number of sessions that the front holds, of each era. Each costs some kilobytes; a client that loses its
/// ids and starts over with every request must not exhaust the broker's memory.
pub(crate) const MAX_SESSIONS: usize = 10_000;

/// The largest number of sessions that one principal may have, of each era, so that there is always room for another
/// principal.
pub(crate) const MAX_OF_ONE: usize = MAX_SESSIONS / 4 * 3;

/// The time without a request after which a modern session ends. The next request opens another, unnoticed by the
/// client.
pub(crate) const MODERN_IDLE: Duration = Duration::from_secs(10 * 60);

/// The time without a request, open call or stream after which a legacy session ends. Many clients take the 404 that
/// follows for a broken server, so it outlasts a meeting and a lunch.
pub(crate) const LEGACY_IDLE: Duration = Duration::from_secs(4 * 60 * 60);

/// The interval at which idle sessions are looked for.
pub(crate) const SWEEP: Duration = Duration::from_secs(30);

/// The key of a modern session: the caller, and the declarations of its client on which the items that sources show may
/// depend.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ModernKey {
    caller: AdmittedCaller,
    client: Arc<str>,
    capabilities: Json,
}

/// All sessions of the front.
pub(crate) struct Sessions {
    /// The limit for what streams without a reader keep.
    unread: Arc<SharedLimit>,
    legacy: ExpiringTable<String, LegacySession>,
    modern: ExpiringTable<ModernKey, OnceCell<SessionHandle>>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            unread: SharedLimit::new(MAX_UNREAD_BYTES),
            legacy: ExpiringTable::new(LEGACY_IDLE, |_, session| &session.caller.principal),
            modern: ExpiringTable::new(MODERN_IDLE, |key, _| &key.caller.principal),
        }
    }
}

impl Sessions {
    /// Returns the id of a legacy session that is about to be opened, 256 random bits, if there is room for one.
    pub(crate) fn new_id(&self, caller: &AdmittedCaller) -> Result<String, HttpRefusal> {
        // A session that must make room is closed only when this one is added: its agent may still be refused.
        self.legacy.room_for(&caller.principal)?;
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| {
            let message = format!("the system gives no random numbers: {error}");
            HttpRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, RpcError::INTERNAL, message)
        })?;
        Ok(BASE64.encode(secret))
    }

    /// Adds the session of an agent that has initialised.
    pub(crate) fn add(&self, id: String, caller: AdmittedCaller, agent: LegacyConversation) -> Result<(), HttpRefusal> {
        let principal = caller.principal.clone();
        let room = PrincipalRoom::new(&self.unread, &principal);
        let streams = Arc::new(SessionStreams::new(room));
        let session = LegacySession { caller, agent, streams, listening: Mutex::default() };
        let FoundEntry { evicted, .. } = self.legacy.entry(id, &principal, || session)?;
        close_soon(Vec::from_iter(evicted), Vec::new());
        Ok(())
    }

    /// Returns the session that a request names. A session of another caller, or of the same one under another profile,
    /// is answered as if it did not exist.
    pub(crate) fn legacy(
        &self,
        caller: &AdmittedCaller,
        headers: &HeaderMap,
    ) -> Result<EntryInUse<LegacySession>, HttpRefusal> {
        let id = session_id(headers)?;
        let session = self.legacy.get(id).filter(|session| session.caller == *caller).ok_or_else(unknown)?;
        if session.agent.ended() {
            // A client starts over only if its session is no longer known.
            self.legacy.lock().remove(id);
            session.end_listening();
            return Err(unknown());
        }
        Ok(session)
    }

    /// Returns the session of a modern caller, as a cell that opens it once. A session whose run has ended is replaced.
    pub(crate) fn modern(
        &self,
        caller: &AdmittedCaller,
        agent: &Agent,
    ) -> Result<EntryInUse<OnceCell<SessionHandle>>, HttpRefusal> {
        let (client, capabilities) = (agent.name.clone(), agent.capabilities.clone());
        let key = ModernKey { caller: caller.clone(), client, capabilities };
        self.modern.remove_if(&key, |cell| cell.get().is_some_and(|handle| handle.ended()));
        let FoundEntry { entry, evicted } = self.modern.entry(key, &caller.principal, OnceCell::new)?;
        close_soon(Vec::new(), Vec::from_iter(evicted));
        Ok(entry)
    }

    /// Ends the legacy session that a request names.
    pub(crate) async fn end(&self, caller: &AdmittedCaller, headers: &HeaderMap) -> Result<(), HttpRefusal> {
        let session = self.legacy(caller, headers)?;
        self.legacy.lock().remove(session_id(headers)?);
        session.end().await;
        Ok(())
    }

    /// Ends the sessions that were idle for too long, and forgets the streams that no agent resumes.
    pub(crate) async fn end_idle(&self) {
        self.legacy.lock().values().for_each(|entry| entry.value.streams.forget_unread());
        let (legacy, modern) = (self.legacy.take_idle(), self.modern.take_idle());
        close(legacy, modern).await;
    }

    /// Ends the streams of the sessions whose run has ended, as when their profile is removed, and closes those sessions
    /// after their last call.
    pub(crate) fn close_ended(&self) {
        self.legacy
            .lock()
            .values()
            .filter(|entry| entry.value.agent.ended())
            .for_each(|entry| entry.value.end_listening());
        let legacy = self.legacy.take_unused(|_, session| session.agent.ended());
        let modern = self.modern.take_unused(|_, cell| cell.get().is_some_and(|handle| handle.ended()));
        close_soon(legacy, modern);
    }

    /// Reports whether there are sessions.
    pub(crate) fn any(&self) -> bool {
        !self.legacy.lock().is_empty() || !self.modern.lock().is_empty()
    }

    /// Ends the sessions of callers who were admitted by a token that is not among these any more, with their calls.
    pub(crate) async fn end_withdrawn(&self, tokens: &AccessTokens) {
        let is_withdrawn = |caller: &AdmittedCaller| caller.token.is_some_and(|mark| !tokens.has(mark));
        let legacy = self.legacy.take_if(|_, session| is_withdrawn(&session.caller));
        let modern = self.modern.take_if(|key, _| is_withdrawn(&key.caller));
        modern.iter().filter_map(|entry| entry.value.get()).for_each(|handle| handle.cut());
        close(legacy, modern).await;
    }

    /// Ends the streams that agents hold open, so that connections can end.
    pub(crate) fn end_streams(&self) {
        self.legacy.lock().values().for_each(|entry| entry.value.end_listening());
        self.modern.lock().values().filter_map(|entry| entry.value.get()).for_each(|handle| handle.end_listeners());
    }

    /// Answers the open calls of legacy sessions with an error that says that they were interrupted.
    pub(crate) fn interrupt(&self) {
        self.legacy.lock().values().for_each(|entry| entry.value.agent.interrupt());
    }

    /// Ends all sessions.
    pub(crate) async fn close(&self) {
        let (legacy, modern) = (self.legacy.take_all(), self.modern.take_all());
        close(legacy, modern).await;
    }
}

/// Ends sessions that made room for others, without waiting for their end.
fn close_soon(legacy: Vec<Arc<SessionEntry<LegacySession>>>, modern: Vec<Arc<SessionEntry<OnceCell<SessionHandle>>>>) {
    if !legacy.is_empty() || !modern.is_empty() {
        tokio::spawn(close(legacy, modern));
    }
}

async fn close(legacy: Vec<Arc<SessionEntry<LegacySession>>>, modern: Vec<Arc<SessionEntry<OnceCell<SessionHandle>>>>) {
    let legacy = futures_util::future::join_all(legacy.iter().map(|entry| entry.value.end()));
    let modern =
        futures_util::future::join_all(modern.iter().filter_map(|entry| entry.value.get()).map(|d| d.close(DRAIN)));
    futures_util::future::join(legacy, modern).await;
}

/// The session of one agent of the legacy era.
pub(crate) struct LegacySession {
    caller: AdmittedCaller,
    pub(crate) agent: LegacyConversation,
    streams: Arc<SessionStreams>,
    /// The stream that the agent opened last by GET, and the sender into it.
    listening: Mutex<Option<(EventId, MessageSender)>>,
}

impl LegacySession {
    /// Opens the stream for messages that belong to no request. A session has one at a time.
    pub(crate) fn listen(&self, room: OutgoingRoom) -> Result<StreamReader, HttpRefusal> {
        let mut listening = self.listening();
        if let Some((open, out)) = &*listening
            && !out.is_closed()
        {
            if self.streams.is_read(*open) {
                let message = "this session has a stream open already; it can have one";
                return Err(HttpRefusal::new(StatusCode::CONFLICT, RpcError::INVALID_REQUEST, message));
            }
            self.streams.forget(*open);
        }
        let (out, messages) = MessageSender::queue(room);
        self.agent.attach(out.clone());
        let reader = self.streams.open(None, messages);
        *listening = Some((reader.position(), out));
        Ok(reader)
    }

    /// Resumes any stream of this session, after the event that its agent got last.
    pub(crate) fn resume(&self, last_event: &str) -> Result<StreamReader, HttpRefusal> {
        let reader = last_event.parse().ok().and_then(|id| self.streams.resume(id));
        reader.ok_or_else(|| {
            let message = "`Last-Event-ID` names no event that is still known; send the requests that were lost again";
            HttpRefusal::new(StatusCode::BAD_REQUEST, RpcError::INVALID_REQUEST, message)
        })
    }

    /// Returns how requests of this session are answered with streams.
    pub(crate) fn resumable(&self) -> Resumable {
        Resumable { streams: self.streams.clone(), starts_with_id: self.agent.accepts_empty_events() }
    }

    fn end_listening(&self) {
        let Some((open, _)) = self.listening().take() else { return };
        self.agent.detach();
        self.streams.forget(open);
    }

    async fn end(&self) {
        self.end_listening();
        self.streams.clear();
        self.agent.cancel_all();
        self.agent.close(DRAIN).await;
    }

    fn listening(&self) -> MutexGuard<'_, Option<(EventId, MessageSender)>> {
        self.listening.lock()
    }
}

fn session_id(headers: &HeaderMap) -> Result<&str, HttpRefusal> {
    headers::single(headers, header::SESSION_ID)?.ok_or_else(|| {
        let message = "`Mcp-Session-Id` is missing; begin with `initialize`, and send the id that it is answered with";
        HttpRefusal::new(StatusCode::BAD_REQUEST, RpcError::INVALID_REQUEST, message)
    })
}

fn unknown() -> HttpRefusal {
    let message = "no such session; it may have ended: begin anew with `initialize`";
    HttpRefusal::new(StatusCode::NOT_FOUND, RpcError::INVALID_REQUEST, message)
}
