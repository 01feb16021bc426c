//! The way of one request: target, gate, source, gate; and again with the agent's answers, where the source asks for some.

use std::sync::Arc;

use super::in_flight::{InFlightCall, Pause};
use super::listing::VisibleItem;
use super::rounds::{Lost, Round, Then};
use super::{Session, expose};
use crate::agent::AgentPeer;
use crate::call::{Attempt, Call, Caller, Outcome, arguments_of};
use crate::digest::Digest;
use crate::gate::{Circumstances, Permit, Ticket, asks_for_input};
use crate::protocol::{Answer, Era, Json, Method, RpcError};
use crate::source::pages_needed;

/// How often one request may be sent again with answers. More is a source that goes round in circles.
const MAX_ROUNDS: usize = 16;

/// What a retry carries beside the request that it repeats.
const RETRY: [&str; 2] = ["requestState", "inputResponses"];

impl Session {
    pub(super) async fn call(
        &self,
        method: &Method,
        params: Json,
        contact: &Arc<dyn AgentPeer>,
    ) -> Result<Answer, RpcError> {
        let target = self.target(method, &params).await?;
        match &target.group {
            Some(group) => self.call_group(method, params, group, contact).await,
            None => self.execute(method, params, &target, contact).await,
        }
    }

    /// The rest of the way, for a request whose target is known.
    pub(super) async fn execute(
        &self,
        method: &Method,
        params: Json,
        target: &VisibleItem,
        contact: &Arc<dyn AgentPeer>,
    ) -> Result<Answer, RpcError> {
        Ok(self.attempt(method, params, target, None, contact).await?.0)
    }

    /// The same, and whether the source had the call.
    pub(super) async fn attempt(
        &self,
        method: &Method,
        params: Json,
        target: &VisibleItem,
        attempt: Option<Attempt>,
        contact: &Arc<dyn AgentPeer>,
    ) -> Result<(Answer, Fate), RpcError> {
        let arguments = arguments_of(method, &params);
        let (kind, name) = (target.item.kind, &target.item.exposed);
        if !arguments.as_bytes().starts_with(b"{") {
            return Err(self.turned_away("invalid-params", kind, name, "`params.arguments` must be an object"));
        }
        if self.ended() {
            return Err(self.turned_away("session-ended", kind, name, "this session has ended"));
        }
        let params = match method {
            Method::TasksUpdate => match self.with_task_answers(params).await {
                Ok(params) => params,
                Err(refusal) => return Ok((refusal, Fate::Answered)),
            },
            _ => params,
        };
        let mut request = Request { method, params, target, attempt, open: None, resumed: false };
        if let Some(round) = self.resumed(&request)?
            && let Err(answer) = self.go_on(&mut request, round).await
        {
            return Ok((answer, Fate::Answered));
        }
        for _ in 0..MAX_ROUNDS {
            let call = request.as_call(&self.caller);
            let (permit, ticket) = match self.admit(call, target, request.resumed, contact).await {
                Ok(admitted) => admitted,
                Err(refusal) => return Ok((refusal, Fate::Answered)),
            };
            let mut in_flight = match request.open.take() {
                // The source has the call; what is new to it are the answers.
                Some(in_flight) => in_flight,
                None => {
                    let token = request.params.get("_meta").and_then(|meta| meta.get("progressToken"));
                    let telemetry = self.context.telemetry.as_ref();
                    InFlightCall::start(&target.upstream, permit, self.client(), token, telemetry)
                }
            };
            let outcome = loop {
                match self.drive(&mut in_flight, contact).await {
                    Pause::Ended(outcome) => break outcome,
                    Pause::Asked(asked) => {
                        let questions = self.questions(&target.upstream, asked, contact).await;
                        // Where all were refused the source knows, and goes on.
                        if !questions.is_empty() {
                            let round = Round { about: request.about(), questions, then: Then::Open(in_flight) };
                            return Ok((self.ask_by_result(ticket, None, round).await, Fate::Answered));
                        }
                    }
                }
            };
            let asks = matches!(&outcome, Outcome::Answered(answer) if asks_for_input(answer));
            let result = match (asks, outcome) {
                (true, Outcome::Answered(Answer::Result(result))) => result,
                (_, outcome) => {
                    let fate = Fate::of(&outcome);
                    return Ok((
                        self.conclude(method, target, &request.params, (ticket, outcome), contact).await,
                        fate,
                    ));
                }
            };
            let (questions, state) = match self.questions_in(&target.upstream, &result, contact).await {
                Ok(asked) => asked,
                Err(refusal) => {
                    let _ = self.context.gate.release(ticket, Outcome::Answered(Answer::Result(result))).await;
                    return Ok((refusal, Fate::Answered));
                }
            };
            let round = Round { about: request.about(), questions, then: Then::Again(state) };
            let modern = self.agent.era == Era::Modern;
            if modern && (request.resumed || !round.is_answered_by(&request.params)) {
                return Ok((self.ask_by_result(ticket, Some(result), round).await, Fate::Answered));
            }
            let answer = self.context.gate.release(ticket, Outcome::Answered(Answer::Result(result))).await;
            if let Answer::Error(_) = answer {
                return Ok((answer, Fate::Answered));
            }
            let went_on = match modern {
                true => self.go_on(&mut request, round).await,
                false => self.ask_by_request(&mut request, round, contact).await,
            };
            if let Err(refusal) = went_on {
                return Ok((refusal, Fate::Answered));
            }
        }
        let text = format!("the source asked {MAX_ROUNDS} times for more; it goes round in circles");
        Err(RpcError::new(RpcError::INTERNAL, text))
    }

    /// The way back of an answer that ends the request.
    async fn conclude(
        &self,
        method: &Method,
        target: &VisibleItem,
        params: &Json,
        (ticket, outcome): (Ticket, Outcome),
        contact: &Arc<dyn AgentPeer>,
    ) -> Answer {
        let upstream = &target.upstream;
        let answer = match self.context.gate.release(ticket, outcome).await {
            Answer::Error(error) => self.ask_for_pages(method, target, params, error, contact).await,
            Answer::Result(result) => match self.with_tasks(method, upstream, result, contact).await {
                Ok(result) => Answer::Result(self.scoped(method, result)),
                Err(refusal) => refusal,
            },
        };
        expose::answer(method, &upstream.config, answer)
    }

    /// What may be shared with everybody, only if everybody gets the same here.
    fn scoped(&self, method: &Method, result: Json) -> Json {
        let public = method == Method::ResourcesRead && result.get_str("cacheScope").as_deref() == Some("public");
        if !public || self.context.serves_all_alike() {
            return result;
        }
        result.with("cacheScope", &Json::of(&"private")).unwrap_or(result)
    }

    /// Where a legacy source refuses a request until a person has opened pages, a modern agent is asked to do that and to come
    /// back; other agents get the error as it is.
    async fn ask_for_pages(
        &self,
        method: &Method,
        target: &VisibleItem,
        params: &Json,
        error: Json,
        contact: &Arc<dyn AgentPeer>,
    ) -> Answer {
        let modern = self.agent.era == Era::Modern && self.agent.opens_pages() && method.may_be_retried();
        let mut questions = Vec::new();
        for (number, page) in pages_needed(&error).into_iter().enumerate().filter(|_| modern) {
            let key = format!("page-{number}");
            match self.question(&target.upstream, key, &Method::ElicitationCreate, Some(page), contact).await {
                Ok(question) => questions.push(question),
                Err(refusal) => return refusal,
            }
        }
        if questions.is_empty() {
            return Answer::Error(error);
        }
        self.ask_again(Round { about: about(method, target, params), questions, then: Then::Afresh(error) })
    }

    pub(super) async fn admit(
        &self,
        call: Call,
        target: &VisibleItem,
        resumed: bool,
        contact: &Arc<dyn AgentPeer>,
    ) -> Result<(Permit, Ticket), Answer> {
        let around = Circumstances {
            budget: self.context.budget(&self.caller.profile),
            vault: &self.continuations.vault,
            approve: self.profile.approve,
            record: self.profile.record,
            acceptance: &target.acceptance,
            identity: target.upstream.identity,
            traffic: &target.upstream.traffic,
            contact,
            resumed,
        };
        self.context.gate.admit(call, &around).await.map_err(|refusal| refusal.to_answer())
    }

    /// At which member of a group a request was begun that the agent comes back to.
    pub(super) fn begun_at<'a>(
        &self,
        method: &Method,
        params: &Json,
        members: &'a [VisibleItem],
    ) -> Option<&'a VisibleItem> {
        let begun = self.continuations.rounds.about(&params.get_str("requestState")?)?;
        members.iter().find(|member| about(method, member, params) == begun)
    }

    /// The round that a retry goes on with. None for a first request, and for one that answers the broker's own question,
    /// which the gate reads.
    fn resumed(&self, request: &Request<'_>) -> Result<Option<Round>, RpcError> {
        let Some(handle) = request.params.get_str("requestState") else { return Ok(None) };
        let refused = |why: &str| {
            let item = &request.target.item;
            Err(self.turned_away("request-state", item.kind, &item.exposed, &format!("`requestState` {why}")))
        };
        match self.continuations.rounds.take(&handle) {
            Ok(round) if round.about == request.about() => Ok(Some(round)),
            Ok(_) => refused("belongs to another request than this"),
            Err(Lost::Gone) => refused("was used or is too old; send the request without it"),
            Err(Lost::Foreign) => Ok(None),
        }
    }

    /// Takes the answers that a retry brings along into the request. Each has to pass the gate.
    async fn go_on(&self, request: &mut Request<'_>, round: Round) -> Result<(), Answer> {
        let responses = request.params.get("inputResponses").unwrap_or_else(Json::empty_object);
        let all = round.questions.iter().all(|question| responses.get(&question.key).is_some());
        if !all && !matches!(round.then, Then::Again(_)) {
            return Err(self.ask_again(round));
        }
        if let Then::Afresh(error) = round.then {
            for question in round.questions {
                let response = responses.get(&question.key).unwrap_or_else(Json::null);
                let response = self.released(question.ticket, Answer::Result(response)).await?;
                if response.get_str("action").as_deref() != Some("accept") {
                    return Err(Answer::Error(error));
                }
            }
            return request.with_answers(None, None, None);
        }
        if let Then::Open(in_flight) = round.then {
            for question in round.questions {
                let response = responses.get(&question.key).unwrap_or_else(Json::null);
                let answer =
                    self.context.gate.release(question.ticket, Outcome::Answered(Answer::Result(response))).await;
                if let Some(reply) = question.reply {
                    // A source that gave up has dropped the other side.
                    let _ = reply.send(answer);
                }
            }
            return request.with_answers(None, None, Some(in_flight));
        }
        let mut passed = Vec::new();
        for question in round.questions {
            let Some(response) = responses.get(&question.key) else { continue };
            passed.push((question.key, self.released(question.ticket, Answer::Result(response)).await?));
        }
        let state = if let Then::Again(state) = round.then { state } else { None };
        request.with_answers(state, Some(passed), None)
    }

    /// Asks a legacy agent, and takes its answers into the request.
    async fn ask_by_request(
        &self,
        request: &mut Request<'_>,
        round: Round,
        contact: &Arc<dyn AgentPeer>,
    ) -> Result<(), Answer> {
        let asked = round.questions.into_iter().map(async |question| {
            let answer = question.put(contact).await;
            Ok((question.key, self.released(question.ticket, answer).await?))
        });
        let answered: Result<Vec<_>, Answer> = futures_util::future::join_all(asked).await.into_iter().collect();
        let state = if let Then::Again(state) = round.then { state } else { None };
        request.with_answers(state, Some(answered?), None)
    }

    /// What the agent answered, as far as the source may have it.
    pub(super) async fn released(&self, ticket: Ticket, answer: Answer) -> Result<Json, Answer> {
        match self.context.gate.release(ticket, Outcome::Answered(answer)).await {
            Answer::Result(result) => Ok(result),
            error @ Answer::Error(_) => Err(error),
        }
    }

    /// Asks a modern agent by the result of its request.
    async fn ask_by_result(&self, ticket: Ticket, result: Option<Json>, round: Round) -> Answer {
        let result = result.unwrap_or_else(|| Json::of(&serde_json::json!({ "resultType": "input_required" })));
        let asked = round.asked();
        match self.context.gate.release(ticket, Outcome::Answered(Answer::Result(result))).await {
            Answer::Result(result) => self.handed_out(result, asked, round),
            error @ Answer::Error(_) => error,
        }
    }

    /// By a result that says nothing else, as where not all was answered.
    fn ask_again(&self, round: Round) -> Answer {
        let asked = round.asked();
        self.handed_out(Json::of(&serde_json::json!({ "resultType": "input_required" })), asked, round)
    }

    fn handed_out(&self, result: Json, asked: Option<Json>, round: Round) -> Answer {
        let Some(handle) = self.continuations.rounds.keep(&self.caller.session, round) else {
            let why = "too many requests of this session wait for the agent to come back already";
            return Answer::Error(Json::of(&RpcError::new(RpcError::INTERNAL, why)));
        };
        let handle = Json::of(&handle);
        let edits = [("inputRequests", asked.as_ref()), ("requestState", Some(&handle))];
        Answer::Result(result.edited(&edits).unwrap_or(result))
    }
}

/// What became of a call at its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It was answered, by the source or, because it was refused, by the broker.
    Answered,
    /// It surely did not get there.
    NotSent,
    /// Nobody knows.
    Unknown,
}

impl Fate {
    fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Answered(_) => Self::Answered,
            Outcome::NotSent(_) => Self::NotSent,
            Outcome::Unknown(_) => Self::Unknown,
        }
    }
}

/// A request on its way, and what it has become meanwhile.
struct Request<'a> {
    method: &'a Method,
    params: Json,
    target: &'a VisibleItem,
    attempt: Option<Attempt>,
    /// The call, if the source has it already.
    open: Option<InFlightCall>,
    /// It was let through before, and comes with answers to what the source asked.
    resumed: bool,
}

impl Request<'_> {
    fn about(&self) -> Digest {
        about(self.method, self.target, &self.params)
    }

    fn as_call(&self, caller: &Arc<Caller>) -> Call {
        let call = Call::new(self.method, self.params.clone(), caller, self.target.item.clone(), self.target.risk);
        Call { attempt: self.attempt, ..call }
    }

    /// With the agent's answers and the source's own state in the place of whatever the agent sent.
    fn with_answers(
        &mut self,
        state: Option<Json>,
        answers: Option<Vec<(String, Json)>>,
        open: Option<InFlightCall>,
    ) -> Result<(), Answer> {
        let answers = answers.map(|answers| {
            let all = answers.into_iter();
            all.fold(Json::empty_object(), |object, (key, answer)| object.with(&key, &answer).unwrap_or(object))
        });
        let plain = RETRY.iter().fold(self.params.clone(), |params, key| params.without(key));
        let mut edits = Vec::new();
        edits.extend(state.as_ref().map(|state| ("requestState", Some(state))));
        edits.extend(answers.as_ref().map(|answers| ("inputResponses", Some(answers))));
        self.params = plain.edited(&edits).unwrap_or(plain);
        (self.open, self.resumed) = (open, true);
        Ok(())
    }
}

/// What makes two requests the same one: a retry must repeat it.
fn about(method: &Method, target: &VisibleItem, params: &Json) -> Digest {
    let arguments = arguments_of(method, params);
    let arguments = Digest::of_json(&arguments).unwrap_or_else(|_| Digest::of(arguments.as_bytes()));
    let item = &target.item;
    Digest::of(format!("{method}\0{}\0{}\0{arguments}", item.source, item.exposed).as_bytes())
}
