//! An open session as the protocol uses it: the methods that both eras have, and the limits on requests.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

use super::agent_channel::AgentChannel;
use super::open_calls::OpenCalls;
use super::{NextStep, dialect, page};
use crate::agent::{AgentPeer, NoAgent};
use crate::front::backend::FrontSession;
use crate::item::ItemKind;
use crate::protocol::param_header::ANNOTATION;
use crate::protocol::{Answer, Era, Id, Json, Method, Request, Response, RpcError};
use crate::sync::Mutex;

/// The largest number of requests of one session that are worked on at once. Others wait, in their order.
const MAX_RUNNING: usize = 64;

/// The largest number of requests that one session may have open: those that wait among them. More is a runaway loop.
const MAX_OPEN: u32 = 1024;

/// The size of a request in bytes above which it counts while it waits. All smaller ones together hold at most 64 MiB.
const SMALL_BYTES: usize = 64 * 1024;

/// The largest size in bytes of all larger requests that wait, together.
const MAX_WAITING_BYTES: usize = 128 * 1024 * 1024;

/// A handle to an open session. Clones share the session and its limits.
#[derive(Clone)]
pub(crate) struct SessionHandle {
    session: Arc<dyn FrontSession>,
    open: Arc<Semaphore>,
    running: Arc<Semaphore>,
    /// The bytes of larger requests that may still wait.
    waiting: Arc<Semaphore>,
    mirroring: Arc<Mutex<MirroringTools>>,
}

/// Those tools of a list that want arguments repeated in headers: few, so that a call need not search all definitions.
struct MirroringTools {
    listed: Arc<[Json]>,
    found: Arc<[Json]>,
}

impl MirroringTools {
    fn of(listed: Arc<[Json]>) -> Self {
        let found = listed.iter().filter(|tool| tool.as_str().contains(ANNOTATION)).cloned().collect();
        Self { listed, found }
    }
}

/// The moment at which a request is worked on.
enum Turn {
    Now(OwnedSemaphorePermit),
    /// After others. A larger request holds its part of the bytes that may wait.
    Later(Option<OwnedSemaphorePermit>),
}

/// Gives access to what the session itself answers.
impl Deref for SessionHandle {
    type Target = dyn FrontSession;

    fn deref(&self) -> &Self::Target {
        &*self.session
    }
}

impl SessionHandle {
    pub(crate) fn new(session: Arc<dyn FrontSession>) -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        let waiting = places(MAX_WAITING_BYTES);
        let mirroring = Arc::new(Mutex::new(MirroringTools::of(Arc::default())));
        Self { session, open: places(MAX_OPEN as usize), running: places(MAX_RUNNING), waiting, mirroring }
    }

    /// Returns the tools of the session that want arguments repeated in headers.
    pub(crate) async fn mirroring_tools(&self) -> Result<Arc<[Json]>, RpcError> {
        let listed = self.session.list(ItemKind::Tool, &Json::empty_object(), Arc::new(NoAgent)).await?.items;
        let mut known = self.mirroring.lock();
        if !Arc::ptr_eq(&known.listed, &listed) {
            *known = MirroringTools::of(listed);
        }
        Ok(Arc::clone(&known.found))
    }

    /// Reports whether no request is open.
    pub(crate) fn is_unused(&self) -> bool {
        self.open.available_permits() == MAX_OPEN as usize
    }

    /// Starts a request for the session.
    pub(crate) fn serve(&self, era: Era, request: Request, channel: AgentChannel, calls: &OpenCalls) -> NextStep {
        let Request { id, method, params } = request;
        let (session, params) = (self.session.clone(), params.unwrap_or_else(Json::empty_object));
        let (size, channel) = (params.as_str().len(), Arc::new(channel));
        let peer: Arc<dyn AgentPeer> = channel.clone();
        let future = async move {
            let answer = match listed_by(&method) {
                Some(kind) => list(&*session, era, kind, &params, peer).await,
                None => session.request(&method, params, peer).await,
            };
            dialect::spoken(era, &method, answer)
        };
        self.work(id, size, future, calls, Some(channel))
    }

    /// Starts work that takes time, as soon as it is the request's turn. `size` is that of the request, in bytes;
    /// `channel` is the agent's channel, which notes whether a source may have the call.
    pub(crate) fn work(
        &self,
        id: Id,
        size: usize,
        future: impl Future<Output = Answer> + Send + 'static,
        calls: &OpenCalls,
        channel: Option<Arc<AgentChannel>>,
    ) -> NextStep {
        let work = self.admit(size).and_then(|(place, turn)| {
            let running = self.running.clone();
            let future = async move {
                let turn = match turn {
                    Turn::Now(turn) => Ok(turn),
                    Turn::Later(_waiting) => running.acquire_owned().await,
                };
                match turn {
                    Ok(_turn) => future.await,
                    Err(_) => Answer::Error(Json::of(&session_ended())),
                }
            };
            calls.open(id.clone(), place, future.boxed(), channel)
        });
        work.map_or_else(|error| NextStep::Answer(Response::error(Some(id), &error)), NextStep::Work)
    }

    /// Takes a place for a request of this size, and its turn, unless it must wait for that.
    fn admit(&self, size: usize) -> Result<(OwnedSemaphorePermit, Turn), RpcError> {
        let refused = |message| Err(RpcError::new(RpcError::INVALID_REQUEST, message));
        let place = match self.open.clone().try_acquire_owned() {
            Ok(place) => place,
            Err(TryAcquireError::NoPermits) => {
                return refused(format!("{MAX_OPEN} requests of this session are open already; wait for one to end"));
            }
            Err(TryAcquireError::Closed) => return Err(session_ended()),
        };
        if let Ok(turn) = self.running.clone().try_acquire_owned() {
            return Ok((place, Turn::Now(turn)));
        }
        if size <= SMALL_BYTES {
            return Ok((place, Turn::Later(None)));
        }
        let waiting = u32::try_from(size).ok().and_then(|size| self.waiting.clone().try_acquire_many_owned(size).ok());
        match waiting {
            Some(waiting) => Ok((place, Turn::Later(Some(waiting)))),
            None => refused(format!(
                "{MAX_RUNNING} requests of this session are worked on already, and this one is too large to wait: it has \
                 {size} bytes, and all that wait may have {MAX_WAITING_BYTES}"
            )),
        }
    }

    /// Waits for the open calls, but no longer than `timeout`, then ends the session.
    pub(crate) async fn close(&self, timeout: Duration) {
        self.session.end_listeners();
        let _ = tokio::time::timeout(timeout, self.open.acquire_many(MAX_OPEN)).await;
        self.open.close();
        self.running.close();
        self.session.close().await;
    }
}

fn session_ended() -> RpcError {
    RpcError::new(RpcError::INVALID_REQUEST, "this session has ended")
}

fn listed_by(method: &Method) -> Option<ItemKind> {
    let kinds = [ItemKind::Tool, ItemKind::Prompt, ItemKind::Resource, ItemKind::Template];
    kinds.into_iter().find(|kind| kind.list_method() == *method)
}

async fn list(session: &dyn FrontSession, era: Era, kind: ItemKind, params: &Json, peer: Arc<dyn AgentPeer>) -> Answer {
    match session.list(kind, params, peer).await.and_then(|list_page| page::page(era, kind, &list_page, params)) {
        Ok(result) => Answer::Result(result),
        Err(error) => Answer::Error(Json::of(&error)),
    }
}
