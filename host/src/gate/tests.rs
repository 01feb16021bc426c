#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod approvals;
mod durability;
mod failing;
mod flow;
mod reasons;
mod risk;
mod vault;
mod way;

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::agent::{AgentPeer, Elicitation};
use crate::call::{CallId, Cause, Outcome, Params, Risk, SessionId};
use crate::config::{Approve, BudgetConfig, Detail, Durability};
use crate::item::{Item, ToolAnnotations};
use crate::ledger::{ChainStart, LedgerReader};
use crate::lockfile::Acceptance;
use crate::metrics::SourceMetrics;
use crate::plugin::AnswerScope;
use crate::protocol::{Answer, Json, Method, Notification};
use crate::provenance::SourceFlow;
use portcullis_core::testing::view;

/// A gate without plugins over its own ledger, and one session.
struct Bench {
    gate: Arc<Gate>,
    inbox: Arc<Inbox>,
    ledger: Ledger,
    vault: Arc<SessionVault>,
    flow: Arc<crate::provenance::SessionFlow>,
    session: SessionId,
    principal: crate::principal::Principal,
    profile: crate::name::ProfileName,
    /// The annotations of the called tool.
    hints: ToolAnnotations,
    /// True if the cell of the source is harmless, and so are its calls.
    harmless_cell: bool,
    dir: TempDir,
}

impl Bench {
    async fn new() -> Self {
        Self::with(Duration::from_secs(300)).await
    }

    async fn with(timeout: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let started = ChainStart { version: "0".to_owned(), config: Digest::of(b""), key: None };
        let ledger = Ledger::open(dir.path(), started).await.unwrap();
        let inbox = Arc::<Inbox>::default();
        let gate = Arc::new(Gate::new(GatePlugins::default(), inbox.clone(), timeout, ledger.clone()));
        Self {
            gate,
            inbox,
            ledger,
            vault: Arc::default(),
            flow: Arc::default(),
            session: SessionId::new(),
            principal: view("{}").call.caller.principal.clone(),
            profile: view("{}").call.caller.profile.clone(),
            hints: ToolAnnotations::default(),
            harmless_cell: false,
            dir,
        }
    }

    fn call(&self, params: &str) -> Call {
        let call = Call::clone(&view("{}").call);
        let params = Params::parse(&Method::ToolsCall, Json::parse(params.to_owned()).unwrap());
        let (session, principal, profile) = (self.session.clone(), self.principal.clone(), self.profile.clone());
        let caller = Arc::new(crate::call::Caller { session, principal, profile, ..(*call.caller).clone() });
        let arguments = params.arguments().clone();
        let item = Arc::new(Item { hints: self.hints, ..Item::clone(&call.item) });
        let is_harmless = self.harmless_cell && !self.hints.raise_risk();
        let risk = if is_harmless { Risk::Harmless } else { call.risk };
        Call { id: CallId::new(), caller, item, params, arguments, risk, ..call }
    }

    /// Admits a call as a separate task, so that it can wait and be dropped.
    fn admit(&self, params: &str, approve: Approve, elicitation: Elicitation) -> Admitting {
        self.admit_accepted(params, approve, elicitation, Acceptance::Unknown)
    }

    fn admit_accepted(
        &self,
        params: &str,
        approve: Approve,
        elicitation: Elicitation,
        acceptance: Acceptance,
    ) -> Admitting {
        let (call, gate, vault, harmless_cell) =
            (self.call(params), self.gate.clone(), self.vault.clone(), self.harmless_cell);
        let flow = self.flow.clone();
        let peer: Arc<dyn AgentPeer> = Arc::new(Agent(elicitation));
        tokio::spawn(async move {
            let input = GateInput {
                vault: &vault,
                approve,
                record: Detail::Full,
                acceptance: &acceptance,
                identity: Digest::of(b"source"),
                budget: None,
                metrics: &SourceMetrics::default(),
                flow: &flow,
                source_flow: None,
                peer: &peer,
                durability: Durability::Effects,
                harmless_cell,
                counts: None,
                resumed: false,
                to_agent: false,
                in_force: None,
            };
            gate.admit(call, &input).await
        })
    }

    async fn ask(&self, params: &str) -> Admitting {
        let before: usize = self.inbox.list().iter().map(|ask| ask.waiting).sum();
        let admitting = self.admit(params, Approve::Always, Elicitation::None);
        while self.inbox.list().iter().map(|ask| ask.waiting).sum::<usize>() <= before {
            tokio::task::yield_now().await;
        }
        admitting
    }

    /// Returns the ledger's records of this kind, once everything before has been written.
    async fn recorded(&self, kind: &str) -> Vec<serde_json::Value> {
        self.ledger.append(Event::new(EventKind::SourceLog, json!({}))).await.unwrap();
        let all =
            LedgerReader::open(self.dir.path()).unwrap().tail(1000, &crate::ledger::RecordFilter::default()).unwrap();
        let all = all.into_iter().map(|entry| serde_json::to_value(&entry.record).unwrap());
        all.filter(|record| record["kind"] == kind).collect()
    }
}

type Admitting = tokio::task::JoinHandle<Result<AdmittedCall, CallRefusal>>;

struct Agent(Elicitation);

impl AgentPeer for Agent {
    fn notify(&self, _: Notification) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn elicitation(&self) -> Elicitation {
        self.0
    }

    fn request<'a>(&'a self, _: &'a crate::protocol::Method, _: Option<Json>) -> BoxFuture<'a, Answer> {
        Box::pin(async move { std::future::pending().await })
    }
}

fn code(refused: Result<AdmittedCall, CallRefusal>) -> String {
    match refused {
        Err(CallRefusal::Denied { code, .. }) => code,
        other => panic!("{other:?}"),
    }
}
