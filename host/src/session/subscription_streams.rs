//! The streams of changes (`subscriptions/listen`) that are open in one session.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use super::delay_budget::DelayBudget;
use super::subscription_filter::SubscriptionFilter;
use super::watched_resources::{WatchedResources, is_update};
use crate::protocol::Notification;
use crate::sync::Mutex;

/// Changes that may wait for an agent before the source that makes them waits, too: their number, and their bytes. A
/// change that is larger is dropped: it names a resource, and nothing that an agent could need has this size.
const LISTEN_QUEUE: usize = 64;
const LISTEN_QUEUE_BYTES: usize = 1024 * 1024;

/// The subscription streams of one session.
pub(super) struct SubscriptionStreams {
    open: Mutex<Vec<SubscriptionStream>>,
    /// True once the session has ended its streams.
    pub(super) over: watch::Sender<bool>,
    /// Changes when a source has arrived that was missing.
    pub(super) arrivals: watch::Sender<()>,
}

#[derive(Clone)]
struct SubscriptionStream {
    wants: StreamWants,
    out: ChangeQueue,
    delay_budget: Arc<DelayBudget>,
}

/// The queue of changes that wait for the agent of one stream.
#[derive(Clone)]
pub(super) struct ChangeQueue {
    queue: mpsc::Sender<QueuedChange>,
    /// The bytes that may still be queued.
    room: Arc<Semaphore>,
}

/// A change, with the room that it takes until it is handed on.
pub(super) struct QueuedChange {
    pub(super) notification: Notification,
    _room: OwnedSemaphorePermit,
}

impl ChangeQueue {
    fn new() -> (Self, mpsc::Receiver<QueuedChange>) {
        let (queue, changes) = mpsc::channel(LISTEN_QUEUE);
        (Self { queue, room: Arc::new(Semaphore::new(LISTEN_QUEUE_BYTES)) }, changes)
    }

    /// Queues a change, and waits until there is room for it.
    pub(super) async fn send(&self, notification: Notification) {
        let size = size_of(&notification);
        if size > LISTEN_QUEUE_BYTES {
            tracing::debug!(size, "a change that is too large was dropped");
            return;
        }
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let Ok(room) = Arc::clone(&self.room).acquire_many_owned(size).await else { return };
        // If nobody reads, nobody is notified.
        let _ = self.queue.send(QueuedChange { notification, _room: room }).await;
    }

    /// Queues a change, if there is room for it now.
    fn try_send(&self, notification: Notification) -> bool {
        let size = u32::try_from(size_of(&notification)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).try_acquire_many_owned(size);
        room.is_ok_and(|room| self.queue.try_send(QueuedChange { notification, _room: room }).is_ok())
    }

    fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }
}

fn size_of(notification: &Notification) -> usize {
    notification.params.as_ref().map_or(0, |params| params.as_bytes().len())
}

/// The changes that one stream is notified of.
#[derive(Clone)]
pub(super) struct StreamWants {
    pub(super) lists: SubscriptionFilter,
    pub(super) resources: Arc<WatchedResources>,
}

impl StreamWants {
    /// Returns the wants of a stream that watches no resource yet.
    pub(super) fn of_lists(lists: SubscriptionFilter) -> Self {
        Self { lists, resources: Arc::default() }
    }

    /// Returns the changes that the stream is notified of.
    pub(super) fn filter(&self) -> SubscriptionFilter {
        SubscriptionFilter { updates: self.resources.uris(), ..self.lists.clone() }
    }

    /// Reports whether the stream is notified of a change.
    pub(super) fn takes(&self, notification: &Notification) -> bool {
        if is_update(notification) { self.resources.admits(notification) } else { self.lists.takes(notification) }
    }
}

impl Default for SubscriptionStreams {
    fn default() -> Self {
        Self { open: Mutex::default(), over: watch::Sender::new(false), arrivals: watch::Sender::new(()) }
    }
}

impl SubscriptionStreams {
    /// Sends a change of the broker's own, under its exposed name, to every stream that wants it and has room.
    pub(super) fn notify(&self, notification: &Notification) {
        for SubscriptionStream { wants, out, .. } in &*self.open.lock() {
            if wants.takes(notification) && !out.try_send(notification.clone()) {
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
        self.open.lock().iter().any(|stream| stream.wants.lists.tools && !stream.out.is_closed())
    }

    /// Ends all streams with a result.
    pub(super) fn end(&self) {
        self.over.send_replace(true);
    }

    /// Opens a stream, and returns the two ends of its queue. It is open until the receiver is dropped.
    pub(super) fn open(&self, wants: StreamWants) -> (ChangeQueue, mpsc::Receiver<QueuedChange>) {
        let (out, changes) = ChangeQueue::new();
        let mut open = self.open.lock();
        open.retain(|stream| !stream.out.is_closed());
        open.push(SubscriptionStream { wants, out: out.clone(), delay_budget: Arc::default() });
        (out, changes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use futures_util::{FutureExt as _, poll};

    use super::*;
    use crate::protocol::{Json, Method};

    fn change(size: usize) -> Notification {
        let params = Json::of(&"x".repeat(size - 2));
        Notification { method: Method::NotificationsResourcesUpdated.to_owned(), params: Some(params) }
    }

    #[tokio::test]
    async fn what_waits_for_an_agent_that_does_not_read_has_a_bound_in_bytes() {
        let (queue, mut changes) = ChangeQueue::new();
        let part = LISTEN_QUEUE_BYTES / 4;
        for _ in 0..4 {
            queue.send(change(part)).now_or_never().unwrap();
        }
        // One that is too large is dropped.
        queue.send(change(LISTEN_QUEUE_BYTES + 1)).now_or_never().unwrap();
        let mut fifth = Box::pin(queue.send(change(part)));
        assert!(poll!(&mut fifth).is_pending());
        let first = changes.recv().await.unwrap();
        assert!(poll!(&mut fifth).is_pending(), "it takes its room until it is handed on");
        drop(first);
        assert!(poll!(&mut fifth).is_ready());
        assert!(!queue.try_send(change(part)));
    }
}
