//! Denies questions that nobody has answered in time, whether or not a call still waits for them.

use std::sync::Arc;

use serde_json::json;
use tokio::time::timeout_at;

use super::{EXPIRY, EventSubscribers, OpenQuestion, QuestionEvent, QuestionMap, QuestionState};
use crate::ledger::EventKind;

/// Waits for the answer to a question, and denies the question if there is none when its time is over. Holds neither
/// the question nor the inbox, and ends with either.
pub(super) fn expire_in_time(
    pending: &Arc<OpenQuestion>,
    open: &Arc<QuestionMap>,
    events: &EventSubscribers,
) -> impl Future<Output = ()> + use<> {
    let (expires, mut state) = (pending.expires().into(), pending.state.subscribe());
    let (pending, open, events) = (Arc::downgrade(pending), Arc::downgrade(open), events.downgrade());
    async move {
        // A change before the end of the time is an answer, or the end of the question.
        if timeout_at(expires, state.wait_for(QuestionState::is_final)).await.is_err()
            && let (Some(pending), Some(open), Some(events)) = (pending.upgrade(), open.upgrade(), events.upgrade())
        {
            expire(&pending, &open, &events);
        }
    }
}

/// Denies a question that has expired, unless it was answered meanwhile. If that answer cannot be recorded, the question
/// is denied the next time that somebody looks at it.
pub(super) fn expire(pending: &OpenQuestion, open: &QuestionMap, events: &EventSubscribers) {
    let is_over = {
        let mut open = open.lock();
        pending.is_open() && open.remove(pending.id()).is_some()
    };
    if is_over {
        let body = json!({ "question": pending.id(), "approved": false, "by": EXPIRY });
        pending.terms.ledger.record(pending.event(EventKind::CallAnswered, body));
        pending.state.send_replace(QuestionState::Expired);
        let question = Arc::new(pending.summary());
        events.announce(QuestionEvent::Answered { question, approved: false, by: EXPIRY.into() });
    }
}
