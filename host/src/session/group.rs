//! A tool of a group: its members are called one after the other, until one has answered.
//!
//! Each attempt is a separate call, under the member's own identity, definition and risk: policies, questions, intent
//! and outcome are about that member. Any answer ends the search, even an error or a refusal. The next member is called
//! only if the one before surely never had the call, or if both say that doing it twice does no harm and a person has
//! accepted that.

use std::cmp::Reverse;
use std::sync::Arc;

use serde_json::json;

use super::execution::{AttemptResult, AttemptStatus, Execution};
use super::listing::VisibleItem;
use super::request::SessionRequest;
use crate::call::{Cause, GroupAttempt};
use crate::context::Upstream;
use crate::lockfile::Acceptance;
use crate::name::SourceName;
use crate::protocol::{Answer, Json, RpcError};
use crate::source::{ConnectionHealth, SourceStatus};

/// The members that can serve a tool of a group.
#[derive(Debug)]
pub(super) struct ToolGroup {
    pub(super) name: SourceName,
    /// The members in the order of the configuration. The definition of the first is shown.
    pub(super) members: Vec<VisibleItem>,
    /// The sources whose tool of that name takes other arguments than the one that the agent was shown.
    pub(super) mismatched: Vec<SourceName>,
    /// The sources that are absent, and why.
    absent: Vec<(SourceName, Cause)>,
}

/// A member that did not answer.
struct Failure {
    source: SourceName,
    error: Json,
    unknown: bool,
}

impl ToolGroup {
    /// Returns the tool as shown, which is the first member's definition. `seen` holds the tool of each member whose
    /// tool the session may see, in order. `None` if there is none.
    pub(super) fn of(
        name: &SourceName,
        seen: Vec<VisibleItem>,
        absent: &[(Arc<Upstream>, Cause)],
    ) -> Option<VisibleItem> {
        let first = seen.first()?.clone();
        let (members, mismatched): (Vec<_>, Vec<_>) =
            seen.into_iter().partition(|member| member.item.accepts_same_arguments(&first.item));
        let mismatched = mismatched.into_iter().map(|member| member.item.source.clone()).collect();
        let is_member = |(upstream, _): &&(Arc<Upstream>, Cause)| upstream.config.offered_as() == name;
        let absent = absent.iter().filter(is_member);
        let absent = absent.map(|(upstream, why)| (upstream.config.name.clone(), why.clone())).collect();
        let group = ToolGroup { name: name.clone(), members, mismatched, absent };
        Some(VisibleItem { group: Some(Arc::new(group)), ..first })
    }

    /// Returns the members in the order in which they are called: by whether they are known to be down, then by
    /// priority, then by whether they answered the last ping.
    fn in_turn(&self) -> Vec<&VisibleItem> {
        let mut members: Vec<_> = self.members.iter().collect();
        members.sort_by_cached_key(|member| {
            let ConnectionHealth { status, connected, error, .. } = member.upstream.source.health();
            let down = if connected || error.is_none() {
                0
            } else if status == SourceStatus::Failed {
                2
            } else {
                1
            };
            (down, Reverse(member.upstream.config.priority), status == SourceStatus::Degraded)
        });
        members
    }
}

impl VisibleItem {
    /// Reports whether a call that may have been made already may be made again: the tool says that it only reads or is
    /// idempotent, and a person has accepted that definition or trusts the annotations of its source.
    fn may_be_repeated(&self) -> bool {
        let hints = self.item.hints;
        let vouched = self.acceptance == Acceptance::Accepted
            || self.acceptance == Acceptance::Unknown && self.upstream.config.trust_annotations;
        vouched && (hints.claim_harmless() || hints.idempotent == Some(true))
    }
}

impl SessionRequest<'_> {
    /// Sends the request to the members of a group, one after the other.
    pub(super) async fn execute_in(self, group: &ToolGroup) -> Result<Answer, RpcError> {
        if let Some(member) = self.begun_at(&group.members) {
            return self.execute_at(member).await;
        }
        let mut waiting = group.in_turn().into_iter().peekable();
        let mut failures: Vec<Failure> = Vec::new();
        let mut number = 0;
        while let Some(member) = waiting.next() {
            let unknown = failures.iter().any(|failure| failure.unknown);
            if unknown && !member.may_be_repeated() {
                continue;
            }
            number += 1;
            let attempt = GroupAttempt { number, others: waiting.peek().is_some() };
            let attempted = Execution::new(self.clone(), member, Some(attempt)).attempt().await?;
            let (error, unknown) = match attempted {
                AttemptResult { answer: Answer::Error(error), status: AttemptStatus::NotSent } => (error, false),
                AttemptResult { answer: Answer::Error(error), status: AttemptStatus::Unknown } => (error, true),
                AttemptResult { answer, .. } => return Ok(answer),
            };
            let source = member.upstream.config.name.clone();
            tracing::warn!(group = %group.name, %source, attempt = number, "a member of a group did not answer");
            failures.push(Failure { source, error, unknown });
            if unknown && !member.may_be_repeated() {
                break;
            }
        }
        Ok(Answer::Error(all_failed(group, failures)))
    }
}

/// Returns one error for all members, with the cause of each. If there is only one member, returns its own error.
fn all_failed(group: &ToolGroup, mut failures: Vec<Failure>) -> Json {
    if failures.len() == 1
        && group.members.len() == 1
        && group.mismatched.is_empty()
        && group.absent.is_empty()
        && let Some(only) = failures.pop()
    {
        return only.error;
    }
    let asked = |source: &SourceName| failures.iter().any(|failure| failure.source == *source);
    let not_asked = "it was not asked, as another may have acted and this is not known to be harmless twice";
    let cause = |error: &Json| error.get_str("message").unwrap_or_else(|| error.as_str().to_owned());
    let mut causes: Vec<_> = failures.iter().map(|failure| (&failure.source, cause(&failure.error))).collect();
    let rest = group.members.iter().map(|member| &member.upstream.config.name).filter(|source| !asked(source));
    causes.extend(rest.map(|source| (source, not_asked.to_owned())));
    causes.extend(group.mismatched.iter().map(|source| (source, "its tool takes other arguments".to_owned())));
    causes.extend(group.absent.iter().map(|(source, why)| (source, why.to_string())));
    let unknown = failures.iter().any(|failure| failure.unknown);
    let code = if unknown { "outcome-unknown" } else { "not-sent" };
    let named_causes: Vec<_> = causes.iter().map(|(source, why)| format!("`{source}`: {why}")).collect();
    let members: Vec<_> = causes.iter().map(|(source, why)| json!({ "source": source, "error": why })).collect();
    let text = format!("no member of group `{}` answered: {}", group.name, named_causes.join("; "));
    let error = RpcError::new(RpcError::INTERNAL, text);
    Json::of(&error.with_data(json!({ "code": code, "group": group.name, "members": members })))
}
