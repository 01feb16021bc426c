//! Releases answers: a source's answer passes the gate before the agent gets it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use super::approval::INPUT;
use super::judge::DecisionTrail;
use super::outcome::{JudgedCall, JudgedOutcome};
use super::records::{recorded_payload, recorded_text};
use super::revealed::revealed;
use super::{Budget, CallRefusal, Gate, GateInput, SessionVault};
use crate::call::{Call, CallId, CallProgress, Cause, Delivery, Outcome};
use crate::config::Detail;
use crate::ledger::{Event, EventBody, EventKind, LedgerError, OutcomeSlot, PendingIntent};
use crate::metrics::{Ending, Series};
use crate::protocol::{Answer, AskingMembers, Json, Method, RpcError};
use crate::provenance::{SessionFlow, SourceFlow, TracedCall};

/// The obligation to record the outcome of an admitted call. If it is dropped without [`Ticket::release`], it records
/// that the outcome is unknown, or that the call was not sent.
#[derive(Debug)]
#[must_use = "a call that was admitted must be released"]
pub struct Ticket {
    /// The gate that admitted the call. It judges the outcome too, even if the configuration has changed meanwhile.
    gate: Arc<Gate>,
    call: Arc<Call>,
    series: Arc<Series>,
    record: Detail,
    vault: Arc<SessionVault>,
    /// The information flow of the call, if a plugin can ask for it.
    flow: Option<Arc<TracedCall>>,
    /// The reserved slot for the outcome. `None` once it is recorded, or where there is no intent.
    slot: Option<OutcomeSlot>,
    /// The call as its source gets it, if placeholders stand for values in its arguments.
    revealed: Option<Arc<Call>>,
    /// True if the source asks the agent, so that the answer goes to the source.
    to_agent: bool,
    started: Instant,
    /// The budget that is charged when the call has ended.
    budget: Option<Arc<Budget>>,
    /// The time at which the call could first reach the source.
    opened: Instant,
    progress: Arc<CallProgress>,
}

/// The facts of a call that passed the gate, which count until its outcome is recorded.
pub(super) struct PassedFacts {
    pub(super) slot: OutcomeSlot,
    pub(super) flow: Option<Arc<TracedCall>>,
    pub(super) revealed: Option<Arc<Call>>,
}

impl Ticket {
    pub(super) fn new(
        gate: &Arc<Gate>,
        call: Arc<Call>,
        series: Arc<Series>,
        input: &GateInput<'_>,
        PassedFacts { slot, flow, revealed }: PassedFacts,
    ) -> Self {
        let gate = Arc::clone(gate);
        let (record, vault, budget) = (input.record, Arc::clone(input.vault), input.budget.cloned());
        let started = Instant::now();
        let (slot, progress) = (Some(slot), CallProgress::new());
        let to_agent = input.to_agent;
        Self {
            gate,
            call,
            series,
            record,
            vault,
            flow,
            slot,
            revealed,
            to_agent,
            started,
            opened: started,
            budget,
            progress,
        }
    }

    /// Returns the identifier of the call.
    pub(crate) fn call_id(&self) -> &CallId {
        &self.call.id
    }

    /// Returns the call with its information flow, if a plugin can ask for it.
    pub(crate) fn traced(&self) -> Option<Arc<TracedCall>> {
        self.flow.clone()
    }

    /// Returns the progress of the call, for its permit.
    pub(super) fn progress(&self) -> Arc<CallProgress> {
        Arc::clone(&self.progress)
    }

    /// Returns the ticket of a question whose answer travels in a separate request: that request restores placeholders.
    pub(crate) fn keeping_placeholders(mut self) -> Self {
        self.to_agent = false;
        self
    }

    /// Charges the budget for the call, once.
    fn pay(&mut self, bytes: usize) {
        if let Some(budget) = self.budget.take() {
            let time = if self.call.method.is_work() { self.opened.elapsed() } else { Duration::ZERO };
            budget.spend(bytes, time);
        }
    }

    /// Waits until the intent is durable, if the call waits for that, and marks that a source may be called from then on.
    ///
    /// Cancellation: the outcome is recorded as `not-sent`.
    pub(super) async fn opened_by(mut self, intent: Option<PendingIntent>) -> Result<Self, LedgerError> {
        if let Some(intent) = intent
            && let Err(error) = intent.durable().await
        {
            // A call that has no intent has no outcome.
            self.slot = None;
            return Err(error);
        }
        self.progress.set_open();
        self.opened = Instant::now();
        Ok(self)
    }

    /// Keeps a source's question as something that the session has seen. The agent's answer goes to the source and is
    /// not kept.
    pub(crate) fn keep_question(&mut self) {
        if let Some(flow) = self.flow.take() {
            flow.keep_question(&self.call.arguments);
        }
    }

    /// Counts the call and records its outcome. The record is not awaited: a second wait for the disk would double what
    /// durability costs a call. A crash in the moments between makes an answered call read `unknown`, which never
    /// claims less than what happened.
    fn record_outcome(&mut self, ending: Ending, took: Duration, body: EventBody) {
        if let Some(slot) = self.slot.take() {
            self.series.ended(ending, took);
            slot.record(self.event(ending.as_str(), body));
        }
    }

    fn event(&self, outcome: &str, body: EventBody) -> Event {
        let micros = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let body = body
            .with("source", self.call.source().as_str())
            .with(self.call.item.kind.as_str(), &*self.call.item.recorded_exposed())
            .with("outcome", outcome)
            .with("micros", micros);
        Event {
            kind: EventKind::ToolCompleted,
            run: Some(self.call.caller.session.clone()),
            call: Some(self.call.id.clone()),
            body,
        }
    }
}

impl Ticket {
    /// Takes the outcome of an admitted call back to the agent: policies and transforms of the `result` phase, then the
    /// ledger. A result that cannot be recorded is still given: the call has happened, and its intent is on disk; an
    /// intent without an outcome reads `unknown`.
    ///
    /// Cancellation: the outcome is recorded as unknown.
    pub async fn release(mut self, outcome: Outcome) -> Answer {
        self.pay(match &outcome {
            Outcome::Answered(Answer::Result(json) | Answer::Error(json)) => json.as_bytes().len(),
            Outcome::Unknown(_) | Outcome::NotSent(_) => 0,
        });
        let took = self.opened.elapsed();
        let gate = &self.gate;
        let (answer, ending, body) = match outcome {
            Outcome::Answered(answer) => gate.judge_result(&self, answer).await,
            Outcome::Unknown(cause) => gate.judge_failure(&self, &cause, Ending::Unknown, "outcome-unknown").await,
            Outcome::NotSent(cause) => gate.judge_failure(&self, &cause, Ending::NotSent, "not-sent").await,
        };
        // Before the agent has it, so that no later call can come without it.
        if let (Some(flow), Answer::Result(given) | Answer::Error(given)) = (&self.flow, &answer) {
            flow.keep_result(given);
        }
        self.record_outcome(ending, took, body);
        answer
    }

    /// Records the delivery of an admitted notification, which has no answer that could be judged.
    pub(crate) fn sent(mut self, delivery: &Delivery) {
        let (ending, cause) = match delivery {
            Delivery::Sent => (Ending::Sent, None),
            Delivery::Unknown(cause) => (Ending::Unknown, Some(cause)),
            Delivery::NotSent(cause) => (Ending::NotSent, Some(cause)),
        };
        let body = EventBody::new();
        let body = match cause {
            Some(cause) => body.with("error", cause.recorded()),
            None => body,
        };
        self.record_outcome(ending, self.opened.elapsed(), body);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.pay(0);
        if self.slot.is_none() {
            return;
        }
        let (ending, error) = if self.progress.is_unsent() {
            (Ending::NotSent, "the caller went away before the call was sent")
        } else {
            (Ending::Unknown, "the caller went away before the source answered")
        };
        self.record_outcome(ending, self.opened.elapsed(), EventBody::new().with("error", error));
    }
}

impl Gate {
    /// Takes the `params` of a source's notification through the gate: to the agent they are data as much as an answer
    /// is. `call` is the call that they belong to. Returns `None` if they are withheld. Nothing of them is recorded, as
    /// a source may send many.
    pub(crate) async fn filter_notification(
        &self,
        call: &Arc<Call>,
        vault: &Arc<SessionVault>,
        session: &Arc<SessionFlow>,
        source: Option<SourceFlow>,
        params: Json,
    ) -> Option<Json> {
        if !self.reads_flow {
            session.miss();
        }
        let revealed = revealed(call, vault).ok()?;
        let flow = source.filter(|_| self.reads_flow).map(|source| TracedCall::new(session, source, call));
        let flow = match &revealed {
            Some(revealed) => flow.map(|flow| flow.with_values(&revealed.arguments)),
            None => flow,
        };
        let given = if self.inspects_results() {
            let (answer, trail) = (Answer::Result(params.clone()), &mut DecisionTrail::unrecorded(&self.failures));
            let judged = JudgedCall { call, revealed: revealed.as_ref(), vault, flow: &flow };
            match self.pass_result(&judged, &answer, trail).await {
                JudgedOutcome { refusal: None, replaced, .. } => replaced.unwrap_or(params),
                JudgedOutcome { refusal: Some(refusal), .. } => {
                    tracing::debug!(source = %call.source(), method = %call.method, ?refusal, "what a source said is withheld");
                    return None;
                }
            }
        } else {
            params
        };
        if let Some(flow) = flow {
            flow.keep_message(&given);
        }
        Some(given)
    }

    /// Judges a call that has no answer. The text for the agent may repeat the source's words, so it passes the gate
    /// like an answer; the ledger keeps only the broker's own words.
    async fn judge_failure(
        &self,
        ticket: &Ticket,
        cause: &Cause,
        ending: Ending,
        code: &str,
    ) -> (Answer, Ending, EventBody) {
        let (answer, _, body) = self.judge_result(ticket, source_error(cause, code)).await;
        (answer, ending, body.with("error", cause.recorded()))
    }

    async fn judge_result(&self, ticket: &Ticket, answer: Answer) -> (Answer, Ending, EventBody) {
        let received = match &answer {
            Answer::Result(json) | Answer::Error(json) => json.clone(),
        };
        self.prepare_records(ticket.record).await;
        let mut trail = DecisionTrail::new(ticket.record);
        let (objection, failed) = match &answer {
            Answer::Result(result) => objection(&ticket.call.method, result),
            Answer::Error(_) => (None, false),
        };
        let (revealed, vault, flow) = (ticket.revealed.as_ref(), &ticket.vault, &ticket.flow);
        let judged = JudgedCall { call: &ticket.call, revealed, vault, flow };
        let JudgedOutcome { replaced, mut refusal, may_quote_hidden } = match objection {
            Some((code, why)) => {
                let refusal = Some(CallRefusal::denied(code, why));
                JudgedOutcome { replaced: None, refusal, may_quote_hidden: false }
            }
            None => self.pass_result(&judged, &answer, &mut trail).await,
        };
        let mut restored = None;
        if ticket.to_agent && refusal.is_none() {
            match self.restore_answer(&judged, &answer, replaced.as_ref().unwrap_or(&received), &mut trail).await {
                Ok(values) => restored = values,
                Err(doubts) => refusal = Some(doubts),
            }
        }
        let mut body = EventBody::new()
            .with("result", recorded_payload(&self.ledger, &received, ticket.record))
            .with("verdicts", trail.entries);
        let ending = match &answer {
            Answer::Error(_) => Ending::Error,
            Answer::Result(_) if failed => Ending::ToolError,
            Answer::Result(_) => Ending::Ok,
        };
        if let Some(replaced) = &replaced {
            body.set("replaced", recorded_payload(&self.ledger, replaced, ticket.record));
        }
        match refusal {
            None => {
                let answer = match (restored.or(replaced), answer) {
                    (None, answer) => answer,
                    (Some(given), Answer::Result(_)) => Answer::Result(given),
                    (Some(given), Answer::Error(_)) => Answer::Error(given),
                };
                (answer, ending, body)
            }
            Some(refusal) => {
                // The outcome says otherwise only that it was withheld.
                if matches!(answer, Answer::Error(_)) {
                    body.set("failed", true);
                }
                if let CallRefusal::Denied { code, message, kind } = &refusal {
                    let message = recorded_text(&self.ledger, message, kind.wording(), ticket.record);
                    body.set("withheld", EventBody::new().with("code", code).with("message", message));
                }
                let refusal = if may_quote_hidden { refusal.without_quotes() } else { refusal };
                (refusal.to_answer(), Ending::Withheld, body)
            }
        }
    }
}

/// Reports whether a result asks for input: its `resultType` is `input_required` (2026-07-28).
pub(crate) fn asks_for_input(result: &Json) -> bool {
    AskingMembers::of(result, |_, _| {}).wants_retry()
}

/// Returns the code and the reason with which a result is withheld because of its questions, and whether it reports
/// that the tool failed. A result may be large, so its members are read once.
fn objection(method: &Method, result: &Json) -> (Option<(&'static str, &'static str)>, bool) {
    let mut failed = false;
    let members = AskingMembers::of(result, |name, text| failed |= name == "isError" && text == "true");
    if members.is_unreadable() {
        let why = "the result has a key that holds half of a surrogate pair, so that nobody can tell what it asks for";
        return (Some(("unreadable-result", why)), failed);
    }
    // A task states its questions when its state is read.
    let may_ask = match method {
        Method::TasksGet => members.is_clear(),
        method => method.may_be_retried() && members.wants_retry(),
    };
    // The broker itself asks under this name.
    let forged = || result.get("inputRequests").is_some_and(|requests| requests.get(INPUT).is_some());
    let withheld = members.asks() && (!may_ask || forged());
    let why = "the source asks for input where the protocol lets it ask for none";
    (withheld.then_some(("source-asked", why)), failed)
}

fn source_error(cause: &Cause, code: &str) -> Answer {
    Answer::from(RpcError::new(RpcError::INTERNAL, cause.to_string()).with_data(json!({ "code": code })))
}
