//! The gate: filter, policies, transforms, policies again, approval, intent. The result is a [`Permit`], and nothing
//! else makes one.
//!
//! Invariants kept here (ARCHITECTURE.md): a plugin that fails denies (2); any deny denies, else any ask asks (3); no
//! intent in the ledger, no permit (4); after a rewrite whatever was derived from the old value is derived again (8).

mod ambiguity;
mod approval;
mod budget;
mod excerpt;
mod failures;
mod form;
mod in_force;
mod inbox;
mod input;
mod judge;
mod outcome;
mod permit;
mod records;
mod refusal;
mod release;
mod revealed;
mod risk;
mod vault;

use std::sync::Arc;
use std::time::Duration;

use crate::call::{Call, CallView, Params, Phase};
use crate::digest::Digest;
use crate::flow::CallFlow;
use crate::ledger::{Event, EventKind, Ledger};
use crate::metrics::Decisions;
use crate::plugin::{Approval, Concern, PluginIdentity, Policy, Transform, TransformDecision};
use crate::protocol::{CanonicalError, canonical, check_canonical};
use crate::provenance::TracedCall;

use approval::{ApprovalOutcome, ApprovalQuestion, Approvals};
pub use budget::Budget;
use failures::FailureCounter;
pub(crate) use in_force::ConfigInForce;
pub use inbox::{AnswerResult, AnswerRoute, GivenAnswer, Inbox, InboxError, Question, QuestionEvent, ScopeChoice};
pub use input::GateInput;
use judge::{AskReason, DecisionTrail, judge};
pub use permit::Permit;
use records::{UndecidedCall, recorded_payload};
pub use refusal::{CallRefusal, DenialKind};
use release::PassedFacts;
pub use release::Ticket;
pub(crate) use release::asks_for_input;
use revealed::revealed;
pub use risk::{CellEffects, risk_of};
pub use vault::SessionVault;

/// The checks between a session and its sources under one configuration.
#[derive(Debug)]
pub struct Gate {
    policies: Vec<Policy>,
    transforms: Vec<Transform>,
    approvals: Approvals,
    ledger: Ledger,
    failures: Arc<FailureCounter>,
    policies_digest: Digest,
    /// True if a plugin can ask for the information flow of a call. Otherwise it is not kept.
    reads_flow: bool,
}

/// The sentence for a person who is asked about a call with values that the agent does not see.
const HIDDEN_VALUES: &str = "the source gets the values that `[[…]]` stands for, which were hidden from the agent";

/// The plugins that a gate asks, each role in its order.
#[derive(Debug, Clone, Default)]
pub struct GatePlugins {
    /// The policies.
    pub policies: Vec<Policy>,
    /// The transforms.
    pub transforms: Vec<Transform>,
    /// The approval plugins.
    pub approvals: Vec<Approval>,
}

/// A call that has passed the gate.
#[derive(Debug)]
pub struct AdmittedCall {
    /// The proof, which the source takes.
    pub permit: Permit,
    /// The part that is kept until the outcome is recorded.
    pub ticket: Ticket,
}

impl Gate {
    /// Assembles a gate from its plugins. Its questions go to `inbox`, and expire after `ask_timeout`.
    #[must_use]
    pub fn new(plugins: GatePlugins, inbox: Arc<Inbox>, ask_timeout: Duration, ledger: Ledger) -> Self {
        let GatePlugins { policies, transforms, approvals } = plugins;
        let policies_digest = digest_of(&policies, &transforms, &approvals);
        let reads_flow = policies.iter().any(Policy::reads_flow)
            || transforms.iter().any(Transform::reads_flow)
            || approvals.iter().any(Approval::reads_flow);
        let approvals = Approvals::new(approvals, inbox, ask_timeout, ledger.clone(), policies_digest);
        let failures = FailureCounter::new(ledger.clone());
        Self { policies, transforms, approvals, ledger, failures, policies_digest, reads_flow }
    }

    /// Takes a call through all checks to its permit, and records the intent or the refusal durably.
    ///
    /// Cancellation: an open question loses this waiter, and the call is recorded as denied; an intent that was
    /// recorded gets the outcome `not-sent`.
    ///
    /// # Errors
    /// [`CallRefusal`] if the call is denied, waits for a person, or cannot be recorded.
    pub async fn admit(self: &Arc<Self>, mut call: Call, input: &GateInput<'_>) -> Result<AdmittedCall, CallRefusal> {
        if let Some(counts) = input.counts.filter(|_| call.method.is_work()) {
            let comes_again = input.resumed || call.attempt.is_some_and(|attempt| attempt.number > 1);
            call.earlier = match comes_again {
                true => counts.besides(&call.item.exposed),
                false => counts.count(&call.item.exposed),
            };
        }
        if let Some(budget) = input.budget {
            call.budget = budget.left();
        }
        let mut trail = DecisionTrail::new(input.record);
        let series = call.series(input.metrics);
        let mut call = Arc::new(call);
        let mut undecided = UndecidedCall { call: call.clone(), series: &series, ledger: &self.ledger, decided: false };
        self.prepare_records(input.record).await;
        let outcome = self.pass_within_budget(&mut call, input, &mut trail).await;
        let PassedCall { approved, flow, revealed } = match outcome {
            Ok(passed) => passed,
            Err(refusal) => {
                undecided.decided = true;
                self.record_refusal(&call, input, &series, &refusal, trail).await?;
                return Err(refusal);
            }
        };
        self.ledger.record_definition(&call.item);
        let arguments = recorded_payload(&self.ledger, &call.arguments, input.record);
        let mut body = self.describe(&call, input, trail, arguments);
        body.set("approval", approved.describe());
        let event = Event {
            kind: EventKind::CallIntent,
            run: Some(call.caller.session.clone()),
            call: Some(call.id.clone()),
            body,
        };
        let durability = risk::intent_durability(&call, input, &approved);
        let intent = self.ledger.intent(event, approved.consume, durability).await;
        undecided.decided = true;
        let opened = match intent {
            Ok((intent, slot)) => {
                // Made while the intent waits for the disk, so that one whose caller goes away meanwhile gets an
                // outcome too.
                let facts = PassedFacts { slot, flow, revealed: revealed.clone() };
                let ticket = Ticket::new(self, call.clone(), series.clone(), input, facts);
                ticket.opened_by(intent).await
            }
            Err(error) => Err(error),
        };
        match opened {
            Ok(ticket) => {
                let arguments = revealed.as_ref().map(|revealed| &revealed.arguments);
                let permit = Permit::new(call, arguments, input.resumed, ticket.progress());
                Ok(AdmittedCall { permit, ticket })
            }
            Err(error) => {
                let refusal = CallRefusal::from_ledger(error);
                self.record_refusal(&call, input, &series, &refusal, DecisionTrail::new(input.record)).await?;
                Err(refusal)
            }
        }
    }

    /// Returns the plugins, as they were given to [`Gate::new`].
    pub(crate) fn loaded(&self) -> GatePlugins {
        let (policies, transforms) = (self.policies.clone(), self.transforms.clone());
        GatePlugins { policies, transforms, approvals: self.approvals.plugins().cloned().collect() }
    }

    /// Reports whether a plugin can ask for the information flow of a call.
    pub(crate) fn reads_flow(&self) -> bool {
        self.reads_flow
    }

    /// Returns the information flow of a call, with its present arguments. `None` if no plugin can ask for it; the
    /// session then notes the gap.
    fn traced(&self, call: &Call, input: &GateInput<'_>) -> Option<Arc<TracedCall>> {
        let source = input.source_flow.clone().filter(|_| self.reads_flow);
        if source.is_none() {
            input.flow.miss();
        }
        source.map(|source| TracedCall::new(input.flow, source, call))
    }

    /// Reports whether the agent gets a source's messages only after plugins have judged them.
    fn inspects_results(&self) -> bool {
        let policies = self.policies.iter().any(|policy| policy.on(Phase::Result) && !policy.shadow());
        policies || self.transforms.iter().any(|transform| transform.on(Phase::Result))
    }

    /// Returns the plugins by role, in the order in which they are asked.
    pub fn plugins(&self) -> impl Iterator<Item = (&'static str, &PluginIdentity)> {
        self.decisions().map(|(role, identity, _)| (role, identity))
    }

    /// Returns the plugins by role, with the decisions that each has made.
    pub(crate) fn decisions(&self) -> impl Iterator<Item = (&'static str, &PluginIdentity, &Decisions)> {
        let policies = self.policies.iter().map(|plugin| ("policy", plugin.identity(), plugin.decisions()));
        let transforms = self.transforms.iter().map(|plugin| ("transform", plugin.identity(), plugin.decisions()));
        let approvals = self.approvals.plugins().map(|plugin| ("approval", plugin.identity(), plugin.decisions()));
        policies.chain(transforms).chain(approvals)
    }

    /// Reports whether the item may be shown, as the policies of the `list` phase decide. The decision is not recorded
    /// call by call; the caller notes which items were hidden.
    pub async fn shows(&self, call: &Arc<Call>) -> bool {
        let view = CallView::before(call, Phase::List);
        judge(&self.policies, &view, &self.ledger, &mut DecisionTrail::unrecorded(&self.failures)).await.is_ok()
    }

    async fn pass_within_budget(
        &self,
        call: &mut Arc<Call>,
        input: &GateInput<'_>,
        trail: &mut DecisionTrail,
    ) -> Result<PassedCall, CallRefusal> {
        let Some(budget) = input.budget.filter(|_| !input.resumed && call.method.is_work()) else {
            return self.pass(call, input, trail).await;
        };
        // Checked first, so that no person is asked in vain, and paid last, as other calls may have spent the budget
        // meanwhile.
        budget.check()?;
        let passed = self.pass(call, input, trail).await?;
        budget.take(call.arguments.as_bytes().len())?;
        Ok(passed)
    }

    async fn pass(
        &self,
        call: &mut Arc<Call>,
        input: &GateInput<'_>,
        trail: &mut DecisionTrail,
    ) -> Result<PassedCall, CallRefusal> {
        make_unambiguous(call)?;
        if !input.resumed {
            self.approvals.check_state(call)?;
        }
        let mut flow = self.traced(call, input);
        let mut asks = self.judge_call(call, &flow, trail).await?;
        let ambiguous = |error: CanonicalError| CallRefusal::quoting("plugin-output", error.to_string());
        if self.rewrite(call, input, &mut flow, trail).await? {
            check_canonical(&call.arguments).map_err(ambiguous)?;
            asks = self.judge_call(call, &flow, trail).await?;
        }
        let revealed = if input.to_agent { None } else { revealed(call, input.vault)? };
        if let Some(revealed) = &revealed {
            flow = flow.map(|flow| flow.with_values(&revealed.arguments));
            trail.flow.clone_from(&flow);
            let view = CallView::before(revealed, Phase::Call).with_flow(as_facts(&flow));
            let more = self.judge_revealed(&view, input.vault, trail).await?;
            // A question that a policy asks about both forms counts as one reason.
            let new: Vec<_> =
                more.into_iter().filter(|ask| asks.iter().all(|known| known.concern != ask.concern)).collect();
            asks.extend(new);
        }
        let lock_settles = asks.is_empty() && risk::lock_settles(input);
        asks.extend(risk::reason(call, input).map(AskReason::ours));
        if asks.is_empty() || input.resumed {
            return Ok(PassedCall { approved: ApprovalOutcome::without_asking(), flow, revealed });
        }
        if revealed.is_some() {
            asks.push(AskReason::ours(Concern::new("hidden-values", HIDDEN_VALUES)));
        }
        let out_of_band = risk::too_high_for_the_agents_channel(call, input.acceptance);
        let arguments_digest = Digest::of(canonical(&call.arguments).map_err(ambiguous)?.as_bytes());
        let (identity, record) = (input.identity, input.record);
        let question = ApprovalQuestion {
            call,
            flow: as_facts(&flow),
            reasons: asks,
            arguments_digest,
            identity,
            out_of_band,
            lock_settles,
            record,
        };
        let approved = Box::pin(self.approvals.settle(question, input.peer)).await.inspect_err(|refusal| {
            if refusal.is_by_person() {
                input.flow.refuse();
            }
        })?;
        in_force::confirm(call, revealed.as_ref(), &flow, input, trail).await?;
        Ok(PassedCall { approved, flow, revealed })
    }

    async fn judge_call(
        &self,
        call: &Arc<Call>,
        flow: &Option<Arc<TracedCall>>,
        trail: &mut DecisionTrail,
    ) -> Result<Vec<AskReason>, CallRefusal> {
        trail.flow.clone_from(flow);
        let view = CallView::before(call, Phase::Call).with_flow(as_facts(flow));
        judge(&self.policies, &view, &self.ledger, trail).await
    }

    /// Runs the transforms over the arguments. Returns true if they changed.
    async fn rewrite(
        &self,
        call: &mut Arc<Call>,
        input: &GateInput<'_>,
        flow: &mut Option<Arc<TracedCall>>,
        trail: &mut DecisionTrail,
    ) -> Result<bool, CallRefusal> {
        let mut changed = false;
        for transform in self.transforms.iter().filter(|t| t.on(Phase::Call)) {
            let view = CallView::before(call, Phase::Call).with_flow(as_facts(flow));
            let keeper = input.vault.keeper(call.source());
            match judge::rewrite(transform, &view, keeper, &self.ledger, trail).await? {
                TransformDecision::Replace(arguments) => {
                    let params = call.params_with(&arguments);
                    let params = params
                        .ok_or_else(|| CallRefusal::denied("plugin-output", "the arguments have no place in params"))?;
                    let params = Params::parse(&call.method, params);
                    *call = Arc::new(Call { arguments, params, ..Call::clone(call) });
                    *flow = self.traced(call, input);
                    changed = true;
                }
                TransformDecision::Keep => {}
                TransformDecision::Refuse(denial) => return Err(CallRefusal::by_plugin(denial)),
            }
        }
        Ok(changed)
    }
}

/// Returns the digest of the plugins: what they are, their settings, and what the gate makes of their decisions.
fn digest_of(policies: &[Policy], transforms: &[Transform], approvals: &[Approval]) -> Digest {
    let facts = |id: &PluginIdentity| format!("{} {} {}", id.name, id.digest, id.settings);
    let phases = |is_on: &dyn Fn(Phase) -> bool| -> Vec<_> {
        [Phase::List, Phase::Call, Phase::Result].into_iter().filter(|phase| is_on(*phase)).map(Phase::as_str).collect()
    };
    let policies: Vec<_> =
        policies.iter().map(|p| (facts(p.identity()), phases(&|phase| p.on(phase)), p.shadow())).collect();
    let transforms: Vec<_> = transforms.iter().map(|t| (facts(t.identity()), phases(&|phase| t.on(phase)))).collect();
    let approvals: Vec<_> = approvals.iter().map(|plugin| facts(plugin.identity())).collect();
    Digest::of_serialized(&(policies, transforms, approvals))
}

/// A call that no plugin and no person refused.
struct PassedCall {
    approved: ApprovalOutcome,
    flow: Option<Arc<TracedCall>>,
    /// The call as its source gets it, if placeholders stand for values in its arguments.
    revealed: Option<Arc<Call>>,
}

/// Takes away members that the method does not have, and refuses what means one thing to a policy and another to a
/// source, such as duplicate keys.
fn make_unambiguous(call: &mut Arc<Call>) -> Result<(), CallRefusal> {
    let unknown = ambiguity::check(&call.method, call.params.as_json())
        .map_err(|why| CallRefusal::quoting("params-ambiguous", format!("the parameters are ambiguous: {why}")))?;
    if !unknown.is_empty() {
        *call = Arc::new(call.without(&unknown));
    }
    check_canonical(&call.arguments)
        .map_err(|error| CallRefusal::quoting("arguments-ambiguous", format!("the arguments are ambiguous: {error}")))
}

/// Returns the information flow of a call in the form that plugins get it.
fn as_facts(flow: &Option<Arc<TracedCall>>) -> Option<Arc<dyn CallFlow>> {
    flow.clone().map(|flow| flow as Arc<dyn CallFlow>)
}

#[cfg(test)]
mod tests;
