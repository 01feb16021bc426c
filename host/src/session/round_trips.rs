//! Questions of a source before it answers, and how its request continues with the agent's answers (2026-07-28, "Multi
//! Round-Trip Requests"). A modern agent is asked by the result of its request and comes back; a legacy one is asked by
//! requests.

use super::ask::MAX_QUESTIONS;
use super::configured::ConfiguredSession;
use super::execution::Execution;
use super::in_flight::InFlightCall;
use super::listing::VisibleItem;
use super::pending_rounds::{AfterAnswers, AgentQuestion, PendingRound, RequestStateError};
use super::request::SessionRequest;
use crate::call::{Outcome, Params};
use crate::digest::Digest;
use crate::gate::Ticket;
use crate::protocol::{Answer, Era, Json, Method, RpcError};
use crate::source::url_elicitations_needed;

impl Execution<'_> {
    /// Returns the digest that a retry must have in common with the first request.
    pub(super) fn about(&self) -> Digest {
        self.request.about(self.target)
    }

    /// Takes the answers that a request brings to the questions of an earlier round. Returns the call, if it is still
    /// open at the source since that round. Answers to a task's questions are taken once the request has passed the gate.
    ///
    /// # Errors
    /// The answer that ends the request.
    pub(super) async fn take_answers(&mut self) -> Result<Option<InFlightCall>, Answer> {
        if self.request.method == Method::TasksUpdate {
            self.request.set_params(self.request.with_open_answers());
        }
        match self.round_to_resume()? {
            Some(round) => Box::pin(self.go_on(round)).await,
            None => Ok(None),
        }
    }

    /// Takes the answers of a `tasks/update` that has passed the gate. Returns false if the gate changed one of them: the
    /// request, which has the new ones then, must pass once more.
    ///
    /// # Errors
    /// The answer that ends the request, if one of them is withheld.
    pub(super) async fn take_task_answers(&mut self) -> Result<bool, Answer> {
        let params = self.request.with_released_answers().await?;
        self.resumed = true;
        let is_same = params.as_str() == self.request.params.as_json().as_str();
        if !is_same {
            self.request.set_params(params);
        }
        Ok(is_same)
    }

    /// Returns the round that a retry continues. `None` for a first request, and for one that answers the broker's own
    /// question, which the gate reads.
    fn round_to_resume(&self) -> Result<Option<PendingRound>, RpcError> {
        let SessionRequest { session, params, .. } = &self.request;
        let Some(handle) = params.request_state() else { return Ok(None) };
        let refused = |why: &str| {
            let item = &self.target.item;
            Err(session.record_rejection("request-state", item.kind, &item.exposed, &format!("`requestState` {why}")))
        };
        match session.agent_side.continuations.rounds.take(&handle) {
            Ok(round) if round.about == self.about() => Ok(Some(round)),
            Ok(_) => refused("belongs to another request than this"),
            Err(RequestStateError::Gone) => refused("was used or is too old; send the request without it"),
            Err(RequestStateError::Foreign) => Ok(None),
        }
    }

    /// Asks the agent for the input that a result asks for. Returns `Ok` if the agent's answers are in the request,
    /// which must then be sent again, and the answer for the agent otherwise.
    pub(super) async fn ask_for_input(&mut self, ticket: Ticket, result: Json) -> Result<Option<InFlightCall>, Answer> {
        let SessionRequest { session, params, peer, .. } = &self.request;
        let session = *session;
        let (questions, state) = match session.questions_in(&self.target.upstream, &result, peer).await {
            Ok(asked) => asked,
            Err(refusal) => {
                let _ = ticket.release(Outcome::Answered(Answer::Result(result))).await;
                return Err(refusal);
            }
        };
        let round = PendingRound { about: self.about(), questions, then: AfterAnswers::SendWithState(state) };
        let modern = session.agent_side.agent.era == Era::Modern;
        if modern && (self.resumed || !round.is_answered_by(params)) {
            return Err(session.ask_by_result(ticket, Some(result), round).await);
        }
        released(ticket, Answer::Result(result)).await?;
        if modern { self.go_on(round).await } else { self.ask_by_request(round).await }
    }

    /// Asks a modern agent to have a person open pages and to come back, if a legacy source refuses a request until
    /// then. Any other agent gets the error unchanged.
    pub(super) async fn elicit_urls(&self, error: Json) -> Answer {
        let SessionRequest { session, method, peer, .. } = &self.request;
        let agent = &session.agent_side.agent;
        let modern = agent.era == Era::Modern && agent.opens_pages() && method.may_be_retried();
        let pages = if modern { url_elicitations_needed(&error) } else { Vec::new() };
        // An agent that would not ask about so many pages gets the error unchanged.
        let few = Some(pages).filter(|pages| pages.len() <= MAX_QUESTIONS).unwrap_or_default();
        let mut questions = Vec::new();
        for (number, page) in few.into_iter().enumerate() {
            let (upstream, key) = (&self.target.upstream, format!("page-{number}"));
            match session.question(upstream, key, &Method::ElicitationCreate, Some(page), peer).await {
                Ok(question) => questions.push(question),
                Err(refusal) => return refusal,
            }
        }
        if questions.is_empty() {
            return Answer::Error(error);
        }
        session.ask_again(PendingRound { about: self.about(), questions, then: AfterAnswers::SendUnchanged(error) })
    }

    /// Puts the answers that a retry brings into the request. Each must pass the gate. Returns the call, if it is open
    /// at the source.
    async fn go_on(&mut self, round: PendingRound) -> Result<Option<InFlightCall>, Answer> {
        let session = self.request.session;
        let responses = self.request.params.input_responses().cloned().unwrap_or_else(Json::empty_object);
        let all = round.questions.iter().all(|question| responses.get(&question.key).is_some());
        if !all && !matches!(round.then, AfterAnswers::SendWithState(_)) {
            return Err(session.ask_again(round));
        }
        let response = |question: &AgentQuestion| responses.get(&question.key).unwrap_or_else(Json::null);
        match round.then {
            AfterAnswers::SendWithState(state) => {
                let mut passed = Vec::new();
                for question in round.questions {
                    let Some(response) = responses.get(&question.key) else {
                        let unanswered = "the agent left the question unanswered".into();
                        let _ = question.ticket.release(Outcome::NotSent(unanswered)).await;
                        continue;
                    };
                    passed.push((question.key, released(question.ticket, Answer::Result(response)).await?));
                }
                self.resume(state, Some(passed));
                Ok(None)
            }
            AfterAnswers::Resume(mut in_flight) => {
                for question in round.questions {
                    let response = Outcome::Answered(Answer::Result(response(&question)));
                    let answer = question.ticket.release(response).await;
                    if let Some(reply) = question.reply {
                        // A source that gave up has dropped the other side.
                        let _ = reply.send(answer);
                    }
                }
                in_flight.go_on_for(&self.request.params);
                self.resume(None, None);
                Ok(Some(in_flight))
            }
            AfterAnswers::SendUnchanged(error) => {
                for question in round.questions {
                    let response = response(&question);
                    let response = released(question.ticket, Answer::Result(response)).await?;
                    if response.get_str("action").as_deref() != Some("accept") {
                        return Err(Answer::Error(error));
                    }
                }
                self.resume(None, None);
                Ok(None)
            }
        }
    }

    /// Asks a legacy agent, and puts its answers into the request.
    async fn ask_by_request(&mut self, round: PendingRound) -> Result<Option<InFlightCall>, Answer> {
        let peer = &self.request.peer;
        let asked = round.questions.into_iter().map(async |question| {
            let answer = question.put_to_agent(peer).await;
            Ok((question.key, released(question.ticket, answer).await?))
        });
        let answered: Result<Vec<_>, Answer> = futures_util::future::join_all(asked).await.into_iter().collect();
        let state = if let AfterAnswers::SendWithState(state) = round.then { state } else { None };
        self.resume(state, Some(answered?));
        Ok(None)
    }

    /// Replaces the agent's `requestState` and `inputResponses` with the source's own state and the answers that
    /// passed.
    fn resume(&mut self, state: Option<Json>, answers: Option<Vec<(String, Json)>>) {
        let answers = answers.map(|answers| {
            let all = answers.into_iter();
            all.fold(Json::empty_object(), |object, (key, answer)| object.with(&key, &answer).unwrap_or(object))
        });
        let [state_key, answers_key] = Params::OF_RETRIES;
        let plain = self.request.params.as_json().without_all(&Params::OF_RETRIES);
        let mut edits = Vec::new();
        edits.extend(state.as_ref().map(|state| (state_key, Some(state))));
        edits.extend(answers.as_ref().map(|answers| (answers_key, Some(answers))));
        self.request.set_params(plain.edited(&edits).unwrap_or(plain));
        self.resumed = true;
    }
}

impl SessionRequest<'_> {
    /// Returns the member of a group at which an earlier round of the request began, if there was one.
    pub(super) fn begun_at<'b>(&self, members: &'b [VisibleItem]) -> Option<&'b VisibleItem> {
        let begun = self.session.agent_side.continuations.rounds.about(&self.params.request_state()?)?;
        members.iter().find(|member| self.about(member) == begun)
    }
}

/// Takes an answer through the gate, and returns the part that the other side may have.
pub(super) async fn released(ticket: Ticket, answer: Answer) -> Result<Json, Answer> {
    match ticket.release(Outcome::Answered(answer)).await {
        Answer::Result(result) => Ok(result),
        error @ Answer::Error(_) => Err(error),
    }
}

impl ConfiguredSession {
    /// Asks a modern agent by the result of its request.
    pub(super) async fn ask_by_result(&self, ticket: Ticket, result: Option<Json>, round: PendingRound) -> Answer {
        let result = result.unwrap_or_else(|| Json::of(&serde_json::json!({ "resultType": "input_required" })));
        let asked = round.asked();
        match released(ticket, Answer::Result(result)).await {
            Ok(result) => self.handed_out(result, asked, round),
            Err(error) => error,
        }
    }

    /// Asks by a result that holds only the questions, for example again if not all were answered.
    fn ask_again(&self, round: PendingRound) -> Answer {
        let asked = round.asked();
        self.handed_out(Json::of(&serde_json::json!({ "resultType": "input_required" })), asked, round)
    }

    fn handed_out(&self, result: Json, asked: Option<Json>, round: PendingRound) -> Answer {
        let handle = match self.agent_side.continuations.rounds.keep(&self.caller.session, round) {
            Ok(handle) => handle,
            Err(why) => return Answer::from(RpcError::new(RpcError::INTERNAL, why.to_string())),
        };
        let handle = Json::of(&handle);
        let edits = [("inputRequests", asked.as_ref()), ("requestState", Some(&handle))];
        Answer::Result(result.edited(&edits).unwrap_or(result))
    }
}
