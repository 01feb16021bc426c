//! One request: `handle`, `dispatch`, `execute`; then an [`Execution`] sends it to the source.

use std::sync::Arc;

use super::configured::ConfiguredSession;
use super::execution::{AttemptResult, Execution};
use super::gate_input::InForceForCall;
use super::listing::VisibleItem;
use super::shortened;
use crate::agent::AgentPeer;
use crate::call::{Call, GroupAttempt, Outcome, Params};
use crate::digest::Digest;
use crate::gate::{AdmittedCall, GateInput};
use crate::item::ItemKind;
use crate::protocol::{Answer, Json, Method, RpcError};
use crate::telemetry::Span;

/// One request of the agent, or of the broker on its behalf. Its parameters are parsed once, when it is made.
#[derive(Clone)]
pub(super) struct SessionRequest<'a> {
    pub(super) session: &'a ConfiguredSession,
    pub(super) method: Method,
    pub(super) params: Params,
    /// The channel to the agent.
    pub(super) peer: Arc<dyn AgentPeer>,
    /// True if the arguments were brought into the form that the source asked for.
    arguments_repaired: bool,
}

impl<'a> SessionRequest<'a> {
    pub(super) fn new(session: &'a ConfiguredSession, method: Method, params: Json, peer: Arc<dyn AgentPeer>) -> Self {
        let params = Params::parse(&method, params);
        Self { session, method, params, peer, arguments_repaired: false }
    }

    /// Returns the span of the request for the log.
    pub(super) fn log(&self) -> tracing::Span {
        let name = || self.params.name().and_then(|name| name.read::<String>().ok());
        let tool = || name().filter(|_| self.method == Method::ToolsCall).map(|name| shortened(&name));
        tracing::info_span!(
            "request",
            mcp.session.id = self.session.caller.session.as_str(),
            mcp.method.name = shortened(self.method.as_str()),
            gen_ai.tool.name = tool(),
            jsonrpc.request.id = self.peer.request_id().map(|id| id.as_str().to_owned()),
        )
    }

    /// Answers the request, under a span for the collector if telemetry is configured.
    pub(super) async fn handle(mut self) -> Answer {
        let span = self.trace();
        let answer = self.dispatch().await.unwrap_or_else(Answer::from);
        if let Some(span) = span {
            span.answered(&answer);
        }
        answer
    }

    /// Begins the span for the collector, and makes it the parent in the parameters.
    pub(super) fn trace(&mut self) -> Option<Span> {
        let (caller, agent) = (&self.session.caller, &self.session.agent_side.agent);
        let telemetry = self.session.context.telemetry.as_ref()?;
        let id = self.peer.request_id();
        let (span, params) = telemetry.serving(&self.method, &self.params, (caller, agent), id)?;
        self.set_params(params);
        Some(span)
    }

    /// Answers the request in the session itself, or sends it to a source.
    async fn dispatch(self) -> Result<Answer, RpcError> {
        match self.method {
            // Rare requests are boxed, so that they add nothing to the size of every call.
            Method::LoggingSetLevel => Box::pin(self.set_level()).await,
            Method::ResourcesRead if self.reads_status() => Box::pin(self.session.read_status()).await,
            Method::ResourcesRead if let Some(uri) = self.kept_part() => self.read_kept_part(&uri),
            Method::ResourcesSubscribe | Method::ResourcesUnsubscribe => Box::pin(self.subscribe()).await,
            Method::ToolsCall if self.session.deferred(ItemKind::Tool).is_some() => {
                Box::pin(self.call_deferred()).await
            }
            Method::TasksList => Box::pin(self.list_tasks()).await,
            _ => self.execute().await,
        }
    }

    /// Refuses a request of a session that has ended, before a source is asked for anything.
    pub(super) fn check_session(&self) -> Result<(), RpcError> {
        let ended = self.session.check_not_ended();
        if let Err(error) = &ended {
            let kind = match self.method {
                Method::ToolsCall => ItemKind::Tool,
                Method::PromptsGet => ItemKind::Prompt,
                Method::ResourcesRead | Method::ResourcesSubscribe | Method::ResourcesUnsubscribe => ItemKind::Resource,
                _ => ItemKind::Source,
            };
            let named = if kind == ItemKind::Resource { self.params.uri() } else { self.params.name() };
            let name = named.and_then(|name| name.read::<String>().ok()).unwrap_or_default();
            let _ = self.session.record_rejection("session-ended", kind, &name, &error.message);
        }
        ended
    }

    /// Finds the item that the request is about, and sends the request to its source.
    pub(super) async fn execute(mut self) -> Result<Answer, RpcError> {
        let target = self.target().await?;
        self.restore_arguments(&target)?;
        match &target.group {
            Some(group) => Box::pin(self.execute_in(group)).await,
            None => self.execute_at(&target).await,
        }
    }

    /// Brings arguments that fit a repaired schema into the form that the source asked for. Whatever comes after it
    /// sees only that: policies, questions, records, the source.
    fn restore_arguments(&mut self, target: &VisibleItem) -> Result<(), RpcError> {
        let Some(repair) = &target.repair else { return Ok(()) };
        match repair.restore(self.params.arguments()) {
            Ok(None) => {}
            Ok(Some(arguments)) => {
                if let Some(params) = self.params.as_json().with("arguments", &arguments) {
                    self.set_params(params);
                    self.arguments_repaired = true;
                }
            }
            Err(error) => {
                let (item, text) = (&target.item, format!("the arguments are ambiguous: {error}"));
                return Err(self.session.record_rejection("arguments-ambiguous", item.kind, &item.exposed, &text));
            }
        }
        Ok(())
    }

    /// Sends the request to the source of this item.
    pub(super) async fn execute_at(self, target: &VisibleItem) -> Result<Answer, RpcError> {
        let AttemptResult { answer, .. } = Execution::new(self, target, None).attempt().await?;
        Ok(answer)
    }

    /// Takes the request through the gate, as a call of `target`.
    pub(super) async fn admit(
        &self,
        target: &VisibleItem,
        attempt: Option<GroupAttempt>,
        resumed: bool,
    ) -> Result<AdmittedCall, Answer> {
        let Self { session, method, params, peer, arguments_repaired } = self;
        let params = session.without_foreign_task(method, params, &target.upstream);
        let call = Call::new(method, params, &session.caller, target.item.clone(), target.risk);
        let call = Call { attempt, arguments_repaired: *arguments_repaired, ..call };
        let in_force = InForceForCall { session, target };
        let input =
            GateInput { resumed, in_force: Some(&in_force), ..GateInput::of_call(session, target, peer, &call) };
        let admitted = session.context.gate.admit(call, &input).await;
        admitted.map_err(|refusal| refusal.to_answer())
    }

    /// Takes the request through the gate if the broker itself carries it out. Returns the refusal, if it is refused.
    pub(super) async fn admit_for_broker(&self, target: &VisibleItem) -> Result<(), Answer> {
        let AdmittedCall { ticket, .. } = self.admit(target, None, false).await?;
        match ticket.release(Outcome::Answered(Answer::Result(Json::empty_object()))).await {
            Answer::Result(_) => Ok(()),
            refusal @ Answer::Error(_) => Err(refusal),
        }
    }

    /// Replaces the parameters.
    pub(super) fn set_params(&mut self, params: Json) {
        self.params = Params::parse(&self.method, params);
    }

    /// Returns the same request with other parameters.
    pub(super) fn with_params(&self, params: Json) -> Self {
        Self { params: Params::parse(&self.method, params), ..self.clone() }
    }

    /// Returns the digest that a retry must have in common with the first request. A request that passed the gate
    /// passed it for one source and one definition.
    pub(super) fn about(&self, target: &VisibleItem) -> Digest {
        let (method, arguments, item) = (&self.method, self.params.arguments(), &target.item);
        let arguments = Digest::of_json(arguments).unwrap_or_else(|_| Digest::of(arguments.as_bytes()));
        let (identity, definition) = (target.upstream.identity, item.digest);
        let text = format!("{method}\0{identity}\0{}\0{definition}\0{arguments}", item.exposed);
        Digest::of(text.as_bytes())
    }
}
