//! Notifications of the agent. The protocol's own are for the broker; any other is for a source, and passes the gate as
//! a request of that method does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::configured::ConfiguredSession;
use super::listing::VisibleItem;
use super::request::SessionRequest;
use crate::agent::NoAgent;
use crate::call::Delivery;
use crate::escape::escape_hidden;
use crate::gate::AdmittedCall;
use crate::item::ItemKind;
use crate::name::SourceName;
use crate::protocol::{Answer, Era, Json, MAX_ID_BYTES, Method, Notification, RpcError};
use crate::sync::{Mutex, MutexGuard};

/// The largest number of notifications of one agent that may wait in the queue. Each is judged before the next, and one
/// may wait for a person.
const MAX_AGENT_NOTIFICATIONS: usize = 64;

/// The longest time that a session that ends waits for its agent's last notifications to be delivered.
const FINISH_TIMEOUT: Duration = Duration::from_secs(3);

/// The largest number of the agent's tasks that are remembered. Beyond it the oldest is forgotten.
const MAX_TASKS: usize = 256;

/// The longest time that an agent's answer to a source waits for what the agent has said before.
const EARLIER_TIMEOUT: Duration = Duration::from_secs(1);

/// The queue of an agent's notifications, in their order.
#[derive(Default)]
pub(super) struct NotificationQueue {
    /// The queue and the worker that delivers it. `None` until the first notification.
    worker: Mutex<Option<(mpsc::Sender<Notification>, JoinHandle<()>)>>,
    /// The number of notifications that are not delivered yet.
    undelivered: watch::Sender<usize>,
}

impl NotificationQueue {
    /// Waits until what the agent has said up to now is delivered, for at most [`EARLIER_TIMEOUT`].
    pub(super) async fn catch_up(&self) {
        let mut undelivered = self.undelivered.subscribe();
        let delivered = undelivered.wait_for(|count| *count == 0);
        if tokio::time::timeout(EARLIER_TIMEOUT, delivered).await.is_err() {
            tracing::debug!("an agent's answer goes before its notifications, which take too long");
        }
    }

    /// Waits until the queue is delivered, for at most [`FINISH_TIMEOUT`].
    pub(super) async fn finish(&self) {
        let Some((queue, mut worker)) = self.lock().take() else { return };
        drop(queue);
        if tokio::time::timeout(FINISH_TIMEOUT, &mut worker).await.is_err() {
            worker.abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(mpsc::Sender<Notification>, JoinHandle<()>)>> {
        self.worker.lock()
    }
}

/// The questions of sources that the agent works on: the tokens and tasks by which the agent refers to them, and the
/// sources that asked.
#[derive(Default)]
pub(super) struct SourceElicitations(Mutex<Questions>);

#[derive(Default)]
struct Questions {
    /// The questions that are not answered yet, by their progress token.
    open: Vec<(Json, SourceName)>,
    /// The questions that the agent answered with a task, by the id of the task.
    tasks: VecDeque<(Json, SourceName)>,
}

impl SourceElicitations {
    /// Opens a question, which stays open until the returned guard is dropped.
    pub(super) fn begin(&self, token: Json, source: &SourceName) -> OpenElicitation<'_> {
        let question = (token, source.clone());
        self.lock().open.push(question.clone());
        OpenElicitation { asking: self, question }
    }

    /// Remembers the task of an answer, if the agent answered with one (2025-11-25, "Tasks").
    pub(super) fn answered(&self, answer: &Answer, source: &SourceName) {
        let Answer::Result(result) = answer else { return };
        let id = result.get("task").and_then(|task| task.get("taskId"));
        let Some(id) = id.filter(|id| id.as_bytes().len() <= MAX_ID_BYTES) else { return };
        let mut questions = self.lock();
        if questions.tasks.len() == MAX_TASKS {
            questions.tasks.pop_front();
        }
        questions.tasks.push_back((id.detached(), source.clone()));
    }

    /// Returns the source whose question has this token. `None` if several have: sources choose tokens without knowing
    /// of each other.
    fn source(&self, token: &Json) -> Option<SourceName> {
        let questions = self.lock();
        let mut found = questions.open.iter().filter(|(other, _)| other == token);
        let (_, source) = found.next()?;
        found.next().is_none().then(|| source.clone())
    }

    /// Returns the source whose question became this task.
    fn source_of_task(&self, id: &Json) -> Option<SourceName> {
        self.lock().tasks.iter().find(|(other, _)| other == id).map(|(_, source)| source.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Questions> {
        self.0.lock()
    }
}

/// An open question.
pub(super) struct OpenElicitation<'a> {
    asking: &'a SourceElicitations,
    question: (Json, SourceName),
}

impl Drop for OpenElicitation<'_> {
    fn drop(&mut self) {
        let mut questions = self.asking.lock();
        if let Some(at) = questions.open.iter().position(|question| *question == self.question) {
            questions.open.swap_remove(at);
        }
    }
}

impl ConfiguredSession {
    /// Takes a notification of the agent. See [`Session::notified`](super::Session::notified).
    pub(super) fn notified(&self, notification: &Notification) {
        if notification.method == Method::NotificationsRootsListChanged {
            let changed = Notification { method: Method::NotificationsRootsListChanged.to_owned(), params: None };
            for (upstream, _) in self.context.admitted(&self.caller.profile) {
                upstream.source.queue_notification(&self.caller.session, changed.clone());
            }
        } else if notification.method.is_reserved() && !is_of_a_question(&notification.method) {
            tracing::debug!(method = %escape_hidden(&notification.method), "a notification of the agent is for no source");
        } else {
            self.queue(notification.clone());
        }
    }

    fn queue(&self, notification: Notification) {
        let mut waiting = self.notifications.lock();
        let (queue, _) = waiting.get_or_insert_with(|| {
            let (queue, mut notifications) = mpsc::channel(MAX_AGENT_NOTIFICATIONS);
            let session = self.session.clone();
            let worker = tokio::spawn(async move {
                while let Some(notification) = notifications.recv().await {
                    let Some(configured) = session.upgrade().map(|session| session.current()) else { return };
                    if let Err(refusal) = configured.hand_over(notification).await {
                        tracing::debug!(?refusal, "a notification of the agent was not handed over");
                    }
                    configured.notifications.undelivered.send_modify(|count| *count = count.saturating_sub(1));
                }
            });
            (queue, worker)
        });
        self.notifications.undelivered.send_modify(|count| *count += 1);
        if let Err(full) = queue.try_send(notification) {
            self.notifications.undelivered.send_modify(|count| *count = count.saturating_sub(1));
            let text = format!("{MAX_AGENT_NOTIFICATIONS} notifications of this agent wait already");
            let _ = self.record_rejection("too-many-notifications", ItemKind::Source, &full.into_inner().method, &text);
        }
    }

    /// Takes a notification through the gate and delivers it to its source.
    async fn hand_over(&self, notification: Notification) -> Result<(), Answer> {
        let refused = |error: RpcError| Answer::Error(Json::of(&error));
        let Notification { method, params } = notification;
        let params = params.unwrap_or_else(Json::empty_object);
        let mut request = SessionRequest::new(self, method, params, Arc::new(NoAgent));
        // The source that asked is told how its question proceeds; no person is asked about that again.
        let asked = is_of_a_question(&request.method);
        let target = match asked {
            true => self.asked_by(&request.method, request.params.as_json()).map_err(refused)?,
            false => request.source().await.map_err(refused)?,
        };
        let record_rejection =
            |code, text| Err(refused(self.record_rejection(code, ItemKind::Source, &target.item.exposed, text)));
        if !request.params.arguments().as_bytes().starts_with(b"{") {
            return record_rejection("invalid-params", "`params` must be an object or a list");
        }
        if self.ended() {
            return record_rejection("session-ended", "this session has ended");
        }
        // A notification has no answer, so a question can only be put to an agent that takes requests.
        if let Some(peer) = self.sink.now().filter(|_| self.agent.era == Era::Legacy) {
            request.peer = peer;
        }
        let AdmittedCall { permit, ticket } = request.admit(&target, None, asked).await?;
        let sent = target.upstream.source.notify(permit, &self.client()).await;
        let delivery = sent.map_or_else(Delivery::from, |()| Delivery::Sent);
        ticket.sent(&delivery);
        Ok(())
    }

    /// Returns the source whose open question a notification is about.
    fn asked_by(&self, method: &Method, params: &Json) -> Result<VisibleItem, RpcError> {
        let (source, text) = match method {
            Method::NotificationsProgress => (
                params.get("progressToken").and_then(|token| self.asking.source(&token)),
                "no open question of a source has this `progressToken`, or more than one has",
            ),
            _ => (
                params.get("taskId").and_then(|id| self.asking.source_of_task(&id)),
                "no question of a source became the task of this `taskId`",
            ),
        };
        let upstream = source.and_then(|source| self.upstream(source.as_str()));
        let target = upstream.map(|upstream| VisibleItem::whole_source(&upstream));
        target.ok_or_else(|| RpcError::new(RpcError::INVALID_PARAMS, text))
    }
}

/// Reports whether a notification is about a question that the agent works on.
fn is_of_a_question(method: &Method) -> bool {
    matches!(method, Method::NotificationsProgress | Method::NotificationsTasksStatus)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_waits_for_what_the_agent_said_before_and_not_for_ever() {
        let queue = NotificationQueue::default();
        queue.catch_up().await;
        queue.undelivered.send_replace(2);
        let deliver = async {
            for left in [1, 0] {
                tokio::time::sleep(EARLIER_TIMEOUT / 4).await;
                queue.undelivered.send_replace(left);
            }
        };
        let begun = tokio::time::Instant::now();
        tokio::join!(queue.catch_up(), deliver);
        assert_eq!(begun.elapsed(), EARLIER_TIMEOUT / 2);
        queue.undelivered.send_replace(1);
        queue.catch_up().await;
        assert_eq!(begun.elapsed(), EARLIER_TIMEOUT / 2 + EARLIER_TIMEOUT);
    }

    #[test]
    fn progress_leads_to_the_one_open_question_with_its_token() {
        let asking = SourceElicitations::default();
        let source = |name: &str| name.parse::<SourceName>().unwrap();
        let (token, other) = (Json::of(&"t"), Json::of(&1));
        let near = asking.begin(token.clone(), &source("near"));
        assert_eq!(asking.source(&token), Some(source("near")));
        assert_eq!(asking.source(&other), None);
        let far = asking.begin(token.clone(), &source("far"));
        assert_eq!(asking.source(&token), None, "it could be of either");
        drop(near);
        assert_eq!(asking.source(&token), Some(source("far")));
        drop(far);
        assert_eq!(asking.source(&token), None);
    }

    #[test]
    fn a_task_leads_to_whose_question_it_was_and_the_oldest_is_forgotten() {
        let asking = SourceElicitations::default();
        let source = "near".parse::<SourceName>().unwrap();
        let task = |n: usize| Json::of(&format!("task {n}"));
        for n in 0..=MAX_TASKS {
            let answer =
                Json::of(&serde_json::json!({ "task": { "taskId": format!("task {n}"), "status": "working" } }));
            asking.answered(&Answer::Result(answer), &source);
        }
        asking.answered(&Answer::Result(Json::of(&serde_json::json!({ "action": "accept" }))), &source);
        assert_eq!((asking.source_of_task(&task(0)), asking.source_of_task(&task(1))), (None, Some(source.clone())));
        assert_eq!(asking.source_of_task(&task(MAX_TASKS)), Some(source));
    }
}
