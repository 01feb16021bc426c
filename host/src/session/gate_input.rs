//! The circumstances of a call or a question that a session passes to the gate.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::configured::ConfiguredSession;
use super::listing::{VisibleItem, may_see};
use crate::agent::AgentPeer;
use crate::call::Call;
use crate::config::Approve;
use crate::context::Upstream;
use crate::gate::{CallRefusal, ConfigInForce, Gate, GateInput};
use crate::lockfile::Acceptance;

impl<'a> GateInput<'a> {
    /// Returns the gate's input for a new call of the session's agent.
    pub(super) fn of_call(
        session: &'a ConfiguredSession,
        target: &'a VisibleItem,
        peer: &'a Arc<dyn AgentPeer>,
        call: &Call,
    ) -> Self {
        Self {
            budget: session.context.budget(&session.caller.profile),
            approve: session.profile.approve,
            acceptance: &target.acceptance,
            harmless_cell: target.upstream.is_harmless(),
            counts: Some(&session.agent_side.continuations.counts),
            source_flow: session.context.gate.reads_flow().then(|| {
                let tasks = &session.agent_side.continuations.tasks;
                let further = tasks.labels_for(&call.method, &call.params, &target.upstream.config.name);
                target.upstream.flow(call).with_labels(further)
            }),
            to_agent: false,
            ..Self::of_question(session, &target.upstream, peer)
        }
    }

    /// Returns the gate's input for a question that a source puts to the session's agent.
    pub(super) fn of_question(
        session: &'a ConfiguredSession,
        upstream: &'a Upstream,
        peer: &'a Arc<dyn AgentPeer>,
    ) -> Self {
        Self {
            vault: &session.agent_side.continuations.vault,
            // No further approval is needed: the person who is asked decides by answering.
            approve: Approve::Never,
            record: session.profile.record,
            acceptance: &Acceptance::Unknown,
            identity: upstream.identity,
            budget: None,
            metrics: &upstream.metrics,
            durability: session.context.config.ledger.durability,
            // A question goes to the agent, whom no cell holds.
            harmless_cell: false,
            flow: &session.agent_side.continuations.flow,
            // The messages sent to the agent are the source's own.
            source_flow: session.context.gate.reads_flow().then(|| upstream.flow_to_agent()),
            peer,
            counts: None,
            resumed: false,
            to_agent: true,
            in_force: None,
        }
    }
}

/// The configuration in force, as a session sees it for a call that it makes.
pub(super) struct InForceForCall<'a> {
    pub(super) session: &'a ConfiguredSession,
    pub(super) target: &'a VisibleItem,
}

impl ConfigInForce for InForceForCall<'_> {
    fn newer_gate(&self) -> BoxFuture<'_, Result<Option<Arc<Gate>>, CallRefusal>> {
        Box::pin(async move {
            let Some(now) = self.session.agent_side.session().map(|session| session.current()) else { return Ok(None) };
            if Arc::ptr_eq(&now.context, &self.session.context) {
                return Ok(None);
            }
            let upstream = &self.target.upstream;
            let mut admitted = now.context.admitted(&now.caller.profile);
            let filter = admitted.find(|(other, _)| Arc::ptr_eq(other, upstream)).map(|(_, filter)| filter);
            let is_offered = match filter {
                Some(filter) => may_see(&now.context, &now.caller, filter, self.target).await,
                None => false,
            };
            if !is_offered {
                let why = "the configuration has changed since a person was asked, and does not offer this any more, or from a \
                           source that has changed; list what there is, and call again";
                return Err(CallRefusal::denied("configuration-changed", why));
            }
            Ok(Some(Arc::clone(&now.context.gate)))
        })
    }
}
