//! An open session as the protocol uses it: the methods that both eras have, and the limit on open calls.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{Semaphore, TryAcquireError};

use super::agent_channel::AgentChannel;
use super::calls::Calls;
use super::{NextStep, dialect, page};
use crate::agent::{AgentPeer, NoAgent};
use crate::front::backend::FrontSession;
use crate::item::ItemKind;
use crate::protocol::{Answer, Era, Id, Json, Method, Request, Response, RpcError};

/// The largest number of calls that one session may have open. An agent runs a handful at once; more is a runaway loop.
pub(crate) const MAX_CALLS: u32 = 64;

/// A handle to an open session. Clones share the session and its limit.
#[derive(Clone)]
pub(crate) struct SessionHandle {
    session: Arc<dyn FrontSession>,
    slots: Arc<Semaphore>,
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
        Self { session, slots: Arc::new(Semaphore::new(MAX_CALLS as usize)) }
    }

    /// Returns the tools of the session.
    pub(crate) async fn tools(&self) -> Result<Arc<[Json]>, RpcError> {
        Ok(self.session.list(ItemKind::Tool, &Json::empty_object(), Arc::new(NoAgent)).await?.items)
    }

    /// Reports whether no request is open.
    pub(crate) fn is_unused(&self) -> bool {
        self.slots.available_permits() == MAX_CALLS as usize
    }

    /// Starts a request for the session.
    pub(crate) fn serve(&self, era: Era, request: Request, channel: AgentChannel, calls: &Calls) -> NextStep {
        let Request { id, method, params } = request;
        let (session, params) = (self.session.clone(), params.unwrap_or_else(Json::empty_object));
        let channel = Arc::new(channel);
        let peer: Arc<dyn AgentPeer> = channel.clone();
        let future = async move {
            let answer = match listed_by(&method) {
                Some(kind) => list(&*session, era, kind, &params, peer).await,
                None => session.request(&method, params, peer).await,
            };
            dialect::spoken(era, &method, answer)
        };
        self.work(id, future, calls, Some(channel))
    }

    /// Starts work that takes time. `channel` is the agent's channel, which notes whether a source may have the call.
    pub(crate) fn work(
        &self,
        id: Id,
        future: impl Future<Output = Answer> + Send + 'static,
        calls: &Calls,
        channel: Option<Arc<AgentChannel>>,
    ) -> NextStep {
        let work = match self.slots.clone().try_acquire_owned() {
            Ok(slot) => calls.open(id.clone(), slot, future.boxed(), channel),
            Err(TryAcquireError::NoPermits) => Err(RpcError::new(
                RpcError::INVALID_REQUEST,
                format!("{MAX_CALLS} requests of this session are open already; wait for one to end"),
            )),
            Err(TryAcquireError::Closed) => Err(RpcError::new(RpcError::INVALID_REQUEST, "this session has ended")),
        };
        work.map_or_else(|error| NextStep::Answer(Response::error(Some(id), &error)), NextStep::Work)
    }

    /// Waits for the open calls, but no longer than `timeout`, then ends the session.
    pub(crate) async fn close(&self, timeout: Duration) {
        self.session.end_listeners();
        let _ = tokio::time::timeout(timeout, self.slots.acquire_many(MAX_CALLS)).await;
        self.slots.close();
        self.session.close().await;
    }
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
