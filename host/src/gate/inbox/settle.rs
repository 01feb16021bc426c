//! Takes an answer: removes the question from the map, records the answer, then wakes the waiting calls, without being
//! interrupted in between.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;

use super::{AnswerResult, InboxError, LATE_VALIDITY, Open, OpenQuestion, QuestionState, lock, word};
use crate::ledger::{self, ApprovalGrant, EventKind, LedgerError};
use crate::plugin::AnswerScope;

/// Removes a question from the inbox, records the answer, and wakes the calls that wait for it.
pub(super) async fn settle(
    open: Arc<Open>,
    pending: Arc<OpenQuestion>,
    approve: bool,
    scope: AnswerScope,
    by: String,
) -> Result<AnswerResult, InboxError> {
    // Only the task that removes the question from the map answers it.
    if lock(&open).remove(&pending.id).is_none() {
        return Err(InboxError::Unknown(pending.id.clone()));
    }
    let waited = pending.waiting.load(Ordering::SeqCst) > 0;
    if let Err(error) = record(&pending, approve, scope, &by, waited).await {
        lock(&open).insert(pending.id.clone(), pending);
        return Err(error.into());
    }
    let passes = match scope {
        AnswerScope::Session | AnswerScope::Principal => usize::MAX,
        AnswerScope::Once | AnswerScope::Arguments => usize::from(waited),
    };
    pending.passes.store(passes, Ordering::SeqCst);
    pending.state.send_replace(if approve {
        QuestionState::Approved { scope: word(scope), by }
    } else {
        QuestionState::Refused { by }
    });
    let (ask, tool) = (pending.id.clone(), pending.summary.tool.clone());
    Ok(AnswerResult { ask, tool, approved: approve, scope: word(scope), waited })
}

async fn record(
    pending: &OpenQuestion,
    approve: bool,
    scope: AnswerScope,
    by: &str,
    waited: bool,
) -> Result<(), LedgerError> {
    let body = json!({ "ask": pending.id, "approved": approve, "scope": word(scope), "by": by });
    let event = pending.event(EventKind::CallAnswered, body);
    // An answer that no call waits for is kept for the one call that comes back for it.
    let remembered = match scope {
        AnswerScope::Once if waited => None,
        AnswerScope::Once | AnswerScope::Arguments => Some(ledger::GrantScope::Arguments),
        AnswerScope::Session => Some(ledger::GrantScope::Session),
        AnswerScope::Principal => Some(ledger::GrantScope::Principal),
    };
    let ledger = &pending.ledger;
    let Some(remembered) = remembered.filter(|_| approve) else {
        return ledger.append(event).await.map(drop);
    };
    let valid_for =
        if scope == AnswerScope::Once { LATE_VALIDITY } else { Duration::from_secs(pending.offer.valid_for.into()) };
    let uses = NonZeroU32::new(pending.offer.uses);
    let grant = ApprovalGrant::new(&pending.binding, remembered, valid_for, uses)
        .map_err(|error| LedgerError::Body(format!("no randomness for a grant: {error}")))?;
    ledger.append(event).await?;
    let added =
        json!({ "ask": pending.id, "grant": grant.id, "scope": remembered.as_str(), "expires": grant.expires_at });
    ledger.add_grant(grant, pending.event(EventKind::GrantAdded, added)).await
}
