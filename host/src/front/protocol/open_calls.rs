//! The open calls of one agent: how one is cancelled, and how all are cut when the broker stops.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::agent_channel::AgentChannel;
use crate::protocol::{Answer, Id, Json, Response, RpcError};
use crate::sync::{Mutex, MutexGuard};

/// The calls that are open, by the agent's ids and by the stream within which these are unique.
#[derive(Clone, Default)]
pub(crate) struct OpenCalls {
    shared: Arc<Shared>,
    stream: u64,
}

#[derive(Default)]
struct Shared {
    open: Mutex<CallMap>,
    last_stream: AtomicU64,
}

/// The sender that ends each open call: a message through it cuts the call, dropping it cancels the call. `None` once
/// that has happened and until the call has ended.
type CallMap = HashMap<(u64, Id), Option<oneshot::Sender<()>>>;

impl OpenCalls {
    /// Returns a handle to the same calls for another stream, which has its own ids.
    pub(crate) fn stream(&self) -> Self {
        let stream = self.shared.last_stream.fetch_add(1, Ordering::Relaxed) + 1;
        Self { shared: self.shared.clone(), stream }
    }

    /// Adds a call. `channel` is the agent's channel, which notes whether a source may have the call.
    ///
    /// # Errors
    /// If the agent already has an open call with that id: the answers could not be distinguished.
    pub(crate) fn open(
        &self,
        id: Id,
        slot: OwnedSemaphorePermit,
        future: BoxFuture<'static, Answer>,
        channel: Option<Arc<AgentChannel>>,
    ) -> Result<CallWork, RpcError> {
        let mut calls = self.lock();
        let key = (self.stream, id);
        if calls.contains_key(&key) {
            let message = format!("id {} belongs to a request that is still open", key.1.as_json());
            return Err(RpcError::new(RpcError::INVALID_REQUEST, message));
        }
        let (end, ended) = oneshot::channel();
        calls.insert(key.clone(), Some(end));
        Ok(CallWork { future, ended, open: Entry { key, calls: self.clone() }, slot, channel })
    }

    /// Cancels the call that `notifications/cancelled` names, if that is still open.
    pub(crate) fn cancel(&self, params: Option<&Json>) {
        let id = params.and_then(|params| params.get("requestId")).and_then(|id| Id::from_json(id.as_str()).ok());
        if let Some(id) = id
            && let Some(call) = self.lock().get_mut(&(self.stream, id))
        {
            // Dropping the sender cancels.
            *call = None;
        }
    }

    /// Cancels every call.
    pub(crate) fn cancel_all(&self) {
        self.lock().values_mut().for_each(|call| *call = None);
    }

    /// Cuts every call, of all streams: each is dropped, and answered with an error that says so.
    pub(crate) fn interrupt(&self) {
        for call in self.lock().values_mut() {
            // A call that has just ended needs no answer of this kind.
            let _ = call.take().map(|call| call.send(()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, CallMap> {
        self.shared.open.lock()
    }
}

/// A request that takes time. The front drives it; dropping it cancels the call.
pub(crate) struct CallWork {
    future: BoxFuture<'static, Answer>,
    ended: oneshot::Receiver<()>,
    open: Entry,
    slot: OwnedSemaphorePermit,
    channel: Option<Arc<AgentChannel>>,
}

impl CallWork {
    /// Runs the call and returns the response, or `None` if the agent cancelled, and so expects none.
    pub(crate) async fn run(self) -> Option<Response> {
        let Self { future, ended, open, slot, channel } = self;
        let answer = tokio::select! {
            biased;
            ended = ended => ended.ok().map(|()| interrupted_call(channel.is_some_and(|channel| channel.may_be_sent()))),
            answer = future => Some(answer),
        };
        let response = answer.map(|answer| Response { id: Some(open.key.1.clone()), answer });
        drop((open, slot));
        response
    }
}

/// Returns the answer to a call that had not ended when the broker stopped.
fn interrupted_call(may_be_sent: bool) -> Answer {
    let (code, message) = match may_be_sent {
        true => {
            let message = "the broker stopped before the source answered; whether the call had an effect is unknown";
            ("outcome-unknown", message)
        }
        false => ("not-sent", "the broker stopped before the call was sent to its source; it had no effect"),
    };
    let error = RpcError::new(RpcError::INTERNAL, message).with_data(serde_json::json!({ "code": code }));
    Answer::from(error)
}

/// The entry of a call in the table, which is removed however the call ends.
struct Entry {
    key: (u64, Id),
    calls: OpenCalls,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.calls.lock().remove(&self.key);
    }
}
