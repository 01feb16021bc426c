//! One open question, and the wait for its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::acceptance::AcceptableTool;
use super::arguments::QuestionArguments;
use super::scope::{GivenScope, ScopeChoice};
use super::{AnswerRoute, GivenAnswer, InboxError, Question};
use crate::call::{CallId, SessionId, now_millis};
use crate::digest::Digest;
use crate::ledger::{Event, EventKind, GrantBinding, Ledger};
use crate::plugin::{AnswerScope, Offer};

/// The seconds for which an answer with the scope `hour` holds.
const HOUR_SECONDS: u32 = 60 * 60;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::gate) enum QuestionState {
    Open,
    /// Somebody has answered, and the answer is being recorded.
    Recording,
    Approved {
        scope: GivenScope,
        by: String,
        /// The grant of an answer that covers several calls. Each call that waits uses it.
        grant: Option<String>,
    },
    /// Somebody refused, or the question could not be recorded.
    Refused,
    /// It expired, because nobody answered in time.
    Expired,
}

impl QuestionState {
    /// Reports whether an answer, or the lack of one, is in force.
    pub(super) fn is_final(&self) -> bool {
        !matches!(self, Self::Open | Self::Recording)
    }
}

/// The calls that an answer covers: its scope, and when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AnswerCoverage {
    pub(super) scope: GivenScope,
    /// The time at which the answer ends, in milliseconds since the Unix epoch, if the person chose one.
    pub(super) until: Option<u64>,
}

/// The part of a question that does not change while it is open.
#[derive(Debug)]
pub(in crate::gate) struct QuestionTerms {
    /// The question without its arguments, which are kept as text, and its `waiting` and `expires_in`, which change.
    /// [`OpenQuestion::summary`] has them.
    pub(in crate::gate) summary: Question,
    pub(in crate::gate) arguments: QuestionArguments,
    pub(in crate::gate) binding: GrantBinding,
    pub(in crate::gate) offer: Offer,
    /// The tool, if a person may accept it for good.
    pub(in crate::gate) acceptable: Option<AcceptableTool>,
    /// True if only a person outside the agent's channel may answer.
    pub(in crate::gate) out_of_band: bool,
    pub(in crate::gate) call: CallId,
    pub(in crate::gate) expires: Instant,
    /// The ledger in which the question and its answer are recorded, under the configuration of the call that asked.
    pub(in crate::gate) ledger: Ledger,
}

/// One open question.
#[derive(Debug)]
pub(in crate::gate) struct OpenQuestion {
    pub(in crate::gate) terms: QuestionTerms,
    pub(super) key: Digest,
    /// The bytes that count against what the inbox keeps.
    pub(super) bytes: usize,
    pub(in crate::gate) state: watch::Sender<QuestionState>,
    pub(super) waiting: Arc<AtomicUsize>,
    /// The number of calls that the answer still lets through.
    pub(in crate::gate) passes: AtomicUsize,
}

impl OpenQuestion {
    /// Returns the question's id.
    pub(in crate::gate) fn id(&self) -> &str {
        &self.terms.summary.id
    }

    /// Returns the session of the call that asked.
    pub(super) fn session(&self) -> &SessionId {
        &self.terms.binding.session
    }

    /// Waits for the answer until `deadline`, and for one that is being recorded then. Returns `None` if there is none.
    /// The caller must be counted ([`WaiterCount`]).
    pub(in crate::gate) async fn wait(&self, deadline: Instant) -> Option<QuestionState> {
        let mut state = self.state.subscribe();
        let decided = state.wait_for(QuestionState::is_final);
        if let Ok(decided) = tokio::time::timeout_at(deadline.into(), decided).await {
            return decided.ok().map(|state| state.clone());
        }
        // Such an answer counts for the calls that waited when it came.
        self.recorded().await;
        let state = self.state.borrow().clone();
        state.is_final().then_some(state)
    }

    /// Reports whether the question waits for an answer.
    pub(super) fn is_open(&self) -> bool {
        *self.state.borrow() == QuestionState::Open
    }

    /// Waits while an answer is being recorded.
    pub(super) async fn recorded(&self) {
        // The sender is this question's own.
        let _ = self.state.subscribe().wait_for(|state| *state != QuestionState::Recording).await;
    }

    /// Reports whether the answer covers every call that waits for it.
    pub(super) fn passes_all(&self) -> bool {
        self.passes.load(Ordering::SeqCst) == usize::MAX
    }

    /// Returns when the question expires.
    pub(in crate::gate) fn expires(&self) -> Instant {
        self.terms.expires
    }

    /// Returns the seconds until the question expires.
    pub(in crate::gate) fn expires_in(&self) -> u64 {
        self.terms.expires.saturating_duration_since(Instant::now()).as_secs()
    }

    /// Takes one of the passes that the answer gives. Returns false if none is left: `once` is one call, however many
    /// identical ones wait.
    pub(in crate::gate) fn pass(&self) -> bool {
        self.passes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }

    /// Returns the scopes that a person at the agent's side may choose from.
    pub(in crate::gate) fn scopes(&self) -> Vec<ScopeChoice> {
        offered(&self.terms.offer)
    }

    /// Returns the current question: how long it stays open, and how many calls wait for its answer. Large arguments
    /// are cut.
    pub(super) fn summary(&self) -> Question {
        let (arguments, cut) = self.terms.arguments.listed();
        self.shown(arguments, cut)
    }

    /// Returns the current question, with the shown part of its arguments.
    pub(super) fn shown(&self, arguments: Value, cut: bool) -> Question {
        let waiting = self.waiting.load(Ordering::SeqCst);
        Question { arguments, cut, waiting, expires_in: self.expires_in(), ..self.terms.summary.clone() }
    }

    /// Returns what an answer covers that arrives by this route.
    pub(super) fn coverage(&self, answer: &GivenAnswer, route: AnswerRoute) -> Result<AnswerCoverage, InboxError> {
        let offer = &self.terms.offer;
        let choice = match answer.scope.as_deref() {
            Some(word) => Some(word.parse().map_err(|_| self.not_offered(word, route))?),
            None => None,
        };
        let endless = |scope| Ok(AnswerCoverage { scope, until: None });
        match (choice, answer.until) {
            (None, None) => endless(GivenScope::Offered(AnswerScope::Once)),
            (Some(ScopeChoice::Always), None) if self.terms.acceptable.is_some() && route == AnswerRoute::Person => {
                endless(GivenScope::Always)
            }
            (Some(ScopeChoice::Hour), None) if offers_an_hour(offer) => {
                let until = now_millis().saturating_add(u64::from(HOUR_SECONDS) * 1000);
                self.ending(lasting(offer), until, route)
            }
            (Some(ScopeChoice::Offered(scope)), None) if offer.scopes.contains(&scope) => {
                endless(GivenScope::Offered(scope))
            }
            (None, Some(until)) => self.ending(lasting(offer), until, route),
            (Some(ScopeChoice::Offered(scope)), Some(until)) if offer.scopes.contains(&scope) => {
                self.ending(Some(scope).filter(|scope| can_end(*scope)), until, route)
            }
            (Some(choice), _) => Err(self.not_offered(choice.as_str(), route)),
        }
    }

    /// Returns the coverage of an answer that ends at a time which the person chose.
    fn ending(&self, scope: Option<AnswerScope>, until: u64, route: AnswerRoute) -> Result<AnswerCoverage, InboxError> {
        let scope = scope.ok_or_else(|| self.not_offered("until a time", route))?;
        let left = until.saturating_sub(now_millis());
        if left == 0 {
            return Err(InboxError::End("that time has passed: give a later one".to_owned()));
        }
        let longest = self.terms.offer.valid_for;
        if left > u64::from(longest) * 1000 {
            let why = format!(
                "an answer holds for {longest} s at most: give an earlier time, or raise `valid-for` in the settings of the approval \
                 plugin"
            );
            return Err(InboxError::End(why));
        }
        Ok(AnswerCoverage { scope: GivenScope::Offered(scope), until: Some(until) })
    }

    fn not_offered(&self, wanted: &str, route: AnswerRoute) -> InboxError {
        let offered = match route {
            AnswerRoute::Agent => self.scopes().into_iter().map(ScopeChoice::as_str).collect(),
            AnswerRoute::Person => self.terms.summary.scopes.clone(),
        };
        InboxError::Scope { scope: wanted.to_owned(), offered: offered.join(", ") }
    }

    pub(super) fn event(&self, kind: EventKind, body: Value) -> Event {
        Event { kind, run: Some(self.session().clone()), call: Some(self.terms.call.clone()), body: body.into() }
    }
}

/// Returns the scopes from which a person may choose by what approval plugins offer.
pub(in crate::gate) fn offered(offer: &Offer) -> Vec<ScopeChoice> {
    let hour = offers_an_hour(offer).then_some(ScopeChoice::Hour);
    offer.scopes.iter().map(|scope| ScopeChoice::Offered(*scope)).chain(hour).collect()
}

/// Reports whether an answer can end after an hour. One that ends sooner anyway needs no separate end.
fn offers_an_hour(offer: &Offer) -> bool {
    lasting(offer).is_some() && offer.valid_for > HOUR_SECONDS
}

/// Returns the widest offered scope that can be given an end.
fn lasting(offer: &Offer) -> Option<AnswerScope> {
    let widest_first = [AnswerScope::Principal, AnswerScope::Session];
    widest_first.into_iter().find(|scope| offer.scopes.contains(scope))
}

/// Reports whether an answer of this scope counts for more than one call, so that a time at which it ends means
/// something.
fn can_end(scope: AnswerScope) -> bool {
    matches!(scope, AnswerScope::Session | AnswerScope::Principal)
}

/// Returns the digest of what a call binds, by which identical questions are known.
pub(super) fn key(binding: &GrantBinding) -> Digest {
    let GrantBinding { principal, source, definition, tool, policies, arguments, session, reasons } = binding;
    Digest::of(
        json!([principal, source, definition, tool, policies, arguments, session.as_str(), reasons])
            .to_string()
            .as_bytes(),
    )
}
