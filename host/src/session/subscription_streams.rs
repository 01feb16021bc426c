//! The streams of changes (`subscriptions/listen`) that are open in one session.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use super::delay_budget::DelayBudget;
use super::subscription_filter::SubscriptionFilter;
use crate::protocol::Notification;
use crate::sync::Mutex;

/// Changes that may wait for an agent before the source that makes them waits, too.
const LISTEN_QUEUE: usize = 64;

/// The subscription streams of one session.
pub(super) struct SubscriptionStreams {
    open: Mutex<Vec<SubscriptionStream>>,
    /// True once the session has ended its streams.
    pub(super) over: watch::Sender<bool>,
}

#[derive(Clone)]
struct SubscriptionStream {
    wants: SubscriptionFilter,
    out: mpsc::Sender<Notification>,
    delay_budget: Arc<DelayBudget>,
}

impl Default for SubscriptionStreams {
    fn default() -> Self {
        Self { open: Mutex::default(), over: watch::Sender::new(false) }
    }
}

impl SubscriptionStreams {
    /// Sends a change of the broker's own, under its exposed name, to every stream that wants it and has room.
    pub(super) fn notify(&self, notification: &Notification) {
        for SubscriptionStream { wants, out, .. } in &*self.open.lock() {
            if wants.takes(notification) && out.try_send(notification.clone()).is_err() {
                tracing::debug!("an agent does not read its subscription; a change was dropped");
            }
        }
    }

    /// Sends a change that a source announces, and waits for a slow agent as long as its delay budget lasts.
    pub(super) async fn pass(&self, notification: &Notification) {
        let open = self.open.lock().clone();
        for SubscriptionStream { out, delay_budget, .. } in
            open.iter().filter(|stream| stream.wants.takes(notification))
        {
            delay_budget.wait_for(out.send(notification.clone())).await;
        }
    }

    /// Reports whether any stream wants to know that tools have changed.
    pub(super) fn want_tools(&self) -> bool {
        self.open.lock().iter().any(|stream| stream.wants.tools && !stream.out.is_closed())
    }

    /// Ends all streams with a result.
    pub(super) fn end(&self) {
        self.over.send_replace(true);
    }

    /// Opens a stream, and returns the two ends of its queue. It is open until the receiver is dropped.
    pub(super) fn open(&self, wants: SubscriptionFilter) -> (mpsc::Sender<Notification>, mpsc::Receiver<Notification>) {
        let (out, changes) = mpsc::channel(LISTEN_QUEUE);
        let mut open = self.open.lock();
        open.retain(|stream| !stream.out.is_closed());
        open.push(SubscriptionStream { wants, out: out.clone(), delay_budget: Arc::default() });
        (out, changes)
    }
}
