//! One agent's connection under one profile.

mod snapshot;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use serde_json::json;
use tokio::sync::{OnceCell, mpsc};

use crate::broker::Inner;
use crate::call::{Call, CallId, Caller, Outcome, now_millis};
use crate::config::ProfileConfig;
use crate::gate::{Circumstances, Permit, SessionVault};
use crate::ledger::{Event, Kind};
use crate::message::{Answer, Json, Notification, RpcError};
use crate::source::Relay;

use snapshot::{Shown, Snapshot};

/// How many notifications of one call may wait for the agent before its source is slowed down.
const RELAY_QUEUE: usize = 64;

/// One agent's connection under one profile; a *run* in the ledger.
#[derive(Debug)]
pub struct Session {
    caller: Arc<Caller>,
    profile: Arc<ProfileConfig>,
    broker: Arc<Inner>,
    vault: Arc<SessionVault>,
    snapshot: OnceCell<Result<Snapshot, RpcError>>,
    ended: AtomicBool,
}

impl Session {
    pub(crate) fn new(caller: Caller, profile: Arc<ProfileConfig>, broker: Arc<Inner>) -> Self {
        Self {
            caller: Arc::new(caller),
            profile,
            broker,
            vault: Arc::default(),
            snapshot: OnceCell::new(),
            ended: AtomicBool::new(false),
        }
    }

    /// Who is at the other end.
    #[must_use]
    pub fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// Whether the run has ended, well or not. A front opens a new session instead of using an ended one.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// The tools this session may see, as MCP `Tool` objects under their exposed names, in a fixed order. The first call
    /// discovers; later ones give the same snapshot.
    ///
    /// # Errors
    /// If a required source could not be discovered: nothing is served on a partial set (product.md, D6).
    pub async fn tools(&self) -> Result<Arc<[Json]>, RpcError> {
        self.snapshot().await.map(Snapshot::listing)
    }

    /// The way of a call, from catalog to outcome. `params` are those of `tools/call`, whole. Dropping the future cancels
    /// the call at its source and records that its outcome is unknown.
    pub async fn call_tool(&self, params: Json, contact: Arc<dyn Contact>) -> Answer {
        match self.try_call(params, &contact).await {
            Ok(answer) => answer,
            Err(error) => Answer::Error(Json::of(&error)),
        }
    }

    /// Ends the run in the ledger. Idempotent.
    pub async fn close(&self) {
        if !self.ended.swap(true, Ordering::SeqCst) {
            self.record(Kind::RunCompleted, json!({}));
            for (upstream, _) in self.broker.admitted(&self.caller.profile) {
                upstream.source.end_session(&self.caller.session);
            }
        }
    }

    async fn try_call(&self, params: Json, contact: &Arc<dyn Contact>) -> Result<Answer, RpcError> {
        let invalid = |text: &str| RpcError::new(RpcError::INVALID_PARAMS, text);
        let [name, arguments, meta] = params.get_all(["name", "arguments", "_meta"]);
        let name: Option<String> = name.and_then(|name| name.read().ok());
        let name = name.ok_or_else(|| invalid("`params.name` must be a string"))?;
        let arguments = arguments.unwrap_or_else(Json::empty_object);
        if !arguments.as_bytes().starts_with(b"{") {
            return Err(invalid("`params.arguments` must be an object"));
        }
        let snapshot = self.snapshot().await?;
        let Some(shown) = snapshot.get(&name) else { return Err(self.unknown_tool(snapshot, &name).await) };
        let call = Call {
            id: CallId::new(),
            received_at: now_millis(),
            method: "tools/call".into(),
            caller: self.caller.clone(),
            tool: shown.tool.clone(),
            risk: shown.risk,
            arguments,
            params,
        };
        let around = Circumstances {
            vault: &self.vault,
            approve: self.profile.approve,
            record: self.profile.record,
            acceptance: &shown.acceptance,
            identity: shown.upstream.identity,
            contact,
        };
        let (permit, ticket) = match self.broker.gate.admit(call, &around).await {
            Ok(admitted) => admitted,
            Err(refusal) => return Ok(refusal.to_answer()),
        };
        let token = meta.and_then(|meta| meta.get("progressToken"));
        let outcome = self.carry(shown, permit, token, contact).await;
        Ok(self.broker.gate.release(ticket, outcome).await)
    }

    /// Carries a permitted call to its source, and what the source says meanwhile to the agent, in order.
    async fn carry(&self, shown: &Shown, permit: Permit, token: Option<Json>, contact: &Arc<dyn Contact>) -> Outcome {
        let (out, mut said) = mpsc::channel(RELAY_QUEUE);
        let relay = token.map(|token| Relay { token, out });
        let mut call = shown.upstream.source.call(permit, relay);
        let outcome = loop {
            tokio::select! {
                biased;
                Some(notification) = said.recv() => contact.notify(notification).await,
                outcome = &mut call => break outcome,
            }
        };
        while let Ok(notification) = said.try_recv() {
            contact.notify(notification).await;
        }
        outcome
    }

    /// A tool that is hidden from this session and one that does not exist look the same to the agent.
    async fn unknown_tool(&self, snapshot: &Snapshot, name: &str) -> RpcError {
        let code = if snapshot.hides(name) { "not-visible" } else { "unknown-tool" };
        let shown: String = name.chars().take(128).collect();
        let event = Event {
            kind: Kind::CallDenied,
            run: Some(self.caller.session.clone()),
            call: Some(CallId::new()),
            body: json!({
                "code": code,
                "tool": shown,
                "principal": &*self.caller.principal,
                "profile": self.caller.profile,
            }),
        };
        self.broker.ledger.note(event);
        RpcError::new(RpcError::INVALID_PARAMS, format!("unknown tool {shown:?}"))
    }

    async fn snapshot(&self) -> Result<&Snapshot, RpcError> {
        let taken = self.snapshot.get_or_init(|| async {
            let taken = snapshot::take(&self.broker, &self.caller, &self.profile).await;
            taken.map_err(|error| {
                self.ended.store(true, Ordering::SeqCst);
                self.record(Kind::RunError, json!({ "error": error }));
                RpcError::new(RpcError::INTERNAL, error).with_data(json!({ "code": "discovery-failed" }))
            })
        });
        taken.await.as_ref().map_err(Clone::clone)
    }

    fn record(&self, kind: Kind, body: serde_json::Value) {
        self.broker.ledger.note(Event { kind, run: Some(self.caller.session.clone()), call: None, body });
    }
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
