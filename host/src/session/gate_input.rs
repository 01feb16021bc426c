//! The circumstances of a call or a question that a session passes to the gate.

use std::sync::Arc;

use super::configured::ConfiguredSession;
use super::listing::VisibleItem;
use crate::agent::AgentPeer;
use crate::call::Call;
use crate::config::Approve;
use crate::context::Upstream;
use crate::gate::GateInput;
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
            counts: Some(&session.continuations.counts),
            source_flow: session.context.gate.reads_flow().then(|| target.upstream.flow(call)),
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
            vault: &session.continuations.vault,
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
            flow: &session.continuations.flow,
            // What is sent to the agent is the source's own.
            source_flow: session.context.gate.reads_flow().then(|| upstream.flow_to_agent()),
            peer,
            counts: None,
            resumed: false,
            to_agent: true,
        }
    }
}
