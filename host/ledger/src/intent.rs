//! Intents that a call does not wait for, and how a record says so.

use super::Event;
use super::record::{EventKind, RecordMembers};

/// The member of an intent's body that says that nobody waited for the record, and its value.
const DURABILITY: &str = "durability";
const QUEUED: &str = "queued";

/// Whether a call waits until its intent is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntentDurability {
    /// The call waits, so that no crash can lose a call that its source has seen.
    BeforeCall,
    /// The call does not wait. Its intent has its place in the order of records and is written within milliseconds,
    /// with the next batch; a crash before that loses it. For calls that can have no effect.
    Queued,
}

/// Returns an intent that says that its call did not wait for it.
pub(super) fn marked(mut event: Event) -> Event {
    event.body.set(DURABILITY, QUEUED);
    event
}

/// Reports whether a record is an intent that its call did not wait for.
pub(super) fn is_queued(record: &RecordMembers<'_>) -> bool {
    #[derive(serde::Deserialize)]
    struct Body<'a> {
        #[serde(borrow)]
        durability: Option<&'a str>,
    }

    let (is_intent, body) = (record.kind == EventKind::CallIntent.as_str(), record.body.get());
    // Most bodies do not contain the word, and need not be parsed for it.
    is_intent
        && body.contains(QUEUED)
        && serde_json::from_str::<Body<'_>>(body).is_ok_and(|body| body.durability == Some(QUEUED))
}
