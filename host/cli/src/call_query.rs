//! The options that select calls of the ledger.

use std::ops::ControlFlow;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use globset::{Glob, GlobMatcher};
use portcullis::ledger::{
    CallEntry, CallFilter, CallRange, LedgerReader, PositionedRecord, RecordedOutcome, TextQuery,
};

use crate::{completion, moment};

/// The shortest text, in bytes, that is searched for in all calls: the index has nothing shorter, so that every record
/// would be read.
const MIN_TEXT: usize = 3;

/// The principal of the calls that `portcullis learn` makes. No front gives it to an agent.
pub(crate) const LEARN: &str = "learn";

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

    /// Calls with this text in their records, ignoring case: the code of a refusal, a name, or an argument if the
    /// profile says `record = "full"`; a hash or an identifier by its first eight characters or more. Fewer than three
    /// bytes need `--since`
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
}

impl CallQuery {
    /// Reports whether the options limit the time.
    pub(crate) fn has_period(&self) -> bool {
        self.since.is_some() || self.until.is_some()
    }

    /// Reports whether a call was made by `portcullis learn` and is not asked for: no agent and no person made it.
    pub(crate) fn leaves_out(&self, entry: &CallEntry) -> bool {
        entry.principal.as_deref() == Some(LEARN) && self.principal.as_deref() != Some(LEARN)
    }

    /// Returns an error if a text is too short for the index and nothing limits the time.
    pub(crate) fn require_indexed(&self) -> anyhow::Result<()> {
        if self.text.as_ref().is_some_and(|text| text.len() < MIN_TEXT) && self.since.is_none() {
            anyhow::bail!(
                "`--text` with fewer than {MIN_TEXT} bytes is looked for in every record: name a longer part of the text, or a \
                 period with `--since`, such as `--since today`"
            );
        }
        Ok(())
    }

    /// Visits the calls that match until the visitor breaks or fails. Holds one call in memory.
    pub(crate) fn visit(
        &self,
        reader: &LedgerReader,
        newest_first: bool,
        mut visit: impl FnMut(CallEntry) -> anyhow::Result<ControlFlow<()>>,
    ) -> anyhow::Result<()> {
        self.visit_with_records(reader, newest_first, |entry, _| visit(entry))
    }

    /// Visits the calls that match, each with its records, until the visitor breaks or fails. Holds one call in memory.
    pub(crate) fn visit_with_records(
        &self,
        reader: &LedgerReader,
        newest_first: bool,
        mut visit: impl FnMut(CallEntry, &[PositionedRecord]) -> anyhow::Result<ControlFlow<()>>,
    ) -> anyhow::Result<()> {
        self.require_indexed()?;
        let range = CallRange { since: self.since, until: self.until, run: None, newest_first };
        let matcher = self.matcher();
        let mut failed = None;
        matcher.with_filter(|filter| {
            reader.visit_calls(&range, filter, |entry, records| {
                visit(entry, records).unwrap_or_else(|error| {
                    failed = Some(error);
                    ControlFlow::Break(())
                })
            })
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Prepares the options to be compared with calls.
    pub(crate) fn matcher(&self) -> CallMatcher<'_> {
        let text = self.text.as_deref().map(TextQuery::new);
        CallMatcher { query: self, tool: self.tool.as_ref().map(Glob::compile_matcher), text }
    }
}

/// Prepared options.
pub(crate) struct CallMatcher<'a> {
    query: &'a CallQuery,
    tool: Option<GlobMatcher>,
    text: Option<TextQuery>,
}

impl CallMatcher<'_> {
    /// Reports whether a call matches all options except those of time.
    pub(crate) fn matches(&self, entry: &CallEntry, records: &[PositionedRecord]) -> bool {
        self.with_filter(|filter| filter.matches(entry, records))
    }

    /// Returns what a function makes of the conditions other than the time.
    fn with_filter<T>(&self, work: impl FnOnce(&CallFilter<'_>) -> T) -> T {
        let is_tool = |item: &str| self.tool.as_ref().is_none_or(|tool| tool.is_match(item));
        let CallQuery { principal, profile, source, outcome, .. } = self.query;
        work(&CallFilter {
            principal: principal.as_deref(),
            profile: profile.as_deref(),
            source: source.as_deref(),
            item: self.tool.as_ref().map(|_| &is_tool as &dyn Fn(&str) -> bool),
            outcome: *outcome,
            text: self.text.as_ref(),
        })
    }
}
