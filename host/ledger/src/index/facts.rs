//! The facts of a record that the index stores, and of the call that it is about.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::calls::RecordedOutcome;
use crate::record::{EventKind, RecordMembers};

/// The longest name of an item that is listed, in bytes.
const MAX_NAME: usize = 256;

/// The facts of a record that searches need.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct IndexedFacts<'a> {
    pub(super) at: u64,
    pub(super) kind: Cow<'a, str>,
    pub(super) run: Option<Cow<'a, str>>,
    pub(super) call: Option<Cow<'a, str>>,
    pub(super) error: Option<Cow<'a, str>>,
    pub(super) names: RecordNames<FactName<'a>>,
    pub(super) stage: CallStage,
    /// The outcome as a `tool.completed` names it; otherwise empty.
    pub(super) outcome: Cow<'a, str>,
}

/// The names of each kind that a record or a call has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct RecordNames<T> {
    pub(crate) principal: T,
    pub(crate) profile: T,
    pub(crate) source: T,
    pub(crate) item: T,
}

/// A name, as far as the index knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum FactName<'a> {
    /// The member is missing.
    #[default]
    Absent,
    /// There is one, which the list of names does not have: somebody outside can choose it, so there may be any number.
    Unlisted,
    Listed(Cow<'a, str>),
}

/// How far a record brings its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum CallStage {
    #[default]
    Open,
    Asked,
    Refused,
    Deferred,
    Sent,
    Ended(RecordedOutcome),
    Denied,
}

/// The members of a body that searches need. A member that is not a text is skipped.
#[derive(Deserialize, Default)]
struct Body<'a> {
    #[serde(borrow)]
    principal: Option<&'a RawValue>,
    #[serde(borrow)]
    profile: Option<&'a RawValue>,
    #[serde(borrow)]
    source: Option<&'a RawValue>,
    #[serde(borrow)]
    tool: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    resource: Option<&'a RawValue>,
    #[serde(borrow)]
    template: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    outcome: Option<&'a RawValue>,
    #[serde(borrow)]
    approved: Option<&'a RawValue>,
}

impl<'a> IndexedFacts<'a> {
    /// Reads the facts of a record. A text that is not a record has no facts, and is shown as damaged when it is read.
    pub(crate) fn of(text: &'a str) -> Self {
        serde_json::from_str::<RecordMembers<'a>>(text)
            .map_or_else(|_| Self::default(), |members| Self::in_members(&members))
    }

    /// Returns the facts of a record whose members were read.
    pub(crate) fn in_members(members: &RecordMembers<'a>) -> Self {
        let is = |kind: EventKind| members.kind == kind.as_str();
        let (is_start, is_error) = (is(EventKind::RunStarted), is(EventKind::RunError));
        let has_facts = members.call.is_some() || is_start || is_error;
        let body: Body<'a> = match has_facts {
            true => serde_json::from_str(members.body.get()).unwrap_or_default(),
            false => Body::default(),
        };
        let outcome = text(body.outcome).filter(|_| is(EventKind::ToolCompleted)).unwrap_or_default();
        Self {
            at: members.at,
            kind: members.kind.into(),
            run: members.run.map(Cow::from),
            call: members.call.map(Cow::from),
            error: text(body.error).filter(|_| is_error),
            stage: CallStage::of(members.kind, &outcome, body.approved.map(RawValue::get)),
            names: body.names(),
            outcome,
        }
    }

    /// Returns the facts without a borrow of the record's text.
    pub(super) fn into_owned(self) -> IndexedFacts<'static> {
        let owned = |text: Cow<'a, str>| Cow::Owned(text.into_owned());
        let name = |name: FactName<'a>| match name {
            FactName::Absent => FactName::Absent,
            FactName::Unlisted => FactName::Unlisted,
            FactName::Listed(name) => FactName::Listed(owned(name)),
        };
        let Self { at, kind, run, call, error, names, stage, outcome } = self;
        let RecordNames { principal, profile, source, item } = names;
        IndexedFacts {
            at,
            kind: owned(kind),
            run: run.map(owned),
            call: call.map(owned),
            error: error.map(owned),
            names: RecordNames {
                principal: name(principal),
                profile: name(profile),
                source: name(source),
                item: name(item),
            },
            stage,
            outcome: owned(outcome),
        }
    }
}

impl<'a> Body<'a> {
    fn names(&self) -> RecordNames<FactName<'a>> {
        let listed = |raw| text(raw).map_or(FactName::Absent, FactName::Listed);
        let source = listed(self.source);
        let listable = [self.tool, self.prompt].into_iter().find_map(text);
        let item = match listable.or_else(|| text(self.resource)).or_else(|| text(self.template)) {
            None => FactName::Absent,
            // There are few tools and prompts, and any number of addresses, and of names that agents invent.
            Some(name) if source != FactName::Absent && self.resource.is_none() && name.len() <= MAX_NAME => {
                FactName::Listed(name)
            }
            Some(_) => FactName::Unlisted,
        };
        RecordNames { principal: listed(self.principal), profile: listed(self.profile), source, item }
    }
}

/// Returns a member that is a text.
fn text(raw: Option<&RawValue>) -> Option<Cow<'_, str>> {
    let raw = raw?.get();
    let content = raw.strip_prefix('"')?.strip_suffix('"')?;
    match content.contains('\\') {
        false => Some(content.into()),
        true => serde_json::from_str::<String>(raw).ok().map(Cow::from),
    }
}

impl<T> RecordNames<T> {
    pub(crate) fn each(&self) -> [&T; 4] {
        let Self { principal, profile, source, item } = self;
        [principal, profile, source, item]
    }
}

impl CallStage {
    fn of(kind: &str, outcome: &str, approved: Option<&str>) -> Self {
        let is = |wanted: EventKind| kind == wanted.as_str();
        if is(EventKind::CallDenied) {
            Self::Denied
        } else if is(EventKind::ToolCompleted) {
            Self::Ended(RecordedOutcome::of_text(outcome))
        } else if is(EventKind::CallIntent) {
            Self::Sent
        } else if is(EventKind::CallDeferred) {
            Self::Deferred
        } else if is(EventKind::CallAnswered) && approved == Some("false") {
            Self::Refused
        } else if is(EventKind::CallAsked) {
            Self::Asked
        } else {
            Self::Open
        }
    }

    /// Returns the stage of a call after another record. The first of several outcomes counts.
    pub(crate) fn then(self, later: Self) -> Self {
        if later.rank() > self.rank() { later } else { self }
    }

    /// Reports whether this stage is the last of a call. A person may answer after a call was deferred.
    pub(super) fn is_end(self) -> bool {
        matches!(self, Self::Ended(_) | Self::Denied)
    }

    fn rank(self) -> u8 {
        match self {
            Self::Open => 0,
            Self::Asked => 1,
            Self::Refused => 2,
            Self::Deferred => 3,
            Self::Sent => 4,
            Self::Ended(_) => 5,
            Self::Denied => 6,
        }
    }

    /// Reports whether a call at this stage may have this outcome. Whether a call is open depends on whether its broker
    /// lives.
    pub(crate) fn may_be(self, outcome: RecordedOutcome) -> bool {
        match self {
            Self::Open => matches!(outcome, RecordedOutcome::Running | RecordedOutcome::Abandoned),
            Self::Asked => matches!(outcome, RecordedOutcome::Asked | RecordedOutcome::Abandoned),
            Self::Refused | Self::Denied => outcome == RecordedOutcome::Denied,
            Self::Deferred => outcome == RecordedOutcome::Deferred,
            Self::Sent => matches!(outcome, RecordedOutcome::Running | RecordedOutcome::Unknown),
            Self::Ended(ended) => ended == outcome,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Asked => "asked",
            Self::Refused => "refused",
            Self::Deferred => "deferred",
            Self::Sent => "sent",
            Self::Ended(outcome) => outcome.as_str(),
            Self::Denied => "denied",
        }
    }

    /// Reads a stage; `None` if no version of the index writes it.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        let plain = [Self::Open, Self::Asked, Self::Refused, Self::Deferred, Self::Sent, Self::Denied];
        let ended = RecordedOutcome::ALL.map(Self::Ended);
        plain.into_iter().chain(ended).find(|stage| stage.as_str() == word)
    }
}
