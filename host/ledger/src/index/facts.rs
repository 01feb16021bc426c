//! The facts of a record that the index stores.

use serde::Deserialize;

use crate::record::{EventKind, RecordMembers};

/// The facts of a record that searches need.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct IndexedFacts {
    pub(super) at: u64,
    pub(super) kind: String,
    pub(super) run: Option<String>,
    pub(super) call: Option<String>,
    pub(super) principal: Option<String>,
    pub(super) profile: Option<String>,
    pub(super) error: Option<String>,
    pub(super) outcome: Option<String>,
}

/// The members of a body that searches need.
#[derive(Deserialize, Default)]
struct Body {
    #[serde(default)]
    principal: Option<String>,
    #[serde(default)]
    profile: Option<String>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    outcome: Option<String>,
}

impl IndexedFacts {
    /// Reads the facts of a record. A text that is no record has none, and is shown as damaged when it is read.
    pub(crate) fn of(text: &str) -> Self {
        serde_json::from_str::<RecordMembers<'_>>(text)
            .map_or_else(|_| Self::default(), |members| Self::in_members(&members))
    }

    /// Returns the facts of a record whose members were read.
    pub(crate) fn in_members(members: &RecordMembers<'_>) -> Self {
        let is = |kind: EventKind| members.kind == kind.as_str();
        let (started, failed, completed) =
            (is(EventKind::RunStarted), is(EventKind::RunError), is(EventKind::ToolCompleted));
        let body = if started || failed || completed {
            serde_json::from_str(members.body.get()).unwrap_or_default()
        } else {
            Body::default()
        };
        Self {
            at: members.at,
            kind: members.kind.to_owned(),
            run: members.run.map(str::to_owned),
            call: members.call.map(str::to_owned),
            principal: body.principal.filter(|_| started),
            profile: body.profile.filter(|_| started),
            error: body.error.filter(|_| failed),
            outcome: body.outcome.filter(|_| completed),
        }
    }
}
