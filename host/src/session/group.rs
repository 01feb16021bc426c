//! A tool of a group: its members are called one after the other, until one has answered.
//!
//! Each attempt is a call of its own, under the member's own identity, definition and risk: policies, questions, intent and
//! outcome are about that member. An answer is an answer, also where it is an error or a refusal. The next member is asked
//! only if the one before surely never had the call, or if both say that doing it twice does no harm and a person has accepted
//! that.

use std::cmp::Reverse;
use std::sync::Arc;

use serde_json::json;

use super::Session;
use super::call::Fate;
use super::listing::VisibleItem;
use crate::agent::AgentPeer;
use crate::call::Attempt;
use crate::context::Upstream;
use crate::lockfile::Acceptance;
use crate::name::SourceName;
use crate::protocol::{Answer, Json, Method, RpcError};
use crate::source::{Health, Status};

/// Who can serve a tool of a group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: SourceName,
    /// In the order of the configuration. The first is the one whose definition is shown.
    pub(super) members: Vec<VisibleItem>,
    /// Those that offer a tool of that name which takes other arguments: it is not what the agent was shown.
    pub(super) unlike: Vec<SourceName>,
    /// Those that are not there, and why.
    absent: Vec<(SourceName, String)>,
}

/// A member that did not answer.
struct Failure {
    source: SourceName,
    error: Json,
    unknown: bool,
}

impl Group {
    /// The tool as it is shown: as the first member has it. `seen` are those members that offer a tool of that name which the
    /// session may see, in their order; None if there is none.
    pub(super) fn of(
        name: &SourceName,
        seen: Vec<VisibleItem>,
        absent: &[(Arc<Upstream>, String)],
    ) -> Option<VisibleItem> {
        let first = seen.first()?.clone();
        let (members, unlike): (Vec<_>, Vec<_>) =
            seen.into_iter().partition(|member| member.item.takes_what(&first.item));
        let unlike = unlike.into_iter().map(|member| member.item.source.clone()).collect();
        let is_member = |(upstream, _): &&(Arc<Upstream>, String)| upstream.config.offered_as() == name;
        let absent = absent.iter().filter(is_member);
        let absent = absent.map(|(upstream, why)| (upstream.config.name.clone(), why.clone())).collect();
        let group = Group { name: name.clone(), members, unlike, absent };
        Some(VisibleItem { group: Some(Arc::new(group)), ..first })
    }

    /// The members in the order in which they are called: who is known to be down goes last, then priority decides, then who
    /// does not answer when it is asked whether it lives.
    fn in_turn(&self) -> Vec<&VisibleItem> {
        let mut members: Vec<_> = self.members.iter().collect();
        members.sort_by_cached_key(|member| {
            let Health { status, connected, error, .. } = member.upstream.source.health();
            let down = if connected || error.is_none() {
                0
            } else if status == Status::Failed {
                2
            } else {
                1
            };
            (down, Reverse(member.upstream.config.priority), status == Status::Degraded)
        });
        members
    }
}

impl VisibleItem {
    /// Whether a call that may have been made already may be made again: the tool says that it only reads or that twice is as
    /// good as once, and a person has accepted that definition or trusts what its source says.
    fn may_be_repeated(&self) -> bool {
        let hints = self.item.hints;
        let vouched = self.acceptance == Acceptance::Accepted
            || self.acceptance == Acceptance::Unknown && self.upstream.config.trust_annotations;
        vouched && (hints.claim_harmless() || hints.idempotent == Some(true))
    }
}

impl Session {
    /// Calls a tool of a group.
    pub(super) async fn call_group(
        &self,
        method: &Method,
        params: Json,
        group: &Group,
        contact: &Arc<dyn AgentPeer>,
    ) -> Result<Answer, RpcError> {
        if let Some(member) = self.begun_at(method, &params, &group.members) {
            return self.execute(method, params, member, contact).await;
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
            let attempt = Attempt { number, others: waiting.peek().is_some() };
            let (answer, fate) = self.attempt(method, params.clone(), member, Some(attempt), contact).await?;
            let error = match (fate, answer) {
                (Fate::NotSent | Fate::Unknown, Answer::Error(error)) => error,
                (_, answer) => return Ok(answer),
            };
            let source = member.upstream.config.name.clone();
            tracing::warn!(group = %group.name, %source, attempt = number, "a member of a group did not answer");
            failures.push(Failure { source, error, unknown: fate == Fate::Unknown });
            if fate == Fate::Unknown && !member.may_be_repeated() {
                break;
            }
        }
        Ok(Answer::Error(all_failed(group, failures)))
    }
}

/// One error for all, with the cause of each; of a single one its own.
fn all_failed(group: &Group, mut failures: Vec<Failure>) -> Json {
    if failures.len() == 1
        && group.members.len() == 1
        && group.unlike.is_empty()
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
    causes.extend(group.unlike.iter().map(|source| (source, "its tool takes other arguments".to_owned())));
    causes.extend(group.absent.iter().map(|(source, why)| (source, why.clone())));
    let unknown = failures.iter().any(|failure| failure.unknown);
    let code = if unknown { "outcome-unknown" } else { "not-sent" };
    let told: Vec<_> = causes.iter().map(|(source, why)| format!("`{source}`: {why}")).collect();
    let members: Vec<_> = causes.iter().map(|(source, why)| json!({ "source": source, "error": why })).collect();
    let text = format!("no member of group `{}` answered: {}", group.name, told.join("; "));
    let error = RpcError::new(RpcError::INTERNAL, text);
    Json::of(&error.with_data(json!({ "code": code, "group": group.name, "members": members })))
}
