//! The open calls of one agent: how many there may be, and how one is cancelled.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::message::{Answer, Id, Json, Response, RpcError};

/// The calls that one connection has open, by the agent's ids.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<Mutex<Open>>);

/// What cancels each open call; None where it has been cancelled and has not ended yet.
type Open = HashMap<Id, Option<oneshot::Sender<()>>>;

impl Calls {
    /// Enters a call.
    ///
    /// # Errors
    /// If the agent has a call of that id open already: its answers could not be told apart.
    pub(crate) fn open(
        &self,
        id: Id,
        slot: OwnedSemaphorePermit,
        future: BoxFuture<'static, Answer>,
    ) -> Result<Work, RpcError> {
        let mut calls = self.lock();
        if calls.contains_key(&id) {
            let message = format!("id {} belongs to a request that is still open", id.as_json());
            return Err(RpcError::new(RpcError::INVALID_REQUEST, message));
        }
        let (cancel, cancelled) = oneshot::channel();
        calls.insert(id.clone(), Some(cancel));
        Ok(Work { future, cancelled, open: Entry { id, calls: self.clone() }, slot })
    }

    /// `notifications/cancelled`: drops the call it names, if that is still open.
    pub(crate) fn cancel(&self, params: Option<&Json>) {
        let id = params.and_then(|params| params.get("requestId")).and_then(|id| Id::from_json(id.as_str()).ok());
        if let Some(id) = id
            && let Some(call) = self.lock().get_mut(&id)
        {
            // Dropping the sender cancels.
            *call = None;
        }
    }

    /// Drops every call.
    pub(crate) fn cancel_all(&self) {
        self.lock().values_mut().for_each(|call| *call = None);
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // The map is whole at every point at which a holder could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that takes time. The front drives it, on a task of its own; dropping it cancels.
pub(crate) struct Work {
    future: BoxFuture<'static, Answer>,
    cancelled: oneshot::Receiver<()>,
    open: Entry,
    slot: OwnedSemaphorePermit,
}

impl Work {
    /// The response; None if the agent cancelled, and so expects none.
    pub(crate) async fn run(self) -> Option<Response> {
        let Self { future, cancelled, open, slot } = self;
        let answer = tokio::select! {
            biased;
            _ = cancelled => None,
            answer = future => Some(answer),
        };
        let response = answer.map(|answer| Response { id: Some(open.id.clone()), answer });
        drop((open, slot));
        response
    }
}

/// Leaves the table with the call, however that ends.
struct Entry {
    id: Id,
    calls: Calls,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.calls.lock().remove(&self.id);
    }
}
