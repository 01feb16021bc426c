//! Notifications of the agent. The protocol's own are for the broker; any other is for a source, and passes the gate as
//! a request of that method does.

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
use crate::protocol::{Answer, Era, Json, Method, Notification, RpcError};
use crate::sync::Mutex;

/// The largest number of notifications of one agent that may wait in the queue. Each is judged before the next, and one
/// may wait for a person.
const MAX_AGENT_NOTIFICATIONS: usize = 64;

/// The longest time that a session that ends waits for its agent's last notifications to be delivered.
const FINISH_TIMEOUT: Duration = Duration::from_secs(3);

/// The longest time that an agent's answer to a source waits for the agent's earlier notifications.
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
    /// Waits until the agent's notifications so far are delivered, for at most [`EARLIER_TIMEOUT`].
    pub(super) async fn catch_up(&self) {
        let mut undelivered = self.undelivered.subscribe();
        let delivered = undelivered.wait_for(|count| *count == 0);
        if tokio::time::timeout(EARLIER_TIMEOUT, delivered).await.is_err() {
            tracing::debug!("an agent's answer goes before its notifications, which take too long");
        }
    }

    /// Waits until the queue is delivered, for at most [`FINISH_TIMEOUT`].
    pub(super) async fn finish(&self) {
        let Some((queue, mut worker)) = self.worker.lock().take() else { return };
        drop(queue);
        if tokio::time::timeout(FINISH_TIMEOUT, &mut worker).await.is_err() {
            worker.abort();
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
            tracing::debug!(method = %escape_hidden(notification.method.as_str()), "a notification of the agent is for no source");
        } else {
            self.queue(notification.clone());
        }
    }

    fn queue(&self, notification: Notification) {
        let mut waiting = self.agent_side.notifications.worker.lock();
        let (queue, _) = waiting.get_or_insert_with(|| {
            let (queue, mut notifications) = mpsc::channel(MAX_AGENT_NOTIFICATIONS);
            let session = self.agent_side.session.clone();
            let worker = tokio::spawn(async move {
                while let Some(notification) = notifications.recv().await {
                    let Some(configured) = session.upgrade().map(|session| session.current()) else { return };
                    if let Err(refusal) = configured.hand_over(notification).await {
                        tracing::debug!(?refusal, "a notification of the agent was not handed over");
                    }
                    configured
                        .agent_side
                        .notifications
                        .undelivered
                        .send_modify(|count| *count = count.saturating_sub(1));
                }
            });
            (queue, worker)
        });
        self.agent_side.notifications.undelivered.send_modify(|count| *count += 1);
        if let Err(full) = queue.try_send(notification) {
            self.agent_side.notifications.undelivered.send_modify(|count| *count = count.saturating_sub(1));
            let text = format!("{MAX_AGENT_NOTIFICATIONS} notifications of this agent wait already");
            let _ = self.record_rejection(
                "too-many-notifications",
                ItemKind::Source,
                full.into_inner().method.as_str(),
                &text,
            );
        }
    }

    /// Takes a notification through the gate and delivers it to its source.
    async fn hand_over(&self, notification: Notification) -> Result<(), Answer> {
        let refused = |error: RpcError| Answer::from(error);
        let Notification { method, params } = notification;
        let params = params.unwrap_or_else(Json::empty_object);
        let mut request = SessionRequest::new(self, method, params, Arc::new(NoAgent));
        // The source that asked learns how its question proceeds; no person is asked about that again.
        let asked = is_of_a_question(&request.method);
        let target = if asked {
            self.asked_by(&request.method, request.params.as_json()).map_err(refused)?
        } else {
            request.source().await.map_err(refused)?
        };
        request.check(&target).map_err(refused)?;
        // A notification has no answer, so a question can only be put to an agent that takes requests.
        if let Some(peer) = self.agent_side.sink.now().filter(|_| self.agent_side.agent.era == Era::Legacy) {
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
                params.get("progressToken").and_then(|token| self.agent_side.source_questions.source(&token)),
                "no open question of a source has this `progressToken`, or more than one has",
            ),
            _ => (
                params.get("taskId").and_then(|id| self.agent_side.source_questions.source_of_task(&id)),
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
}
