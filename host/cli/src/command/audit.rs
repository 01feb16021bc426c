//! `portcullis audit`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use portcullis::ledger::{self, CallOrRun, ChainStatus, LedgerError, LedgerReader, PositionedRecord, RecordFilter};

use crate::cli::Global;
use crate::output::{self, BAD, BOLD, escape_hidden};
use crate::runtime;

/// Read and check the ledger
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  portcullis audit tail
  portcullis audit tail -n 100 --kind call.denied --json
  portcullis audit tail --follow
  portcullis audit show 01JD8Z…
  portcullis audit verify")]
pub(crate) struct Args {
    /// Read the ledger of this data folder
    #[arg(long, value_name = "DIR", global = true)]
    data_dir: Option<PathBuf>,

    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the last records
    Tail {
        /// How many records to print
        #[arg(short, long, default_value_t = 20, value_name = "N")]
        n: usize,
        /// Only records of this kind, such as call.denied
        #[arg(long)]
        kind: Option<String>,
        /// Then print new records as they are written
        #[arg(short, long)]
        follow: bool,
    },
    /// Show a call or a run with all its records
    Show {
        /// The id of a call or a run
        id: String,
    },
    /// Recompute every chain: exit code 0 if good, 1 if tampered with, 2 if incomplete because a broker was killed and
    /// no later broker has sealed its chain yet
    Verify,
}

pub(crate) fn run(args: &Args, global: &Global) -> anyhow::Result<ExitCode> {
    let folder = folder(global, args.data_dir.as_ref())?;
    match &args.action {
        Action::Tail { n, kind, follow } => tail(&folder, *n, kind.clone(), *follow, global.json),
        Action::Show { id } => show(&folder, id, global.json),
        Action::Verify => verify(&folder, global.json),
    }
}

/// Returns the first data folder that has a ledger or had one. A folder whose ledger is lost must not be skipped.
fn folder(global: &Global, named: Option<&PathBuf>) -> anyhow::Result<PathBuf> {
    let folders = runtime::data_dirs(global, named)?;
    let found = folders.iter().find(|folder| ["ledger.sqlite", "chains"].iter().any(|name| folder.join(name).exists()));
    let first = folders.first().cloned().unwrap_or_default();
    Ok(found.cloned().unwrap_or(first))
}

fn tail(folder: &Path, n: usize, kind: Option<String>, follow: bool, json: bool) -> anyhow::Result<ExitCode> {
    let reader = LedgerReader::open(folder)?;
    let filter = RecordFilter { kind, ..RecordFilter::default() };
    let records = reader.tail(n, &filter)?;
    records.iter().try_for_each(|record| print(record, json))?;
    if follow {
        let from = reader.tail(1, &RecordFilter::default())?.last().map_or(0, |record| record.position);
        runtime::block_on(async {
            let mut follow = reader.follow(from, filter);
            loop {
                tokio::select! {
                    records = follow.next() => records?.iter().try_for_each(|record| print(record, json))?,
                    ended = runtime::shutdown_signal() => return Ok(ended?),
                }
            }
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(record: &PositionedRecord, json: bool) -> anyhow::Result<()> {
    let value = &serde_json::to_value(record)?;
    if json {
        return output::json_line(&value.to_string());
    }
    let text = |key: &str| escape_hidden(value[key].as_str().unwrap_or("-")).into_owned();
    let at = value["at"].as_u64().and_then(|at| i64::try_from(at).ok());
    let at = at.and_then(|at| jiff::Timestamp::from_millisecond(at).ok()).map(|at| at.to_string()).unwrap_or_default();
    // The fields that a reader looks for come first; `--json` prints the whole record.
    let body = &value["body"];
    let first =
        ["tool", "prompt", "resource", "source", "outcome", "code"].into_iter().filter_map(|key| body[key].as_str());
    let first: Vec<_> = first.map(brief).collect();
    let (kind, call, first) = (text("kind"), text("call"), first.join(" "));
    output::text(&format!("{at:24}  {BOLD}{kind:15}{BOLD:#}  {call:26}  {first}  {}\n", brief(&body.to_string())))
}

/// Returns the first 160 characters of a text.
fn brief(body: &str) -> String {
    let shown = escape_hidden(body);
    match shown.char_indices().nth(160) {
        Some((cut, _)) => format!("{}…", shown.get(..cut).unwrap_or_default()),
        None => shown.into_owned(),
    }
}

fn show(folder: &Path, id: &str, json: bool) -> anyhow::Result<ExitCode> {
    let Some(shown) = LedgerReader::open(folder)?.show(id)? else {
        anyhow::bail!("no call or run {id:?} in the ledger at {}", folder.display());
    };
    if json {
        output::json(&serde_json::to_value(&shown)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (row, records) = match &shown {
        CallOrRun::Call { row, records } => (serde_json::to_value(row)?, records),
        CallOrRun::Run { row, records } => (serde_json::to_value(row)?, records),
    };
    for (key, value) in row.as_object().into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        output::text(&format!("{key:10}  {}\n", escape_hidden(&value)))?;
    }
    for record in records {
        let record = &serde_json::to_value(record)?;
        output::text(&format!("{BOLD}{}{BOLD:#}\n", escape_hidden(record["kind"].as_str().unwrap_or_default())))?;
        let body = format!("{:#}", record["body"]);
        output::text(&format!("{}\n", body.lines().map(escape_hidden).collect::<Vec<_>>().join("\n")))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn verify(folder: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let found = match ledger::verify(folder) {
        // A missing ledger is no sign of tampering, and no proof that there was none.
        Err(error @ LedgerError::Missing(_)) => {
            output::note(&format!("incomplete: {error}"));
            return Ok(ExitCode::from(2));
        }
        found => found?,
    };
    if json {
        output::json(&serde_json::to_value(&found)?)?;
    }
    let records: u64 = found.chains.iter().map(|chain| chain.records).sum();
    let lines: Vec<String> = match &*found.findings {
        [] => vec![format!("good: {records} records in {} chains, every hash as it was written", found.chains.len())],
        findings => findings.iter().map(finding).collect(),
    };
    if !json {
        output::text(&format!("{}\n", lines.join("\n")))?;
    }
    Ok(ExitCode::from(match found.verdict {
        ChainStatus::Good => 0,
        ChainStatus::Tampered { .. } => 1,
        ChainStatus::Incomplete { .. } => 2,
    }))
}

fn finding(finding: &ChainStatus) -> String {
    match finding {
        ChainStatus::Good => "good".to_owned(),
        ChainStatus::Tampered { chain, seq, reason } => {
            let at = match (chain, seq) {
                (Some(chain), Some(seq)) => format!("record {seq} of chain {}", escape_hidden(chain)),
                (Some(chain), None) => format!("chain {}", escape_hidden(chain)),
                _ => "the file".to_owned(),
            };
            format!("{BAD}tampered with{BAD:#}: {at}: {}", escape_hidden(reason))
        }
        ChainStatus::Incomplete { chain, reason } => format!("incomplete: chain {}: {reason}", escape_hidden(chain)),
    }
}
