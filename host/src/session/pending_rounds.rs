//! Requests that the agent must send again (2026-07-28, "Multi Round-Trip Requests"): the state between two rounds, and
//! the sealed handle that the agent carries.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::in_flight::InFlightCall;
use crate::call::{Params, SessionId};
use crate::digest::Digest;
use crate::gate::{Permit, Ticket};
use crate::protocol::{Answer, Json};
use crate::sealing_key::SealingKey;
use crate::shared_limit::{LimitShare, PrincipalRoom};
use crate::sync::Mutex;

/// The largest number of requests of one caller that may wait for the agent to come back. Each may hold a call open at
/// its source.
const MAX_ROUNDS: usize = 64;

/// The most bytes of the rounds that wait for all callers together: the questions, the state that the source expects
/// back, and the open calls. By the rule of [`SharedLimit`](crate::shared_limit::SharedLimit) a single caller gets half
/// of that, which is room for sixteen of the largest results that ask.
pub(super) const MAX_ROUND_BYTES: u64 = 256 * 1024 * 1024;

/// The longest time that a round waits for the agent to come back. A person who has not answered by then has left.
const ROUND_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// The rounds that wait for one caller.
pub(super) struct PendingRounds {
    seal: SealingKey,
    room: PrincipalRoom,
    open: Arc<Mutex<OpenRounds>>,
}

#[derive(Default)]
struct OpenRounds {
    last: u64,
    rounds: HashMap<u64, OpenRound>,
    /// True while a task waits for the next round to expire.
    sweeping: bool,
}

struct OpenRound {
    since: Instant,
    /// The session in which the round began.
    session: SessionId,
    round: PendingRound,
    _share: LimitShare,
}

/// A round that waits for the agent.
pub(super) struct PendingRound {
    /// The digest of the request that the agent must repeat.
    pub(super) about: Digest,
    /// The questions that were asked.
    pub(super) questions: Vec<AgentQuestion>,
    /// The continuation of the call.
    pub(super) then: AfterAnswers,
}

/// The continuation of a call when the agent has answered.
pub(super) enum AfterAnswers {
    /// The request is sent again, with the source's own state.
    SendWithState(Option<Json>),
    /// The call is open at the source, which is given the answers.
    Resume(InFlightCall),
    /// A legacy source refused the request with this error until a person has opened pages; then it is sent once more
    /// unchanged.
    SendUnchanged(Json),
}

/// A question for the agent that has passed the gate.
pub(super) struct AgentQuestion {
    /// The name of the question in `inputRequests`.
    pub(super) key: String,
    pub(super) permit: Permit,
    pub(super) ticket: Ticket,
    /// The channel for the answer, if the call is open.
    pub(super) reply: Option<oneshot::Sender<Answer>>,
}

impl PendingRound {
    /// Returns the number of bytes that are kept until the agent comes back.
    fn bytes(&self) -> usize {
        let then = match &self.then {
            AfterAnswers::SendWithState(state) => state.as_ref().map_or(0, |state| state.as_bytes().len()),
            AfterAnswers::Resume(in_flight) => in_flight.bytes(),
            AfterAnswers::SendUnchanged(error) => error.as_bytes().len(),
        };
        then + self.questions.iter().map(AgentQuestion::bytes).sum::<usize>()
    }

    /// Returns `inputRequests` as the agent gets them.
    pub(super) fn asked(&self) -> Option<Json> {
        let requests = self.questions.iter().map(|question| (question.key.as_str(), question.as_request()));
        let requests: Vec<_> = requests.collect();
        let edits: Vec<_> = requests.iter().map(|(key, request)| (*key, Some(request))).collect();
        (!edits.is_empty()).then(|| Json::empty_object().edited(&edits)).flatten()
    }

    /// Reports whether a request already brings answers to all questions, as a source without its own state would take
    /// them. They pass the gate like any answer, each behind its question.
    pub(super) fn is_answered_by(&self, params: &Params) -> bool {
        let brought = params.input_responses().filter(|_| !self.questions.is_empty());
        brought.is_some_and(|brought| self.questions.iter().all(|question| brought.get(&question.key).is_some()))
    }
}

impl AgentQuestion {
    /// Returns the number of bytes that the question keeps: as the gate has it, and, where that differs, as the agent
    /// gets it.
    pub(super) fn bytes(&self) -> usize {
        let (judged, sent) = (self.permit.call().params.as_json().as_bytes(), self.permit.source_params().as_bytes());
        let both = if std::ptr::eq(judged, sent) { sent.len() } else { judged.len() + sent.len() };
        self.key.len() + both
    }

    pub(super) fn as_request(&self) -> Json {
        let method = Json::of(&self.permit.method());
        let params = self.permit.source_params();
        let mut edits = vec![("method", Some(&method))];
        if *params != Json::empty_object() {
            edits.push(("params", Some(params)));
        }
        Json::empty_object().edited(&edits).unwrap_or_else(Json::empty_object)
    }
}

/// The reason why a round is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoRoomForRound {
    #[error(
        "{MAX_ROUNDS} requests of this caller already wait for the agent to come back; repeat some of them with answers first"
    )]
    TooMany,
    #[error(
        "what is asked, with the requests that already wait for the agent to come back, takes more memory than this caller may have; repeat some of those with answers first"
    )]
    TooLarge,
}

/// The reason why a `requestState` leads to no round.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestStateError {
    /// The handle does not belong to these rounds: the gate or another process may have issued it.
    Foreign,
    /// The handle was already used, or has expired.
    Gone,
}

/// Ends each round when it expires, until none is left: a call that is open holds a slot at its source.
async fn end_expired(open: Weak<Mutex<OpenRounds>>) {
    loop {
        let (expired, next) = {
            let Some(open) = open.upgrade() else { return };
            let mut open = open.lock();
            let expired: Vec<_> = open.rounds.extract_if(|_, kept| kept.since.elapsed() >= ROUND_LIFETIME).collect();
            let next = open.rounds.values().map(|kept| kept.since + ROUND_LIFETIME).min();
            open.sweeping = next.is_some();
            (expired, next)
        };
        // Not under the lock, as a call that ends may be the last to hold its session.
        drop(expired);
        let Some(next) = next else { return };
        tokio::time::sleep_until(next).await;
    }
}

impl PendingRounds {
    /// Makes rounds that take their memory from this room.
    pub(super) fn new(room: PrincipalRoom) -> Self {
        Self { seal: SealingKey::new("round"), room, open: Arc::default() }
    }

    /// Keeps a round of a session and returns its handle, unless too many are open or they are too large.
    pub(super) fn keep(&self, session: &SessionId, round: PendingRound) -> Result<String, NoRoomForRound> {
        let since = Instant::now();
        let mut open = self.open.lock();
        if open.rounds.len() >= MAX_ROUNDS {
            return Err(NoRoomForRound::TooMany);
        }
        let share = self.room.try_take(round.bytes()).ok_or(NoRoomForRound::TooLarge)?;
        open.last += 1;
        let number = open.last;
        open.rounds.insert(number, OpenRound { since, session: session.clone(), round, _share: share });
        if !std::mem::replace(&mut open.sweeping, true) {
            tokio::spawn(end_expired(Arc::downgrade(&self.open)));
        }
        Ok(self.seal.seal(number.to_string().as_bytes()))
    }

    /// Returns the digest of the request that a handle leads back to.
    pub(super) fn about(&self, handle: &str) -> Option<Digest> {
        Some(self.open.lock().rounds.get(&self.number(handle)?)?.round.about)
    }

    /// Takes the round that a handle is for. Each handle counts once.
    pub(super) fn take(&self, handle: &str) -> Result<PendingRound, RequestStateError> {
        let number = self.number(handle).ok_or(RequestStateError::Foreign)?;
        let kept = self.open.lock().rounds.remove(&number).ok_or(RequestStateError::Gone)?;
        if kept.since.elapsed() < ROUND_LIFETIME { Ok(kept.round) } else { Err(RequestStateError::Gone) }
    }

    fn number(&self, handle: &str) -> Option<u64> {
        self.seal.open(handle).and_then(|bytes| String::from_utf8(bytes).ok()?.parse().ok())
    }

    /// Ends the rounds of a session: no agent comes back to what began in it, and a call that is open is cancelled at
    /// its source.
    pub(super) fn end(&self, session: &SessionId) {
        let over: Vec<_> = self.open.lock().rounds.extract_if(|_, kept| kept.session == *session).collect();
        // Not under the lock, as a call that ends may be the last to hold its session.
        drop(over);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::principal::Principal;
    use crate::shared_limit::SharedLimit;

    fn rounds_within(limit: &Arc<SharedLimit>, principal: &str) -> PendingRounds {
        PendingRounds::new(PrincipalRoom::new(limit, &Principal::established(principal)))
    }

    fn fresh_rounds() -> PendingRounds {
        rounds_within(&SharedLimit::new(MAX_ROUND_BYTES), "token:a")
    }

    fn round() -> PendingRound {
        PendingRound { about: Digest::of(b"x"), questions: Vec::new(), then: AfterAnswers::SendWithState(None) }
    }

    #[tokio::test]
    async fn a_handle_counts_once_and_only_in_its_session() {
        let rounds = fresh_rounds();
        let handle = rounds.keep(&SessionId::new(), round()).unwrap();
        assert_eq!(fresh_rounds().take(&handle).err(), Some(RequestStateError::Foreign));
        assert_eq!(rounds.take("forged").err(), Some(RequestStateError::Foreign));
        assert!(rounds.take(&handle).is_ok());
        assert_eq!(rounds.take(&handle).err(), Some(RequestStateError::Gone));
    }

    #[tokio::test]
    async fn so_many_rounds_are_open_and_no_more_and_they_end_with_their_session() {
        let rounds = fresh_rounds();
        let session = SessionId::new();
        assert!((0..MAX_ROUNDS).all(|_| rounds.keep(&session, round()).is_ok()));
        assert_eq!(rounds.keep(&session, round()).unwrap_err(), NoRoomForRound::TooMany);
        rounds.end(&session);
        assert!(rounds.keep(&session, round()).is_ok());
    }

    #[tokio::test]
    async fn the_bytes_of_rounds_have_a_limit_for_a_caller_and_another_finds_room() {
        let limit = SharedLimit::new(5_000);
        let [greedy, other] = ["token:a", "token:b"].map(|principal| rounds_within(&limit, principal));
        let (session, text) = (SessionId::new(), Json::of(&"x".repeat(898)));
        let again = || PendingRound { then: AfterAnswers::SendWithState(Some(text.clone())), ..round() };
        let unchanged = || PendingRound { then: AfterAnswers::SendUnchanged(text.clone()), ..round() };
        let handle = greedy.keep(&session, again()).unwrap();
        greedy.keep(&session, unchanged()).unwrap();
        let refused = greedy.keep(&session, again()).unwrap_err();
        assert_eq!(refused, NoRoomForRound::TooLarge);
        assert!(refused.to_string().contains("takes more memory than this caller may have"), "{refused}");
        let elsewhere = rounds_within(&limit, "token:a");
        assert!(elsewhere.keep(&session, again()).is_err(), "its other profiles take from the same room");
        assert!(other.keep(&session, again()).is_ok());
        assert!(greedy.take(&handle).is_ok());
        assert!(greedy.keep(&session, again()).is_ok(), "an answered round leaves its room");
        greedy.end(&session);
        other.end(&session);
        assert!((0..2).all(|_| elsewhere.keep(&session, again()).is_ok()), "so does the end of a session");
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_ends_when_it_expires_though_no_other_begins() {
        let rounds = fresh_rounds();
        let session = SessionId::new();
        rounds.keep(&session, round()).unwrap();
        tokio::time::sleep(ROUND_LIFETIME / 2).await;
        rounds.keep(&session, round()).unwrap();
        for left in [1, 0] {
            tokio::time::sleep(ROUND_LIFETIME / 2 + Duration::from_millis(1)).await;
            assert_eq!(rounds.open.lock().rounds.len(), left);
        }
        assert!(!rounds.open.lock().sweeping);
        assert!(rounds.keep(&session, round()).is_ok());
    }
}
