//! Takes an answer: records it, removes the question from the map, then wakes the waiting calls, without being
//! interrupted in between.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;

use super::question::AnswerCoverage;
use super::scope::GivenScope;
use super::{AnswerResult, InboxError, LATE_VALIDITY, OpenQuestion, QuestionMap, QuestionState};
use crate::ledger::{ApprovalGrant, EventKind, GrantScope, LedgerError};
use crate::plugin::AnswerScope;

/// Records the answer to an open question, removes the question from the inbox, and wakes the calls that wait for it.
pub(super) async fn settle(
    open: Arc<QuestionMap>,
    pending: Arc<OpenQuestion>,
    approve: bool,
    coverage: AnswerCoverage,
    by: String,
) -> Result<AnswerResult, InboxError> {
    // Only the task that takes the question out of the open ones answers it.
    {
        let open = open.lock();
        if !open.contains_key(pending.id()) || !pending.is_open() {
            return Err(InboxError::Unknown(pending.id().to_owned()));
        }
        pending.state.send_replace(QuestionState::Recording);
    }
    let waited = pending.waiting.load(Ordering::SeqCst) > 0;
    let grant = match record(&pending, approve, coverage, &by, waited).await {
        Ok(grant) => grant,
        Err(error) => {
            pending.state.send_replace(QuestionState::Open);
            return Err(error);
        }
    };
    open.lock().remove(pending.id());
    let AnswerCoverage { scope, until } = coverage;
    let passes = match scope {
        GivenScope::Offered(AnswerScope::Session | AnswerScope::Principal) | GivenScope::Always => usize::MAX,
        GivenScope::Offered(AnswerScope::Once | AnswerScope::Arguments) => usize::from(waited),
    };
    pending.passes.store(passes, Ordering::SeqCst);
    pending.state.send_replace(if approve {
        QuestionState::Approved { scope, by, grant }
    } else {
        QuestionState::Refused
    });
    let (question, tool) = (pending.id().to_owned(), pending.terms.summary.tool.clone());
    Ok(AnswerResult { question, tool, approved: approve, scope: scope.as_str(), until, waited })
}

/// Records an answer. Returns the grant that it makes, if that is for several calls.
async fn record(
    pending: &OpenQuestion,
    approve: bool,
    AnswerCoverage { scope, until }: AnswerCoverage,
    by: &str,
    waited: bool,
) -> Result<Option<String>, InboxError> {
    let mut body = json!({ "question": pending.id(), "approved": approve, "scope": scope.as_str(), "by": by });
    if let (Some(until), Some(body)) = (until, body.as_object_mut()) {
        body.insert("until".to_owned(), json!(until));
    }
    let event = pending.event(EventKind::CallAnswered, body);
    let ledger = &pending.terms.ledger;
    // An answer that no call waits for is kept for the one call that comes back for it.
    let remembered = match scope {
        _ if !approve => None,
        GivenScope::Offered(AnswerScope::Once) if waited => None,
        GivenScope::Offered(AnswerScope::Once | AnswerScope::Arguments) => Some(GrantScope::Arguments),
        GivenScope::Offered(AnswerScope::Session) => Some(GrantScope::Session),
        GivenScope::Offered(AnswerScope::Principal) => Some(GrantScope::Principal),
        GivenScope::Always => {
            if let Some(tool) = pending.terms.acceptable.clone() {
                // A damaged lock file accepts nothing.
                tool.lock.current().await.map_err(Arc::new)?;
                ledger.append(pending.event(EventKind::LockAccepted, tool.item.acceptance_record(by))).await?;
                tool.accept().await.map_err(Arc::new)?;
            }
            None
        }
    };
    let Some(remembered) = remembered else {
        ledger.append(event).await?;
        return Ok(None);
    };
    let valid_for = match scope {
        GivenScope::Offered(AnswerScope::Once) => LATE_VALIDITY,
        _ => Duration::from_secs(pending.terms.offer.valid_for.into()),
    };
    let uses = NonZeroU32::new(pending.terms.offer.uses);
    let mut grant = ApprovalGrant::new(&pending.terms.binding, remembered, valid_for, uses)
        .map_err(|error| LedgerError::Body(format!("no randomness for a grant: {error}")))?;
    grant.expires_at = until.map_or(grant.expires_at, |until| until.min(grant.expires_at));
    let added = json!({ "question": pending.id(), "grant": grant.id, "scope": remembered.as_str(), "expires": grant.expires_at });
    let used = matches!(remembered, GrantScope::Session | GrantScope::Principal).then(|| grant.id.clone());
    ledger.add_grant(grant, [event, pending.event(EventKind::GrantAdded, added)]).await?;
    Ok(used)
}
