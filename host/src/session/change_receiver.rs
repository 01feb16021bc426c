//! The receiver of the changes that one source announces, for a stream of the agent or for a legacy agent.

use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::change_throttle::ChangeThrottle;
use super::configured::ConfiguredSession;
use super::delay_budget::DelayBudget;
use super::subscription_streams::{ChangeQueue, StreamWants};
use crate::agent::{AgentPeer, Elicitation};
use crate::context::Upstream;
use crate::protocol::{Answer, Json, Method, Notification, meta};
use crate::source::nobody_to_ask;
use crate::sync::Mutex;

/// Receives the changes of a modern source: for one stream of the agent, or for a legacy agent.
pub(super) struct ChangeReceiver {
    target: ChangeTarget,
    changes: ChangeThrottle,
    /// The part in a channel that closes once every source has acknowledged its subscription, or failed to. `None` if
    /// nobody waits for that.
    unacknowledged: Mutex<Option<mpsc::Sender<Infallible>>>,
    /// The time at which the source acknowledged the subscription. `None` while there is none.
    open_since: Mutex<Option<Instant>>,
    /// The changes that may have come while the subscription was lost.
    missed: Mutex<Vec<Notification>>,
}

impl ChangeReceiver {
    /// Returns a receiver for a stream, or for the legacy agent of the session. It keeps `unacknowledged` until the source
    /// has acknowledged. Then it announces `missed`: the changes that may have come since an earlier subscription.
    pub(super) fn new(
        session: &ConfiguredSession,
        upstream: &Arc<Upstream>,
        stream: Option<ChangeStream>,
        unacknowledged: Option<mpsc::Sender<Infallible>>,
        missed: Vec<Notification>,
    ) -> Self {
        Self {
            target: ChangeTarget {
                session: session.me.clone(),
                upstream: Arc::clone(upstream),
                stream,
                delay_budget: Arc::default(),
            },
            changes: ChangeThrottle::default(),
            unacknowledged: Mutex::new(unacknowledged),
            open_since: Mutex::default(),
            missed: Mutex::new(missed),
        }
    }

    /// Notes that the subscription was lost, and returns the time for which it was there. Once the source acknowledges it
    /// again, these changes are announced.
    pub(super) fn lost(&self, missed: Vec<Notification>) -> Duration {
        self.acknowledge();
        *self.missed.lock() = missed;
        self.open_since.lock().take().map(|since| since.elapsed()).unwrap_or_default()
    }

    /// Passes on a change that the source announces, or may have announced.
    async fn pass(&self, notification: Notification) {
        let target = self.target.clone();
        if let Some(session) = target.session.upgrade() {
            session.forget_changed(target.upstream.config.name.as_str(), &notification.method);
        }
        let receive = move |change| -> BoxFuture<'static, ()> {
            let target = target.clone();
            Box::pin(async move { target.receive(change).await })
        };
        self.changes.pass(self.target.upstream.config.name.as_str(), notification, receive).await;
    }

    /// Gives up the part in the channel of acknowledgements.
    pub(super) fn acknowledge(&self) {
        *self.unacknowledged.lock() = None;
    }
}

/// A stream of the agent, which receives changes.
#[derive(Clone)]
pub(super) struct ChangeStream {
    pub(super) queue: ChangeQueue,
    /// The changes that the stream is notified of.
    pub(super) wants: StreamWants,
}

#[derive(Clone)]
struct ChangeTarget {
    session: Weak<ConfiguredSession>,
    upstream: Arc<Upstream>,
    /// The stream to which changes go, or `None` for the legacy agent of the session.
    stream: Option<ChangeStream>,
    delay_budget: Arc<DelayBudget>,
}

impl ChangeTarget {
    async fn receive(&self, notification: Notification) {
        let Some(session) = self.session.upgrade() else { return };
        let tell = session.changed(&self.upstream, &notification.method);
        if !tell {
            return;
        }
        match &self.stream {
            Some(stream) if stream.wants.takes(&notification) => {
                self.delay_budget.wait_for(stream.queue.send(notification)).await;
            }
            Some(_) => tracing::debug!("a change that the stream does not want was dropped"),
            None => session.tell_legacy(unmarked(notification)).await,
        }
    }
}

impl AgentPeer for ChangeReceiver {
    fn notify(&self, notification: Notification) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if notification.method == Method::NotificationsSubscriptionsAcknowledged {
                self.acknowledge();
                self.open_since.lock().get_or_insert_with(Instant::now);
                let missed = std::mem::take(&mut *self.missed.lock());
                for change in missed {
                    self.pass(change).await;
                }
                return;
            }
            self.pass(notification).await;
        })
    }

    fn elicitation(&self) -> Elicitation {
        Elicitation::None
    }

    fn request<'a>(&'a self, _: &'a Method, _: Option<Json>) -> BoxFuture<'a, Answer> {
        Box::pin(async move { nobody_to_ask() })
    }
}

/// Returns a notification without the id of its subscription, for an agent that knows no subscriptions.
pub(super) fn unmarked(notification: Notification) -> Notification {
    let params = notification.params.map(|params| match params.get("_meta") {
        Some(meta) => params.with("_meta", &meta.without(meta::SUBSCRIPTION_ID)).unwrap_or(params),
        None => params,
    });
    Notification { params, ..notification }
}
