//! The options that select calls of the ledger.

use std::ops::ControlFlow;

use anyhow::Context as _;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use globset::{Glob, GlobMatcher};
use portcullis::ledger::{CallEntry, CallRange, LedgerReader, PositionedRecord, RecordedOutcome};

use crate::{completion, moment};

/// The options that select calls. A call must match all that are given.
#[derive(Debug, Clone, Default, PartialEq, clap::Args)]
pub(crate) struct CallQuery {
    /// Calls that began at this moment or later: an age such as `2h` or `7d`, `today`, `yesterday`, a day such as
    /// `2026-11-22`, or a moment such as `2026-11-22T14:00:00Z`
    #[arg(long, value_name = "WHEN", value_parser = moment::since)]
    pub(crate) since: Option<u64>,

    /// Calls that began before this moment, or not after this day
    #[arg(long, value_name = "WHEN", value_parser = moment::until)]
    pub(crate) until: Option<u64>,

    /// Calls of this source
    #[arg(long, value_name = "NAME", add = completion::all_sources())]
    pub(crate) source: Option<String>,

    /// Calls of this tool, prompt or resource; `*` stands for any text, as in `files__*`
    #[arg(long, value_name = "NAME", add = completion::tools())]
    pub(crate) tool: Option<Glob>,

    /// Calls of this principal
    #[arg(long, value_name = "WHO")]
    pub(crate) principal: Option<String>,

    /// Calls under this profile
    #[arg(long, value_name = "P", add = completion::profiles())]
    pub(crate) profile: Option<String>,

    /// Calls that ended like this
    #[arg(long, value_parser = PossibleValuesParser::new(RecordedOutcome::ALL.map(RecordedOutcome::as_str)).map(|word| {
        // The parser lets only these words pass.
        RecordedOutcome::ALL.into_iter().find(|result| result.as_str() == word).unwrap_or(RecordedOutcome::Unknown)
    }))]
    pub(crate) outcome: Option<RecordedOutcome>,

    /// Calls with this text in their records, ignoring case: a code, a name, or an argument if the profile says `record
    /// = "full"`
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
}

impl CallQuery {
    /// Reports whether the options limit the time.
    pub(crate) fn has_period(&self) -> bool {
        self.since.is_some() || self.until.is_some()
    }

    /// Visits the calls that match until the visitor breaks or fails. Holds one call in memory.
    pub(crate) fn visit(
        &self,
        reader: &LedgerReader,
        newest_first: bool,
        mut visit: impl FnMut(CallEntry) -> anyhow::Result<ControlFlow<()>>,
    ) -> anyhow::Result<()> {
        let range = CallRange { since: self.since, until: self.until, run: None, newest_first };
        let matcher = self.matcher()?;
        let mut failed = None;
        reader.visit_calls(&range, |entry, records| {
            if !matcher.matches(&entry, records) {
                return ControlFlow::Continue(());
            }
            visit(entry).unwrap_or_else(|error| {
                failed = Some(error);
                ControlFlow::Break(())
            })
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Prepares the options to be compared with calls.
    pub(crate) fn matcher(&self) -> anyhow::Result<CallMatcher<'_>> {
        let text = self.text.as_ref().map(|text| serde_json::to_string(&text.to_lowercase()));
        let text = text.transpose().context("--text")?;
        // Records are JSON, in which some characters are escaped, so the text is searched as JSON writes it.
        let text = text.map(|text| text.trim_matches('"').to_owned());
        Ok(CallMatcher { query: self, tool: self.tool.as_ref().map(Glob::compile_matcher), text })
    }
}

/// Prepared options.
pub(crate) struct CallMatcher<'a> {
    query: &'a CallQuery,
    tool: Option<GlobMatcher>,
    text: Option<String>,
}

impl CallMatcher<'_> {
    /// Reports whether a call matches all options except those of time.
    pub(crate) fn matches(&self, entry: &CallEntry, records: &[PositionedRecord]) -> bool {
        let is = |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        let query = self.query;
        is(&query.source, &entry.source)
            && is(&query.principal, &entry.principal)
            && is(&query.profile, &entry.profile)
            && query.outcome.is_none_or(|outcome| outcome == entry.outcome)
            && self.tool.as_ref().is_none_or(|tool| entry.item.as_ref().is_some_and(|item| tool.is_match(item)))
            && self.text.as_ref().is_none_or(|text| records.iter().any(|record| contains(record, text)))
    }
}

fn contains(record: &PositionedRecord, text: &str) -> bool {
    serde_json::to_string(&record.record).is_ok_and(|record| record.to_lowercase().contains(text))
}
