//! An open session as the protocol uses it: the methods that both eras have, and the limits on requests.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

use super::agent_channel::AgentChannel;
use super::open_calls::OpenCalls;
use super::{NextStep, dialect, page};
use crate::agent::AgentPeer;
use crate::front::backend::FrontSession;
use crate::item::ItemKind;
use crate::protocol::param_header::ANNOTATION;
use crate::protocol::{Answer, Era, Id, Json, Method, Request, Response, RpcError};
use crate::sync::Mutex;

/// The largest number of requests of one session that are worked on at once. Others wait, in their order.
const MAX_RUNNING: usize = 64;

/// The largest number of `subscriptions/listen` that one session may have open. They end when the agent goes, so they
/// take no turn of other requests.
const MAX_LISTENING: usize = 64;

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
    listening: Arc<Semaphore>,
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

/// The place of a request among the open ones, and its turn.
type AdmittedRequest = (OwnedSemaphorePermit, Turn);

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
        let (open, running, listening) = (places(MAX_OPEN as usize), places(MAX_RUNNING), places(MAX_LISTENING));
        Self { session, open, running, listening, waiting, mirroring }
    }

    /// Returns the tools of the session that want arguments repeated in headers, as the agent was shown them.
    pub(crate) async fn mirroring_tools(&self) -> Result<Arc<[Json]>, RpcError> {
        let listed = self.session.listed_tools().await?;
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
        let turn = match method {
            Method::SubscriptionsListen => self.admit_listener(),
            _ => self.admit(size),
        };
        let future = async move {
            let answer = match listed_by(&method) {
                Some(kind) => list(&*session, era, kind, &params, peer).await,
                None => session.request(&method, params, peer).await,
            };
            dialect::spoken(era, &method, answer)
        };
        self.work(id, turn, future, calls, Some(channel))
    }

    /// Starts a small request whose work takes time, as soon as it is its turn.
    pub(crate) fn start(
        &self,
        id: Id,
        future: impl Future<Output = Answer> + Send + 'static,
        calls: &OpenCalls,
    ) -> NextStep {
        self.work(id, self.admit(0), future, calls, None)
    }

    /// Starts work that takes time, as soon as it is the request's turn. `channel` is the agent's channel, which notes
    /// whether a source may have the call.
    fn work(
        &self,
        id: Id,
        admitted: Result<AdmittedRequest, RpcError>,
        future: impl Future<Output = Answer> + Send + 'static,
        calls: &OpenCalls,
        channel: Option<Arc<AgentChannel>>,
    ) -> NextStep {
        let work = admitted.and_then(|(place, turn)| {
            let running = self.running.clone();
            let future = async move {
                let turn = match turn {
                    Turn::Now(turn) => Ok(turn),
                    Turn::Later(_waiting) => running.acquire_owned().await,
                };
                match turn {
                    Ok(_turn) => future.await,
                    Err(_) => Answer::from(session_ended()),
                }
            };
            calls.open(id.clone(), place, future.boxed(), channel)
        });
        work.map_or_else(|error| NextStep::Answer(Response::error(Some(id), &error)), NextStep::Work)
    }

    /// Takes a place among the open requests.
    fn place(&self) -> Result<OwnedSemaphorePermit, RpcError> {
        self.open.clone().try_acquire_owned().map_err(|error| match error {
            TryAcquireError::NoPermits => {
                refused(format!("{MAX_OPEN} requests of this session are open already; wait for one to end"))
            }
            TryAcquireError::Closed => session_ended(),
        })
    }

    /// Takes a place for a `subscriptions/listen`.
    fn admit_listener(&self) -> Result<AdmittedRequest, RpcError> {
        let place = self.place()?;
        match self.listening.clone().try_acquire_owned() {
            Ok(turn) => Ok((place, Turn::Now(turn))),
            Err(_) => {
                Err(refused(format!("{MAX_LISTENING} subscriptions of this session are open already; end one of them")))
            }
        }
    }

    /// Takes a place for a request of this size, and its turn, unless it must wait for that.
    fn admit(&self, size: usize) -> Result<AdmittedRequest, RpcError> {
        let place = self.place()?;
        if let Ok(turn) = self.running.clone().try_acquire_owned() {
            return Ok((place, Turn::Now(turn)));
        }
        if size <= SMALL_BYTES {
            return Ok((place, Turn::Later(None)));
        }
        let waiting = u32::try_from(size).ok().and_then(|size| self.waiting.clone().try_acquire_many_owned(size).ok());
        match waiting {
            Some(waiting) => Ok((place, Turn::Later(Some(waiting)))),
            None => Err(refused(format!(
                "{MAX_RUNNING} requests of this session are worked on already, and this one is too large to wait: it has \
                 {size} bytes, and all that wait may have {MAX_WAITING_BYTES}"
            ))),
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

fn refused(message: String) -> RpcError {
    RpcError::new(RpcError::INVALID_REQUEST, message)
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
        Err(error) => Answer::from(error),
    }
}
