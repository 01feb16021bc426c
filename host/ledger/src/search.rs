//! Searching calls: which of them an answer may have is known from the index, and each is compared with its records.

use std::collections::{BTreeSet, HashMap};
use std::ops::{ControlFlow, Range};

use rusqlite::Error;

use super::LedgerError;
use super::calls::{CallEntry, CallRange, RecordedOutcome};
use super::index::{
    CallClass, IndexedRecord, RecordIndex, RecordNames, TextSearch, UNLISTED, WalkedCalls, first_key_at,
};
use super::read::{LedgerReader, PositionedRecord};
use super::text::TextQuery;

/// The number of blocks without a searched text after which the calls in them whose names have it are visited.
const VISIT_AFTER: usize = 64;

/// The conditions that a call must meet. The default is met by every call.
#[derive(Clone, Copy, Default)]
pub struct CallFilter<'a> {
    /// The principal who called.
    pub principal: Option<&'a str>,
    /// The profile of the caller.
    pub profile: Option<&'a str>,
    /// The source that was called.
    pub source: Option<&'a str>,
    /// The condition on the name of the item.
    pub item: Option<&'a dyn Fn(&str) -> bool>,
    /// The outcome.
    pub outcome: Option<RecordedOutcome>,
    /// The text that one of its records must have.
    pub text: Option<&'a TextQuery>,
}

/// The calls that may meet the conditions, by what the index has of them.
pub(super) struct SearchPlan<'a> {
    text: Option<&'a TextQuery>,
    /// The classes of the calls that may meet them, except for the text; `None` if all may.
    classes: Option<Vec<i64>>,
    /// Those of them whose names have the text.
    named: Vec<i64>,
}

impl CallFilter<'_> {
    /// Reports whether a call with these records meets the conditions.
    #[must_use]
    pub fn matches(&self, entry: &CallEntry, records: &[PositionedRecord]) -> bool {
        let has_text = |text: &TextQuery| {
            records.iter().any(|found| serde_json::to_string(&found.record).is_ok_and(|record| text.is_in(&record)))
        };
        self.matches_entry(entry) && self.text.is_none_or(has_text)
    }

    /// Reports whether a call meets the conditions except for the text.
    pub(super) fn matches_entry(&self, entry: &CallEntry) -> bool {
        let is = |wanted: Option<&str>, found: &Option<String>| wanted.is_none() || wanted == found.as_deref();
        is(self.principal, &entry.principal)
            && is(self.profile, &entry.profile)
            && is(self.source, &entry.source)
            && self.outcome.is_none_or(|outcome| outcome == entry.outcome)
            && self.item.is_none_or(|item| entry.item.as_deref().is_some_and(item))
    }

    /// Reports whether calls of a class may meet the conditions except for the text.
    fn may_match(&self, class: &CallClass, names: &HashMap<i64, String>) -> bool {
        let meets =
            |id: i64, wanted: &dyn Fn(&str) -> bool| id == UNLISTED || names.get(&id).is_some_and(|name| wanted(name));
        let is = |wanted: Option<&str>, id: i64| wanted.is_none_or(|wanted| meets(id, &|name| name == wanted));
        let RecordNames { principal, profile, source, item } = class.names;
        is(self.principal, principal)
            && is(self.profile, profile)
            && is(self.source, source)
            && self.outcome.is_none_or(|outcome| class.stage.may_be(outcome))
            && self.item.is_none_or(|wanted| meets(item, wanted))
    }

    fn asks_for_class(&self) -> bool {
        let names = [self.principal, self.profile, self.source];
        names.iter().any(Option::is_some) || self.item.is_some() || self.outcome.is_some()
    }
}

impl<'a> SearchPlan<'a> {
    /// Finds the classes of calls that may meet conditions.
    pub(super) fn new(index: &RecordIndex, filter: &CallFilter<'a>) -> Result<Self, Error> {
        let mut plan = Self { text: filter.text, classes: None, named: Vec::new() };
        if !filter.asks_for_class() && filter.text.is_none() {
            return Ok(plan);
        }
        let names = index.names()?;
        let mut classes = index.classes()?;
        classes.retain(|(_, class)| filter.may_match(class, &names));
        if let Some(text) = filter.text {
            let named: HashMap<i64, bool> = names.iter().map(|(id, name)| (*id, text.is_in_name(name))).collect();
            let is_named = |class: &CallClass| class.names.each().into_iter().any(|id| named.get(id) == Some(&true));
            plan.named = classes.iter().filter(|(_, class)| is_named(class)).map(|(id, _)| *id).collect();
        }
        plan.classes = filter.asks_for_class().then(|| classes.into_iter().map(|(id, _)| id).collect());
        Ok(plan)
    }

    /// Calls `visit` with the calls of a range that may meet the conditions, in order, until it breaks or fails.
    pub(super) fn walk(
        &self,
        reader: &LedgerReader,
        range: &CallRange,
        mut visit: impl FnMut(&[u8]) -> Result<ControlFlow<()>, SearchError>,
    ) -> Result<(), SearchError> {
        let index = reader.index();
        // No identifier is as large as the end.
        let span =
            range.since.map(first_key_at).unwrap_or_default()..range.until.map_or_else(|| vec![0xff; 17], first_key_at);
        let all = self.classes.as_deref().map_or(WalkedCalls::All, WalkedCalls::OfClasses);
        let Some(text) = self.text else {
            return index.walk(span, all, range.newest_first, visit).map(drop);
        };
        let (firsts, mut search) = (index.blocks()?, TextSearch::new(index, text));
        let mut spans = parts(&firsts, &span);
        if range.newest_first {
            spans.reverse();
        }
        let named = WalkedCalls::OfClasses(&self.named);
        let mut left: Vec<Range<Vec<u8>>> = Vec::new();
        for (at, span) in spans {
            let has_text = search.may_be_in(&firsts, at)?;
            if !has_text {
                left.push(span.clone());
            }
            if has_text || left.len() >= VISIT_AFTER {
                let done = visit_named(index, &mut left, named, range, &mut visit)?;
                if done.is_break() {
                    return Ok(());
                }
            }
            if has_text {
                let found = reader.calls_with_text(&span, text)?;
                let of_found = |call: &[u8]| match found.contains(call) {
                    true => visit(call),
                    false => Ok(ControlFlow::Continue(())),
                };
                if !found.is_empty() && index.walk(span, all, range.newest_first, of_found)?.is_break() {
                    return Ok(());
                }
            }
        }
        visit_named(index, &mut left, named, range, &mut visit).map(drop)
    }
}

/// The reason why calls could not be searched.
pub(super) enum SearchError {
    Ledger(LedgerError),
    Index(Error),
}

impl From<Error> for SearchError {
    fn from(error: Error) -> Self {
        Self::Index(error)
    }
}

impl From<LedgerError> for SearchError {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(error)
    }
}

/// Visits the calls in adjoining spans whose names have the text.
fn visit_named(
    index: &RecordIndex,
    spans: &mut Vec<Range<Vec<u8>>>,
    named: WalkedCalls<'_>,
    range: &CallRange,
    visit: impl FnMut(&[u8]) -> Result<ControlFlow<()>, SearchError>,
) -> Result<ControlFlow<()>, SearchError> {
    let spans = std::mem::take(spans);
    let (start, end) = (spans.iter().map(|span| &span.start).min(), spans.iter().map(|span| &span.end).max());
    let (Some(start), Some(end)) = (start, end) else { return Ok(ControlFlow::Continue(())) };
    index.walk(start.clone()..end.clone(), named, range.newest_first, visit)
}

/// Returns the parts of a span in blocks, each by the place of its block and in order. `firsts` are the first calls of
/// blocks.
fn parts(firsts: &[Vec<u8>], span: &Range<Vec<u8>>) -> Vec<(usize, Range<Vec<u8>>)> {
    let ends = firsts.iter().skip(1).chain([&span.end]);
    let parts = firsts.iter().zip(ends).map(|(first, end)| first.max(&span.start).clone()..end.min(&span.end).clone());
    parts.enumerate().filter(|(_, part)| part.start < part.end).collect()
}

impl LedgerReader {
    /// Returns the calls of a span that have a record with a text, by reading all records in order.
    fn calls_with_text(&self, span: &Range<Vec<u8>>, text: &TextQuery) -> Result<BTreeSet<Vec<u8>>, SearchError> {
        let mut found = BTreeSet::new();
        for record in self.index().records_of_calls(span)? {
            let IndexedRecord { call, chain, seq, place } = record;
            if self.with_text(&chain, seq, place, |record| text.is_in(record))? {
                found.insert(call);
            }
        }
        Ok(found)
    }
}
