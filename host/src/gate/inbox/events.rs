//! The events of questions, and those who subscribe to them.

use std::sync::{Arc, Weak};

use tokio::sync::broadcast;

use super::Question;
use super::room::MAX_OPEN;
use crate::sync::Mutex;

/// The number of events that a subscriber may fall behind: twice as many as questions can be open.
const MAX_EVENTS: usize = 2 * MAX_OPEN;

/// An event in the life of a question.
///
/// # Example
/// ```
/// # fn note(event: portcullis::QuestionEvent) {
/// use portcullis::QuestionEvent;
/// match event {
///     QuestionEvent::Asked(question) => println!("{} waits", question.id),
///     QuestionEvent::Answered { question, approved, by, .. } => println!("{by} said {approved} to {}", question.id),
///     _ => {}
/// }
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum QuestionEvent {
    /// A question is open, and recorded. It is as [`Inbox::list`](super::Inbox::list) shows it at that moment.
    Asked(Arc<Question>),
    /// A question is answered, or has expired.
    #[non_exhaustive]
    Answered {
        /// The question, as it was when the answer arrived.
        question: Arc<Question>,
        /// True if the answer is yes.
        approved: bool,
        /// The name of the answering party in the ledger; `expiry` if nobody answered, and `elicitation` for the
        /// agent's own person. Nobody else can answer under these two.
        by: Arc<str>,
    },
}

/// The subscribers to the events of questions, until the broker shuts down.
#[derive(Debug, Clone)]
pub(super) struct EventSubscribers(Arc<Mutex<Option<broadcast::Sender<QuestionEvent>>>>);

/// A reference to the subscribers that keeps no receiver open.
pub(super) struct WeakSubscribers(Weak<Mutex<Option<broadcast::Sender<QuestionEvent>>>>);

impl WeakSubscribers {
    /// Returns the subscribers, unless the inbox is gone or closed.
    pub(super) fn upgrade(&self) -> Option<EventSubscribers> {
        let subscribers = self.0.upgrade().filter(|subscribers| subscribers.lock().is_some())?;
        Some(EventSubscribers(subscribers))
    }
}

impl Default for EventSubscribers {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Some(broadcast::channel(MAX_EVENTS).0))))
    }
}

impl EventSubscribers {
    /// Returns a receiver of the events from now on. After `close` it is one that has ended.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<QuestionEvent> {
        self.0.lock().as_ref().map_or_else(|| broadcast::channel(1).1, broadcast::Sender::subscribe)
    }

    /// Tells the subscribers. It does not matter if there are none.
    pub(super) fn announce(&self, event: QuestionEvent) {
        if let Some(events) = &*self.0.lock() {
            let _ = events.send(event);
        }
    }

    /// Returns a reference that keeps no receiver open, and leads to nothing once the subscribers are gone.
    pub(super) fn downgrade(&self) -> WeakSubscribers {
        WeakSubscribers(Arc::downgrade(&self.0))
    }

    /// Ends all receivers, once they have read their unread events.
    pub(super) fn close(&self) {
        drop(self.0.lock().take());
    }
}
