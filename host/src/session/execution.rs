//! Executes one request at one target: through the gate, to the source, and back through the gate. If the source asks
//! for input, the request is repeated with the agent's answers.

use std::ops::ControlFlow;

use super::expose;
use super::in_flight::{DriveEnd, InFlightCall};
use super::listing::VisibleItem;
use super::pending_rounds::{AfterAnswers, PendingRound};
use super::request::SessionRequest;
use crate::call::{GroupAttempt, Outcome};
use crate::gate::{AdmittedCall, Permit, Ticket, asks_for_input};
use crate::protocol::{Answer, Json, Method, RpcError};

/// The largest number of times that a source may ask for input in one request. A source that asks more often would ask
/// for ever.
const MAX_ROUNDS: usize = 16;

/// A request at a target, and the state that it has reached.
pub(super) struct Execution<'a> {
    pub(super) request: SessionRequest<'a>,
    pub(super) target: &'a VisibleItem,
    attempt: Option<GroupAttempt>,
    /// True if the request passed the gate before, and comes with answers to the source's questions.
    pub(super) resumed: bool,
}

/// The result of an attempt.
pub(super) struct AttemptResult {
    pub(super) answer: Answer,
    pub(super) status: AttemptStatus,
}

/// The status of an attempt: answered, not sent, or unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptStatus {
    /// It was answered, by the source or, because it was refused, by the broker.
    Answered,
    /// The request was certainly not sent.
    NotSent,
    /// It may or may not have reached the source.
    Unknown,
}

impl AttemptResult {
    /// Makes the result of a request that ends with this answer.
    pub(super) fn answered(answer: Answer) -> Self {
        Self { answer, status: AttemptStatus::Answered }
    }
}

impl AttemptStatus {
    fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Answered(_) => Self::Answered,
            Outcome::NotSent(_) => Self::NotSent,
            Outcome::Unknown(_) => Self::Unknown,
        }
    }
}

impl<'a> Execution<'a> {
    /// Makes an execution. `attempt` is the number of the attempt, if the tool is one of a group.
    pub(super) fn new(request: SessionRequest<'a>, target: &'a VisibleItem, attempt: Option<GroupAttempt>) -> Self {
        Self { request, target, attempt, resumed: false }
    }

    /// Sends the request, in as many rounds as the source asks for input, until there is an answer for the agent.
    pub(super) async fn attempt(mut self) -> Result<AttemptResult, RpcError> {
        self.request.check(self.target)?;
        let mut open = match self.take_answers().await {
            Ok(open) => open,
            Err(answer) => return Ok(AttemptResult::answered(answer)),
        };
        for _ in 0..MAX_ROUNDS {
            match self.round(open).await {
                ControlFlow::Continue(still_open) => open = still_open,
                ControlFlow::Break(attempted) => return Ok(attempted),
            }
        }
        let text = format!("the source asked for input {MAX_ROUNDS} times in one request; it may ask no more");
        Err(RpcError::new(RpcError::INTERNAL, text))
    }

    /// Takes the request through the gate, to the source and back. Continues if the source asked and the agent's
    /// answers are in the request now. `open` is the call, if the source has it already.
    async fn round(&mut self, open: Option<InFlightCall>) -> ControlFlow<AttemptResult, Option<InFlightCall>> {
        let admitted = self.request.admit(self.target, self.attempt, self.resumed).await;
        let AdmittedCall { permit, ticket } = match admitted {
            Ok(admitted) => admitted,
            Err(refusal) => return ControlFlow::Break(AttemptResult::answered(refusal)),
        };
        // Not before: the questions are still open if a person has to agree to the request first.
        if self.request.method == Method::TasksUpdate && !self.resumed {
            let next = match Box::pin(self.take_task_answers()).await {
                Ok(true) => None,
                Ok(false) => Some(ControlFlow::Continue(None)),
                Err(withheld) => Some(ControlFlow::Break(AttemptResult::answered(withheld))),
            };
            if let Some(next) = next {
                let cause = "the gate changed or withheld an answer that the request brought";
                let _ = Box::pin(ticket.release(Outcome::NotSent(cause.into()))).await;
                return next;
            }
        }
        let (session, peer, upstream) = (self.request.session, &self.request.peer, &self.target.upstream);
        // A source that already has the call gets only the answers.
        let mut in_flight = open.unwrap_or_else(|| self.start(permit));
        let outcome = loop {
            let (token, name) = (self.request.params.progress_token(), &upstream.config.name);
            let driven = session.drive(&mut in_flight, peer);
            match session.report_installations_during(token, &**peer, |source| source == name, driven).await {
                // Before the gate, so that result policies and the record see the additions.
                DriveEnd::Ended(outcome) => break in_flight.explained(outcome),
                DriveEnd::Asked(asked) => {
                    let questions = Box::pin(session.questions(upstream, asked, peer)).await;
                    // If all were refused, the source has been told, and continues.
                    if !questions.is_empty() {
                        let round =
                            PendingRound { about: self.about(), questions, then: AfterAnswers::Resume(in_flight) };
                        let answer = Box::pin(session.ask_by_result(ticket, None, round)).await;
                        return ControlFlow::Break(AttemptResult::answered(answer));
                    }
                }
            }
        };
        match outcome {
            Outcome::Answered(Answer::Result(result)) if asks_for_input(&result) => {
                match Box::pin(self.ask_for_input(ticket, result)).await {
                    Ok(open) => ControlFlow::Continue(open),
                    Err(answer) => ControlFlow::Break(AttemptResult::answered(answer)),
                }
            }
            outcome => ControlFlow::Break(self.conclude(ticket, outcome).await),
        }
    }

    fn start(&self, permit: Permit) -> InFlightCall {
        let (session, token) = (self.request.session, self.request.params.progress_token());
        let telemetry = session.context.telemetry.as_ref();
        InFlightCall::start(&self.target.upstream, permit, session.client(), token, telemetry)
    }

    /// Takes an outcome that ends the request back through the gate.
    async fn conclude(&self, ticket: Ticket, outcome: Outcome) -> AttemptResult {
        let method = &self.request.method;
        let (status, call) = (AttemptStatus::of(&outcome), ticket.call_id().clone());
        let traced = ticket.traced();
        let answer = match ticket.release(outcome).await {
            Answer::Error(error) => Box::pin(self.elicit_urls(error)).await,
            Answer::Result(result) => match self.with_tasks(result, traced.as_deref()).await {
                Ok(result) => Answer::Result(self.scoped(result)),
                Err(refusal) => refusal,
            },
        };
        let answer = expose::answer(method, &self.target.upstream.config, answer);
        AttemptResult { answer: self.request.session.converted(method, &call, self.target, answer), status }
    }

    /// Marks a result that the source calls public as private, unless every caller of this broker gets the same.
    fn scoped(&self, result: Json) -> Json {
        let SessionRequest { session, method, .. } = &self.request;
        let public = *method == Method::ResourcesRead && result.get_str("cacheScope").as_deref() == Some("public");
        if !public || session.context.serves_all_alike() {
            return result;
        }
        result.with("cacheScope", &Json::of(&"private")).unwrap_or(result)
    }
}

impl SessionRequest<'_> {
    /// Refuses a request that must not reach the gate: one with invalid arguments, or of a session that has ended.
    pub(super) fn check(&self, target: &VisibleItem) -> Result<(), RpcError> {
        let (kind, name) = (target.item.kind, &target.item.exposed);
        let record_rejection = |code, text| Err(self.session.record_rejection(code, kind, name, text));
        if !self.params.arguments().is_object() {
            let text = if self.method.has_arguments() {
                "`params.arguments` must be an object"
            } else {
                "`params` must be an object or a list"
            };
            return record_rejection("invalid-params", text);
        }
        if self.session.agent_side.ended() {
            return record_rejection("session-ended", "this session has ended");
        }
        Ok(())
    }
}
