//! Calls as people look for them: one entry for a call, with how it ended.

use std::ops::ControlFlow;

use serde_json::Value;

use super::LedgerError;
use super::chain::is_live;
use super::index::{call_of, first_key_at};
use super::read::{LedgerReader, PositionedRecord, RecordFilter};
use super::record::EventKind;
use super::search::{CallFilter, SearchError, SearchPlan};

/// The largest number of records of one call that make its entry. Only a call that plugins fail over and over has more
/// than a few.
const MAX_RECORDS: usize = 1000;

/// The calls to consider: those that began in a period, in one run or in all.
#[derive(Debug, Clone, Default)]
pub struct CallRange {
    /// The first moment, in milliseconds since the Unix epoch; `None` for no limit.
    pub since: Option<u64>,
    /// The moment that the period ends before, in milliseconds since the Unix epoch; `None` for no limit.
    pub until: Option<u64>,
    /// The run that made the calls; `None` for all.
    pub run: Option<String>,
    /// True if the newest call comes first.
    pub newest_first: bool,
}

/// The outcome of a call in the words in which people ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordedOutcome {
    /// The source answered, or took a notification.
    Ok,
    /// The tool reported that it failed, or the source answered with an error.
    Failed,
    /// The gate refused the call.
    Denied,
    /// The source answered, and the gate refused to give the answer to the agent.
    Withheld,
    /// A person was asked, and the call has not continued yet.
    Asked,
    /// A person was asked, and the agent was told to send the call again once they have answered.
    Deferred,
    /// The call is with the gate or the source.
    Running,
    /// It is not known whether the source acted.
    Unknown,
    /// The call was allowed and could not be sent.
    NotSent,
    /// The broker ended before the call was decided.
    Abandoned,
}

impl RecordedOutcome {
    /// All outcomes.
    pub const ALL: [Self; 10] = [
        Self::Ok,
        Self::Failed,
        Self::Denied,
        Self::Withheld,
        Self::Asked,
        Self::Deferred,
        Self::Running,
        Self::Unknown,
        Self::NotSent,
        Self::Abandoned,
    ];

    /// Returns the word for the outcome, as serialised.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Denied => "denied",
            Self::Withheld => "withheld",
            Self::Asked => "asked",
            Self::Deferred => "deferred",
            Self::Running => "running",
            Self::Unknown => "unknown",
            Self::NotSent => "not-sent",
            Self::Abandoned => "abandoned",
        }
    }

    /// Returns the outcome that a `tool.completed` names.
    pub(super) fn of_text(outcome: &str) -> Self {
        match outcome {
            "ok" | "sent" => Self::Ok,
            "tool_error" | "error" => Self::Failed,
            "withheld" => Self::Withheld,
            "not-sent" => Self::NotSent,
            // An outcome of a later version claims nothing that this one understands.
            _ => Self::Unknown,
        }
    }

    /// Reports whether nothing more will be recorded of the call.
    #[must_use]
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Asked | Self::Running)
    }
}

/// A call in one line: the caller, the item and the outcome.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallEntry {
    /// The call's identifier.
    pub call: String,
    /// The call's session.
    pub run: Option<String>,
    /// The time at which the call began, in milliseconds since the Unix epoch.
    pub started: u64,
    /// The principal who called.
    pub principal: Option<String>,
    /// The profile of the caller.
    pub profile: Option<String>,
    /// The client program.
    pub client: Option<String>,
    /// The method of the protocol.
    pub method: Option<String>,
    /// The kind of the item, such as `tool`.
    pub kind: Option<&'static str>,
    /// The name of the item, as the agent sees it.
    pub item: Option<String>,
    /// The source that was called.
    pub source: Option<String>,
    /// The outcome.
    pub outcome: RecordedOutcome,
    /// The code of the refusal, or the cause of the failure.
    pub reason: Option<String>,
    /// The person or the rule that answered the question about the call, if one was asked.
    pub answered_by: Option<String>,
    /// The time from the gate to the answer, in microseconds; `None` if the call was not sent.
    pub micros: Option<u64>,
}

impl LedgerReader {
    /// Visits the calls of a range that meet the conditions one by one, each with its records, until the visitor
    /// breaks. Holds one call in memory.
    ///
    /// # Errors
    /// [`LedgerError`] if the file cannot be read, or a record cannot be parsed.
    pub fn visit_calls(
        &self,
        range: &CallRange,
        filter: &CallFilter<'_>,
        mut visit: impl FnMut(CallEntry, &[PositionedRecord]) -> ControlFlow<()>,
    ) -> Result<(), LedgerError> {
        self.refresh()?;
        let mut visit_key = |key: &[u8]| {
            let found = self.matching(&call_of(key), filter)?;
            Ok(found.map_or(ControlFlow::Continue(()), |(entry, records)| visit(entry, &records)))
        };
        let visited = match &range.run {
            Some(run) => self.walk_run(run, range, visit_key),
            None => SearchPlan::new(self.index(), filter)
                .map_err(SearchError::Index)
                .and_then(|plan| plan.walk(self, range, &mut visit_key)),
        };
        visited.map_err(|error| match error {
            SearchError::Ledger(error) => error,
            SearchError::Index(error) => self.failed(&error),
        })
    }

    /// Calls `visit` with the calls of a run in a range.
    fn walk_run(
        &self,
        run: &str,
        range: &CallRange,
        mut visit: impl FnMut(&[u8]) -> Result<ControlFlow<()>, SearchError>,
    ) -> Result<(), SearchError> {
        let order = if range.newest_first { "DESC" } else { "ASC" };
        let sql = format!(
            "SELECT DISTINCT call FROM events WHERE run = (SELECT id FROM sessions WHERE run = ?1) AND call IS NOT NULL \
             AND call >= ?2 AND (?3 IS NULL OR call < ?3) ORDER BY call {order}"
        );
        let (since, until) = (range.since.map(first_key_at).unwrap_or_default(), range.until.map(first_key_at));
        let mut query = self.connection().prepare_cached(&sql)?;
        let mut rows = query.query(rusqlite::params![run, since, until])?;
        while let Some(row) = rows.next()? {
            if visit(&row.get::<_, Vec<u8>>(0)?)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Returns a call in one line, with its records, or `None` if there is no such call.
    ///
    /// # Errors
    /// As for [`LedgerReader::visit_calls`].
    pub fn call_entry(&self, call: &str) -> Result<Option<(CallEntry, Vec<PositionedRecord>)>, LedgerError> {
        self.refresh()?;
        self.entry(call)
    }

    fn entry(&self, call: &str) -> Result<Option<(CallEntry, Vec<PositionedRecord>)>, LedgerError> {
        self.matching(call, &CallFilter::default())
    }

    /// Returns a call with its records if it meets the conditions.
    fn matching(
        &self,
        call: &str,
        filter: &CallFilter<'_>,
    ) -> Result<Option<(CallEntry, Vec<PositionedRecord>)>, LedgerError> {
        let of_call = RecordFilter { call: Some(call.to_owned()), ..RecordFilter::default() };
        let texts = self.texts("ORDER BY row", 0, MAX_RECORDS, &of_call)?;
        if filter.text.is_some_and(|wanted| !texts.iter().any(|found| wanted.is_in(&found.text))) {
            return Ok(None);
        }
        let records: Vec<_> = texts.into_iter().map(|found| self.parsed(found)).collect::<Result<_, _>>()?;
        let entry = CallEntry::of(&records, |chain| is_live(self.data_dir(), chain));
        Ok(entry.filter(|entry| filter.matches_entry(entry)).map(|entry| (entry, records)))
    }
}

impl CallEntry {
    /// Makes the entry of a call from its records, oldest first; `None` if there are none.
    fn of(records: &[PositionedRecord], is_live: impl Fn(&str) -> bool) -> Option<Self> {
        let first = &records.first()?.record;
        let of_kind = |kind: EventKind| {
            records.iter().map(|entry| &entry.record).find(|record| record.kind == kind.as_str()).map(|r| &r.body)
        };
        let any = |key: &str| records.iter().find_map(|entry| text(entry.record.body.get(key)));
        let item = ["tool", "prompt", "resource", "template"].into_iter().find_map(|kind| Some((kind, any(kind)?)));
        let (denied, completed) = (of_kind(EventKind::CallDenied), of_kind(EventKind::ToolCompleted));
        let (answered, deferred) = (of_kind(EventKind::CallAnswered), of_kind(EventKind::CallDeferred));
        let live = || is_live(&first.chain);
        let outcome = match (denied, completed) {
            (Some(_), _) => RecordedOutcome::Denied,
            (None, Some(body)) => RecordedOutcome::of_text(body["outcome"].as_str().unwrap_or_default()),
            (None, None) if of_kind(EventKind::CallIntent).is_some() => match live() {
                true => RecordedOutcome::Running,
                false => RecordedOutcome::Unknown,
            },
            (None, None) if deferred.is_some() => RecordedOutcome::Deferred,
            (None, None) if answered.is_some_and(|body| body["approved"] == false) => RecordedOutcome::Denied,
            (None, None) if !live() => RecordedOutcome::Abandoned,
            (None, None) if of_kind(EventKind::CallAsked).is_some() => RecordedOutcome::Asked,
            (None, None) => RecordedOutcome::Running,
        };
        let withheld = completed.and_then(|body| text(body.pointer("/withheld/code")));
        let failure = completed.and_then(|body| text(body.get("error")));
        Some(Self {
            call: first.call.clone()?,
            run: first.run.clone(),
            started: first.at,
            principal: any("principal"),
            profile: any("profile"),
            client: any("client"),
            method: any("method"),
            kind: item.as_ref().map(|(kind, _)| *kind),
            item: item.map(|(_, name)| name),
            source: any("source"),
            outcome,
            reason: denied.and_then(|body| text(body.get("code"))).or(withheld).or(failure),
            answered_by: answered.and_then(|body| text(body.get("by"))),
            micros: completed.and_then(|body| body["micros"].as_u64()),
        })
    }
}

fn text(value: Option<&Value>) -> Option<String> {
    value.and_then(Value::as_str).map(str::to_owned)
}
