//! Settles whether a call that needs a person may pass: by an earlier answer, by a person at the agent's side, or by one
//! at another terminal.

mod question;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use super::form::{elicitation, read_elicitation};
use super::inbox::{AcceptableTool, MAX_TIMEOUT, OpenQuestion, QuestionState};
use super::judge::{self, DecisionTrail};
use super::{CallRefusal, Inbox, InboxError};
use crate::agent::{AgentPeer, Elicitation, report_progress};
use crate::call::{Call, CallView, Phase};
use crate::digest::Digest;
use crate::escape::escape_hidden;
use crate::item::ItemKind;
use crate::ledger::{ApprovalGrant, GrantBinding, GrantScope, GrantUse, Ledger};
use crate::name::ProfileName;
use crate::plugin::{AnswerScope, Approval, AskFacts, GrantFacts, Offer, Settlement};
use crate::protocol::{Answer, Json, Method};
pub(super) use question::ApprovalQuestion;

/// The time for which a call is held open for a person when the agent cannot ask one itself. Widely used clients give
/// up on a tool after 60 s; before that they are told how to come back.
const HOLD: Duration = Duration::from_secs(50);

/// The longest a remembered answer may hold (30 days), whatever a plugin offers.
const MAX_VALIDITY: u32 = 30 * 24 * 60 * 60;

/// The name of our one input request in an `InputRequiredResult`.
pub(super) const INPUT: &str = "portcullis-approval";

#[derive(Debug)]
pub(super) struct Approvals {
    plugins: Vec<Approval>,
    inbox: Arc<Inbox>,
    /// The longest time that a question waits for a person.
    timeout: Duration,
    ledger: Ledger,
    policies: Digest,
}

/// The approval that a call needed, if it needed one.
#[derive(Debug)]
pub(super) struct ApprovalOutcome {
    pub(super) consume: Option<GrantUse>,
    /// True if a person approved the call, or an earlier answer of one covers it.
    pub(super) by_person: bool,
    how: serde_json::Value,
}

impl ApprovalOutcome {
    pub(super) fn without_asking() -> Self {
        Self { consume: None, by_person: false, how: json!("not asked") }
    }

    pub(super) fn describe(&self) -> serde_json::Value {
        self.how.clone()
    }
}

impl Approvals {
    pub(super) fn new(
        plugins: Vec<Approval>,
        inbox: Arc<Inbox>,
        timeout: Duration,
        ledger: Ledger,
        policies: Digest,
    ) -> Self {
        Self { plugins, inbox, timeout: timeout.min(MAX_TIMEOUT), ledger, policies }
    }

    /// Returns the digest of the policies in force and of the profile: an answer that was given under one profile
    /// counts under no other, since profiles differ in the calls that need an answer and in whom they trust.
    fn policies_under(&self, profile: &ProfileName) -> Digest {
        Digest::of(format!("{}\n{profile}", self.policies).as_bytes())
    }

    pub(super) fn plugins(&self) -> impl Iterator<Item = &Approval> {
        self.plugins.iter()
    }

    pub(super) async fn settle(
        &self,
        question: ApprovalQuestion<'_>,
        peer: &Arc<dyn AgentPeer>,
    ) -> Result<ApprovalOutcome, CallRefusal> {
        let call = question.call;
        let binding = GrantBinding {
            principal: call.caller.principal.to_string(),
            source: question.identity.to_string(),
            definition: call.item.digest,
            tool: bound_name(call),
            policies: self.policies_under(&call.caller.profile),
            arguments: question.arguments_digest,
            session: call.caller.session.clone(),
            reasons: question.reason_digests(),
        };
        if let Some(approved) = self.retried(call, &binding).await? {
            return Ok(approved);
        }
        let acceptable = self.acceptable(&question);
        // The session may have listed the tool before a person accepted it.
        if let Some(acceptable) = &acceptable
            && acceptable.is_accepted().await
        {
            return Ok(ApprovalOutcome::without_asking());
        }
        match self.plan(&question, &binding).await? {
            Plan::Remembered(grant) => {
                let how = json!({ "grant": grant });
                Ok(ApprovalOutcome { consume: Some(GrantUse { grant, binding }), by_person: true, how })
            }
            Plan::Ask(offer) => {
                let elicitation = match peer.elicitation() {
                    _ if question.out_of_band => Elicitation::None,
                    // The protocol has no `input_required` for this method, and its retry would be another call.
                    Elicitation::InputRequired if !call.method.may_be_retried() => Elicitation::None,
                    elicitation => elicitation,
                };
                let waits = elicitation != Elicitation::InputRequired;
                let draft = |binding| question.draft(&self.ledger, self.timeout, binding, offer, acceptable);
                let opened = self.inbox.open(binding, question.bytes(), waits, draft).await;
                // Held until the answer has been used, so that an answer which arrives before this call listens for it
                // still counts for this call.
                let (pending, _waiting) = opened.map_err(inbox_refusal)?;
                self.ask(call, &pending, elicitation, peer).await
            }
        }
    }

    /// Returns what the approval plugins decide. Any refusal refuses; an earlier answer counts only if all agree on it;
    /// offers narrow each other.
    async fn plan(&self, question: &ApprovalQuestion<'_>, binding: &GrantBinding) -> Result<Plan, CallRefusal> {
        let mut grants = self.ledger.grants(binding).await.map_err(CallRefusal::from_ledger)?;
        let grave = question.call.item.hints.may_do_harm() || question.out_of_band;
        // An earlier answer does not count if its scope would not be offered now, whatever a plugin decides.
        grants.retain(|grant| all_scopes(grave).contains(&answer_scope(grant.scope)));
        let facts = AskFacts { reasons: question.concerns(), grants: grants.iter().map(facts).collect(), grave };
        let mut remembered = Vec::new();
        let mut offer = Offer { scopes: all_scopes(grave), valid_for: MAX_VALIDITY, uses: 0 };
        for plugin in &self.plugins {
            let view = CallView::before(question.call, Phase::Call).with_flow(question.flow.clone());
            let settlement = match plugin.settle(&view, facts.clone()).await {
                Ok(settlement) => settlement,
                Err(failure) => {
                    let trail = DecisionTrail::new(question.record);
                    Settlement::Refuse(judge::denial(plugin.identity(), &failure, &view, &self.ledger, &trail))
                }
            };
            match settlement {
                Settlement::Refuse(denial) => return Err(CallRefusal::by_plugin(denial)),
                Settlement::Remembered(grant) => remembered.push(grant),
                Settlement::Question(wanted) => narrow(&mut offer, &wanted),
            }
        }
        if self.plugins.is_empty() {
            // Without a plugin to decide what may be remembered, nothing is, except an answer that arrived too late for
            // its call.
            offer.scopes = vec![AnswerScope::Once];
            remembered.extend(grants.iter().find(|g| g.scope == GrantScope::Arguments).map(|g| g.id.clone()));
        }
        let agreed = remembered.first().filter(|first| {
            remembered.len() == self.plugins.len().max(1)
                && remembered.iter().all(|grant| grant == *first)
                && grants.iter().any(|grant| grant.id == **first)
        });
        Ok(agreed.cloned().map_or(Plan::Ask(offer), Plan::Remembered))
    }

    /// Checks that the `requestState` of a retry was issued by this broker, even where no question is asked any more.
    /// Returns the question's id.
    pub(super) fn check_state(&self, call: &Call) -> Result<Option<String>, CallRefusal> {
        let state = call.params.request_state().filter(|_| call.method.may_be_retried());
        let Some(state) = state else { return Ok(None) };
        let opened = self.inbox.seal.open(&state).and_then(|bytes| String::from_utf8(bytes).ok());
        let refusal = || CallRefusal::denied("request-state", "`requestState` is not one that this broker gave");
        opened.map(Some).ok_or_else(refusal)
    }

    /// Returns the approval that a retry brings (2026-07-28). `None` if it brings no answer, or none that still counts.
    async fn retried(&self, call: &Call, binding: &GrantBinding) -> Result<Option<ApprovalOutcome>, CallRefusal> {
        let Some(question) = self.check_state(call)? else { return Ok(None) };
        let Some(pending) = self.inbox.about(&question, binding) else { return Ok(None) };
        let response = call.params.input_responses().and_then(|all| all.get(INPUT));
        let Some(answer) = response.and_then(|response| read_elicitation(&response)) else { return Ok(None) };
        let state = self.inbox.answer_for_itself(&pending, &answer).await.map_err(inbox_refusal)?;
        self.decided(&pending, state).map(Some)
    }

    async fn ask(
        &self,
        call: &Call,
        pending: &Arc<OpenQuestion>,
        elicitation: Elicitation,
        peer: &Arc<dyn AgentPeer>,
    ) -> Result<ApprovalOutcome, CallRefusal> {
        let state = match elicitation {
            Elicitation::InputRequired => return Err(CallRefusal::InputRequired(self.input_required(pending))),
            Elicitation::Request => {
                let deadline = pending.expires();
                tokio::select! {
                    state = pending.wait(deadline) => state,
                    state = self.elicit(pending, peer) => match state {
                        // An answer from another terminal may be on its way to the disk.
                        None => pending.wait(Instant::now()).await,
                        answered => answered,
                    },
                }
            }
            Elicitation::None => {
                announce(call, pending, peer).await;
                pending.wait(pending.expires().min(Instant::now() + HOLD)).await
            }
        };
        self.decided(pending, state)
    }

    fn decided(&self, pending: &OpenQuestion, state: Option<QuestionState>) -> Result<ApprovalOutcome, CallRefusal> {
        match state {
            Some(QuestionState::Approved { .. }) if !pending.pass() => Err(CallRefusal::denied(
                "approval-used",
                "the approval was for one call, and an identical one has used it; send it again to be asked again",
            )),
            Some(QuestionState::Approved { scope, by, grant }) => {
                let how = json!({ "question": pending.id(), "scope": scope.as_str(), "by": by });
                let consume = grant.map(|grant| GrantUse { grant, binding: pending.terms.binding.clone() });
                Ok(ApprovalOutcome { consume, by_person: true, how })
            }
            Some(QuestionState::Expired) => Err(CallRefusal::denied("approval-expired", "nobody answered in time")),
            Some(QuestionState::Refused) => Err(CallRefusal::by_person()),
            _ if pending.expires() <= Instant::now() => {
                self.inbox.expire(pending);
                Err(CallRefusal::denied("approval-expired", "nobody answered in time"))
            }
            _ => Err(CallRefusal::Pending { question: pending.id().to_owned(), expires_in: pending.expires_in() }),
        }
    }

    /// Asks over the agent's own connection (2025-06-18 to 2025-11-25).
    async fn elicit(&self, pending: &Arc<OpenQuestion>, peer: &Arc<dyn AgentPeer>) -> Option<QuestionState> {
        let params = Json::of(&elicitation(pending));
        let answered = match peer.request(&Method::ElicitationCreate, Some(params)).await {
            Answer::Result(result) => read_elicitation(&result),
            Answer::Error(error) => {
                let (question, error) = (pending.id(), error.get_str("message").unwrap_or_default());
                tracing::info!(%question, error = %escape_hidden(&error), "the agent could not put the question");
                None
            }
        };
        if let Some(answer) = answered {
            match self.inbox.answer_for_itself(pending, &answer).await {
                Ok(state) => return state,
                Err(error) => tracing::warn!(ask = %pending.id(), %error, "an answer by elicitation was not taken"),
            }
        }
        // The form was dismissed or not shown, or the answer does not count: another terminal may still give one, and
        // the call waits for that too.
        tokio::time::sleep_until(pending.expires().min(Instant::now() + HOLD).into()).await;
        None
    }

    /// Returns the tool that a question is about, if a person may accept it for good: its source does not call it
    /// destructive or open to the world, since such a tool is accepted only by its name.
    fn acceptable(&self, question: &ApprovalQuestion<'_>) -> Option<AcceptableTool> {
        let (item, lock) = (&question.call.item, self.inbox.lock.clone()?);
        let may_be = question.lock_settles && item.kind == ItemKind::Tool && !item.hints.raise_risk();
        may_be.then(|| AcceptableTool { item: Arc::clone(item), identity: question.identity, lock })
    }

    fn input_required(&self, pending: &OpenQuestion) -> Json {
        Json::of(&json!({
            "resultType": "input_required",
            "inputRequests": { INPUT: { "method": Method::ElicitationCreate, "params": elicitation(pending) } },
            "requestState": self.inbox.seal.seal(pending.id().as_bytes()),
        }))
    }
}

enum Plan {
    Remembered(String),
    Ask(Offer),
}

fn inbox_refusal(error: InboxError) -> CallRefusal {
    match error {
        InboxError::Full(why) => CallRefusal::denied("approvals-full", why),
        InboxError::Ledger(cause) => CallRefusal::Ledger(cause),
        error => CallRefusal::denied("approval-invalid", error.to_string()),
    }
}

/// Returns the name that a grant is bound to. A tool's name is enough; for other items the method states what may be
/// done.
fn bound_name(call: &Call) -> String {
    if call.item.kind == ItemKind::Tool {
        call.item.name.to_string()
    } else {
        match call.item.is_unlisted() {
            // The caller's own words are kept as a digest.
            true => format!("{} {}", call.method, Digest::of(call.item.name.as_bytes())),
            false => format!("{} {}", call.method, call.item.name),
        }
    }
}

fn facts(grant: &ApprovalGrant) -> GrantFacts {
    let age = crate::call::now_millis().saturating_sub(grant.created_at) / 1000;
    GrantFacts { id: grant.id.clone(), scope: answer_scope(grant.scope), age: u32::try_from(age).unwrap_or(u32::MAX) }
}

/// Returns the scope of the answer that a grant remembers.
fn answer_scope(scope: GrantScope) -> AnswerScope {
    match scope {
        GrantScope::Arguments => AnswerScope::Arguments,
        GrantScope::Session => AnswerScope::Session,
        GrantScope::Principal => AnswerScope::Principal,
    }
}

/// Returns the scopes in the order of their reach. A call that may destroy something or reach an open world is never
/// approved beyond exact arguments.
fn all_scopes(grave: bool) -> Vec<AnswerScope> {
    let mut scopes = vec![AnswerScope::Once, AnswerScope::Arguments];
    if !grave {
        scopes.extend([AnswerScope::Session, AnswerScope::Principal]);
    }
    scopes
}

fn narrow(offer: &mut Offer, wanted: &Offer) {
    offer.scopes.retain(|scope| *scope == AnswerScope::Once || wanted.scopes.contains(scope));
    offer.valid_for = offer.valid_for.min(wanted.valid_for);
    offer.uses = match (offer.uses, wanted.uses) {
        (0, uses) | (uses, 0) => uses,
        (a, b) => a.min(b),
    };
}

/// Tells an agent that listens to progress what its call is waiting for.
async fn announce(call: &Call, pending: &OpenQuestion, peer: &Arc<dyn AgentPeer>) {
    let Some(token) = call.params.progress_token() else { return };
    let message = format!("waiting for a person: portcullis approvals approve {}", pending.id());
    report_progress(&**peer, &token, &message).await;
}
