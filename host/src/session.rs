//! One agent's connection under one profile.

use std::sync::Arc;

use async_trait::async_trait;

use crate::call::Caller;
use crate::message::{Answer, Json, Notification, RpcError};

/// One agent's connection under one profile; a *run* in the ledger.
#[derive(Debug)]
pub struct Session {
    caller: Arc<Caller>,
}

impl Session {
    /// Who is at the other end.
    #[must_use]
    pub fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// The tools this session may see, as MCP `Tool` objects under their exposed names, in a fixed order. The first call
    /// discovers; later ones give the same snapshot.
    ///
    /// # Errors
    /// If a required source could not be discovered: nothing is served on a partial set (product.md, D6).
    pub async fn tools(&self) -> Result<Arc<[Json]>, RpcError> {
        Err(RpcError::new(RpcError::INTERNAL, "skeleton"))
    }

    /// The way of a call, from catalog to outcome. `params` are those of `tools/call`, whole. Dropping the future cancels
    /// the call at its source and records that its outcome is unknown.
    pub async fn call_tool(&self, _params: Json, _contact: Arc<dyn Contact>) -> Answer {
        Answer::Error(Json::of(&RpcError::new(RpcError::INTERNAL, "skeleton")))
    }

    /// Ends the run in the ledger. Idempotent.
    pub async fn close(&self) {}
}

/// How to reach the agent, and the person behind it, while one of its calls is open.
#[async_trait]
pub trait Contact: Send + Sync {
    /// Passes on a notification that belongs to the call (progress).
    async fn notify(&self, notification: Notification);

    /// In which way this agent can put a question to a person.
    fn elicitation(&self) -> Elicitation;

    /// Sends a request to the agent (legacy eras) and waits for its answer: `elicitation/create`. The error is a JSON-RPC
    /// error of the peer, or a lost connection.
    async fn request(&self, method: &str, params: Json) -> Result<Json, RpcError>;
}

/// In which way an agent can put a question to a person.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Elicitation {
    /// Not at all.
    None,
    /// By a request of ours on its connection (2025-06-18, 2025-11-25).
    Request,
    /// By an `input_required` result, which the agent answers with a retry (2026-07-28).
    InputRequired,
}
