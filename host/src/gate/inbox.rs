//! Questions that wait for a person.

mod acceptance;
mod answer;
mod arguments;
mod error;
mod events;
mod expiry;
mod question;
mod reading;
mod room;
mod scope;
mod settle;
mod waiter_count;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::{broadcast, watch};

use crate::digest::Digest;
use crate::ledger::{EventKind, GrantBinding};
use crate::lock_reader::LockReader;
use crate::sealing_key::SealingKey;
use crate::sync::Mutex;
pub(super) use acceptance::AcceptableTool;
pub use answer::{AnswerResult, AnswerRoute, GivenAnswer};
pub(super) use arguments::QuestionArguments;
pub use error::InboxError;
use events::EventSubscribers;
pub use events::QuestionEvent;
use question::key;
pub(super) use question::{OpenQuestion, QuestionState, QuestionTerms, offered};
#[cfg(test)]
pub(super) use scope::GivenScope;
pub use scope::ScopeChoice;
use waiter_count::WaiterCount;

/// The longest a question may wait whatever the configuration says (30 days), so that its end can be computed.
pub(super) const MAX_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The time for which an answer is valid if no call waited for it any more: long enough for an agent to be told to try
/// again.
const LATE_VALIDITY: Duration = Duration::from_secs(24 * 60 * 60);

/// The name in the ledger of an answer that nobody gave in time. No person answers under it.
const EXPIRY: &str = "expiry";

/// The name in the ledger of the agent's own person. Nobody answers under it by another way.
const ELICITATION: &str = "elicitation";

/// The open questions of this broker. Answers come from the agent's own person (elicitation) or from another terminal.
///
/// # Example
/// ```
/// # async fn answer(broker: &portcullis::Broker) {
/// use portcullis::{AnswerRoute, GivenAnswer};
/// use tokio::sync::broadcast::error::RecvError;
/// let inbox = broker.inbox();
/// let mut events = inbox.subscribe(); // before the first list, so that no question falls between the two
/// loop {
///     for question in inbox.list() {
///         let given = if question.tool == "calc__add" { GivenAnswer::yes() } else { GivenAnswer::no() };
///         // An error is no reason to stop: somebody else has answered, or the question stays in the list.
///         if let Err(error) = inbox.answer(&question.id, &given, "my-program", AnswerRoute::Person).await {
///             eprintln!("{error}");
///         }
///     }
///     match events.recv().await {
///         Ok(_) | Err(RecvError::Lagged(_)) => {} // the list says what is open
///         Err(RecvError::Closed) => break,        // the broker has shut down
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Inbox {
    pub(super) open: Arc<QuestionMap>,
    events: EventSubscribers,
    /// The lock file, into which an answer may accept a tool; `None` if no answer may.
    pub(super) lock: Option<Arc<LockReader>>,
    /// Seals each `requestState`, so that an agent can neither make nor read one.
    pub(super) seal: SealingKey,
}

pub(super) type QuestionMap = Mutex<HashMap<String, Arc<OpenQuestion>>>;

/// The facts that a person needs in order to answer a question. Strings come from agents and sources: escape them
/// before showing them.
///
/// # Example
/// ```
/// # fn show(inbox: &portcullis::Inbox) {
/// for question in inbox.list() {
///     println!("may {} call {}? {}", question.principal, question.tool, question.reasons.join("; "));
/// }
/// # }
/// ```
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Question {
    /// The question's id; a unique prefix is enough to answer.
    pub id: String,
    /// The method that is asked for, such as `tools/call`.
    pub method: String,
    /// The tool as the agent knows it, or the source for a request that is about no item.
    pub tool: String,
    /// The source.
    pub source: String,
    /// The tool's name at the source.
    pub name: String,
    /// The tool as records and announcements have it, without payload: of a URI that no list names only the scheme.
    #[doc(hidden)]
    #[serde(skip)]
    pub recorded_tool: String,
    /// The title that the source gives the tool for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The claims of the source about the tool: "only reads", "destructive", "idempotent", "open world".
    pub hints: Vec<&'static str>,
    /// The caller.
    pub principal: String,
    /// The profile of the caller.
    pub profile: String,
    /// The client program.
    pub client: String,
    /// The reasons why a person is asked.
    pub reasons: Vec<String>,
    /// The arguments, in placeholder form; as their text where JSON readers would show another value. Of more than 16
    /// KiB the long strings are cut in their middle; if that is not enough, this is a string with the two ends of their
    /// text. [`Question::cut`] then is true, and [`Inbox::question`] has all of them.
    pub arguments: serde_json::Value,
    /// The size of the whole arguments: the bytes of their text.
    pub arguments_bytes: usize,
    /// True if something is left out here: a part of the arguments, or, where an answer has a limit, of other texts.
    pub cut: bool,
    /// True if the tool may destroy something or reach beyond its source.
    pub may_do_harm: bool,
    /// The scopes that a yes may have: `once` (for this call), `arguments` (for the same arguments), `session` (for the
    /// tool in this session), `principal` (for the tool and this caller), `hour` (the wider of these two, for an hour),
    /// and `always` (the tool is accepted until it changes).
    pub scopes: Vec<&'static str>,
    /// The number of identical calls that wait for this answer now.
    pub waiting: usize,
    /// Seconds until the question expires, and the call is denied.
    pub expires_in: u64,
}

impl Default for Inbox {
    fn default() -> Self {
        Self {
            open: Arc::default(),
            events: EventSubscribers::default(),
            lock: None,
            seal: SealingKey::new("approval"),
        }
    }
}

impl Inbox {
    /// Returns an empty inbox, whose answers may accept tools into the lock file.
    pub(crate) fn with_lock_file(lock: Arc<LockReader>) -> Self {
        Self { lock: Some(lock), ..Self::default() }
    }

    /// Returns a receiver of what happens to questions from now on; [`Inbox::list`] says what is open already. One that
    /// falls 512 events behind misses the oldest, and is told so (`RecvError::Lagged`): it continues, and the list
    /// shows what it missed. It ends (`RecvError::Closed`) when the broker shuts down.
    ///
    /// # Example
    /// ```
    /// # async fn watch(broker: &portcullis::Broker) {
    /// use portcullis::QuestionEvent;
    ///
    /// let mut events = broker.inbox().subscribe();
    /// while let Ok(event) = events.recv().await {
    ///     if let QuestionEvent::Asked(question) = event {
    ///         println!("{} wants to call {}", question.principal, question.tool);
    ///     }
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<QuestionEvent> {
        self.events.subscribe()
    }

    /// Ends the receivers of events: the broker shuts down.
    pub(crate) fn close(&self) {
        self.events.close();
    }

    /// Answers a question by its id or a unique prefix. `by` names the person, for the ledger; an empty name, and the
    /// words by which the broker names itself there, `expiry` and `elicitation`, are refused. The answer is durable
    /// before the waiting call continues.
    ///
    /// Cancellation: an answer that has begun is recorded nevertheless.
    ///
    /// # Errors
    /// See [`InboxError`]; the question then stays as it was.
    pub async fn answer(
        &self,
        id: &str,
        answer: &GivenAnswer,
        by: &str,
        route: AnswerRoute,
    ) -> Result<AnswerResult, InboxError> {
        if by.trim().is_empty() {
            return Err(InboxError::Nameless);
        }
        if [EXPIRY, ELICITATION].iter().any(|word| word.eq_ignore_ascii_case(by.trim())) {
            return Err(InboxError::Reserved(by.to_owned()));
        }
        self.take(id, answer, by, route).await
    }

    /// Takes an answer under any name.
    async fn take(
        &self,
        id: &str,
        answer: &GivenAnswer,
        by: &str,
        route: AnswerRoute,
    ) -> Result<AnswerResult, InboxError> {
        self.expire_overdue();
        let pending = self.find(id)?;
        if route == AnswerRoute::Agent && pending.terms.out_of_band {
            return Err(InboxError::OutOfBand);
        }
        let (coverage, approve) = (pending.coverage(answer, route)?, answer.approve);
        // Runs in a separate task: an answer that has begun is recorded and announced even if its giver goes away.
        let (open, by, events) = (self.open.clone(), by.to_owned(), self.events.clone());
        let settled = tokio::spawn(async move {
            let question = Arc::new(pending.summary());
            let settled = settle::settle(open, pending, approve, coverage, by.clone()).await?;
            events.announce(QuestionEvent::Answered { question, approved: approve, by: by.into() });
            Ok(settled)
        });
        let settled = settled.await;
        settled.unwrap_or_else(|error| Err(InboxError::Ledger(error.to_string())))
    }

    /// Takes the answer that a call brings for itself, from the agent's own person. If another answer arrived first,
    /// that one stands.
    pub(super) async fn answer_for_itself(
        &self,
        pending: &OpenQuestion,
        answer: &GivenAnswer,
    ) -> Result<Option<QuestionState>, InboxError> {
        // Counted as a waiter, so that the answer is used by this call and not kept for another.
        let _waiting = WaiterCount::new(&pending.waiting);
        match self.take(pending.id(), answer, ELICITATION, AnswerRoute::Agent).await {
            Ok(_) | Err(InboxError::Unknown(_)) => Ok(pending.wait(pending.expires()).await),
            Err(error) => Err(error),
        }
    }

    /// Opens a question that keeps this many bytes, or joins the identical one that is open already. A call that
    /// `waits` for the answer is counted before the question becomes visible, and for as long as it holds the returned
    /// guard. The question is drafted only if there is room for it.
    pub(super) async fn open(
        &self,
        binding: GrantBinding,
        bytes: usize,
        waits: bool,
        draft: impl FnOnce(GrantBinding) -> (QuestionTerms, Vec<serde_json::Value>),
    ) -> Result<(Arc<OpenQuestion>, Option<WaiterCount>), InboxError> {
        self.expire_overdue();
        let key = key(&binding);
        let wait_for = |pending: &Arc<OpenQuestion>| waits.then(|| WaiterCount::new(&pending.waiting));
        // An answer that is being recorded may cover this call too.
        let answered = identical(&self.open.lock(), key).filter(|pending| !pending.is_open()).cloned();
        if let Some(pending) = answered {
            pending.recorded().await;
            if pending.passes_all() {
                let waiting = wait_for(&pending);
                return Ok((pending, waiting));
            }
        }
        let joined = |open: &HashMap<String, Arc<OpenQuestion>>| {
            let pending = identical(open, key).filter(|pending| pending.is_open());
            pending.map(|pending| (Arc::clone(pending), wait_for(pending)))
        };
        {
            let open = self.open.lock();
            if let Some(joined) = joined(&open) {
                return Ok(joined);
            }
            room::check(&open, &binding, bytes)?;
        }
        // Not under the lock, as arguments may be large. Another question may be opened meanwhile.
        let (terms, reasons) = draft(binding);
        let (state, passes) = (watch::Sender::new(QuestionState::Open), AtomicUsize::new(0));
        let pending = Arc::new(OpenQuestion { terms, key, bytes, state, waiting: Arc::default(), passes });
        let waiting = {
            let mut open = self.open.lock();
            if let Some(joined) = joined(&open) {
                return Ok(joined);
            }
            room::check(&open, &pending.terms.binding, bytes)?;
            let waiting = wait_for(&pending);
            open.insert(pending.id().to_owned(), pending.clone());
            waiting
        };
        let Question { method, recorded_tool: tool, source, principal, profile, client, .. } = &pending.terms.summary;
        let body = json!({
            "question": pending.id(), "method": method, "tool": tool, "source": source, "principal": principal,
            "profile": profile, "client": client, "reasons": reasons,
        });
        // Runs in a separate task: a question that can be seen is recorded and announced, and expires, even if the call
        // that opened it is given up.
        let (open, events, opened) = (Arc::clone(&self.open), self.events.clone(), Arc::clone(&pending));
        let recorded = tokio::spawn(async move {
            if let Err(error) = opened.terms.ledger.append(opened.event(EventKind::CallAsked, body)).await {
                withdraw(&opened, &open);
                return Err(error.into());
            }
            events.announce(QuestionEvent::Asked(Arc::new(opened.summary())));
            tokio::spawn(expiry::expire_in_time(&opened, &open, &events));
            Ok(())
        });
        recorded.await.unwrap_or_else(|error| Err(InboxError::Ledger(error.to_string())))?;
        Ok((pending, waiting))
    }

    /// Returns the open question of this id, if it is about a call with this binding, and has all of its reasons. The agent
    /// may come back in another session: a modern session is managed by the front, which opens a new one after a pause.
    pub(super) fn about(&self, id: &str, binding: &GrantBinding) -> Option<Arc<OpenQuestion>> {
        self.expire_overdue();
        let is_about = |pending: &&Arc<OpenQuestion>| {
            let GrantBinding { session, reasons, .. } = pending.terms.binding.clone();
            let has_all = binding.reasons.is_subset(&reasons);
            has_all && pending.key == key(&GrantBinding { session, reasons, ..binding.clone() })
        };
        self.open.lock().get(id).filter(is_about).cloned()
    }

    /// Denies a question that has expired.
    pub(super) fn expire(&self, pending: &OpenQuestion) {
        expiry::expire(pending, &self.open, &self.events);
    }

    /// Denies all questions that have expired but whose own task has not noticed it yet.
    fn expire_overdue(&self) {
        let now = Instant::now();
        let over: Vec<_> = self.open.lock().values().filter(|pending| pending.expires() <= now).cloned().collect();
        over.iter().for_each(|pending| self.expire(pending));
    }

    pub(super) fn find(&self, id: &str) -> Result<Arc<OpenQuestion>, InboxError> {
        let open = self.open.lock();
        let is_meant = |pending: &&Arc<OpenQuestion>| {
            pending.is_open() && !id.is_empty() && pending.id().starts_with(&id.to_ascii_uppercase())
        };
        let mut found = open.values().filter(is_meant);
        let first = found.next().ok_or_else(|| InboxError::Unknown(id.to_owned()))?;
        if found.next().is_some() { Err(InboxError::Ambiguous(id.to_owned())) } else { Ok(first.clone()) }
    }
}

/// Returns the open question with this key.
fn identical(open: &HashMap<String, Arc<OpenQuestion>>, key: Digest) -> Option<&Arc<OpenQuestion>> {
    open.values().find(|pending| pending.key == key)
}

/// Withdraws a question that could not be recorded, and denies the calls that joined it meanwhile.
pub(super) fn withdraw(pending: &OpenQuestion, open: &QuestionMap) {
    open.lock().remove(pending.id());
    pending.state.send_replace(QuestionState::Refused);
}
