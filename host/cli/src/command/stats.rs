//! `portcullis stats`

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::process::ExitCode;

use portcullis::ledger::{CallEntry, LedgerReader, RecordedOutcome};
use serde_json::{Value, json};

use crate::call_query::CallQuery;
use crate::cli::GlobalArgs;
use crate::command::audit;
use crate::moment;
use crate::output::{self, BOLD, escape_hidden};

/// Count calls, failures and denials, and how long calls take, by source and tool
///
/// Without `--since` and `--until` it counts the calls of the last 24 hours. `failed` are the calls that the source
/// answered with an error or could not be sent to, `denied` those that the gate refused or whose answer it withheld.
/// Calls that `portcullis learn` made are left out unless `--principal learn` asks for them.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis stats
  portcullis stats --since yesterday --source files
  portcullis stats --since 7d --json")]
pub(crate) struct Args {
    #[command(flatten)]
    query: CallQuery,

    /// Read the ledger of this data folder
    #[arg(long, value_name = "DIR")]
    data_dir: Option<std::path::PathBuf>,
}

/// The calls of one row of the table.
#[derive(Debug, Default)]
struct Traffic {
    calls: u64,
    failed: u64,
    denied: u64,
    unknown: u64,
    durations: Durations,
}

/// Durations, each with its three leading digits, so that a million calls need no more memory than a thousand.
#[derive(Debug, Default)]
struct Durations {
    counts: BTreeMap<u64, u64>,
    total: u64,
}

impl Traffic {
    fn count(&mut self, entry: &CallEntry) {
        self.calls += 1;
        match entry.outcome {
            RecordedOutcome::Failed | RecordedOutcome::NotSent => self.failed += 1,
            RecordedOutcome::Denied | RecordedOutcome::Withheld => self.denied += 1,
            RecordedOutcome::Unknown => self.unknown += 1,
            RecordedOutcome::Ok
            | RecordedOutcome::Asked
            | RecordedOutcome::Deferred
            | RecordedOutcome::Running
            | RecordedOutcome::Abandoned => {}
        }
        if let Some(micros) = entry.micros {
            self.durations.add(micros);
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "calls": self.calls, "failed": self.failed, "denied": self.denied, "unknown": self.unknown,
            "p50Micros": self.durations.quantile(50), "p95Micros": self.durations.quantile(95),
        })
    }

    /// Returns the columns of a row after its name.
    fn columns(&self) -> String {
        let time = |percent| self.durations.quantile(percent).map_or_else(|| "-".to_owned(), audit::duration);
        let Self { calls, failed, denied, unknown, .. } = self;
        format!("{calls:>8}  {failed:>8}  {denied:>8}  {unknown:>8}  {:>8}  {:>8}", time(50), time(95))
    }
}

impl Durations {
    fn add(&mut self, micros: u64) {
        let unit = 10u64.pow(micros.checked_ilog10().unwrap_or(0).saturating_sub(2));
        *self.counts.entry(micros / unit * unit).or_default() += 1;
        self.total += 1;
    }

    /// Returns the duration that this percentage of all calls does not exceed; `None` if there are none.
    fn quantile(&self, percent: u64) -> Option<u64> {
        let wanted = (self.total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        self.counts.iter().find_map(|(micros, count)| {
            seen += count;
            (seen >= wanted).then_some(*micros)
        })
    }
}

pub(crate) fn run(args: &Args, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let reader = LedgerReader::open(&audit::folder(global, args.data_dir.as_ref())?)?;
    let mut query = args.query.clone();
    if !query.has_period() {
        query.since = Some(moment::since("24h").map_err(anyhow::Error::msg)?);
    }
    let mut all = Traffic::default();
    let mut sources: BTreeMap<String, (Traffic, BTreeMap<String, Traffic>)> = BTreeMap::new();
    let mut left_out = 0u64;
    query.visit(&reader, false, |entry| {
        if query.leaves_out(&entry) {
            left_out += 1;
            return Ok(ControlFlow::Continue(()));
        }
        all.count(&entry);
        let (of_source, items) = sources.entry(entry.source.clone().unwrap_or_default()).or_default();
        of_source.count(&entry);
        // Names that agents invented are not tools.
        if let Some(item) = entry.item.clone().or_else(|| entry.method.clone()).filter(|_| entry.source.is_some()) {
            items.entry(item).or_default().count(&entry);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if global.json {
        output::json(&json!({
            "since": query.since, "until": query.until, "all": all.to_json(), "learnCalls": left_out,
            "sources": sources.iter().map(|(name, (traffic, items))| json!({
                "source": (!name.is_empty()).then_some(name), "all": traffic.to_json(),
                "items": items.iter().map(|(name, traffic)| json!({ "item": name, "all": traffic.to_json() })).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let from = query.since.map_or_else(|| "the beginning".to_owned(), moment::local);
    let to = query.until.map_or_else(|| "now".to_owned(), moment::local);
    output::text(&format!("calls from {from} to {to}\n"))?;
    let row = |name: &str, columns: &str| output::text(&format!("{name:32}  {columns}\n"));
    let columns = ["calls", "failed", "denied", "unknown", "p50", "p95"].map(|name| format!("{name:>8}")).join("  ");
    output::text(&format!("{BOLD}{:32}  {columns}{BOLD:#}\n", "source, tool"))?;
    for (name, (traffic, items)) in &sources {
        let name = if name.is_empty() { "(no source)".to_owned() } else { escape_hidden(name).into_owned() };
        row(&name, &traffic.columns())?;
        items.iter().try_for_each(|(name, traffic)| row(&format!("  {}", escape_hidden(name)), &traffic.columns()))?;
    }
    row("all", &all.columns())?;
    if left_out > 0 {
        let calls = output::counted(left_out, "call");
        output::text(&format!("left out: {calls} of `portcullis learn`, which `--principal learn` counts\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_all_durations_to_three_digits() {
        let mut durations = Durations::default();
        assert_eq!(durations.quantile(50), None);
        (1..=100).for_each(|number| durations.add(number * 12_345));
        assert_eq!((durations.quantile(50), durations.quantile(95)), (Some(617_000), Some(1_170_000)));
        (0..10_000_000).step_by(7).for_each(|micros| durations.add(micros));
        assert!(durations.counts.len() < 6_000, "{}", durations.counts.len());
    }
}
