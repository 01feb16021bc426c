//! Questions that wait for a person.

mod acceptance;
mod answer;
mod error;
mod question;
mod settle;
mod waiter_count;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::{broadcast, watch};

use crate::call::{CallId, SessionId};
use crate::ledger::{EventKind, GrantBinding, Ledger};
use crate::plugin::Offer;
use crate::sealing_key::SealingKey;
use crate::sync::{Mutex, MutexGuard};
pub(super) use acceptance::{ALWAYS, AcceptableTool};
pub use answer::{AnswerResult, AnswerRoute, GivenAnswer};
pub use error::InboxError;
use question::key;
pub(super) use question::{HOUR, OpenQuestion, QuestionState, offered};
use waiter_count::WaiterCount;

/// The most questions that may be open at once: more than a person can read. Beyond it calls are denied.
const MAX_OPEN: usize = 256;

/// The most questions of one session: a share that leaves room for others when an agent runs away.
const MAX_OPEN_PER_SESSION: usize = 32;

/// The longest a question may wait whatever the configuration says (30 days), so that its end can be computed.
pub(super) const MAX_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The time for which an answer is valid if no call waited for it any more: long enough for an agent to be told to try
/// again.
const LATE_VALIDITY: Duration = Duration::from_secs(24 * 60 * 60);

/// The number of events that a subscriber may fall behind: twice as many as questions can be open.
const MAX_EVENTS: usize = 2 * MAX_OPEN;

/// The open questions of this broker. Answers come from the agent's own person (elicitation) or from another terminal.
///
/// # Example
/// ```
/// # async fn answer(broker: &portcullis::Broker) -> Result<(), portcullis::InboxError> {
/// use portcullis::{AnswerRoute, GivenAnswer, QuestionEvent};
/// let mut events = broker.inbox().subscribe();
/// while let Ok(event) = events.recv().await {
///     if let QuestionEvent::Asked(question) = event {
///         let yes = GivenAnswer { approve: question.tool == "calc__add", ..GivenAnswer::default() };
///         broker.inbox().answer(&question.id, &yes, "my-program", AnswerRoute::Person).await?;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Inbox {
    open: Arc<QuestionMap>,
    events: broadcast::Sender<QuestionEvent>,
    /// The data folder, in whose lock file an answer may accept a tool; `None` if no answer may.
    pub(super) folder: Option<PathBuf>,
    /// Seals each `requestState`, so that an agent can neither make nor read one.
    pub(super) seal: SealingKey,
}

type QuestionMap = Mutex<HashMap<String, Arc<OpenQuestion>>>;

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
    /// The arguments, whole, in placeholder form; as their text where JSON readers would show another value.
    pub arguments: serde_json::Value,
    /// True if the tool may destroy something or reach beyond its source.
    pub grave: bool,
    /// The scopes that an answer may have.
    pub scopes: Vec<&'static str>,
    /// The number of identical calls that wait for this answer now.
    pub waiting: usize,
    /// Seconds until the question expires, and the call is denied.
    pub expires_in: u64,
}

/// An event in the life of a question.
///
/// # Example
/// ```
/// # fn note(event: portcullis::QuestionEvent) {
/// use portcullis::QuestionEvent;
/// match event {
///     QuestionEvent::Asked(question) => println!("{} waits", question.id),
///     QuestionEvent::Answered { question, approved, by } => println!("{by} said {approved} to {}", question.id),
///     _ => {}
/// }
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum QuestionEvent {
    /// A question is open, and recorded.
    Asked(Arc<Question>),
    /// A question is answered, or has expired.
    Answered {
        /// The question, as it was asked.
        question: Arc<Question>,
        /// True if the answer is yes.
        approved: bool,
        /// The name of the answering party in the ledger, or `expiry` if nobody answered.
        by: Arc<str>,
    },
}

/// A new question.
pub(super) struct NewQuestion {
    pub(super) summary: Question,
    /// The reasons as the ledger keeps them.
    pub(super) recorded: Vec<serde_json::Value>,
    pub(super) binding: GrantBinding,
    pub(super) offer: Offer,
    /// The tool, if a person may accept it for good.
    pub(super) acceptable: Option<AcceptableTool>,
    pub(super) out_of_band: bool,
    pub(super) session: SessionId,
    pub(super) call: CallId,
    pub(super) expires: Instant,
    /// The ledger in which the question and its answer are recorded.
    pub(super) ledger: Ledger,
}

impl Default for Inbox {
    fn default() -> Self {
        Self {
            open: Arc::default(),
            events: broadcast::channel(MAX_EVENTS).0,
            folder: None,
            seal: SealingKey::new("approval"),
        }
    }
}

impl Inbox {
    /// Returns an empty inbox, whose answers may accept tools into the lock file of a data folder.
    #[doc(hidden)]
    #[must_use]
    pub fn with_lock_file(data_dir: PathBuf) -> Self {
        Self { folder: Some(data_dir), ..Self::default() }
    }

    /// Returns a receiver of what happens to questions from now on. One that falls far behind misses the oldest events,
    /// and is told so ([`RecvError::Lagged`](broadcast::error::RecvError::Lagged)); [`Inbox::list`] says what is open.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<QuestionEvent> {
        self.events.subscribe()
    }

    /// Returns the open questions, oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<Question> {
        self.expire_overdue();
        let mut asks: Vec<_> = self.lock().values().map(|pending| pending.summary()).collect();
        asks.sort_by(|a, b| a.id.cmp(&b.id));
        asks
    }

    /// Returns how many questions are open.
    pub(crate) fn len(&self) -> usize {
        self.expire_overdue();
        self.lock().len()
    }

    /// Answers a question by its id or a unique prefix. `by` says who, for the ledger. The answer is durable before the
    /// call that waits for it goes on.
    ///
    /// Cancellation: an answer that has begun is recorded all the same.
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
        self.expire_overdue();
        let pending = self.find(id)?;
        if route == AnswerRoute::Agent && pending.out_of_band {
            return Err(InboxError::OutOfBand);
        }
        let (coverage, approve) = (pending.coverage(answer, route)?, answer.approve);
        // Runs in a task of its own: an answer that has begun is recorded and announced even if its giver goes away.
        let (open, by, events) = (self.open.clone(), by.to_owned(), self.events.clone());
        let settled = tokio::spawn(async move {
            let question = Arc::clone(&pending.summary);
            let settled = settle::settle(open, pending, approve, coverage, by.clone()).await?;
            announce(&events, QuestionEvent::Answered { question, approved: approve, by: by.into() });
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
        approve: bool,
        scope: Option<&str>,
    ) -> Result<Option<QuestionState>, InboxError> {
        // Counted as a waiter, so that the answer is used by this call and not kept for another.
        let _waiting = WaiterCount::new(&pending.waiting);
        let answer = GivenAnswer { approve, scope: scope.map(str::to_owned), until: None };
        match self.answer(&pending.id, &answer, "elicitation", AnswerRoute::Agent).await {
            Ok(_) | Err(InboxError::Unknown(_)) => Ok(pending.wait(pending.expires).await),
            Err(error) => Err(error),
        }
    }

    /// Opens a question, or joins the identical one that is open already. A call that `waits` for the answer is counted
    /// before the question becomes visible, and for as long as it holds the returned guard.
    pub(super) async fn open(
        &self,
        draft: NewQuestion,
        waits: bool,
    ) -> Result<(Arc<OpenQuestion>, Option<WaiterCount>), InboxError> {
        self.expire_overdue();
        let key = key(&draft.binding);
        let (pending, waiting, reasons) = {
            let mut open = self.lock();
            if let Some(pending) = open.values().find(|pending| pending.key == key) {
                return Ok((pending.clone(), waits.then(|| WaiterCount::new(&pending.waiting))));
            }
            let of_session = open.values().filter(|pending| pending.session == draft.session).count();
            if open.len() >= MAX_OPEN || of_session >= MAX_OPEN_PER_SESSION {
                return Err(InboxError::Full);
            }
            let NewQuestion {
                summary,
                recorded,
                binding,
                offer,
                acceptable,
                out_of_band,
                session,
                call,
                expires,
                ledger,
            } = draft;
            let pending = Arc::new(OpenQuestion {
                id: summary.id.clone(),
                key,
                summary: Arc::new(summary),
                binding,
                offer,
                acceptable,
                out_of_band,
                session,
                call,
                expires,
                ledger,
                state: watch::Sender::new(QuestionState::Open),
                waiting: Arc::default(),
                passes: AtomicUsize::new(0),
            });
            let waiting = waits.then(|| WaiterCount::new(&pending.waiting));
            open.insert(pending.id.clone(), pending.clone());
            (pending, waiting, recorded)
        };
        let Question { method, tool, source, .. } = &*pending.summary;
        let body = json!({ "ask": pending.id, "method": method, "tool": tool, "source": source, "reasons": reasons });
        if let Err(error) = pending.ledger.append(pending.event(EventKind::CallAsked, body)).await {
            self.withdraw(&pending);
            return Err(error.into());
        }
        announce(&self.events, QuestionEvent::Asked(Arc::clone(&pending.summary)));
        Ok((pending, waiting))
    }

    /// Returns the open question of this id, if it is about a call with this binding.
    pub(super) fn about(&self, id: &str, binding: &GrantBinding) -> Option<Arc<OpenQuestion>> {
        self.expire_overdue();
        self.lock().get(id).filter(|pending| pending.key == key(binding)).cloned()
    }

    /// Withdraws a question that could not be recorded, and denies the calls that joined it meanwhile.
    pub(super) fn withdraw(&self, pending: &OpenQuestion) {
        self.lock().remove(&pending.id);
        pending
            .state
            .send_replace(QuestionState::Refused { by: "the broker, which could not record the question".to_owned() });
    }

    /// Denies a question that has expired.
    pub(super) fn expire(&self, pending: &OpenQuestion) {
        if self.lock().remove(&pending.id).is_some() {
            let body = json!({ "ask": pending.id, "approved": false, "by": "expiry" });
            pending.ledger.record(pending.event(EventKind::CallAnswered, body));
            pending.state.send_replace(QuestionState::Refused { by: "expiry".to_owned() });
            let question = Arc::clone(&pending.summary);
            announce(&self.events, QuestionEvent::Answered { question, approved: false, by: "expiry".into() });
        }
    }

    /// Denies all questions that have expired, including those that no call waits for any more.
    fn expire_overdue(&self) {
        let now = Instant::now();
        let over: Vec<_> = self.lock().values().filter(|pending| pending.expires <= now).cloned().collect();
        over.iter().for_each(|pending| self.expire(pending));
    }

    pub(super) fn find(&self, id: &str) -> Result<Arc<OpenQuestion>, InboxError> {
        let open = self.lock();
        let mut found =
            open.values().filter(|pending| !id.is_empty() && pending.id.starts_with(&id.to_ascii_uppercase()));
        let first = found.next().ok_or_else(|| InboxError::Unknown(id.to_owned()))?;
        if found.next().is_some() { Err(InboxError::Ambiguous(id.to_owned())) } else { Ok(first.clone()) }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<OpenQuestion>>> {
        lock(&self.open)
    }
}

/// Tells the subscribers. It does not matter if there are none.
fn announce(events: &broadcast::Sender<QuestionEvent>, event: QuestionEvent) {
    let _ = events.send(event);
}

fn lock(open: &QuestionMap) -> MutexGuard<'_, HashMap<String, Arc<OpenQuestion>>> {
    open.lock()
}
