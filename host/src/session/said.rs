//! What an agent says unasked. The protocol's own notifications are for the broker; any other is for a source, and passes the
//! gate as a request of that method does.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::listing::Shown;
use super::{Contact, Era, Nobody, Session};
use crate::call::{Call, arguments_of, is_of_the_protocol};
use crate::catalog::Kind;
use crate::message::{Answer, Json, Notification, RpcError};
use crate::name::SourceName;
use crate::visible::visible;

/// How many notifications of one agent may wait for their turn. Each is judged before the next, and one may wait for a person.
const MAX_SAID: usize = 64;

/// How long a session that ends waits for what its agent said last.
const LAST_WORDS: Duration = Duration::from_secs(3);

const PROGRESS: &str = "notifications/progress";
const ROOTS_CHANGED: &str = "notifications/roots/list_changed";

/// What one agent has said and no source has yet, in its order; and what hands it over. None until there is something.
#[derive(Default)]
pub(super) struct Waiting(Mutex<Option<(mpsc::Sender<Notification>, JoinHandle<()>)>>);

impl Waiting {
    /// Waits for what is still to be handed over, but not for ever.
    pub(super) async fn finish(&self) {
        let Some((queue, mut worker)) = self.lock().take() else { return };
        drop(queue);
        if tokio::time::timeout(LAST_WORDS, &mut worker).await.is_err() {
            worker.abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(mpsc::Sender<Notification>, JoinHandle<()>)>> {
        // The value is whole at every point at which a holder could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The questions of sources that the agent works on and may tell the progress of: their tokens, and whose they are.
#[derive(Default)]
pub(super) struct Asking(Mutex<Vec<(Json, SourceName)>>);

impl Asking {
    /// A question is open until what is returned is dropped.
    pub(super) fn begin(&self, token: Json, source: &SourceName) -> Open<'_> {
        let question = (token, source.clone());
        self.lock().push(question.clone());
        Open { asking: self, question }
    }

    /// Whose question has this token. None if several have: sources choose it, and do not know of each other.
    fn source(&self, token: &Json) -> Option<SourceName> {
        let all = self.lock();
        let mut found = all.iter().filter(|(other, _)| other == token);
        let (_, source) = found.next()?;
        found.next().is_none().then(|| source.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Json, SourceName)>> {
        // The list is whole at every point at which a holder could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open question.
pub(super) struct Open<'a> {
    asking: &'a Asking,
    question: (Json, SourceName),
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut all = self.asking.lock();
        if let Some(at) = all.iter().position(|question| *question == self.question) {
            all.swap_remove(at);
        }
    }
}

impl Session {
    /// Takes a notification of the agent, and does not wait for what becomes of it. That its roots changed is told to sources
    /// in the broker's own words, and progress to the one whose question it is about. What is not of the protocol goes to the source that its `_meta` names under
    /// `portcullis/source`, or to the only one there is, if the gate lets it pass: one after another, each in the ledger.
    pub fn notified(&self, notification: &Notification) {
        if notification.method == ROOTS_CHANGED {
            let changed = Notification { method: ROOTS_CHANGED.to_owned(), params: None };
            for (upstream, _) in self.broker.admitted(&self.caller.profile) {
                upstream.source.tell(&self.caller.session, changed.clone());
            }
        } else if is_of_the_protocol(&notification.method) && notification.method != PROGRESS {
            tracing::debug!(method = %visible(&notification.method), "a notification of the agent is for no source");
        } else {
            self.queue(notification.clone());
        }
    }

    fn queue(&self, notification: Notification) {
        let mut waiting = self.said.lock();
        let (queue, _) = waiting.get_or_insert_with(|| {
            let (queue, mut said) = mpsc::channel(MAX_SAID);
            let me = self.me.clone();
            let worker = tokio::spawn(async move {
                while let Some(notification) = said.recv().await {
                    let Some(session) = me.upgrade() else { return };
                    if let Err(refusal) = session.hand_over(notification).await {
                        tracing::debug!(?refusal, "a notification of the agent was not handed over");
                    }
                }
            });
            (queue, worker)
        });
        if let Err(full) = queue.try_send(notification) {
            let text = format!("{MAX_SAID} notifications of this agent wait already");
            let _ = self.turned_away("too-many-notifications", Kind::Source, &full.into_inner().method, &text);
        }
    }

    /// Takes a notification through the gate and to its source.
    async fn hand_over(&self, notification: Notification) -> Result<(), Answer> {
        let refused = |error: RpcError| Answer::Error(Json::of(&error));
        let Notification { method, params } = notification;
        let params = params.unwrap_or_else(Json::empty_object);
        // Who asks and wants to hear of progress is told; nobody is asked again.
        let asked = method == PROGRESS;
        let target = match asked {
            true => self.asked_by(&params).map_err(refused)?,
            false => self.source_for(&method, &params).await.map_err(refused)?,
        };
        let turned_away = |code, text| Err(refused(self.turned_away(code, Kind::Source, &target.item.exposed, text)));
        if !arguments_of(&method, &params).as_bytes().starts_with(b"{") {
            return turned_away("invalid-params", "`params` must be an object or a list");
        }
        if self.ended() {
            return turned_away("session-ended", "this session has ended");
        }
        let call = Call::new(&method, params, &self.caller, target.item.clone(), target.risk);
        // Nothing is answered, so that only who takes requests can be asked.
        let contact = self.outlet.now().filter(|_| self.agent.era == Era::Legacy);
        let contact = contact.unwrap_or_else(|| Arc::new(Nobody) as Arc<dyn Contact>);
        let (permit, ticket) = self.admit(call, &target, asked, &contact).await?;
        let sent = target.upstream.source.notify(permit, &self.client()).await;
        self.broker.gate.sent(ticket, sent);
        Ok(())
    }

    /// The source whose question, which the agent works on, has the token of this progress.
    fn asked_by(&self, params: &Json) -> Result<Shown, RpcError> {
        let source = params.get("progressToken").and_then(|token| self.asking.source(&token));
        let upstream = source.and_then(|source| self.upstream(source.as_str()));
        upstream.map(|upstream| Shown::whole_source(&upstream)).ok_or_else(|| {
            let text = "no one question of a source that is open has this `progressToken`";
            RpcError::new(RpcError::INVALID_PARAMS, text)
        })
    }
}
