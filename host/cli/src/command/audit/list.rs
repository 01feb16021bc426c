//! `portcullis audit`: one line for each call.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::pin::pin;
use std::process::ExitCode;

use portcullis::ledger::{CallEntry, EventKind, LedgerReader, RecordFilter, RecordedOutcome};

use crate::call_query::CallQuery;
use crate::moment;
use crate::output::{self, BAD, escape_hidden};
use crate::runtime;

/// The number of calls that are listed if neither a number nor a period is given.
const FEW: usize = 20;

/// The form in which calls are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListingForm {
    /// One line for a person.
    Line,
    /// One JSON object a line.
    Json,
    /// Comma-separated values with a heading, as RFC 4180 has them.
    Csv,
}

/// Prints the calls that match, oldest first.
pub(super) fn run(
    folder: &Path,
    query: &CallQuery,
    n: Option<usize>,
    follow: bool,
    form: ListingForm,
) -> anyhow::Result<ExitCode> {
    let reader = LedgerReader::open(folder)?;
    // Taken before the calls are read, so that none of them is missed.
    let from = reader.tail(1, &RecordFilter::default())?.last().map_or(0, |record| record.position);
    if form == ListingForm::Csv {
        output::text(&format!("{}\r\n", csv_heading()))?;
    }
    let mut shown = BTreeSet::new();
    let mut show = |entry: &CallEntry| {
        if follow && entry.outcome.is_final() {
            shown.insert(entry.call.clone());
        }
        print(entry, form)
    };
    let n = n.or((!query.has_period()).then_some(FEW));
    match n {
        None => query.visit(&reader, false, |entry| show(&entry).map(ControlFlow::Continue))?,
        Some(n) => newest(&reader, query, n)?.iter().rev().try_for_each(&mut show)?,
    }
    if follow {
        self::follow(folder, query, from, shown, form)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the newest `n` calls that match, newest first.
fn newest(reader: &LedgerReader, query: &CallQuery, n: usize) -> anyhow::Result<Vec<CallEntry>> {
    let mut found = Vec::new();
    if n == 0 {
        return Ok(found);
    }
    query.visit(reader, true, |entry| {
        found.push(entry);
        Ok(if found.len() < n { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(found)
}

/// Prints each call that matches when a person is asked about it, and when it ends.
fn follow(
    folder: &Path,
    query: &CallQuery,
    from: u64,
    mut shown: BTreeSet<String>,
    form: ListingForm,
) -> anyhow::Result<()> {
    let (calls, mut records) =
        (LedgerReader::open(folder)?, LedgerReader::open(folder)?.follow(from, RecordFilter::default()));
    let matcher = query.matcher();
    let turns = [EventKind::CallAsked, EventKind::CallDeferred, EventKind::CallDenied, EventKind::ToolCompleted];
    let turns = turns.map(EventKind::as_str);
    runtime::block_on(async {
        let mut interrupted = pin!(runtime::interruption()?);
        loop {
            let new = tokio::select! {
                records = records.next() => records?,
                () = &mut interrupted => return Ok(()),
            };
            for record in new.iter().filter(|record| turns.contains(&&*record.record.kind)) {
                let Some(call) = &record.record.call else { continue };
                let Some((entry, records)) = calls.call_entry(call)? else { continue };
                let listed = shown.contains(call);
                let in_period = query.since.is_none_or(|since| entry.started >= since)
                    && query.until.is_none_or(|until| entry.started < until);
                if !listed && in_period && matcher.matches(&entry, &records) {
                    print(&entry, form)?;
                }
                if entry.outcome.is_final() && !listed {
                    shown.insert(call.clone());
                }
            }
        }
    })
}

fn print(entry: &CallEntry, form: ListingForm) -> anyhow::Result<()> {
    match form {
        ListingForm::Line => output::text(&format!("{}\n", line(entry))),
        ListingForm::Json => output::json_line(&serde_json::to_string(entry)?),
        ListingForm::Csv => output::text(&format!("{}\r\n", csv(entry))),
    }
}

/// Returns a call in one line: its time, identifier, caller, outcome, duration and item.
pub(crate) fn line(entry: &CallEntry) -> String {
    let who = shown(entry.principal.as_deref());
    let item = match &entry.item {
        Some(item) => escape_hidden(item).into_owned(),
        // A request to the source itself is about no item.
        None => shown(entry.method.as_deref()),
    };
    let reason = entry.reason.as_ref().map(|reason| format!("  ({})", escape_hidden(reason))).unwrap_or_default();
    let style = match entry.outcome {
        RecordedOutcome::Ok | RecordedOutcome::Running | RecordedOutcome::Asked | RecordedOutcome::Deferred => {
            anstyle::Style::new()
        }
        _ => BAD,
    };
    let (at, took) = (moment::local(entry.started), entry.micros.map(duration).unwrap_or_default());
    let outcome = entry.outcome.as_str();
    format!("{at}  {}  {who:10}  {style}{outcome:9}{style:#}  {took:>7}  {item}{reason}", escape_hidden(&entry.call))
}

fn shown(text: Option<&str>) -> String {
    escape_hidden(text.unwrap_or("-")).into_owned()
}

/// Returns a duration with two or three digits and its unit.
pub(crate) fn duration(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..10_000 => format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100),
        10_000..1_000_000 => format!("{} ms", micros / 1_000),
        1_000_000..60_000_000 => format!("{}.{} s", micros / 1_000_000, micros % 1_000_000 / 100_000),
        _ => format!("{} min", micros / 60_000_000),
    }
}

const CSV_COLUMNS: [&str; 14] = [
    "time",
    "call",
    "run",
    "principal",
    "profile",
    "client",
    "source",
    "kind",
    "item",
    "method",
    "outcome",
    "reason",
    "answered by",
    "microseconds",
];

/// Returns the heading of comma-separated values, without the end of the line.
pub(super) fn csv_heading() -> String {
    CSV_COLUMNS.join(",")
}

/// Returns a call as comma-separated values, without the end of the line.
pub(super) fn csv(entry: &CallEntry) -> String {
    let at = i64::try_from(entry.started).ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    let texts = [
        Some(&entry.call),
        entry.run.as_ref(),
        entry.principal.as_ref(),
        entry.profile.as_ref(),
        entry.client.as_ref(),
        entry.source.as_ref(),
    ];
    let mut cells = vec![at.unwrap_or_default().to_string()];
    cells.extend(texts.into_iter().map(|text| cell(text.map_or("", String::as_str))));
    cells.push(entry.kind.unwrap_or_default().to_owned());
    cells.extend([&entry.item, &entry.method].map(|text| cell(text.as_deref().unwrap_or_default())));
    cells.push(entry.outcome.as_str().to_owned());
    cells.extend([&entry.reason, &entry.answered_by].map(|text| cell(text.as_deref().unwrap_or_default())));
    cells.push(entry.micros.map(|micros| micros.to_string()).unwrap_or_default());
    cells.join(",")
}

/// Returns a text as one cell. An agent chooses the names that it asks for, and a spreadsheet runs a cell that begins
/// like a formula, so such a cell begins with an apostrophe.
fn cell(text: &str) -> String {
    let shown = escape_hidden(text);
    let mark = if shown.starts_with(['=', '+', '-', '@']) { "'" } else { "" };
    match shown.contains([',', '"', '\'']) {
        true => format!("\"{mark}{}\"", shown.replace('"', "\"\"")),
        false => format!("{mark}{shown}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_neither_a_formula_nor_two_cells() {
        for (text, expected) in [
            ("files__read", "files__read"),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("=cmd()", "'=cmd()"),
            ("@sum(1,2)", "\"'@sum(1,2)\""),
        ] {
            assert_eq!(cell(text), expected);
        }
        assert!(!cell("a\r\nb").contains(['\r', '\n']));
    }

    #[test]
    fn a_duration_has_two_or_three_digits() {
        let shown = [0, 999, 1_449, 12_900, 999_999, 1_250_000, 59_900_000, 61_000_000].map(duration);
        assert_eq!(shown, ["0 µs", "999 µs", "1.4 ms", "12 ms", "999 ms", "1.2 s", "59.9 s", "1 min"]);
    }
}
