//! One open question, and the wait for its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::json;
use tokio::sync::watch;

use super::acceptance::{ALWAYS, AcceptableTool};
use super::{AskSummary, InboxError};
use crate::call::{CallId, SessionId};
use crate::digest::Digest;
use crate::ledger::{Binding, Event, EventKind, Ledger};
use crate::plugin::{AnswerScope, Offer};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::gate) enum QuestionState {
    Open,
    Approved { scope: &'static str, by: String },
    Refused { by: String },
}

/// The scope of an answer: one that approval plugins know, or that of the lock file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChosenScope {
    /// As plugins offer it.
    Offered(AnswerScope),
    /// Always, until the tool's definition or its source changes.
    Always,
}

impl ChosenScope {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Offered(scope) => word(scope),
            Self::Always => ALWAYS,
        }
    }
}

/// One open question.
#[derive(Debug)]
pub(in crate::gate) struct OpenQuestion {
    pub(in crate::gate) id: String,
    pub(super) key: Digest,
    pub(super) summary: Arc<AskSummary>,
    pub(super) binding: Binding,
    pub(super) offer: Offer,
    pub(super) acceptable: Option<AcceptableTool>,
    /// True if only a person outside the agent's channel may answer.
    pub(in crate::gate) out_of_band: bool,
    pub(super) session: SessionId,
    pub(super) call: CallId,
    pub(super) expires: Instant,
    /// The ledger, under the configuration of the call that asked.
    pub(super) ledger: Ledger,
    pub(super) state: watch::Sender<QuestionState>,
    pub(super) waiting: Arc<AtomicUsize>,
    /// The number of calls that the answer still lets through.
    pub(super) passes: AtomicUsize,
}

impl OpenQuestion {
    /// Waits for the answer until `deadline`. Returns `None` if there is none by then. The caller must be counted
    /// ([`WaiterCount`]).
    pub(in crate::gate) async fn wait(&self, deadline: Instant) -> Option<QuestionState> {
        let mut state = self.state.subscribe();
        let decided = state.wait_for(|state| *state != QuestionState::Open);
        let decided = tokio::time::timeout_at(deadline.into(), decided).await.ok()?;
        decided.ok().map(|state| state.clone())
    }

    /// Returns when the question expires.
    pub(in crate::gate) fn expires(&self) -> Instant {
        self.expires
    }

    /// Returns the seconds until the question expires.
    pub(in crate::gate) fn expires_in(&self) -> u64 {
        self.expires.saturating_duration_since(Instant::now()).as_secs()
    }

    /// Takes one of the passes that the answer gives. Returns false if none is left: `once` is one call, however many
    /// identical ones wait.
    pub(in crate::gate) fn pass(&self) -> bool {
        self.passes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }

    /// Returns the scopes that a person at the agent's side may choose from.
    pub(in crate::gate) fn scopes(&self) -> Vec<&'static str> {
        self.offer.scopes.iter().copied().map(word).collect()
    }

    pub(in crate::gate) fn summary(&self) -> AskSummary {
        let waiting = self.waiting.load(Ordering::SeqCst);
        AskSummary { waiting, expires_in: self.expires_in(), ..AskSummary::clone(&self.summary) }
    }

    /// Returns the scope that an answer names. `inside` is true for one over the agent's own channel.
    pub(super) fn scope(&self, wanted: Option<&str>, inside: bool) -> Result<ChosenScope, InboxError> {
        let Some(wanted) = wanted else { return Ok(ChosenScope::Offered(AnswerScope::Once)) };
        if wanted == ALWAYS && self.acceptable.is_some() && !inside {
            return Ok(ChosenScope::Always);
        }
        let found = self.offer.scopes.iter().copied().find(|scope| word(*scope) == wanted);
        found.map(ChosenScope::Offered).ok_or_else(|| {
            let offered = if inside { self.scopes() } else { self.summary.scopes.clone() };
            InboxError::Scope { scope: wanted.to_owned(), offered: offered.join(", ") }
        })
    }

    pub(super) fn event(&self, kind: EventKind, body: serde_json::Value) -> Event {
        Event { kind, run: Some(self.session.clone()), call: Some(self.call.clone()), body }
    }
}

/// Returns the word for a scope in messages, answers and the ledger.
pub(in crate::gate) fn word(scope: AnswerScope) -> &'static str {
    match scope {
        AnswerScope::Once => "once",
        AnswerScope::Arguments => "arguments",
        AnswerScope::Session => "session",
        AnswerScope::Principal => "principal",
    }
}

/// Returns the digest of what a call binds, by which identical questions are known.
pub(super) fn key(binding: &Binding) -> Digest {
    let Binding { principal, source, definition, tool, policies, arguments, session } = binding;
    Digest::of(
        json!([principal, source, definition, tool, policies, arguments, session.as_str()]).to_string().as_bytes(),
    )
}
